package peer

import (
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// memberGater cuts everyone on the cluster host who is neither a member nor a
// joiner as soon as the handshake has told who it is, before a multiplexer or
// a protocol is spoken of.
type memberGater struct{ p *Peer }

// InterceptPeerDial allows dials to members only.
func (g memberGater) InterceptPeerDial(id libp2ppeer.ID) bool { return g.p.isMember(id) }

// InterceptAddrDial allows every address; SetMember selects them.
func (g memberGater) InterceptAddrDial(libp2ppeer.ID, ma.Multiaddr) bool { return true }

// InterceptAccept accepts every connection, because the peer is unknown before the
// handshake.
func (g memberGater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured accepts members, and peers with a join identity if they dialled, and
// cuts all other peers.
func (g memberGater) InterceptSecured(dir network.Direction, id libp2ppeer.ID, at network.ConnMultiaddrs) bool {
	if g.p.isMember(id) {
		return true
	}
	if dir == network.DirInbound && g.p.opts.Joiners(id.String()) {
		return true
	}
	g.p.metrics.unknownPeers.Inc()
	if dir == network.DirInbound {
		g.p.tellRefused(id.String(), at.RemoteMultiaddr().String())
	}
	return false
}

// refusedEvery is how long who was refused is only counted after one was told of.
// refusedGrace is how long it is kept back: a node that has just joined is at the doors of
// all members at once, and some of them hear of it a moment later.
const (
	refusedEvery = 10 * time.Second
	refusedGrace = 2 * time.Second
)

// refusals are those at the door of the cluster host.
type refusals struct {
	// mu is never held while calling out.
	mu     sync.Mutex
	told   time.Time // when one was noted last that is logged
	untold int       // since then
}

// takeBack undoes next, which said that one is to be logged.
func (r *refusals) takeBack(untold int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = time.Time{}
	r.untold += untold
}

// next tells whether a refusal is to be logged now, and how many were not before.
func (r *refusals) next(now time.Time) (tell bool, untold int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.told.IsZero() && now.Sub(r.told) < refusedEvery {
		r.untold++
		return false, 0
	}
	untold, r.told, r.untold = r.untold, now, 0
	return true, untold
}

// tellRefused has the operator know who was refused and why, unless it turns out to be a
// member. Whoever it was is told nothing.
func (p *Peer) tellRefused(id, addr string) {
	if p.opts.Refused == nil {
		return
	}
	why := p.opts.Refused(id)
	if why == "" {
		return
	}
	tell, untold := p.refusals.next(time.Now())
	if !tell || !p.streams.enter() {
		return
	}
	go func() {
		defer p.streams.leave()
		switch {
		case !backoff.Wait(p.ctx, refusedGrace):
		case p.opts.Members(id):
			p.refusals.takeBack(untold)
		default:
			p.log.Warn("refused at the cluster port", "addr", addr, "why", why, "suppressed", untold)
		}
	}()
}

// InterceptUpgraded accepts every connection.
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
	origins map[libp2ppeer.ID]sessions
}

// sessions are those whose user named a peer.
type sessions struct {
	dialled int // that dial it
	awaited int // that do not: it may come by itself
}

func newPublicGater(allowPrivate, lan bool, boot []libp2ppeer.AddrInfo) *publicGater {
	g := &publicGater{
		allowPrivate: allowPrivate,
		lan:          lan,
		boot:         make(map[string]bool),
		origins:      make(map[libp2ppeer.ID]sessions),
	}
	for _, info := range boot {
		for _, a := range info.Addrs {
			g.boot[info.ID.String()+a.String()] = true
		}
	}
	return g
}

// addOrigin marks id as named by a user. Where a session dials it, its addresses are judged
// strictly even on a private network.
func (g *publicGater) addOrigin(id libp2ppeer.ID, dialled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count(id, dialled, 1)
}

// removeOrigin undoes one addOrigin and tells whether it was the last of its kind.
func (g *publicGater) removeOrigin(id libp2ppeer.ID, dialled bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count(id, dialled, -1) == 0
}

// count adds to the sessions of one kind and returns how many there are. The caller holds mu.
func (g *publicGater) count(id libp2ppeer.ID, dialled bool, by int) int {
	n := g.origins[id]
	of := &n.awaited
	if dialled {
		of = &n.dialled
	}
	*of += by
	if g.origins[id] = n; n == (sessions{}) {
		delete(g.origins, id)
	}
	return *of
}

// isOrigin tells whether a session dials id for a user.
func (g *publicGater) isOrigin(id libp2ppeer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.origins[id].dialled > 0
}

// isNamed tells whether a user named id, whether it is dialled or not.
func (g *publicGater) isNamed(id libp2ppeer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.origins[id] != sessions{}
}

// InterceptPeerDial allows every peer; InterceptAddrDial decides by address.
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

// InterceptAccept accepts every connection: the public host serves unknown peers.
func (g *publicGater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured accepts every connection.
func (g *publicGater) InterceptSecured(network.Direction, libp2ppeer.ID, network.ConnMultiaddrs) bool {
	return true
}

// InterceptUpgraded accepts every connection.
func (g *publicGater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) {
	return true, 0
}
