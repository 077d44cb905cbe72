package peer

import (
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// rankTCPFirst orders the addresses of one peer for dialling: TCP addresses first, in libp2p's own
// order. The other addresses follow after the delay that libp2p normally gives TCP addresses after
// QUIC addresses. A byte over TCP and TLS takes a third of the processor time of a byte over QUIC.
// Because these connections transfer content, one more round trip at the start matters little. A
// peer that answers only over QUIC is still reached.
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
