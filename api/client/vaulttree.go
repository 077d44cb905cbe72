package client

import (
	"context"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"lukechampine.com/blake3"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// recordEvery is the number of uploaded files of one folder after which a sync adds them to the
// index. If the process is killed earlier, the next run uploads the files again that are not in
// the index.
const recordEvery = 256

// finishWithin bounds how long an interrupted sync takes to add its uploaded files to the index.
const finishWithin = 20 * time.Second

// Push makes the encrypted files below the folder prefix equal to the files below dir, as
// Client.Push does for objects. A prefix "" is the whole bucket. A file whose name CheckName
// rejects counts as a failure. The error is that of CheckName if it rejects prefix.
func (v *Vault) Push(ctx context.Context, dir, prefix string, o SyncOptions) (SyncResult, error) {
	t := v.tree(prefix)
	if t.folder != "" {
		if err := v.CheckName(t.folder); err != nil {
			return SyncResult{}, err
		}
	}
	return push(ctx, dir, t, o)
}

// Pull makes the files below dir equal to the encrypted files below the folder prefix, as
// Client.Pull does for objects. If there are no files, and all encrypted objects in the bucket
// belong to other identities, Pull removes nothing and returns ErrOtherKeys.
func (v *Vault) Pull(ctx context.Context, prefix, dir string, o SyncOptions) (SyncResult, error) {
	t := v.tree(prefix)
	t.pulling = true
	return pull(ctx, t, dir, o)
}

func (v *Vault) tree(prefix string) *vaultTree {
	return &vaultTree{vault: v, folder: strings.Trim(prefix, "/"), pending: map[string][]seal.Entry{}}
}

// vaultTree is the tree of a sync with encryption: the files below a folder of a Vault.
type vaultTree struct {
	vault  *Vault
	folder string // without a leading or trailing slash

	pulling bool // the sync is a Pull, for which an empty list may be ErrOtherKeys

	mu      sync.Mutex
	pending map[string][]seal.Entry // stored files that are not in the index yet, by folder
}

func (t *vaultTree) name(p string) string { return path.Join(t.folder, p) }

func (t *vaultTree) list(ctx context.Context) iter.Seq2[*entry, error] {
	return func(yield func(*entry, error) bool) {
		found := false
		t.walk(ctx, "", func(e *entry, err error) bool {
			found = true
			return yield(e, err)
		})
		if found || !t.pulling {
			return
		}
		if err := t.vault.othersOnly(ctx); err != nil {
			yield(nil, err)
		}
	}
}

// walk yields the files of one folder and its subfolders, ordered by path. That order follows
// from the names, because the names of folders end in "/". A folder whose name a recipient must
// reject is an entry with an error.
func (t *vaultTree) walk(ctx context.Context, folder string, yield func(*entry, error) bool) bool {
	entries, err := t.vault.List(ctx, t.name(folder))
	if err != nil {
		return yield(nil, err)
	}
	slices.SortFunc(entries, func(a, b seal.Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		p := folder + e.Name
		if strings.HasSuffix(e.Name, "/") {
			if err := t.vault.allow(absolute(t.name(p)), seal.Read); err != nil {
				if !yield(&entry{path: p, err: err}, nil) {
					return false
				}
			} else if !t.walk(ctx, p, yield) {
				return false
			}
			continue
		}
		hash := Hash(e.Hash)
		if !yield(&entry{path: p, key: e.StorageKey, size: e.Size, modified: e.Modified, hash: &hash}, nil) {
			return false
		}
	}
	return true
}

// stored implements tree. It compares times with a resolution of one second, that of the index.
// The index has the modification time of the file at its upload, so the times of an unchanged
// file are equal.
func (t *vaultTree) stored(local *localFile, there *entry) bool {
	return local.modified.Unix() == there.modified.Unix()
}

func (t *vaultTree) fetched(local *localFile, there *entry) bool { return t.stored(local, there) }

func (t *vaultTree) check(p string) error { return seal.CheckPath(absolute(t.name(p))) }

func (t *vaultTree) same(_ context.Context, file string, there *entry) (bool, error) {
	sum, err := hashFile(file, blake3.New(len(Hash{}), nil))
	return err == nil && Hash(sum) == *there.hash, err
}

// upload implements tree. With verify it downloads the stored file again. A hash computed by a
// node would not help: it would be that of the ciphertext, which differs on each attempt.
func (t *vaultTree) upload(ctx context.Context, local *localFile, file string, verify bool, o UploadOptions) error {
	name := t.name(local.path)
	e, err := t.vault.send(ctx, name, file, o)
	if err != nil {
		return err
	}
	if verify {
		if err := t.vault.download(ctx, name, e.StorageKey, discard{}, DownloadOptions{Verify: true}); err != nil {
			return err
		}
	}
	return t.note(ctx, name, e)
}

// discard is a writer that discards all bytes.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// note queues the index entry of an uploaded file. When recordEvery entries of a folder are
// queued, note adds them to the index.
func (t *vaultTree) note(ctx context.Context, name string, e seal.Entry) error {
	folder, _ := split(absolute(name))
	t.mu.Lock()
	t.pending[folder] = append(t.pending[folder], e)
	var due []seal.Entry
	if len(t.pending[folder]) >= recordEvery {
		due = t.pending[folder]
		delete(t.pending, folder)
	}
	t.mu.Unlock()
	if due == nil {
		return nil
	}
	return t.vault.record(ctx, folder, due...)
}

func (t *vaultTree) download(ctx context.Context, there *entry, to *incoming) error {
	f, content, err := t.vault.open(ctx, t.name(there.path), there.key, to.options)
	if err != nil {
		return err
	}
	to.client, to.fetching, to.content = t.vault.client, f, content
	return t.vault.denied(to.run(ctx))
}

func (t *vaultTree) remove(ctx context.Context, there *entry) error {
	return t.vault.Remove(ctx, t.name(there.path))
}

func (t *vaultTree) abandon(ctx context.Context, journal string) error {
	return t.vault.client.Abandon(ctx, journal)
}

func (t *vaultTree) finish(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, finishWithin)
	defer stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	for folder, entries := range t.pending {
		if err := t.vault.record(ctx, folder, entries...); err != nil {
			return err
		}
		delete(t.pending, folder)
	}
	return nil
}
