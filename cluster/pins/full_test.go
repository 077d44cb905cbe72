package pins

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// fill makes members refuse new content.
func (l *load) fill(ids ...state.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.nodes {
		l.nodes[i].Full = slices.Contains(ids, l.nodes[i].ID)
	}
}

// A pin of new content is refused with ErrNoSpace if fewer than write_copies nodes have room, and changes nothing.
func TestNewContentIsRefusedWhereNobodyCouldKeepIt(t *testing.T) {
	const (
		here  = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
		other = "bafkreidgvpkjawlxz6sffxzwgooowe5yt7i6wsyg236mfoks77nywkptdq"
	)
	w := newWorld(t, clustertest.Setup{Nodes: clustertest.Members("n1", "n2", "n3")})
	old := w.create(t, alice, here)
	w.load.fill("n1", "n2", "n3")
	if _, err := w.Create(t.Context(), alice, Request{CID: other}); !errors.Is(err, state.ErrNoSpace) {
		t.Errorf("new content with all disks full: %v", err)
	}
	if _, err := w.Replace(t.Context(), alice, old.ID, Request{CID: other}); !errors.Is(err, state.ErrNoSpace) {
		t.Errorf("a replacement by new content: %v", err)
	}
	w.create(t, bob, here) // takes no room
	if n, _, err := w.List(t.Context(), alice, state.PinQuery{Limit: 10}); err != nil || n != 1 {
		t.Errorf("after refusals %d pins, %v", n, err)
	}
	w.load.fill("n1", "n2")
	if _, err := w.Create(t.Context(), alice, Request{CID: other}); !errors.Is(err, state.ErrNoSpace) {
		t.Errorf("room for one copy, two make a pin pinned: %v", err)
	}
	w.load.fill("n1")
	r := w.create(t, alice, other)
	if got := w.root(t, other).Nodes(); !slices.Equal(got, []state.NodeID{"n2", "n3"}) {
		t.Errorf("placed on %v", got)
	}
	if err := w.Delete(t.Context(), alice, r.ID); err != nil {
		t.Error(err)
	}
}
