package consensus

import (
	"encoding/hex"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A store votes at its start if it had the vote and lost nothing, or is of an earlier release; a lost log makes it a
// new store.
func TestVoterEligibilityDistinguishesACompleteLogFromALostOne(t *testing.T) {
	made := func(votes bool) *raft.InmemStore {
		disk := raft.NewInmemStore()
		f, err := openEligibility(disk, false)
		if err == nil && votes {
			err = f.grant(3)
		}
		if err != nil {
			t.Fatal(err)
		}
		return disk
	}
	before := raft.NewInmemStore() // of a release before
	if err := before.SetUint64([]byte(termKey), 4); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name         string
		disk         *raft.InmemStore
		lost         bool
		votes, stays bool
	}{
		{"empty disk", raft.NewInmemStore(), false, false, false},
		{"log of a release before", before, false, true, false},
		{"opened again without a vote", made(false), false, false, true},
		{"opened again with a vote", made(true), false, true, true},
		{"older log than the state", made(true), true, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			had := state.StoreID("")
			if encoded, err := tc.disk.Get([]byte(eligibilityKey)); err == nil && len(encoded) > 0 {
				f, err := openEligibility(tc.disk, false)
				if err != nil {
					t.Fatal(err)
				}
				had = f.read().store
			}
			f, err := openEligibility(tc.disk, tc.lost)
			if err != nil {
				t.Fatal(err)
			}
			r := f.read()
			if r.votes != tc.votes || len(r.store) != 2*storeIDBytes || (r.store == had) != tc.stays {
				t.Errorf("%+v, it was %q", r, had)
			}
			again, err := openEligibility(tc.disk, false)
			if err != nil || again.read() != r {
				t.Errorf("read again: %+v, %v", again, err)
			}
		})
	}
}

// A store keeps no vote before it is granted eligibility, nor one in the term of the grant or before.
func TestVotesAreRefusedUntilTheyAreGranted(t *testing.T) {
	disk := raft.NewInmemStore()
	f, err := openEligibility(disk, false)
	if err != nil {
		t.Fatal(err)
	}
	vote := func(term uint64) error { return f.SetUint64([]byte(voteTermKey), term) }
	if err := f.SetUint64([]byte(termKey), 7); err != nil {
		t.Errorf("a term is not kept: %v", err)
	}
	if err := vote(8); !errors.Is(err, errNoVote) {
		t.Errorf("a vote without leave: %v", err)
	}
	if err := f.grant(7); err != nil {
		t.Fatal(err)
	}
	if err := vote(7); !errors.Is(err, errNoVote) {
		t.Errorf("a second vote in a term, perhaps: %v", err)
	}
	if err := vote(8); err != nil {
		t.Errorf("a vote with leave: %v", err)
	}
	if err := disk.Set([]byte(eligibilityKey), []byte{9}); err != nil {
		t.Fatal(err)
	}
	if _, err := openEligibility(disk, false); err == nil {
		t.Error("a damaged eligibility was read")
	}
}

// The record of voter eligibility is encoded as the recorded bytes.
func TestVoterEligibilityKeepsItsBytes(t *testing.T) {
	disk := raft.NewInmemStore()
	f := &eligibility{StableStore: disk, own: disk}
	if err := f.write(eligibilityRecord{store: "store", votes: true, after: 300}); err != nil {
		t.Fatal(err)
	}
	got, err := disk.Get([]byte(eligibilityKey))
	if err != nil {
		t.Fatal(err)
	}
	const want = "010573746f726501ac02"
	if hex.EncodeToString(got) != want {
		t.Errorf("the format has changed: %x, was %s", got, want)
	}
}

// A node that comes back with an empty disk helps to elect nobody who lacks what it had acknowledged before (A11). It
// votes again when it has caught up.
func TestAWipedNodeDoesNotVoteBeforeItHasCaughtUp(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		leader := c.leader()
		others := c.others(leader.id)
		wiped, stale := c.nodes[others[0]], c.nodes[others[1]]
		c.sameEverywhere()
		c.network.isolate(stale.id, leader.id, wiped.id)
		leader.mustPin("acknowledged") // by the leader and the one that is wiped
		leader.kill()
		wiped.kill()
		c.network.isolate(leader.id, wiped.id, stale.id)
		wiped.store, wiped.disk, wiped.snaps = newMemStore(), raft.NewInmemStore(), &memSnapshots{}
		wiped.log = wiped.disk
		wiped.start()
		c.network.heal()
		// The two that are left would be a majority, without a part of the history.
		deadline := time.Now().Add(2 * time.Minute)
		for time.Now().Before(deadline) {
			if stale.IsLeader() || wiped.IsLeader() {
				t.Fatal("somebody leads who lacks what was acknowledged")
			}
			<-time.After(50 * time.Millisecond)
		}
		leader.start()
		c.until("there is a leader", func() bool { return leader.IsLeader() || stale.IsLeader() })
		leader.wantPins("acknowledged")
		if _, votes := wiped.Store(); votes {
			t.Error("it may vote before it is promoted")
		}
		c.announce(wiped.id)
		c.until("it votes again", func() bool {
			_, votes := wiped.Store()
			return votes && c.voters() == 3 && wiped.Ready() == nil
		})
		if !c.leader().demoted(wiped.id) {
			t.Error("it was a voter all the time")
		}
		c.sameEverywhere()
		// And its vote counts: it and the other one go on without the leader.
		c.leader().mustPin("b")
		c.sameEverywhere()
		gone := c.leader()
		gone.kill()
		c.leader(c.others(gone.id)...).mustPin("c")
		wiped.wantPins("acknowledged", "b", "c")
	})
}

