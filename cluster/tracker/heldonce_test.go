package tracker

import (
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// After a restore or a recovery has removed the members that held a pinned root, its pin stays pinned however often the
// root is not found, and has its copy as soon as somebody brings the content. A pin that was never pinned fails, and so
// does one that was made later.
func TestContentThatWasHeldBeforeARestoreIsNotGivenUp(t *testing.T) {
	repinning(t, Limits{Attempts: 2, Backoff: time.Second, MaxBackoff: time.Minute}, func(w *world) {
		held, never := w.pin(1, other), w.pin(2, other)
		w.says(other, 1, state.Held)
		node := clustertest.Members(self)[0]
		node.FeatureLevel = state.NewestFeatureLevel
		w.state.ReplaceMembers(w, state.ReplaceMembers{Node: node, At: 5, Action: state.ActionClusterRestore})
		for _, n := range []int{1, 2} {
			w.state.Apply(w, &state.PlaceRoots{Items: []state.Placement{{Root: key(n), Born: w.root(n).Born, Nodes: []state.NodeID{self}}}})
			w.net.set(key(n), absent)
		}
		w.net.set(key(3), absent)
		w.start()
		defer w.stop()
		later := w.pin(3, self)
		w.pass(time.Hour)
		for id, want := range map[state.RequestID]state.Status{held: state.Pinned, never: state.Failed, later: state.Failed} {
			if got, detail := w.status(id); got != want {
				w.Errorf("pin %s is %s, want %s: %s", id, got, want, detail)
			}
		}
		if tried := len(w.net.fetched(key(1))); tried < 10 {
			w.Errorf("%d attempts in an hour", tried)
		}
		w.net.set(key(1), good)
		w.pass(2 * time.Minute)
		w.wantPhase(1, state.Held)
		w.wantSealed(1, true)
	})
}
