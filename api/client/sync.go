package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// DefaultSyncParallel is the number of files that Push and Pull transfer at once.
const DefaultSyncParallel = 16

// scanAhead is the maximum number of planned transfers that wait to begin.
const scanAhead = 10_000

// SyncOptions describe a call of Push or Pull. The zero value copies new and changed files and
// removes nothing.
type SyncOptions struct {
	Delete   bool // remove files that exist only at the target
	DryRun   bool // report changes, but make none
	Checksum bool // compare files of equal size by content instead of by time
	Verify   bool // Pull: as in DownloadOptions; Push: compare the BLAKE3 that the cluster computed with that of the file
	Follow   bool // Push: upload the files and folders that symbolic links point to

	Parallel int // number of files in transfer at once; 0 means DefaultSyncParallel

	// Journals is a folder for the journals of uploads, with which a later call continues interrupted
	// uploads. Each pair of source folder and target needs its own journal folder. With "" an
	// interrupted upload is aborted if possible, and never continued.
	Journals string

	// Report is called from several goroutines, for each change, and for each file that cannot be
	// copied.
	Report func(SyncEvent)
	// Planned is called with the size of each transfer when it is planned.
	Planned func(bytes int64)
	// Progress is called with the number of bytes transferred since the last call.
	Progress func(bytes int64)
}

// Actions of a SyncEvent.
const (
	ActionUpload   = "upload"
	ActionDownload = "download"
	ActionDelete   = "delete"
	ActionSkip     = "skip" // the file cannot be copied; this is no failure
	ActionFail     = "fail"
)

// SyncEvent reports one change, or the reason why a file was not copied.
type SyncEvent struct {
	Action string
	Path   string // path relative to the folder, with slashes
	Size   int64  // bytes
	Err    error  // reason of ActionSkip and ActionFail
}

// SyncResult counts the files by outcome. With DryRun it counts the changes that would be made.
type SyncResult struct {
	Copied, Deleted, Unchanged, Skipped, Failed int
	Bytes                                       int64 // size of all copied files
}

// ErrSync means that some files could not be copied. Each of them was passed to Report.
var ErrSync = errors.New("not all files were copied")

// Push makes the objects of a bucket whose keys begin with prefix equal to the files below dir. A
// file a/b gets the key prefix+"a/b". Push does not upload empty folders, partial downloads, or
// anything except regular files. The error is ErrSync if some files failed.
func (c *Client) Push(ctx context.Context, dir, bucket, prefix string, o SyncOptions) (SyncResult, error) {
	return push(ctx, dir, &plainTree{client: c, bucket: bucket, prefix: prefix}, o)
}

// Pull makes the files below dir equal to the objects of a bucket whose keys begin with prefix.
// It creates dir if necessary. A key that would be outside of dir, or that is no file name, is
// not downloaded and counts as a failure. Pull creates a folder for a key that ends in "/". Each
// file gets the time of its object.
func (c *Client) Pull(ctx context.Context, bucket, prefix, dir string, o SyncOptions) (SyncResult, error) {
	return pull(ctx, &plainTree{client: c, bucket: bucket, prefix: prefix}, dir, o)
}

// run is the state of one call of Push or Pull.
type run struct {
	options SyncOptions
	remote  tree
	dir     string
	root    *os.Root // dir of Pull

	todo    chan func(ctx context.Context) // planned transfers
	deletes []deletion                     // planned deletions, which run after the transfers

	mu     sync.Mutex
	result SyncResult
	broken bool // a part of the source could not be read, so nothing may be deleted
}

// deletion is the planned deletion of a file or object that exists only at the target.
type deletion struct {
	path string
	do   func(ctx context.Context) error
}

func (r *run) report(action, path string, size int64, err error) {
	r.mu.Lock()
	switch action {
	case ActionUpload, ActionDownload:
		r.result.Copied++
		r.result.Bytes += size
	case ActionDelete:
		r.result.Deleted++
	case ActionSkip:
		r.result.Skipped++
	case ActionFail:
		r.result.Failed++
	}
	r.mu.Unlock()
	if r.options.Report != nil {
		r.options.Report(SyncEvent{action, path, size, err})
	}
}

func (r *run) unchanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Unchanged++
}

// unreadable reports a part of the source that could not be read, and disables deletions for this
// run, because files in that part may exist at the target.
func (r *run) unreadable(path string, err error) {
	r.mu.Lock()
	r.broken = true
	r.mu.Unlock()
	r.report(ActionFail, path, 0, err)
}

// work calls scan, which plans transfers, and executes the planned transfers at the same time.
// Then it executes the planned deletions.
func (r *run) work(ctx context.Context, scan func(ctx context.Context) error) error {
	parallel := r.options.Parallel
	if parallel <= 0 {
		parallel = DefaultSyncParallel
	}
	r.todo = make(chan func(context.Context), scanAhead)
	working, stop := errgroup.WithContext(ctx)
	working.Go(func() error {
		defer close(r.todo)
		return scan(stop)
	})
	for range parallel {
		working.Go(func() error {
			for do := range r.todo {
				if stop.Err() != nil {
					return context.Cause(stop)
				}
				do(stop)
			}
			return nil
		})
	}
	err := working.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = r.delete(ctx, parallel)
	}
	return errors.Join(err, r.remote.finish(context.WithoutCancel(ctx)))
}

// plan queues the transfer do of a number of bytes.
func (r *run) plan(ctx context.Context, bytes int64, do func(ctx context.Context)) {
	if r.options.Planned != nil {
		r.options.Planned(bytes)
	}
	select {
	case r.todo <- do:
	case <-ctx.Done():
	}
}

