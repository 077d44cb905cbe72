package pins

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// historyOf is a history as text.
func historyOf(d Detail) (all []string) {
	for _, s := range d.History {
		all = append(all, fmt.Sprintf("%s %q %s", s.Status, s.Detail, s.Replaced))
	}
	return all
}

// detailOf reads the detail of a pin.
func (w *world) detailOf(t *testing.T, r Record) Detail {
	t.Helper()
	d, err := w.Detail(t.Context(), r.Account, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// equal fails the test unless a history is as expected.
func equal(t *testing.T, d Detail, want ...string) {
	t.Helper()
	if got := historyOf(d); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the history is\n%q\nand not\n%q", got, want)
	}
}

// A pin has a history of its steps from the first read of its detail on. The node also records steps that come within
// traceFor after the last read, and a replacement continues the history.
func TestAPinThatIsReadHasAHistory(t *testing.T) {
	watched(t, func(t *testing.T, w *world) {
		r, unread := w.create(t, alice, raw("a")), w.create(t, alice, raw("b"))
		nodes := w.root(t, r.CID).Nodes()
		equal(t, w.detailOf(t, r), `queued "waiting for 3 nodes" `)
		report := func(n int, phase state.Phase, reason string) {
			w.report(t, r.CID, nodes[n], phase, 10, reason)
			synctest.Wait() // until Run has seen it
		}
		report(0, state.Fetching, "")
		report(0, state.Assigned, "nobody offered it")
		for n := range nodes {
			report(n, state.Held, "")
		}
		w.report(t, unread.CID, nodes[0], state.Fetching, 0, "")
		d := w.detailOf(t, r)
		failed := fmt.Sprintf(`pinning "waiting for 3 nodes; last error of node %s: nobody offered it" `, nodes[0].Short())
		steps := []string{
			`queued "waiting for 3 nodes" `, `pinning "fetching on 1 of 3 nodes" `, failed,
			`pinning "kept on 1 of 3 nodes" `, `pinned "kept on 2 of 3 nodes" `, `pinned "" `,
		}
		equal(t, d, steps...)
		if n := w.traces.pins.Len(); n != 1 {
			t.Errorf("%d pins have a history", n)
		}
		by, err := w.Replace(t.Context(), alice, r.ID, Request{CID: raw("c")})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, w.detailOf(t, by), append(steps, fmt.Sprintf(`queued "waiting for 3 nodes" %s`, r.ID))...)
		if _, err := w.Detail(t.Context(), bob, by.ID); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("another account: %v", err)
		}
	})
}

// A history has at most maxSteps steps, and at most maxTraces pins have one.
func TestHistoriesAreBounded(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	r := w.create(t, alice, raw("a"))
	node := w.root(t, r.CID).Nodes()[0]
	for i := range 2 * maxSteps {
		w.report(t, r.CID, node, state.Assigned, 0, fmt.Sprint("failure ", i))
		w.detailOf(t, r)
	}
	d := w.detailOf(t, r)
	if last := d.History[len(d.History)-1]; len(d.History) != maxSteps || last.Detail != d.Info[InfoDetails] {
		t.Errorf("%d steps, the last is %+v", len(d.History), last)
	}
	for i := range maxTraces {
		w.detailOf(t, w.create(t, alice, raw(fmt.Sprint("more ", i))))
	}
	if n := w.traces.pins.Len(); n != maxTraces || len(w.traces.roots) != maxTraces {
		t.Errorf("%d pins have a history, of %d roots", n, len(w.traces.roots))
	}
}

// The detail of a pin has each copy with its node, phase, reason and the progress that the node reports.
func TestTheDetailOfAPinHasItsCopies(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	r := w.create(t, alice, raw("a"))
	nodes := w.root(t, r.CID).Nodes()
	w.live = &says{all: []Progress{{Node: nodes[1], Fetching: true, Bytes: 5, Blocks: 1}, {Node: nodes[2], Position: 3, Attempts: 2}}}
	w.report(t, r.CID, nodes[0], state.Held, 10, "")
	w.report(t, r.CID, nodes[2], state.Assigned, 0, "nobody offered it")
	w.load.lose(nodes[0])
	d := w.detailOf(t, r)
	if len(d.Copies) != 3 || d.Blocks != 1 {
		t.Fatalf("%+v", d)
	}
	for i, want := range []struct {
		phase    state.Phase
		alive    bool
		reason   string
		attempts int
		fetching bool
	}{{state.Held, false, "", 0, false}, {state.Assigned, true, "", 0, true}, {state.Assigned, true, "nobody offered it", 2, false}} {
		c := d.Copies[i]
		if c.Node != nodes[i] || c.Phase != want.phase || c.Alive != want.alive || c.Reason != want.reason || !c.Member || c.Progress == nil != (i == 0) {
			t.Errorf("copy %d is %+v", i, c)
		} else if i > 0 && (c.Progress.Attempts != want.attempts || c.Progress.Fetching != want.fetching) {
			t.Errorf("copy %d has the progress %+v", i, c.Progress)
		}
	}
}
