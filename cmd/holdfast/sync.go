package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"

	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

// maxSyncParallel is the largest value of the flag --parallel.
const maxSyncParallel = 256

// syncPlan has the flags of the command sync.
type syncPlan struct {
	options    gateway.SyncOptions
	makeBucket bool
	verbose    bool
	json       bool
}

func (a *app) syncCommand() *cobra.Command {
	var plan syncPlan
	cmd := &cobra.Command{
		Use:   "sync DIR s3://BUCKET/PREFIX | sync s3://BUCKET/PREFIX DIR",
		Short: "Make a folder and a prefix of a bucket equal",
		Long: `Copies new and changed files from the first argument to the second. The file a/b
gets the key PREFIX/a/b. With --delete it also removes what is only at the
second. It can be interrupted at any time: the next run continues.

A file is unchanged if its size is equal and, for an upload, if it was not
changed since its object was stored. For a download the times must be equal. If
only the times differ, the content is compared. --checksum always compares it.

The command does not copy empty folders, symbolic links (see --follow), devices
and pipes, and names that are not UTF-8. It does not write outside of DIR. What
it does not copy it reports on standard error. If a file could not be copied, it
exits 1.`,
		Example: `  holdfast sync photos s3://photos/2026
  holdfast sync --delete --dry-run photos s3://photos/2026
  holdfast sync --verify s3://photos/2026 restored`,
		Args: arguments("FROM", "TO"),
	}
	r, s := a.remoteFlags(cmd), sealingFlags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.check(cmd); err != nil {
			return err
		}
		if isS3(args[0]) == isS3(args[1]) {
			return usagef("%s: give a folder and s3://BUCKET/PREFIX, in either order", called(cmd))
		}
		if plan.options.Parallel < 1 || plan.options.Parallel > maxSyncParallel {
			return usagef("%s: --parallel %d is not between 1 and %d", called(cmd), plan.options.Parallel, maxSyncParallel)
		}
		if plan.options.Follow && isS3(args[0]) {
			return usagef("%s: --follow is for an upload: objects are never links", called(cmd))
		}
		at, dir := args[1], args[0]
		if isS3(args[0]) {
			at, dir = args[0], args[1]
		}
		target, err := parseS3(cmd, at)
		if err != nil {
			return err
		}
		if target.key != "" && !strings.HasSuffix(target.key, "/") {
			target.key += "/"
		}
		c, err := a.cluster(cmd, r)
		if err != nil {
			return err
		}
		defer c.Close()
		var side syncSide = plainSide{c, target}
		if v, err := a.vault(cmd, c, r, s, target.bucket); err != nil {
			return err
		} else if v != nil {
			side = vaultSide{v, target}
		}
		if !isS3(args[0]) && !plan.options.DryRun {
			if err := ensureBucket(cmd.Context(), c, target.bucket, plan.makeBucket); err != nil {
				return err
			}
		}
		err = a.sync(cmd.Context(), side, dir, target, isS3(args[0]), plan)
		if !isS3(args[0]) {
			err = hintBucket(err, target.bucket)
		}
		return clusterError(cmd.Context(), err)
	}
	f := cmd.Flags()
	f.BoolVar(&plan.options.Delete, "delete", false, "remove what is only at the second argument")
	f.BoolVar(&plan.options.DryRun, "dry-run", false, "print what would be done")
	f.BoolVar(&plan.options.Checksum, "checksum", false, "compare the content of files of equal size, whatever their times")
	f.BoolVar(&plan.options.Verify, "verify", false, "check the copied bytes against their BLAKE3 hashes")
	f.BoolVar(&plan.options.Follow, "follow", false, "upload the files and folders that symbolic links point to")
	f.IntVar(&plan.options.Parallel, "parallel", gateway.DefaultSyncParallel, "`number` of files at once")
	f.BoolVar(&plan.makeBucket, "make-bucket", false, "create the bucket if it does not exist")
	f.BoolVarP(&plan.verbose, "verbose", "v", false, "print each change")
	jsonFlag(cmd, &plan.json)
	return cmd
}

