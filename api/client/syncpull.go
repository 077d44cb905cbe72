package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Reasons for which Pull refuses a key.
var (
	ErrOutside   = errors.New("the key would be outside of the folder, or is not a name of a file")
	ErrCollision = errors.New("another key differs only in case, which this file system does not distinguish")
)

func pull(ctx context.Context, remote tree, dir string, o SyncOptions) (SyncResult, error) {
	if !o.DryRun {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return SyncResult{}, err
		}
	}
	r := &run{options: o, remote: remote, dir: dir}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) && o.DryRun {
		err = nil
	}
	if err != nil {
		return SyncResult{}, err
	}
	p := &puller{run: r, folded: map[string]string{}}
	if root != nil {
		defer func() { _ = root.Close() }() // closing a folder loses no data
		r.root = root
		p.insensitive = caseInsensitive(root)
	}
	err = r.work(ctx, func(ctx context.Context) error {
		w := &walk{dir: dir, partials: true}
		return merge(w.files(), remote.list(ctx), func(local *localFile, there *entry) error {
			return p.one(ctx, local, there)
		})
	})
	if err == nil && !o.DryRun {
		err = p.clean()
	}
	return r.outcome(err)
}

// puller is the state of one call of Pull.
type puller struct {
	*run

	insensitive bool              // the file system does not distinguish case
	folded      map[string]string // keys by their lower-case form, if insensitive
	partials    []string          // partial downloads of earlier runs
	folders     []string          // folders from which a file was deleted
}

// caseInsensitive reports whether the file system of the folder root ignores the case of names.
func caseInsensitive(root *os.Root) bool {
	const probe = partialPrefix + "case" + partialSuffix
	f, err := root.OpenFile(probe, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false // the first download reports the error
	}
	_ = f.Close()
	defer func() { _ = root.Remove(probe) }()
	_, err = root.Stat(strings.ToUpper(probe))
	return err == nil
}

// one plans the download or deletion of one path, if one is needed. local is the file in the
// folder, and there the file in the cluster; the one that does not exist is nil.
func (p *puller) one(ctx context.Context, local *localFile, there *entry) error {
	switch {
	case there == nil && local.partial:
		p.partials = append(p.partials, local.path)
		return ctx.Err()
	case there == nil && local.err != nil && local.skip:
		return ctx.Err() // not a regular file, so Pull did not make it
	case there == nil && local.err != nil:
		p.unreadable(local.path, local.err)
		return ctx.Err()
	case there == nil:
		if p.options.Delete {
			p.deletes = append(p.deletes, deletion{local.path, func(context.Context) error { return p.removeLocal(local.path) }})
		}
		return ctx.Err()
	case there.err != nil:
		p.unreadable(there.path, there.err)
		return ctx.Err()
	}
	if err := p.acceptable(there.path); err != nil {
		p.report(ActionFail, there.path, there.size, err)
		return ctx.Err()
	}
	switch {
	case strings.HasSuffix(there.path, "/"):
		p.folder(there.path)
	case local == nil || local.err != nil || local.size != there.size:
		p.plan(ctx, there.size, func(ctx context.Context) { p.download(ctx, there) })
	case !p.options.Checksum && p.remote.fetched(local, there):
		p.unchanged()
	default:
		p.plan(ctx, there.size, func(ctx context.Context) { p.compare(ctx, there) })
	}
	return ctx.Err()
}

// acceptable returns an error if key cannot be the name of a file below the folder: ErrOutside or
// ErrCollision.
func (p *puller) acceptable(key string) error {
	name := strings.TrimSuffix(key, "/")
	if name == "" || path.Clean(name) != name || strings.ContainsRune(name, 0) || !filepath.IsLocal(filepath.FromSlash(name)) ||
		filepath.Separator != '/' && strings.ContainsRune(name, filepath.Separator) || IsPartial(path.Base(name)) {
		return ErrOutside
	}
	if p.insensitive {
		lower := strings.ToLower(name)
		if other, taken := p.folded[lower]; taken && other != name {
			return fmt.Errorf("%w: %q", ErrCollision, other)
		}
		p.folded[lower] = name
	}
	return nil
}

func (p *puller) folder(name string) {
	if p.options.DryRun {
		return
	}
	if err := p.root.MkdirAll(filepath.FromSlash(strings.TrimSuffix(name, "/")), 0o777); err != nil {
		p.report(ActionFail, name, 0, err)
	}
}

// compare downloads there, which has the size of the local file, if the contents differ. If they
// are equal, it sets the time of the local file to that of the object, so that the next run need
// not read the file.
func (p *puller) compare(ctx context.Context, there *entry) {
	same, err := p.remote.same(ctx, p.path(there.path), there)
	if err != nil {
		p.failed(ctx, there.path, err)
		return
	}
	if !same {
		p.download(ctx, there)
		return
	}
	if !p.options.DryRun {
		err = p.root.Chtimes(filepath.FromSlash(there.path), time.Time{}, there.modified)
	}
	if err != nil {
		p.failed(ctx, there.path, err)
		return
	}
	p.unchanged()
	p.progress(there.size)
}

func (p *puller) download(ctx context.Context, there *entry) {
	var err error
	if p.options.DryRun {
		p.progress(there.size)
	} else {
		err = p.fetch(ctx, there)
	}
	if err != nil {
		p.failed(ctx, there.path, err)
		return
	}
	p.report(ActionDownload, there.path, there.size, nil)
}

func (p *puller) fetch(ctx context.Context, there *entry) error {
	name := filepath.FromSlash(there.path)
	if folder := filepath.Dir(name); folder != "." {
		if err := p.root.MkdirAll(folder, 0o777); err != nil {
			return err
		}
	}
	return p.remote.download(ctx, there, &incoming{
		root: p.root, name: name, modified: there.modified,
		options: DownloadOptions{Verify: p.options.Verify, Progress: p.options.Progress},
	})
}

// removeLocal removes a local file that does not exist in the cluster.
func (p *puller) removeLocal(name string) error {
	if err := p.root.Remove(filepath.FromSlash(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.folders = append(p.folders, path.Dir(name))
	return nil
}

// clean removes partial downloads of earlier runs, and folders that became empty by deletions.
func (p *puller) clean() error {
	for _, name := range p.partials {
		if err := p.root.Remove(filepath.FromSlash(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, folder := range p.folders {
		for ; folder != "."; folder = path.Dir(folder) {
			if p.root.Remove(filepath.FromSlash(folder)) != nil { // the folder is not empty, or does not exist
				break
			}
		}
	}
	return nil
}
