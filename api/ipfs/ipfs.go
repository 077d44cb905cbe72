// Package ipfs serves the IPFS HTTP gateway (https://specs.ipfs.tech/http-gateways/): public content of
// the cluster by its CID, to everybody and without credentials. boxo has the semantics of requests and
// answers. This package decides which requests boxo sees, gives it the blocks of the content that the
// request names, and bounds the work for a request.
//
// Imports: std, boxo, prometheus, go-cid, api/internal/web, cluster/content, consensus/state.
// Never:   other surfaces, consensus, storage, peer, listeners, settings.
package ipfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/boxo/gateway"
	"github.com/ipfs/boxo/path"
	"github.com/ipfs/go-cid"
	"github.com/prometheus/client_golang/prometheus"
)

// Content finds public content.
type Content interface {
	// Public returns a reader of the DAG of root if everybody may read it. Errors: state.ErrNotFound,
	// together with content.ErrFetching if the cluster is still fetching it, and state.ErrUnavailable.
	Public(ctx context.Context, root cid.Cid) (content.DAG, error)
}

// Options configure the gateway. Content, Health and Logger are required.
type Options struct {
	Content Content
	// Hosts are host names in lower case, without ports. Below each of them, and below localhost,
	// every CID has a host of its own, CID.ipfs.HOST, to which requests for HOST/ipfs/CID are redirected.
	Hosts   []string
	Limits  *web.Limits // nil: no limits
	Health  web.Health
	Version string
	Logger  *slog.Logger
	Metrics *web.Metrics // nil: no metrics
}

// Time limits of a request.
const (
	// findTimeout bounds the time until the gateway knows whether it may serve a root.
	findTimeout = 5 * time.Second
	// blockTimeout bounds the time to get one block.
	blockTimeout = 30 * time.Second
	// maxDuration bounds a whole request.
	maxDuration = time.Hour
	// fetchingRetry is the value of Retry-After for content that the cluster is still fetching.
	fetchingRetry = 5 * time.Second
)

// everybody stands for all clients of the gateway where accounts take turns, so that together they have no
// more of a busy node than one account. It is the id of no account.
const everybody state.AccountID = "ipfs-gateway"

// maxSegments is the largest number of names in a path after the CID. boxo resolves a path again for each of
// its names.
const maxSegments = 256

// localhost is the host name that browsers resolve to this machine, together with all names below it.
const localhost = "localhost"

// methods are the methods of the gateway.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodOptions}

type surface struct {
	Options

	hosts   map[string]*gateway.PublicGateway
	alive   web.Handler
	ready   web.Handler
	byHost  http.Handler // translates the host of a request to a path and calls checked
	serving http.Handler // boxo's handler of paths
}

// New returns the handler of the gateway, or an error if a required option is missing.
func New(o Options) (http.Handler, error) {
	if o.Content == nil || o.Health == nil || o.Logger == nil {
		return nil, errors.New("ipfs: Content, Health and Logger are required")
	}
	s := newSurface(o)
	back, err := newBackend()
	if err != nil {
		return nil, fmt.Errorf("ipfs: %w", err)
	}
	c := gateway.Config{
		DeserializedResponses: true, NoDNSLink: true, DisableHTMLErrors: true, PublicGateways: s.hosts, MaxRequestDuration: maxDuration,
		DeprecatedXIpfsPath: true, // clients and the suite gateway-conformance still want the header
		// Package web counts the requests. The registry keeps boxo's metrics away from the default one.
		MetricsRegistry: prometheus.NewRegistry(),
	}
	s.serving = gateway.NewHandler(c, back)
	s.byHost = gateway.NewHostnameHandler(c, back, http.HandlerFunc(s.checked))
	return web.Attended(web.StallTimeout, anyOrigin(web.Wrap(s.wrapping(), s.serve))), nil
}

// Starting returns the handler of a node that is starting, in place of New, whose dependencies do not
// exist yet. It answers health checks, and rejects all other requests with 503. It needs the options
// Health and Logger, and uses Hosts, Version and Metrics.
func Starting(o Options) http.Handler {
	s := newSurface(o)
	return anyOrigin(web.Wrap(s.wrapping(), web.Starting(o.Health, web.HealthRoutes(o.Health, o.Version))))
}

