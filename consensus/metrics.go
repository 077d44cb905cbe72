package consensus

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// metrics has the counters of this package.
type metrics struct {
	commits   prometheus.Histogram
	proposals *prometheus.CounterVec
	reads     prometheus.Counter
	checks    *prometheus.CounterVec

	to         prometheus.Registerer // nil means that there are no metrics
	registered []prometheus.Collector
}

func registerMetrics(n *Node, to prometheus.Registerer) (*metrics, error) {
	name := func(s string) string { return "holdfast_consensus_" + s }
	m := &metrics{
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name("propose_seconds"), Help: "Time from a proposal on this node to its outcome in the local state.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		proposals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name("proposals_total"), Help: "Proposals of this node by outcome: committed, refused, unavailable.",
		}, []string{"outcome"}),
		reads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: name("read_rounds_total"), Help: "Rounds of this node to learn an index for linearizable reads.",
		}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name("state_checks_total"), Help: "Comparisons of the state on all members by outcome: equal, differs, undecided (states differ and no majority agrees), incomplete.",
		}, []string{"outcome"}),
		to: to,
	}
	if to == nil {
		return m, nil
	}
	gauge := func(what, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name(what), Help: help}, value)
	}
	for _, c := range []prometheus.Collector{
		m.commits, m.proposals, m.reads, m.checks,
		gauge("applied_index", "Index of the newest log entry in the local state.", func() float64 { return float64(n.Applied()) }),
		gauge("quarantined", "1 while this node's state differs from the majority's, so that it neither votes nor serves.", func() float64 {
			if n.Quarantined() != nil {
				return 1
			}
			return 0
		}),
		gauge("state_level", "Level of the commands that all members understand.", func() float64 { return float64(n.fsm.level()) }),
		gauge("is_leader", "1 on the node that leads, else 0.", func() float64 {
			if n.IsLeader() {
				return 1
			}
			return 0
		}),
		gauge("leader_patience_seconds", "How long the leader may be silent until another one is elected.", func() float64 {
			if n.detector == nil {
				return n.timings.Heartbeat.Seconds()
			}
			patience, _ := n.detector.current()
			return patience.Seconds()
		}),
		gauge("log_write_seconds", "How long the write to the Raft log that is under way has taken.", func() float64 {
			return n.disk.writing().Seconds()
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: name("log_writes_refused_total"), Help: "Writes to the Raft log that a full disk has refused.",
		}, func() float64 { return float64(n.disk.refusal.Load()) }),
	} {
		if err := to.Register(c); err != nil {
			m.unregister()
			return nil, fmt.Errorf("register metrics: %w", err)
		}
		m.registered = append(m.registered, c)
	}
	return m, nil
}

func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.to.Unregister(c)
	}
	m.registered = nil
}

// proposed counts a proposal by its outcome err, and records its duration.
func (m *metrics) proposed(took time.Duration, err error) {
	outcome := "committed"
	switch {
	case errors.Is(err, state.ErrUnavailable):
		outcome = "unavailable"
	case err != nil:
		outcome = "refused"
	}
	m.proposals.WithLabelValues(outcome).Inc()
	m.commits.Observe(took.Seconds())
}
