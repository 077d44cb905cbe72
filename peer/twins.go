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
	twinsLooked = 10 * time.Second // between two looks
	// twinsAge is how long connections of two processes have to stand beside each other:
	// those of one that has ended are gone by then, whatever it ended by.
	twinsAge  = 30 * time.Second
	twinsTold = 5 * time.Minute // between two lines of the log about one member
	twinsWait = 256             // events that wait
)

// twins notices that two processes run with the identity of one member, as of a data
// folder that was copied: each says on its connections where it listens itself. It is
// not safe for concurrent use.
type twins struct {
	conns map[network.Conn]identified
	told  map[libp2ppeer.ID]time.Time
}

// identified is what a member said on a connection.
type identified struct {
	at     time.Time // when
	listen []ma.Multiaddr
}

// twin is a member at two places.
type twin struct {
	id       libp2ppeer.ID
	one, two []ma.Multiaddr
}

func newTwins() *twins {
	return &twins{conns: make(map[network.Conn]identified), told: make(map[libp2ppeer.ID]time.Time)}
}

// look returns the members that are at two places at a time, and were not told of lately.
// One process may say different things as its interfaces come and go; two at different
// addresses have none in common.
func (t *twins) look(now time.Time) (found []twin) {
	first := make(map[libp2ppeer.ID]identified)
	for c, said := range t.conns {
		if c.IsClosed() {
			delete(t.conns, c)
			continue
		}
		if len(said.listen) == 0 || now.Sub(said.at) < twinsAge {
			continue
		}
		id := c.RemotePeer()
		other, known := first[id]
		if !known {
			first[id] = said
			continue
		}
		common := slices.ContainsFunc(said.listen, func(a ma.Multiaddr) bool { return slices.ContainsFunc(other.listen, a.Equal) })
		told, before := t.told[id]
		if common || before && now.Sub(told) < twinsTold {
			continue
		}
		t.told[id] = now
		found = append(found, twin{id: id, one: other.listen, two: said.listen})
	}
	for id, at := range t.told {
		if now.Sub(at) >= twinsTold {
			delete(t.told, id)
		}
	}
	return found
}

// watchTwins says in the log which members are at two places, until ctx ends.
func (p *Peer) watchTwins(ctx context.Context) error {
	sub, err := p.cluster.EventBus().Subscribe(new(event.EvtPeerIdentificationCompleted), eventbus.BufSize(twinsWait))
	if err != nil {
		return fmt.Errorf("peer: watch members: %w", err)
	}
	defer sub.Close()
	tick := time.NewTicker(twinsLooked)
	defer tick.Stop()
	t := newTwins()
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-sub.Out():
			if e, ok := ev.(event.EvtPeerIdentificationCompleted); ok && e.Conn != nil && p.isMember(e.Peer) {
				t.conns[e.Conn] = identified{at: time.Now(), listen: e.ListenAddrs}
			}
		case <-tick.C:
			for _, found := range t.look(time.Now()) {
				p.log.WarnContext(ctx, "two processes run with the identity of one member: end the one whose data folder is a copy, at once",
					"node", found.id.String(), "at", withID(found.one, found.id), "and", withID(found.two, found.id))
			}
		}
	}
}