// syncReport is the JSON output of the command sync.
type syncReport struct {
	Copied    int          `json:"copied"`
	Bytes     int64        `json:"bytes"` // size of all copied files
	Deleted   int          `json:"deleted"`
	Unchanged int          `json:"unchanged"`
	Skipped   int          `json:"skipped"`
	Failed    int          `json:"failed"`
	Changes   []syncChange `json:"changes,omitempty"` // present only with --dry-run or --verbose
}

// syncChange is one file that a sync has changed, or would change with --dry-run.
type syncChange struct {
	Action string `json:"action"`
	Path   string `json:"path"`
	Size   int64  `json:"size"` // bytes
}

// syncSide transfers a folder of this machine to the cluster and back. plainSide does it without
// encryption, vaultSide with it.
type syncSide interface {
	push(ctx context.Context, dir string, o gateway.SyncOptions) (gateway.SyncResult, error)
	pull(ctx context.Context, dir string, o gateway.SyncOptions) (gateway.SyncResult, error)
}

type plainSide struct {
	c  *gateway.Client
	at s3Target
}

func (s plainSide) push(ctx context.Context, dir string, o gateway.SyncOptions) (gateway.SyncResult, error) {
	return s.c.Push(ctx, dir, s.at.bucket, s.at.key, o)
}

func (s plainSide) pull(ctx context.Context, dir string, o gateway.SyncOptions) (gateway.SyncResult, error) {
	return s.c.Pull(ctx, s.at.bucket, s.at.key, dir, o)
}

type vaultSide struct {
	v  *gateway.Vault
	at s3Target
}

func (s vaultSide) push(ctx context.Context, dir string, o gateway.SyncOptions) (gateway.SyncResult, error) {
	return s.v.Push(ctx, dir, s.at.key, o)
}

func (s vaultSide) pull(ctx context.Context, dir string, o gateway.SyncOptions) (gateway.SyncResult, error) {
	return s.v.Pull(ctx, s.at.key, dir, o)
}

func (a *app) sync(ctx context.Context, side syncSide, dir string, at s3Target, download bool, plan syncPlan) error {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if plan.options.Journals, err = a.statePath("sync", absolute, at.String()); err != nil {
		return err
	}
	w := &watcher{app: a, plan: &plan, bar: a.newBar(0, "copying")}
	plan.options.Report, plan.options.Planned, plan.options.Progress = w.event, w.planned, w.progress
	var result gateway.SyncResult
	if download {
		result, err = side.pull(ctx, dir, plan.options)
	} else {
		result, err = side.push(ctx, dir, plan.options)
	}
	_ = w.bar.Finish() // an error of the progress bar does no harm
	w.report.Copied, w.report.Bytes, w.report.Deleted = result.Copied, result.Bytes, result.Deleted
	w.report.Unchanged, w.report.Skipped, w.report.Failed = result.Unchanged, result.Skipped, result.Failed
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil && !errors.Is(err, gateway.ErrSync) {
		return err
	}
	verb := "copied"
	if plan.options.DryRun {
		verb = "to copy:"
	}
	return errors.Join(err, a.did(plan.json, w.report, "%s %d files (%s), deleted %d, unchanged %d, skipped %d, failed %d",
		verb, result.Copied, humanBytes(result.Bytes), result.Deleted, result.Unchanged, result.Skipped, result.Failed))
}

// watcher shows the progress of a sync and collects its report.
type watcher struct {
	app  *app
	plan *syncPlan

	mu     sync.Mutex
	bar    *progressbar.ProgressBar
	total  int64 // bytes of all planned transfers
	report syncReport
}

func (w *watcher) planned(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total += n
	w.bar.ChangeMax64(max(w.total, 1))
}

func (w *watcher) progress(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.bar.Add64(n) // an error of the progress bar does no harm
}

func (w *watcher) event(e gateway.SyncEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.Action {
	case gateway.ActionSkip, gateway.ActionFail:
		_ = w.bar.Clear() // the next update paints the bar again
		w.app.say(w.app.stderr, "holdfast: %s: %s\n", printable(e.Path), printable(oneLine(e.Err.Error())))
		return
	}
	if !w.plan.verbose && !w.plan.options.DryRun {
		return
	}
	if w.plan.json {
		w.report.Changes = append(w.report.Changes, syncChange{e.Action, e.Path, e.Size})
		return
	}
	_ = w.bar.Clear()
	w.app.say(w.app.stdout, "%s %s\n", e.Action, printable(e.Path))
}
