package seal

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"lukechampine.com/blake3"
)

// Store stores the objects of an [Index]. An S3 bucket can be a Store if it supports If-Match and
// If-None-Match. A Get must return every write that was acknowledged before.
type Store interface {
	// Get returns an object and its ETag, or [ErrNotFound].
	Get(ctx context.Context, key string) (data []byte, etag string, err error)
	// PutIf writes an object if its current ETag is etag. An empty etag means that the object
	// must not exist. If the condition is false, PutIf changes nothing and returns [ErrConflict].
	PutIf(ctx context.Context, key string, data []byte, etag string) error
}

// Deleter is an optional interface of a [Store]. With it, an [Index] deletes the objects that it
// wrote for a change that another writer has prevented.
type Deleter interface {
	Delete(ctx context.Context, key string) error
}

// Entry is a file or subfolder in an index.
type Entry struct {
	Name       string    // relative to the folder; a subfolder ends in a slash
	StorageKey string    // empty for a subfolder
	Size       int64     // size of the plaintext in bytes
	Modified   time.Time // resolution of one second; zero if unknown, and for a subfolder
	Hash       [32]byte  // BLAKE3 of the plaintext; zero if unknown
}

// Limits of an index.
const (
	maxNode      = 1024    // entries of one node
	maxNodeBytes = 1 << 20 // plaintext bytes of one node
	maxDepth     = 64      // depth of the tree: the number of hex digits of a hash
	maxSplits    = 1 << 14 // inner nodes of one index, enough for 200,000,000 names
	maxAttempts  = 64      // attempts at one change while other writers are faster
	indexReaders = 16      // concurrent requests of one walk
	maxName      = 1024    // bytes of a name, or of a storage key
	fanOut       = 16      // children of an inner node
)

// Index stores the names of the files and subfolders of one folder, because names cannot be
// computed from storage keys. It is a tree of encrypted objects. Any number of writers may change
// an Index at the same time: a writer replaces an object only if no other writer has changed it,
// and otherwise retries, so no entry is lost. The methods of Index are safe for concurrent use.
//
// A reader detects that the server changed, moved or omitted a part of the index. It cannot
// detect that the server answers with an older version of a part.
type Index struct {
	store  Store
	bucket string
	folder string
	key    DataKey
	base   string // prefix of the storage keys of the nodes, without "/" and the node id
}

// NewIndex returns the index of the folder of key in bucket. prefix is the prefix of the storage
// keys of its objects. It is "" unless these keys must contain the folder, for credentials that
// are limited to a prefix, as with [PreserveStructure].
func NewIndex(store Store, bucket string, key FolderKey, prefix string) *Index {
	name := derive(contextIndexName, key.key[:])
	return &Index{
		store: store, bucket: bucket, folder: key.path,
		key: derive(contextIndexKey, key.key[:]), base: prefix + "x/" + hex.EncodeToString(name[:16]),
	}
}

// nodeRoot is the id of the root node. The id of any other node is the split id of its parent, a
// hyphen, and the hex digit of the branch.
const nodeRoot = "root"

func (x *Index) storageKey(id string) string { return x.base + "/" + id }

// digit returns hex digit number depth of the hash of name. It selects the child of an inner node
// at this depth.
func digit(name string, depth int) int {
	sum := blake3.Sum256([]byte(name))
	b := sum[depth/2]
	if depth%2 == 0 {
		return int(b >> 4)
	}
	return int(b & 15)
}

func childID(split string, digit int) string { return fmt.Sprintf("%s-%x", split, digit) }

// Put adds entries, and replaces entries of the same name. The error is [ErrTooLarge] for a name
// that is empty or too long or a StorageKey that is too long, [ErrPath] for a name that is not one
// segment of a path, an error of the store or of ctx, [ErrIndex], [ErrIndexMissing] or [ErrConflict].
func (x *Index) Put(ctx context.Context, entries ...Entry) error {
	_, err := x.Replace(ctx, entries...)
	return err
}

