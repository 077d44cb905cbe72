package pins

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// answered is how a call of Wait ended, and when.
type answered struct {
	record Record
	err    error
	after  time.Duration
}

// waiting runs Wait in a bubble and returns how it ended once asked for.
func (w *world) waiting(ctx context.Context, r Record, within time.Duration) func() answered {
	enough, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	done := make(chan answered, 1)
	began := time.Now()
	go func() {
		defer cancel()
		now, err := w.Wait(ctx, r.Account, r.ID, r.Status, enough.Done())
		done <- answered{now, err, time.Since(began)}
	}()
	synctest.Wait()
	return func() answered { return <-done }
}

// watched is a world in a bubble whose Run tells of changes.
func watched(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clustertest.Setup{})
		w.Pins.watch = w.state.Watch
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		fn(t, w)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if w.waiters.count != 0 || len(w.waiters.byRoot) != 0 || len(w.waiters.accounts) != 0 {
			t.Errorf("waiters are left: %+v", w.waiters)
		}
	})
}

// Wait returns as soon as its pin begins to be fetched, fails an attempt or is deleted, and not for another pin's
// change.
func TestWaitReturnsWithTheChange(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, w *world, r Record)
		status state.Status
		err    error
	}{
		{"a fetch begins", func(t *testing.T, w *world, r Record) {
			w.report(t, r.CID, w.root(t, r.CID).Nodes()[0], state.Fetching, 0, "")
		}, state.Pinning, nil},
		{"an attempt fails", func(t *testing.T, w *world, r Record) {
			w.report(t, r.CID, w.root(t, r.CID).Nodes()[0], state.Assigned, 0, "nobody offered it")
		}, state.Queued, nil},
		{"it is deleted", func(t *testing.T, w *world, r Record) {
			if err := w.Delete(t.Context(), alice, r.ID); err != nil {
				t.Error(err)
			}
		}, 0, state.ErrNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			watched(t, func(t *testing.T, w *world) {
				r := w.create(t, alice, raw("a"))
				other := w.create(t, alice, raw("b"))
				ended := w.waiting(t.Context(), r, time.Minute)
				w.report(t, other.CID, w.root(t, other.CID).Nodes()[0], state.Fetching, 0, "")
				<-time.After(100 * time.Millisecond)
				tc.change(t, w, r)
				got := ended()
				if !errors.Is(got.err, tc.err) || got.err == nil && got.record.Status != tc.status {
					t.Errorf("%s: %v", got.record.Status, got.err)
				}
				if got.after != 100*time.Millisecond {
					t.Errorf("told after %s: another pin's change or the tick woke it", got.after)
				}
			})
		})
	}
}

// Wait returns at once for a pin that is pinned or has another status than the caller knows, and for another
// account's pin with ErrNotFound.
func TestWaitReturnsAtOnceWhatIsSettledOrNewsAlready(t *testing.T) {
	watched(t, func(t *testing.T, w *world) {
		r := w.create(t, alice, raw("a"))
		known := r
		for _, n := range w.root(t, r.CID).Nodes() {
			w.report(t, r.CID, n, state.Held, 10, "")
		}
		for _, status := range []state.Status{state.Queued, state.Pinned} {
			known.Status = status
			if got := w.waiting(t.Context(), known, time.Minute)(); got.err != nil || got.record.Status != state.Pinned || got.after != 0 {
				t.Errorf("known as %s: %s after %s: %v", status, got.record.Status, got.after, got.err)
			}
		}
		if got := w.waiting(t.Context(), Record{Pin: state.Pin{Account: bob, ID: r.ID}}, time.Minute)(); !errors.Is(got.err, state.ErrNotFound) || got.after != 0 {
			t.Errorf("another account's: %v after %s", got.err, got.after)
		}
	})
}

