package members

import (
	"context"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Intervals and delays of Watch. The delays are longer than an orderly restart or an election.
const (
	// watchEvery is the interval between two checks.
	watchEvery = time.Second
	// lostAfter is how long a majority must be missing before that is logged.
	lostAfter = 10 * time.Second
	// twoAfter is how long there must be exactly two voters before that is logged. A cluster that
	// is being set up has two for a moment.
	twoAfter = 10 * time.Second
)

// Watch logs problems that need an operator: members that do not answer, a missing majority, and
// a cluster with two voters. It logs each problem once when it begins, and again when the member
// or the majority is back. It returns nil when ctx ends.
func (m *Members) Watch(ctx context.Context) error {
	w := watch{m: m, away: map[state.NodeID]*absence{}}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			w.check(ctx, now)
			m.observe(ctx)
		}
	}
}

// observe stores the samples from which the progress of drains and the age of content are
// computed.
func (m *Members) observe(ctx context.Context) {
	m.ages.note(m.opts.State.Applied(), m.opts.Now())
	if err := m.sampleDrains(); err != nil {
		m.opts.Logger.ErrorContext(ctx, "cannot read how far drains are", "err", err)
	}
}

// watch remembers the problems that Watch has logged.
type watch struct {
	m    *Members
	away map[state.NodeID]*absence // members that are down
	lost spell                     // for a missing majority
	two  spell                     // for a cluster with two voters
}

// absence is a member that is down.
type absence struct {
	since  time.Time // time of its last sample
	warned bool
}

// spell is the state of a problem that is logged only if it lasts.
type spell struct {
	since    time.Time // when the problem began; zero if it does not exist
	reported bool
}

// lasts records whether the problem exists now. tell is true if the problem must be logged now:
// it has existed for the duration least and was not logged yet. passed is the duration of a
// logged problem that has just ended, otherwise 0.
func (s *spell) lasts(now time.Time, is bool, least time.Duration) (tell bool, passed time.Duration) {
	switch {
	case !is:
		if s.reported {
			passed = now.Sub(s.since)
		}
		*s = spell{}
	case s.since.IsZero():
		s.since = now
	case !s.reported && now.Sub(s.since) >= least:
		s.reported = true
		return true, 0
	}
	return false, passed
}

func (w *watch) check(ctx context.Context, now time.Time) {
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

// members logs which members are down or back. It warns about a member that its operator has
// stopped only after GoneAfter, when its content is moved to other nodes.
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
