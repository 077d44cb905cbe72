// Package paid serves the paid gateway over HTTP. A client stores objects and pins without an
// account, and pays for each request with the x402 protocol. This package states the price,
// checks the fields of a payment, and writes the answer. cluster/payments executes the request.
//
// Imports: std, api/internal/web, api/internal/pinbody, internal/evm, cluster/payments, cluster/accounts, cluster/objects,
// cluster/pins, consensus/state.
// Never:   other surfaces, consensus, storage, peer, listeners, the facilitator.
package paid

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/pinbody"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Payments is the application logic behind the gateway.
type Payments interface {
	// Put stores an object and settles its payment. Errors: *payments.Rejected,
	// *payments.RefundError, payments.ErrPaymentUsed, ErrNotOwner, ErrBusy, ErrFacilitator,
	// ErrLength, and those of objects.
	Put(ctx context.Context, r payments.PutRequest) (payments.Receipt, error)
	// Pin creates a pin and settles its payment. It has the same errors as Put.
	Pin(ctx context.Context, r payments.PinRequest) (payments.Receipt, error)
	// Delete removes an object and settles the payment. The payer must be the owner of the
	// object.
	Delete(ctx context.Context, r payments.DeleteRequest) (payments.Receipt, error)
	// Head returns an object whose paid time has not ended. Errors: payments.ErrNotFound,
	// *payments.EndedError, state.ErrUnavailable.
	Head(ctx context.Context, bucket, key string) (payments.Opened, error)
	// Open opens the content of an object that Head has returned; the caller closes it.
	Open(ctx context.Context, o *payments.Opened) (io.ReadSeekCloser, error)
	// FindPin returns a paid pin. Errors: state.ErrNotFound, state.ErrUnavailable.
	FindPin(ctx context.Context, id state.RequestID) (state.Pin, error)
	// Supported returns nil if the facilitator answers a request.
	Supported(ctx context.Context) error
}

// Pins reads the status of pins.
type Pins interface {
	// Get returns the current state of a pin, by a linearizable read.
	Get(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Record, error)
}

// Terms are the price list and the limits that the operator of the gateway has set.
type Terms struct {
	PayTo                          string // address that receives the payments
	Network                        string // name in x402 version 1, such as base-sepolia
	ChainID                        int
	Asset, AssetName, AssetVersion string // address and EIP-712 domain of the asset
	PriceMiBHour                   int64  // atomic units for 1 MiB stored for 1 h
	Minimum                        int64  // smallest price of a request, in atomic units
	PerCopy                        bool   // the price counts for each copy in the cluster
	MinTTL, MaxTTL, DefaultTTL     time.Duration
	MaxSize                        int64 // maximum bytes of an object or pin
}

// Options configure the gateway. Payments, Pins, Health and Logger are required.
type Options struct {
	Payments Payments
	Pins     Pins
	Terms    Terms
	// Copies returns the replication factor of the cluster; nil means one copy.
	Copies  func() int
	Limits  *web.Limits // nil: no limits
	Health  web.Health
	Now     func() time.Time // nil: time.Now
	Version string
	Logger  *slog.Logger
	Metrics *web.Metrics // nil: no metrics
}

// caseTimeout bounds each call of Payments and Pins that transfers no content and settles no
// payment.
const caseTimeout = 7 * time.Second

type surface struct {
	Options

	terms  *Terms
	prober prober
}

// New returns the handler of the gateway, or an error if a required option is missing.
func New(o Options) (http.Handler, error) {
	if o.Payments == nil || o.Pins == nil || o.Health == nil || o.Logger == nil {
		return nil, errors.New("paid: Payments, Pins, Health and Logger are required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Copies == nil {
		o.Copies = func() int { return 1 }
	}
	s := &surface{Options: o, terms: &o.Terms}
	s.prober = prober{ask: o.Payments.Supported, now: o.Now}
	serve := web.Routes(append(s.routes(), web.HealthRoutes(o.Health, o.Version)...))
	return web.Attended(web.StallTimeout, anyOrigin(web.Wrap(s.wrapping(), serve))), nil
}

// Starting returns the handler of a node that is starting, in place of New, whose dependencies do
// not exist yet. It answers health checks, and rejects all other requests with 503. It needs the
// options Health, Version and Logger, and uses Metrics.
func Starting(o Options) http.Handler {
	s := &surface{Options: o, terms: &o.Terms}
	return anyOrigin(web.Wrap(s.wrapping(), web.Starting(o.Health, web.HealthRoutes(o.Health, o.Version))))
}

func (s *surface) wrapping() web.Options {
	server := "holdfast"
	if s.Version != "" {
		server += "/" + s.Version
	}
	return web.Options{Name: "paid", Server: server, Fail: s.fail, Logger: s.Logger, Metrics: s.Metrics}
}

// routes returns the complete route table. The first matching row applies, so no object can be in
// a bucket named pins or health.
func (s *surface) routes() []web.Route {
	table := []web.Route{
		{Method: http.MethodGet, Path: "/health", Serve: s.health},
		{Method: http.MethodGet, Path: "/health/pricing", Serve: s.pricing},
		{Method: http.MethodPost, Path: "/pins", Serve: s.createPin},
		{Method: http.MethodGet, Path: "/pins/{requestid}", Serve: s.getPin},
		{Method: http.MethodGet, Path: "/{bucket}/{key...}", Serve: s.getObject},
		{Method: http.MethodPut, Path: "/{bucket}/{key...}", Serve: s.putObject},
		{Method: http.MethodDelete, Path: "/{bucket}/{key...}", Serve: s.deleteObject},
	}
	for i := range table {
		table[i].Serve = s.metered(table[i].Serve)
	}
	return table
}

// metered returns a handler that enforces the rate of the client's address before it calls h. It
// records the caller as anonymous for the audit log.
func (s *surface) metered(h web.Handler) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.Limits.Address(r); err != nil {
			return err
		}
		return h(w, r.WithContext(state.WithActor(r.Context(), s.Limits.Actor(r, &accounts.Principal{}))))
	}
}

// here returns the absolute URL of a request as the client sees it, behind a proxy too.
func (s *surface) here(r *http.Request) string {
	host := r.Host
	if host == "" {
		host = "localhost" // of a request of HTTP/1.0
	}
	return s.Limits.Scheme(r) + "://" + host + r.URL.EscapedPath()
}

// due returns the payment of a request, or a *paymentRequired if there is none or if it does not
// fit the offer o. It sets the URL of o.
func (s *surface) due(r *http.Request, o *offer) (*payments.Payment, error) {
	o.url = s.here(r)
	p, reason := s.terms.paymentOf(r.Header, o, s.Now())
	switch {
	case reason != "":
		return nil, &paymentRequired{o, reason}
	case p == nil:
		return nil, &paymentRequired{o, reasonRequired}
	}
	return p, nil
}

// settled returns a *paymentRequired if err means that the payment was rejected, and err
// otherwise.
func settled(o *offer, err error) error {
	if reason := refusalOf(err); reason != "" {
		return &paymentRequired{o, reason}
	}
	return err
}

// ok answers with status and body, and adds the settlement headers of the receipt.
func (s *surface) ok(w http.ResponseWriter, status int, receipt *payments.Receipt, body any) error {
	if err := s.terms.respond(w.Header(), receipt.Transaction, receipt.ID.Payer); err != nil {
		return err
	}
	return web.JSON(w, status, body)
}

// timeOf formats a time as in the Pinning Service API: ISO 8601 with milliseconds in UTC.
func timeOf(at time.Time) string { return at.UTC().Format(pinbody.TimeForm) }
