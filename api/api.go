// Package api is the HTTP layer of a node. It binds the listeners, mounts the handlers of each
// API, limits connections in number, size and time, and shuts down gracefully. The handlers call
// the application logic (the "use cases") through interfaces that the caller passes in Options.
//
// Imports: std, errgroup, x/net/netutil, prometheus, api/*.
// Never:   consensus, storage, peer, cluster/node, settings.
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin"
	"github.com/holdfast-ipfs/holdfast/api/console"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/api/ipfs"
	"github.com/holdfast-ipfs/holdfast/api/paid"
	"github.com/holdfast-ipfs/holdfast/api/pinning"
	"github.com/holdfast-ipfs/holdfast/api/s3"
	"github.com/holdfast-ipfs/holdfast/api/webapi"
	"github.com/holdfast-ipfs/holdfast/internal/activity"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
)

// Bounds of every listener.
const (
	// MaxConnections is the maximum number of simultaneous connections of one listener. Further
	// connections wait in the accept queue of the operating system.
	MaxConnections = 4096
	// MaxHeaderBytes is the maximum size of a request line with all headers, in bytes. The server
	// answers a larger one with status 431.
	MaxHeaderBytes = 32 << 10
	// maxStreams is the maximum number of concurrent requests on an HTTP/2 connection.
	maxStreams = 100
	// drainTimeout is how long running requests may go on after the node began to stop.
	drainTimeout = 10 * time.Second
	// cutTimeout is how long Run waits for handlers to return after it has closed their
	// connections. The node shuts down the application logic after that.
	cutTimeout = 2 * time.Second

	// takeTimeout is the time after which the server closes an HTTP/2 connection whose client
	// accepts no bytes. A deadline of a single request cannot end such a connection, because the
	// RST_STREAM frame would wait behind the bytes that the client does not accept.
	takeTimeout = time.Minute

	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	// jsonReadTimeout and jsonWriteTimeout bound the time for a whole request and for a whole
	// answer of an API with small JSON bodies. The local API has neither bound, because it
	// transfers files of any size.
	jsonReadTimeout  = 30 * time.Second
	jsonWriteTimeout = 2 * time.Minute
)

// Objects has the operations on buckets and objects that the S3 gateway and the web console call.
type Objects interface {
	s3.Objects
	console.Objects
}

// Audit has the queries of the audit log that the APIs call.
type Audit interface {
	admin.Audit
	console.Audit
	webapi.Audit
}

// Ledger has the operations on the credits of accounts that the APIs call.
type Ledger interface {
	admin.Ledger
	console.Ledger
	webapi.Ledger
}

// Accounts has the operations on accounts, keys and sessions that the APIs call.
type Accounts interface {
	web.Accounts
	s3.Accounts
	admin.Accounts
	console.Accounts
	webapi.Accounts
	pinning.Sessions
}

// Pins has the operations on pins that the Pinning Service API and the web console call.
type Pins interface {
	pinning.Pins
	console.Pins
}

// Members has the operations on cluster members that the local API and the web console call.
type Members interface {
	admin.Members
	console.Members
}

// Payments has the operations of the paid gateway: to take payments and to list them.
type Payments interface {
	paid.Payments
	admin.Payments
}

// PaidTerms are the price list and the limits of the paid gateway.
type PaidTerms = paid.Terms

// Rate is the number of requests that one account or address may send to one node.
type Rate = web.Rate

// Rates are the limits for each account and for each client address at one API of a node. A zero
// Rate means no limit.
type Rates struct{ Account, Address Rate }

// Neighbours exchanges the request load of each account with the other nodes of the cluster.
type Neighbours = web.Neighbours

// Health reports whether the node can serve.
type Health interface {
	// Ready returns nil if the node has joined the cluster, has caught up with the log and knows
	// a leader. Otherwise the error states the reason for people. Ready never waits for the
	// network.
	Ready(ctx context.Context) error
}

