package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// keeper runs a node, and again whenever it ended to make its state anew, as
// `holdfast run` does.
type keeper struct {
	config   config.Config
	now      atomic.Pointer[node.Node]
	rebuilds atomic.Int32
	log      *lines

	cancel context.CancelFunc
	ended  chan error
}

// lines is what a node logged.
type lines struct{ text atomic.Pointer[string] }

func (l *lines) Write(p []byte) (int, error) {
	for {
		old := l.text.Load()
		text := string(p)
		if old != nil {
			text = *old + text
		}
		if l.text.CompareAndSwap(old, &text) {
			return len(p), nil
		}
	}
}

func (l *lines) String() string {
	if text := l.text.Load(); text != nil {
		return *text
	}
	return ""
}

// keep starts a keeper, which the test's end stops.
func keep(t *testing.T, c config.Config) *keeper {
	t.Helper()
	k := &keeper{config: c, log: new(lines)}
	k.start()
	t.Cleanup(func() {
		if err := k.stop(); err != nil {
			t.Errorf("stop %s: %v", c.Data, err)
		}
		if t.Failed() {
			t.Logf("%s logged:\n%s", c.Node.Name, tail(k.log.String(), 6000))
		}
	})
	return k
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func (k *keeper) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	k.cancel, k.ended = cancel, ended
	go func() { ended <- k.run(ctx) }()
}

func (k *keeper) run(ctx context.Context) error {
	for {
		n, err := node.Open(ctx, node.Options{
			Config: k.config, Version: "test", Logger: slog.New(slog.NewTextHandler(k.log, nil)),
			Timings: consensus.Timings{SnapshotInterval: 200 * time.Millisecond, SnapshotThreshold: 16, TrailingLogs: 8},
		})
		if errors.Is(err, node.ErrRebuild) {
			k.rebuilds.Add(1)
			continue
		}
		if err != nil {
			return err
		}
		k.now.Store(n)
		err = n.Run(ctx)
		k.now.Store(nil)
		if cerr := n.Close(); cerr != nil {
			return errors.Join(err, cerr)
		}
		if !errors.Is(err, node.ErrRebuild) {
			return err
		}
		k.rebuilds.Add(1)
	}
}

// stop ends the node in order; a second call does nothing.
func (k *keeper) stop() error {
	if k.cancel == nil {
		return nil
	}
	k.cancel()
	k.cancel = nil
	return <-k.ended
}

// whole tells whether the node runs, is ready, and votes.
func (k *keeper) whole() bool {
	n := k.now.Load()
	if n == nil || n.Ready() != nil {
		return false
	}
	_, votes := n.Replica().Store()
	s, err := n.Members().Status(context.Background())
	if err != nil || !votes {
		return false
	}
	return slices.ContainsFunc(s.Peers, func(p members.Peer) bool { return p.ID == s.Node.ID && p.Role == "voter" })
}

func settings(dir, join, secretFile string) config.Config {
	c := config.Default()
	c.Data = dir
	c.Node.Name = filepath.Base(dir)
	c.Peer.Listen = []string{"/ip4/127.0.0.1/tcp/0"}
	c.Peer.ClusterListen = []string{"/ip4/127.0.0.1/tcp/0"}
	c.Peer.Routing = config.RoutingOff
	if join != "" {
		c.Cluster.Join, c.Cluster.SecretFile = []string{join}, secretFile
	}
	return c
}

// threeKept returns a cluster of three, each of which can be stopped, harmed and
// started again.
func threeKept(t *testing.T) []*keeper {
	t.Helper()
	base := t.TempDir()
	// The same port after a restart, so that who knows it finds it.
	at := func(c config.Config) config.Config {
		c.Peer.ClusterListen = freeAddrs(t, 1)
		return c
	}
	first := keep(t, at(settings(filepath.Join(base, "node1"), "", "")))
	await(t, "node1 is there", first.whole)
	s, err := first.now.Load().Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// A copy: the wiped nodes join again with it.
	secret, err := os.ReadFile(filepath.Join(first.config.Data, node.SecretFile))
	if err != nil {
		t.Fatal(err)
	}
	secretFile := filepath.Join(base, "secret")
	if err := os.WriteFile(secretFile, secret, 0o600); err != nil {
		t.Fatal(err)
	}
	nodes := []*keeper{first}
	for _, name := range []string{"node2", "node3"} {
		k := keep(t, at(settings(filepath.Join(base, name), s.Node.ClusterAddrs[0], secretFile)))
		await(t, name+" votes", k.whole)
		nodes = append(nodes, k)
	}
	first.config.Cluster.Join, first.config.Cluster.SecretFile = nodes[1].joinAddrs(t), secretFile
	return nodes
}

func (k *keeper) joinAddrs(t *testing.T) []string {
	t.Helper()
	s, err := k.now.Load().Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.Node.ClusterAddrs[:1]
}

