package cluster

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/gossip"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const (
	// cutFor is longer than a silent member needs to be taken for down.
	cutFor = gossip.DownAfter + 5*time.Second
	// repairSoon is repair.after of these tests: at once, so that who is taken
	// for down by mistake is repaired by mistake.
	repairSoon = time.Second
)

var errCut = errors.New("the network is cut here")

// planes cuts what Raft, or what gossip, of one node speaks over. Both share
// one connection, so the network itself cannot.
type planes struct {
	consensus.Network
	gossip.Topic

	// mu guards the fields below.
	mu           sync.Mutex
	raft, gossip bool // cut
	conns        map[*plane]bool
}

func (p *planes) tune(o *node.Options) {
	o.Config.Repair.After = repairSoon
	o.RaftNetwork = func(n consensus.Network) consensus.Network { p.Network = n; return raftPlane{p} }
	o.GossipTopic = func(t gossip.Topic) gossip.Topic { p.Topic = t; return gossipPlane{p} }
}

func (p *planes) cut(raft, silent bool) {
	p.mu.Lock()
	p.raft, p.gossip = raft, silent
	var open []*plane
	for c := range p.conns {
		open = append(open, c)
	}
	p.mu.Unlock()
	if raft {
		for _, c := range open {
			c.Close()
		}
	}
}

// is tells whether a plane is cut.
func (p *planes) is() (raft, silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.raft, p.gossip
}

// plane is one connection of Raft.
type plane struct {
	net.Conn
	planes *planes
}

func (p *planes) keep(c net.Conn) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := &plane{c, p}
	if p.conns == nil {
		p.conns = map[*plane]bool{}
	}
	p.conns[k] = true
	return k
}

// Close implements net.Conn.
func (c *plane) Close() error {
	c.planes.mu.Lock()
	delete(c.planes.conns, c)
	c.planes.mu.Unlock()
	return c.Conn.Close()
}

type raftPlane struct{ *planes }

// Dial implements consensus.Network.
func (r raftPlane) Dial(ctx context.Context, id, protocol string) (net.Conn, error) {
	if cut, _ := r.is(); cut {
		return nil, errCut
	}
	c, err := r.Network.Dial(ctx, id, protocol)
	if err != nil {
		return nil, err
	}
	return r.keep(c), nil
}

// Listen implements consensus.Network.
func (r raftPlane) Listen(protocol string) (net.Listener, error) {
	l, err := r.Network.Listen(protocol)
	return planeListener{l, r.planes}, err
}

type planeListener struct {
	net.Listener
	planes *planes
}

// Accept implements net.Listener.
func (l planeListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if cut, _ := l.planes.is(); !cut {
			return l.planes.keep(c), nil
		}
		c.Close()
	}
}

type gossipPlane struct{ *planes }

// Publish implements gossip.Topic.
func (g gossipPlane) Publish(ctx context.Context, data []byte) error {
	if _, cut := g.is(); cut {
		return errCut
	}
	return g.Topic.Publish(ctx, data)
}

// Next implements gossip.Topic.
func (g gossipPlane) Next(ctx context.Context) (string, []byte, error) {
	for {
		from, data, err := g.Topic.Next(ctx)
		if _, cut := g.is(); err != nil || !cut {
			return from, data, err
		}
	}
}

// TestOnePlaneCut promises that a node that Raft does not reach but gossip does, or the other way round, costs
// nothing but itself (A27). Nothing is repaired, no node loses its vote, and nothing is called pinned that is not.
func TestOnePlaneCut(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as a member needs to be taken for down")
	}
	for _, tc := range []struct {
		name         string
		raft, gossip bool
	}{
		{"raft is cut, gossip goes on", true, false},
		{"gossip is cut, raft goes on", false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cutOnePlane(t, tc.raft, tc.gossip)
		})
	}
}

func cutOnePlane(t *testing.T, raft, silent bool) {
	base := t.TempDir()
	soon := func(o *node.Options) {
		o.Config.Repair.After = repairSoon
		o.Config.Cluster.Replication, o.Config.Cluster.WriteCopies = 2, 2
		o.Config.Peer.AllowPrivateOrigins = true
	}
	first := start(t, filepath.Join(base, "node1"), "", "", soon)
	s := membersOf(t, first)
	secret := filepath.Join(first.dir, node.SecretFile)
	nodes := []*running{first}
	hurt := new(planes)
	for _, name := range []string{"node2", "node3", "node4"} {
		tune := []func(*node.Options){soon}
		if name == "node2" { // among the first three, which vote
			tune = append(tune, hurt.tune)
		}
		nodes = append(nodes, start(t, filepath.Join(base, name), s.Node.ClusterAddrs[0], secret, tune...))
	}
	await(t, "three of four vote, and all are alive", func() bool {
		voters, alive := 0, 0
		for _, p := range membersOf(t, first).Peers {
			if p.Role == "voter" {
				voters++
			}
			if p.State == "alive" {
				alive++
			}
		}
		return voters == 3 && alive == 4
	})
	operator, err := first.Accounts().Operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const count = 12
	pinned := func() (n int) {
		_, list, err := first.Pins().List(t.Context(), operator.ID, state.PinQuery{Limit: 100, Statuses: []state.Status{state.Pinned}})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	for i := range count {
		root, _, err := first.Content().Add(t.Context(), contentOf(i), content.Layout{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := first.Pins().Create(t.Context(), operator.ID, pins.Request{CID: root.String()}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all are pinned", func() bool { return pinned() == count })
	before := outline(membersOf(t, first))
	hurt.cut(raft, silent)
	// What nobody has must not become pinned because of anybody's silence.
	nowhere, err := first.Pins().Create(t.Context(), operator.ID, pins.Request{CID: "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"})
	if err != nil {
		t.Fatal(err)
	}
	over := time.After(cutFor)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for cut := true; cut; {
		select {
		case <-over:
			cut = false
		case <-tick.C:
		}
		if after := outline(membersOf(t, first)); after != before {
			t.Fatalf("the cluster changed from %+v to %+v", before, after)
		}
		if n := pinned(); n != count {
			t.Fatalf("%d are pinned, want %d", n, count)
		}
	}
	hurt.cut(false, false)
	await(t, "the node is one of all again", func() bool {
		own, err := nodes[1].Members().Status(t.Context())
		return err == nil && own.Index >= membersOf(t, first).Index && outline(own) == before
	})
	if p, err := first.Pins().Get(t.Context(), operator.ID, nowhere.ID); err != nil || p.Status == state.Pinned {
		t.Errorf("content that nobody has is %s, %v", p.Status, err)
	}
}

func membersOf(t *testing.T, n *running) members.Status {
	t.Helper()
	s, err := n.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// outlined is what must not change: who votes, and how many copies there are
// where.
type outlined struct {
	voters int
	roles  [4]string
	held   [4]uint64
}

func outline(s members.Status) (o outlined) {
	for i, p := range s.Peers {
		if i < len(o.roles) {
			o.roles[i], o.held[i] = string(p.ID)+" "+p.Role, p.Roots
		}
		if p.Role == "voter" {
			o.voters++
		}
	}
	return o
}

// contentOf returns a small file that differs by i.
func contentOf(i int) *bytes.Reader { return bytes.NewReader([]byte("file " + strconv.Itoa(i))) }
