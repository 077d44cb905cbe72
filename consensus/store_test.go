package consensus

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	radix "github.com/hashicorp/go-immutable-radix"
	"github.com/hashicorp/raft"
)

// memStore is an ordered store in memory, whose snapshots cost nothing, and
// which can lose what was not synced.
type memStore struct {
	writer sync.Mutex // held by the open transaction

	mu      sync.Mutex
	now     *radix.Tree
	durable *radix.Tree
	begun   int   // transactions so far
	fault   error // of every commit from now on
}

func newMemStore() *memStore { return &memStore{now: radix.New(), durable: radix.New()} }

func (s *memStore) Begin() Tx {
	s.writer.Lock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	return &memTx{store: s, txn: s.now.Txn(), open: true}
}

func (s *memStore) View() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return memView{s.now}
}

func (s *memStore) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.durable = s.now
	return nil
}

// losePower makes the store what was synced last.
func (s *memStore) losePower() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.durable
}

func (s *memStore) breakWrites(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
}

func (s *memStore) transactions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

func (s *memStore) tree() *radix.Tree {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// contents is everything in the store, for comparing two.
func (s *memStore) contents() [][2]string {
	var all [][2]string
	s.tree().Root().Walk(func(k []byte, v any) bool {
		all = append(all, [2]string{string(k), string(v.([]byte))})
		return false
	})
	return all
}

func (s *memStore) Checkpoint(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(s.contents()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "state"), b.Bytes(), 0o600)
}

func (s *memStore) Restore(r io.Reader) error {
	var all [][2]string
	if err := gob.NewDecoder(r).Decode(&all); err != nil {
		return err
	}
	txn := radix.New().Txn()
	for _, kv := range all {
		txn.Insert([]byte(kv[0]), []byte(kv[1]))
	}
	s.writer.Lock()
	defer s.writer.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = txn.Commit()
	s.durable = s.now
	return nil
}

type memTx struct {
	store *memStore
	txn   *radix.Txn
	open  bool
}

func (t *memTx) Get(key []byte) ([]byte, bool, error) { return get(t.txn.Root(), key) }

func (t *memTx) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	return scan(t.txn.Root(), lower, upper, reverse, fn)
}

func (t *memTx) Set(key, value []byte) error {
	t.txn.Insert(slices.Clone(key), append([]byte{}, value...))
	return nil
}

func (t *memTx) Delete(key []byte) error {
	t.txn.Delete(key)
	return nil
}

func (t *memTx) Commit(sync bool) error {
	t.store.mu.Lock()
	err := t.store.fault
	if err == nil {
		t.store.now = t.txn.Commit()
		if sync {
			t.store.durable = t.store.now
		}
	}
	t.store.mu.Unlock()
	t.Discard()
	return err
}

func (t *memTx) Discard() {
	if t.open {
		t.open = false
		t.store.writer.Unlock()
	}
}

type memView struct{ tree *radix.Tree }

func (v memView) Get(key []byte) ([]byte, bool, error) { return get(v.tree.Root(), key) }

func (v memView) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	return scan(v.tree.Root(), lower, upper, reverse, fn)
}

func (memView) Close() {}

func get(root *radix.Node, key []byte) ([]byte, bool, error) {
	v, ok := root.Get(key)
	if !ok {
		return nil, false, nil
	}
	return slices.Clone(v.([]byte)), true, nil
}

func scan(root *radix.Node, lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	if reverse {
		it := root.ReverseIterator()
		it.SeekReverseLowerBound(upper)
		for {
			k, v, ok := it.Previous()
			if !ok || bytes.Compare(k, lower) < 0 {
				return nil
			}
			if bytes.Equal(k, upper) {
				continue
			}
			if more, err := fn(k, v.([]byte)); err != nil || !more {
				return err
			}
		}
	}
	it := root.Iterator()
	it.SeekLowerBound(lower)
	for {
		k, v, ok := it.Next()
		if !ok || upper != nil && bytes.Compare(k, upper) >= 0 {
			return nil
		}
		if more, err := fn(k, v.([]byte)); err != nil || !more {
			return err
		}
	}
}

// memSnapshots keeps snapshots in memory, and takes checkpoints over.
type memSnapshots struct {
	mu  sync.Mutex
	all []*memSnapshot // oldest first

	arriving func(bytes int) // told how much of a snapshot has come; nil: nobody is
}

type memSnapshot struct {
	store   *memSnapshots
	meta    raft.SnapshotMeta
	content bytes.Buffer
	ended   bool
}

func (s *memSnapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64,
	_ raft.Transport,
) (raft.SnapshotSink, error) {
	return &memSnapshot{store: s, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d", term, index), Index: index, Term: term, Configuration: c, ConfigurationIndex: ci,
	}}, nil
}

func (s *memSnapshots) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var metas []*raft.SnapshotMeta
	for _, snapshot := range s.all[max(0, len(s.all)-2):] {
		meta := snapshot.meta
		metas = append(metas, &meta)
	}
	slices.Reverse(metas)
	return metas, nil
}

// rot damages the newest snapshots.
func (s *memSnapshots) rot(newest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, snapshot := range s.all[len(s.all)-newest:] {
		snapshot.content.Truncate(snapshot.content.Len() / 2)
	}
}

func (s *memSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, snapshot := range s.all {
		if snapshot.meta.ID == id {
			meta := snapshot.meta
			return &meta, io.NopCloser(bytes.NewReader(snapshot.content.Bytes())), nil
		}
	}
	return nil, nil, os.ErrNotExist
}

func (s *memSnapshot) ID() string { return s.meta.ID }

func (s *memSnapshot) Write(p []byte) (int, error) {
	n, err := s.content.Write(p)
	if s.store.arriving != nil {
		s.store.arriving(s.content.Len())
	}
	return n, err
}

func (s *memSnapshot) Adopt(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "state"))
	if err != nil {
		return err
	}
	_, err = s.content.Write(b)
	return errors.Join(err, os.RemoveAll(dir))
}

func (s *memSnapshot) Close() error {
	if s.ended {
		return nil
	}
	s.ended = true
	s.meta.Size = int64(s.content.Len())
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.all = append(s.store.all, s)
	return nil
}

func (s *memSnapshot) Cancel() error {
	s.ended = true
	return nil
}

// put changes the state behind the back of the log.
func (s *memStore) put(key, value string) {
	tx := s.Begin()
	defer tx.Discard()
	if err := errors.Join(tx.Set([]byte(key), []byte(value)), tx.Commit(true)); err != nil {
		panic(err) // a memory store never fails so
	}
}

// tamper replaces bytes in the first value that has them.
func (s *memStore) tamper(old, other string) {
	for _, row := range s.contents() {
		if strings.Contains(row[1], old) {
			s.put(row[0], strings.Replace(row[1], old, other, 1))
			return
		}
	}
	panic("no value holds " + old)
}
