package peertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ipfs/boxo/blockstore"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/ipfs/go-datastore"
	dssync "github.com/ipfs/go-datastore/sync"
)

// Store is a block store in memory. It implements boxo's Blockstore and, by DAGStore, the
// store of peer/dag.
type Store struct {
	blockstore.Blockstore
	puts    atomic.Int64
	batches atomic.Int64

	// mu guards the fields below.
	mu         sync.Mutex
	references map[string]map[cid.Cid]bool
	fail       error
}

// ErrDiskFull is an error that tests can pass to Store.Fail.
var ErrDiskFull = errors.New("no space left on device")

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{
		Blockstore: blockstore.NewBlockstore(dssync.MutexWrap(datastore.NewMapDatastore())),
		references: make(map[string]map[cid.Cid]bool),
	}
}

// DAGStore returns the same store with the methods that peer/dag needs.
func (s *Store) DAGStore() DAGStore { return DAGStore{s} }

// DAGStore is a Store with the methods that peer/dag needs. Its Put adds the blocks to a reference.
type DAGStore struct{ s *Store }

// Get returns a block.
func (o DAGStore) Get(ctx context.Context, c cid.Cid) (blocks.Block, error) { return o.s.Get(ctx, c) }

// Adopt adds those blocks that are in the store to the reference, and returns the CIDs of the other
// blocks.
func (o DAGStore) Adopt(ctx context.Context, reference string, cids []cid.Cid) ([]cid.Cid, error) {
	var missing []cid.Cid
	for _, c := range cids {
		has, err := o.s.Has(ctx, c)
		if err != nil {
			return nil, err
		}
		if !has {
			missing = append(missing, c)
			continue
		}
		o.s.own(reference, c)
	}
	return missing, nil
}

// TakeOver does the same as Adopt, and also returns the size in bytes of the blocks in the
// store.
func (o DAGStore) TakeOver(ctx context.Context, reference string, cids []cid.Cid) (bytes uint64, missing []cid.Cid, err error) {
	if missing, err = o.Adopt(ctx, reference, cids); err != nil {
		return 0, nil, err
	}
	for _, c := range cids {
		if slices.ContainsFunc(missing, c.Equals) {
			continue
		}
		n, err := o.s.GetSize(ctx, c)
		if err != nil {
			return 0, nil, err
		}
		bytes += uint64(n)
	}
	return bytes, missing, nil
}

// Put stores blocks and adds them to the reference.
func (o DAGStore) Put(ctx context.Context, reference string, blks []blocks.Block) error {
	o.s.mu.Lock()
	err := o.s.fail
	o.s.mu.Unlock()
	if err != nil {
		return err
	}
	for _, b := range blks {
		if err := o.s.Blockstore.Put(ctx, b); err != nil {
			return err
		}
		o.s.own(reference, b.Cid())
	}
	o.s.puts.Add(int64(len(blks)))
	o.s.batches.Add(1)
	return nil
}

// Fail makes every later Put of DAGStore fail with err.
func (s *Store) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *Store) own(reference string, c cid.Cid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.references[reference] == nil {
		s.references[reference] = make(map[cid.Cid]bool)
	}
	s.references[reference][c] = true
}

// BlocksOf returns the blocks that have the reference.
func (s *Store) BlocksOf(reference string) []cid.Cid {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.references[reference]))
}

// Puts returns how many blocks DAGStore has stored, and in how many batches.
func (s *Store) Puts() (blocks, batches int64) { return s.puts.Load(), s.batches.Load() }
