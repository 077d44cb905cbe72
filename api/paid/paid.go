// Package paid serves the gateway with payment per request over HTTP: objects and pins that a payment
// of the x402 protocol pays for, without an account. It states the price, checks what a payment says,
// and writes the answer; cluster/payments carries the request out.
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

// Payments has the use cases of this gateway.
type Payments interface {
	// Put stores an object that a payment pays for. Errors: *payments.Rejected,
	// *payments.RefundError, payments.ErrPaymentUsed, ErrNotOwner, ErrBusy, ErrFacilitator,
	// ErrLength, and those of objects.
	Put(ctx context.Context, r payments.PutRequest) (payments.Receipt, error)
	// Pin does the same as Put for a pin.
	Pin(ctx context.Context, r payments.PinRequest) (payments.Receipt, error)
	// Delete removes an object, whose owner has to be the payer.
	Delete(ctx context.Context, r payments.DeleteRequest) (payments.Receipt, error)
	// Head returns an object that has not ended. Errors: payments.ErrNotFound, *payments.EndedError,
	// state.ErrUnavailable.
	Head(ctx context.Context, bucket, key string) (payments.Opened, error)
	// Open opens the content of an object that Head has returned; the caller closes it.
	Open(ctx context.Context, o *payments.Opened) (io.ReadSeekCloser, error)
	// FindPin returns a paid pin. Errors: state.ErrNotFound, state.ErrUnavailable.
	FindPin(ctx context.Context, id state.RequestID) (state.Pin, error)
	// Supported returns nil if the facilitator answers.
	Supported(ctx context.Context) error
}

// Pins returns the details of a pin.
type Pins interface {
	// Get returns the current state of a pin in the cluster.
	Get(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Record, error)
}

// Terms are the conditions of the operator.
type Terms struct {
	PayTo                          string // address that is paid
	Network                        string // plain name, as in version 1 of x402
	ChainID                        int
	Asset, AssetName, AssetVersion string // address and EIP-712 domain of the asset
	PriceMiBHour                   int64  // atomic units for 1 MiB and 1 h
	Minimum                        int64  // atomic units of the smallest price
	PerCopy                        bool   // the price is for each copy
	MinTTL, MaxTTL, DefaultTTL     time.Duration
	MaxSize                        int64 // bytes of an object or pin
}

// Options configure the gateway. Payments, Pins, Health and Logger are required.
type Options struct {
	Payments Payments
	Pins     Pins
	Terms    Terms
	// Copies returns the number of copies that the cluster keeps; nil: one.
	Copies  func() int
	Limits  *web.Limits // nil: no limits
	Health  web.Health
	Now     func() time.Time // nil: time.Now
	Version string
	Logger  *slog.Logger
	Metrics *web.Metrics // nil: no metrics
}

// caseTimeout bounds a use case that transfers no content and settles no payment.
const caseTimeout = 7 * time.Second

type surface struct {
	Options

	terms  *Terms
	prober prober
}

// New returns the handler of the gateway.
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

// Starting returns a handler for a node that is starting, until the use cases that New needs exist.
// The handler answers requests for health, and every other request with 503. Starting needs the
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

// routes returns the one table of routes. The first match counts, so no object can be in the buckets
// pins and health.
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

// metered enforces the rate of the client's address, and says for the audit log who asks: nobody who
// is known.
func (s *surface) metered(h web.Handler) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.Limits.Address(r); err != nil {
			return err
		}
		return h(w, r.WithContext(state.WithActor(r.Context(), s.Limits.Actor(r, &accounts.Principal{}))))
	}
}

// here returns the absolute URL of a request as its sender has it.
func (s *surface) here(r *http.Request) string {
	host := r.Host
	if host == "" {
		host = "localhost" // of a request of HTTP/1.0
	}
	return s.Limits.Scheme(r) + "://" + host + r.URL.EscapedPath()
}

// due returns the payment of a request, or the error of a request without a payment for o.
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

// settled returns the error of a use case as the error of the request: a rejected payment is a 402.
func settled(o *offer, err error) error {
	if reason := refusalOf(err); reason != "" {
		return &paymentRequired{o, reason}
	}
	return err
}

// ok answers with a receipt, and how it was settled.
func (s *surface) ok(w http.ResponseWriter, status int, receipt *payments.Receipt, body any) error {
	if err := s.terms.respond(w.Header(), receipt.Transaction, receipt.ID.Payer); err != nil {
		return err
	}
	return web.JSON(w, status, body)
}

// timeOf writes a time of the state.
func timeOf(at time.Time) string { return at.UTC().Format(pinbody.TimeForm) }
