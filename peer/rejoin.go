package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ipfs/go-datastore"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

const (
	// addressesEvery is the interval at which the addresses of routing peers are saved.
	addressesEvery = 5 * time.Minute
	// maxRoutingPeers bounds the peers whose addresses are saved, and maxRoutingAddrs the
	// addresses of each. Addresses longer than maxRoutingAddr bytes are skipped.
	maxRoutingPeers = 64
	maxRoutingAddrs = 8
	maxRoutingAddr  = 512
	// maxRejoinDials is the number of saved routing peers that are dialled if the routing table
	// is empty.
	maxRejoinDials = 16
)

// addressesKey is the key of the addresses of routing peers, one in each line, with /p2p/.
const addressesKey = "/routing"

// rejoin keeps addresses of peers in the DHT routing table from one start to the next, so
// that a node can join the DHT without its bootstrap peers.
type rejoin struct {
	store datastore.Datastore
}

// put saves the addresses of peers. If there are none, the saved ones stay.
func (r *rejoin) put(ctx context.Context, peers []libp2ppeer.AddrInfo) error {
	var lines []string
	for _, info := range peers {
		addrs := withID(info.Addrs[:min(len(info.Addrs), maxRoutingAddrs)], info.ID)
		lines = append(lines, slices.DeleteFunc(addrs, func(a string) bool { return len(a) > maxRoutingAddr })...)
	}
	if len(lines) == 0 {
		return nil
	}
	return r.store.Put(ctx, datastore.NewKey(addressesKey), []byte(strings.Join(lines, "\n")))
}

// peers returns up to limit of the saved peers, chosen at random.
func (r *rejoin) peers(ctx context.Context, limit int) ([]libp2ppeer.AddrInfo, error) {
	b, err := r.store.Get(ctx, datastore.NewKey(addressesKey))
	if errors.Is(err, datastore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var addrs []ma.Multiaddr
	for line := range strings.SplitSeq(string(b), "\n") {
		a, err := ma.NewMultiaddr(line)
		if err != nil {
			return nil, fmt.Errorf("address %q: %w", line, err)
		}
		addrs = append(addrs, a)
	}
	infos, err := libp2ppeer.AddrInfosFromP2pAddrs(addrs...)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(infos), func(i, j int) { infos[i], infos[j] = infos[j], infos[i] }) //nolint:gosec // any order will do
	return infos[:min(len(infos), limit)], nil
}

// keepAddresses saves the addresses of the peers in the routing table every addressesEvery
// until ctx ends, and once more then.
func (p *Peer) keepAddresses(ctx context.Context) {
	for again := true; again; {
		again = backoff.Wait(ctx, addressesEvery)
		if err := p.rejoin.put(p.ctx, p.routingPeers()); err != nil {
			p.log.DebugContext(ctx, "addresses of routing peers not written down", "err", err)
		}
	}
}

// routingPeers returns peers of the routing table with their addresses.
func (p *Peer) routingPeers() (infos []libp2ppeer.AddrInfo) {
	for _, id := range p.dht.RoutingTable().ListPeers() {
		if len(infos) == maxRoutingPeers {
			break
		}
		if info := p.public.Peerstore().PeerInfo(id); len(info.Addrs) > 0 {
			infos = append(infos, info)
		}
	}
	return infos
}
