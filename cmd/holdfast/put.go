package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/spf13/cobra"
)

// putPlan has the flags of the command put.
type putPlan struct {
	contentType string
	makeBucket  bool
	json        bool
}

func (a *app) putCommand() *cobra.Command {
	var plan putPlan
	cmd := &cobra.Command{
		Use:   "put FILE s3://BUCKET/KEY",
		Short: "Upload a file as an object",
		Long: `Uploads FILE to an object of a cluster. A KEY that is empty or ends in / gets
the name of FILE. With - as FILE the command reads standard input.

Files above 16 MiB are sent in parts, in parallel. If such an upload of a file
is interrupted, the same command continues it, provided that the file has not
changed. holdfast sync copies folders.

With --encrypt the file is encrypted on this machine, and the cluster learns
neither its name nor its type. Give --encrypt to the other commands as well.`,
		Example: `  holdfast put holiday.jpg s3://photos/2026/
  tar c work | holdfast put - s3://backup/work.tar`,
		Args: arguments(fileArgument, "s3://BUCKET/KEY"),
	}
	r, s := a.remoteFlags(cmd), sealingFlags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.check(cmd); err != nil {
			return err
		}
		target, err := parseS3(cmd, args[1])
		if err != nil {
			return err
		}
		if target, err = target.below(args[0]); err != nil {
			return usagef("%s: %v", called(cmd), err)
		}
		c, err := a.cluster(cmd, r)
		if err != nil {
			return err
		}
		defer c.Close()
		v, err := a.vault(cmd, c, r, s, target.bucket)
		if err != nil {
			return err
		}
		return clusterError(cmd.Context(), hintBucket(a.put(cmd.Context(), c, v, args[0], target, plan), target.bucket))
	}
	cmd.Flags().StringVar(&plan.contentType, "content-type", "", "`type` of the content (default by the ending of KEY)")
	cmd.Flags().BoolVar(&plan.makeBucket, "make-bucket", false, "create the bucket if it does not exist")
	jsonFlag(cmd, &plan.json)
	mustNotBeEmpty(cmd, "content-type")
	mustBeText(cmd, "content-type")
	return cmd
}

// putObject is the JSON output of the command put.
type putObject struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	Size   int64  `json:"size"` // bytes
	// ETag and BLAKE3 are absent with --encrypt, because the cluster computes them only for the
	// ciphertext.
	ETag   string `json:"etag,omitempty"`
	BLAKE3 string `json:"blake3,omitempty"` // hex; absent if the cluster does not know it yet
	CID    string `json:"cid,omitempty"`
}

func (a *app) put(ctx context.Context, c *gateway.Client, v *gateway.Vault, file string, to s3Target, plan putPlan) error {
	if v != nil {
		if err := v.CheckName(to.key); err != nil { // before a bucket is made or a file is read
			return err
		}
	}
	if err := ensureBucket(ctx, c, to.bucket, plan.makeBucket); err != nil {
		return err
	}
	options := gateway.UploadOptions{ContentType: plan.contentType}
	if options.ContentType == "" {
		options.ContentType = gateway.TypeOf(to.key)
	}
	var object gateway.Object
	var err error
	if size, regular := regularSize(file); regular {
		bar := a.newBar(size, "uploading")
		options.Progress = func(n int64) { _ = bar.Add64(n) } // an error of the progress bar does no harm
		if options.Journal, err = a.journal(to, file); err != nil {
			return err
		}
		if v != nil {
			object.Size, err = size, v.UploadFile(ctx, to.key, file, options)
		} else {
			object, err = c.UploadFile(ctx, to.bucket, to.key, file, options)
		}
		_ = bar.Finish()
	} else {
		object, err = a.putStream(ctx, c, v, file, to, options)
	}
	if err != nil {
		return err
	}
	return a.did(plan.json, putObject{to.bucket, to.key, object.Size, object.ETag, object.BLAKE3, object.CID},
		"%s", printable(to.String()))
}

// putStream uploads standard input if file is "-", and otherwise a file that is not a regular
// file, such as a pipe.
func (a *app) putStream(ctx context.Context, c *gateway.Client, v *gateway.Vault, file string, to s3Target, options gateway.UploadOptions) (gateway.Object, error) {
	in := interruptible(ctx, a.stdin)
	if file != "-" {
		f, err := openInput(ctx, file)
		if err != nil {
			return gateway.Object{}, err
		}
		defer func() { _ = f.Close() }() // opened only for reading
		if info, err := f.Stat(); err != nil || info.IsDir() {
			return gateway.Object{}, errors.Join(err, fmt.Errorf("%s is a folder: holdfast sync copies folders", file))
		}
		in = interruptible(ctx, f)
	}
	bar := a.newBar(-1, "uploading")
	defer func() { _ = bar.Finish() }()
	options.Progress = func(n int64) { _ = bar.Add64(n) }
	if v != nil {
		count := &counter{from: in}
		err := v.Upload(ctx, to.key, count, options)
		return gateway.Object{Size: count.n}, err
	}
	return c.Upload(ctx, to.bucket, to.key, in, options)
}

// counter is a reader that counts the bytes that it has read from another reader.
type counter struct {
	from io.Reader
	n    int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}

// regularSize returns the size of a file in bytes. ok is false if path is "-" or not a regular
// file.
func regularSize(path string) (int64, bool) {
	if path == "-" {
		return 0, false
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return info.Size(), true
}

// ensureBucket creates a bucket unless it exists. It does nothing if asked, the value of the flag
// --make-bucket, is false.
func ensureBucket(ctx context.Context, c *gateway.Client, bucket string, asked bool) error {
	if !asked {
		return nil
	}
	if err := c.MakeBucket(ctx, bucket); !errors.Is(err, gateway.ErrExists) {
		return err
	}
	return nil
}

// isNoBucket reports whether err means that the bucket does not exist.
func isNoBucket(err error) bool {
	refused := new(gateway.Error)
	return errors.As(err, &refused) && refused.Code == "NoSuchBucket"
}

// hintBucket adds to err the flag that creates the bucket, if err means that the bucket does not
// exist.
func hintBucket(err error, bucket string) error {
	if isNoBucket(err) {
		return fmt.Errorf("%w: --make-bucket creates %s", err, bucket)
	}
	return err
}

// journal returns the path of the journal with which a later call can resume the upload of file
// to an object.
func (a *app) journal(to s3Target, file string) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	return a.statePath("uploads", to.String(), path)
}

// statePath returns the path of a state file of a command. The file is in the folder kind of the
// state folder. Its name is a hash of names, which identify what the state is about, such as an
// object and a file.
func (a *app) statePath(kind string, names ...string) (string, error) {
	state, err := config.StateDir(a.environ)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	return filepath.Join(state, kind, hex.EncodeToString(sum[:16])), nil
}
