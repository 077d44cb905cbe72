package members

import (
	"fmt"
	"maps"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// pinOn pins a CID for the operator and has nodes hold it.
func pinOn(t *testing.T, w *world, id state.RequestID, created state.Millis, text string, nodes ...state.NodeID) {
	t.Helper()
	w.state.Apply(t, &state.CreatePin{
		Pin: state.Pin{ID: id, Account: clustertest.Operator, Created: created, CID: text}, Nodes: []state.NodeID{"a", "b", "c"},
	})
	c, err := cid.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	view, release := w.state.LocalView()
	defer release()
	root, err := view.Root(state.RootOf(c))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		w.state.Apply(t, &state.ReportCopies{Node: n, Items: []state.CopyReport{{Root: root.Key, Born: root.Born, Phase: state.Held, Size: 1, Blocks: 1}}})
	}
}

// The status counts for each member the roots that it holds and the pins of these roots. One root may have many
// pins.
func TestAMembersPinsAreThoseWhoseContentItHolds(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	texts := [...]string{
		"bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy",
		"bafkreifjjcie6lypi6ny7amxnfftagclbuxndqonfipmb64f2km2devei4",
		"bafkreidon73zkcrwdb5iafqtijxildoonbwnpv7dyd6ef3qdgads2jc4su",
	}
	pinOn(t, w, "1", 1, texts[0], "a", "b")
	pinOn(t, w, "2", 2, texts[0])
	pinOn(t, w, "3", 3, texts[1], "a")
	pinOn(t, w, "4", 4, texts[2])
	want := map[state.NodeID]uint64{"a": 3, "b": 2}
	shown := func() map[state.NodeID]uint64 {
		t.Helper()
		s, err := w.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[state.NodeID]uint64)
		for _, p := range s.Peers {
			if p.Pins > 0 {
				got[p.ID] = p.Pins
			}
			if want := map[state.NodeID]uint64{"a": 2, "b": 1}[p.ID]; p.Roots != want {
				t.Errorf("%s holds %d roots, want %d", p.ID, p.Roots, want)
			}
		}
		return got
	}
	if got := shown(); !maps.Equal(got, want) {
		t.Errorf("pins %v, want %v", got, want)
	}
}

// A count of more roots than one call reads goes on with the next call. Until it has ended, a call returns the
// last complete count, or what was counted so far if there is none.
func TestVeryManyRootsAreCountedInParts(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	texts := [...]string{
		"bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy",
		"bafkreifjjcie6lypi6ny7amxnfftagclbuxndqonfipmb64f2km2devei4",
		"bafkreidon73zkcrwdb5iafqtijxildoonbwnpv7dyd6ef3qdgads2jc4su",
	}
	for i, text := range texts {
		pinOn(t, w, state.RequestID(fmt.Sprint(i)), state.Millis(i+1), text, "a")
	}
	var p pinned
	count := func(limit int) string {
		t.Helper()
		view, release := w.state.LocalView()
		defer release()
		got, err := p.of(view, limit)
		if err != nil {
			t.Fatal(err)
		}
		if got.partial {
			return fmt.Sprint("at least ", got.of["a"])
		}
		return fmt.Sprint(got.of["a"])
	}
	for call, want := range []string{"at least 2", "3", "3"} {
		if got := count(2); got != want {
			t.Errorf("call %d tells %s pins, want %s", call+1, got, want)
		}
	}
	p.took = 0 // so that a state that has changed is counted anew at once
	pinOn(t, w, "more", 9, texts[0])
	for call, want := range []string{"3", "4", "4"} {
		if got := count(2); got != want {
			t.Errorf("call %d after a change tells %s pins, want %s", call+1, got, want)
		}
	}
}
