package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/ipfs/go-cid"
	"github.com/spf13/cobra"
)

// copyBuffer is the size of the buffer for copying a file, in bytes.
const copyBuffer = 256 << 10

// addPlan is how add imports content.
type addPlan struct {
	user, name    string
	hash, version string // empty means the default
	hidden        bool
	json          bool
}

func (a *app) addCommand() *cobra.Command {
	var plan addPlan
	var r *remote
	cmd := &cobra.Command{
		Use:   "add PATH...",
		Short: "Import files and folders, pin them, and print the CID",
		Long: `Imports a file or a folder, pins it, and waits until enough copies are durable.
The command writes the CID, and nothing else, to standard output. With - as PATH
it reads a file from standard input. Several PATHs become the entries of one
folder, which gets the pin: the command writes a line with CID and name for each
PATH, and the CID of the folder in the last line.

` + placeHelp + `

In a folder, files and folders whose names begin with a dot are left out unless
--hidden is given. Symbolic links are stored as links and not followed, except
for a PATH itself. Modes, owners and times are not stored. A device, a socket, a
named pipe, a name that is not UTF-8, or a file that changes while it is read
ends the command with an error, and nothing is pinned.

Without --hash and --cid-version the CID has version 1 and a BLAKE3 hash, and
files are cut into blocks of 1 MiB. With sha2-256 the CIDs are those of ipfs add
with its default settings. Version 0 implies sha2-256.`,
		Example: `  holdfast add holiday.jpg
  holdfast add photos
  holdfast add --hash sha2-256 --cid-version 0 website
  tar c photos | holdfast add - --name photos.tar --user ann@example.org
  holdfast add photos --profile work`,
		Args: func(cmd *cobra.Command, args []string) error {
			return arguments("PATH")(cmd, args[:min(len(args), 1)])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLayout(called(cmd), plan.hash, plan.version); err != nil {
				return err
			}
			p, err := a.placeOf(cmd, r, plan.user)
			if err != nil {
				return err
			}
			defer p.close()
			return a.add(cmd.Context(), p, args, plan)
		},
	}
	r = a.remoteFlags(cmd)
	cmd.Flags().StringVar(&plan.user, "user", "", "`email` of the account that gets the pin (default the operator's account)")
	cmd.Flags().StringVar(&plan.name, "name", "", "`name` of the pin (default the name of the file or folder)")
	cmd.Flags().StringVar(&plan.hash, "hash", "", "hash `function` of the CIDs: blake3 or sha2-256 (default blake3)")
	cmd.Flags().StringVar(&plan.version, "cid-version", "", "`version` of the CIDs: 0 or 1 (default 1)")
	cmd.Flags().BoolVar(&plan.hidden, "hidden", false, "include files and folders whose names begin with a dot")
	jsonFlag(cmd, &plan.json)
	completeValues(cmd, "hash", "blake3", "sha2-256")
	completeValues(cmd, "cid-version", "0", "1")
	mustNotBeEmpty(cmd, "user", "hash", "cid-version")
	mustBeText(cmd, "user", "name")
	return cmd
}

// checkLayout returns a usageError if add does not support a hash function or a CID version, or both
// together.
func checkLayout(command, hash, version string) error {
	switch {
	case hash != "" && hash != "blake3" && hash != "sha2-256":
		return usagef("%s: --hash is %q, want blake3 or sha2-256", command, hash)
	case version != "" && version != "0" && version != "1":
		return usagef("%s: --cid-version is %q, want 0 or 1", command, version)
	case version == "0" && hash == "blake3":
		return usagef("%s: --cid-version 0 has sha2-256 hashes only: leave out --hash blake3, or use --cid-version 1", command)
	}
	return nil
}

// addedFile is the output of add --json.
type addedFile struct {
	CID       string                `json:"cid"`
	Size      uint64                `json:"size"` // size of the files in bytes
	RequestID string                `json:"requestid"`
	Status    string                `json:"status"`            // status of the pin
	Entries   []client.ContentEntry `json:"entries,omitempty"` // of several paths
}

