package web

import (
	"context"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Health reports whether the node can serve.
type Health interface {
	// Ready returns nil if the node has joined the cluster, has caught up with the log and knows
	// a leader. Otherwise the error states the reason for people. Ready never waits for the
	// network.
	Ready(ctx context.Context) error
}

type healthy struct {
	Status  string `json:"status"`
	Version string `json:"version,omitempty"`
}

// Alive returns the handler of GET /healthz: it answers 200 as long as the process runs.
func Alive(version string) Handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		return JSON(w, http.StatusOK, healthy{"alive", version})
	}
}

// unready is the error of a node that cannot serve yet. Wrap logs it at debug, because health
// checks of a starting node are no failures.
type unready struct{ error }

func (u unready) Unwrap() error { return u.error }

// Ready returns the handler of GET /readyz: it answers 200 if h.Ready returns nil, and 503
// otherwise.
func Ready(h Health, version string) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := h.Ready(r.Context()); err != nil {
			return unready{state.Errorf(state.CodeUnavailable, "not ready: %v", err)}
		}
		return JSON(w, http.StatusOK, healthy{"ready", version})
	}
}

// Paths at which a load balancer checks whether the process is alive and whether the node can
// serve.
const (
	AlivePath = "/healthz"
	ReadyPath = "/readyz"
)

// HealthRoutes returns the routes of AlivePath and ReadyPath, for the route table of an API.
func HealthRoutes(h Health, version string) []Route {
	return []Route{
		{Method: http.MethodGet, Path: AlivePath, Serve: Alive(version)},
		{Method: http.MethodGet, Path: ReadyPath, Serve: Ready(h, version)},
	}
}
