package tracker

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of a fetch. They are the values of the metric's label outcome.
const (
	outcomeHeld    = "held"
	outcomeFailed  = "failed"
	outcomeGaveUp  = "gave_up"
	outcomeYielded = "yielded"
	outcomeUnasked = "not_wanted"
)

type metrics struct {
	fetches *prometheus.CounterVec // by outcome
	bytes   prometheus.Counter
	drops   prometheus.Counter
	reports prometheus.Counter
	repairs prometheus.Counter
}

// newMetrics returns the metrics and registers them with r, unless r is nil. queue returns the
// number of roots that this node has yet to fetch.
func newMetrics(r prometheus.Registerer, queue func() int) (*metrics, error) {
	m := &metrics{
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_tracker_fetches_total", Help: "Fetches of whole DAGs that have ended, by outcome.",
		}, []string{"outcome"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_tracker_held_bytes_total", Help: "Bytes of the DAGs that fetches completed.",
		}),
		drops: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_tracker_drops_total", Help: "Roots whose blocks were let go.",
		}),
		reports: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_tracker_reports_total", Help: "Reports of copies that were committed.",
		}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_tracker_repairs_total", Help: "Roots that were made whole again after this node had lost blocks of them.",
		}),
	}
	if r == nil {
		return m, nil
	}
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_tracker_queue", Help: "Roots that are known and not held yet.",
	}, func() float64 { return float64(queue()) })
	var errs []error
	for _, c := range []prometheus.Collector{m.fetches, m.bytes, m.drops, m.reports, m.repairs, gauge} {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("tracker: register metrics: %w", err)
	}
	return m, nil
}

// wrap adds the name of the failed operation to an error. It returns nil for nil.
func wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("tracker: %s: %w", operation, err)
}
