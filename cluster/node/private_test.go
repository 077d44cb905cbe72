package node

import (
	"testing"

	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// announced is the roots that are announced.
type announced map[cid.Cid]bool

func (a announced) Announce(c cid.Cid) bool { a[c] = true; return true }
func (a announced) Withdraw(c cid.Cid)      { delete(a, c) }

// Content that turns private at any step of its fetch or seal is neither visible to unknown peers nor announced.
func TestUnknownPeersSeeAnnouncedContentAlone(t *testing.T) {
	blk := block.NewBlock([]byte("of a pin"))
	root := cid.NewCidV1(cid.Raw, blk.Cid().Hash())
	blk, err := block.NewBlockWithCid(blk.RawData(), root)
	if err != nil {
		t.Fatal(err)
	}
	reference := "root/" + root.String()
	const never = 5 // steps
	for i := range 2 * (never + 1) {
		small, before := i%2 == 0, i/2 // what is small is sealed with its last block
		private, told, atSeal := false, announced{}, false
		h := openHeld(t, t.TempDir())
		h.provides = told
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		// turns makes it private, of which the tracker tells the store.
		turns := func() {
			private = true
			must(h.Hide(t.Context(), reference, true))
		}
		h.hidden = func(string) bool {
			said := private
			if before == 2 && atSeal { // right after the seal has asked
				turns()
			}
			return said
		}
		fetched := sealing{Store: h.Store, scrubber: h.scrubber, hidden: h.hidden} // as a fetch sees it
		if before == 0 {
			turns()
		}
		if small {
			must(fetched.Complete(t.Context(), reference, []block.Block{blk}, 8, 1))
		} else {
			must(fetched.Put(t.Context(), reference, []block.Block{blk}))
		}
		if before == 1 {
			turns()
		}
		atSeal = true
		must(h.Seal(t.Context(), reference, 8, 1))
		atSeal = false
		if before == 3 {
			turns()
		}
		must(h.Hide(t.Context(), reference, private)) // the look after a fetch
		if before == 4 {
			turns()
		}
		visible, err := h.Visible(t.Context(), root)
		must(err)
		if want := before == never; visible != want || told[root] != want {
			t.Errorf("small %t, private before step %d: visible %t, announced %t", small, before, visible, told[root])
		}
		must(h.Drop(t.Context(), reference))
		if len(told) != 0 {
			t.Error("what is dropped is announced")
		}
		must(h.Close())
	}
}

// A fetch of private content asks members only. Nobody outside may learn from a want what is private.
func TestWithoutASessionMembersAloneAreAsked(t *testing.T) {
	f := &fetcher{}
	session := &given{}
	job := tracker.Job{Members: []state.NodeID{"b", "c"}, Origins: []string{"/ip4/198.51.100.9/tcp/4001"}, Sharing: 1}
	if all := f.sources(job, session); len(all) != 4 { // its origins are asked for the root first
		t.Errorf("of a pin: %v", all)
	}
	all := f.sources(job, nil)
	if len(all) != 2 {
		t.Fatalf("of private content: %v", all)
	}
	for i, s := range all {
		if m, ok := s.(member); !ok || m.id != string(job.Members[i]) {
			t.Errorf("source %d: %v", i, s)
		}
	}
}
