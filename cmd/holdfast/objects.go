package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"path/filepath"
	"time"

	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// readPlan has the flags with which the command get reads objects.
type readPlan struct {
	verify bool
	blake3 string
}

// getObject runs the command get s3://BUCKET/KEY [FILE].
func (a *app) getObject(cmd *cobra.Command, r *remote, s *sealing, args []string, output string, plan readPlan) error {
	if err := s.check(cmd); err != nil {
		return err
	}
	from, err := parseObject(cmd, args[0])
	if err != nil {
		return err
	}
	switch {
	case s.encrypt && plan.blake3 != "":
		return usagef("%s: --blake3 is the hash of the stored bytes, which --encrypt makes anew for each upload: use --verify", called(cmd))
	case len(args) == 2 && output != "":
		return usagef("%s: give FILE or --output, not both", called(cmd))
	case len(args) == 2:
		output = args[1]
	case output == "":
		output = path.Base(from.key)
		if output == "." || output == ".." {
			return usagef("%s: the key %q gives no name for a file: give FILE", called(cmd), from.key)
		}
	}
	options := gateway.DownloadOptions{Verify: plan.verify || plan.blake3 != ""}
	if plan.blake3 != "" {
		root, err := gateway.ParseHash(plan.blake3)
		if err != nil {
			return usagef("%s: --blake3: %v", called(cmd), err)
		}
		options.Hash = &root
	}
	c, err := a.cluster(cmd, r)
	if err != nil {
		return err
	}
	defer c.Close()
	v, err := a.vault(cmd, c, r, s, from.bucket)
	if err != nil {
		return err
	}
	return clusterError(cmd.Context(), a.download(cmd.Context(), c, v, from, output, options))
}

func (a *app) download(ctx context.Context, c *gateway.Client, v *gateway.Vault, from s3Target, output string, options gateway.DownloadOptions) error {
	toWriter := func(w io.Writer) error {
		if v != nil {
			return v.Download(ctx, from.key, w, options)
		}
		_, err := c.Download(ctx, from.bucket, from.key, w, options)
		return err
	}
	if output == "-" {
		return toWriter(a.stdout)
	}
	bar := a.newBar(0, "downloading")
	defer func() { _ = bar.Finish() }() // an error of the progress bar does no harm
	options.Begin = func(n int64) { bar.ChangeMax64(max(n, 1)) }
	options.Progress = func(n int64) { _ = bar.Add64(n) }
	info, err := os.Stat(output)
	switch {
	case err == nil && info.IsDir():
		output = filepath.Join(output, path.Base(from.key))
	case err == nil && !info.Mode().IsRegular(): // such as /dev/null
		return writeInto(output, info, toWriter)
	}
	if v != nil {
		return v.DownloadFile(ctx, from.key, output, options)
	}
	_, err = c.DownloadFile(ctx, from.bucket, from.key, output, options)
	return err
}

