package consensus

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// entryOf is a log entry with one command.
func entryOf(t *testing.T, cmd state.Command) []byte {
	t.Helper()
	body, err := wire.EncodeCommand(wire.Command{Body: cmd})
	if err != nil {
		t.Fatal(err)
	}
	data, err := wire.EncodeEntry([][]byte{body})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// atLevel0 runs a test of three nodes in a cluster that the release before
// founded, on a node that is a member still and never answers.
func atLevel0(t *testing.T, test func(t *testing.T, c *testCluster)) {
	inVirtualTime(t, 0, Timings{}, func(t *testing.T, c *testCluster) {
		c.level = 0
		for _, id := range []state.NodeID{"n1", "n2", "n3"} {
			n := c.add(id)
			if id == "n1" {
				c.foundBy(n, member("old"))
			}
			c.join(id)
		}
		test(t, c)
	})
}

// What is new is proposed when all members understand it, also those that are
// down at the moment; a node that has upgraded goes on voting.
func TestNewCommandsWaitForTheLastMember(t *testing.T) {
	atLevel0(t, func(t *testing.T, c *testCluster) {
		c.until("three vote", func() bool { return c.voters() == 3 && c.ready() == 3 })
		<-time.After(5 * time.Minute)
		for _, n := range c.nodes {
			if level := n.fsm.level(); level != 0 {
				t.Fatalf("level %d while a member does not understand it", level)
			}
			if _, err := n.CheckState(t.Context()); !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("a check at level 0: %v", err)
			}
			own := member(n.id)
			own.Level = 1
			if _, err := n.Propose(t.Context(), &state.UpdateNode{Node: own}); !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("a record of version 2 at level 0: %v", err)
			}
		}
		leader := c.leader()
		leader.mustPin("a")
		if _, err := leader.Propose(t.Context(), &state.RemoveNode{ID: "old"}); err != nil {
			t.Fatal(err)
		}
		c.until("the level is the newest", func() bool { return leader.fsm.level() == state.NewestLevel })
		c.level = state.NewestLevel
		for _, id := range c.ids() {
			c.announce(id)
		}
		c.until("all vote as before", func() bool { return c.voters() == 3 && c.ready() == 3 })
		check, err := leader.CheckState(t.Context())
		if err != nil || !check.Complete() || check.Differs() {
			t.Errorf("%+v, %v", check, err)
		}
		gone := c.leader()
		gone.kill()
		c.leader(c.others(gone.id)...).mustPin("b")
	})
}

func TestACommandOfALaterReleaseEndsTheNodeWithTheReason(t *testing.T) {
	for name, data := range map[string][]byte{
		"unknown kind":  unknownKind(t),
		"unknown level": entryOf(t, &state.RaiseLevel{Level: state.NewestLevel + 1}),
	} {
		var failed error
		f, err := openFSM(Options{Store: newMemStore(), CheckpointDir: t.TempDir(), Watch: &state.Watch{}, Logger: quiet()},
			func(err error) { failed = err })
		if err != nil {
			t.Fatal(err)
		}
		found := entryOf(t, &state.InitCluster{
			Cluster: state.Cluster{ID: "c", Replication: 1, WriteCopies: 1, Operator: account},
			Node:    member("n1"), Operator: state.Account{ID: account, Email: "operator@localhost"},
		})
		f.ApplyBatch([]*raft.Log{
			{Index: 1, Term: 1, Type: raft.LogCommand, Data: found}, {Index: 2, Term: 1, Type: raft.LogCommand, Data: data},
		})
		if !errors.Is(failed, state.ErrTooOld) {
			t.Errorf("%s: failed with %v", name, failed)
		}
		if at := f.progress.index(); at != 0 {
			t.Errorf("%s: went on to %d", name, at)
		}
	}
}

// A change by an API key is judged by Apply where all members do that, and by
// the node that proposes it before: no revoked key changes anything either way.
func TestRevokedKeyChangesNothingAtAnyLevel(t *testing.T) {
	revoked := func(t *testing.T, c *testCluster) {
		c.until("three vote", func() bool { return c.voters() == 3 && c.ready() == 3 })
		for i, id := range []state.NodeID{"n1", "n2", "n3"} {
			n, other := c.nodes[id], c.nodes[[]state.NodeID{"n2", "n3", "n1"}[i]]
			key := state.APIKey{ID: state.KeyID("key of " + n.id), Account: account, Scope: []string{state.ScopeWrite}, Created: 1}
			if _, err := n.Propose(t.Context(), &state.CreateKey{Key: key}); err != nil {
				t.Fatal(err)
			}
			by := &state.ByKey{Key: key.ID, Change: pin("first of " + string(n.id))}
			if _, err := n.Propose(t.Context(), by); err != nil {
				t.Errorf("with the key: %v", err)
			}
			// Through another node, so that this one may not know yet.
			if _, err := other.Propose(t.Context(), &state.RevokeKey{ID: key.ID}); err != nil {
				t.Fatal(err)
			}
			by.Change = pin("second of " + string(n.id))
			if _, err := n.Propose(t.Context(), by); !errors.Is(err, state.ErrUnauthorized) {
				t.Errorf("with the revoked key: %v", err)
			}
		}
		c.nodes["n2"].wantPins("first of n1", "first of n2", "first of n3")
	}
	t.Run("level 0", func(t *testing.T) { atLevel0(t, revoked) })
	t.Run("level 1", func(t *testing.T) { inVirtualTime(t, 3, Timings{}, revoked) })
}
