package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// asked is a health with a fixed answer.
type asked struct{ err error }

func (a asked) Ready(context.Context) error { return a.err }

// A request to a node that starts is answered with 503 and the reason, and logged once, as DEBUG.
func TestRequestsToANodeThatStartsAreNoWarnings(t *testing.T) {
	for _, tc := range []struct {
		name, path string
		ready      error
		status     int
		says       string
	}{
		{"of a client", "/pins", errors.New("it has not joined"), 503, "it has not joined"},
		{"of a client, just before it is served", "/pins", nil, 503, "SERVICE_UNAVAILABLE"},
		{"of a load balancer", ReadyPath, errors.New("it has not joined"), 503, "it has not joined"},
		{"whether it lives", AlivePath, errors.New("it has not joined"), 200, "alive"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			health := asked{tc.ready}
			var log bytes.Buffer
			answer := func(err error) Answer {
				if errors.Is(err, state.ErrUnavailable) {
					return Answer{Status: http.StatusServiceUnavailable, Reason: "SERVICE_UNAVAILABLE", Detail: err.Error()}
				}
				return plain(err)
			}
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			h := Wrap(Options{Name: "test", Answer: answer, Logger: logger}, Starting(health, HealthRoutes(health, "1")))
			w := serve(h, "GET", tc.path, nil)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("%d %s, want %d and %q", w.Code, w.Body, tc.status, tc.says)
			}
			if want := fmt.Sprintf("status=%d", tc.status); strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "level=DEBUG") || !strings.Contains(log.String(), want) {
				t.Errorf("log, want one line of DEBUG: %s", &log)
			}
		})
	}
}
