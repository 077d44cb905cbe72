package members

import (
	"context"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// When the log tells an operator what is wrong with the cluster. A restart in order, and an
// election, are over before.
const (
	// watchEvery is how often is looked.
	watchEvery = time.Second
	// lostAfter is how long there must have been no majority.
	lostAfter = 10 * time.Second
	// twoAfter is how long there must have been two votes: a cluster that is set up has
	// them for a moment.
	twoAfter = 10 * time.Second
)

// Watch logs what somebody has to act on, once when it begins and once when it has passed:
// members that do not answer, no majority of votes, and two votes. It returns nil when ctx
// ends.
func (m *Members) Watch(ctx context.Context) error {
	w := watch{m: m, away: map[state.NodeID]*absence{}}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			w.look(ctx, now)
		}
	}
}

// watch is what Watch has told.
type watch struct {
	m    *Members
	away map[state.NodeID]*absence // members that are away
	lost spell                     // there is no majority
	two  spell                     // there are two votes
}

// absence is a member that is away.
type absence struct {
	since  time.Time // its last sign of life
	warned bool
}

// spell is something that was told when it had lasted for a while.
type spell struct {
	since time.Time // zero: it is not so
	told  bool
}

// lasts tells whether something that is so, or is not, is to be told now. passed is how long
// it was so, after it had been told; else 0.
func (s *spell) lasts(now time.Time, is bool, least time.Duration) (tell bool, passed time.Duration) {
	switch {
	case !is:
		if s.told {
			passed = now.Sub(s.since)
		}
		*s = spell{}
	case s.since.IsZero():
		s.since = now
	case !s.told && now.Sub(s.since) >= least:
		s.told = true
		return true, 0
	}
	return false, passed
}

func (w *watch) look(ctx context.Context, now time.Time) {
	w.members(ctx, now)
	log, q := w.m.opts.Logger, w.m.Quorum()
	if tell, passed := w.lost.lasts(now, !q.Complete(), lostAfter); tell {
		log.WarnContext(ctx, "the cluster cannot write", "why", q.Lacking())
	} else if passed > 0 {
		log.InfoContext(ctx, "the cluster can write again", "after", passed.Round(time.Second))
	}
	if tell, _ := w.two.lasts(now, q.Votes == 2, twoAfter); tell {
		log.WarnContext(ctx, TwoVotes)
	}
}

// members tells who is away and who is back. That one was stopped in order is no reason to
// warn before its content is placed anew.
func (w *watch) members(ctx context.Context, now time.Time) {
	log, known := w.m.opts.Logger, map[state.NodeID]bool{}
	for _, node := range w.m.Nodes() {
		if node.ID == w.m.opts.Self.ID {
			continue
		}
		known[node.ID] = true
		load, _ := w.m.opts.Gossip.Load(node.ID)
		a := w.away[node.ID]
		if load.State != "down" || load.Connected {
			if a != nil {
				log.InfoContext(ctx, "member is back", "node", node.ID, "name", node.Name, "after", now.Sub(a.since).Round(time.Second))
				delete(w.away, node.ID)
			}
			continue
		}
		if a == nil {
			a = &absence{since: now.Add(-load.Silent)}
			w.away[node.ID] = a
			if load.Ended {
				log.InfoContext(ctx, "member was stopped", "node", node.ID, "name", node.Name, "silent", load.Silent.Round(time.Second))
			}
		}
		if !a.warned && (!load.Ended || load.Silent >= w.m.opts.GoneAfter) {
			a.warned = true
			log.WarnContext(ctx, "member does not answer", "node", node.ID, "name", node.Name, "silent", load.Silent.Round(time.Second))
		}
	}
	for id := range w.away {
		if !known[id] {
			delete(w.away, id) // removed
		}
	}
}
