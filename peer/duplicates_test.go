package peer

import (
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"
)

// A scan reports two connections of one identity whose processes listen at different addresses. Both connections must
// be older than duplicatesAge. It reports them again only after duplicatesLogEvery, and not after one of them has
// ended. Two connections of one process, and those of one that was started again, are no duplicates.
func TestTwoProcessesWithOneIdentityAreNoticed(t *testing.T) {
	peers, _ := newCluster(t, 3)
	until(t, "connections", func() bool {
		return len(peers[0].cluster.Network().ConnsToPeer(peers[1].id)) > 0 && len(peers[0].cluster.Network().ConnsToPeer(peers[2].id)) > 0
	})
	clone := newUnknownPeer(t, peers[1].opts.Key)
	if err := clone.Connect(t.Context(), target(t, peers[0].ClusterAddrs())); err != nil {
		t.Fatal(err)
	}
	from := clone.Network().ConnsToPeer(peers[0].id)[0].LocalMultiaddr()
	of := func(theirs bool) (found network.Conn) { // the clone's connection, or one of the member
		until(t, "a connection of each", func() bool {
			for _, c := range peers[0].cluster.Network().ConnsToPeer(peers[1].id) {
				if c.RemoteMultiaddr().Equal(from) == theirs {
					found = c
				}
			}
			return found != nil
		})
		return found
	}
	conns := []network.Conn{of(false), of(true)}
	other := peers[0].cluster.Network().ConnsToPeer(peers[2].id)[0]
	addr := func(text string) ma.Multiaddr {
		a, err := ma.NewMultiaddr(text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a, b, c := addr("/ip4/10.0.0.1/tcp/9096"), addr("/ip4/10.0.0.2/tcp/9096"), addr("/ip4/10.0.0.1/tcp/9097")
	now := time.Now()
	for _, tc := range []struct {
		name     string
		one, two []ma.Multiaddr
		age      time.Duration
		want     bool
	}{
		{"at one place", []ma.Multiaddr{a, b}, []ma.Multiaddr{b}, time.Hour, false},
		{"says nothing", []ma.Multiaddr{a}, nil, time.Hour, false},
		{"just started again", []ma.Multiaddr{a}, []ma.Multiaddr{c}, duplicatesAge - 1, false},
		{"at two ports", []ma.Multiaddr{a, b}, []ma.Multiaddr{c}, duplicatesAge, true},
	} {
		at := newDuplicates()
		at.conns[conns[0]] = identified{at: now.Add(-time.Hour), listen: tc.one}
		at.conns[conns[1]] = identified{at: now.Add(-tc.age), listen: tc.two}
		at.conns[other] = identified{at: now.Add(-time.Hour), listen: []ma.Multiaddr{c}}
		found := at.scan(now)
		if (len(found) == 1) != tc.want || tc.want && (found[0].id != peers[1].id || len(found[0].one)+len(found[0].two) != 3) {
			t.Errorf("%s: %d noticed", tc.name, len(found))
		}
		if !tc.want {
			continue
		}
		if again := at.scan(now.Add(duplicatesLogEvery - 1)); len(again) > 0 {
			t.Errorf("%s: told again at once", tc.name)
		}
		if again := at.scan(now.Add(duplicatesLogEvery)); len(again) != 1 {
			t.Errorf("%s: not told again later", tc.name)
		}
		if err := clone.Close(); err != nil {
			t.Fatal(err)
		}
		until(t, "the end of a connection", func() bool { return conns[1].IsClosed() })
		if again := at.scan(now.Add(time.Hour)); len(again) > 0 || len(at.conns) != 2 {
			t.Errorf("%s: noticed after the end of one of them", tc.name)
		}
	}
}