// Options are the addresses of the listeners and the application logic behind each API. An empty
// address disables the listener.
type Options struct {
	Pinning string // host:port of the Pinning Service API
	S3      string // host:port of the object gateway
	Console string // host:port of the web console
	Paid    string // host:port of the paid gateway
	Gateway string // host:port of the IPFS gateway
	Admin   string // host:port of metrics and health
	Folder  string // data folder, in which the socket of the local API is made

	Pins     Pins
	Objects  Objects
	Accounts Accounts
	Audit    Audit
	Ledger   Ledger
	Members  Members
	// Payments and PaidTerms are required if Paid is not empty. Copies returns the replication
	// factor of the cluster.
	Payments  Payments
	PaidTerms PaidTerms
	Copies    func() int
	// Content finds the content that the IPFS gateway serves. It is required if Gateway is not empty.
	Content ipfs.Content
	// Uploads stores and pins what users of the console send.
	Uploads webapi.Uploads
	// Providers are the OpenID providers at which people sign in to the console; nil: none.
	Providers console.Providers
	Files     admin.Files
	Blocks    admin.Blocks
	Replica   admin.Replica
	Backups   admin.Backups
	Upkeep    admin.Upkeep
	Health    Health
	Gatherer  prometheus.Gatherer
	// Registerer registers the metrics of requests; nil: there are none.
	Registerer prometheus.Registerer

	// DefaultStatus has the pin statuses that the Pinning Service API lists if the request names
	// none.
	DefaultStatus []string
	// S3Region is the region of all buckets. S3Domain is the host name whose subdomains are
	// buckets. S3MaxObject is the maximum size of the body of a PUT in bytes, and S3MinPart the
	// minimum size of a part except the last.
	S3Region, S3Domain     string
	S3MaxObject, S3MinPart int64
	// S3PresignedV2 enables presigned URLs of AWS signature version 2.
	S3PresignedV2 bool
	Version       string
	Logger        *slog.Logger
	// Activity has the newest log records of this node; nil: none.
	Activity *activity.Log

	// PinningRates and S3Rates limit the requests of one account and of one address. The paid gateway
	// applies the address rate of S3Rates to its own requests, which it counts separately.
	PinningRates, S3Rates Rates
	// GatewayRate limits the requests of one address to the IPFS gateway. GatewayHosts are the host names
	// below which it serves each CID at a host of its own.
	GatewayRate  Rate
	GatewayHosts []string
	// Processors is the number of processors of the node. While they are busy, the node starts at
	// most NoisyRate requests per second and processor for noisy accounts. 0 means no limit.
	NoisyRate, Processors int
	// Neighbours exchanges the load of accounts with the other nodes of the cluster. If it is nil,
	// only the load on this node counts.
	Neighbours Neighbours
	// TrustedProxies are the prefixes of proxies whose X-Forwarded-For is trusted.
	TrustedProxies []netip.Prefix
	// Origins are the web origins whose scripts may use the API from a browser, "*" for
	// all.
	Origins []string
	// ConsoleURL is the web origin of the console, empty if unknown. IPFSGateway is the origin of the
	// IPFS gateway to which the pages of the console link. If it is empty, they link to the gateway of
	// this node if that has hosts, else to none. SecurityContact is the URI
	// in security.txt. SignUpOpen is true if everybody who signs in at a provider gets an account.
	ConsoleURL, IPFSGateway, SecurityContact string
	SignUpOpen                               bool
	// TLSCert and TLSKey are files in PEM form; without them the APIs use plain HTTP.
	TLSCert, TLSKey string
}

// Addrs are the addresses of the bound listeners as host:port. If the configured port was 0, the
// port is the one that the system chose. An empty string means that the listener is disabled.
type Addrs struct {
	Pinning, S3, Console, Paid, Gateway, Admin string
	Socket                                     string // path of the Unix socket
}

// Server owns the bound listeners. Run starts to serve. Until Open installs the APIs, the server
// answers health checks, and rejects all other requests with status 503.
type Server struct {
	addrs       Addrs
	certificate *certificate // nil is plain HTTP
	logger      *slog.Logger
	services    []*service
	flight      *flight      // running requests
	metrics     *web.Metrics // of the APIs that clients use; nil: none
	pages       *console.Pages
	draining    chan struct{} // closed when Run begins to drain
}

// service is one listener with its server.
type service struct {
	name     string
	listener net.Listener
	server   *http.Server
	handler  atomic.Pointer[http.Handler] // changed by Open, while it serves
}

// ServeHTTP implements http.Handler.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.handler.Load()).ServeHTTP(w, r)
}

// Names of services.
const (
	pinningService  = "pinning"
	s3Service       = "s3"
	consoleService  = "console"
	paidService     = "paid"
	gatewayService  = "gateway"
	adminService    = "admin"
	operatorService = "operator"
)

