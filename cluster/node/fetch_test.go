package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// given is a source that answers after a while.
type given struct {
	after  time.Duration // negative: it never answers
	has    bool
	failed error
	asked  int
}

func (g *given) Name() string { return "test" }

func (g *given) Blocks(ctx context.Context, cids []cid.Cid, fn func(block.Block) error) ([]cid.Cid, error) {
	g.asked++
	var answer <-chan time.Time
	if g.after >= 0 {
		answer = time.After(g.after)
	}
	select {
	case <-ctx.Done():
		return cids, ctx.Err()
	case <-answer:
	}
	if !g.has {
		return cids, g.failed
	}
	return nil, fn(block.NewBlock([]byte("root")))
}

// The reason of a failed fetch names an origin only to a user who named that origin.
func TestWhatIsSaidOfAnOriginIsForWhoNamedIt(t *testing.T) {
	err := &dag.FetchError{Kind: dag.ErrNotFound, Cid: block.NewBlock(nil).Cid(), Notes: []string{"/o: no answer"}}
	reason := new(fetcher).Reason(err)
	if got := state.OwnReason(reason, []string{"/o"}); got != err.Reason() {
		t.Errorf("%q, want %q", got, err.Reason())
	}
	if got, want := state.OwnReason(reason, nil), "nobody offered the block "+err.Cid.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A fetch asks the origins for the root alone for originsAlone, then the members too, and takes the first answer.
func TestNewContentComesFromItsOriginsFirst(t *testing.T) {
	root := block.NewBlock([]byte("root")).Cid()
	never, silent := errors.New("no"), time.Duration(-1)
	for _, tc := range []struct {
		name            string
		origin          given
		first, second   given
		took            time.Duration
		asked           int // members
		missing, failed bool
	}{
		{"origins answer", given{after: time.Millisecond, has: true}, given{}, given{}, time.Millisecond, 0, false, false},
		{"imported on a member", given{after: silent}, given{}, given{has: true}, originsAlone, 2, false, false},
		{"a member is first", given{after: time.Second, has: true}, given{has: true}, given{}, originsAlone, 1, false, false},
		{"origins late, nobody else", given{after: time.Second, has: true}, given{}, given{}, time.Second, 2, false, false},
		{"a member hangs", given{after: time.Second, has: true}, given{after: silent}, given{has: true}, time.Second, 1, false, false},
		{"origins fail", given{failed: never}, given{}, given{has: true}, originsAlone, 2, false, false},
		{"nobody", given{failed: never}, given{}, given{failed: never}, originsAlone, 2, true, true},
		{"nobody ever", given{after: silent}, given{}, given{}, time.Minute, 2, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				o := &originsFirst{root: root, origins: &tc.origin, members: []dag.Source{&tc.first, &tc.second}, alone: originsAlone}
				calls, begin := 0, time.Now()
				missing, err := o.Blocks(ctx, []cid.Cid{root}, func(block.Block) error { calls++; return nil })
				if took := time.Since(begin); took != tc.took {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				if (len(missing) > 0) != tc.missing || (err != nil) != tc.failed || (calls == 1) == tc.missing {
					t.Errorf("missing %v, %v, %d blocks given", missing, err, calls)
				}
				if asked := tc.first.asked + tc.second.asked; asked != tc.asked {
					t.Errorf("%d members asked, want %d", asked, tc.asked)
				}
			})
		})
	}
}

// A request to origins and members ends with the error of the receiver if the receiver refuses the block.
func TestABlockThatIsRefusedEndsTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, full := block.NewBlock([]byte("root")).Cid(), errors.New("full")
		o := &originsFirst{root: root, origins: &given{has: true}, members: []dag.Source{&given{has: true}}, alone: originsAlone}
		missing, err := o.Blocks(t.Context(), []cid.Cid{root}, func(block.Block) error { return full })
		if !errors.Is(err, full) || len(missing) != 1 {
			t.Fatalf("%v, %v", missing, err)
		}
	})
}

// A request for blocks below the root does not ask the origins first.
func TestBelowTheRootMembersAreAskedAsEver(t *testing.T) {
	root, other := block.NewBlock([]byte("root")).Cid(), block.NewBlock([]byte("other")).Cid()
	origin := &given{has: true}
	o := &originsFirst{root: root, origins: origin, alone: originsAlone}
	for _, ask := range [][]cid.Cid{{other}, {root, other}} {
		missing, err := o.Blocks(t.Context(), ask, nil)
		if err != nil || len(missing) != len(ask) || origin.asked != 0 {
			t.Fatalf("%v, %v, asked %d times", missing, err, origin.asked)
		}
	}
}
