package admin

import (
	"log/slog"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// Starting returns the handler of the socket while the node starts, in place of NewOperator,
// whose dependencies do not exist yet. It answers every request with 503 and the reason.
func Starting(h web.Health, logger *slog.Logger) http.Handler {
	return web.Wrap(web.Options{Name: "operator", Answer: answer, Logger: logger}, web.Starting(h, nil))
}
