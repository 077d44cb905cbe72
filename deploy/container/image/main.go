// Command image writes a container image of Holdfast as one file: an OCI image layout in a tar
// archive, which skopeo, podman and docker read. It needs neither a base image nor a container
// engine. The same binary, version and time give the same bytes.
//
// Imports: std, the root certificates of golang.org/x/crypto.
// Never:   other packages of Holdfast.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run writes the image that args describe.
func run(args []string, stderr io.Writer) error {
	var (
		flags    = flag.NewFlagSet("image", flag.ContinueOnError)
		name     = flags.String("name", "localhost/holdfast", "`name` of the image in its registry")
		tags     = flags.String("tags", "latest", "`tags` of the image, separated by commas; an archive for several architectures has the first only")
		version  = flags.String("version", "", "`version` of the program, for a label")
		revision = flags.String("revision", "", "`commit` of the source, for a label")
		license  = flags.String("license", "LICENSE", "`file` with the license")
		epoch    = flags.Int64("epoch", 0, "`seconds` since 1970 that all files have as their time")
		out      = flags.String("out", "", "`file` to write")
		programs []program
	)
	flags.SetOutput(stderr)
	flags.Func("program", "`ARCH=FILE` with the program for one architecture; may be repeated, and makes an image for several then", func(text string) error {
		arch, path, ok := strings.Cut(text, "=")
		if !ok || arch == "" || path == "" {
			return fmt.Errorf("%q is not ARCH=FILE", text)
		}
		programs = append(programs, program{arch: arch, path: path})
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if len(programs) == 0 || *out == "" || *version == "" || flags.NArg() > 0 {
		return fmt.Errorf("-program, -version and -out are needed, and nothing else: %q", flags.Args())
	}
	text, err := os.ReadFile(*license)
	if err != nil {
		return err
	}
	d := description{
		name: *name, tags: strings.Split(*tags, ","), version: *version, revision: *revision,
		license: text, created: time.Unix(*epoch, 0).UTC(),
	}
	return writeFile(*out, func(w io.Writer) error { return d.write(w, programs) })
}

// writeFile writes a file by fill. If fill fails, there is no new file.
func writeFile(path string, fill func(w io.Writer) error) error {
	f, err := os.Create(path + ".partial")
	if err != nil {
		return err
	}
	err = fill(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error of fill says more
		return err
	}
	return os.Rename(f.Name(), path)
}
