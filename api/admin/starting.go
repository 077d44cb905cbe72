package admin

import (
	"log/slog"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// Starting returns a handler of the socket for a node that is starting, until the use cases that
// NewOperator needs exist. The handler answers every request with 503 and the reason.
func Starting(h web.Health, logger *slog.Logger) http.Handler {
	return web.Wrap(web.Options{Name: "operator", Answer: answer, Logger: logger}, web.Starting(h, nil))
}
