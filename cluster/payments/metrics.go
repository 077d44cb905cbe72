package payments

import (
	"strconv"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/prometheus/client_golang/prometheus"
)

// collector provides the sums of the payments of the whole cluster, and the number of settlements
// that this node knows no answer to.
type collector struct {
	sums                      func() ([]state.PaymentSum, error)
	without                   func() int
	total, amount, unanswered *prometheus.Desc
}

// NewCollector returns a collector of the metrics holdfast_payments_total,
// holdfast_payments_amount and holdfast_payments_unanswered. sums returns the sums in this node's
// copy of the state. unanswered must be Payments.Unanswered.
func NewCollector(sums func() ([]state.PaymentSum, error), unanswered func() int) prometheus.Collector {
	const namespace, subsystem = "holdfast", "payments"
	return &collector{
		sums: sums, without: unanswered,
		total: prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, "total"),
			"Payments of the whole cluster by state, as this node has applied it.", []string{"state"}, nil),
		amount: prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, "amount"),
			"Amounts of the payments of the whole cluster in atomic units of the asset, as this node has applied it.", []string{"state", "network", "asset"}, nil),
		unanswered: prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, "unanswered"),
			"Settlements that this node has asked for, whose attempts have ended and whose outcome it does not know.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	out <- c.total
	out <- c.amount
	out <- c.unanswered
}

// Collect implements prometheus.Collector. It collects no sums if they cannot be read.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(c.unanswered, prometheus.GaugeValue, float64(c.without()))
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
