package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
	"github.com/holdfast-ipfs/holdfast/test/harness"
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

// lateBy is how much later than its answer a lateWrites takes effect.
const lateBy = 2 * time.Second

// lateWrites sees to a write without an answer when its client has asked for more.
type lateWrites struct{ pins.State }

func (s lateWrites) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	result, err := s.State.Propose(ctx, cmd)
	if _, ok := cmd.(*state.CreatePin); ok && errors.Is(err, state.ErrUnavailable) {
		ctx := context.WithoutCancel(ctx)
		go func() { // synctest.Test waits for it
			harness.Pause(ctx, lateBy)
			// Nobody hears how it went.
			_, _ = s.State.Propose(ctx, cmd)
		}()
	}
	return result, err
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

// maxSeeds is how many seeds may pass before a mistake has to be found. Each finds one with
// a chance of five in ten at the least.
const maxSeeds = 15

// find runs a scenario with one seed after the other until something is wrong
// that wrong accepts, and says what it was.
func find(t *testing.T, name string, wrong func(error) bool) {
	t.Helper()
	for seed := range uint64(maxSeeds) {
		_, err := simulate(t, seed+1, name)
		var invalid invalid
		switch {
		case err == nil || errors.As(err, &invalid):
		case wrong(err):
			t.Log(fmt.Errorf("found: %w", err))
			return
		default:
			t.Errorf("found something else: %v", err)
			return
		}
	}
	t.Errorf("%d seeds did not find it", maxSeeds)
}

// TestDeliberateMistakesAreFound promises that a cluster which breaks a promise on purpose
// fails the simulation.
func TestDeliberateMistakesAreFound(t *testing.T) {
	for i, name := range mistakes {
		t.Run(name, func(t *testing.T) {
			if i > 0 && !*longFlag && !*proofFlag {
				t.Skip("only with -long or -proof")
			}
			t.Parallel()
			find(t, name, func(error) bool { return true })
		})
	}
}

// TestDamageIsFound promises that the comparison at the end of a simulation finds lost content and differing states,
// and says which.
func TestDamageIsFound(t *testing.T) {
	if !*longFlag && !*proofFlag {
		t.Skip("only with -long or -proof")
	}
	for name, want := range map[string]string{
		"blocks that are gone": "is not here", "a root that was collected in use": "is not here", "a state with one more key": "differ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			find(t, name, func(err error) bool { return strings.Contains(err.Error(), want) })
		})
	}
}

// mistakes are the scenarios in which a node does something wrong.
var mistakes = [...]string{
	"reads of the local state", "an answer before the commit", "a retry that is a new write", "a delete that was not done", "a log without fsync",
	"a write behind its answer", "an object that is not paid",
}

// collect frees the blocks of one root that a node says it holds.
func collect(r *run) (err error) {
	m := r.cluster.members[0]
	content, err := blocks.Open(filepath.Join(m.folder, "blocks"), blocks.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	var held string
	err = content.References(context.Background(), "root/", func(o blocks.ReferenceInfo) (bool, error) {
		if !o.Sealed {
			return true, nil
		}
		held = o.Reference
		return false, nil
	})
	if err != nil {
		return err
	}
	_, err = content.Drop(context.Background(), held)
	return errors.Join(err, content.Compact(context.Background()))
}

// mistaken returns those scenarios and those of damage, by name.
func mistaken() map[string]scenario {
	return map[string]scenario{
		// One fault is enough for what needs none.
		mistakes[0]: {
			bug:   func(s pins.State) pins.State { return staleReads{s} },
			steps: []step{{fault: slow, leader: true, other: 1, last: time.Second}},
		},
		mistakes[1]: {bug: func(s pins.State) pins.State { return earlyAnswers{s} }},
		// An answer has to be lost of a write that was made: under any faults three seeds
		// of ten do that, and under these more than five.
		mistakes[2]: {
			bug: func(s pins.State) pins.State { return newRetries{s} },
			steps: slices.Repeat([]step{
				{fault: flap, leader: true, gap: 500 * time.Millisecond, last: 3 * time.Second},
				{fault: deaf, leader: true, gap: 500 * time.Millisecond, last: time.Second},
			}, 4),
		},
		mistakes[3]: {bug: func(s pins.State) pins.State { return lostDeletes{s} }},
		mistakes[4]: {lies: true, steps: again(3, step{fault: blackout, gap: time.Second, last: time.Second, other: 1})},
		// A client has to be told that its write's outcome is unknown, and others to write on.
		mistakes[5]: {
			bug:   func(s pins.State) pins.State { return lateWrites{s} },
			steps: again(4, step{fault: partition, leader: true, gap: time.Second, last: 5 * time.Second}),
		},
		mistakes[6]:                        {blind: true},
		"a root that was collected in use": {damage: collect},
		"blocks that are gone": {damage: func(r *run) error {
			return os.RemoveAll(filepath.Join(r.cluster.members[1].folder, "blocks"))
		}},
		"a state with one more key": {damage: func(r *run) error {
			store, err := kv.Open(filepath.Join(r.cluster.members[2].folder, "state"), kv.Options{})
			if err != nil {
				return err
			}
			tx := store.Begin()
			return errors.Join(tx.Set([]byte{0xff}, nil), tx.Commit(true), store.Close())
		}},
	}
}
