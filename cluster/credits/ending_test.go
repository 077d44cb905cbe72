package credits

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// put puts objects of 1 MB each into a bucket of bob's, the first one at the time 1.
func (w *world) put(t *testing.T, objects int) state.Bucket {
	t.Helper()
	bucket := w.state.NewBucket(t, bob, "bucket", false)
	for i := range objects {
		sum, err := mh.Sum([]byte(fmt.Sprint(i)), mh.SHA2_256, -1)
		if err != nil {
			t.Fatal(err)
		}
		root := state.RootOf(cid.NewCidV1(cid.Raw, sum))
		w.state.Apply(t, &state.PutObject{
			Account: bob, Bucket: "bucket", Born: bucket.Born,
			Object:  state.Object{ID: state.VersionID(fmt.Sprint("v", i)), Key: fmt.Sprintf("k%05d", i), Root: root, Size: 1e6, Created: state.Millis(1 + i), ETag: "e"},
			Content: state.Content{Root: root, Bytes: 1e6, Blocks: 1, Nodes: []state.NodeID{"n1"}, Held: []state.Holding{{Node: "n1"}}},
		})
	}
	return bucket
}

// objects returns the number of objects in a bucket.
func (w *world) objects(t *testing.T, b *state.Bucket) uint64 {
	t.Helper()
	view, release := w.state.LocalView()
	defer release()
	n, _, _, err := view.BucketUsage(b)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The leader ends the newest content of an account without credits when the grace is over, in several commands. It
// does nothing while charges are off, on other nodes, and while the agreed time is unknown.
func TestTheLeaderEndsTheNewestContent(t *testing.T) {
	w := newWorld(t)
	agreed, known := state.Millis(1_800_000_000_000), true
	const left = 10
	objects := 2*state.MaxEnded + left
	bucket := w.put(t, objects)
	ledger := func(rate uint64) *Ledger {
		return New(Options{
			State: w.state, Rate: rate, Period: time.Hour, Grace: 24 * time.Hour, Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
			Agreed: func() (early, late state.Millis, ok bool) { return agreed, agreed, known },
		})
	}
	l, off := ledger(state.MaxRate), ledger(0)
	step := func(l *Ledger) uint64 {
		t.Helper()
		if err := l.ChargeStorage(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.EndContent(t.Context()); err != nil {
			t.Fatal(err)
		}
		return w.objects(t, &bucket)
	}
	w.state.Apply(t, &state.SetQuota{Account: bob, Allowance: left * 1e6})
	if _, err := w.Post(t.Context(), "bob", Request{Kind: state.Grant, Credits: 100, ID: "g"}); err != nil {
		t.Fatal(err)
	}
	step(l)
	agreed += state.Millis(time.Hour / time.Millisecond)
	if _, ends, err := l.ContentEnds(bob); ends || err != nil {
		t.Errorf("content ends before an account is dry: %v", err)
	}
	step(l)
	end, ends, err := l.ContentEnds(bob)
	if want := agreed.Time().Add(24 * time.Hour); !ends || err != nil || !end.Equal(want) {
		t.Errorf("content ends at %v, not %v: %v, %v", end, want, ends, err)
	}
	if _, ends, err := l.ContentEnds("nobody"); ends || err != nil {
		t.Errorf("nobody's content ends: %v", err)
	}
	if _, ends, err := off.ContentEnds(bob); ends || err != nil {
		t.Errorf("content ends without charges: %v", err)
	}
	agreed += state.Millis(23 * time.Hour / time.Millisecond)
	if n := step(l); n != uint64(objects) {
		t.Errorf("%d objects are left in the grace", n)
	}
	agreed += state.Millis(2 * time.Hour / time.Millisecond)
	known = false
	step(l)
	known = true
	w.state.SetLeader(false)
	step(l)
	w.state.SetLeader(true)
	if err := off.EndContent(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.objects(t, &bucket); n != uint64(objects) {
		t.Errorf("%d objects are left before the leader ends some", n)
	}
	if n := step(l); n != left {
		t.Errorf("%d objects are left", n)
	}
	view, release := w.state.LocalView()
	if _, err := view.Object(&bucket, fmt.Sprintf("k%05d", left-1)); err != nil {
		t.Errorf("the newest object that fits: %v", err)
	}
	release()
	if got := strings.Count(w.log.String(), `msg="content ended because the account has no credits" account=bob email=bob@example.org pins=0 versions=`); got != 2 {
		t.Errorf("%d lines tell what ended: %s", got, &w.log)
	}
	if _, ends, err := l.ContentEnds(bob); ends || err != nil {
		t.Errorf("content still ends: %v", err)
	}
}
