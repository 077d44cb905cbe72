package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/ipfs/go-cid"
	"github.com/spf13/cobra"
)

// copyBuffer is the size of the buffer for copying a file, in bytes.
const copyBuffer = 256 << 10

func (a *app) addCommand() *cobra.Command {
	var (
		user, name string
		asJSON     bool
	)
	cmd := &cobra.Command{
		Use:   "add FILE",
		Short: "Import a file, pin it, and print its CID",
		Long: `Imports FILE through this node, pins it, and waits until enough copies are
durable. The command writes the CID, and nothing else, to standard output. With
- as FILE it reads standard input.`,
		Example: `  holdfast add holiday.jpg
  tar c photos | holdfast add - --name photos.tar --user ann@example.org`,
		Args: arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			if name == "" && args[0] != "-" {
				name = filepath.Base(args[0])
			}
			if !utf8.ValidString(name) {
				return fmt.Errorf("the name of %q is not UTF-8: give the pin one with --name", args[0])
			}
			return a.addFile(cmd.Context(), o, args[0], user, name, asJSON)
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "`email` of the account that gets the pin (default the operator's account)")
	cmd.Flags().StringVar(&name, "name", "", "`name` of the pin (default the name of the file)")
	jsonFlag(cmd, &asJSON)
	mustNotBeEmpty(cmd, "user")
	mustBeText(cmd, "user", "name")
	return cmd
}

// addedFile is the output of add --json.
type addedFile struct {
	CID       string `json:"cid"`
	Size      uint64 `json:"size"` // size of the file in bytes
	RequestID string `json:"requestid"`
	Status    string `json:"status"` // status of the pin
}

