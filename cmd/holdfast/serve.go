package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/api"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/internal/activity"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
)

// Times of the wait until a node is ready.
const (
	readyPoll = 50 * time.Millisecond // interval of the checks
	readyLate = 15 * time.Second      // time after which welcome logs why the node is not ready
)

// health reports whether the node can serve requests. It implements api.Health also while there
// is no open node yet, in which case node is nil.
type health struct{ node atomic.Pointer[node.Node] }

// errStarting is the error of health.Ready while there is no open node.
var errStarting = errors.New("this node is starting and has not joined its cluster yet")

// Ready implements api.Health.
func (h *health) Ready(context.Context) error {
	if n := h.node.Load(); n != nil {
		return n.Ready()
	}
	return errStarting
}

// Pauses of serveOn before it restarts the node. The pause doubles with each restart, from
// firstRebuild up to lastRebuild.
const (
	firstRebuild = time.Second
	lastRebuild  = time.Minute
)

// serveOn runs the node until ctx ends or the node fails permanently. It restarts the node in the
// same process in two cases. If the node finds that its copy of the replicated state is bad, the
// restarted node builds a new copy. If the cluster has removed the node, and c has join tickets,
// serveOn restarts the node once, so that it joins again.
func (a *app) serveOn(ctx context.Context, c config.Config) error {
	processors, restore := moreProcessors(a.environ)
	defer restore()
	service := &supervised{logger: newLogger(a.stderr, c.Log)}
	running, end := context.WithCancel(ctx)
	var told sync.WaitGroup
	told.Go(func() { service.run(running) })
	defer told.Wait()
	defer end()
	removed := false
	pause := backoff.New(firstRebuild, lastRebuild)
	for {
		err := a.serve(ctx, c, processors, service)
		logger := newLogger(a.stderr, c.Log)
		switch {
		case ctx.Err() != nil:
			return err
		case errors.Is(err, node.ErrRebuild):
			logger.ErrorContext(ctx, "restarting the node with a new copy of the state", "err", err)
		case errors.Is(err, node.ErrRemoved) && !removed && (len(c.Cluster.Join) > 0 || c.Cluster.JoinFile != ""):
			removed = true
			logger.WarnContext(ctx, "this node was removed from its cluster and joins again if it has a ticket")
		default:
			return err
		}
		if !pause.Wait(ctx) {
			return nil
		}
	}
}

// surfacesOf returns those options of the API that do not need an open node. serve sets the
// others after it has opened the node.
func (a *app) surfacesOf(c config.Config, processors int, h *health, metrics *prometheus.Registry, logger *slog.Logger) api.Options {
	return api.Options{
		Pinning: c.Pinning.Listen, S3: c.S3.Listen, Console: c.Console.Listen, Paid: c.Paid.Listen, Gateway: c.Gateway.Listen, Admin: c.Admin.Listen, Folder: c.Data,
		PaidTerms:    termsOf(&c.Paid),
		PinningRates: ratesOf(c.Pinning.Rates), S3Rates: ratesOf(c.S3.Rates), NoisyRate: c.API.NoisyRate, Processors: processors,
		GatewayRate: api.Rate{PerSecond: c.Gateway.AddressRate, Burst: c.Gateway.AddressBurst}, GatewayHosts: c.Gateway.Hosts,
		TrustedProxies: c.API.ProxyPrefixes(), Origins: c.API.Origins,
		TLSCert: c.API.TLSCert, TLSKey: c.API.TLSKey,
		ConsoleURL: c.Console.URL, IPFSGateway: c.Console.IPFSGateway, SecurityContact: c.Console.SecurityContact, SignUpOpen: c.Console.SignUp == config.SignUpOpen,
		S3Region: c.S3.Region, S3Domain: c.S3.Domain, S3MaxObject: int64(c.S3.MaxObject), S3MinPart: int64(c.S3.MinPart), S3PresignedV2: c.S3.PresignedV2,
		DefaultStatus: c.Pinning.DefaultStatuses(), Health: h, Gatherer: metrics, Registerer: metrics, Logger: logger, Version: a.version,
	}
}

// termsOf returns the prices and limits of the paid gateway in the form of package api.
func termsOf(p *config.Paid) api.PaidTerms {
	asset, _ := p.Terms() // the settings were checked
	return api.PaidTerms{
		PayTo: p.PayTo, Network: p.Network, ChainID: asset.ChainID, Asset: asset.Address, AssetName: asset.Name, AssetVersion: asset.Version,
		PriceMiBHour: int64(p.PriceMiBHour), Minimum: int64(p.Minimum), PerCopy: p.PerCopy,
		MinTTL: p.MinTTL, MaxTTL: p.MaxTTL, DefaultTTL: p.DefaultTTL, MaxSize: int64(p.MaxSize),
	}
}

// ratesOf returns the rate limits of one API in the form of package api.
func ratesOf(r config.Rates) api.Rates {
	return api.Rates{
		Account: api.Rate{PerSecond: r.AccountRate, Burst: r.AccountBurst},
		Address: api.Rate{PerSecond: r.AddressRate, Burst: r.AddressBurst},
	}
}

