package seal

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"lukechampine.com/blake3"
)

// Store keeps the parts of an [Index]. A bucket of the gateway is one, with If-Match and
// If-None-Match. A Get sees every write that was acknowledged before it.
type Store interface {
	// Get returns an object and its ETag, or [ErrNotFound].
	Get(ctx context.Context, key string) (data []byte, etag string, err error)
	// PutIf writes an object if its ETag is etag, or if it does not exist and etag is empty. Else
	// it changes nothing and returns [ErrConflict].
	PutIf(ctx context.Context, key string, data []byte, etag string) error
}

// Deleter is a [Store] that can delete. An index then removes what a lost race left behind.
type Deleter interface {
	Delete(ctx context.Context, key string) error
}

// Entry is one name of an index.
type Entry struct {
	Name       string    // relative to the folder; a subfolder ends in a slash
	StorageKey string    // empty for a subfolder
	Size       int64     // of the plaintext in bytes
	Modified   time.Time // with a resolution of one second; zero if not known, as of a subfolder
	Hash       [32]byte  // BLAKE3 of the plaintext; zero if not known
}

// Bounds of an index.
const (
	maxNode      = 1024    // entries of one object
	maxNodeBytes = 1 << 20 // of its plaintext
	maxDepth     = 64      // hex digits of a hash
	maxAttempts  = 64      // of one change against other writers
	indexReaders = 16      // requests at a time
	maxName      = 1024    // bytes
	fanOut       = 16
)

// Index keeps the names of one folder, where storage keys do not tell them. It is a tree of
// encrypted objects. Any number of writers may change it at the same time: each change replaces
// one object under the condition that nobody else has, and is tried again if somebody did, so that
// no entry is lost. Its methods are safe for concurrent use.
//
// The server cannot change, move or leave out a part without being found out. It can answer with
// an older state of a part that it once had.
type Index struct {
	store  Store
	bucket string
	folder string
	key    DataKey
	base   string // storage key of the parts, before "/"
}

// NewIndex returns the index of the folder of key in bucket. prefix is put before the storage
// keys of its objects: "" unless the folder has to be in them, as under [PreserveStructure] for
// access that is limited to a prefix.
func NewIndex(store Store, bucket string, key FolderKey, prefix string) *Index {
	name := derive(contextIndexName, key.key[:])
	return &Index{
		store: store, bucket: bucket, folder: key.path,
		key: derive(contextIndexKey, key.key[:]), base: prefix + "x/" + hex.EncodeToString(name[:16]),
	}
}

// nodeRoot is the id of the root. Other ids are those of the split that made them, a hyphen, and
// the digit of the hash.
const nodeRoot = "root"

func (x *Index) storageKey(id string) string { return x.base + "/" + id }

// digit returns the depth-th hex digit of the hash of name: it chooses the branch of a node.
func digit(name string, depth int) int {
	sum := blake3.Sum256([]byte(name))
	b := sum[depth/2]
	if depth%2 == 0 {
		return int(b >> 4)
	}
	return int(b & 15)
}

func childID(split string, digit int) string { return fmt.Sprintf("%s-%x", split, digit) }

// Put adds entries, and replaces those of the same name. The error is [ErrTooLarge] for a name that
// is too long, an error of the store, [ErrIndex], [ErrIndexMissing] or [ErrConflict].
func (x *Index) Put(ctx context.Context, entries ...Entry) error {
	changes := make([]change, 0, len(entries))
	for _, e := range entries {
		if e.Name == "" || len(e.Name) > maxName || len(e.StorageKey) > maxName {
			return fmt.Errorf("%w: name of %d bytes, at most %d", ErrTooLarge, len(e.Name), maxName)
		}
		changes = append(changes, change{name: e.Name, entry: &e})
	}
	return x.apply(ctx, nodeRoot, 0, changes)
}

// Remove removes names. It is no error if there is no such name. The errors are those of
// [Index.Put].
func (x *Index) Remove(ctx context.Context, names ...string) error {
	changes := make([]change, 0, len(names))
	for _, name := range names {
		changes = append(changes, change{name: name})
	}
	return x.apply(ctx, nodeRoot, 0, changes)
}

// change sets the entry of a name, or removes it if entry is nil.
type change struct {
	name  string
	entry *Entry
}

