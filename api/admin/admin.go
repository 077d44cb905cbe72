// Package admin serves the operator of a node: metrics and health on a TCP listener,
// and the local API on the Unix socket in the data folder. The program's commands use
// the local API. The socket requires no key: a process that can open it controls the
// node.
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

// Bounds of the metrics page.
const (
	maxScrapes    = 4 // at the same time
	scrapeTimeout = 10 * time.Second
)

// MonitorOptions configure the monitor. All fields but Version are required.
type MonitorOptions struct {
	Gatherer prometheus.Gatherer
	Health   web.Health
	Version  string
	Logger   *slog.Logger
}

// NewMonitor returns the handler of metrics and health. It needs no credentials and reveals
// nothing about accounts.
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
	// retryUnavailable is about how long an election takes.
	retryUnavailable = time.Second
	// retryNoSpace is about how long deleting content takes to free space.
	retryNoSpace = 60 * time.Second
)

// errorTable has the answer for every code of the state. The details are the texts of the
// errors, because the caller is the operator.
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

// answer returns the answer for any error.
func answer(err error) web.Answer {
	return web.AnswerBy(errorTable, err, "the node did not get it done in time", err.Error())
}