// add imports files and folders and pins the root.
func (a *app) add(ctx context.Context, p place, paths []string, plan addPlan) error {
	folder := len(paths) > 1
	if paths[0] != "-" && !folder {
		info, err := os.Stat(paths[0])
		if err != nil {
			return err
		}
		folder = info.IsDir()
		if whole, err := filepath.Abs(paths[0]); plan.name == "" && err == nil {
			plan.name = filepath.Base(whole)
		}
	}
	if !utf8.ValidString(plan.name) {
		return fmt.Errorf("the name of %q is not UTF-8: give the pin one with --name", paths[0])
	}
	var added client.Content
	var pin client.PinStatus
	var err error
	if p.cluster != nil {
		added, pin, err = a.uploadPaths(ctx, p.cluster, paths, folder, plan)
	} else {
		added, pin, err = a.importPaths(ctx, p.node, paths, folder, plan)
	}
	if err != nil {
		return err
	}
	pin, err = a.waitPinned(ctx, p, plan.user, pin)
	if err != nil && !errors.Is(err, errInterrupted) {
		return err
	}
	if !plan.json {
		for _, e := range added.Entries {
			a.say(a.stdout, "%s  %s\n", e.CID, printable(e.Name))
		}
	}
	return errors.Join(a.did(plan.json, addedFile{added.CID, added.Size, pin.RequestID, pin.Status, added.Entries}, "%s", added.CID), err)
}

// importPaths imports a file or a folder through the node and pins it. It returns the content and the pin.
func (a *app) importPaths(ctx context.Context, o operator, paths []string, folder bool, plan addPlan) (added client.Content, pin client.PinStatus, err error) {
	if folder {
		added, err = a.importFolder(ctx, o, paths, plan)
	} else {
		added, err = a.importFile(ctx, o, paths[0], plan)
	}
	if err != nil {
		return added, pin, err
	}
	pin, err = o.AddPin(ctx, plan.user, client.Pin{CID: added.CID, Name: plan.name})
	if err != nil {
		err = fmt.Errorf("%s is imported but not pinned: %w", added.CID, err)
	}
	return added, pin, err
}

// importFile imports a file, or standard input for the path -.
func (a *app) importFile(ctx context.Context, o operator, path string, plan addPlan) (client.Content, error) {
	in, size, done, err := a.input(ctx, path)
	if err != nil {
		return client.Content{}, err
	}
	defer done()
	bar := a.newBar(size, "importing")
	added, err := o.Import(ctx, io.TeeReader(in, bar), client.Import{Hash: plan.hash, CIDVersion: plan.version})
	_ = bar.Finish() // it is only for the eye
	return added, err
}

// input opens the file path for reading, or standard input for -. It returns the size in bytes, or -1
// if that is not known. The caller calls done at the end. Reading ends with ctx.
func (a *app) input(ctx context.Context, path string) (in io.Reader, size int64, done func(), err error) {
	if path == "-" {
		return interruptible(ctx, a.stdin), -1, func() {}, nil
	}
	f, err := openInput(ctx, path)
	if err != nil {
		return nil, 0, nil, err
	}
	done = func() { _ = f.Close() } // only read from
	info, err := f.Stat()
	if err != nil {
		done()
		return nil, 0, nil, err
	}
	size = -1
	if info.Mode().IsRegular() {
		size = info.Size()
	}
	return interruptible(ctx, f), size, done, nil
}

