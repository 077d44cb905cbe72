package peer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"
)

const (
	// memberRedialEvery is the interval at which members without a connection are dialled.
	memberRedialEvery = 3 * time.Second
	// maxMemberAddrs bounds the addresses that are kept for one member.
	maxMemberAddrs = 32 // the same as state.MaxAddrs
	// maxMemberDials bounds the members that are dialled at the same time.
	maxMemberDials = 16
)

// SetMember replaces the addresses of a member's cluster host. They are used until the next call of
// SetMember or Forget for this member. SetMember logs and skips addresses that are malformed or
// contain another peer id. A call with the same addresses as before changes nothing.
func (p *Peer) SetMember(id string, clusterAddrs []string) {
	remote, err := libp2ppeer.Decode(id)
	if err != nil {
		p.log.Warn("member has an invalid peer id", "peer", id, "err", err)
		return
	}
	if remote == p.id {
		return
	}
	p.mu.Lock()
	same := slices.Equal(p.told[remote], clusterAddrs)
	p.told[remote] = slices.Clone(clusterAddrs)
	p.mu.Unlock()
	if same {
		return
	}
	addrs := make([]ma.Multiaddr, 0, len(clusterAddrs))
	for _, text := range clusterAddrs {
		a, err := ma.NewMultiaddr(text)
		if err != nil {
			p.log.Warn("member has an invalid address", "peer", id, "addr", text, "err", err)
			continue
		}
		bare, named := libp2ppeer.SplitAddr(a)
		if bare == nil || (named != "" && named != remote) {
			p.log.Warn("member lists an address of another peer", "peer", id, "addr", text)
			continue
		}
		if len(addrs) < maxMemberAddrs {
			addrs = append(addrs, bare)
		}
	}
	p.mu.Lock()
	p.members[remote] = addrs
	p.mu.Unlock()
	p.setAddrs(remote)
}

// AddrHint adds an address hint for a member, with /p2p/, in addition to the addresses of
// SetMember. The hint stays until Forget. The peer at that address must still authenticate as
// that member. A member has at most 32 hints; a new hint replaces the oldest one.
func (p *Peer) AddrHint(addr string) error {
	member, err := parseMemberAddr(addr)
	if err != nil {
		return fmt.Errorf("peer: hint: %w", err)
	}
	if member.ID == p.id {
		return nil
	}
	bare := member.Addrs[0]
	p.mu.Lock()
	known := slices.ContainsFunc(p.addrHints[member.ID], bare.Equal)
	if !known {
		addrHints := append(slices.Clone(p.addrHints[member.ID]), bare)
		p.addrHints[member.ID] = addrHints[max(0, len(addrHints)-maxMemberAddrs):]
	}
	p.mu.Unlock()
	if !known {
		p.setAddrs(member.ID)
	}
	return nil
}

// setAddrs passes the known addresses of a member to the cluster host.
func (p *Peer) setAddrs(remote libp2ppeer.ID) {
	p.placing.Lock()
	defer p.placing.Unlock()
	p.mu.Lock()
	addrs := slices.Concat(p.members[remote], p.addrHints[remote])
	p.mu.Unlock()
	for _, a := range addrs {
		if ip, ok := ipOf(a); ok {
			p.unknownClusterPeers.know(ip.Unmap())
		}
	}
	store := p.cluster.Peerstore()
	store.ClearAddrs(remote)
	store.SetAddrs(remote, addrs, peerstore.PermanentAddrTTL)
	p.notifyRedial()
}

// dialMember dials a member despite libp2p's back-off, with a short timeout.
func (p *Peer) dialMember(ctx context.Context, id libp2ppeer.ID) error {
	ctx, cancel := context.WithTimeout(ctx, clusterDialTimeout)
	defer cancel()
	endBackoff(p.cluster, id)
	_, err := p.cluster.Network().DialPeer(ctx, id)
	return err
}

// Forget drops the addresses of a removed member and closes its connections. The caller
// must first make Members refuse the member, or it reconnects at once.
func (p *Peer) Forget(id string) {
	remote, err := libp2ppeer.Decode(id)
	if err != nil {
		return
	}
	p.mu.Lock()
	delete(p.members, remote)
	delete(p.told, remote)
	delete(p.addrHints, remote)
	p.mu.Unlock()
	p.setAddrs(remote) // no addresses
	p.pool.forget(id)
	_ = p.cluster.Network().ClosePeer(remote)
}

// Connected reports whether a connection to the member exists.
func (p *Peer) Connected(id string) bool {
	remote, err := libp2ppeer.Decode(id)
	return err == nil && p.cluster.Network().Connectedness(remote) == network.Connected
}

// RTT returns the smoothed round-trip time to a member; 0 if it was not measured.
func (p *Peer) RTT(id string) time.Duration {
	remote, err := libp2ppeer.Decode(id)
	if err != nil {
		return 0
	}
	return p.cluster.Peerstore().LatencyEWMA(remote)
}

func (p *Peer) notifyRedial() {
	select {
	case p.redial <- struct{}{}:
	default:
	}
}

// keepMembers dials members without a connection until ctx ends, so that gossip reaches them before
// a caller needs a stream. It also restarts gossip with connected members.
func (p *Peer) keepMembers(ctx context.Context) {
	tick := time.NewTicker(memberRedialEvery)
	defer tick.Stop()
	for {
		p.dialMembers(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.keepGossip(ctx)
		case <-p.redial:
		}
	}
}

// dialMembers does one pass of keepMembers.
func (p *Peer) dialMembers(ctx context.Context) {
	var missing []libp2ppeer.ID
	for id, connected := range p.reachable() {
		if !connected {
			missing = append(missing, id)
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxMemberDials)
	for _, id := range missing {
		if !p.opts.Members(id.String()) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := p.dialMember(ctx, id); err != nil {
				p.log.DebugContext(ctx, "cannot reach a member", "peer", id.String(), "err", err)
			}
		})
	}
}

// reachable returns the members with a known address, and for each whether it is connected.
func (p *Peer) reachable() map[libp2ppeer.ID]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make(map[libp2ppeer.ID]bool, len(p.members))
	for _, known := range []map[libp2ppeer.ID][]ma.Multiaddr{p.members, p.addrHints} {
		for id, addrs := range known {
			if len(addrs) > 0 {
				ids[id] = p.cluster.Network().Connectedness(id) == network.Connected
			}
		}
	}
	return ids
}
