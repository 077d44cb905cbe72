package peer

import (
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// rankTCPFirst orders the dials to one peer: TCP first, in libp2p's own order, and the
// others after the delay that libp2p gives TCP behind QUIC. A byte over TCP and TLS takes a
// third of the processor time of a byte over QUIC. These connections carry content, so one
// more round trip at the start matters little. A peer that answers over QUIC only is still
// reached.
func rankTCPFirst(addrs []ma.Multiaddr) []network.AddrDelay {
	var overTCP, rest []ma.Multiaddr
	wait := swarm.PrivateTCPDelay
	for _, a := range addrs {
		if _, err := a.ValueForProtocol(ma.P_TCP); err != nil {
			rest = append(rest, a)
			continue
		}
		overTCP = append(overTCP, a)
		if !manet.IsPrivateAddr(a) {
			wait = swarm.PublicTCPDelay
		}
	}
	ranked := swarm.DefaultDialRanker(overTCP)
	if len(ranked) == 0 {
		wait = 0
	}
	for _, r := range swarm.DefaultDialRanker(rest) {
		ranked = append(ranked, network.AddrDelay{Addr: r.Addr, Delay: wait + r.Delay})
	}
	return ranked
}
