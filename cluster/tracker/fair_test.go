package tracker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// pinAs adds a pin of root n for an account other than the operator.
func (w *world) pinAs(account state.AccountID, n int) {
	w.Helper()
	if !w.accounts[account] {
		w.state.Apply(w, &state.CreateAccount{Account: state.Account{ID: account, Email: string(account) + "@x", Created: 1}})
		if w.accounts == nil {
			w.accounts = map[state.AccountID]bool{}
		}
		w.accounts[account] = true
	}
	w.pins++
	pin := w.newPin(state.RequestID(fmt.Sprintf("pin-%d", w.pins)), n)
	pin.Account = account
	w.state.Apply(w, &state.CreatePin{Pin: pin, Nodes: []state.NodeID{self}})
}

// held counts which of the roots [from, to) are held here.
func (w *world) held(from, to int) (n int) {
	for i := from; i < to; i++ {
		if o, ok := w.store.get(Reference(key(i))); ok && o.sealed {
			n++
		}
	}
	return n
}

// tight are limits with which a few roots are many.
var tight = Limits{Moving: 4, Waiting: 8, Account: 4, Known: 64}

// However many pins of one account wait, one of another is fetched at once:
// also when the table of known roots is full, and after a restart, when both
// are found by the audit.
func TestManyPinsOfOneAccountDoNotDelayAnother(t *testing.T) {
	const many = 1000
	for _, when := range []string{"while they wait", "after a restart", "shared with them"} {
		t.Run(when, func(t *testing.T) {
			bubble(t, tight, func(w *world) {
				w.net.rest = slow(3)
				if when != "after a restart" {
					w.start()
				}
				for n := range many {
					w.pinAs("many", n)
				}
				if when == "while they wait" {
					w.pass(10 * time.Second)
				}
				one := many
				if when == "shared with them" {
					one = many - 1 // theirs too, and the last of them
				}
				w.pinAs("one", one)
				if when == "after a restart" {
					w.start()
				}
				defer w.stop()
				w.pass(3*time.Second + slotCheck + moment)
				w.wantPhase(one, state.Held)
				if others := w.held(0, many-1); others > 40 {
					t.Fatalf("%d of the many were fetched before", others)
				}
				if q := w.tracker.Queue(); q > tight.Known+tight.Moving+tight.Waiting {
					t.Fatalf("%d roots in memory", q)
				}
				w.pass(many * 3 * time.Second)
				if n := w.held(0, many+1); n < many {
					t.Fatalf("%d of %d held in the end", n, many)
				}
				w.wantIdle()
			})
		})
	}
}

// Of two accounts with 1,000 pins each, neither has over 20 % more pins held than the other.
func TestTwoAccountsWithManyPinsAdvanceAlike(t *testing.T) {
	bubble(t, tight, func(w *world) {
		w.net.rest = slow(3)
		w.start()
		defer w.stop()
		for n := range 1000 {
			w.pinAs("a", n)
		}
		for n := 1000; n < 2000; n++ {
			w.pinAs("b", n)
		}
		w.pass(5 * time.Minute)
		a, b := w.held(0, 1000), w.held(1000, 2000)
		if a+b < 300 || a > b+b/5 || b > a+a/5 {
			t.Fatalf("%d and %d held", a, b)
		}
	})
}

// An account has no more fetches at the same time than its share, and another account has the free slots.
func TestAnAccountKeepsToItsShareOfTheSlots(t *testing.T) {
	bubble(t, Limits{Moving: 64, Waiting: 64, Account: 5}, func(w *world) {
		w.net.rest = slow(10)
		w.start()
		defer w.stop()
		w.pass(moment)
		for n := range 50 {
			w.pinAs("a", n)
		}
		w.pass(time.Minute)
		if most := w.net.atMost(); most != 5 {
			t.Fatalf("%d at the same time, want 5", most)
		}
		w.pinAs("b", 50)
		w.pass(moment)
		if len(w.net.fetched(key(50))) != 1 {
			t.Fatal("another account waits beside free slots")
		}
	})
}

