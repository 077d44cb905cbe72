package accounts

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// The usage of an account has the requests to all nodes for each day, days without a request included, up to today.
func TestUsageByDay(t *testing.T) {
	w, account := newUser(t)
	other := w.node()
	token := w.key(t, account.Email).Token
	ask := func(a *Accounts, times int) {
		t.Helper()
		for range times {
			if _, err := a.Authenticate(t.Context(), token); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.NoteUsage(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	usage := func(days int) (requests []uint64) {
		t.Helper()
		all, err := w.Usage(t.Context(), account.ID, days)
		if err != nil {
			t.Fatal(err)
		}
		for i, u := range all {
			if i > 0 && u.Day != all[i-1].Day+1 {
				t.Errorf("after day %d comes %d", all[i-1].Day, u.Day)
			}
			requests = append(requests, u.Requests)
		}
		return requests
	}
	if got := usage(30); !slices.Equal(got, []uint64{0}) {
		t.Errorf("before the first request there is %v", got)
	}
	ask(w.Accounts, 3)
	ask(other, 2)
	w.pass(12 * time.Hour)
	ask(w.Accounts, 1)
	w.pass(12 * time.Hour)
	ask(other, 1)
	w.pass(24 * time.Hour)
	got := usage(30)
	total := uint64(0)
	for _, n := range got {
		total += n
	}
	if total != 7 || got[len(got)-1] != 0 || len(got) < 3 {
		t.Errorf("the days have %v requests", got)
	}
	if got := usage(2); len(got) != 2 {
		t.Errorf("of two days there are %v", got)
	}
	if _, err := w.Usage(t.Context(), "nobody", 30); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("nobody's usage: %v", err)
	}
}

// A node counts the requests of at most maxCounted accounts, and takes each count once, in parts of at most
// state.MaxUsage.
func TestRequestsAreCountedUntilTheyAreNoted(t *testing.T) {
	var r requests
	for i := range maxCounted + 10 {
		r.count(state.AccountID(strconv.Itoa(i)))
	}
	if len(r.by) != maxCounted {
		t.Errorf("%d accounts are counted", len(r.by))
	}
	taken := 0
	for items := r.take(); len(items) > 0; items = r.take() {
		if len(items) > state.MaxUsage {
			t.Fatalf("%d items at once", len(items))
		}
		taken += len(items)
	}
	if taken != maxCounted || len(r.by) > 0 {
		t.Errorf("%d counts, and %d accounts are left", taken, len(r.by))
	}
}

// forgetful loses the answers to commands.
type forgetful struct {
	State
	lost int // number of answers that are lost
}

func (f *forgetful) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	r, err := f.State.Propose(ctx, cmd)
	if f.lost > 0 {
		f.lost--
		return state.Result{}, state.ErrUnavailable
	}
	return r, err
}

// A request is charged once, also if the answers to some commands are lost, and after a restart of the node.
func TestARequestIsChargedOnce(t *testing.T) {
	w, account := newUser(t)
	charge := &state.ChargeStorage{Every: 1000, Requests: 1_000_000}
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel}, charge,
		&state.PostCredits{Posting: state.Posting{ID: "g", Account: account.ID, Kind: state.Grant, Credits: 100}})
	at := &forgetful{State: w.state}
	node := func() *Accounts { return New(Options{State: at, Secret: clusterSecret, Node: "n1"}) }
	a := node()
	credits := func() uint64 {
		t.Helper()
		charge.Now += 1000
		w.state.Apply(t, charge)
		view, release := w.state.LocalView()
		defer release()
		q, err := view.Quota(account.ID)
		if err != nil {
			t.Fatal(err)
		}
		return q.Credits
	}
	for round := range 3 {
		a.requests.add(account.ID, 5)
		at.lost = round
		for range round {
			if err := a.NoteUsage(t.Context()); !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("without an answer: %v", err)
			}
			a.requests.add(account.ID, 1)
		}
		if err := a.NoteUsage(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := credits(); got != 100-18 {
		t.Errorf("%d credits are left of 100 after 18 requests", got)
	}
	a = node()
	a.requests.add(account.ID, 2)
	if err := a.NoteUsage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := credits(); got != 100-20 {
		t.Errorf("%d credits are left of 100 after 20 requests", got)
	}
}
