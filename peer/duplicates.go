package peer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	ma "github.com/multiformats/go-multiaddr"
)

const (
	duplicatesScan = 10 * time.Second // interval between two scans of the connections
	// duplicatesAge is the minimum age of a connection before it counts as proof of a second
	// process. Connections of a process that has ended are closed by then.
	duplicatesAge      = 30 * time.Second
	duplicatesLogEvery = 5 * time.Minute // interval between two log lines about one member
	duplicatesQueue    = 256             // events that may wait for the next scan
)

// duplicates detects two processes with the identity of one member, for example after a
// data folder was copied. Each process announces its own listen addresses on its
// connections. It is not safe for concurrent use.
type duplicates struct {
	conns  map[network.Conn]identified
	logged map[libp2ppeer.ID]time.Time
}

// identified has the listen addresses that a member announced on a connection.
type identified struct {
	at     time.Time // time of the announcement
	listen []ma.Multiaddr
}

// duplicate is a member whose identity two processes use, and the addresses of both.
type duplicate struct {
	id       libp2ppeer.ID
	one, two []ma.Multiaddr
}

func newDuplicates() *duplicates {
	return &duplicates{conns: make(map[network.Conn]identified), logged: make(map[libp2ppeer.ID]time.Time)}
}

// scan returns the members whose connections announce two sets of listen addresses without a common
// address, except members that were logged less than duplicatesLogEvery ago. The addresses of one
// process may change with its network interfaces, but two processes never have an address in
// common.
func (t *duplicates) scan(now time.Time) (found []duplicate) {
	first := make(map[libp2ppeer.ID]identified)
	for c, said := range t.conns {
		if c.IsClosed() {
			delete(t.conns, c)
			continue
		}
		if len(said.listen) == 0 || now.Sub(said.at) < duplicatesAge {
			continue
		}
		id := c.RemotePeer()
		other, known := first[id]
		if !known {
			first[id] = said
			continue
		}
		common := slices.ContainsFunc(said.listen, func(a ma.Multiaddr) bool { return slices.ContainsFunc(other.listen, a.Equal) })
		logged, before := t.logged[id]
		if common || before && now.Sub(logged) < duplicatesLogEvery {
			continue
		}
		t.logged[id] = now
		found = append(found, duplicate{id: id, one: other.listen, two: said.listen})
	}
	for id, at := range t.logged {
		if now.Sub(at) >= duplicatesLogEvery {
			delete(t.logged, id)
		}
	}
	return found
}

// watchDuplicates logs each member whose identity two processes use, until ctx ends.
func (p *Peer) watchDuplicates(ctx context.Context) error {
	sub, err := p.cluster.EventBus().Subscribe(new(event.EvtPeerIdentificationCompleted), eventbus.BufSize(duplicatesQueue))
	if err != nil {
		return fmt.Errorf("peer: watch members: %w", err)
	}
	defer sub.Close()
	tick := time.NewTicker(duplicatesScan)
	defer tick.Stop()
	t := newDuplicates()
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-sub.Out():
			if e, ok := ev.(event.EvtPeerIdentificationCompleted); ok && e.Conn != nil && p.isMember(e.Peer) {
				t.conns[e.Conn] = identified{at: time.Now(), listen: e.ListenAddrs}
			}
		case <-tick.C:
			for _, found := range t.scan(time.Now()) {
				p.log.WarnContext(ctx, "two processes run with the identity of one member: end the one whose data folder is a copy, at once",
					"node", found.id.String(), "at", withID(found.one, found.id), "and", withID(found.two, found.id))
			}
		}
	}
}