func (r *run) delete(ctx context.Context, parallel int) error {
	if len(r.deletes) > 0 && r.broken {
		r.report(ActionSkip, "", 0, fmt.Errorf("%d deletions, because a part of the source could not be read", len(r.deletes)))
		return nil
	}
	deleting, stop := errgroup.WithContext(ctx)
	deleting.SetLimit(parallel)
	for _, d := range r.deletes {
		deleting.Go(func() error {
			if err := context.Cause(stop); err != nil {
				return err
			}
			var err error
			if !r.options.DryRun {
				err = d.do(stop)
			}
			if err != nil {
				r.report(ActionFail, d.path, 0, err)
			} else {
				r.report(ActionDelete, d.path, 0, nil)
			}
			return nil
		})
	}
	return deleting.Wait()
}

// outcome returns the result of the run. The error is err if that is not nil, else ErrSync if
// some files failed.
func (r *run) outcome(err error) (SyncResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.result.Failed > 0 {
		err = fmt.Errorf("%w: %d failed", ErrSync, r.result.Failed)
	}
	return r.result, err
}

func push(ctx context.Context, dir string, remote tree, o SyncOptions) (SyncResult, error) {
	if info, err := os.Stat(dir); err != nil {
		return SyncResult{}, err
	} else if !info.IsDir() {
		return SyncResult{}, fmt.Errorf("%s is not a folder", dir)
	}
	r := &run{options: o, remote: remote, dir: dir}
	err := r.work(ctx, func(ctx context.Context) error {
		w := &walk{dir: dir, follow: o.Follow}
		return merge(w.files(), remote.list(ctx), func(local *localFile, there *entry) error {
			return r.pushOne(ctx, w, local, there)
		})
	})
	if err == nil && !o.DryRun {
		err = r.abandonRest(ctx)
	}
	return r.outcome(err)
}

// pushOne plans the upload or deletion of one path, if one is needed. local is the file in the
// folder, and there the file in the cluster; the one that does not exist is nil.
func (r *run) pushOne(ctx context.Context, w *walk, local *localFile, there *entry) error {
	switch {
	case local == nil:
		if r.options.Delete && there.err == nil && !w.protects(there.path) && !r.isFolder(there.path) {
			r.deletes = append(r.deletes, deletion{there.path, func(ctx context.Context) error { return r.remote.remove(ctx, there) }})
		}
	case local.err != nil && local.skip:
		r.report(ActionSkip, local.path, 0, local.err)
	case local.err != nil:
		r.unreadable(local.path, local.err)
	case there == nil:
		r.plan(ctx, local.size, func(ctx context.Context) { r.upload(ctx, local) })
	case local.size == there.size && !r.options.Checksum && r.remote.stored(local, there):
		r.unchanged()
	case local.size != there.size:
		r.plan(ctx, local.size, func(ctx context.Context) { r.upload(ctx, local) })
	default:
		r.plan(ctx, local.size, func(ctx context.Context) {
			same, err := r.remote.same(ctx, r.path(local.path), there)
			switch {
			case err != nil:
				r.failed(ctx, local.path, err)
			case same:
				r.unchanged()
				r.progress(local.size)
			default:
				r.upload(ctx, local)
			}
		})
	}
	return ctx.Err()
}

// isFolder reports whether name is the key of a folder marker, which ends in "/", of a folder
// that exists below dir.
func (r *run) isFolder(name string) bool {
	if !strings.HasSuffix(name, "/") {
		return false
	}
	info, err := os.Stat(r.path(name))
	return err == nil && info.IsDir()
}

func (r *run) path(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }

func (r *run) progress(n int64) {
	if r.options.Progress != nil {
		r.options.Progress(n)
	}
}

// failed reports the failure of a file. It does nothing if ctx has ended, because then the whole
// run was interrupted.
func (r *run) failed(ctx context.Context, path string, err error) {
	if ctx.Err() == nil {
		r.report(ActionFail, path, 0, err)
	}
}

// uploadTries is how often Push tries to upload a file that changes during the upload.
const uploadTries = 3

func (r *run) upload(ctx context.Context, local *localFile) {
	if err := r.remote.check(local.path); err != nil {
		r.failed(ctx, local.path, err)
		return
	}
	if r.options.DryRun {
		r.report(ActionUpload, local.path, local.size, nil)
		r.progress(local.size)
		return
	}
	o := UploadOptions{Progress: r.options.Progress}
	if r.options.Journals != "" {
		o.Journal = r.journal(local.path)
	}
	var err error
	for range uploadTries {
		if err = r.remote.upload(ctx, local, r.path(local.path), r.options.Verify, o); !errors.Is(err, ErrChanged) {
			break
		}
	}
	if err != nil {
		r.failed(ctx, local.path, err)
		return
	}
	r.report(ActionUpload, local.path, local.size, nil)
}

// journal returns the path of the journal for the upload of a file.
func (r *run) journal(path string) string {
	return filepath.Join(r.options.Journals, hashName(path))
}

// abandonRest aborts unfinished uploads of earlier runs that this run did not continue, because
// their file no longer exists or has become small. It does nothing if a file failed in this run,
// so that the next run can continue the upload of that file.
func (r *run) abandonRest(ctx context.Context) error {
	if r.options.Journals == "" || r.result.Failed > 0 {
		return nil
	}
	left, err := os.ReadDir(r.options.Journals)
	if err != nil {
		return nil //nolint:nilerr // no folder, so no journals
	}
	for _, file := range left {
		if err := r.remote.abandon(ctx, filepath.Join(r.options.Journals, file.Name())); err != nil {
			return err
		}
	}
	_ = os.Remove(r.options.Journals) // Remove fails if the folder is not empty
	return nil
}

// timeMargin is how much newer than its file an object must be to count as unchanged. It allows
// for a difference between the clocks of the machine and the cluster.
const timeMargin = 2 * time.Second
