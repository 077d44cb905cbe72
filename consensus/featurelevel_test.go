package consensus

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// entryOf returns a log entry with one command.
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

// New commands are refused until all members understand them, also those that are down; upgraded nodes go on voting.
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
			own.FeatureLevel = 1
			if _, err := n.Propose(t.Context(), &state.UpdateNode{Node: own}); !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("a record of version 2 at level 0: %v", err)
			}
		}
		leader := c.leader()
		leader.mustPin("a")
		if _, err := leader.Propose(t.Context(), &state.RemoveNode{ID: "old"}); err != nil {
			t.Fatal(err)
		}
		c.until("the level is the newest", func() bool { return leader.fsm.level() == state.NewestFeatureLevel })
		c.level = state.NewestFeatureLevel
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

// A command of an unknown kind or feature level ends the node with ErrTooOld, and nothing of its batch is applied.
func TestACommandOfALaterReleaseEndsTheNodeWithTheReason(t *testing.T) {
	for name, data := range map[string][]byte{
		"unknown kind":  unknownKind(t),
		"unknown level": entryOf(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel + 1}),
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

// No revoked key changes anything, at level 0 and at the newest level. A change by an API key is judged by Apply
// where all members do that, and by the node that proposes it before.
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

// foundAt founds a cluster of three at a level, and returns one that does not lead and what
// proposes through it.
func (c *testCluster) foundAt(level state.FeatureLevel) (n *testNode, propose func(state.Command) error) {
	c.level = level
	c.found(c.add("n1"))
	for _, id := range []state.NodeID{"n2", "n3"} {
		c.add(id)
		c.join(id)
	}
	c.until("three vote", func() bool { return c.voters() == 3 && c.ready() == 3 })
	n = c.nodes["n2"]
	return n, func(cmd state.Command) error {
		_, err := n.Propose(c.t.Context(), cmd)
		return err
	}
}

// At level 3 the proposing node judges the key or session of a bucket's creation, and proposes the creation alone.
// Below level 4 there may be members that cannot read a change of the object gateway with its caller.
func TestAtLevel3ChangesOfTheGatewayArePreauthenticated(t *testing.T) {
	inVirtualTime(t, 0, Timings{}, func(t *testing.T, c *testCluster) {
		n, propose := c.foundAt(3)
		for _, err := range []error{
			propose(&state.CreateKey{Key: state.APIKey{ID: "key", Account: account, Scope: []string{state.ScopeWrite}, Created: 1}}),
			propose(&state.SetPassword{Account: account, Hash: "hash"}),
			propose(&state.CreateSession{
				Session:  state.Session{ID: "session", Account: account, Created: 1, Expires: 1 << 50, Idle: 1 << 40},
				Password: state.PasswordProof("hash"),
			}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, by := range map[string]func(change state.Command) state.Command{
			"key":     func(change state.Command) state.Command { return &state.ByKey{Key: "key", Change: change} },
			"session": func(change state.Command) state.Command { return &state.BySession{Session: "session", Change: change} },
		} {
			bucket := &state.CreateBucket{Bucket: state.Bucket{Account: account, Name: name, Created: 1}}
			if cmd, err := n.preauthenticated(t.Context(), by(bucket)); err != nil || cmd != state.Command(bucket) {
				t.Errorf("by a %s: %T is proposed, %v", name, cmd, err)
			}
			if err := propose(by(bucket)); err != nil {
				t.Errorf("by a %s: %v", name, err)
			}
		}
		for _, err := range []error{propose(&state.RevokeKey{ID: "key"}), propose(&state.EndSession{ID: "session"})} {
			if err != nil {
				t.Fatal(err)
			}
		}
		more := &state.CreateBucket{Bucket: state.Bucket{Account: account, Name: "more", Created: 1}}
		for _, cmd := range []state.Command{&state.ByKey{Key: "key", Change: more}, &state.BySession{Session: "session", Change: more}} {
			if err := propose(cmd); !errors.Is(err, state.ErrUnauthorized) {
				t.Errorf("%T of who may not any more: %v", cmd, err)
			}
		}
		if level := n.fsm.level(); level != 3 {
			t.Errorf("the level is %d", level)
		}
	})
}

// newer makes a state that of a level that this release does not know.
func newer(t *testing.T, store *memStore) {
	t.Helper()
	tx := store.Begin()
	if err := errors.Join(tx.Set([]byte("Mlevel"), binary.BigEndian.AppendUint64(nil, uint64(state.NewestFeatureLevel)+1)), tx.Commit(true)); err != nil {
		t.Fatal(err)
	}
}

// A release that is too old for a state ends with the reason, be the state its own, which a
// newer release had, or a leader's. It takes no snapshot for damaged: the newer release needs it.
func TestAStateOfALaterReleaseEndsTheNodeWithTheReason(t *testing.T) {
	store := newMemStore()
	var failed error
	open := func() (*fsm, error) {
		return openFSM(Options{Store: store, CheckpointDir: t.TempDir(), Watch: &state.Watch{}, Logger: quiet()}, func(err error) { failed = err })
	}
	f, err := open()
	if err != nil {
		t.Fatal(err)
	}
	f.refused = func(id string, err error) { t.Errorf("snapshot %q: %v", id, err) }
	later := newMemStore()
	newer(t, later)
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := later.Checkpoint(dir); err != nil {
		t.Fatal(err)
	}
	snapshot, err := os.Open(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Restore(snapshot); !errors.Is(err, state.ErrTooOld) || !errors.Is(failed, state.ErrTooOld) {
		t.Errorf("a snapshot: %v, failed with %v", err, failed)
	}
	if _, err := open(); !errors.Is(err, state.ErrTooOld) {
		t.Errorf("at a start: %v", err)
	}
}

// A start whose state comes from a snapshot of a later release fails with ErrTooOld.
func TestASnapshotOfALaterReleaseEndsTheStart(t *testing.T) {
	inVirtualTime(t, 1, Timings{}, func(t *testing.T, c *testCluster) {
		n := c.nodes["n1"]
		n.mustPin("a")
		newer(t, n.store)
		if err := n.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		n.kill()
		// Its store is lost, so that the state comes from the snapshot.
		_, err := Open(Options{
			ID: n.id, Store: newMemStore(), Log: n.log, Stable: n.disk, Snapshots: n.snaps, CheckpointDir: t.TempDir(),
			Network: c.network.of(n.id), Watch: &state.Watch{}, Logger: quiet(),
		})
		if !errors.Is(err, state.ErrTooOld) {
			t.Errorf("opened with %v", err)
		}
	})
}

// At level 4 no command with a storage class, tags of a bucket or a newer checksum is proposed, also by a key. Below
// level 5 there may be members that do not know them. At the newest level all of these are proposed.
func TestAtLevel4CommandsOfLevel5Wait(t *testing.T) {
	inVirtualTime(t, 0, Timings{}, func(t *testing.T, c *testCluster) {
		n, propose := c.foundAt(4)
		if err := errors.Join(
			propose(&state.CreateKey{Key: state.APIKey{ID: "key", Account: account, Scope: []string{state.ScopeWrite}, Created: 1}}),
			propose(&state.CreateBucket{Bucket: state.Bucket{Account: account, Name: "bucket", Created: 1}}),
		); err != nil {
			t.Fatal(err)
		}
		view, release := n.LocalView()
		b, err := view.Bucket(account, "bucket")
		release()
		if err != nil {
			t.Fatal(err)
		}
		tags := &state.SetBucketTags{Account: account, Bucket: b.Name, Born: b.Born, Tags: state.BucketTags{Tags: []state.Tag{{Key: "a"}}}}
		classed := &state.CreateUpload{Account: account, Bucket: b.Name, Born: b.Born, Upload: state.Upload{ID: "classed", Key: "k", Created: 1, StorageClass: "GLACIER"}}
		summed := &state.CreateUpload{Account: account, Bucket: b.Name, Born: b.Born, Upload: state.Upload{ID: "summed", Key: "k", Created: 1, Checksum: state.Checksum{Algorithm: "SHA512"}}}
		all := []state.Command{tags, classed, summed, &state.ByKey{Key: "key", Change: tags}, &state.ByKey{Key: "key", Change: classed}}
		for _, cmd := range all {
			if err := propose(cmd); !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("%T at level 4: %v", cmd, err)
			}
		}
		old := &state.CreateUpload{Account: account, Bucket: b.Name, Born: b.Born, Upload: state.Upload{ID: "old", Key: "k", Created: 1, Checksum: state.Checksum{Algorithm: "SHA256"}}}
		if err := propose(old); err != nil {
			t.Error("an upload that every release knows:", err)
		}
		c.level = state.NewestFeatureLevel
		for _, id := range c.ids() {
			c.announce(id)
		}
		c.until("the level is the newest", func() bool { return n.fsm.level() == state.NewestFeatureLevel })
		for _, cmd := range all {
			if err := propose(cmd); err != nil {
				t.Errorf("%T at level %d: %v", cmd, state.NewestFeatureLevel, err)
			}
		}
	})
}