// Replace works like Put, and returns the replaced entry for each entry, or the zero Entry for a
// new name. If several writers replace the same entry, exactly one of them gets it as replaced.
func (x *Index) Replace(ctx context.Context, entries ...Entry) (replaced []Entry, err error) {
	replaced = make([]Entry, len(entries))
	changes := make([]change, 0, len(entries))
	for i, e := range entries {
		if e.Name == "" || len(e.Name) > maxName || len(e.StorageKey) > maxName {
			return nil, fmt.Errorf("%w: name of %d bytes, at most %d", ErrTooLarge, len(e.Name), maxName)
		}
		if !isSegment(strings.TrimSuffix(e.Name, "/")) {
			return nil, fmt.Errorf("%w: name %.64q", ErrPath, e.Name)
		}
		changes = append(changes, change{name: e.Name, entry: &e, replaced: &replaced[i]})
	}
	return replaced, x.apply(ctx, nodeRoot, 0, changes)
}

// Remove removes names. Removing a name that is not in the index is no error. The errors are those
// of [Index.Put].
func (x *Index) Remove(ctx context.Context, names ...string) error {
	changes := make([]change, 0, len(names))
	for _, name := range names {
		changes = append(changes, change{name: name})
	}
	return x.apply(ctx, nodeRoot, 0, changes)
}

// change sets or removes the entry of a name.
type change struct {
	name     string
	entry    *Entry // new entry; nil removes the name
	replaced *Entry // where to store the entry before the change; nil: nowhere
}

