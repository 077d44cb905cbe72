package admin

import (
	"log/slog"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// Starting returns the handler of the socket until the use cases for NewOperator exist: it
// answers 503 with the reason.
func Starting(h web.Health, logger *slog.Logger) http.Handler {
	return web.Wrap(web.Options{Name: "operator", Answer: answer, Logger: logger}, web.Starting(h, nil))
}
