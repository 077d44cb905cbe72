package web

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// counted has requests of all kinds answered, and returns the metrics of them.
func counted(t *testing.T) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	fine := func(w http.ResponseWriter, _ *http.Request) error { return Empty(w, http.StatusNoContent) }
	h := Wrap(Options{Name: "test", Answer: plain, Logger: slog.New(slog.DiscardHandler), Metrics: m}, Routes([]Route{
		{http.MethodGet, "/fine", fine},
		{http.MethodPost, "/of/{id}", fine},
		{http.MethodGet, "/ours", func(http.ResponseWriter, *http.Request) error { return errors.New("ours") }},
		{http.MethodGet, "/panic", func(http.ResponseWriter, *http.Request) error { panic("ours") }},
		{http.MethodGet, "/half", func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.WriteString(w, "half")
			return errors.Join(err, errors.New("of it"))
		}},
		{http.MethodGet, "/gone", func(w http.ResponseWriter, r *http.Request) error {
			if n := samples(t, registry, "holdfast_http_requests_underway")["test"]; n != 1 {
				t.Errorf("%g under way, and it is one", n)
			}
			return r.Context().Err()
		}},
		{http.MethodGet, "/named", func(w http.ResponseWriter, r *http.Request) error {
			Operation(w, "of another name")
			return fine(w, r)
		}},
	}))
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, asked := range []string{
		"GET /fine", "GET /fine", "HEAD /fine", "PUT /fine", "POST /of/a", "POST /of/b", "GET /ours", "GET /panic", "GET /half", "GET /gone",
		"GET /named", "GET /nothing", "DELETE /nothing/at/all",
	} {
		method, path, _ := strings.Cut(asked, " ")
		r := httptest.NewRequest(method, path, nil)
		if path == "/gone" {
			r = r.WithContext(gone)
		}
		func() {
			defer func() {
				if cut := recover(); (cut != nil) != (path == "/half") {
					t.Errorf("%s: %v", asked, cut)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
	return registry
}

// samples returns the values of a metric by its labels; of a histogram it is the number of
// observations.
func samples(t *testing.T, from prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() { // in the order of their names
				labels = append(labels, l.GetValue())
			}
			values[strings.Join(labels, ", ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// Each request is counted by API, status and operation with the time of its answer, and none is under way at the
// end.
func TestRequestsAreCounted(t *testing.T) {
	registry := counted(t)
	for name, want := range map[string]map[string]float64{
		"holdfast_http_requests_total": { // API, code, operation
			"test, 204, GET /fine": 2, "test, 204, HEAD /fine": 1, "test, 204, POST /of/{id}": 2, "test, 204, of another name": 1,
			"test, 404, none": 2, "test, 405, none": 1, "test, 500, GET /ours": 1, "test, 500, GET /panic": 1,
			"test, cut, GET /gone": 1, "test, cut, GET /half": 1,
		},
		"holdfast_http_answer_seconds": {
			"test, GET /fine": 2, "test, HEAD /fine": 1, "test, POST /of/{id}": 2, "test, of another name": 1, "test, none": 3,
			"test, GET /ours": 1, "test, GET /panic": 1, "test, GET /gone": 1, "test, GET /half": 1,
		},
		"holdfast_http_requests_underway": {"test": 0},
	} {
		if got := samples(t, registry, name); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
