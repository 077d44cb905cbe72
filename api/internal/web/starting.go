package web

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Starting returns the handler of an API while the node starts and its application logic does not
// exist yet. It serves the routes of table, and returns state.ErrUnavailable with the result of
// h.Ready for all other paths. Wrap logs these errors at debug, because every start causes them.
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
