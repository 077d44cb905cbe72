package payments

import (
	"strconv"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/prometheus/client_golang/prometheus"
)

// collector collects the sums of payments of the whole cluster.
type collector struct {
	sums          func() ([]state.PaymentSum, error)
	total, amount *prometheus.Desc
}

// NewCollector returns the metrics holdfast_payments_total and holdfast_payments_amount. sums returns the
// sums that this node knows.
func NewCollector(sums func() ([]state.PaymentSum, error)) prometheus.Collector {
	const namespace, subsystem = "holdfast", "payments"
	return &collector{
		sums: sums,
		total: prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, "total"),
			"Payments of the whole cluster by state, as this node has applied it.", []string{"state"}, nil),
		amount: prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, "amount"),
			"Amounts of the payments of the whole cluster in atomic units of the asset, as this node has applied it.", []string{"state", "network", "asset"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	out <- c.total
	out <- c.amount
}

// Collect implements prometheus.Collector. It collects nothing if the sums cannot be read.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	sums, err := c.sums()
	if err != nil {
		return
	}
	counts := map[state.PaymentState]uint64{}
	for _, s := range sums {
		counts[s.State] += s.Count
		if amount, err := strconv.ParseFloat(s.Amount, 64); err == nil {
			out <- prometheus.MustNewConstMetric(c.amount, prometheus.GaugeValue, amount, s.State.String(), s.Network, s.Asset)
		}
	}
	for _, s := range state.PaymentStates() {
		out <- prometheus.MustNewConstMetric(c.total, prometheus.GaugeValue, float64(counts[s]), s.String())
	}
}
