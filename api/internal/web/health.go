package web

import (
	"context"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Health reports whether the node can serve.
type Health interface {
	// Ready returns nil if the node has joined, caught up and knows a leader, else the
	// reason, in words for people. It never waits for the network.
	Ready(ctx context.Context) error
}

type healthy struct {
	Status  string `json:"status"`
	Version string `json:"version,omitempty"`
}

// Alive answers GET /healthz: 200 while the process lives.
func Alive(version string) Handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		return JSON(w, http.StatusOK, healthy{"alive", version})
	}
}

// unready is the reason why a node cannot serve, as the answer to a health check or to any
// request while the node starts. It is not logged as a failed request.
type unready struct{ error }

func (u unready) Unwrap() error { return u.error }

// Ready answers GET /readyz: 200 when the node can serve, else 503.
func Ready(h Health, version string) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := h.Ready(r.Context()); err != nil {
			return unready{state.Errorf(state.CodeUnavailable, "not ready: %v", err)}
		}
		return JSON(w, http.StatusOK, healthy{"ready", version})
	}
}

// Paths at which a load balancer asks whether the node is alive and ready.
const (
	AlivePath = "/healthz"
	ReadyPath = "/readyz"
)

// HealthRoutes returns the rows of the health paths for a surface's table.
func HealthRoutes(h Health, version string) []Route {
	return []Route{
		{Method: http.MethodGet, Path: AlivePath, Serve: Alive(version)},
		{Method: http.MethodGet, Path: ReadyPath, Serve: Ready(h, version)},
	}
}
