package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/holdfast-ipfs/holdfast/api"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
)

// How a start is watched.
const (
	readyPoll = 50 * time.Millisecond
	readyLate = 15 * time.Second // then the log says why the node is not ready
)

// health adapts the node to what the API asks.
type health struct{ node *node.Node }

// Ready implements api.Health.
func (h health) Ready(context.Context) error { return h.node.Ready() }

// Waits before a node whose copy of the state was bad begins again: the first,
// and the longest, doubled from one to the next.
const (
	firstRebuild = time.Second
	lastRebuild  = time.Minute
)

// serveOn serves until ctx ends or something is broken for good. A node whose
// copy of the state was bad begins again with a new one in the same process:
// nobody has to be there to start it.
func (a *app) serveOn(ctx context.Context, c config.Config) error {
	for wait := firstRebuild; ; wait = min(2*wait, lastRebuild) {
		err := a.serve(ctx, c)
		if !errors.Is(err, node.ErrRebuild) || ctx.Err() != nil {
			return err
		}
		newLogger(a.stderr, c.Log).ErrorContext(ctx, "beginning again with a new copy of the state", "err", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// serve opens a node and the API over its use cases, and runs both until ctx
// ends. Then requests are drained while the node still answers them; only after
// that the node ends, which hands its leadership over.
func (a *app) serve(ctx context.Context, c config.Config) (err error) {
	logger := newLogger(a.stderr, c.Log)
	logger.DebugContext(ctx, "settings", "config", c)
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	surfaces := api.Options{Pinning: c.Pinning.Listen, S3: c.S3.Listen, Admin: c.Admin.Listen, Folder: c.Data, Logger: logger, Version: a.version}
	surfaces.AccountRate = api.Rate{PerSecond: c.API.AccountRate, Burst: c.API.AccountBurst}
	surfaces.AddressRate = api.Rate{PerSecond: c.API.AddressRate, Burst: c.API.AddressBurst}
	surfaces.TrustedProxies, surfaces.Origins = c.API.ProxyPrefixes(), c.API.Origins
	surfaces.TLSCert, surfaces.TLSKey = c.API.TLSCert, c.API.TLSKey
	// Before the node enters a cluster: one that cannot serve is no member.
	bound, err := api.Bind(surfaces)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bound.Close()) }()
	n, err := node.Open(ctx, node.Options{
		Config: c, Version: a.version, Logger: logger, Registerer: metrics,
		Fatal: func(err error) {
			logger.Error("this node ends at once", "err", err)
			os.Exit(1)
		},
	})
	if err != nil {
		if stopped(ctx, err) {
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	surfaces.Pins, surfaces.Accounts, surfaces.Members, surfaces.Files = n.Pins(), n.Accounts(), n.Members(), n.Content()
	surfaces.Objects, surfaces.S3Region, surfaces.S3Domain = n.Objects(), c.S3.Region, c.S3.Domain
	surfaces.S3MaxObject, surfaces.S3MinPart = int64(c.S3.MaxObject), int64(c.S3.MinPart)
	surfaces.Blocks, surfaces.Replica = n.Integrity(), n.Replica()
	surfaces.Health, surfaces.Gatherer, surfaces.DefaultStatus = health{n}, metrics, c.Pinning.DefaultStatuses()
	server, err := api.New(bound, surfaces)
	if err != nil {
		return err
	}
	logger.InfoContext(ctx, "listening", "pinning", server.Addrs().Pinning, "s3", server.Addrs().S3, "admin", server.Addrs().Admin, "data", c.Data)

	// The node outlives ctx until the API has drained.
	nodeCtx, endNode := context.WithCancel(context.WithoutCancel(ctx))
	defer endNode()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := n.Run(nodeCtx); err != nil {
			return fmt.Errorf("node: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		defer endNode()
		return server.Run(ctx)
	})
	g.Go(func() error {
		limitMemory(ctx)
		return nil
	})
	g.Go(func() error {
		a.welcome(ctx, c, n, server.Addrs(), logger)
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	logger.InfoContext(nodeCtx, "stopped")
	return nil
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
	a.board(c, addresses{
		Name: s.Node.Name, ID: string(s.Node.ID), Public: s.Node.Addrs, Cluster: s.Node.ClusterAddrs,
		Pinning: listening.Pinning, S3: listening.S3, Admin: listening.Admin,
	})
}
