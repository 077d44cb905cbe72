package pins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// enter takes a turn that is free.
func enter(t *testing.T, s *scans, account state.AccountID) (leave func()) {
	t.Helper()
	leave, err := s.enter(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

// One long list of an account runs at a time, a bounded number of all accounts do, and those that wait run in the
// order of arrival.
func TestLongListsHaveTheirTurnsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScans(2)
		running := enter(t, s, alice)
		var order []int
		wait := func(i int, account state.AccountID) {
			go func() {
				leave, err := s.enter(t.Context(), account)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // one runs at a time, or nothing does
				leave()
			}()
			synctest.Wait()
		}
		for i := range 5 {
			wait(i, alice)
		}
		if len(order) != 0 {
			t.Fatalf("%d lists of an account run beside another", len(order))
		}
		wait(10, bob)
		if !slices.Equal(order, []int{10}) {
			t.Fatal("another account waits although there is room")
		}
		also := enter(t, s, bob)
		if wait(11, "carol"); len(order) != 1 {
			t.Fatal("more lists run than may")
		}
		also()
		synctest.Wait()
		running()
		synctest.Wait()
		if !slices.Equal(order, []int{10, 11, 0, 1, 2, 3, 4}) {
			t.Errorf("turns in the order %v", order)
		}
		if len(s.accounts) != 0 {
			t.Errorf("%d accounts are remembered", len(s.accounts))
		}
	})
}

// A caller that waits for a turn gives up with its context, and one more than MaxScansWaiting is refused with
// ErrLimited.
func TestWaitingForATurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScans(1)
		leave := enter(t, s, alice)
		for _, account := range []state.AccountID{alice, bob} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := s.enter(ctx, account); !errors.Is(err, state.ErrLimited) {
				t.Errorf("%s, time is over: %v", account, err)
			}
			cancel()
			if _, err := s.enter(ctx, account); errors.Is(err, nil) {
				t.Errorf("%s has a turn", account)
			}
			gone, left := context.WithCancel(t.Context())
			left()
			if _, err := s.enter(gone, account); !errors.Is(err, context.Canceled) {
				t.Errorf("%s left: %v", account, err)
			}
		}
		waiting, stop := context.WithCancel(t.Context())
		for range MaxScansWaiting {
			go func() { _, _ = s.enter(waiting, alice) }() // ends with waiting
		}
		synctest.Wait()
		if _, err := s.enter(waiting, alice); !errors.Is(err, state.ErrLimited) {
			t.Errorf("one more than may wait: %v", err)
		}
		stop()
		synctest.Wait()
		leave()
		if len(s.accounts) != 0 {
			t.Errorf("%d accounts are remembered", len(s.accounts))
		}
	})
}

// A list that has to read many rows waits for its turn, and a short one never waits.
func TestOnlyLongListsWait(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	w.scans = newScans(1)
	for i := range 40 {
		if _, err := w.Create(t.Context(), alice, Request{
			CID: raw("content"), Name: fmt.Sprint("name ", i), Meta: map[string]string{"k": strings.Repeat("m", state.MaxMetaBytes-1)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	long := state.PinQuery{Limit: 10, Meta: map[string]string{"a": "b"}, Statuses: state.Statuses()}
	short := state.PinQuery{Limit: 10, Statuses: state.Statuses()}
	leave := enter(t, w.scans, alice)
	ended, cancel := context.WithCancel(t.Context())
	if total, rows, err := w.List(ended, alice, short); err != nil || total != 40 || len(rows) != 10 {
		t.Errorf("a short list: %d of %d, %v", len(rows), total, err)
	}
	if total, _, err := w.List(ended, bob, long); err != nil || total != 0 {
		t.Errorf("a list of somebody without pins: %d, %v", total, err)
	}
	waits := make(chan error, 1)
	go func() {
		_, _, err := w.List(ended, alice, long)
		waits <- err
	}()
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("a long list without a turn: %v", err)
	}
	leave()
	if total, _, err := w.List(t.Context(), alice, long); err != nil || total != 0 {
		t.Errorf("a long list: %d, %v", total, err)
	}
}