func newSurface(o Options) *surface {
	s := &surface{Options: o, hosts: map[string]*gateway.PublicGateway{}, alive: web.Alive(o.Version), ready: web.Ready(o.Health, o.Version)}
	for _, host := range append([]string{localhost}, o.Hosts...) {
		s.hosts[host] = &gateway.PublicGateway{Paths: []string{"/ipfs", "/ipns"}, UseSubdomains: true, NoDNSLink: true, DeserializedResponses: true}
	}
	return s
}

func (s *surface) wrapping() web.Options {
	server := "holdfast"
	if s.Version != "" {
		server += "/" + s.Version
	}
	return web.Options{Name: "gateway", Server: server, Fail: s.fail, Logger: s.Logger, Metrics: s.Metrics}
}

// anyOrigin returns a handler that allows scripts of every origin to read the answers of h. That is
// safe because everybody may read them without credentials.
func anyOrigin(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", web.AnyOrigin)
		header.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
		header.Set("Access-Control-Allow-Headers", "Content-Type, User-Agent, Range, If-None-Match, Cache-Control, X-Requested-With, "+web.RequestIDHeader)
		header.Set("Access-Control-Expose-Headers", "Content-Length, Content-Range, Etag, Ipfs-Uri, X-Ipfs-Path, X-Ipfs-Roots, X-Chunked-Output, X-Stream-Output, Retry-After, "+web.RequestIDHeader)
		h.ServeHTTP(w, r)
	})
}

// serve answers a request of any host and path.
func (s *surface) serve(w http.ResponseWriter, r *http.Request) error {
	r = s.asSent(r)
	if !s.isBelow(r.Host) {
		switch at := r.URL.Path; {
		case at == web.AlivePath:
			web.Operation(w, "GET "+web.AlivePath)
			return s.alive(w, r)
		case at == web.ReadyPath:
			web.Operation(w, "GET "+web.ReadyPath)
			return s.ready(w, r)
		case strings.HasPrefix(at, "/ipns/"):
			return noNames()
		case !strings.HasPrefix(at, "/ipfs/"):
			return web.Errorf(http.StatusNotFound, "NOT_FOUND", "this is an IPFS gateway: content is at /ipfs/CID")
		}
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions:
		w.Header().Set("Allow", strings.Join(methods, ", "))
		return web.Empty(w, http.StatusNoContent)
	default:
		return web.MethodNotAllowed(methods...)
	}
	if err := s.Limits.Address(r); err != nil {
		return err
	}
	form, err := formOf(r)
	if err != nil {
		return err
	}
	web.Operation(w, r.Method+" "+form.name)
	leave, err := s.Limits.Enter(r.Context(), everybody)
	if err != nil {
		return err //nolint:wrapcheck // of the context
	}
	defer leave()
	q := &request{held: s.Limits.HoldFor(r)}
	defer q.end()
	if err := q.held.Grow(form.memory); err != nil {
		return err
	}
	return q.answer(w, r, s.byHost)
}

