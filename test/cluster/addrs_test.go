package cluster

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/routing"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// nowhere finds nobody.
type nowhere struct{}

func (nowhere) FindPeer(context.Context, libp2ppeer.ID) (libp2ppeer.AddrInfo, error) {
	return libp2ppeer.AddrInfo{}, errors.New("nobody is found")
}

// TestAMemberTellsOfAnAddressThatItGetsWhileItRuns promises that another member learns an address that a node gets
// while it runs. A machine may have its address after its node has started, or another one.
func TestAMemberTellsOfAnAddressThatItGetsWhileItRuns(t *testing.T) {
	base := t.TempDir()
	first := start(t, filepath.Join(base, "node1"), "", "")
	s, err := first.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var cluster host.Host
	second := start(t, filepath.Join(base, "node2"), s.Node.ClusterAddrs[0], filepath.Join(first.dir, node.SecretFile), func(o *node.Options) {
		o.ClusterOptions = append(o.ClusterOptions, libp2p.Routing(func(h host.Host) (routing.PeerRouting, error) {
			if cluster == nil { // those that only ask come later
				cluster = h
			}
			return nowhere{}, nil
		}))
	})
	addr := freeAddrs(t, 1)[0]
	if err := cluster.Network().Listen(ma.StringCast(addr)); err != nil {
		t.Fatal(err)
	}
	has := func(at []string) bool {
		return slices.ContainsFunc(at, func(a string) bool { return strings.HasPrefix(a, addr+"/p2p/") })
	}
	await(t, "the other member knows the new address", func() bool {
		return slices.ContainsFunc(first.Members().Nodes(), func(m state.Node) bool { return has(m.ClusterAddrs) })
	})
	if s, err := second.Members().Status(t.Context()); err != nil || !has(s.Node.ClusterAddrs) {
		t.Errorf("its own status says %v, %v", s.Node.ClusterAddrs, err)
	}
}

// TestANodeOfManyAddressesStarts promises that a node with more addresses than state.MaxAddrs starts and reports that
// many of each kind.
func TestANodeOfManyAddressesStarts(t *testing.T) {
	t.Parallel() // it mostly waits
	n := start(t, filepath.Join(t.TempDir(), "node1"), "", "", func(o *node.Options) {
		o.Config.Peer.Listen = slices.Repeat(o.Config.Peer.Listen, state.MaxAddrs+8)
		o.Config.Peer.ClusterListen = slices.Repeat(o.Config.Peer.ClusterListen, state.MaxAddrs+8)
	})
	s, err := n.Members().Status(t.Context())
	if err != nil || len(s.Node.Addrs) != state.MaxAddrs || len(s.Node.ClusterAddrs) != state.MaxAddrs {
		t.Errorf("it tells of %d and %d addresses, %v", len(s.Node.Addrs), len(s.Node.ClusterAddrs), err)
	}
	var addrs, cluster int
	await(t, "as many are on record", func() bool { // a moment after the start
		for _, m := range n.Members().Nodes() {
			addrs, cluster = len(m.Addrs), len(m.ClusterAddrs)
		}
		return addrs >= state.MaxAddrs && cluster >= state.MaxAddrs
	})
	if addrs != state.MaxAddrs || cluster != state.MaxAddrs {
		t.Errorf("%d and %d addresses are on record", addrs, cluster)
	}
}
