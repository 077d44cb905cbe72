package integrity

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	blocks, bytes, damaged, passes prometheus.Counter
}

// newMetrics creates the metrics and registers them if r is not nil.
func newMetrics(r prometheus.Registerer, s *Scrubber) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "holdfast", Subsystem: "scrub", Name: name, Help: help})
	}
	m := &metrics{
		blocks:  counter("blocks_total", "Blocks that scrubbing has read and found good."),
		bytes:   counter("bytes_total", "Bytes of the blocks that scrubbing has found good."),
		damaged: counter("damaged_total", "Blocks that scrubbing has found damaged or gone."),
		passes:  counter("passes_total", "Whole walks over all blocks."),
	}
	if r == nil {
		return m, nil
	}
	completed := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "holdfast", Subsystem: "scrub", Name: "completed_seconds", Help: "When the last whole walk ended, in seconds since 1970; 0: never.",
	}, func() float64 {
		if done := s.opts.Store.ScrubCompleted(); !done.IsZero() {
			return float64(done.Unix())
		}
		return 0
	})
	references := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "holdfast", Subsystem: "scrub", Name: "damaged_roots", Help: "Roots that are complete but for blocks lost to damage.",
	}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(len(s.damaged))
	})
	var errs []error
	for _, c := range []prometheus.Collector{m.blocks, m.bytes, m.damaged, m.passes, completed, references} {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("integrity: register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) count(p Pass) {
	m.blocks.Add(float64(p.Blocks))
	m.bytes.Add(float64(p.Bytes))
	m.damaged.Add(float64(p.Damaged))
}
