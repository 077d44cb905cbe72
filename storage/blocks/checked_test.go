package blocks

import (
	"errors"
	"testing"

	blocks "github.com/ipfs/go-block-format"
)

// claim is a block that says whether its hash was checked.
type claim struct {
	blocks.Block
	is bool
}

func (c claim) HashChecked() bool { return c.is }

// Put compares a block with its hash unless the caller has done so, and Get returns no wrong bytes.
func TestAHashIsComparedOnceOnTheWayIn(t *testing.T) {
	s := openTest(t, t.TempDir())
	real := rawBlock(t, []byte("the bytes"))
	lie, err := blocks.NewBlockWithCid([]byte("not these"), real.Cid())
	must(t, err)
	if err := s.Put(t.Context(), "o", []blocks.Block{claim{lie, false}}); !errors.Is(err, ErrBadBlock) {
		t.Errorf("a block that was not checked: %v, want ErrBadBlock", err)
	}
	mustPut(t, s, "o", claim{lie, true})
	if _, err := s.Get(t.Context(), real.Cid()); !errors.Is(err, ErrCorrupt) {
		t.Errorf("wrong bytes that were stored: %v, want ErrCorrupt", err)
	}
	mustPut(t, s, "o", real)
	wantHere(t, s, real)
}

// While blocks are written, at most cacheBehind+cacheStep bytes of the segment stay in the page cache.
func TestThePageCacheIsLetGoBehindTheWrites(t *testing.T) {
	dir := t.TempDir()
	s := openWith(t, dir, Options{MinFreeBytes: -1})
	all := makeBlocks(t, 1, 50, MaxBlockBytes)
	for i := 0; i < len(all); i += 5 {
		mustPut(t, s, "o", all[i:i+5]...)
		if behind := s.active.size - s.active.letGo; behind > cacheBehind+cacheStep {
			t.Fatalf("%d bytes are left in the cache, at most %d should be", behind, cacheBehind+cacheStep)
		}
	}
	if s.active.letGo < s.active.size-cacheBehind-cacheStep || s.active.letGo == 0 || s.active.size-s.active.letGo < cacheBehind {
		t.Errorf("of %d bytes %d were let go", s.active.size, s.active.letGo)
	}
	wantHere(t, s, all...)
}