// serve starts the API and then the node, and runs both until ctx ends or one of them fails.
// Until the node is open, the API answers only health checks. At the end the API first completes
// its running requests. Only then the node stops; if it is the leader, it hands leadership to
// another member.
func (a *app) serve(ctx context.Context, c config.Config, processors int, service *supervised) (err error) {
	var recent activity.Log
	logger := slog.New(recent.Handler(newLogger(a.stderr, c.Log).Handler()))
	logger.DebugContext(ctx, "settings", "config", c)
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	h := new(health)
	surfaces := a.surfacesOf(c, processors, h, metrics, logger)
	surfaces.Activity = &recent
	// Bind before the node joins a cluster, so that a node that cannot serve does not join.
	server, err := api.Bind(surfaces)
	if err != nil {
		return err
	}
	// The node outlives the API. The API ends with ctx, or if the node cannot open.
	nodeCtx, endNode := context.WithCancel(context.WithoutCancel(ctx))
	defer endNode()
	g, running := errgroup.WithContext(ctx)
	serving, endServing := context.WithCancel(running)
	defer endServing()
	g.Go(func() error {
		defer endNode()
		return server.Run(serving)
	})
	n, err := a.openNode(running, c, processors, metrics, logger)
	serves := false // whether the node served before it ended
	if err == nil {
		defer func() {
			err = errors.Join(err, n.Close())
			if serves {
				tellEnd(ctx, logger, err)
			}
		}()
		surfaces.Pins, surfaces.Accounts, surfaces.Audit, surfaces.Ledger, surfaces.Members, surfaces.Files = n.Pins(), n.Accounts(), n.Audit(), n.Ledger(), n.Members(), n.Content()
		surfaces.Objects, surfaces.Blocks, surfaces.Replica, surfaces.Upkeep = n.Objects(), n.Integrity(), n.Replica(), n.Upkeep()
		surfaces.Neighbours, surfaces.Providers = n.Neighbours(), n.Providers()
		surfaces.Payments, surfaces.Copies, surfaces.Backups, surfaces.Content = n.Payments(), n.Copies, n, n.Content()
		surfaces.Uploads = n.Uploads()
		err = server.Open(surfaces)
	}
	if err != nil {
		endServing()
		if ended := g.Wait(); ended == nil && stopped(ctx, err) {
			return nil
		} else if ended != nil {
			return ended // the reason why the node did not open
		}
		return err
	}
	h.node.Store(n)
	serves = true
	logger.InfoContext(ctx, "listening", "pinning", server.Addrs().Pinning, "s3", server.Addrs().S3, "console", server.Addrs().Console, "paid", server.Addrs().Paid, "gateway", server.Addrs().Gateway, "admin", server.Addrs().Admin, "data", c.Data)
	service.serves(h)
	g.Go(func() error {
		if err := n.Run(nodeCtx); err != nil {
			return fmt.Errorf("node: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		limitMemory(running, a.environ, n.StoreMemory)
		return nil
	})
	g.Go(func() error {
		a.welcome(running, c, n, server.Addrs(), logger)
		return nil
	})
	g.Go(func() error {
		<-running.Done()
		if ctx.Err() != nil {
			logger.InfoContext(ctx, "stopping", "reason", context.Cause(ctx))
		}
		return nil
	})
	return g.Wait()
}

// tellEnd logs why the node ended: err, or the cause of the end of ctx if err is nil.
func tellEnd(ctx context.Context, logger *slog.Logger, err error) {
	if err != nil {
		logger.ErrorContext(ctx, "stopped", "reason", err)
		return
	}
	logger.InfoContext(ctx, "stopped", "reason", context.Cause(ctx))
}

func (a *app) openNode(ctx context.Context, c config.Config, processors int, metrics *prometheus.Registry, logger *slog.Logger) (*node.Node, error) {
	return node.Open(ctx, node.Options{
		Config: c, Version: a.version, Logger: logger, Registerer: metrics, Processors: processors,
		Fatal: func(err error) {
			logger.Error("this node exits at once", "err", err)
			os.Exit(1)
		},
	})
}

// welcome waits until the node is ready, and then prints its addresses with board. If the node is
// not ready after readyLate, welcome logs the reason once.
func (a *app) welcome(ctx context.Context, c config.Config, n *node.Node, listening api.Addrs, logger *slog.Logger) {
	begun := time.Now()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for late := false; ; {
		err := n.Ready()
		if err == nil {
			break
		}
		if !late && time.Since(begun) > readyLate {
			late = true
			logger.WarnContext(ctx, "not ready yet", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	s, err := n.Members().Status(ctx)
	if err != nil {
		return // the board is optional
	}
	setup, err := n.Accounts().SetupToken()
	if err != nil {
		logger.WarnContext(ctx, "no setup link of the console", "err", err)
	} else if setup != "" {
		setup = "/setup?t=" + setup
	}
	a.board(c, addresses{
		Setup:   setup,
		Warning: warningOf(len(s.Peers), c.Cluster, n.TwoVotes()),
		Name:    s.Node.Name, ID: string(s.Node.ID), Public: s.Node.Addrs, Cluster: s.Node.ClusterAddrs,
		Pinning: listening.Pinning, S3: listening.S3, Console: listening.Console, Paid: listening.Paid, Gateway: listening.Gateway, Admin: listening.Admin,
	})
}

// ignoredJoin is the warning for a node with the flag --join that did not join, because its data
// folder already belongs to a cluster of one member.
const ignoredJoin = "this node is the only member of a cluster of its own, so --join was ignored: to join another cluster, start with an empty data folder"

// warningOf returns the warning that board prints, or "". members is the size of the cluster,
// c has the settings of --join, and twoVotes the warning for a cluster of two members.
func warningOf(members int, c config.Cluster, twoVotes string) string {
	switch {
	case members == 1 && (len(c.Join) > 0 || c.JoinFile != ""):
		return ignoredJoin
	case members == 2: // the leader promotes the second member a moment later
		return twoVotes
	default:
		return ""
	}
}
