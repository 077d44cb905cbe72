package node

import (
	"fmt"

	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	"github.com/prometheus/client_golang/prometheus"
)

// registerMetrics registers the metrics of this node's disks and of the cluster's pins, objects
// and payments. Their values are computed when they are read.
func (n *Node) registerMetrics() error {
	if n.opts.Registerer == nil {
		return nil
	}
	disk := func(name, help string, value func(blocks.Usage) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "holdfast", Subsystem: "blocks", Name: name, Help: help,
		}, func() float64 { return value(n.blocks.Usage()) })
	}
	collectors := []prometheus.Collector{
		disk("stored", "Blocks that have a reference.", func(u blocks.Usage) float64 { return float64(u.Blocks) }),
		disk("live_bytes", "Bytes of the blocks that have a reference.", func(u blocks.Usage) float64 { return float64(u.LiveBytes) }),
		disk("disk_bytes", "Bytes of the segment files.", func(u blocks.Usage) float64 { return float64(u.DiskBytes) }),
		disk("free_bytes", "Bytes free on the disk of the blocks.", func(u blocks.Usage) float64 { return float64(u.FreeBytes) }),
		disk("missing", "Blocks that have a reference and are missing on this node or damaged.", func(u blocks.Usage) float64 { return float64(u.Missing) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "holdfast", Subsystem: "blocks", Name: "corrupt_total", Help: "Reads that found a block damaged.",
		}, func() float64 { return float64(n.blocks.Usage().Corrupt) }),
	}
	collectors = append(collectors, n.volumeCollectors()...)
	for _, s := range state.Statuses() {
		collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "holdfast", Name: "pins", Help: "Pins of the whole cluster by status, as this node has applied it.",
			ConstLabels: prometheus.Labels{"status": s.String()},
		}, func() float64 { return n.total(s) }))
	}
	collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "holdfast", Name: "roots_under_replicated",
		Help: "Pinned roots with fewer holders than they should have, as this node sees it now: members that are away hold nothing.",
	}, n.underReplicated))
	collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "holdfast", Subsystem: "backup", Name: "completed_seconds",
		Help: "When a backup of the state was last read whole from this node since its start, in seconds since 1970; 0: never.",
	}, func() float64 { return float64(n.backedUp.Load()) }))
	collectors = append(collectors, n.hashCollectors()...)
	collectors = append(collectors, payments.NewCollector(n.paymentSums, n.payments.Unanswered))
	for _, c := range collectors {
		if err := n.opts.Registerer.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// hashCollectors returns the metrics of the BLAKE3 hashes of objects that are computed later.
func (n *Node) hashCollectors() []prometheus.Collector {
	const namespace, subsystem = "holdfast", "objects"
	hashing := n.objects.Hashing()
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "unhashed", Help: "Versions of the whole cluster whose BLAKE3 hash is yet to be computed, as this node has applied it.",
		}, func() float64 {
			view, release := n.consensus.LocalView()
			defer release()
			left, err := view.UnhashedCount()
			if err != nil {
				return 0
			}
			return float64(left)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "hashing", Help: "Objects that this node reads for their BLAKE3 hash now.",
		}, func() float64 { return float64(hashing.Reads()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "hashed_bytes_total", Help: "Bytes of objects that were read for their BLAKE3 hash.",
		}, func() float64 { return float64(hashing.Bytes()) }),
	}
}

// paymentSums returns the sums of payments in this node's copy of the state.
func (n *Node) paymentSums() ([]state.PaymentSum, error) {
	view, release := n.consensus.LocalView()
	defer release()
	return view.PaymentSums()
}

// total returns the number of pins with the status s, or 0 if the state cannot be read.
func (n *Node) total(s state.Status) float64 {
	view, release := n.consensus.LocalView()
	defer release()
	pins, _, err := view.Totals()
	if err != nil {
		return 0
	}
	return float64(pins[s])
}

// underReplicated returns the number of pinned roots with too few copies, or 0 if the state
// cannot be read.
func (n *Node) underReplicated() float64 {
	view, release := n.consensus.LocalView()
	defer release()
	short, err := n.members.UnderReplicated(view)
	if err != nil {
		return 0
	}
	return float64(short)
}
