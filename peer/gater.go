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

// memberGater closes a connection of the cluster host as soon as the handshake has proved
// the identity of the other side, unless it is a member or a joining node. No multiplexer
// and no protocol has started at that point.
type memberGater struct{ p *Peer }

// InterceptPeerDial allows dials to members only.
func (g memberGater) InterceptPeerDial(id libp2ppeer.ID) bool { return g.p.isMember(id) }

// InterceptAddrDial allows every address. A node only knows the addresses that SetMember has
// set.
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
		g.p.reportRefused(id.String(), at.RemoteMultiaddr().String())
	}
	return false
}

// refusedEvery is the minimum interval between two log lines about refused peers. Refusals in
// between are only counted. refusedGrace is the delay before such a line: a node that has just
// joined dials all members at once, and some of them know its member record only a moment later.
const (
	refusedEvery = 10 * time.Second
	refusedGrace = 2 * time.Second
)

// refusals decides which refused connections of the cluster host are logged.
type refusals struct {
	// mu is never held while calling out.
	mu         sync.Mutex
	reported   time.Time // when the last refusal to be logged arrived
	suppressed int       // number of refusals that were not logged since then
}

// takeBack undoes a call of next that returned tell = true, because the refused peer turned out to
// be a member. suppressed is the other result of that call.
func (r *refusals) takeBack(suppressed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reported = time.Time{}
	r.suppressed += suppressed
}

// next returns whether to log a refusal now, and how many refusals before it were not logged.
func (r *refusals) next(now time.Time) (tell bool, suppressed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reported.IsZero() && now.Sub(r.reported) < refusedEvery {
		r.suppressed++
		return false, 0
	}
	suppressed, r.reported, r.suppressed = r.suppressed, now, 0
	return true, suppressed
}

// reportRefused logs which peer was refused and why, unless it turns out to be a member
// within refusedGrace. It sends nothing to the peer.
func (p *Peer) reportRefused(id, addr string) {
	if p.opts.Refused == nil {
		return
	}
	why := p.opts.Refused(id)
	if why == "" {
		return
	}
	tell, suppressed := p.refusals.next(time.Now())
	if !tell || !p.streams.enter() {
		return
	}
	go func() {
		defer p.streams.leave()
		switch {
		case !backoff.Wait(p.ctx, refusedGrace):
		case p.opts.Members(id):
			p.refusals.takeBack(suppressed)
		default:
			p.log.Warn("refused at the cluster port", "addr", addr, "why", why, "suppressed", suppressed)
			if p.opts.Told != nil {
				p.opts.Told(ipText(addr), why, suppressed+1)
			}
		}
	}()
}

// ipText returns the IP address in a multiaddr as text; "" if it has none.
func ipText(addr string) string {
	a, err := ma.NewMultiaddr(addr)
	if err != nil {
		return ""
	}
	ip, ok := ipOf(a)
	if !ok {
		return ""
	}
	return ip.String()
}

// InterceptUpgraded accepts every connection.
func (g memberGater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

// publicGater is the connection gate of the public host. It prevents that users make the node dial
// private networks by naming origins there: it checks every address after name resolution, just
// before the dial.
type publicGater struct {
	// The following fields are set once.
	allowPrivate bool
	lan          bool
	boot         map[string]bool // bootstrap addresses that the operator configured

	// mu guards origins.
	mu      sync.Mutex
	origins map[libp2ppeer.ID]sessions
}

// sessions counts the sessions in which a user named a peer as an origin.
type sessions struct {
	dialled int // number of sessions that dial the peer
	awaited int // number of sessions that do not dial the peer; it may connect by itself
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

// addOrigin records that a session has an origin with the peer id. dialled says whether the session
// dials the peer. While a session dials it, the peer may only be dialled at public addresses, also
// if the node is in a private network.
func (g *publicGater) addOrigin(id libp2ppeer.ID, dialled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count(id, dialled, 1)
}

// removeOrigin undoes one call of addOrigin with the same arguments. It returns true if no session
// of this kind names the peer any more.
func (g *publicGater) removeOrigin(id libp2ppeer.ID, dialled bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count(id, dialled, -1) == 0
}

// count adds by to the number of sessions of one kind and returns the new number. The caller
// holds mu.
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

// isOrigin returns whether a session dials id for a user.
func (g *publicGater) isOrigin(id libp2ppeer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.origins[id].dialled > 0
}

// isNamed returns whether a user named id, whether a session dials it or not.
func (g *publicGater) isNamed(id libp2ppeer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.origins[id] != sessions{}
}

// InterceptPeerDial allows every peer; InterceptAddrDial decides by address.
func (g *publicGater) InterceptPeerDial(libp2ppeer.ID) bool { return true }

// InterceptAddrDial allows public addresses. It allows another address if the operator
// configured it as bootstrap peer, if private origins are allowed, or if this is a private
// network and no user named the peer.
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
