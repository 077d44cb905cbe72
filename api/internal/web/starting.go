package web

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Starting answers in the place of a surface whose use cases are not there yet:
// what the table has, and everything else with state.ErrUnavailable and why.
func Starting(h Health, table []Route) Handler {
	routes := Routes(table)
	return func(w http.ResponseWriter, r *http.Request) error {
		for _, row := range table {
			if row.Path == r.URL.EscapedPath() {
				return routes(w, r)
			}
		}
		why := h.Ready(r.Context())
		if why == nil {
			return state.ErrUnavailable // from now on; the next request is served
		}
		return state.Errorf(state.CodeUnavailable, "%v", why)
	}
}