// Wait returns the unchanged pin when its patience is over, and the error of its context when that ends first.
func TestWaitEndsWithPatienceAndWithItsContext(t *testing.T) {
	watched(t, func(t *testing.T, w *world) {
		r := w.create(t, alice, raw("a"))
		if got := w.waiting(t.Context(), r, 30*time.Second)(); got.err != nil || got.record.ID != r.ID || got.after != 30*time.Second {
			t.Errorf("patience: %+v", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if got := w.waiting(ctx, r, time.Minute)(); !errors.Is(got.err, context.DeadlineExceeded) || got.after != 5*time.Second {
			t.Errorf("context: %+v", got)
		}
	})
}

// At most MaxAccountWaiters calls of an account and MaxWaiters of all wait, and one more is refused with ErrLimited.
func TestWaitersAreBounded(t *testing.T) {
	ws := newWaiters()
	var all []*waiter
	enter := func(account state.AccountID) error {
		w, err := ws.enter(account, "root")
		if err == nil {
			all = append(all, w)
		}
		return err
	}
	for range MaxAccountWaiters {
		if err := enter(alice); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter(alice); !errors.Is(err, state.ErrLimited) {
		t.Errorf("one more of the account: %v", err)
	}
	for i := len(all); i < MaxWaiters; i++ {
		if err := enter(state.AccountID(strings.Repeat("x", 1+i/MaxAccountWaiters))); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter(bob); !errors.Is(err, state.ErrLimited) {
		t.Errorf("one more of all: %v", err)
	}
	for _, w := range all {
		ws.leave(w)
	}
	if err := enter(alice); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// says answers for every root alike.
type says struct {
	all   []Progress
	nodes []state.NodeID // of the last call
}

func (s *says) Progress(_ context.Context, _ state.RootKey, nodes []state.NodeID) []Progress {
	s.nodes = nodes
	return s.all
}

// Get reports the best position, attempts, bytes and blocks that the nodes of a pin tell, and asks no node about a
// pinned pin; List asks none.
func TestGetReportsTheProgressOfTheNodes(t *testing.T) {
	live := &says{}
	w := newWorld(t, clustertest.Setup{})
	w.Pins.live = live
	r := w.create(t, alice, raw("a"))
	nodes := w.root(t, r.CID).Nodes()
	if got := w.get(t, alice, r.ID).Info; got[InfoAttempts] != "" || got[InfoDetails] != "waiting for 3 nodes" {
		t.Errorf("nobody answers: %v", got)
	}
	live.all = []Progress{{Position: 7, Attempts: 2}, {Position: 3, Attempts: 1}}
	if got := w.get(t, alice, r.ID).Info; got[InfoPosition] != "3" || got[InfoAttempts] != "2" || got[InfoBytes] != "" || got[InfoDetails] != "waiting for 3 nodes; place 3 in the line" {
		t.Errorf("in the line: %v", got)
	}
	if !slices.Equal(live.nodes, nodes) {
		t.Errorf("asked %v of %v", live.nodes, nodes)
	}
	w.report(t, r.CID, nodes[0], state.Fetching, 0, "")
	live.all = []Progress{{Fetching: true, Bytes: 300, Blocks: 1}, {Fetching: true, Bytes: 1 << 20, Blocks: 5}, {Position: 1}}
	got := w.get(t, alice, r.ID)
	if got.Status != state.Pinning || got.Info[InfoBytes] != "1048576" || got.Info[InfoBlocks] != "5" || got.Info[InfoPosition] != "" ||
		!strings.HasSuffix(got.Info[InfoDetails], "; 1 MiB in 5 blocks so far") {
		t.Errorf("fetching: %v", got.Info)
	}
	w.report(t, r.CID, nodes[0], state.Held, 10, "")
	w.report(t, r.CID, nodes[1], state.Held, 10, "")
	live.nodes = nil
	if got := w.get(t, alice, r.ID).Info; got[InfoBytes] != "" || got[InfoAttempts] != "" || live.nodes != nil {
		t.Errorf("pinned: %v, asked %v", got, live.nodes)
	}
	if _, rows, err := w.List(t.Context(), alice, state.PinQuery{Statuses: state.Statuses(), Limit: 10}); err != nil || len(rows) != 1 || live.nodes != nil {
		t.Errorf("a list asks nobody: %v, %v", live.nodes, err)
	}
}

// A call to Wait that finds no place is refused with ErrLimited, and holds none.
func TestAWaitWithoutAPlaceIsRefused(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	pin := w.create(t, alice, v0)
	for name, fill := range map[string]func(n int){
		"of all":     func(n int) { w.waiters.count += n * MaxWaiters },
		"of account": func(n int) { w.waiters.accounts[alice] += n * MaxAccountWaiters },
	} {
		fill(1)
		before := w.waiters.count
		if r, err := w.Wait(t.Context(), alice, pin.ID, pin.Status, nil); !errors.Is(err, state.ErrLimited) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if w.waiters.count != before || len(w.waiters.byRoot) != 0 {
			t.Errorf("%s: %d wait, and %d did", name, w.waiters.count, before)
		}
		fill(-1)
	}
}

// A number of bytes is written in the largest binary unit that fits, rounded to one decimal.
func TestProgressIsWrittenForPeople(t *testing.T) {
	for _, tc := range []struct {
		bytes uint64
		want  string
	}{
		{0, "0 bytes"},
		{1, "1 byte"},
		{1023, "1023 bytes"},
		{1 << 10, "1 KiB"},
		{1536, "1.5 KiB"},
		{1<<20 - 1, "1 MiB"}, // rounded
		{1 << 20, "1 MiB"},
		{340 << 20, "340 MiB"},
		{5_000_000_000, "4.7 GiB"},
		{1 << 40, "1 TiB"},
		{math.MaxUint64, "16 EiB"},
	} {
		if got := sizeText(tc.bytes); got != tc.want {
			t.Errorf("%d: %q, want %q", tc.bytes, got, tc.want)
		}
	}
}
