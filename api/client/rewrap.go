package client

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// rewrapParallel is the number of files that Rewrap changes at once.
const rewrapParallel = 16

// ErrOtherPaths means that the new identity has another path secret than the old one, and so
// computes other storage keys. Its files would have to be uploaded again. seal.Identity.Rotate
// keeps the path secret.
var ErrOtherPaths = errors.New("the new identity was not made from the old one, and has other storage keys")

// ErrRewrap means that some files still belong to the old identity. Rewrap has passed each of
// them to report.
var ErrRewrap = errors.New("not all files were rewrapped")

// RewrapResult counts the files of a run of Rewrap.
type RewrapResult struct {
	Rewrapped int // files that this run rewrapped
	Done      int // files that an earlier run rewrapped
	Failed    int
}

// Rewrap wraps the data keys of all files below a folder for the identity next instead of that of
// v; "" is the whole bucket. It transfers no content. Afterwards the old identity opens none of
// these files, except old versions in a bucket with versioning. With hybrid, the data keys are
// wrapped for the post-quantum key of next, as in NewVault. For the whole bucket, Rewrap also
// rewraps objects that no index names, which an interrupted upload or sync left. It calls report
// from several goroutines for each file, with nil or its error. After an interruption, call
// Rewrap again. Nobody may upload with the old identity during a run. The error is ErrOtherKeys
// if there is nothing to rewrap and all encrypted objects belong to other identities.
func (v *Vault) Rewrap(ctx context.Context, folder string, next *seal.Identity, hybrid bool, report func(name string, err error)) (RewrapResult, error) {
	if v.identity == nil {
		return RewrapResult{}, ErrRecipient
	}
	const probe = "/probe"
	old, err := v.identity.StorageKey(seal.DeterministicHash, probe)
	if err != nil {
		return RewrapResult{}, err
	}
	if now, err := next.StorageKey(seal.DeterministicHash, probe); err != nil || now != old {
		return RewrapResult{}, errors.Join(err, ErrOtherPaths)
	}
	to, err := v.client.NewVault(v.bucket, next, hybrid)
	if err != nil {
		return RewrapResult{}, err
	}
	r := &rewrapping{old: v, next: to, report: report, seen: map[string]bool{}}
	folder = strings.Trim(folder, "/")
	if err := r.folder(ctx, folder); err != nil {
		return r.result, err
	}
	if folder == "" {
		if err := r.unlisted(ctx); err != nil {
			return r.result, err
		}
	}
	if r.result.Failed > 0 {
		return r.result, fmt.Errorf("%w: %d failed", ErrRewrap, r.result.Failed)
	}
	if r.result == (RewrapResult{}) { // an earlier run has done all, or the identity is a wrong one
		if err := to.othersOnly(ctx); err != nil {
			return r.result, err
		}
	}
	if folder == "" {
		return r.result, nil
	}
	above, name := split(absolute(folder))
	x, err := v.index(above)
	if err != nil {
		return r.result, err
	}
	return r.result, x.Remove(ctx, name+"/")
}

// rewrapping is the state of one call of Rewrap.
type rewrapping struct {
	old, next *Vault
	report    func(name string, err error)

	mu     sync.Mutex
	result RewrapResult
	seen   map[string]bool // storage keys that the indexes named
}

// folder rewraps the subfolders of a folder, then its files, writes the new index, and then
// removes the old one. If a file fails or the run is interrupted, the old index of its folder
// stays, so that the next run finds the file.
func (r *rewrapping) folder(ctx context.Context, name string) error {
	list, err := r.old.List(ctx, name)
	if err != nil {
		return err
	}
	before := r.failed()
	working, stop := errgroup.WithContext(ctx)
	working.SetLimit(rewrapParallel)
	var done []seal.Entry // entries of the new index; guarded by r.mu
	for _, e := range list {
		if below, ok := strings.CutSuffix(e.Name, "/"); ok {
			if err := r.folder(stop, path.Join(name, below)); err != nil {
				return errors.Join(working.Wait(), err)
			}
			continue
		}
		r.mu.Lock()
		r.seen[e.StorageKey] = true
		r.mu.Unlock()
		working.Go(func() error {
			keep, err := r.file(stop, path.Join(name, e.Name), e.StorageKey)
			if keep {
				r.mu.Lock()
				done = append(done, e)
				r.mu.Unlock()
			}
			return err
		})
	}
	if err := working.Wait(); err != nil {
		return err
	}
	if len(done) > 0 {
		if err := r.next.record(ctx, absolute(name), done...); err != nil {
			return err
		}
	}
	if r.failed() > before {
		return nil // the next run finds the failed files by the old index
	}
	x, err := r.old.index(absolute(name))
	if err != nil {
		return err
	}
	keys, err := x.StorageKeys(ctx)
	for _, key := range keys {
		err = errors.Join(err, r.old.client.Remove(ctx, r.old.bucket, key))
	}
	return err
}

