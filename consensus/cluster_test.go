package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// account is the operator's, which all pins of these tests belong to.
const account = state.AccountID("operator")

// cids are of contents that tests pin.
var cids = []string{
	"bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e",
	"bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku",
}

// testCluster is several nodes in one process and in virtual time: it passes
// only while all of them wait, so nothing here depends on a machine's speed.
type testCluster struct {
	t       *testing.T
	network *memNetwork
	timings Timings
	level   state.FeatureLevel // of the release that the nodes say they are
	nodes   map[state.NodeID]*testNode
}

// testNode is one node, with the disks that outlive it.
type testNode struct {
	*Node
	cluster *testCluster
	id      state.NodeID
	store   *memStore
	disk    *raft.InmemStore
	log     raft.LogStore // disk, unless a test puts something over it
	snaps   *memSnapshots
	watch   *state.Watch
	tune    func(*Options) // nil: nothing

	stop  context.CancelFunc // ends Run
	ended chan struct{}      // closed when Run has ended, in err
	err   error
}

// inVirtualTime runs a test of n nodes, all members and voters at its start.
func inVirtualTime(t *testing.T, n int, timings Timings, test func(t *testing.T, c *testCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &testCluster{t: t, network: newMemNetwork(), timings: timings, level: state.NewestFeatureLevel, nodes: map[state.NodeID]*testNode{}}
		defer c.stopAll()
		for i := range n {
			node := c.add(state.NodeID(fmt.Sprintf("n%d", i+1)))
			if i == 0 {
				c.found(node)
				continue
			}
			c.join(node.id)
		}
		if n > 0 {
			c.until("everybody has a role", func() bool { return c.know(votersFor(n)) && c.ready() == n })
		}
		test(t, c)
	})
}

func member(id state.NodeID) state.Node {
	return state.Node{ID: id, Name: string(id), ClusterAddrs: []string{"/ip4/127.0.0.1/tcp/1/p2p/" + string(id)}}
}