// Fetches of large content make room for another account although they move.
func TestLargeContentMakesRoomForAnotherAccount(t *testing.T) {
	bubble(t, Limits{Moving: 8, Waiting: 16, Account: 16}, func(w *world) {
		w.net.rest = slow(100_000)
		w.start()
		defer w.stop()
		w.pass(moment)
		for n := range 30 {
			w.pinAs("large", n)
		}
		w.pass(5 * time.Second)
		begun := func(from, to int) (n int) {
			for i := from; i < to; i++ {
				n += min(1, len(w.net.fetched(key(i))))
			}
			return n
		}
		for n := 100; n < 110; n++ {
			w.pinAs("other", n)
		}
		w.pass(moment)
		if n := begun(100, 110); n < 1 {
			t.Fatal("none of the other account's has begun")
		}
		w.pass(2 * time.Minute)
		if n := begun(100, 110); n < 4 {
			t.Fatalf("%d of the other account's have begun, want about half of the slots", n)
		}
		if most := w.net.atMost(); most > 8+16+1 {
			t.Fatalf("%d at the same time", most)
		}
	})
}

// A fetch gets past the blocks that are here already, although it has no time for all of them in one turn.
func TestAFetchGetsPastWhatIsHere(t *testing.T) {
	bubble(t, Limits{Moving: 1, Waiting: 1}, func(w *world) {
		const here = uint64(4 * DefaultRotateAfter / time.Second)
		w.net.rest = silent
		w.net.set(key(1), func(ctx context.Context, f *network, job Job, progress func(uint64, uint64)) error {
			if err := slow(here)(ctx, f, job, progress); err != nil || len(f.fetched(key(1))) > 1 {
				return err
			}
			return silent(ctx, f, job, progress) // for the first time
		})
		w.start()
		defer w.stop()
		pin := w.pin(1)
		w.pass(time.Duration(here) * time.Second)
		for n := 2; n < 20; n++ {
			w.pin(n)
		}
		w.pass(time.Hour)
		if s, why := w.status(pin); s != state.Pinned {
			t.Fatalf("%s (%s) after %d turns", s, why, len(w.net.fetched(key(1))))
		}
	})
}

// New pins are held within 35 s, although 200 lost roots wait for their repair.
func TestNewPinsGoBeforeRepairs(t *testing.T) {
	bubble(t, tight, func(w *world) {
		w.net.rest = slow(10)
		for n := range 200 { // held once, and lost
			w.pin(n, self, other)
			w.says(self, n, state.Held)
		}
		w.start()
		defer w.stop()
		w.pass(5 * time.Second)
		for n := 200; n < 206; n++ {
			w.pin(n)
		}
		w.pass(35 * time.Second)
		if n := w.held(200, 206); n != 6 {
			t.Fatalf("%d of 6 new pins held, and %d repaired", n, w.held(0, 200))
		}
	})
}

// Every root that nobody has fails after DefaultAttempts, also if more of them fail than are remembered at once.
func TestEveryRootThatNobodyHasFailsInTheEnd(t *testing.T) {
	bubble(t, Limits{Known: 64, Waiting: 16, Backoff: time.Minute, MaxBackoff: time.Minute}, func(w *world) {
		w.net.rest = absent
		w.start()
		defer w.stop()
		const roots = 1000
		for n := range roots {
			w.pin(n)
		}
		w.pass(3 * time.Hour)
		if n := w.totals()[state.Failed]; n != roots {
			t.Fatalf("%d of %d failed", n, roots)
		}
		for n := range roots {
			if tries := len(w.net.fetched(key(n))); tries != DefaultAttempts {
				t.Fatalf("root %d was tried %d times", n, tries)
			}
		}
		if n := len(w.nodeMeta.kept); n != 0 {
			t.Fatalf("%d records of attempts are left", n)
		}
	})
}

// AttachedAccounts returns each account that has a pin of the root once, and no more accounts than the limit.
func TestAccountsOfARoot(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		for n := range 50 {
			w.pinAs("b", 1)
			w.pinAs(state.AccountID(fmt.Sprint("c", n%3)), 1)
		}
		w.pin(1)
		view, release := w.state.State.LocalView()
		defer release()
		for limit, want := range map[int]string{1: "[b]", 4: "[b c0 c1 c2]", 9: "[b c0 c1 c2 " + string(clustertest.Operator) + "]"} {
			got, err := view.AttachedAccounts(key(1), limit)
			if err != nil || fmt.Sprint(got) != want {
				t.Fatalf("limit %d: %v, %v, want %s", limit, got, err, want)
			}
		}
	})
}
