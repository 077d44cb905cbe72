package node

import (
	"slices"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// The address hints of a member are the addresses that --join names, without its own, and at most maxAddrHints.
func TestAddressHintsAreTheAddressesToJoinAt(t *testing.T) {
	ticket := members.Ticket{Secret: make([]byte, 32), Addrs: []string{"/ip4/10.0.0.2/tcp/9096/p2p/b", "/ip4/10.0.0.1/tcp/9096/p2p/self"}}
	n := &Node{self: state.Node{ID: "self"}, opts: Options{Config: config.Config{Cluster: config.Cluster{Join: []string{
		"/ip4/10.0.0.3/tcp/9096/p2p/c", ticket.String(), "/ip4/10.0.0.2/tcp/9096/p2p/b", "holdfast1.notWhole", "nothing",
	}}}}}
	want := []string{"/ip4/10.0.0.2/tcp/9096/p2p/b", "/ip4/10.0.0.3/tcp/9096/p2p/c"}
	if got := n.addrHints(); !slices.Equal(got, want) {
		t.Errorf("looks at %v, want %v", got, want)
	}
	n.opts.Config.Cluster.Join = nil
	for i := range 2 * maxAddrHints {
		n.opts.Config.Cluster.Join = append(n.opts.Config.Cluster.Join, "/dns4/n"+string(rune('a'+i))+"/tcp/1/p2p/b")
	}
	if got := n.addrHints(); len(got) != maxAddrHints {
		t.Errorf("looks at %d addresses", len(got))
	}
}

// The addresses that a member reports count before those of its record, and never for another member.
func TestAMemberIsWhereItSays(t *testing.T) {
	m := state.Node{ID: "b", ClusterAddrs: []string{"/old/p2p/b", "/both/p2p/b"}}
	for _, tc := range []struct{ said, want []string }{
		{nil, []string{"/old/p2p/b", "/both/p2p/b"}},
		{[]string{"/new/p2p/b", "/both/p2p/b"}, []string{"/new/p2p/b", "/old/p2p/b", "/both/p2p/b"}},
		{[]string{"/new/p2p/c", "/new", ""}, []string{"/old/p2p/b", "/both/p2p/b"}},
	} {
		if got := places(m, tc.said); !slices.Equal(got, tc.want) {
			t.Errorf("said %v: %v, want %v", tc.said, got, tc.want)
		}
	}
}

// New addresses have their own order, and the same set of addresses keeps the order that it had. A ticket and a
// record have room for the first few, so those that others can dial must be the first.
func TestNewestAddressesAreInTheirOrder(t *testing.T) {
	start, now := []string{"/ip4/127.0.0.1"}, []string{"/ip4/8.8.8.8", "/ip4/192.168.1.2", "/ip4/172.17.0.1", "/ip4/127.0.0.1"}
	other := slices.Clone(now)
	slices.Reverse(other)
	for _, tc := range []struct{ before, now, want []string }{
		{start, now, now}, {start, nil, start}, {start, slices.Clone(start), start}, {now, other, now},
	} {
		if got := newest(tc.before, slices.Clone(tc.now)); !slices.Equal(got, tc.want) {
			t.Errorf("%v, and now %v: %v", tc.before, tc.now, got)
		}
	}
}
