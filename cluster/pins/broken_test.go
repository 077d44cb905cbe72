package pins

import (
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A use case of pins returns an error if any one of its reads of the state fails. A made-up answer would be content
// that nobody keeps, a pin that is not there, or a row without what it should say.
func TestNoReadThatFailsIsPassedOver(t *testing.T) {
	v1 := raw("nobody has it")
	w := newWorld(t, clustertest.Setup{})
	pin := w.create(t, alice, v0)
	failed := w.create(t, alice, v1)
	for _, n := range w.root(t, v1).Nodes() {
		w.report(t, v1, n, state.GaveUp, 0, "nobody has it")
	}
	for name, use := range map[string]func() error{
		"get":                  func() error { _, err := w.Get(t.Context(), alice, pin.ID); return err },
		"get what failed":      func() error { _, err := w.Get(t.Context(), alice, failed.ID); return err },
		"detail":               func() error { _, err := w.Detail(t.Context(), alice, pin.ID); return err },
		"list":                 func() error { _, _, err := w.List(t.Context(), alice, state.PinQuery{Limit: 10}); return err },
		"pin known content":    func() error { _, err := w.Create(t.Context(), bob, Request{CID: v0}); return err },
		"replace the same":     func() error { _, err := w.Replace(t.Context(), alice, pin.ID, Request{CID: v0}); return err },
		"pin what others keep": func() error { _, err := w.Create(t.Context(), alice, Request{CID: v0, Name: "again"}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			w.state.EachReadFails(t, use)
		})
	}
	for _, n := range w.root(t, v0).Nodes() { // others are named as delegates until repair has come
		w.state.Apply(t, &state.RemoveNode{ID: n})
	}
	w.state.EachReadFails(t, func() error { _, err := w.Get(t.Context(), alice, pin.ID); return err })
}
