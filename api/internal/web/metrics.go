package web

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Label values of requests that have no operation or no status code.
const (
	noOperation = "none" // the request was rejected before its operation was known
	cutAnswer   = "cut"  // the answer was not sent completely
)

// Metrics count the requests of all APIs of a node by API, operation and result. A nil *Metrics
// counts nothing.
type Metrics struct {
	requests *prometheus.CounterVec
	answer   *prometheus.HistogramVec
	underway *prometheus.GaugeVec
}

// NewMetrics registers the request metrics of a node. Its errors are those of the registerer.
func NewMetrics(to prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "holdfast", Subsystem: "http", Name: "requests_total",
			Help: "Requests by API, operation (none: refused before it was known) and status code (cut: the answer did not go out whole, or nobody waited for it).",
		}, []string{"api", "operation", "code"}),
		answer: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "holdfast", Subsystem: "http", Name: "answer_seconds",
			Help:    "Time from the head of a request to that of its answer, by API and operation; of an upload it has the time its body took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"api", "operation"}),
		underway: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "holdfast", Subsystem: "http", Name: "requests_underway",
			Help: "Requests that are being answered, by API.",
		}, []string{"api"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.answer, m.underway} {
		if err := to.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// began counts a request of an API as running until ended is called.
func (m *Metrics) began(api string) {
	if m != nil {
		m.underway.WithLabelValues(api).Inc()
	}
}

// ended counts a request as ended, with the status that w recorded. cut is true if the answer was
// not sent completely.
func (m *Metrics) ended(api string, w *recorder, cut bool) {
	if m == nil {
		return
	}
	m.underway.WithLabelValues(api).Dec()
	operation, code := w.operation, cutAnswer
	if operation == "" {
		operation = noOperation
	}
	if w.begun {
		m.answer.WithLabelValues(api, operation).Observe(w.waited.Seconds())
		if !cut {
			code = strconv.Itoa(w.status)
		}
	}
	m.requests.WithLabelValues(api, operation, code).Inc()
}

// Operation sets the value of the label operation for a request. w is the writer that the Handler
// got. The set of names must be fixed and small, because each name makes a time series.
func Operation(w http.ResponseWriter, name string) {
	if rec, ok := w.(*recorder); ok {
		rec.operation = name
	}
}
