package credits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const bob = state.AccountID("bob")

// world is a ledger in a cluster with the account bob.
type world struct {
	*Ledger
	state *clustertest.State
	log   bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{state: clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("n1")})}
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	w.state.Apply(t, &state.CreateAccount{Account: state.Account{ID: bob, Email: "bob@example.org"}})
	w.Ledger = New(Options{
		State: w.state, Now: func() time.Time { return time.UnixMilli(7) },
		Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	return w
}

// A posting with an id is made once however often it is sent, and the ledger lists each posting with the balance
// after it, the newest first.
func TestPostAndList(t *testing.T) {
	w := newWorld(t)
	ctx := state.WithActor(t.Context(), state.Actor{Kind: state.ActorOperator})
	for i, r := range []Request{
		{Kind: state.Grant, Credits: 10, ID: "g", Note: "welcome"},
		{Kind: state.Refund, Credits: 2, ID: "r"},
		{Kind: state.Correction, Credits: -3, ID: "c", Corrects: "g"},
	} {
		for range 2 { // a repeat changes nothing
			p, err := w.Post(ctx, "Bob@example.org", r)
			if err != nil || p.Seq != uint64(i+1) || p.Made != 7 || p.By.Kind != state.ActorOperator {
				t.Fatalf("%+v: %+v, %v", r, p, err)
			}
		}
	}
	if want := `msg="credits posted" account=bob email=bob@example.org kind=correction credits=-3 posting=c`; !strings.Contains(w.log.String(), want) {
		t.Errorf("the log is %s", &w.log)
	}
	var got []string
	for before, more := uint64(0), true; more; more = before > 0 {
		page, err := w.List(ctx, "bob", before, 2)
		if err != nil || page.Balance != 9 {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, p := range page.Rows {
			got = append(got, fmt.Sprint(p.Seq, " ", p.ID, " ", p.Signed(), " ", p.Balance))
		}
		before = page.Next
	}
	if want := []string{"3 c -3 9", "2 r 2 12", "1 g 10 10"}; !slices.Equal(got, want) {
		t.Errorf("the ledger is %q", got)
	}
	first, err := w.Post(ctx, "bob", Request{Kind: state.Grant, Credits: 1})
	if err != nil {
		t.Fatal(err)
	}
	if second, err := w.Post(ctx, "bob", Request{Kind: state.Grant, Credits: 1}); err != nil || second.ID == first.ID || second.Balance != 11 {
		t.Errorf("a second grant without an id is %+v, %v", second, err)
	}
}

// Post rejects bad postings, unknown accounts and charges beyond the balance, and List rejects unknown accounts and
// bad limits.
func TestPostRefuses(t *testing.T) {
	w := newWorld(t)
	for want, rs := range map[error][]Request{
		state.ErrInvalid: {
			{Kind: state.Grant},
			{Kind: state.Grant, Credits: -1},
			{Kind: state.Refund, Credits: -1},
			{Kind: state.Correction, Credits: 1},
			{Kind: state.Correction, Credits: -1 << 63, Corrects: "g"},
			{Kind: state.Grant, Credits: 1, ID: strings.Repeat("a", state.MaxIDLen+1)},
		},
		state.ErrNotFound: {{Kind: state.Correction, Credits: 1, Corrects: "none"}},
		state.ErrCredits:  {{Kind: state.Charge, Credits: -1}},
	} {
		for _, r := range rs {
			if _, err := w.Post(t.Context(), "bob", r); !errors.Is(err, want) {
				t.Errorf("%+v: %v, not %v", r, err, want)
			}
		}
	}
	if _, err := w.Post(t.Context(), "nobody", Request{Kind: state.Grant, Credits: 1}); !errors.Is(err, state.ErrNotFound) {
		t.Error(err)
	}
	if _, err := w.List(t.Context(), "nobody", 0, 1); !errors.Is(err, state.ErrNotFound) {
		t.Error(err)
	}
	for _, limit := range []int{-1, MaxLimit + 1} {
		if _, err := w.List(t.Context(), "bob", 0, limit); !errors.Is(err, state.ErrInvalid) {
			t.Error(limit, err)
		}
	}
	w.state.Fail(state.ErrUnavailable)
	if _, err := w.Post(t.Context(), "bob", Request{Kind: state.Grant, Credits: 1}); !errors.Is(err, state.ErrUnavailable) {
		t.Error(err)
	}
	if _, err := w.List(t.Context(), "bob", 0, 1); !errors.Is(err, state.ErrUnavailable) {
		t.Error(err)
	}
}

// List and Post return an error if any one of their reads of the state fails.
func TestNoReadErrorIsPassedOver(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Post(t.Context(), "bob", Request{Kind: state.Grant, Credits: 1, ID: "g"}); err != nil {
		t.Fatal(err)
	}
	w.state.EachReadFails(t, func() error {
		_, err := w.List(context.WithoutCancel(t.Context()), "bob", 0, 1)
		return err
	})
	w.state.EachReadFails(t, func() error {
		_, err := w.Post(context.WithoutCancel(t.Context()), "bob", Request{Kind: state.Grant, Credits: 1, ID: "g"})
		return err
	})
}