// apply makes changes below a node. A change that has to be tried again does the same again.
func (x *Index) apply(ctx context.Context, id string, depth int, changes []change) error {
	if len(changes) == 0 {
		return nil
	}
	var lost node // by the attempt before
	for attempt := range maxAttempts {
		n, etag, err := x.read(ctx, id)
		if err != nil {
			return err
		}
		// A request that was repeated below may report a conflict with itself, so it is only now
		// certain that this node will never name the objects that were written for it.
		if n.split != lost.split {
			x.abandon(ctx, lost)
		}
		if n.split != "" {
			return x.branch(ctx, n.split, depth, changes)
		}
		before := len(n.entries)
		if err := n.apply(changes); err != nil {
			return err
		}
		if before == 0 && len(n.entries) == 0 {
			return nil
		}
		written, err := x.writeTree(ctx, n.entries, depth)
		if err == nil {
			err = x.write(ctx, id, written, etag)
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

// branch makes changes below a node that was split.
func (x *Index) branch(ctx context.Context, split string, depth int, changes []change) error {
	if depth >= maxDepth {
		return fmt.Errorf("%w: tree is too deep", ErrIndex)
	}
	var parts [fanOut][]change
	for _, c := range changes {
		d := digit(c.name, depth)
		parts[d] = append(parts[d], c)
	}
	work, ctx := errgroup.WithContext(ctx)
	if depth > 0 {
		work.SetLimit(1) // one level of goroutines is enough
	}
	for d, part := range parts {
		work.Go(func() error { return x.apply(ctx, childID(split, d), depth+1, part) })
	}
	return work.Wait()
}

// writeTree returns the node for entries. If they are too many for one object, it writes the
// objects below it first. They have names of their own until the node that names them is written,
// so that writers that split a node at the same time do not meet.
func (x *Index) writeTree(ctx context.Context, entries []Entry, depth int) (node, error) {
	n := node{entries: entries}
	if !n.full() || depth >= maxDepth {
		return n, nil
	}
	split := hex.EncodeToString(random(16))
	var parts [fanOut][]Entry
	for _, e := range entries {
		d := digit(e.Name, depth)
		parts[d] = append(parts[d], e)
	}
	work, ctx := errgroup.WithContext(ctx)
	if depth > 0 {
		work.SetLimit(1) // one level of goroutines is enough
	}
	for d, part := range parts {
		work.Go(func() error {
			child, err := x.writeTree(ctx, part, depth+1)
			if err != nil {
				return err
			}
			return x.write(ctx, childID(split, d), child, "")
		})
	}
	return node{split: split}, work.Wait()
}

// abandon deletes the objects below a node that was not written. It may fail: nothing names them.
func (x *Index) abandon(ctx context.Context, n node) {
	store, ok := x.store.(Deleter)
	if n.split == "" || !ok {
		return
	}
	for d := range fanOut {
		id := childID(n.split, d)
		child, _, err := x.read(ctx, id)
		if err != nil {
			continue // it was not written either
		}
		x.abandon(ctx, child)
		_ = store.Delete(ctx, x.storageKey(id)) // an object that stays takes room and does no harm
	}
}

// pause waits before the next attempt: at random, and longer each time, at most 256 ms.
func pause(ctx context.Context, attempt int) error {
	limit := time.Millisecond << min(attempt, 8)
	timer := time.NewTimer(rand.N(limit)) //nolint:gosec // spreads attempts; it is no secret
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
			i, ok := slices.BinarySearchFunc(n.entries, name, func(e Entry, name string) int { return cmp.Compare(e.Name, name) })
			if !ok {
				return Entry{}, fmt.Errorf("%w: %.64q", ErrNotFound, name)
			}
			return n.entries[i], nil
		}
		id = childID(n.split, digit(name, depth))
	}
	return Entry{}, fmt.Errorf("%w: tree is too deep", ErrIndex)
}

// List returns all entries in the order of their names. Entries that are added or removed
// meanwhile may be in it or not.
func (x *Index) List(ctx context.Context) ([]Entry, error) {
	var all []Entry
	err := x.walk(ctx, func(_ string, n node) { all = append(all, n.entries...) })
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// StorageKeys returns the storage keys of the objects that the index consists of, so that they can
// be deleted after its entries were put into another.
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

// walk reads all nodes, several at a time, and calls visit for each, one at a time.
func (x *Index) walk(ctx context.Context, visit func(id string, n node)) error {
	var mu sync.Mutex // guards visit and next
	level := []string{nodeRoot}
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