// Bind reads the TLS certificate and listens on every configured address. It needs the following
// fields of Options: the addresses, Folder, Health, Gatherer, Registerer and Logger. It also uses
// the fields that shape the answers of a starting node, such as Version, Origins and S3Domain.
// The error for an address in use names its flag; the error for a bad certificate names its
// settings. The caller must call Run or Close on the server.
func Bind(o Options) (*Server, error) {
	s := &Server{logger: o.Logger, flight: newFlight(), draining: make(chan struct{})}
	var err error
	if s.certificate, err = openTLS(o); err != nil {
		return nil, err
	}
	if o.Registerer != nil {
		if s.metrics, err = web.NewMetrics(o.Registerer); err != nil {
			return nil, err
		}
	}
	if err := s.listen(o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) listen(o Options) error {
	if o.Pinning != "" {
		l, err := bind(pinningService, o.Pinning)
		if err != nil {
			return err
		}
		s.addrs.Pinning = l.Addr().String()
		s.secure(s.addJSON(pinningService, l, pinning.Starting(pinning.Options{
			Health: o.Health, Origins: o.Origins, Version: o.Version, Logger: o.Logger, Metrics: s.metrics,
		})))
	}
	if o.S3 != "" {
		l, err := bind(s3Service, o.S3)
		if err != nil {
			return err
		}
		s.addrs.S3 = l.Addr().String()
		s.secure(s.add(s3Service, l, s3.Starting(s3.Options{
			Domain: o.S3Domain, Version: o.Version, Logger: o.Logger, Metrics: s.metrics,
		}, o.Health)))
	}
	if o.Console != "" {
		l, err := bind(consoleService, o.Console)
		if err != nil {
			return err
		}
		s.addrs.Console = l.Addr().String()
		if s.pages, err = console.LoadPages(); err != nil {
			return errors.Join(err, l.Close())
		}
		h, err := console.Starting(console.Options{Pages: s.pages, Health: o.Health, Version: o.Version, Logger: o.Logger, Metrics: s.metrics})
		if err != nil {
			return errors.Join(err, l.Close())
		}
		s.secure(s.add(consoleService, l, beside(h, webapi.Starting(webapi.Options{Health: o.Health, Logger: o.Logger, Metrics: s.metrics}))))
	}
	if o.Paid != "" {
		l, err := bind(paidService, o.Paid)
		if err != nil {
			return err
		}
		s.addrs.Paid = l.Addr().String()
		s.secure(s.add(paidService, l, paid.Starting(paid.Options{Health: o.Health, Version: o.Version, Logger: o.Logger, Metrics: s.metrics})))
	}
	if o.Gateway != "" {
		l, err := bind(gatewayService, o.Gateway)
		if err != nil {
			return err
		}
		s.addrs.Gateway = l.Addr().String()
		s.secure(s.add(gatewayService, l, ipfs.Starting(ipfs.Options{Hosts: o.GatewayHosts, Health: o.Health, Version: o.Version, Logger: o.Logger, Metrics: s.metrics})))
	}
	if o.Admin != "" {
		l, err := bind(adminService, o.Admin)
		if err != nil {
			return err
		}
		s.addrs.Admin = l.Addr().String()
		s.addJSON(adminService, l, admin.NewMonitor(admin.MonitorOptions{
			Gatherer: o.Gatherer, Health: o.Health, Version: o.Version, Logger: o.Logger,
		}))
	}
	if o.Folder != "" {
		l, err := listenSocket(o.Folder)
		if err != nil {
			return err
		}
		s.addrs.Socket = filepath.Join(o.Folder, admin.SocketName)
		s.add(operatorService, l, admin.Starting(o.Health, o.Logger))
	}
	return nil
}

// Listen calls Bind and then Open.
func Listen(o Options) (*Server, error) {
	s, err := Bind(o)
	if err != nil {
		return nil, err
	}
	if err := s.Open(o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Open replaces the handlers of a starting node by those of the APIs, which call the application
// logic in o. The new handlers serve all later requests, also on existing connections.
func (s *Server) Open(o Options) error {
	pacer := web.NewPacer(o.NoisyRate, o.Processors, web.Busy, o.Neighbours)
	if err := pacer.Register(o.Registerer); err != nil {
		return err
	}
	for _, svc := range s.services {
		var h http.Handler
		var err error
		switch svc.name {
		case pinningService:
			h, err = pinning.New(pinning.Options{
				Pins: o.Pins, Authenticate: web.Tokens(o.Accounts), Recognize: web.Recognized(o.Accounts), Health: o.Health,
				Sessions: o.Accounts, Limits: web.NewLimits(o.PinningRates.Account, o.PinningRates.Address, o.TrustedProxies, nil).PacedBy(pacer), Origins: o.Origins,
				DefaultStatus: o.DefaultStatus, Draining: s.draining, Version: o.Version, Logger: o.Logger, Metrics: s.metrics,
			})
		case s3Service:
			h, err = s3.New(s3.Options{
				Objects: o.Objects, Accounts: o.Accounts, Limits: web.NewLimits(o.S3Rates.Account, o.S3Rates.Address, o.TrustedProxies, nil).PacedBy(pacer), Origins: o.Origins,
				Region: o.S3Region, Domain: o.S3Domain, MaxObject: o.S3MaxObject, MinPart: o.S3MinPart, PresignedV2: o.S3PresignedV2, Health: o.Health, Addresses: s.addressesOf(o), Version: o.Version, Logger: o.Logger, Metrics: s.metrics,
			})
		case paidService:
			h, err = paid.New(paid.Options{
				Payments: o.Payments, Pins: o.Pins, Terms: o.PaidTerms, Copies: o.Copies, Limits: web.NewLimits(Rate{}, o.S3Rates.Address, o.TrustedProxies, nil),
				Health: o.Health, Version: o.Version, Logger: o.Logger, Metrics: s.metrics,
			})
		case gatewayService:
			h, err = ipfs.New(ipfs.Options{
				Content: o.Content, Hosts: o.GatewayHosts, Limits: web.NewLimits(Rate{}, o.GatewayRate, o.TrustedProxies, nil).PacedBy(pacer),
				Health: o.Health, Version: o.Version, Logger: o.Logger, Metrics: s.metrics,
			})
		case consoleService:
			h, err = s.console(o, web.NewLimits(Rate{}, Rate{}, o.TrustedProxies, nil).PacedBy(pacer))
		case operatorService:
			h, err = s.operator(o)
		default:
			continue // the monitor needs no use case
		}
		if err != nil {
			return err
		}
		svc.handler.Store(&h)
	}
	return nil
}

// console returns the handler of the console listener: the HTML pages and the web API.
func (s *Server) console(o Options, limits *web.Limits) (http.Handler, error) {
	pages, err := console.New(console.Options{
		Pages:    s.pages,
		Accounts: o.Accounts, Audit: o.Audit, Ledger: o.Ledger, Payments: o.Payments, Pins: o.Pins, Uploads: o.Uploads, Content: o.Files, Members: o.Members, Health: o.Health, Limits: limits,
		PinningURL: s.seenAt(s.addrs.Pinning), S3URL: s.seenAt(s.addrs.S3), Region: cmp.Or(o.S3Region, s3.DefaultRegion),
		Providers: o.Providers, URL: o.ConsoleURL, IPFSGateway: cmp.Or(o.IPFSGateway, gatewayOrigin(s.addrs.Gateway, o.GatewayHosts, s.certificate != nil)), SecurityContact: o.SecurityContact, SignUpOpen: o.SignUpOpen,
		Objects: o.Objects, MaxObject: cmp.Or(o.S3MaxObject, s3.DefaultMaxObject), MinPart: cmp.Or(o.S3MinPart, s3.DefaultMinPart), Presign: presign(o.S3Region), Draining: s.draining, Activity: o.Activity, Version: o.Version, Logger: o.Logger, Metrics: s.metrics,
	})
	if err != nil {
		return nil, err
	}
	data, err := webapi.New(webapi.Options{
		Accounts: o.Accounts, Audit: o.Audit, Ledger: o.Ledger, Payments: o.Payments, Pins: o.Pins, Uploads: o.Uploads, Content: o.Files, Objects: o.Objects, Members: o.Members, Health: o.Health, Limits: limits,
		S3URL: s.seenAt(s.addrs.S3), Presign: presign(o.S3Region), Logger: o.Logger, Metrics: s.metrics,
	})
	if err != nil {
		return nil, err
	}
	return beside(pages, data), nil
}

// beside returns a handler that serves the web API for paths below its prefix, and the pages
// for all other paths.
func beside(pages, data http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := r.URL.EscapedPath(); path == webapi.Prefix || strings.HasPrefix(path, webapi.Prefix+"/") {
			data.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// operator returns the handler of the local API.
func (s *Server) operator(o Options) (http.Handler, error) {
	local, err := pinning.New(pinning.Options{
		Pins: o.Pins, Authenticate: admin.Local(o.Accounts), Health: o.Health,
		DefaultStatus: []string{"queued", "pinning", "pinned", "failed"}, Draining: s.draining, Version: o.Version, Logger: o.Logger,
		Unavailable: admin.Unavailable(o.Members),
	})
	if err != nil {
		return nil, err
	}
	return admin.NewOperator(admin.OperatorOptions{
		Members: o.Members, Accounts: o.Accounts, Audit: o.Audit, Ledger: o.Ledger, Files: o.Files, Blocks: o.Blocks, Replica: o.Replica, Upkeep: o.Upkeep, Backups: o.Backups, Payments: o.Payments, Pins: local,
		Addrs: admin.Addrs{Pinning: s.addrs.Pinning, S3: s.addrs.S3, Console: s.addrs.Console, Paid: s.addrs.Paid, Gateway: s.addrs.Gateway, Admin: s.addrs.Admin, TLS: s.certificate != nil, ConsoleURL: o.ConsoleURL}, Logger: o.Logger,
	}), nil
}

// seenAt returns a function that builds the URL at which a browser reaches the listener at addr:
// with the given scheme, the host name of the argument host, and the port of addr. The console
// shows this URL. The function returns "" if addr is empty, because the listener is disabled.
func (s *Server) seenAt(addr string) func(host, scheme string) string {
	return func(host, scheme string) string {
		if addr == "" {
			return ""
		}
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return ""
		}
		name := host
		if only, _, err := net.SplitHostPort(host); err == nil {
			name = only
		}
		return scheme + "://" + net.JoinHostPort(strings.Trim(name, "[]"), port)
	}
}

// addressesOf returns a function that builds the URLs of the pinning API and the web API for a client that has
// reached the S3 gateway with a host name and a scheme.
func (s *Server) addressesOf(o Options) func(host, scheme string) web.Addresses {
	seen := func(addr string) func(host, scheme string) string {
		if onLoopback(addr) && !onLoopback(s.addrs.S3) {
			addr = "" // the client may be on another machine
		}
		return s.seenAt(addr)
	}
	pinningURL, consoleURL := seen(s.addrs.Pinning), seen(s.addrs.Console)
	return func(host, scheme string) web.Addresses {
		at := web.Addresses{Pinning: pinningURL(host, scheme), Web: cmp.Or(o.ConsoleURL, consoleURL(host, scheme))}
		if at.Web != "" {
			at.Web = strings.TrimSuffix(at.Web, "/") + webapi.Prefix
		}
		return at
	}
}

// onLoopback reports whether addr, the address of a listener, is a loopback address.
func onLoopback(addr string) bool {
	bound, err := netip.ParseAddrPort(addr)
	return err == nil && bound.Addr().IsLoopback()
}

// gatewayOrigin returns the origin of the IPFS gateway of this node, for links on pages. addr is its
// listener, and hosts its host names; the result is "" if one is missing. A gateway that listens on
// loopback is reached through a proxy with TLS, except at the host localhost.
func gatewayOrigin(addr string, hosts []string, tls bool) string {
	bound, err := netip.ParseAddrPort(addr)
	if err != nil || len(hosts) == 0 {
		return ""
	}
	host, scheme, standard := hosts[0], "http", uint16(80)
	if bound.Addr().IsLoopback() && host != "localhost" && !strings.HasSuffix(host, ".localhost") {
		return "https://" + host
	}
	if tls {
		scheme, standard = "https", 443
	}
	if bound.Port() == standard {
		return scheme + "://" + host
	}
	return fmt.Sprintf("%s://%s:%d", scheme, host, bound.Port())
}

// presign returns the function with which the console and the web API create presigned S3 URLs
// for the region.
func presign(region string) func(web.Link) string {
	return func(l web.Link) string {
		return s3.Link{
			Endpoint: l.Endpoint, Region: region, Bucket: l.Bucket, Key: l.Key, Version: l.Version,
			AccessKeyID: l.AccessKeyID, Secret: l.Secret, At: l.At, For: l.For,
		}.URL()
	}
}

// bind listens on the TCP address addr. Its errors name the flag --NAME-listen, where NAME is the
// argument name.
func bind(name, addr string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", addr)
	if err != nil {
		var call *os.SyscallError
		var op *net.OpError
		if errors.As(err, &call) {
			err = call.Err
		} else if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("--%s-listen %s: %w", name, addr, err)
	}
	return listener, nil
}

// secure configures TLS for a service if the server has a certificate. Otherwise it logs a
// warning unless the listener is on loopback, because clients would send API keys in plain text. The
// IPFS gateway has no keys.
func (s *Server) secure(svc *service) {
	if s.certificate != nil {
		svc.server.TLSConfig = s.certificate.tlsConfig()
	} else if addr := svc.listener.Addr(); !loopback(addr) && svc.name != gatewayService {
		s.logger.Warn("API keys travel over plain HTTP: set api.tls_cert and api.tls_key, or listen on loopback behind a proxy that has TLS",
			"api", svc.name, "addr", addr.String())
	}
}

// addJSON adds a service whose requests and answers are small, with time limits for each.
func (s *Server) addJSON(name string, l net.Listener, h http.Handler) *service {
	svc := s.add(name, l, h)
	svc.server.ReadTimeout, svc.server.WriteTimeout = jsonReadTimeout, jsonWriteTimeout
	return svc
}

func (s *Server) add(name string, l net.Listener, h http.Handler) *service {
	svc := &service{name: name, listener: netutil.LimitListener(l, MaxConnections)}
	svc.handler.Store(&h)
	svc.server = &http.Server{
		Handler:           s.flight.count(closing(svc)),
		ConnContext:       withConn,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    MaxHeaderBytes - 4<<10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: takeTimeout},
		ErrorLog:          slog.NewLogLogger(s.logger.With("api", name).Handler(), slog.LevelDebug),
	}
	s.services = append(s.services, svc)
	return svc
}

// Addrs returns the addresses of the listeners.
func (s *Server) Addrs() Addrs { return s.addrs }

// Close closes the listeners. It is for a server on which Run is not called.
func (s *Server) Close() error {
	var all error
	for _, svc := range s.services {
		if err := svc.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			all = errors.Join(all, fmt.Errorf("close %s: %w", svc.name, err))
		}
	}
	return all
}

// Run serves until ctx ends or a listener fails. Then it accepts no more connections, waits up to
// drainTimeout for running requests, and cuts the rest. It waits up to cutTimeout for the
// handlers that still run, and logs an error if some remain. It returns nil if the end of ctx
// stopped it.
func (s *Server) Run(ctx context.Context) error {
	// Requests outlive ctx: they are drained, not cancelled.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group, ended := errgroup.WithContext(ctx)
	for _, svc := range s.services {
		svc.server.BaseContext = func(net.Listener) context.Context { return base }
		group.Go(func() error {
			serve := func(l net.Listener) error { return svc.server.Serve(watchedListener{l}) }
			if svc.server.TLSConfig != nil {
				serve = func(l net.Listener) error { return svc.server.ServeTLS(l, "", "") }
			}
			if err := serve(svc.listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", svc.name, err)
			}
			return nil
		})
	}
	group.Go(func() error {
		<-ended.Done()
		s.drain(base, cancel)
		return nil
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("api: %w", err)
	}
	return nil
}

// drain shuts down all servers and waits up to drainTimeout for running requests. Then it calls
// cancel to end the remaining ones, and closes their connections. base is the context of all
// requests.
func (s *Server) drain(base context.Context, cancel context.CancelFunc) {
	close(s.draining)
	ctx, stop := context.WithTimeout(base, drainTimeout)
	defer stop()
	var group errgroup.Group
	for _, svc := range s.services {
		group.Go(func() error {
			err := svc.server.Shutdown(ctx)
			if err != nil {
				s.logger.WarnContext(ctx, "cutting requests that did not end in time", "api", svc.name, "err", err)
				cancel()
				err = svc.server.Close()
			}
			if err != nil && !errors.Is(err, net.ErrClosed) {
				s.logger.WarnContext(ctx, "cannot close a listener", "api", svc.name, "err", err)
			}
			return nil
		})
	}
	_ = group.Wait() // they only log
	if left := s.flight.end(cutTimeout); left > 0 {
		s.logger.ErrorContext(ctx, "requests still run after their connections were cut", "requests", left)
	}
}