func (c *testCluster) ids() []state.NodeID {
	var ids []state.NodeID
	for id := range c.nodes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// add starts a node on empty disks.
func (c *testCluster) add(id state.NodeID) *testNode {
	c.t.Helper()
	node := c.empty(id)
	node.start()
	return node
}

// empty returns a node with empty disks that has not started.
func (c *testCluster) empty(id state.NodeID) *testNode {
	disk := raft.NewInmemStore()
	c.nodes[id] = &testNode{cluster: c, id: id, store: newMemStore(), disk: disk, log: memLog{disk}, snaps: &memSnapshots{}}
	return c.nodes[id]
}

// found makes a node the first of a cluster.
func (c *testCluster) found(node *testNode) {
	c.t.Helper()
	c.foundBy(node, node.record())
}

// foundBy makes a node the only voter of a cluster with some first member.
func (c *testCluster) foundBy(node *testNode, first state.Node) {
	c.t.Helper()
	if err := node.Bootstrap(); err != nil {
		c.t.Fatal(err)
	}
	_, err := node.Propose(c.t.Context(), &state.InitCluster{
		Cluster:  state.Cluster{ID: "c", Replication: 3, WriteCopies: 2, Operator: account},
		Node:     first,
		Operator: state.Account{ID: account, Email: "operator@localhost"},
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// join makes a node a member.
func (c *testCluster) join(id state.NodeID) {
	c.t.Helper()
	if _, err := c.running().Propose(c.t.Context(), &state.JoinNode{Node: c.record(id), At: 1}); err != nil {
		c.t.Fatal(err)
	}
	c.announce(id)
}

// record returns what a node says of itself, if it is one of the test's.
func (c *testCluster) record(id state.NodeID) state.Node {
	if n := c.nodes[id]; n != nil && n.Node != nil {
		return n.record()
	}
	return member(id)
}

func (n *testNode) record() state.Node {
	record := member(n.id)
	record.FeatureLevel = n.cluster.level
	if record.FeatureLevel > 0 {
		record.Store, record.Votes = n.Store()
	}
	return record
}

// announce has a node say of itself what is true now, as whoever runs it does.
func (c *testCluster) announce(id state.NodeID) {
	c.t.Helper()
	if c.level == 0 || c.nodes[id] == nil {
		return
	}
	c.until(string(id)+" knows the cluster", func() bool {
		_, known := c.nodes[id].FeatureLevel()
		return known
	})
	if _, err := c.nodes[id].Propose(c.t.Context(), &state.UpdateNode{Node: c.record(id)}); err != nil {
		c.t.Fatal(err)
	}
}

// start opens and runs a node on its disks.
func (n *testNode) start() {
	t := n.cluster.t
	t.Helper()
	n.watch = &state.Watch{}
	logger := quiet()
	if os.Getenv("HOLDFAST_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("on", n.id)
	}
	opts := Options{
		ID: n.id, Store: n.store, Log: n.log, Stable: n.disk, Snapshots: n.snaps, CheckpointDir: t.TempDir(),
		Network: n.cluster.network.of(n.id), Watch: n.watch, Timings: n.cluster.timings, Logger: logger,
		Refused: func(err error) bool { return errors.Is(err, errConnRefused) },
	}
	if n.tune != nil {
		n.tune(&opts)
	}
	node, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	n.Node, n.stop, n.ended = node, cancel, ended
	go func() {
		defer close(ended)
		n.err = node.Run(ctx)
	}()
}

// end waits until a node has ended, and returns what Run ended in.
func (n *testNode) end() error {
	<-n.ended
	return n.err
}

// over tells whether Run has ended.
func (n *testNode) over() bool {
	select {
	case <-n.ended:
		return true
	default:
		return false
	}
}

// shutdown ends a node in order. It returns what Run ended in.
func (n *testNode) shutdown() error {
	n.stop()
	err := n.end()
	if cerr := n.Close(); cerr != nil {
		n.cluster.t.Errorf("close %s: %v", n.id, cerr)
	}
	n.Node = nil
	return err
}

// kill ends a node without a word to the others.
func (n *testNode) kill() {
	others := n.cluster.others(n.id)
	n.cluster.network.isolate(n.id, others...)
	n.cluster.network.crash(n.id)
	if err := n.shutdown(); err != nil {
		n.cluster.t.Errorf("killed %s: %v", n.id, err)
	}
	n.cluster.network.heal()
}

func (c *testCluster) others(id state.NodeID) []state.NodeID {
	return slices.DeleteFunc(c.ids(), func(o state.NodeID) bool { return o == id })
}

func (c *testCluster) stopAll() {
	for _, id := range c.ids() {
		if n := c.nodes[id]; n.Node != nil {
			n.shutdown() // a test that cares has looked
		}
	}
}

// running returns some node that runs.
func (c *testCluster) running() *testNode {
	for _, id := range c.ids() {
		if n := c.nodes[id]; n.Node != nil {
			return n
		}
	}
	c.t.Fatal("no node runs")
	return nil
}

// leader waits until one running node leads and all follow it.
func (c *testCluster) leader(among ...state.NodeID) *testNode {
	c.t.Helper()
	var leader *testNode
	if len(among) == 0 {
		among = c.ids()
	}
	c.until("one leader", func() bool {
		leader = nil
		for _, id := range among {
			n := c.nodes[id]
			if n.Node == nil {
				continue
			}
			at, known := n.Leader()
			if !known || !slices.Contains(among, at) || c.nodes[at].Node == nil || leader != nil && leader.id != at {
				return false
			}
			leader = c.nodes[at]
		}
		return leader != nil && leader.IsLeader()
	})
	return leader
}

// follower returns a running node that does not lead.
func (c *testCluster) follower() *testNode {
	c.t.Helper()
	leader := c.leader()
	for _, id := range c.others(leader.id) {
		if c.nodes[id].Node != nil {
			return c.nodes[id]
		}
	}
	c.t.Fatal("no follower runs")
	return nil
}

func (c *testCluster) voters() int { return c.leader().voters() }

// voters returns how many members vote, as a node knows it.
func (n *testNode) voters() (voters int) {
	for _, role := range n.Roles() {
		if role == roleVoter {
			voters++
		}
	}
	return voters
}

// know tells whether every node knows of so many voters. One that does not would
// refuse its vote to those whom it takes for followers only.
func (c *testCluster) know(voters int) bool {
	for _, n := range c.nodes {
		if n.voters() != voters {
			return false
		}
	}
	return true
}

func (c *testCluster) ready() (ready int) {
	for _, n := range c.nodes {
		if n.Node != nil && n.Ready() == nil {
			ready++
		}
	}
	return ready
}

// until waits for a condition, five minutes of virtual time at the most.
func (c *testCluster) until(what string, holds func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			c.t.Fatalf("in vain: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func pin(id string) *state.CreatePin {
	return &state.CreatePin{
		Pin:   state.Pin{ID: state.RequestID(id), Account: account, Created: 1, CID: cids[0], Name: id},
		Nodes: []state.NodeID{"n1", "n2", "n3", "n4", "n5", "n6"},
	}
}

// mustPin pins through a node.
func (n *testNode) mustPin(id string) {
	n.cluster.t.Helper()
	if _, err := n.Propose(context.Background(), pin(id)); err != nil {
		n.cluster.t.Fatalf("pin %s through %s: %v", id, n.id, err)
	}
}

// pins lists the names of all pins, oldest first, by a linearizable read.
func (n *testNode) pins() ([]string, error) {
	view, release, err := n.View(context.Background())
	if err != nil {
		return nil, err
	}
	defer release()
	var names []string
	q := state.PinQuery{Limit: 1 << 20}
	all, page, err := view.ListPins(context.Background(), account, q)
	for err == nil && len(page) > 0 { // a page has some MiB at the most
		for _, p := range page {
			names = append(names, p.Name)
		}
		q.Before = page[len(page)-1].Created
		_, page, err = view.ListPins(context.Background(), account, q)
	}
	if err == nil && int(all) != len(names) {
		err = fmt.Errorf("%d pins listed, %d counted", len(names), all)
	}
	slices.Reverse(names)
	return names, err
}

func (n *testNode) wantPins(want ...string) {
	n.cluster.t.Helper()
	got, err := n.pins()
	if err != nil {
		n.cluster.t.Fatalf("read on %s: %v", n.id, err)
	}
	if !slices.Equal(got, want) {
		n.cluster.t.Fatalf("%s shows pins %v, want %v", n.id, got, want)
	}
}

// sameEverywhere waits until all running nodes have the same, whole state.
func (c *testCluster) sameEverywhere() {
	c.t.Helper()
	type copied struct {
		id       state.NodeID
		applied  string
		contents [][2]string
	}
	// Each as it is at one moment: nodes go on while others are looked at.
	var all []copied
	c.until("the same index everywhere", func() bool {
		all = nil
		for _, n := range c.nodes {
			if n.Node == nil {
				continue
			}
			own := copied{id: n.id, contents: n.store.contents()}
			for _, row := range own.contents {
				if row[0] == string(appliedKey()) {
					own.applied = row[1]
				}
			}
			all = append(all, own)
		}
		return !slices.ContainsFunc(all, func(o copied) bool { return o.applied != all[0].applied })
	})
	for _, other := range all[1:] {
		if !slices.Equal(other.contents, all[0].contents) {
			c.t.Fatalf("%s has another state than %s", other.id, all[0].id)
		}
	}
}

// memLog is a log in memory that may be asked to remove what it does not have,
// which Raft does after it has taken over a snapshot.
type memLog struct{ *raft.InmemStore }

func (l memLog) DeleteRange(lowest, highest uint64) error {
	first, err := l.FirstIndex()
	if err != nil {
		return err
	}
	last, err := l.LastIndex()
	if err != nil || last == 0 || highest < first || last < lowest {
		return err
	}
	return l.InmemStore.DeleteRange(max(lowest, first), min(highest, last))
}

// faultyLog is a Raft log that can be made to fail or hang.
type faultyLog struct {
	raft.LogStore
	fault func() error
}

func (l *faultyLog) StoreLogs(entries []*raft.Log) error {
	if err := l.fault(); err != nil {
		return err
	}
	return l.LogStore.StoreLogs(entries)
}

var errInjected = errors.Join(errors.New("injected"), io.ErrUnexpectedEOF)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