// apply makes changes in the node id at this depth, or in the nodes below it. After a conflict
// with another writer it retries. Repeated changes do no harm.
func (x *Index) apply(ctx context.Context, id string, depth int, changes []change) error {
	if len(changes) == 0 {
		return nil
	}
	var lost node // node that the previous attempt could not write
	for attempt := range maxAttempts {
		n, etag, err := x.read(ctx, id)
		if err != nil {
			return err
		}
		// A repeated request may report a conflict although its first attempt succeeded. Only this
		// read shows that no node names the objects that the previous attempt wrote.
		if n.split != lost.split {
			x.abandon(ctx, lost)
		}
		if n.split != "" {
			return x.branch(ctx, n.split, depth, changes)
		}
		before := n.entries
		n.apply(changes)
		if len(before) == 0 && len(n.entries) == 0 {
			return nil
		}
		written, err := x.writeTree(ctx, n.entries, depth)
		if err == nil {
			err = x.write(ctx, id, written, etag)
		}
		if err == nil {
			tellReplaced(before, changes)
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
		lost = written
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: after %d attempts", ErrConflict, maxAttempts)
}

// tellReplaced stores in each change the entry that it replaced. before has the entries before
// the changes.
func tellReplaced(before []Entry, changes []change) {
	for _, c := range changes {
		if i, ok := find(before, c.name); ok && c.replaced != nil {
			*c.replaced = before[i]
		}
	}
}

// find returns the position of a name in entries, which are ordered by name, and whether it is
// there.
func find(entries []Entry, name string) (int, bool) {
	return slices.BinarySearchFunc(entries, name, func(e Entry, name string) int { return cmp.Compare(e.Name, name) })
}

// branch makes changes in the 16 children of the inner node with the split id split.
func (x *Index) branch(ctx context.Context, split string, depth int, changes []change) error {
	if depth >= maxDepth {
		return fmt.Errorf("%w: tree is too deep", ErrIndex)
	}
	return branches(ctx, changes, func(c change) string { return c.name }, depth, func(ctx context.Context, d int, part []change) error {
		return x.apply(ctx, childID(split, d), depth+1, part)
	})
}

// branches distributes items to the 16 children of a node at this depth by the hashes of their
// names, and calls do once for each child d, with its items. It returns the first error of do.
func branches[T any](ctx context.Context, items []T, name func(T) string, depth int, do func(ctx context.Context, d int, part []T) error) error {
	var parts [fanOut][]T
	for _, item := range items {
		d := digit(name(item), depth)
		parts[d] = append(parts[d], item)
	}
	work, ctx := errgroup.WithContext(ctx)
	if depth > 0 {
		work.SetLimit(1) // below the root, one branch at a time
	}
	for d, part := range parts {
		work.Go(func() error { return do(ctx, d, part) })
	}
	return work.Wait()
}

// writeTree returns a node for entries, which the caller writes. If they are too many for one
// node, it first writes the nodes below, and returns an inner node. The new nodes have random
// ids, so writers that split a node at the same time do not overwrite each other.
func (x *Index) writeTree(ctx context.Context, entries []Entry, depth int) (node, error) {
	n := node{entries: entries}
	if !n.full() || depth >= maxDepth {
		return n, nil
	}
	split := hex.EncodeToString(random(16))
	return node{split: split}, branches(ctx, entries, func(e Entry) string { return e.Name }, depth, func(ctx context.Context, d int, part []Entry) error {
		child, err := x.writeTree(ctx, part, depth+1)
		if err != nil {
			return err
		}
		return x.write(ctx, childID(split, d), child, "")
	})
}

// abandon deletes the nodes below an inner node that could not be written. Errors are ignored,
// because no other node refers to them.
func (x *Index) abandon(ctx context.Context, n node) {
	store, ok := x.store.(Deleter)
	if n.split == "" || !ok {
		return
	}
	for d := range fanOut {
		id := childID(n.split, d)
		child, _, err := x.read(ctx, id)
		if err != nil {
			continue // the object was not written either
		}
		x.abandon(ctx, child)
		_ = store.Delete(ctx, x.storageKey(id)) // an object that stays only takes space
	}
}

// pause waits a random time before the next attempt. The upper bound of that time doubles with
// each attempt, from 1 ms to 256 ms.
func pause(ctx context.Context, attempt int) error {
	limit := time.Millisecond << min(attempt, 8)
	timer := time.NewTimer(rand.N(limit)) //nolint:gosec // spreads attempts; not a secret
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Lookup returns the entry of a name, or [ErrNotFound].
func (x *Index) Lookup(ctx context.Context, name string) (Entry, error) {
	id := nodeRoot
	for depth := range maxDepth {
		n, _, err := x.read(ctx, id)
		if err != nil {
			return Entry{}, err
		}
		if n.split == "" {
			i, ok := find(n.entries, name)
			if !ok {
				return Entry{}, fmt.Errorf("%w: %.64q", ErrNotFound, name)
			}
			return n.entries[i], nil
		}
		id = childID(n.split, digit(name, depth))
	}
	return Entry{}, fmt.Errorf("%w: tree is too deep", ErrIndex)
}

// List returns all entries, ordered by name. An entry that is added or removed during the call
// may or may not be in the list.
func (x *Index) List(ctx context.Context) ([]Entry, error) {
	var all []Entry
	err := x.walk(ctx, func(_ string, n node) { all = append(all, n.entries...) })
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// StorageKeys returns the storage keys of all nodes of the index, for a rewrap that deletes them
// after it has copied the entries to another index.
func (x *Index) StorageKeys(ctx context.Context) ([]string, error) {
	var keys []string
	err := x.walk(ctx, func(id string, n node) {
		if id != nodeRoot || n.split != "" || len(n.entries) > 0 {
			keys = append(keys, x.storageKey(id))
		}
	})
	slices.Sort(keys)
	return keys, err
}

// walk reads all nodes with concurrent requests, and calls visit for one node at a time.
func (x *Index) walk(ctx context.Context, visit func(id string, n node)) error {
	var mu sync.Mutex // guards visit, next and splits
	level, splits := []string{nodeRoot}, map[string]bool{}
	for depth := 0; len(level) > 0; depth++ {
		if depth > maxDepth {
			return fmt.Errorf("%w: tree is too deep", ErrIndex)
		}
		var next []string
		work, ctx := errgroup.WithContext(ctx)
		work.SetLimit(indexReaders)
		for _, id := range level {
			work.Go(func() error {
				n, _, err := x.read(ctx, id)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				visit(id, n)
				if n.split != "" {
					if splits[n.split] || len(splits) == maxSplits { // the tree would lead a reader in circles
						return fmt.Errorf("%w: object %s has a split that is there twice, or one too many", ErrIndex, id)
					}
					splits[n.split] = true
					for d := range fanOut {
						next = append(next, childID(n.split, d))
					}
				}
				return nil
			})
		}
		if err := work.Wait(); err != nil {
			return err
		}
		level = next
	}
	return nil
}
