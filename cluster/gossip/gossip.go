package gossip

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"golang.org/x/sync/errgroup"
)

// DefaultEvery is the interval between two samples of a node.
const DefaultEvery = 2 * time.Second

// hurryEvery is the minimum interval between two samples of a node, also after Hurry. Only the last
// sample of a process that stops may follow sooner. hurryEvery is longer than gateEvery, the interval
// at which other members forward samples of one node in the long run, see Gate.
const hurryEvery = 2 * gateEvery

// leaveTimeout limits how long a process that stops tries to send its last sample.
const leaveTimeout = time.Second

// jitterParts is the divisor that gives the range of the jitter from the interval between
// samples. The jitter ensures that nodes that were started together do not send together.
const jitterParts = 4

// Topic is the pubsub topic that transports samples between members.
type Topic interface {
	// Publish sends data to the reachable members.
	Publish(ctx context.Context, data []byte) error
	// Next waits for the next message of another member. The transport has verified its author.
	Next(ctx context.Context) (from string, data []byte, err error)
}

// Options are the dependencies of Gossip. Every may be zero for DefaultEvery; the other
// fields are required.
type Options struct {
	Self  state.NodeID
	Topic Topic
	// Measure returns the load of this node. Gossip sets Node, Start, Seq and Time.
	Measure func() Sample
	// Members returns all members, including this node. Gossip calls it before each sample that
	// it sends, and drops nodes from its table that are no longer members.
	Members func() []state.NodeID
	// Now is the clock for the time in samples.
	Now    func() time.Time
	Every  time.Duration
	Logger *slog.Logger
}

// Gossip publishes the samples of this node and collects those of other members.
type Gossip struct {
	opts  Options
	table *Table
	start state.Millis
	hurry chan struct{} // receives a value when the next sample should be sent early

	seq uint64 // used by Run's publisher only
}

// New returns a Gossip. It sends and receives nothing before Run.
func New(opts Options) *Gossip {
	if opts.Every <= 0 {
		opts.Every = DefaultEvery
	}
	g := &Gossip{opts: opts, table: newTable(opts.Self, time.Now), start: max(1, state.MillisOf(opts.Now())), hurry: make(chan struct{}, 1)}
	g.table.watch(opts.Members())
	return g
}

// Table returns the table of received samples. Run keeps it up to date.
func (g *Gossip) Table() *Table { return g.table }

// Hurry makes Run send the next sample early: at once, or hurryEvery after the last one. It
// does not block.
func (g *Gossip) Hurry() {
	select {
	case g.hurry <- struct{}{}:
	default: // an earlier call is still pending
	}
}

// Run sends and receives samples until ctx ends, then returns nil. It returns an error if
// the topic ends earlier.
func (g *Gossip) Run(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return g.publish(ctx) })
	work.Go(func() error { return g.receive(ctx) })
	if err := work.Wait(); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

func (g *Gossip) publish(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var sent time.Time
	quiet := false // the last sample could not be sent, and a line of the log said so
	for {
		select {
		case <-ctx.Done():
			g.leave(ctx)
			return nil
		case <-g.hurry:
			timer.Reset(max(0, hurryEvery-time.Since(sent)))
			continue
		case <-timer.C:
		}
		timer.Reset(g.pause())
		sent = time.Now()
		g.table.watch(g.opts.Members())
		err := g.send(ctx, false)
		if err != nil && !quiet && ctx.Err() == nil {
			g.opts.Logger.WarnContext(ctx, "cannot send the gossip sample", "err", err)
		}
		quiet = err != nil
	}
}

// pause returns the time until the next sample: Every with a jitter that is computed from the
// node's id and the sequence number.
func (g *Gossip) pause() time.Duration {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d", g.opts.Self, g.seq)
	spread := g.opts.Every / jitterParts
	if spread <= 0 {
		return g.opts.Every
	}
	return g.opts.Every - spread/2 + time.Duration(h.Sum64()%uint64(spread))
}

// leave sends a last sample with Ends set if this process was told to stop, so that other members
// do not treat it as failed. If Run ends for another reason, it sends nothing. It waits at most
// leaveTimeout.
func (g *Gossip) leave(ctx context.Context) {
	if !errors.Is(context.Cause(ctx), context.Canceled) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := g.send(ctx, true); err != nil {
		g.opts.Logger.DebugContext(ctx, "cannot send the last gossip sample", "err", err)
	}
}

func (g *Gossip) send(ctx context.Context, last bool) error {
	g.seq++
	s := g.opts.Measure()
	s.Ends = last
	s.Node, s.Start, s.Seq, s.Time = g.opts.Self, g.start, g.seq, max(1, state.MillisOf(g.opts.Now()))
	b, err := s.Encode()
	if errors.Is(err, ErrSampleTooLarge) { // addresses matter more than the load of accounts
		s.Accounts = nil
		b, err = s.Encode()
	}
	for errors.Is(err, ErrSampleTooLarge) && len(s.Addrs)+len(s.ClusterAddrs) > 0 {
		// The state has all addresses, so members can work with fewer here.
		s.Addrs, s.ClusterAddrs = s.Addrs[:len(s.Addrs)/2], s.ClusterAddrs[:len(s.ClusterAddrs)/2]
		b, err = s.Encode()
	}
	if err != nil {
		return err
	}
	g.table.record(s)
	return g.opts.Topic.Publish(ctx, b)
}

func (g *Gossip) receive(ctx context.Context) error {
	for {
		from, data, err := g.opts.Topic.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("next sample: %w", err)
		}
		s, err := Decode(data)
		if err != nil || s.Node != state.NodeID(from) {
			g.opts.Logger.DebugContext(ctx, "gossip sample refused", "from", from, "err", err)
			continue
		}
		g.table.record(s)
	}
}
