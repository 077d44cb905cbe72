package pins

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// The delegates of a pin are the dialable addresses of its live nodes, each once, public ones first, at most
// MaxDelegates with every node among them.
func TestDelegates(t *testing.T) {
	addrs := func(id string, n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("/ip4/203.0.113.%d/tcp/4001/p2p/%s", i+1, id))
		}
		return list
	}
	node := func(id string, addrs ...string) state.Node {
		return state.Node{ID: state.NodeID(id), Addrs: addrs}
	}
	for _, tc := range []struct {
		name  string
		nodes []state.Node
		want  func(got []string) bool
	}{
		{"a node without addresses is named", []state.Node{node("n1")}, func(got []string) bool {
			return slices.Equal(got, []string{"/p2p/n1"})
		}},
		{"each once", []state.Node{node("n1", "/a", "/a", "/b"), node("n2", "/b")}, func(got []string) bool {
			return slices.Equal(got, []string{"/a", "/b"})
		}},
		{"lists that end before others do", []state.Node{node("n1", "/a"), node("n2", "/b", "/c", "/d"), node("n3", "/e", "/f")}, func(got []string) bool {
			return slices.Equal(got, []string{"/a", "/b", "/e", "/c", "/f", "/d"})
		}},
		{"what one names already is no turn of the others", []state.Node{node("n1", "/a", "/b"), node("n2", "/a", "/c"), node("n3", "/d", "/e")}, func(got []string) bool {
			return slices.Equal(got, []string{"/a", "/d", "/b", "/c", "/e"})
		}},
		{"bounded, every node in it", []state.Node{node("n1", addrs("n1", 30)...), node("n2", addrs("n2", 30)...), node("n3", addrs("n3", 1)...)}, func(got []string) bool {
			return len(got) == MaxDelegates && strings.HasSuffix(got[0], "/n1") && strings.HasSuffix(got[1], "/n2") && strings.HasSuffix(got[2], "/n3") &&
				len(slices.Compact(slices.Sorted(slices.Values(got)))) == MaxDelegates
		}},
		{"what clients elsewhere can dial, the farthest first", []state.Node{
			node("n1", "/ip4/127.0.0.1/tcp/1/p2p/n1", "/ip4/10.0.0.1/tcp/1/p2p/n1", "/ip4/203.0.113.1/tcp/1/p2p/n1", "/ip6/::1/tcp/1/p2p/n1"),
			node("n2", "/ip6/fe80::1/tcp/1/p2p/n2", "/ip6/fd00::1/tcp/1/p2p/n2", "/ip6zone/eth0/ip6/fe80::2/tcp/1/p2p/n2", "/ip6/2001:db8::1/udp/1/quic-v1/p2p/n2"),
			node("n3", "/ip4/0.0.0.0/tcp/1/p2p/n3", "/ip4/169.254.0.1/tcp/1/p2p/n3", "/ip4/100.64.0.1/tcp/1/p2p/n3", "/dns4/example.org/tcp/1/p2p/n3"),
		}, func(got []string) bool {
			return slices.Equal(got, []string{
				"/ip4/203.0.113.1/tcp/1/p2p/n1", "/ip6/2001:db8::1/udp/1/quic-v1/p2p/n2", "/dns4/example.org/tcp/1/p2p/n3",
				"/ip4/10.0.0.1/tcp/1/p2p/n1", "/ip6/fd00::1/tcp/1/p2p/n2", "/ip4/100.64.0.1/tcp/1/p2p/n3",
			})
		}},
		{"loopback where a node has nothing else, after all others", []state.Node{
			node("n1", "/ip4/127.0.0.1/tcp/1/p2p/n1", "/ip4/127.0.0.1/udp/1/quic-v1/p2p/n1"), node("n2", "/ip4/127.0.0.1/tcp/2/p2p/n2", "/ip4/10.0.0.2/tcp/2/p2p/n2"),
		}, func(got []string) bool {
			return slices.Equal(got, []string{"/ip4/10.0.0.2/tcp/2/p2p/n2", "/ip4/127.0.0.1/tcp/1/p2p/n1", "/ip4/127.0.0.1/udp/1/quic-v1/p2p/n1"})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, clustertest.Setup{Nodes: tc.nodes})
			if got := w.create(t, alice, v0).Delegates; !tc.want(got) {
				t.Errorf("got %v", got)
			}
		})
	}
	t.Run("of a member whose addresses others read", func(t *testing.T) {
		addrs := []string{"/ip4/127.0.0.1/tcp/1/p2p/n1", "/ip6/::ffff:127.0.0.1/tcp/1/p2p/n1", "/ip4/203.0.113.1/tcp/1/p2p/n1"}
		n := state.Node{ID: "n1", Addrs: slices.Clone(addrs)}
		if got := public(&n); !slices.Equal(got, addrs[2:]) || !slices.Equal(n.Addrs, addrs) {
			t.Errorf("%q of %q", got, n.Addrs)
		}
	})
	t.Run("of members that are down only where there are no others", func(t *testing.T) {
		w := newWorld(t, clustertest.Setup{Nodes: clustertest.Members("n1", "n2", "n3"), Replication: 2})
		pin := w.create(t, alice, v0)
		all, keeps := pin.Delegates, w.root(t, v0).Nodes()
		for i, down := range [][]state.NodeID{{keeps[0]}, {keeps[1]}, keeps, nil} {
			w.load.set("n1", "n2", "n3")
			w.load.lose(down...)
			want := slices.DeleteFunc(slices.Clone(all), func(a string) bool {
				return len(down) == 1 && strings.HasSuffix(a, "/"+string(down[0]))
			})
			again, got := w.create(t, bob, v0).Delegates, w.get(t, alice, pin.ID).Delegates
			if len(want) == 0 || !slices.Equal(got, want) || !slices.Equal(again, want) {
				t.Errorf("%d, of %v %v are down: %v, pinned again %v, want %v", i, keeps, down, got, again, want)
			}
		}
	})
	t.Run("when every node of the allocation has left", func(t *testing.T) {
		w := newWorld(t, clustertest.Setup{Nodes: clustertest.Members("n1", "n2"), Replication: 1})
		pin := w.create(t, alice, v0)
		gone := w.root(t, v0).Nodes()[0]
		w.state.Apply(t, &state.RemoveNode{ID: gone})
		got := w.get(t, alice, pin.ID).Delegates
		if len(got) != 1 || strings.HasSuffix(got[0], string(gone)) {
			t.Errorf("%s left, delegates %v", gone, got)
		}
	})
}
