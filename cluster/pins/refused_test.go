package pins

import (
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// The info of a pin names the origins that are refused in the first answer, before any node has tried, each once and
// to its account alone.
func TestInfoTellsAtOnceWhichOriginsAreRefused(t *testing.T) {
	const private, loopback, public = "/ip4/10.0.0.1/tcp/4001/p2p/12D3KooWP1Zc2bV5qR6b8YjZMpyuXrA7fGukvf93mjXKGAJ1NWSU",
		"/ip4/127.0.0.1/tcp/4001/p2p/12D3KooWP1Zc2bV5qR6b8YjZMpyuXrA7fGukvf93mjXKGAJ1NWSU",
		"/ip4/8.8.8.8/tcp/4001/p2p/12D3KooWP1Zc2bV5qR6b8YjZMpyuXrA7fGukvf93mjXKGAJ1NWSU"
	w := newWorld(t, clustertest.Setup{})
	w.refused = func(origin string) string {
		if origin == public {
			return ""
		}
		return "origin refused: not a public address"
	}
	r, err := w.Create(t.Context(), alice, Request{CID: v0, Origins: []string{private, public, loopback, private}})
	if err != nil {
		t.Fatal(err)
	}
	remarks := "; " + private + ": origin refused: not a public address; " + loopback + ": origin refused: not a public address"
	want := "waiting for 3 nodes" + remarks
	if got := r.Info[InfoDetails]; got != want {
		t.Errorf("answered %q, want %q", got, want)
	}
	if got := w.get(t, alice, r.ID).Info[InfoDetails]; got != want {
		t.Errorf("told later %q, want %q", got, want)
	}
	// What the state says of an origin after an attempt is not said twice.
	nodes := w.root(t, v0).Nodes()
	w.report(t, v0, nodes[0], state.Fetching, 0, state.ReasonOf("nobody has it", []string{private + ": origin refused: not a public address"}))
	got := w.get(t, alice, r.ID).Info[InfoDetails]
	if strings.Count(got, private) != 1 || strings.Count(got, loopback) != 1 {
		t.Errorf("after an attempt: %q", got)
	}
	// Another pin of the same content has nothing to do with them, and of what is kept nothing is said.
	if got := w.create(t, bob, v0).Info[InfoDetails]; strings.Contains(got, "refused") {
		t.Errorf("another account is told %q", got)
	}
	for _, n := range nodes {
		w.report(t, v0, n, state.Held, 4096, "")
	}
	if got := w.get(t, alice, r.ID).Info[InfoDetails]; got != "" {
		t.Errorf("pinned: %q", got)
	}
}
