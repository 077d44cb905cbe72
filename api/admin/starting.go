package admin

import (
	"log/slog"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// Starting returns what answers on the socket until the use cases are there for
// NewOperator: 503 and why.
func Starting(h web.Health, logger *slog.Logger) http.Handler {
	return web.Wrap(web.Options{Name: "operator", Answer: answer, Logger: logger}, web.Starting(h, nil))
}
