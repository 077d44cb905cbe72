package node

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/peer/dag"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

// drawer is a store of one reference, in memory.
type drawer struct {
	mu  sync.Mutex
	all map[cid.Cid]block.Block
}

func (s *drawer) Get(_ context.Context, c cid.Cid) (block.Block, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.all[c]; ok {
		return b, nil
	}
	return nil, ipld.ErrNotFound{Cid: c}
}

func (s *drawer) Put(_ context.Context, _ string, blks []block.Block) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range blks {
		s.all[b.Cid()] = b
	}
	return nil
}

func (s *drawer) Adopt(_ context.Context, _ string, cids []cid.Cid) (missing []cid.Cid, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range cids {
		if _, ok := s.all[c]; !ok {
			missing = append(missing, c)
		}
	}
	return missing, nil
}

// giver is a member that gives what it has, each time after a while.
type giver struct {
	has    *drawer // nil: nothing
	after  time.Duration
	begins bool // to come at once, over a line on which it takes so long
	fails  bool // then, as one that hangs does when its connection, or a dial to it, has ended
}

func (g *giver) Name() string { return "test" }

func (g *giver) Blocks(ctx context.Context, cids []cid.Cid, fn func(block.Block) error) (missing []cid.Cid, err error) {
	return g.hear(ctx, cids, func() {}, fn)
}

func (g *giver) hear(ctx context.Context, cids []cid.Cid, heard func(), fn func(block.Block) error) (missing []cid.Cid, err error) {
	if g.begins {
		heard()
	}
	select {
	case <-time.After(g.after):
	case <-ctx.Done():
		return cids, ctx.Err()
	}
	if g.fails {
		return cids, errors.New("no answer")
	}
	for _, c := range cids {
		if g.has == nil {
			missing = append(missing, c)
		} else if b, err := g.has.Get(ctx, c); err != nil {
			missing = append(missing, c)
		} else if err := fn(b); err != nil {
			return missing, err
		}
	}
	return missing, nil
}

// If a member hangs while a node fetches the blocks of an object, the node asks the next member after askNextAfter.
// It waits for a slow member that alone has the blocks, and for one whose answer has begun. A node fetches like this
// when an upload is completed from parts that lie on other nodes, one request for each level of the DAG.
func TestAMemberThatHangsDoesNotHoldUpAPut(t *testing.T) {
	full, data := &drawer{all: map[cid.Cid]block.Block{}}, make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{}).Read(data)
	root, _, err := dag.Import(t.Context(), bytes.NewReader(data), func(blks []block.Block) error {
		return full.Put(t.Context(), "", blks)
	})
	if err != nil {
		t.Fatal(err)
	}
	const slow = 5 * time.Second
	for _, tc := range []struct {
		name    string
		members []speaker
		within  time.Duration
	}{
		{"another has it", []speaker{&giver{after: slow, fails: true}, &giver{has: full}}, askNextAfter},
		{"two hang", []speaker{&giver{after: slow, fails: true}, &giver{after: slow, fails: true}, &giver{has: full}}, 2 * askNextAfter},
		{"it alone has it, and is only slow", []speaker{&giver{has: full, after: slow}, &giver{}}, askNextAfter + 2*slow},
		{"it has it on a slow line", []speaker{&giver{has: full, after: slow, begins: true}, &giver{}}, 2 * slow},
		{"there is nobody else", []speaker{&giver{has: full, after: slow}}, askNextAfter + 2*slow},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, began := &drawer{all: map[cid.Cid]block.Block{}}, time.Now()
				_, err := dag.Fetch(t.Context(), dag.FetchRequest{Root: root, Reference: "o", Store: store, Sources: promptFirst(tc.members), Here: true})
				if err != nil || len(store.all) != len(full.all) {
					t.Fatalf("%d of %d blocks, %v", len(store.all), len(full.all), err)
				}
				if took := time.Since(began); took > tc.within {
					t.Errorf("it took %v, want %v", took, tc.within)
				}
			})
		})
	}
}
