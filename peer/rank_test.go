package peer

import (
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"
)

// A QUIC address is dialled 30 ms (private) or 250 ms (public) after the TCP address of the same IP version. If a
// peer has only one of the two, its address is dialled at once.
func TestTCPIsDialledBeforeQUIC(t *testing.T) {
	for _, tc := range []struct {
		name  string
		addrs map[string]time.Duration // the delay of each dial
	}{
		{"private", map[string]time.Duration{
			"/ip4/127.0.0.1/tcp/4001":         0,
			"/ip4/127.0.0.1/udp/4001/quic-v1": 30 * time.Millisecond,
		}},
		{"public", map[string]time.Duration{
			"/ip4/8.8.8.8/tcp/4001":         0,
			"/ip4/8.8.8.8/udp/4001/quic-v1": 250 * time.Millisecond,
		}},
		{"both families", map[string]time.Duration{
			"/ip6/2a00:1450::1/tcp/4001":         0,
			"/ip4/8.8.8.8/tcp/4001":              250 * time.Millisecond,
			"/ip6/2a00:1450::1/udp/4001/quic-v1": 250 * time.Millisecond,
			"/ip4/8.8.8.8/udp/4001/quic-v1":      500 * time.Millisecond,
		}},
		{"QUIC alone", map[string]time.Duration{"/ip4/8.8.8.8/udp/4001/quic-v1": 0}},
		{"TCP alone", map[string]time.Duration{"/ip4/8.8.8.8/tcp/4001/ws": 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var addrs []ma.Multiaddr
			for text := range tc.addrs {
				addrs = append(addrs, ma.StringCast(text))
			}
			ranked := rankTCPFirst(addrs)
			if len(ranked) != len(addrs) {
				t.Fatalf("%d of %d addresses are dialled", len(ranked), len(addrs))
			}
			for _, r := range ranked {
				if want := tc.addrs[r.Addr.String()]; r.Delay != want {
					t.Errorf("%s is dialled after %s, want %s", r.Addr, r.Delay, want)
				}
			}
		})
	}
}