// checked serves a request whose path names its content, after it has checked that everybody may read
// this content. boxo reads nothing without that check, because request.dag is the only source of blocks.
func (s *surface) checked(w http.ResponseWriter, r *http.Request) {
	q := requestOf(r.Context())
	p, err := path.NewPath(r.URL.Path) // as boxo parses it
	switch {
	case err != nil, strings.HasPrefix(r.URL.Path, "/ipfs/ipfs/"), strings.HasPrefix(r.URL.Path, "/ipfs/ipns/"):
		// boxo answers 400, or redirects to the path without the first /ipfs.
		s.serving.ServeHTTP(w, r)
		return
	case p.Namespace() == path.IPNSNamespace:
		q.refused = noNames()
		return
	case p.Namespace() != path.IPFSNamespace:
		q.refused = web.NoSuchRoute()
		return
	}
	at, err := path.NewImmutablePath(p)
	if err != nil {
		q.refused = web.BadRequest("%v", err)
		return
	}
	if names := len(p.Segments()) - 2; names > maxSegments {
		q.refused = web.BadRequest("the path has %d names, at most %d are allowed", names, maxSegments)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), findTimeout)
	q.dag, q.refused = s.Content.Public(ctx, at.RootCid())
	cancel()
	switch {
	case q.refused == nil:
		s.serving.ServeHTTP(w, r)
	case errors.Is(q.refused, state.ErrNotFound) && r.Header.Get("Cache-Control") == "only-if-cached":
		q.refused = web.Errorf(http.StatusPreconditionFailed, "NOT_CACHED", "%s", detailOf(q.refused))
	case errors.Is(q.refused, content.ErrFetching):
		q.refused = &web.Error{Answer: web.Answer{Status: http.StatusNotFound, Reason: "NOT_FOUND", Detail: detailOf(q.refused), RetryAfter: fetchingRetry}}
	case errors.Is(q.refused, state.ErrUnavailable), errors.Is(q.refused, context.DeadlineExceeded):
		// Everybody can ask for any CID, so this is no line of the log.
		q.refused = web.OfContent(web.Errorf(http.StatusGatewayTimeout, "GATEWAY_TIMEOUT", "%s", detailOf(q.refused)))
	}
}

// noNames returns the error for IPNS names.
func noNames() error {
	return web.Errorf(http.StatusNotImplemented, "NOT_IMPLEMENTED", "this gateway serves /ipfs/ only: it resolves neither IPNS names nor DNSLink")
}

// isBelow reports whether host is a name below one of the hosts of the gateway, such as
// CID.ipfs.HOST, where every path belongs to the content.
func (s *surface) isBelow(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	for _, namespace := range []string{".ipfs.", ".ipns."} {
		if _, base, ok := strings.Cut(host, namespace); ok && s.hosts[base] != nil {
			return true
		}
	}
	return false
}

// asSent returns the request with the host in lower case, and with the headers in which a proxy tells
// host and scheme only if a trusted proxy has set them.
func (s *surface) asSent(r *http.Request) *http.Request {
	own := *r
	own.Header = r.Header.Clone()
	own.Host = strings.ToLower(r.Host)
	if said := r.Header.Get("X-Forwarded-Host"); said != "" && s.Limits.Proxied(r) {
		own.Host = strings.ToLower(said)
	}
	own.Header.Del("X-Forwarded-Host")
	own.Header.Set("X-Forwarded-Proto", s.Limits.Scheme(r))
	return &own
}

// codes maps error codes of the state to answers.
var codes = map[state.Code]web.Answer{
	state.CodeInvalid:     {Status: http.StatusBadRequest, Reason: "BAD_REQUEST"},
	state.CodeNotFound:    {Status: http.StatusNotFound, Reason: "NOT_FOUND"},
	state.CodeLimited:     {Status: http.StatusTooManyRequests, Reason: "RATE_LIMITED", RetryAfter: time.Second},
	state.CodeUnavailable: {Status: http.StatusServiceUnavailable, Reason: "SERVICE_UNAVAILABLE", RetryAfter: time.Second},
}

// fail writes the answer to an error as text, as other IPFS gateways do.
func (s *surface) fail(w http.ResponseWriter, r *http.Request, err error) error {
	a := web.AnswerBy(codes, err, "the cluster did not answer in time", "internal error; X-Request-Id names it in the log")
	h := w.Header()
	if seconds := int64((a.RetryAfter + time.Second - 1) / time.Second); seconds > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	if len(a.Allow) > 0 {
		h.Set("Allow", strings.Join(a.Allow, ", "))
	}
	h.Set("Cache-Control", noStore)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(a.Detail)+1))
	w.WriteHeader(a.Status)
	if r.Method == http.MethodHead {
		return nil
	}
	_, err = io.WriteString(w, a.Detail+"\n")
	return err //nolint:wrapcheck // Wrap adds it to the error of the request
}

// detailOf returns the text of an error for people, without its code if it has one.
func detailOf(err error) string {
	var coded *state.Error
	if errors.As(err, &coded) {
		return coded.Detail
	}
	return "the cluster did not answer in time"
}