// demoted tells whether a configuration in the log has a server as a non-voter
// after one that has it as a voter.
func (n *testNode) demoted(id state.NodeID) bool {
	last, err := n.disk.LastIndex()
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	voted := false
	for index := uint64(1); index <= last; index++ {
		var entry raft.Log
		if err := n.disk.GetLog(index, &entry); err != nil {
			n.cluster.t.Fatal(err)
		}
		if entry.Type != raft.LogConfiguration {
			continue
		}
		for _, s := range raft.DecodeConfiguration(entry.Data).Servers {
			if s.ID != raftID(id) {
				continue
			}
			if voted && s.Suffrage == raft.Nonvoter {
				return true
			}
			voted = voted || s.Suffrage == raft.Voter
		}
	}
	return false
}

// A follower that was wiped is a voter again in the end, while the others go on writing.
func TestAWipedFollowerComesBackUnderWrites(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 32, TrailingLogs: 8}
	inVirtualTime(t, 3, timings, func(t *testing.T, c *testCluster) {
		wiped := c.follower()
		for i := range 100 {
			c.leader().mustPin(string(rune('a'+i%26)) + time.Duration(i).String())
			<-time.After(20 * time.Millisecond)
		}
		wiped.kill()
		wiped.store, wiped.disk, wiped.snaps = newMemStore(), raft.NewInmemStore(), &memSnapshots{}
		wiped.log = wiped.disk
		wiped.start()
		announced := false
		c.until("it is a voter again", func() bool {
			c.leader(c.others(wiped.id)...).mustPin(time.Now().String())
			if _, known := wiped.Leader(); known && !announced {
				c.announce(wiped.id)
				announced = true
			}
			_, votes := wiped.Store()
			return votes && wiped.Ready() == nil && c.leader().Roles()[wiped.id] == roleVoter
		})
		c.sameEverywhere()
	})
}

// forgetful is a stable store that takes no eligibility as long as a test wants so.
type forgetful struct {
	raft.StableStore
	full atomic.Bool
}

func (f *forgetful) Set(key, value []byte) error {
	if f.full.Load() && string(key) == eligibilityKey {
		return errFull
	}
	return f.StableStore.Set(key, value)
}

// A member that cannot vote yet counts for no majority: with another one down there
// would be nobody to elect a leader, and only a leader could let it vote.
func TestAMemberCountsWhenItHasTakenItsVote(t *testing.T) {
	inVirtualTime(t, 2, Timings{}, func(t *testing.T, c *testCluster) {
		node := c.empty("n3")
		values := &forgetful{StableStore: node.disk}
		node.tune = func(o *Options) {
			o.Stable = values
			o.NoSpace = func(err error) bool { return errors.Is(err, errFull) }
		}
		node.start()
		values.full.Store(true)
		c.join(node.id)
		c.until("the state lets it vote", func() bool {
			view, release := c.leader().LocalView()
			defer release()
			record, err := view.Node(node.id)
			return err == nil && record.Votes
		})
		for range 10 { // looks of the leader
			if role := c.leader().Roles()[node.id]; role != roleNonvoter {
				t.Fatalf("it is a %s", role)
			}
			<-time.After(2 * time.Second)
		}
		values.full.Store(false)
		c.until("it is a voter", func() bool { return c.voters() == 3 })
	})
}

// A command follows each entry of the log that gives a vote, on a cluster that is idle too. Whether the word of who
// gets it counts for its own vote is left to chance (grantVote).
func TestAnEntryFollowsEachVote(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		<-time.After(time.Minute)
		n := c.leader()
		last, err := n.disk.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		voters, followed := 1, true
		for index := uint64(1); index <= last; index++ {
			var entry raft.Log
			if err := n.disk.GetLog(index, &entry); err != nil {
				t.Fatal(err)
			}
			switch entry.Type {
			case raft.LogCommand:
				followed = true
			case raft.LogConfiguration:
				servers := raft.DecodeConfiguration(entry.Data).Servers
				now := len(slices.DeleteFunc(servers, func(s raft.Server) bool { return s.Suffrage != raft.Voter }))
				followed = followed && now <= voters
				voters = now
			}
		}
		if voters != 3 || !followed {
			t.Errorf("%d voters, and an entry behind the last vote: %t", voters, followed)
		}
	})
}
