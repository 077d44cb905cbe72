package web

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Starting serves in place of a surface whose use cases do not exist yet: the routes of
// table, and state.ErrUnavailable with the reason for all others. A start is part of normal
// use, so the log has these requests at the level of served ones.
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
			return unready{state.ErrUnavailable} // ready now: the next request is served
		}
		return unready{state.Errorf(state.CodeUnavailable, "%v", why)}
	}
}
