package peer

import (
	"sync"

	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// memberGater cuts everyone on the cluster host who is neither a member nor a
// joiner as soon as the handshake has told who it is, before a multiplexer or
// a protocol is spoken of.
type memberGater struct{ p *Peer }

// InterceptPeerDial lets members be dialled and nobody else.
func (g memberGater) InterceptPeerDial(id libp2ppeer.ID) bool { return g.p.isMember(id) }

// InterceptAddrDial leaves the choice of addresses to SetMember.
func (g memberGater) InterceptAddrDial(libp2ppeer.ID, ma.Multiaddr) bool { return true }

// InterceptAccept cannot know yet who comes.
func (g memberGater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured is where strangers are cut.
func (g memberGater) InterceptSecured(dir network.Direction, id libp2ppeer.ID, _ network.ConnMultiaddrs) bool {
	if g.p.isMember(id) {
		return true
	}
	if dir == network.DirInbound && g.p.opts.Joiners(id.String()) {
		return true
	}
	g.p.metrics.strangers.Inc()
	return false
}

// InterceptUpgraded has nothing to add.
func (g memberGater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

// publicGater keeps the public host from being used to reach private networks:
// it judges every address after name resolution, right before it is dialled.
type publicGater struct {
	// Set once.
	allowPrivate bool
	lan          bool
	boot         map[string]bool // bootstrap addresses, chosen by the operator

	// mu guards origins.
	mu      sync.Mutex
	origins map[libp2ppeer.ID]int // sessions that dial this peer for a user
}

func newPublicGater(allowPrivate, lan bool, boot []libp2ppeer.AddrInfo) *publicGater {
	g := &publicGater{
		allowPrivate: allowPrivate,
		lan:          lan,
		boot:         make(map[string]bool),
		origins:      make(map[libp2ppeer.ID]int),
	}
	for _, info := range boot {
		for _, a := range info.Addrs {
			g.boot[info.ID.String()+a.String()] = true
		}
	}
	return g
}

// addOrigin marks id as named by a user, so that its addresses are judged
// strictly even on a private network.
func (g *publicGater) addOrigin(id libp2ppeer.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.origins[id]++
}

// removeOrigin undoes one addOrigin and tells whether it was the last.
func (g *publicGater) removeOrigin(id libp2ppeer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.origins[id]--; g.origins[id] > 0 {
		return false
	}
	delete(g.origins, id)
	return true
}

func (g *publicGater) isOrigin(id libp2ppeer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.origins[id] > 0
}

// InterceptPeerDial allows every peer; its addresses decide.
func (g *publicGater) InterceptPeerDial(libp2ppeer.ID) bool { return true }

// InterceptAddrDial allows a public address, and one that is not public when
// the operator named it as bootstrap, allows private origins, or runs on a
// private network and no user named the peer.
func (g *publicGater) InterceptAddrDial(id libp2ppeer.ID, a ma.Multiaddr) bool {
	if g.allowPrivate || checkPublic(a) == nil {
		return true
	}
	if g.isOrigin(id) {
		return false
	}
	return g.lan || g.boot[id.String()+a.String()]
}

// InterceptAccept lets everyone in: the public host is for strangers.
func (g *publicGater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured has nothing to add.
func (g *publicGater) InterceptSecured(network.Direction, libp2ppeer.ID, network.ConnMultiaddrs) bool {
	return true
}

// InterceptUpgraded has nothing to add.
func (g *publicGater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) {
	return true, 0
}