func (a *app) getCommand() *cobra.Command {
	var output, user string
	var plan readPlan
	cmd := &cobra.Command{
		Use:   "get CID | get s3://BUCKET/KEY [FILE]",
		Short: "Read a file or a folder by its CID, or download an object",
		Long: `With a CID: reads a file or a folder through a node, which gets it from its own
disk or from another member, and verifies each block against its hash. CID can
also have the form /ipfs/CID or ipfs://CID, and a path in a folder may follow:
CID/path. An account can read public content, and content that its own pins and
objects refer to. With --user the command reads as that account.

` + placeAlone + `

A file is written to standard output or to -o, a folder to -o or to a new folder
in the current one, named after the CID or the last name of the path. Both get
their names only when they are complete. -o may replace a file by a file, but no
folder replaces anything. A symbolic link that leads out of the folder is left
out with a note. A folder may have 256 levels and 10,000,000 entries.

With s3://BUCKET/KEY: downloads an object from a cluster to FILE, which is -
for standard output, and by default has the name of the object. FILE gets its
name when it is complete. A large download that was interrupted continues.

With --verify, or with --blake3, each KiB is checked against the BLAKE3 hash of
the object before it is written. A wrong byte ends the download, and the
message names the node that sent it. The hash is that of --blake3. Without it
the cluster says the hash, which protects against damage and against a single
bad node, but not against a whole cluster that lies.`,
		Example: `  holdfast get bafkrei... -o holiday.jpg
  holdfast get bafybei... -o photos
  holdfast get bafybei.../2026/holiday.jpg -o holiday.jpg
  holdfast get bafybei... --user ann@example.org -o notes.txt
  holdfast get bafybei... --profile work -o photos
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
		for _, name := range []string{"verify", "blake3", "encrypt", "identity", "passphrase-file"} {
			if cmd.Flags().Changed(name) {
				return usagef("%s: --%s is for s3://BUCKET/KEY: the node verifies each block of a CID", called(cmd), name)
			}
		}
		root, below, err := splitCID(called(cmd), args[0])
		if err != nil {
			return err
		}
		p, err := a.placeOf(cmd, r, user)
		if err != nil {
			return err
		}
		defer p.close()
		return a.getContent(cmd.Context(), p, user, join(root, below), output)
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` or folder to write (default standard output for a file by its CID)")
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
	root, path, err := splitCID(command, text)
	if err == nil && path != "" {
		err = usagef("%s: %q names %q in a folder: give the CID of the file", command, text, path)
	}
	return root, err
}

// splitCID does the same as plainCID for a text that may have a path after the CID. It returns the path
// without slashes at its ends. In a URL the path has percent signs.
func splitCID(command, text string) (root, path string, err error) {
	rest := text
	for _, prefix := range []string{"ipfs://", "/ipfs/", "ipfs/"} {
		if after, ok := strings.CutPrefix(text, prefix); ok {
			rest = after
			break
		}
	}
	for _, prefix := range []string{"ipns://", "/ipns/"} {
		if strings.HasPrefix(text, prefix) {
			return "", "", usagef("%s: %q is an IPNS name, and this version resolves none: give the CID", command, text)
		}
	}
	root, path, _ = strings.Cut(rest, "/")
	if _, err := cid.Decode(root); err != nil {
		return text, "", nil
	}
	if strings.HasPrefix(text, "ipfs://") {
		if path, err = url.PathUnescape(path); err != nil {
			return "", "", usagef("%s: %q is not a valid URL: %v", command, text, err)
		}
	}
	return root, strings.Trim(path, "/"), nil
}

// join returns a CID with a path, which may be empty.
func join(root, path string) string {
	if path == "" {
		return root
	}
	return root + "/" + path
}

// getContent writes the file or folder with a CID, which may have a path after a slash.
func (a *app) getContent(ctx context.Context, p place, user, text, output string) error {
	content, err := p.openContent(ctx, user, text)
	if err != nil {
		return err
	}
	defer func() { _ = content.Body.Close() }() // read to its end or given up
	if content.Folder {
		err = a.getFolder(content.Body, cmp.Or(output, path.Base(text)))
	} else {
		err = a.getFile(content, output)
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", text, err)
	}
	return nil
}

func (a *app) getFolder(content io.Reader, output string) error {
	if output == "-" {
		return errors.New("the content is a folder, which cannot be written to standard output: -o names a place for it")
	}
	bar := a.newBar(-1, "reading")
	err := writeFolder(filepath.Clean(output), io.TeeReader(content, bar), func(link, target string) {
		a.say(a.stderr, "holdfast: get: the link %q is left out: it leads out of the folder, to %q\n", link, target)
	})
	_ = bar.Finish() // it is only for the eye
	return err
}

func (a *app) getFile(content client.Opened, output string) error {
	if output == "" || output == "-" {
		_, err := io.CopyBuffer(a.stdout, content.Body, make([]byte, copyBuffer))
		return err
	}
	bar := a.newBar(content.Size, "reading")
	err := writeWhole(output, 0o644, func(w io.Writer) error {
		_, err := io.CopyBuffer(io.MultiWriter(w, bar), content.Body, make([]byte, copyBuffer))
		return err
	})
	_ = bar.Finish() // it is only for the eye
	return err
}

// writeWhole writes the content that fill produces to the file path. fill writes to a temporary
// file in the same folder, which writeWhole flushes and renames, so that path never has only a
// part of the content. If path exists and is not a regular file, such as /dev/null, fill writes
// to it directly. A new file gets the permissions mode; an existing file keeps its permissions. A
// crash leaves a file named .NAME.partial-* behind.
func writeWhole(path string, mode fs.FileMode, fill func(w io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeInto(path, info, fill)
	}
	return replaceFile(path, newFileMode(path, mode), fill)
}

// replaceFile is writeWhole for a path that is a regular file or does not exist. The file gets the
// permissions mode in any case.
func replaceFile(path string, mode fs.FileMode, fill func(w io.Writer) error) error {
	return writeAside(partialPattern(path), mode, fill, func() string { return path })
}

// partialPattern returns the pattern, as of os.CreateTemp, of the temporary files for path.
func partialPattern(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".partial-*")
}

// writeAside writes the content that fill produces to a temporary file with a name of pattern, as of
// os.CreateTemp, flushes it and renames it to the path that then is due.
func writeAside(pattern string, mode fs.FileMode, fill func(w io.Writer) error, due func() string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(pattern), filepath.Base(pattern))
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
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), due())
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
