package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// staleReads answers from what this node has applied, without a question to the
// leader.
type staleReads struct{ pins.State }

func (s staleReads) View(context.Context) (state.View, func(), error) {
	view, release := s.LocalView()
	return view, release, nil
}

// earlyAnswers says that a pin was created before it was committed.
type earlyAnswers struct{ pins.State }

func (s earlyAnswers) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	c, ok := cmd.(*state.CreatePin)
	if !ok {
		return s.State.Propose(ctx, cmd)
	}
	go func() { // synctest.Test waits for it
		// Nobody hears how it went.
		_, _ = s.State.Propose(context.WithoutCancel(ctx), cmd)
	}()
	pin := c.Pin
	return state.Result{Pin: &pin}, nil
}

// newRetries tries a write without an answer again as if it were another one.
type newRetries struct{ pins.State }

func (s newRetries) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	result, err := s.State.Propose(ctx, cmd)
	c, ok := cmd.(*state.CreatePin)
	if !ok || !errors.Is(err, state.ErrUnavailable) {
		return result, err
	}
	again := *c
	again.Pin.ID = state.RequestID(uuid.NewString())
	return s.State.Propose(context.WithoutCancel(ctx), &again)
}

// lostDeletes says that a pin is gone, and does not see to it when the cluster
// does not answer.
type lostDeletes struct{ pins.State }

func (s lostDeletes) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	result, err := s.State.Propose(ctx, cmd)
	if _, ok := cmd.(*state.DeletePin); ok && errors.Is(err, state.ErrUnavailable) {
		err = nil
	}
	return result, err
}

// maxSeeds is how many seeds may pass before a mistake has to be found.
const maxSeeds = 10

func TestDeliberateMistakesAreFound(t *testing.T) {
	for i, tc := range []struct {
		name string
		bug  func(pins.State) pins.State
	}{
		{"reads of the local state", func(s pins.State) pins.State { return staleReads{s} }},
		{"an answer before the commit", func(s pins.State) pins.State { return earlyAnswers{s} }},
		{"a retry that is a new write", func(s pins.State) pins.State { return newRetries{s} }},
		{"a delete that was not done", func(s pins.State) pins.State { return lostDeletes{s} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if i > 0 && !*longFlag {
				t.Skip("only with -long")
			}
			var short []step // one fault is enough for what needs none
			if i == 0 {
				short = []step{{fault: slow, leader: true, other: 1, last: time.Second}}
			}
			for seed := range uint64(maxSeeds) {
				_, err := simulate(t, seed+1, scenario{bug: tc.bug, steps: short})
				var invalid invalid
				if errors.As(err, &invalid) {
					continue
				}
				if err != nil {
					t.Log(fmt.Errorf("found: %w", err))
					return
				}
			}
			t.Errorf("%d seeds did not find it", maxSeeds)
		})
	}
}

func TestDamageIsFound(t *testing.T) {
	if !*longFlag {
		t.Skip("only with -long")
	}
	for _, tc := range []struct {
		name   string
		damage func(*run) error
		want   string
	}{
		{"blocks that are gone", func(r *run) error {
			return os.RemoveAll(filepath.Join(r.cluster.members[1].folder, "blocks"))
		}, "is not here"},
		{"a state with one more key", func(r *run) error {
			store, err := kv.Open(filepath.Join(r.cluster.members[2].folder, "state"), kv.Options{})
			if err != nil {
				return err
			}
			tx := store.Begin()
			return errors.Join(tx.Set([]byte{0xff}, nil), tx.Commit(true), store.Close())
		}, "differ"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := simulate(t, 1, scenario{damage: tc.damage})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("not found: %v", err)
			}
		})
	}
}
