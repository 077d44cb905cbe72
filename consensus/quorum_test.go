package consensus

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// asker answers questions in virtual time.
type asker struct {
	quorum quorum
	fails  []raft.ServerID
	hangs  []raft.ServerID

	mu    sync.Mutex
	asked []raft.ServerID
}

var errVoter = errors.New("no")

func (e *asker) ask(ctx context.Context, v raft.ServerID) error {
	e.mu.Lock()
	e.asked = append(e.asked, v)
	e.mu.Unlock()
	switch {
	case slices.Contains(e.fails, v):
		return errVoter
	case slices.Contains(e.hangs, v):
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// reach asks voters once, and checks who was asked and how long it took.
func (e *asker) reach(t *testing.T, voters []raft.ServerID, need int, wantAsked []raft.ServerID, wantTook time.Duration) error {
	t.Helper()
	var running sync.WaitGroup
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	e.asked = nil
	err := e.quorum.reach(ctx, voters, need, e.ask, running.Go)
	took := time.Since(began)
	running.Wait()
	slices.Sort(e.asked)
	if !slices.Equal(e.asked, wantAsked) || took != wantTook {
		t.Errorf("asked %q for %s, want %q for %s", e.asked, took, wantAsked, wantTook)
	}
	return err
}

// A quorum asks as many voters as it needs, others when one fails or hangs, and those that answered first the next
// time.
func TestAQuorumAsksNoMoreThanItNeeds(t *testing.T) {
	type ids = []raft.ServerID
	voters := ids{"a", "b", "c", "d"}
	for _, tc := range []struct {
		name         string
		fails, hangs ids
		need         int
		want         error
		first        ids // who is asked, and how long it takes
		took         time.Duration
		again        ids // the second time
	}{
		{"all answer", nil, nil, 2, nil, ids{"a", "b"}, 0, ids{"a", "b"}},
		{"nobody is needed", ids{"a"}, nil, 0, nil, nil, 0, nil},
		{"one fails", ids{"a"}, nil, 2, nil, ids{"a", "b", "c"}, 0, ids{"b", "c"}},
		{"one hangs", nil, ids{"b"}, 2, nil, ids{"a", "b", "c", "d"}, askOthersAfter, ids{"a", "c"}},
		{"half of them", ids{"a"}, ids{"b"}, 2, nil, ids{"a", "b", "c", "d"}, askOthersAfter, ids{"c", "d"}},
		{"too many fail", ids{"a", "b", "c"}, nil, 2, errVoter, voters, 0, voters},
		{"too many hang", nil, ids{"a", "b", "c"}, 2, context.DeadlineExceeded, voters, time.Second, voters},
		{"there are too few", nil, nil, 5, errNoVoter, voters, 0, voters},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &asker{fails: tc.fails, hangs: tc.hangs}
				if err := e.reach(t, voters, tc.need, tc.first, tc.took); !errors.Is(err, tc.want) {
					t.Errorf("%v, want %v", err, tc.want)
				}
				again := time.Duration(0)
				if tc.took == time.Second {
					again = tc.took
				}
				if err := e.reach(t, voters, tc.need, tc.again, again); !errors.Is(err, tc.want) {
					t.Errorf("the second time: %v, want %v", err, tc.want)
				}
			})
		})
	}
}

// A voter that was late is asked first again once others are later, and is forgotten with its vote.
func TestAQuorumForgetsWhoWasLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type ids = []raft.ServerID
		e := &asker{fails: ids{"a"}}
		for _, step := range []struct {
			fails, voters, asked, late ids
		}{
			{ids{"a"}, ids{"a", "b"}, ids{"a", "b"}, ids{"a"}},
			{nil, ids{"a", "b"}, ids{"b"}, ids{"a"}},
			{ids{"b"}, ids{"a", "b"}, ids{"a", "b"}, ids{"a", "b"}},
			{nil, ids{"a", "b"}, ids{"a"}, ids{"a", "b"}},
			{ids{"c"}, ids{"c", "b"}, ids{"b", "c"}, ids{"b", "c"}},
		} {
			e.fails = step.fails
			if err := e.reach(t, step.voters, 1, step.asked, 0); err != nil {
				t.Error(err)
			}
			if !slices.Equal(e.quorum.late, step.late) {
				t.Errorf("%q are late, want %q", e.quorum.late, step.late)
			}
		}
	})
}

// The question of a voter confirms the term of its leader in a cluster of three, and not in one of five.
func TestAVoterVouchesForTheLeaderThatItAsks(t *testing.T) {
	for voters, vouches := range map[int]bool{3: true, 5: false} {
		inVirtualTime(t, voters, Timings{}, func(t *testing.T, c *testCluster) {
			leader, follower := c.leader(), c.follower()
			c.until("all vote", func() bool { return c.voters() == voters })
			term := leader.raft.CurrentTerm()
			word := func(term uint64) []byte { return binary.BigEndian.AppendUint64(nil, term) }
			for _, tc := range []struct {
				name   string
				leader *testNode
				from   state.NodeID
				vouch  []byte
				want   bool
			}{
				{"a voter", leader, follower.id, follower.vouch(), vouches},
				{"a voter that lags", leader, follower.id, word(term - 1), vouches},
				{"a voter that knows of a later term", leader, follower.id, word(term + 1), false},
				{"a voter that says nothing", leader, follower.id, nil, false},
				{"no voter", leader, "nobody", word(term), false},
				{"the leader itself", leader, leader.id, word(term), false},
				{"of a follower", follower, leader.id, word(term), false},
			} {
				index, ok := tc.leader.vouched(string(tc.from), tc.vouch)
				if ok != tc.want || ok && index != leader.raft.CommitIndex() {
					t.Errorf("%d voters, %s: %d, %t, want %t", voters, tc.name, index, ok, tc.want)
				}
			}
			r := follower.eligibility.read()
			r.votes = false
			if err := follower.eligibility.write(r); err != nil {
				t.Fatal(err)
			}
			if follower.vouch() != nil {
				t.Error("a voter vouches for a term that it may have forgotten")
			}
		})
	}
}
