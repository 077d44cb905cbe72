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
	duplicatesScan = 10 * time.Second // between two scans of the connections
	// duplicatesAge is the least age of a connection that counts. Those of a process that has
	// ended are closed by then.
	duplicatesAge      = 30 * time.Second
	duplicatesLogEvery = 5 * time.Minute // between two log lines about one member
	duplicatesQueue    = 256             // events waiting for the next scan
)

// duplicates detects that two processes run with the identity of one member, as of a data
// folder that was copied: each process tells its own listen addresses on its connections. It is
// not safe for concurrent use.
type duplicates struct {
	conns  map[network.Conn]identified
	logged map[libp2ppeer.ID]time.Time
}

// identified is what a member said on a connection.
type identified struct {
	at     time.Time // when
	listen []ma.Multiaddr
}

// duplicate is a member that two processes claim to be, and where each listens.
type duplicate struct {
	id       libp2ppeer.ID
	one, two []ma.Multiaddr
}

func newDuplicates() *duplicates {
	return &duplicates{conns: make(map[network.Conn]identified), logged: make(map[libp2ppeer.ID]time.Time)}
}

// scan returns the members that listen at two places, except those that were logged less
// than duplicatesLogEvery ago. The addresses of one process may change with its interfaces;
// two processes at different addresses have none in common.
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

// watchDuplicates logs members that listen at two places, until ctx ends.
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
