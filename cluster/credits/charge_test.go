package credits

import (
	"errors"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Storage is charged once for each hour of the agreed time, whichever of three nodes with different clocks leads. No
// node charges without a majority, without an agreed time, or for a time in which charges were off.
func TestLeadersChargeByTheAgreedTime(t *testing.T) {
	w := newWorld(t)
	agreed, known := state.Millis(1_800_000_000_000), true
	var nodes []*Ledger
	for i := range 3 {
		nodes = append(nodes, New(Options{
			State: w.state, Rate: 7200, Period: time.Hour,
			Now:    func() time.Time { return agreed.Time().Add(time.Duration(i-1) * time.Hour) },
			Agreed: func() (early, late state.Millis, ok bool) { return agreed, agreed, known },
		}))
	}
	if _, err := w.Post(t.Context(), "bob", Request{Kind: state.Grant, Credits: 100, ID: "g"}); err != nil {
		t.Fatal(err)
	}
	w.state.Apply(t,
		&state.SetQuota{Account: bob, Allowance: 0}, &state.CreateBucket{Bucket: state.Bucket{Account: bob, Name: "bucket", Created: 1}})
	view, release := w.state.LocalView()
	bucket, err := view.Bucket(bob, "bucket")
	release()
	if err != nil {
		t.Fatal(err)
	}
	root := state.RootOf(cid.MustParse("bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"))
	w.state.Apply(t, &state.PutObject{
		Account: bob, Bucket: "bucket", Born: bucket.Born, Object: state.Object{ID: "id", Key: "k", Root: root, Size: 1, Created: 1, ETag: "e"},
		Content: state.Content{Root: root, Bytes: 250_000_000, Blocks: 1, Nodes: []state.NodeID{"n1"}, Held: []state.Holding{{Node: "n1"}}},
	})
	charge := func() {
		t.Helper()
		for _, n := range nodes {
			if err := n.ChargeStorage(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	balance := func() uint64 {
		t.Helper()
		page, err := w.List(t.Context(), "bob", 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		return page.Balance
	}
	charge()
	for i, want := range []uint64{98, 95, 93} { // 2.5 credits an hour
		agreed += state.Millis(time.Hour / time.Millisecond)
		known = false
		charge()
		known = true
		w.state.SetLeader(false)
		charge()
		w.state.SetLeader(true)
		w.state.Fail(state.ErrUnavailable)
		if err := nodes[0].ChargeStorage(t.Context()); !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("without a majority: %v", err)
		}
		w.state.Fail(nil)
		charge()
		charge()
		if got := balance(); got != want {
			t.Errorf("after %d hours %d credits are left, not %d", i+1, got, want)
		}
	}
	off := New(Options{State: w.state, Period: time.Hour, Agreed: nodes[0].agreed})
	agreed += state.Millis(5 * time.Hour / time.Millisecond)
	if err := off.ChargeStorage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if charge(); balance() != 93 {
		t.Errorf("%d credits are left after a time without charges", balance())
	}
}
