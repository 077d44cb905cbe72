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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// often makes snapshots after a few entries and keeps hardly any behind them.
func often(o *node.Options) {
	o.Timings = consensus.Timings{SnapshotInterval: 100 * time.Millisecond, SnapshotThreshold: soon, TrailingLogs: 8}
}

// soon is behind how many entries often makes the next snapshot.
const soon = 32

// installs counts what a node logs when it has taken a leader's snapshot.
type installs struct {
	slog.Handler
	count *atomic.Int64
}

func (i installs) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(strings.ToLower(r.Message), "installed remote snapshot") {
		i.count.Add(1)
	}
	return nil
}

func (installs) Enabled(context.Context, slog.Level) bool { return true }
func (i installs) WithAttrs([]slog.Attr) slog.Handler     { return i }
func (i installs) WithGroup(string) slog.Handler          { return i }

// contents is what the state holds, as one node shows it.
type contents struct {
	pins, members, accounts []string
	hash                    state.Hash
}

// TestASnapshotHoldsEverything promises that a node that was away gets pins, accounts, keys, tickets and members by a
// snapshot (acceptance row 265). It was away for longer than the log reaches back. All of it is there when every node
// has been restarted.
func TestASnapshotHoldsEverything(t *testing.T) {
	// Where a node listens nobody else does while it is down: at the end all start again at once.
	ports := func(o *node.Options) { o.Config.Peer.ClusterListen = freeAddrs(t, 1) }
	nodes := three(t, often, ports)
	first, last := nodes[0], nodes[2]
	file := []byte("held by all three")
	root, _, err := first.Content().Add(t.Context(), bytes.NewReader(file), content.Layout{})
	if err != nil {
		t.Fatal(err)
	}
	early := fill(t, first, "early", root.String())
	if err := last.stop(); err != nil {
		t.Fatal(err)
	}
	late := fill(t, nodes[1], "late", root.String())
	ticket := ticketOf(t, first)
	write := func() {
		pin, err := first.Pins().Create(t.Context(), late.account, pins.Request{CID: root.String()})
		if err == nil {
			err = first.Pins().Delete(t.Context(), late.account, pin.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	snapshots := func() []string {
		found, err := filepath.Glob(filepath.Join(first.dir, "raft", "*", "meta.json"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for range 100 { // the log reaches back 40 entries at the most
		write()
	}
	made := snapshots() // of which the newest may lie before all that
	await(t, "a snapshot of what was written is on the disk", func() bool {
		write()
		return slices.ContainsFunc(snapshots(), func(s string) bool { return !slices.Contains(made, s) })
	})
	var installed atomic.Int64
	conf := last.config
	conf.Cluster.Join = nil // a member already
	// The leader may have read its snapshot through for it while it was away, before the rot.
	// It is sent that one then, finds it broken, and ends.
	nodes[2] = runAgain(t, conf, often, ports, func(o *node.Options) { o.Logger = slog.New(installs{slog.DiscardHandler, &installed}) })
	if installed.Load() == 0 {
		t.Fatal("the node that was away got no snapshot: the test shows nothing")
	}
	before := same(t, nodes, early, late)

	// A node joins with the ticket, through the node that has it from the
	// snapshot, and nobody does twice.
	conf.Data, conf.Node.Name = filepath.Join(filepath.Dir(first.dir), "node4"), "node4"
	conf.Cluster.Join, conf.Cluster.SecretFile = []string{ticket}, ""
	fourth := run(t, conf, often, ports)
	conf.Data = filepath.Join(filepath.Dir(first.dir), "node5")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if n, err := node.Open(ctx, node.Options{Config: conf, Version: "test", Logger: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a ticket admits two nodes", n.Close())
	}
	nodes = append(nodes, fourth)
	now := same(t, nodes, early, late)
	if !slices.Equal(now.pins, before.pins) || !slices.Equal(now.accounts, before.accounts) || len(now.members) != 4 {
		t.Errorf("%+v, before the fourth node %+v", now, before)
	}

	for _, n := range nodes {
		s, err := n.Members().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// All start at once, so each has to be where the others look for it.
		n.config.Peer.ClusterListen = []string{strings.Split(s.Node.ClusterAddrs[0], "/p2p/")[0]}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
	var again []*running
	for _, n := range nodes { // no one of them is ready alone
		conf := n.config
		conf.Cluster.Join = nil
		opened, err := node.Open(t.Context(), node.Options{Config: conf, Version: "test", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		again = append(again, serve(t, opened, conf))
	}
	for _, n := range again {
		await(t, "ready "+n.config.Node.Name, func() bool { return n.Ready() == nil })
	}
	if after := same(t, again, early, late); !slices.Equal(after.pins, now.pins) || !slices.Equal(after.accounts, now.accounts) || !slices.Equal(after.members, now.members) {
		t.Errorf("after a restart of all: %+v, before %+v", after, now)
	}
}

// filled is an account with a key that is valid and one that was revoked.
type filled struct {
	account        state.AccountID
	valid, revoked string
}

// fill makes an account with keys and pins through one node.
func fill(t *testing.T, n *running, name, cid string) filled {
	t.Helper()
	email := name + "@example.org"
	account, err := n.Accounts().CreateAccount(t.Context(), email, "")
	if err != nil {
		t.Fatal(err)
	}
	f := filled{account: account.ID}
	for _, token := range []*string{&f.valid, &f.revoked} {
		key, err := n.Accounts().CreateKey(t.Context(), email, name, []string{state.ScopeRead}, 0)
		if err != nil {
			t.Fatal(err)
		}
		*token = key.Token
		if token == &f.revoked {
			if err := n.Accounts().Revoke(t.Context(), key.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 20 {
		if _, err := n.Pins().Create(t.Context(), account.ID, pins.Request{CID: cid, Name: fmt.Sprint(i), Meta: map[string]string{"i": fmt.Sprint(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// same wants the same of all nodes, keys included, and returns it.
func same(t *testing.T, nodes []*running, all ...filled) contents {
	t.Helper()
	var first contents
	for i, n := range nodes {
		var c contents
		for _, f := range all {
			if p, err := n.Accounts().Authenticate(t.Context(), f.valid); err != nil || p.Account != f.account {
				t.Errorf("%s: a valid key: %+v, %v", n.config.Node.Name, p, err)
			}
			if _, err := n.Accounts().Authenticate(t.Context(), f.revoked); !errors.Is(err, state.ErrUnauthorized) {
				t.Errorf("%s: a revoked key: %v", n.config.Node.Name, err)
			}
			count, list, err := n.Pins().List(t.Context(), f.account, state.PinQuery{Limit: 1000})
			if err != nil || count != uint64(len(list)) || count != 20 {
				t.Fatalf("%s lists %d of %d pins: %v", n.config.Node.Name, len(list), count, err)
			}
			for _, p := range list {
				c.pins = append(c.pins, fmt.Sprint(p.ID, p.Created, p.CID, p.Name, p.Meta))
			}
		}
		list, err := n.Accounts().List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range list {
			c.accounts = append(c.accounts, fmt.Sprint(a.ID, a.Email, a.Created))
		}
		for _, m := range n.Members().Nodes() {
			c.members = append(c.members, string(m.ID))
		}
		slices.Sort(c.members)
		if i == 0 {
			first = c
		} else if !slices.Equal(c.pins, first.pins) || !slices.Equal(c.accounts, first.accounts) || !slices.Equal(c.members, first.members) {
			t.Errorf("%s shows %+v, %s %+v", n.config.Node.Name, c, nodes[0].config.Node.Name, first)
		}
	}
	await(t, "all have the same state", func() bool {
		var index uint64
		for i, n := range nodes {
			at, hash, err := n.Replica().StateHash(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				index, first.hash = at, hash
			}
			if at != index {
				return false
			}
			if hash != first.hash {
				t.Fatalf("at %d the state of %s is %s, that of %s %s", at, n.config.Node.Name, hash, nodes[0].config.Node.Name, first.hash)
			}
		}
		return true
	})
	return first
}

// emptyFile is the CID of the file without a byte.
const emptyFile = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"

// TestARottenSnapshotIsNotSent promises that a node that needs a snapshot gets a new one when all snapshots of the
// others have rotted on disk.
func TestARottenSnapshotIsNotSent(t *testing.T) {
	for !sentAfterRot(t) {
		t.Log("a member took a snapshot after the rot, to shorten its log: once more")
	}
}

// sentAfterRot keeps the third of three new nodes away until it needs a snapshot, damages all
// snapshots of the two others, and starts the third again. It returns whether a damaged one was found. If
// not, a whole one was taken between the damage and the sending: a leader that has just tried
// to send one to the absent node takes another to shorten its log, whenever that is.
func sentAfterRot(t *testing.T) bool {
	t.Helper()
	nodes := three(t, often)
	first, last := nodes[0], nodes[2]
	early := fill(t, first, "early", emptyFile)
	if err := last.stop(); err != nil {
		t.Fatal(err)
	}
	// Of snapshots that are being made, removed or read through the folders end in this.
	const busy = ".tmp"
	found := func(n *running, pattern string) []string {
		files, err := filepath.Glob(filepath.Join(n.dir, "raft", pattern))
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(files, func(path string) bool { return strings.Contains(path, busy+"/") })
	}
	const metas = "*-*-*/meta.json"
	made := map[*running][]string{first: found(first, metas), nodes[1]: found(nodes[1], metas)}
	write := func() {
		pin, err := first.Pins().Create(t.Context(), early.account, pins.Request{CID: emptyFile})
		if err == nil {
			err = first.Pins().Delete(t.Context(), early.account, pin.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 100 { // the log reaches back 40 entries at the most
		write()
	}
	for _, n := range nodes[:2] {
		await(t, "only newer snapshots are on the disk", func() bool {
			write()
			return !slices.ContainsFunc(found(n, metas), func(s string) bool { return slices.Contains(made[n], s) })
		})
	}
	// One that is due would be made after the rot, and sent instead.
	fresh := func(n *running) bool {
		at, _, err := n.Replica().StateHash(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(found(n, metas), func(s string) bool {
			var index uint64 // its folder is named after its index
			_, err := fmt.Sscanf(filepath.Base(filepath.Dir(s)), "%d-", &index)
			return err == nil && index+soon/2 > at
		})
	}
	settled := func(n *running) bool { // of more than two the oldest is about to go
		return len(found(n, metas)) <= 2 && len(found(n, "*"+busy)) == 0
	}
	await(t, "no further snapshot is due, and none is made or removed", func() bool {
		if !settled(first) || !settled(nodes[1]) {
			return false
		}
		if fresh(first) && fresh(nodes[1]) {
			return true
		}
		write()
		return false
	})
	for _, n := range nodes[:2] {
		rot(t, found(n, "*-*-*/checkpoint/*.log"))
	}
	rotten := append(found(first, metas), found(nodes[1], metas)...)
	var installed atomic.Int64
	conf := last.config
	conf.Cluster.Join = nil
	// The leader may have read its snapshot through for it while it was away, before the rot.
	// It is sent that one then, finds it broken, and ends.
	nodes[2] = runAgain(t, conf, often, func(o *node.Options) { o.Logger = slog.New(installs{slog.DiscardHandler, &installed}) })
	await(t, "the node that was away has taken a snapshot", func() bool { return installed.Load() > 0 })
	same(t, nodes, early)
	if len(found(first, "*.rotten"))+len(found(nodes[1], "*.rotten")) > 0 {
		return true
	}
	after := append(found(first, metas), found(nodes[1], metas)...)
	if !slices.ContainsFunc(after, func(s string) bool { return !slices.Contains(rotten, s) }) {
		t.Fatal("no snapshot was set aside, and none was made after the rot")
	}
	return false
}

// rot changes one bit of each file.
func rot(t *testing.T, files []string) {
	t.Helper()
	if len(files) == 0 {
		t.Fatal("no snapshot to rot")
	}
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its snapshot has just been removed
		}
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)/3] ^= 1
		// Another file: that one may be a link to the state's.
		if err := errors.Join(os.Remove(path), os.WriteFile(path, raw, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}