func (a *app) listCommand() *cobra.Command {
	var recursive, asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [s3://BUCKET/PREFIX]",
		Short: "List buckets, or objects by the prefix of their keys",
		Long: `Lists the objects whose keys begin with PREFIX, with size and time. Keys with a
further / behind PREFIX are shown as one entry that ends in /, unless
--recursive is given. Without an argument the command lists the buckets of the
account.`,
		Example: `  holdfast ls
  holdfast ls s3://photos/2026/
  holdfast ls s3://photos -r --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return arguments("s3://BUCKET/PREFIX")(cmd, args)
		},
	}
	r, s := a.remoteFlags(cmd), sealingFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.check(cmd); err != nil {
			return err
		}
		var of s3Target
		if len(args) == 1 && args[0] != s3Scheme {
			var err error
			if of, err = parseS3(cmd, args[0]); err != nil {
				return err
			}
		}
		c, err := a.cluster(cmd, r)
		if err != nil {
			return err
		}
		defer c.Close()
		if of.bucket == "" {
			if s.encrypt {
				return usagef("%s: --encrypt needs s3://BUCKET", called(cmd))
			}
			return clusterError(cmd.Context(), a.listBuckets(cmd.Context(), c, asJSON))
		}
		v, err := a.vault(cmd, c, r, s, of.bucket)
		if err != nil {
			return err
		}
		list := c.List(cmd.Context(), of.bucket, gateway.ListOptions{Prefix: of.key, Recursive: recursive})
		if v != nil {
			list = v.Entries(cmd.Context(), of.key, recursive)
		}
		return clusterError(cmd.Context(), a.listObjects(list, asJSON))
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "list all keys that begin with PREFIX")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// bucketRow is one bucket in the output of ls --json.
type bucketRow struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
}

func (a *app) listBuckets(ctx context.Context, c *gateway.Client, asJSON bool) error {
	buckets, err := c.Buckets(ctx)
	if err != nil {
		return err
	}
	rows := []bucketRow{}
	for _, b := range buckets {
		rows = append(rows, bucketRow{b.Name, b.Created})
	}
	if asJSON {
		return a.printJSON(rows)
	}
	for _, row := range rows {
		a.say(a.stdout, "%s  %s\n", row.Created.Local().Format(time.DateTime), printable(row.Name))
	}
	return nil
}

// objectRow is one object in the output of ls s3://BUCKET --json. A row of a common prefix has only
// a key.
type objectRow struct {
	Key      string     `json:"key"`
	Size     *int64     `json:"size,omitempty"` // bytes
	Modified *time.Time `json:"modified,omitempty"`
	ETag     string     `json:"etag,omitempty"`
}

// listObjects prints each object when it arrives from the list. It does not collect them, so that
// the memory does not grow with the number of objects.
func (a *app) listObjects(list iter.Seq2[gateway.Object, error], asJSON bool) error {
	out := bufio.NewWriter(a.stdout)
	rows := 0
	for object, err := range list {
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		rows++
		if !asJSON {
			when, size := "", "-"
			if !object.Modified.IsZero() {
				when, size = object.Modified.Local().Format(time.DateTime), sizeFor(a.stdout, uint64(max(object.Size, 0)))
			}
			a.say(out, "%-19s  %12s  %s\n", when, size, printable(object.Key))
			continue
		}
		row := objectRow{Key: object.Key, ETag: object.ETag}
		if !object.Modified.IsZero() {
			row.Size, row.Modified = &object.Size, &object.Modified
		}
		text, err := json.MarshalIndent(row, "  ", "  ")
		if err != nil {
			return err
		}
		a.say(out, "%s\n  %s", map[bool]string{true: "[", false: ","}[rows == 1], text)
	}
	if asJSON {
		a.say(out, "%s\n]\n", map[bool]string{true: "[", false: ""}[rows == 0])
	}
	return out.Flush()
}

// removers is the number of objects that the command rm removes concurrently.
const removers = 16

func (a *app) removeCommand() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "rm s3://BUCKET/KEY",
		Short: "Remove an object, or all with a prefix",
		Long: `Removes an object. With --recursive it removes all objects whose keys begin
with KEY, and asks before. An object that does not exist is no error. In a
bucket that keeps versions the old versions stay.`,
		Example: `  holdfast rm s3://photos/2026/holiday.jpg
  holdfast rm --recursive s3://photos/2025/`,
		Args: arguments("s3://BUCKET/KEY"),
	}
	r, s, how := a.remoteFlags(cmd), sealingFlags(cmd, false), removalFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.check(cmd); err != nil {
			return err
		}
		parse := parseObject
		if recursive {
			parse = parseS3
		}
		of, err := parse(cmd, args[0])
		if err != nil {
			return err
		}
		c, err := a.cluster(cmd, r)
		if err != nil {
			return err
		}
		defer c.Close()
		v, err := a.vault(cmd, c, r, s, of.bucket)
		if err != nil {
			return err
		}
		list := func() iter.Seq2[gateway.Object, error] {
			return c.List(cmd.Context(), of.bucket, gateway.ListOptions{Prefix: of.key, Recursive: true})
		}
		remove := func(ctx context.Context, key string) error { return c.Remove(ctx, of.bucket, key) }
		if v != nil {
			list = func() iter.Seq2[gateway.Object, error] { return v.Entries(cmd.Context(), of.key, true) }
			remove = v.Remove
		}
		removed := 1
		if recursive {
			removed, err = a.removeAll(cmd.Context(), list, remove, of, how)
		} else {
			err = remove(cmd.Context(), of.key)
		}
		if err != nil {
			return clusterError(cmd.Context(), err)
		}
		return a.did(how.json, map[string]any{"bucket": of.bucket, "key": of.key, "removed": removed}, "removed %s", printable(of.String()))
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "remove all objects whose keys begin with KEY")
	return cmd
}

// removeAll removes all objects of list, after a confirmation if how asks for one. of is the
// prefix of the objects, for the question. removed counts also removals that failed.
func (a *app) removeAll(ctx context.Context, list func() iter.Seq2[gateway.Object, error], remove func(context.Context, string) error, of s3Target, how *removal) (removed int, err error) {
	if a.asks(how) {
		count, size := 0, int64(0)
		for object, err := range list() {
			if err != nil {
				return 0, err
			}
			count, size = count+1, size+object.Size
		}
		if err := a.confirm(ctx, how, fmt.Sprintf("%d objects of %s are removed: %s", count, humanBytes(size), printable(of.String()))); err != nil {
			return 0, err
		}
	}
	removing, stop := errgroup.WithContext(ctx)
	removing.SetLimit(removers)
	for object, listed := range list() {
		if err = cmp.Or(listed, stop.Err()); err != nil {
			break
		}
		removed++
		removing.Go(func() error { return remove(stop, object.Key) })
	}
	return removed, errors.Join(removing.Wait(), err)
}