// unlisted rewraps the objects that the old identity opens and that no index named in this run.
// Their names are unknown, so they get no entry in the new index.
func (r *rewrapping) unlisted(ctx context.Context) error {
	working, stop := errgroup.WithContext(ctx)
	working.SetLimit(rewrapParallel)
	for o, err := range r.old.client.List(stop, r.old.bucket, ListOptions{Prefix: filePrefix, Recursive: true}) {
		if err != nil {
			return errors.Join(working.Wait(), err)
		}
		if r.seen[o.Key] {
			continue
		}
		working.Go(func() error {
			did, err := r.object(stop, o.Key)
			var refused *Error
			switch {
			case stop.Err() != nil:
				return context.Cause(stop)
			case did:
				r.count(o.Key, true, nil)
			case errors.As(err, &refused) && !errors.Is(err, ErrNotFound):
				r.count(o.Key, false, err)
			}
			return nil // the old identity opens no other object
		})
	}
	return working.Wait()
}

// count adds a file to the result and calls report. did is true if this run rewrapped the file.
func (r *rewrapping) count(name string, did bool, err error) {
	r.mu.Lock()
	switch {
	case err != nil:
		r.result.Failed++
	case did:
		r.result.Rewrapped++
	default:
		r.result.Done++
	}
	r.mu.Unlock()
	if r.report != nil {
		r.report(name, err)
	}
}

func (r *rewrapping) failed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result.Failed
}

// file rewraps one file. keep is true if the file exists and belongs to the new identity, and so
// gets an entry in the new index. A failure of the file is counted; err is only an error that
// ends the whole run.
func (r *rewrapping) file(ctx context.Context, name, key string) (keep bool, err error) {
	did, err := r.object(ctx, key)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if errors.Is(err, ErrNotFound) {
		return false, nil // the file was removed, but its entry is still in the index
	}
	r.count(name, did, err)
	return err == nil, nil
}

// object rewraps one object. It returns false and no error if an earlier run has rewrapped the
// object.
func (r *rewrapping) object(ctx context.Context, key string) (bool, error) {
	v := r.old
	object, err := v.client.Head(ctx, v.bucket, key)
	if err != nil {
		return false, err
	}
	header, err := headerOf(&object)
	if err != nil {
		return false, err
	}
	if _, err := seal.Open(r.next.identity, header, key, seal.Options{}); err == nil {
		return false, nil
	}
	wrapped, err := seal.Rewrap(header, key, v.identity, r.next.to, &r.next.folders)
	if err != nil {
		return false, err
	}
	return true, v.client.copySealed(ctx, &object, key, wrapped)
}

// copySealed replaces the encryption header of an object by a server-side copy to the storage key
// to, which may be the key of o itself. No content is transferred. The error is ErrPrecondition
// if another writer has replaced o.
func (c *Client) copySealed(ctx context.Context, o *Object, to string, h seal.Header) error {
	header := map[string]string{"X-Amz-Metadata-Directive": "REPLACE", "Content-Type": "application/octet-stream"}
	if o.ETag != "" {
		header["X-Amz-Copy-Source-If-Match"] = `"` + o.ETag + `"`
	}
	for name, value := range h.Map() {
		header[name] = value
	}
	_, err := c.do(ctx, operation{verb: "copy to", bucket: o.Bucket, key: to}, func(ctx context.Context, n *node) error {
		_, err := n.core.CopyObject(ctx, o.Bucket, o.Key, o.Bucket, to, header, minio.CopySrcOptions{}, minio.PutObjectOptions{})
		return err
	})
	return err
}

// headerOf returns the encryption header of an object.
func headerOf(o *Object) (seal.Header, error) {
	return seal.FindHeader(func(name string) string {
		return o.Metadata[strings.TrimPrefix(name, metadataPrefix)]
	})
}
