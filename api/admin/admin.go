// Package admin serves the operator of a node in two ways: metrics and health checks on a TCP
// listener, and the local API on a Unix socket in the data folder. The commands of the program
// call the local API. The socket requires no key, because only the user of the node process can
// open it.
//
// Imports: std, prometheus, api/internal/drainbody, api/internal/web, cluster/members, cluster/accounts,
// cluster/audit, cluster/integrity, consensus/state.
// Never:   other surfaces, consensus, storage, peer, listeners.
package admin

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits of the requests for metrics.
const (
	maxScrapes    = 4 // at the same time
	scrapeTimeout = 10 * time.Second
)

// MonitorOptions configure the handler of metrics and health. All fields but Version are
// required.
type MonitorOptions struct {
	Gatherer prometheus.Gatherer
	Health   web.Health
	Version  string
	Logger   *slog.Logger
}

// NewMonitor returns the handler of GET /metrics, /healthz and /readyz. It requires no
// credentials, because its answers contain nothing about accounts.
func NewMonitor(o MonitorOptions) http.Handler {
	metrics := promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	})
	table := append(web.HealthRoutes(o.Health, o.Version), web.Route{
		Method: http.MethodGet, Path: "/metrics", Serve: func(w http.ResponseWriter, r *http.Request) error {
			metrics.ServeHTTP(w, r)
			return nil
		},
	})
	return web.Wrap(web.Options{Name: "admin", Answer: answer, Logger: o.Logger}, web.Routes(table))
}

// Values of the Retry-After header.
const (
	// retryUnavailable is about the duration of a leader election.
	retryUnavailable = time.Second
	// retryNoSpace is about the time after which deleted content has freed space.
	retryNoSpace = 60 * time.Second
)

// errorTable has the answer to each error code of the state. The answers contain the text of the
// error, because the caller is the operator.
var errorTable = map[state.Code]web.Answer{
	state.CodeInvalid:      {Status: http.StatusBadRequest, Reason: "BAD_REQUEST"},
	state.CodeNotFound:     {Status: http.StatusNotFound, Reason: "NOT_FOUND"},
	state.CodeExists:       {Status: http.StatusConflict, Reason: "EXISTS"},
	state.CodeConflict:     {Status: http.StatusConflict, Reason: "CONFLICT"},
	state.CodeUnauthorized: {Status: http.StatusUnauthorized, Reason: "UNAUTHORIZED"},
	state.CodeForbidden:    {Status: http.StatusForbidden, Reason: "FORBIDDEN"},
	state.CodeQuota:        {Status: http.StatusConflict, Reason: "INSUFFICIENT_FUNDS"},
	state.CodeUnavailable:  {Status: http.StatusServiceUnavailable, Reason: "SERVICE_UNAVAILABLE", RetryAfter: retryUnavailable},
	state.CodeTooLarge:     {Status: http.StatusConflict, Reason: "LIMIT_REACHED"},
	state.CodeLimited:      {Status: http.StatusServiceUnavailable, Reason: "BUSY", RetryAfter: retryUnavailable},
	state.CodeNoSpace:      {Status: http.StatusInsufficientStorage, Reason: "INSUFFICIENT_STORAGE", RetryAfter: retryNoSpace},

	// No request of this API is about buckets or objects, so these codes get general
	// answers.
	state.CodeNoBucket:     {Status: http.StatusNotFound, Reason: "NOT_FOUND"},
	state.CodeNoKey:        {Status: http.StatusNotFound, Reason: "NOT_FOUND"},
	state.CodeNoUpload:     {Status: http.StatusNotFound, Reason: "NOT_FOUND"},
	state.CodeNotEmpty:     {Status: http.StatusConflict, Reason: "CONFLICT"},
	state.CodePrecondition: {Status: http.StatusConflict, Reason: "CONFLICT"},
	state.CodeInvalidPart:  {Status: http.StatusBadRequest, Reason: "BAD_REQUEST"},
	state.CodeTooSmall:     {Status: http.StatusBadRequest, Reason: "BAD_REQUEST"},
	state.CodeNoVersion:    {Status: http.StatusNotFound, Reason: "NOT_FOUND"},
	state.CodeCredits:      {Status: http.StatusConflict, Reason: "INSUFFICIENT_FUNDS"},
}

// answer converts any error of a handler to the answer for the client.
func answer(err error) web.Answer {
	return web.AnswerBy(errorTable, err, "the node did not get it done in time", err.Error())
}
