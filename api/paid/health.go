package paid

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// probeEvery is how long a prober caches whether the facilitator answers, so that health checks
// of the gateway do not flood the facilitator.
const probeEvery = 10 * time.Second

// probeTimeout bounds one request of a prober to the facilitator.
const probeTimeout = 3 * time.Second

// prober checks whether the facilitator answers, and caches the result for probeEvery.
type prober struct {
	ask func(context.Context) error
	now func() time.Time

	// mu guards the fields below. It is held during a request to the facilitator, so that
	// concurrent calls share one request.
	mu  sync.Mutex
	at  time.Time // time of the last request
	err error     // its result
}

// answers returns nil if the facilitator answers, else the error of the request. The result may
// be up to probeEvery old.
func (p *prober) answers(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.now(); p.at.IsZero() || now.Sub(p.at) >= probeEvery {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
		defer cancel()
		p.err = p.ask(ctx)
		p.at = now
	}
	return p.err
}

// wellness is the JSON body of the answer to GET /health.
type wellness struct {
	Status      string `json:"status"`      // ok, or degraded if the facilitator does not answer
	Facilitator string `json:"facilitator"` // ok or unavailable
	Network     string `json:"network"`
	Version     string `json:"version,omitempty"`
}

// health answers GET /health. It answers 503 if the node cannot serve, and 200 otherwise; the
// body then states whether payments can be processed.
func (s *surface) health(w http.ResponseWriter, r *http.Request) error {
	if err := s.Health.Ready(r.Context()); err != nil {
		return web.Ready(s.Health, s.Version)(w, r)
	}
	body := wellness{"ok", "ok", s.terms.Network, s.Version}
	if s.prober.answers(r.Context()) != nil {
		body.Status, body.Facilitator = "degraded", "unavailable"
	}
	return web.JSON(w, http.StatusOK, body)
}

// prices is the JSON body of the answer to GET /health/pricing. Its members have the names of the
// settings in config.toml.
type prices struct {
	Network      string `json:"network"`
	ChainID      int    `json:"chain_id"`
	Asset        string `json:"asset"`
	AssetName    string `json:"asset_name"`
	AssetVersion string `json:"asset_version"`
	PayTo        string `json:"pay_to"`
	PriceMiBHour string `json:"price_mib_hour"` // atomic units
	Minimum      string `json:"minimum"`        // atomic units
	PerCopy      bool   `json:"per_copy"`
	Copies       int    `json:"copies"`
	MinTTL       int64  `json:"min_ttl"` // seconds
	MaxTTL       int64  `json:"max_ttl"`
	DefaultTTL   int64  `json:"default_ttl"`
	MaxSize      int64  `json:"max_size"` // bytes
	Quote        *quote `json:"quote,omitempty"`
}

// quote is the price for the bytes and the duration in the query of GET /health/pricing.
type quote struct {
	Bytes  int64  `json:"bytes"`
	TTL    int64  `json:"ttl"`    // seconds
	Amount string `json:"amount"` // atomic units
}

// pricing answers GET /health/pricing with the price list. If the query has bytes or ttl
// (seconds), it adds a quote.
func (s *surface) pricing(w http.ResponseWriter, r *http.Request) error {
	t := s.terms
	body := prices{
		Network: t.Network, ChainID: t.ChainID, Asset: t.Asset, AssetName: t.AssetName, AssetVersion: t.AssetVersion, PayTo: t.PayTo,
		PriceMiBHour: strconv.FormatInt(t.PriceMiBHour, 10), Minimum: strconv.FormatInt(t.Minimum, 10), PerCopy: t.PerCopy, Copies: s.Copies(),
		MinTTL: secondsOf(t.MinTTL), MaxTTL: int64(t.MaxTTL / time.Second), DefaultTTL: secondsOf(t.DefaultTTL), MaxSize: t.MaxSize,
	}
	if query := r.URL.Query(); query.Has("bytes") || query.Has("ttl") {
		q := quote{TTL: body.DefaultTTL}
		for name, of := range map[string]struct {
			into *int64
			most int64
		}{"bytes": {&q.Bytes, t.MaxSize}, "ttl": {&q.TTL, body.MaxTTL}} {
			if text := query.Get(name); text != "" {
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil || n < 0 || n > min(of.most, math.MaxInt64/int64(time.Second)) {
					return web.BadRequest("%s must be a whole number from 0 to %d", name, of.most)
				}
				*of.into = n
			}
		}
		q.Amount = t.Price(q.Bytes, time.Duration(q.TTL)*time.Second, s.Copies()).String()
		body.Quote = &q
	}
	if err := web.JSON(w, http.StatusOK, body); err != nil {
		return fmt.Errorf("write prices: %w", err)
	}
	return nil
}
