package chaos

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/peer"
	"github.com/libp2p/go-libp2p"
	quictransport "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/marcopolo/simnet"
	"github.com/quic-go/quic-go"
)

// Properties of the simulated links.
const (
	linkBits    = 200 * simnet.Mibps
	linkLatency = 2 * time.Millisecond // one way
	clusterPort = 9096
	firstPort   = 20000 // of those who dial without listening
)

// link is one direction between two nodes, by their numbers.
type link struct{ from, to int }

// network is the simulated network: packets between nodes, with a latency, that
// are lost while their direction is cut.
type network struct {
	sim *simnet.Simnet

	// mu guards the fields below.
	mu      sync.Mutex
	cut     map[link]int           // by how many faults
	slow    map[link]time.Duration // more latency
	held    map[link]time.Time     // until then nothing arrives
	passed  uint64                 // packets that went through
	delayed uint64                 // of them, over a slow direction
	lost    map[link]uint64
	port    int
}

func newNetwork() *network {
	n := &network{cut: map[link]int{}, slow: map[link]time.Duration{}, held: map[link]time.Time{}, lost: map[link]uint64{}, port: firstPort}
	n.sim = &simnet.Simnet{LatencyFunc: n.latency, Logger: slog.New(slog.DiscardHandler)}
	n.sim.Start()
	return n
}

// nodeIP returns the address of a node; numberOf undoes it.
func nodeIP(node int) net.IP { return net.IPv4(1, 0, 0, byte(node+1)).To4() }

func numberOf(a net.Addr) int {
	u, ok := a.(*net.UDPAddr)
	if !ok || u.IP.To4() == nil {
		return -1
	}
	return int(u.IP.To4()[3]) - 1
}

func clusterAddr(node int) string {
	return fmt.Sprintf("/ip4/%s/udp/%d/quic-v1", nodeIP(node), clusterPort)
}

// latency implements simnet's question for one packet.
func (n *network) latency(p *simnet.Packet) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := link{numberOf(p.From), numberOf(p.To)}
	more := n.slow[l]
	if wait := time.Until(n.held[l]); wait > more {
		more = wait
	}
	if more > 0 {
		n.delayed++
	}
	return linkLatency + more
}

// set cuts one direction, or mends what one cut did.
func (n *network) set(l link, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cut {
		n.cut[l]++
	} else {
		n.cut[l]--
	}
}

// hold keeps everything on one direction until a moment: then all of it arrives.
func (n *network) hold(l link, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[l] = until
}

// delay sets what one direction takes longer than others.
func (n *network) delay(l link, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[l] = d
}

// losses returns how many packets were lost on a direction.
func (n *network) losses(l link) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost[l]
}

// late returns how many packets were delayed.
func (n *network) late() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.delayed
}

// packets returns how many went through.
func (n *network) packets() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.passed
}

// socket is a node's end of the network.
type socket struct {
	*simnet.SimConn
	network *network
	node    int
}

// WriteTo implements net.PacketConn: what is lost is lost without a word.
func (s *socket) WriteTo(p []byte, to net.Addr) (int, error) {
	l := link{s.node, numberOf(to)}
	s.network.mu.Lock()
	lost := s.network.cut[l] > 0
	if lost {
		s.network.lost[l]++
	} else {
		s.network.passed++
	}
	s.network.mu.Unlock()
	if lost {
		return len(p), nil
	}
	if u, ok := to.(*net.UDPAddr); ok { // simnet tells the two lengths of an IPv4 address apart
		to = &net.UDPAddr{IP: u.IP.To4(), Port: u.Port}
	}
	return s.SimConn.WriteTo(p, to)
}

// host is one life of a node on the network, to be closed after the node.
type host struct {
	network *network
	node    int

	// mu guards managers.
	mu       sync.Mutex
	managers []*quicreuse.ConnManager
}

func (n *network) host(node int) *host { return &host{network: n, node: node} }

// PreferredSourceIPForDestination implements quicreuse.SourceIPSelector.
func (h *host) PreferredSourceIPForDestination(*net.UDPAddr) (net.IP, error) {
	return nodeIP(h.node), nil
}

// listen opens a socket at a port, or at one that was never used.
func (h *host) listen(_ string, at *net.UDPAddr) (net.PacketConn, error) {
	own := &net.UDPAddr{IP: nodeIP(h.node), Port: at.Port}
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if own.Port == 0 {
		own.Port = n.port
		n.port++
	}
	ends := simnet.LinkSettings{BitsPerSecond: linkBits}
	conn := n.sim.NewEndpoint(own, simnet.NodeBiDiLinkSettings{Uplink: ends, Downlink: ends})
	return &socket{SimConn: conn, network: n, node: h.node}, nil
}

// options returns those of all hosts of the node, and those of its cluster hosts.
func (h *host) options() (all, cluster []peer.HostOption) {
	manager := func(reset quic.StatelessResetKey, token quic.TokenGeneratorKey) (*quicreuse.ConnManager, error) {
		m, err := quicreuse.NewConnManager(reset, token, quicreuse.OverrideListenUDP(h.listen),
			quicreuse.OverrideSourceIPSelector(func() (quicreuse.SourceIPSelector, error) { return h, nil }))
		if err != nil {
			return nil, err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.managers = append(h.managers, m)
		return m, nil
	}
	all = []peer.HostOption{libp2p.QUICReuse(manager), libp2p.DisableIdentifyAddressDiscovery()}
	return all, []peer.HostOption{libp2p.Transport(quictransport.NewTransport)}
}

// close ends the sockets of the node.
func (h *host) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, m := range h.managers {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
