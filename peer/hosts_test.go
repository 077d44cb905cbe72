package peer

import (
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// Open refuses a public TCP port that another node uses, at the same address or at all addresses. The error is a
// ListenError that has EADDRINUSE. The system alone would give the port to a second node, because libp2p shares the
// ports that it listens on.
func TestAPublicPortOfAnotherNodeIsTaken(t *testing.T) {
	for _, ip := range []string{"/ip4/127.0.0.1", "/ip6/::1"} {
		t.Run(ip, func(t *testing.T) {
			if l, err := net.Listen("tcp6", "[::1]:0"); ip == "/ip6/::1" && err != nil {
				t.Skipf("no IPv6 here: %v", err)
			} else if err == nil {
				_ = l.Close()
			}
			first := newTestPeer(t, newRoster(), func(o *Options) { o.Listen = []string{ip + "/tcp/0"} })
			busy, _, _ := strings.Cut(first.Addrs()[0], "/p2p/")
			port := busy[strings.LastIndexByte(busy, '/')+1:]
			key, err := NewKey()
			if err != nil {
				t.Fatal(err)
			}
			all := map[string]string{"/ip4/127.0.0.1": "/ip4/0.0.0.0", "/ip6/::1": "/ip6/::"}[ip]
			for _, addr := range []string{busy, all + "/tcp/" + port} {
				p, err := Open(t.Context(), Options{
					Key: key, Listen: []string{addr}, Members: func(string) bool { return false }, Blocks: peertest.NewStore(),
				})
				var refused *ListenError
				if !errors.As(err, &refused) || refused.Cluster || refused.Addr != addr || !errors.Is(err, syscall.EADDRINUSE) {
					t.Errorf("%s: %v", addr, err)
				}
				if p != nil {
					t.Error(p.Close())
				}
			}
		})
	}
}

// A UDP port that another process has is reported as EADDRINUSE, at its address and at all addresses. Port 0 and an
// address of another machine are no error. A simulated network has addresses that are not of this machine.
func TestPortsOfThisMachineCanBeTaken(t *testing.T) {
	taken, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]error{
		"/ip4/127.0.0.1/udp/" + port + "/quic-v1": syscall.EADDRINUSE,
		"/ip4/0.0.0.0/udp/" + port + "/quic-v1":   syscall.EADDRINUSE,
		"/ip4/127.0.0.1/udp/0/quic-v1":            nil,
		"/ip4/127.0.0.1/tcp/0":                    nil,
		"/ip4/203.0.113.9/tcp/4001":               nil,
		"/ip4/203.0.113.9/udp/4001/quic-v1":       nil,
	} {
		a, err := ma.NewMultiaddr(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkFree(a); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// Public addresses rank before private ones and those before loopback, whatever the order of the listeners. Others
// learn only the first ones, so those that they can dial come first, and always the same ones.
func TestAddressesAreRanked(t *testing.T) {
	want := []string{
		"/ip4/8.8.8.8/tcp/4001", "/ip4/8.8.8.8/udp/4001/quic-v1",
		"/ip4/192.168.1.2/tcp/4001", "/ip4/172.17.0.1/tcp/4001", "/ip6/fd00::2/tcp/4001", "/ip4/192.168.1.2/udp/4001/quic-v1", "/ip4/172.17.0.1/udp/4001/quic-v1",
		"/ip4/127.0.0.1/tcp/4001", "/ip6/::1/tcp/4001", "/ip4/127.0.0.1/udp/4001/quic-v1",
	}
	four, six := []string{"/ip4/127.0.0.1", "/ip4/192.168.1.2", "/ip4/172.17.0.1", "/ip4/8.8.8.8"}, []string{"/ip6/::1", "/ip6/fd00::2"}
	type listener struct {
		ips       []string
		transport string
	}
	listeners := []listener{{four, "/tcp/4001"}, {four, "/udp/4001/quic-v1"}, {six, "/tcp/4001"}}
	for range 2 {
		var addrs []ma.Multiaddr
		for _, l := range listeners {
			for _, ip := range l.ips {
				addrs = append(addrs, ma.StringCast(ip+l.transport))
			}
		}
		var got []string
		for _, a := range ranked(addrs) {
			got = append(got, a.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %v: %v", listeners, got)
		}
		slices.Reverse(listeners)
	}
}
