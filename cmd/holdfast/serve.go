package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/api"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
)

// How a start is watched.
const (
	readyPoll = 50 * time.Millisecond
	readyLate = 15 * time.Second // then the log says why the node is not ready
)

// health adapts the node to what the API asks, from before there is one.
type health struct{ node atomic.Pointer[node.Node] }

// errStarting is why a node that is opening is not ready.
var errStarting = errors.New("this node is starting and has not joined its cluster yet")

// Ready implements api.Health.
func (h *health) Ready(context.Context) error {
	if n := h.node.Load(); n != nil {
		return n.Ready()
	}
	return errStarting
}

// Waits before a node whose copy of the state was bad begins again: the first,
// and the longest, doubled from one to the next.
const (
	firstRebuild = time.Second
	lastRebuild  = time.Minute
)

// serveOn serves until ctx ends or something is broken for good. A node whose
// copy of the state was bad begins again with a new one in the same process:
// nobody has to be there to start it. So does one that finds that it was removed,
// once, should it have a ticket to join again with.
func (a *app) serveOn(ctx context.Context, c config.Config) error {
	processors, restore := moreProcessors(a.environ)
	defer restore()
	removed := false
	pause := backoff.New(firstRebuild, lastRebuild)
	for {
		err := a.serve(ctx, c, processors)
		logger := newLogger(a.stderr, c.Log)
		switch {
		case ctx.Err() != nil:
			return err
		case errors.Is(err, node.ErrRebuild):
			logger.ErrorContext(ctx, "beginning again with a new copy of the state", "err", err)
		case errors.Is(err, node.ErrRemoved) && !removed && len(c.Cluster.Join) > 0:
			removed = true
			logger.WarnContext(ctx, "this node was removed from its cluster: joining again if there is a ticket")
		default:
			return err
		}
		if !pause.Wait(ctx) {
			return nil
		}
	}
}

// surfacesOf are the listeners of the API by the settings, and what they answer
// before there is a node.
func (a *app) surfacesOf(c config.Config, processors int, h *health, metrics *prometheus.Registry, logger *slog.Logger) api.Options {
	return api.Options{
		Pinning: c.Pinning.Listen, S3: c.S3.Listen, Console: c.Console.Listen, Admin: c.Admin.Listen, Folder: c.Data,
		PinningRates: ratesOf(c.Pinning.Rates), S3Rates: ratesOf(c.S3.Rates), NoisyRate: c.API.NoisyRate, Processors: processors,
		TrustedProxies: c.API.ProxyPrefixes(), Origins: c.API.Origins,
		TLSCert: c.API.TLSCert, TLSKey: c.API.TLSKey,
		S3Region: c.S3.Region, S3Domain: c.S3.Domain, S3MaxObject: int64(c.S3.MaxObject), S3MinPart: int64(c.S3.MinPart), S3PresignedV2: c.S3.PresignedV2,
		DefaultStatus: c.Pinning.DefaultStatuses(), Health: h, Gatherer: metrics, Registerer: metrics, Logger: logger, Version: a.version,
	}
}

// ratesOf is how many requests one API takes by its settings.
func ratesOf(r config.Rates) api.Rates {
	return api.Rates{
		Account: api.Rate{PerSecond: r.AccountRate, Burst: r.AccountBurst},
		Address: api.Rate{PerSecond: r.AddressRate, Burst: r.AddressBurst},
	}
}

// serve opens the API and a node under it, and runs both until ctx ends. While the
// node opens, which joins a cluster, the API answers about health. At the end
// requests are drained while the node still answers them; only after that the
// node ends, which hands its leadership over.
func (a *app) serve(ctx context.Context, c config.Config, processors int) (err error) {
	logger := newLogger(a.stderr, c.Log)
	logger.DebugContext(ctx, "settings", "config", c)
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	h := new(health)
	surfaces := a.surfacesOf(c, processors, h, metrics, logger)
	// Before the node enters a cluster: one that cannot serve is no member.
	server, err := api.Bind(surfaces)
	if err != nil {
		return err
	}
	// The node outlives the API, which ends when ctx does or it cannot be opened.
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
		surfaces.Pins, surfaces.Accounts, surfaces.Members, surfaces.Files = n.Pins(), n.Accounts(), n.Members(), n.Content()
		surfaces.Objects, surfaces.Blocks, surfaces.Replica = n.Objects(), n.Integrity(), n.Replica()
		surfaces.Neighbours = n.Neighbours()
		err = server.Open(surfaces)
	}
	if err != nil {
		endServing()
		if ended := g.Wait(); ended == nil && stopped(ctx, err) {
			return nil
		} else if ended != nil {
			return ended // which is what ended the opening
		}
		return err
	}
	h.node.Store(n)
	serves = true
	logger.InfoContext(ctx, "listening", "pinning", server.Addrs().Pinning, "s3", server.Addrs().S3, "console", server.Addrs().Console, "admin", server.Addrs().Admin, "data", c.Data)
	g.Go(func() error {
		if err := n.Run(nodeCtx); err != nil {
			return fmt.Errorf("node: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		limitMemory(running)
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

// tellEnd is the last line of a node that served: why it has ended.
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
			logger.Error("this node ends at once", "err", err)
			os.Exit(1)
		},
	})
}

// welcome shows the board once the node is ready, and says why when that takes
// long.
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
		return // the board is a courtesy
	}
	warning := ""
	if len(s.Peers) == 2 { // the second has its vote a moment later
		warning = n.TwoVotes()
	}
	setup, err := n.Accounts().SetupToken()
	if err != nil {
		logger.WarnContext(ctx, "no setup link of the console", "err", err)
	} else if setup != "" {
		setup = "/setup?t=" + setup
	}
	a.board(c, addresses{
		Setup:   setup,
		Warning: warning,
		Name:    s.Node.Name, ID: string(s.Node.ID), Public: s.Node.Addrs, Cluster: s.Node.ClusterAddrs,
		Pinning: listening.Pinning, S3: listening.S3, Console: listening.Console, Admin: listening.Admin,
	})
}