func (a *app) addFile(ctx context.Context, o operator, path, user, name string, asJSON bool) error {
	in := interruptible(ctx, a.stdin)
	size := int64(-1)
	if path != "-" {
		f, err := openInput(ctx, path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only read from
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if info.IsDir() {
			return fmt.Errorf("%s is a folder: add takes one file", path)
		}
		if info.Mode().IsRegular() {
			size = info.Size()
		}
		in = interruptible(ctx, f)
	}
	bar := a.newBar(size, "importing")
	added, err := o.AddContent(ctx, io.TeeReader(in, bar))
	_ = bar.Finish() // it is only for the eye
	if err != nil {
		return err
	}
	pin, err := o.AddPin(ctx, user, client.Pin{CID: added.CID, Name: name})
	if err != nil {
		return fmt.Errorf("%s is imported but not pinned: %w", added.CID, err)
	}
	pin, err = a.waitPinned(ctx, o, user, pin)
	if err != nil && !errors.Is(err, errInterrupted) {
		return err
	}
	return errors.Join(a.did(asJSON, addedFile{added.CID, added.Size, pin.RequestID, pin.Status}, "%s", added.CID), err)
}

func (a *app) getCommand() *cobra.Command {
	var output, user string
	var plan readPlan
	cmd := &cobra.Command{
		Use:   "get CID | get s3://BUCKET/KEY [FILE]",
		Short: "Read a file by its CID, or download an object",
		Long: `With a CID: reads a file from this node or from another member, and verifies
each block against its hash. CID can also have the form /ipfs/CID or
ipfs://CID. With -o the file gets its name only when it is complete. This
version reads no folders and no paths in folders. With --user the command reads
as that account. An account can read public content, and content that its own
pins and objects refer to.

With s3://BUCKET/KEY: downloads an object from a cluster to FILE, which is -
for standard output, and by default has the name of the object. FILE gets its
name when it is complete. A large download that was interrupted continues.

With --verify, or with --blake3, each KiB is checked against the BLAKE3 hash of
the object before it is written. A wrong byte ends the download, and the
message names the node that sent it. The hash is that of --blake3. Without it
the cluster says the hash, which protects against damage and against a single
bad node, but not against a whole cluster that lies.`,
		Example: `  holdfast get bafkrei... -o holiday.jpg
  holdfast get bafybei... | tar x
  holdfast get bafybei... --user ann@example.org -o notes.txt
  holdfast get s3://photos/2026/holiday.jpg
  holdfast get --verify s3://backup/work.tar - | tar x`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && isS3(args[0]) {
				return arguments("s3://BUCKET/KEY", fileArgument)(cmd, args)
			}
			return arguments("CID")(cmd, args)
		},
	}
	r, s := a.remoteFlags(cmd), sealingFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if isS3(args[0]) {
			if user != "" {
				return usagef("%s: --user is for a CID: objects are read with a key", called(cmd))
			}
			return a.getObject(cmd, r, s, args, output, plan)
		}
		for _, name := range []string{"verify", "blake3", "endpoint", "token", "profile", "encrypt", "identity", "passphrase-file"} {
			if cmd.Flags().Changed(name) {
				return usagef("%s: --%s is for s3://BUCKET/KEY: the node on this machine verifies each block of a CID", called(cmd), name)
			}
		}
		o, err := a.operator()
		if err != nil {
			return err
		}
		text, err := plainCID(called(cmd), args[0])
		if err != nil {
			return err
		}
		return a.getFile(cmd.Context(), o, user, text, output)
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` to write (default standard output for a CID)")
	cmd.Flags().StringVar(&user, "user", "", "`email` of the account that reads (default the operator, who can read everything)")
	cmd.Flags().BoolVar(&plan.verify, "verify", false, "check the bytes of an object against its BLAKE3 hash as they arrive")
	cmd.Flags().StringVar(&plan.blake3, "blake3", "", "BLAKE3 `hash` that the object must have, in hexadecimal; implies --verify")
	mustNotBeEmpty(cmd, "output", "user", "blake3")
	mustBeText(cmd, "user", "blake3")
	return cmd
}

// plainCID returns the CID in text. text has the form CID, /ipfs/CID or ipfs://CID. A path after
// the CID, or an IPNS name, is a usageError; command is the name of the command in its text. If
// text contains no valid CID, plainCID returns text unchanged, and the node rejects it.
func plainCID(command, text string) (string, error) {
	rest := text
	for _, prefix := range []string{"ipfs://", "/ipfs/", "ipfs/"} {
		if after, ok := strings.CutPrefix(text, prefix); ok {
			rest = after
			break
		}
	}
	for _, prefix := range []string{"ipns://", "/ipns/"} {
		if strings.HasPrefix(text, prefix) {
			return "", usagef("%s: %q is an IPNS name, and this version resolves none: give the CID", command, text)
		}
	}
	root, path, _ := strings.Cut(rest, "/")
	path = strings.Trim(path, "/")
	if _, err := cid.Decode(root); err != nil {
		return text, nil
	}
	if path != "" {
		return "", usagef("%s: %q names %q in a folder: this version reads no paths, so give the CID of the file", command, text, path)
	}
	return root, nil
}

func (a *app) getFile(ctx context.Context, o operator, user, cid, output string) error {
	content, size, err := o.OpenContent(ctx, user, cid)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // read to its end or given up
	if output == "" || output == "-" {
		if _, err := io.CopyBuffer(a.stdout, content, make([]byte, copyBuffer)); err != nil {
			return fmt.Errorf("get %s: %w", cid, err)
		}
		return nil
	}
	bar := a.newBar(size, "reading")
	err = writeWhole(output, 0o644, func(w io.Writer) error {
		_, err := io.CopyBuffer(io.MultiWriter(w, bar), content, make([]byte, copyBuffer))
		return err
	})
	_ = bar.Finish() // it is only for the eye
	if err != nil {
		return fmt.Errorf("get %s: %w", cid, err)
	}
	return nil
}

// writeWhole writes the content that fill produces to the file path. fill writes to a temporary
// file in the same folder, which writeWhole flushes and renames, so that path never has only a
// part of the content. If path exists and is not a regular file, such as /dev/null, fill writes
// to it directly. A new file gets the permissions mode; an existing file keeps its permissions. A
// crash leaves a file named .NAME.partial-* behind.
func writeWhole(path string, mode fs.FileMode, fill func(w io.Writer) error) (err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeInto(path, info, fill)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".partial-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // may be closed already
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := fill(f); err != nil {
		return err
	}
	if err := f.Chmod(newFileMode(path, mode)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// newFileMode returns the permissions of the file at path, or fresh if there is no such file.
func newFileMode(path string, fresh fs.FileMode) fs.FileMode {
	if info, err := os.Stat(path); err == nil {
		return info.Mode().Perm()
	}
	return fresh
}

func writeInto(path string, info fs.FileInfo, fill func(w io.Writer) error) error {
	if info.IsDir() {
		return fmt.Errorf("%s is a folder", path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}
