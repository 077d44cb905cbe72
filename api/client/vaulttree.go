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

// recordEvery is the number of files of one folder that a sync puts into the index at once. If the
// process is killed, the next run sends the stored files again that are not in the index yet.
const recordEvery = 256

// finishWithin bounds how long an interrupted sync takes to put its stored files into the index.
const finishWithin = 20 * time.Second

// Push makes the encrypted files below the folder prefix equal to the files below dir, as
// Client.Push does with objects; a prefix "" is the whole bucket. Push reports each file whose name
// CheckName refuses as a failure. The error is that of CheckName if it refuses prefix.
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
// Client.Pull does with objects. If there are no files, and all encrypted objects in the bucket are
// of other identities, the error is ErrOtherKeys, and Pull removes nothing.
func (v *Vault) Pull(ctx context.Context, prefix, dir string, o SyncOptions) (SyncResult, error) {
	t := v.tree(prefix)
	t.pulling = true
	return pull(ctx, t, dir, o)
}

func (v *Vault) tree(prefix string) *vaultTree {
	return &vaultTree{vault: v, folder: strings.Trim(prefix, "/"), pending: map[string][]seal.Entry{}}
}

// vaultTree is the cluster side of a sync with encryption: the files below a folder of a Vault.
type vaultTree struct {
	vault  *Vault
	folder string // without a slash in front or at the end

	pulling bool // an empty list needs an explanation

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

// walk lists one folder and the folders below. The entries are in the order of their paths, because
// the names of folders end in "/". A folder whose name a recipient refuses is an entry with an error.
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

// stored compares times in seconds, the resolution of the index. The index has the time of the file
// at its upload, so the times of an unchanged file are equal.
func (t *vaultTree) stored(local *localFile, there *entry) bool {
	return local.modified.Unix() == there.modified.Unix()
}

func (t *vaultTree) fetched(local *localFile, there *entry) bool { return t.stored(local, there) }

func (t *vaultTree) check(p string) error { return seal.CheckPath(absolute(t.name(p))) }

func (t *vaultTree) same(_ context.Context, file string, there *entry) (bool, error) {
	sum, err := hashFile(file, blake3.New(len(Hash{}), nil))
	return err == nil && Hash(sum) == *there.hash, err
}

// upload stores a file. With verify, upload reads the stored file back: a node could compute only
// the BLAKE3 of the ciphertext, which differs on each attempt.
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

// discard is a writer that drops all bytes.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// note queues the entry of a stored file, and puts the queued entries of a folder into the index
// together.
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