// write changes the state through a node that runs.
func write(t *testing.T, k *keeper, email string) {
	t.Helper()
	await(t, "account "+email, func() bool {
		_, err := k.now.Load().Accounts().CreateAccount(t.Context(), email, "")
		return err == nil || errors.Is(err, state.ErrExists)
	})
}

// sameState waits until all nodes stand at one index and compares.
func sameState(t *testing.T, nodes []*keeper) {
	t.Helper()
	await(t, "the same state everywhere", func() bool {
		var index uint64
		var hash state.Hash
		for i, k := range nodes {
			n := k.now.Load()
			if n == nil {
				return false
			}
			at, h, err := n.Replica().StateHash(t.Context())
			if err != nil || i > 0 && at != index {
				return false
			}
			if i > 0 && h != hash {
				t.Fatalf("%s has %s at %d, another %s", k.config.Node.Name, h, at, hash)
			}
			index, hash = at, h
		}
		return true
	})
}

// removeAllBut removes everything in a folder but some names.
func removeAllBut(dir string, names ...string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// TestAMemberThatLostItsDiskComesBackWithoutAVote promises that a member that lost a part of its data folder comes
// back, with a new Raft store if its log is gone and with its old one otherwise (A11).
func TestAMemberThatLostItsDiskComesBackWithoutAVote(t *testing.T) {
	nodes := threeKept(t)
	for i, tc := range []struct {
		name     string
		node     int
		lose     func(dir string) error
		newStore bool
	}{
		{"all but its identity", 2, func(dir string) error { return removeAllBut(dir, "identity.key") }, true},
		{"log and state", 1, func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "raft")), os.RemoveAll(filepath.Join(dir, "state")))
		}, true},
		{"log", 2, func(dir string) error { return os.RemoveAll(filepath.Join(dir, "raft")) }, true},
		{"state", 1, func(dir string) error { return os.RemoveAll(filepath.Join(dir, "state")) }, false},
		{"all but its identity and the secret", 2, func(dir string) error {
			nodes[2].config.Cluster.SecretFile = "" // the one beside it does
			return removeAllBut(dir, identityFile, node.SecretFile)
		}, true},
		{"log and state of the founder", 0, func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "raft")), os.RemoveAll(filepath.Join(dir, "state")))
		}, true},
	} {
		k, others := nodes[tc.node], slices.Delete(slices.Clone(nodes), tc.node, tc.node+1)
		before, _ := k.now.Load().Replica().Store()
		if err := k.stop(); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if err := tc.lose(k.config.Data); err != nil {
			t.Fatal(err)
		}
		write(t, others[0], fmt.Sprintf("while-away-%d@example.org", i))
		k.start()
		await(t, tc.name+": it is whole again", k.whole)
		after, _ := k.now.Load().Replica().Store()
		if (after != before) != tc.newStore {
			t.Errorf("%s: store %s, it was %s", tc.name, after, before)
		}
		write(t, k, fmt.Sprintf("back-%d@example.org", i))
		sameState(t, nodes)
	}
}

// TestANodeWithAnotherStateIsMadeAnew promises that the cluster finds a node whose state differs, and that the node
// replaces its state once and is a member again, without anybody's help.
func TestANodeWithAnotherStateIsMadeAnew(t *testing.T) {
	nodes := threeKept(t)
	write(t, nodes[0], "someone@example.org")
	sameState(t, nodes)
	sick := nodes[1]
	if err := sick.stop(); err != nil {
		t.Fatal(err)
	}
	tamper(t, filepath.Join(sick.config.Data, "state"), "someone@example.org", "someone@example.com")
	sick.start()
	await(t, "it runs", sick.whole)
	check, err := nodes[0].now.Load().Replica().CheckState(t.Context())
	if err != nil || !check.Differs() {
		t.Fatalf("%+v, %v", check, err)
	}
	await(t, "it was made anew", func() bool { return sick.rebuilds.Load() > 0 })
	await(t, "it is whole again", sick.whole)
	sameState(t, nodes)
	await(t, "what was set aside is gone", func() bool {
		_, err := os.Stat(filepath.Join(sick.config.Data, "aside"))
		return errors.Is(err, fs.ErrNotExist)
	})
	if n := sick.rebuilds.Load(); n != 1 {
		t.Errorf("made anew %d times", n)
	}
}

// tamper changes a value behind the node's back.
func tamper(t *testing.T, dir, old, other string) {
	t.Helper()
	store, err := kv.Open(dir, kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx := store.Begin()
	var key, value []byte
	err = tx.Scan([]byte{1}, nil, false, func(k, v []byte) (bool, error) {
		if bytes.Contains(v, []byte(old)) {
			key, value = bytes.Clone(k), bytes.ReplaceAll(v, []byte(old), []byte(other))
			return false, nil
		}
		return true, nil
	})
	if err == nil && key == nil {
		err = errors.New("no value to change")
	}
	if err = errors.Join(err, tx.Set(key, value), tx.Commit(true), store.Close()); err != nil {
		t.Fatal(err)
	}
}
