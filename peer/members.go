package peer

import (
	"context"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"
)

const (
	// memberRedialEvery is how often members without a connection are dialled.
	memberRedialEvery = 3 * time.Second
	// maxMemberAddrs bounds the addresses kept of one member.
	maxMemberAddrs = 32
	// maxMemberDials bounds the members dialled at the same time.
	maxMemberDials = 16
)

// SetMember replaces the addresses at which a member's cluster host is
// reached. They stay until the next SetMember or Forget. Addresses that do not
// parse, or name another peer, are logged and left out.
func (p *Peer) SetMember(id string, clusterAddrs []string) {
	remote, err := libp2ppeer.Decode(id)
	if err != nil {
		p.log.Warn("member with a bad peer id", "peer", id, "err", err)
		return
	}
	if remote == p.id {
		return
	}
	addrs := make([]ma.Multiaddr, 0, len(clusterAddrs))
	for _, text := range clusterAddrs {
		a, err := ma.NewMultiaddr(text)
		if err != nil {
			p.log.Warn("member with a bad address", "peer", id, "addr", text, "err", err)
			continue
		}
		bare, named := libp2ppeer.SplitAddr(a)
		if bare == nil || (named != "" && named != remote) {
			p.log.Warn("member with an address of another", "peer", id, "addr", text)
			continue
		}
		if len(addrs) < maxMemberAddrs {
			addrs = append(addrs, bare)
		}
	}
	p.mu.Lock()
	p.members[remote] = addrs
	p.mu.Unlock()
	for _, a := range addrs {
		if ip, ok := ipOf(a); ok {
			p.clusterStrangers.know(ip.Unmap())
		}
	}
	store := p.cluster.Peerstore()
	store.ClearAddrs(remote)
	store.SetAddrs(remote, addrs, peerstore.PermanentAddrTTL)
	p.wakeRedial()
}

// Forget drops the addresses of a removed member and cuts its connections. The
// caller has made Members refuse it first, or it comes straight back.
func (p *Peer) Forget(id string) {
	remote, err := libp2ppeer.Decode(id)
	if err != nil {
		return
	}
	p.mu.Lock()
	delete(p.members, remote)
	p.mu.Unlock()
	p.cluster.Peerstore().ClearAddrs(remote)
	p.pool.forget(id)
	_ = p.cluster.Network().ClosePeer(remote)
}

// Connected tells whether there is a connection to a member now.
func (p *Peer) Connected(id string) bool {
	remote, err := libp2ppeer.Decode(id)
	return err == nil && p.cluster.Network().Connectedness(remote) == network.Connected
}

// RTT returns the smoothed round-trip time to a member, 0 when not measured.
func (p *Peer) RTT(id string) time.Duration {
	remote, err := libp2ppeer.Decode(id)
	if err != nil {
		return 0
	}
	return p.cluster.Peerstore().LatencyEWMA(remote)
}

func (p *Peer) wakeRedial() {
	select {
	case p.redial <- struct{}{}:
	default:
	}
}

// keepMembers dials members that are not connected, so that gossip reaches
// them before anybody needs a stream.
func (p *Peer) keepMembers(ctx context.Context) {
	tick := time.NewTicker(memberRedialEvery)
	defer tick.Stop()
	for {
		p.dialMembers(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.redial:
		}
	}
}

// dialMembers is one pass of keepMembers.
func (p *Peer) dialMembers(ctx context.Context) {
	p.mu.Lock()
	var missing []libp2ppeer.ID
	for id, addrs := range p.members {
		if len(addrs) > 0 && p.cluster.Network().Connectedness(id) != network.Connected {
			missing = append(missing, id)
		}
	}
	p.mu.Unlock()
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
			dial, cancel := context.WithTimeout(ctx, clusterDialTimeout)
			defer cancel()
			dial = network.WithForceDirectDial(dial, "member")
			if _, err := p.cluster.Network().DialPeer(dial, id); err != nil {
				p.log.DebugContext(ctx, "member not reached", "peer", id.String(), "err", err)
			}
		})
	}
}
