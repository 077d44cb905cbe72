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

// DefaultEvery is the time between two samples of a node.
const DefaultEvery = 2 * time.Second

// hurryEvery is the least time between two samples of a node. A member passes on one every
// gateEvery, see Gate.
const hurryEvery = 2 * gateEvery

// leaveTimeout bounds the sending of the last sample of a process that ends.
const leaveTimeout = time.Second

// jitterParts is the share of the interval, as a divisor, by which samples are
// spread so that nodes started together do not speak together.
const jitterParts = 4

// Topic carries samples among the members.
type Topic interface {
	// Publish sends data to the members that can be reached.
	Publish(ctx context.Context, data []byte) error
	// Next waits for a message of another member, whose authorship is proven.
	Next(ctx context.Context) (from string, data []byte, err error)
}

// Options are what Gossip is made of. Every may be zero for DefaultEvery; the
// other fields are required.
type Options struct {
	Self  state.NodeID
	Topic Topic
	// Measure returns this node's load; Node, Start, Seq and Time are filled in here.
	Measure func() Sample
	// Members returns the members, this node included, to whom the table is
	// kept. It is called once for every sample that is sent.
	Members func() []state.NodeID
	// Now is the clock that samples tell.
	Now    func() time.Time
	Every  time.Duration
	Logger *slog.Logger
}

// Gossip sends this node's samples and gathers the others'.
type Gossip struct {
	opts  Options
	table *Table
	start state.Millis
	hurry chan struct{} // the next sample is wanted early

	seq uint64 // owned by Run's publisher
}

// New returns a Gossip. Nothing is sent or heard before Run.
func New(opts Options) *Gossip {
	if opts.Every <= 0 {
		opts.Every = DefaultEvery
	}
	g := &Gossip{opts: opts, table: newTable(opts.Self, time.Now), start: max(1, state.MillisOf(opts.Now())), hurry: make(chan struct{}, 1)}
	g.table.watch(opts.Members())
	return g
}

// Table returns what was heard. It is up to date while Run runs.
func (g *Gossip) Table() *Table { return g.table }

// Hurry sends the next sample early: at once, or hurryEvery after the last one. It does not
// block.
func (g *Gossip) Hurry() {
	select {
	case g.hurry <- struct{}{}:
	default: // the publisher has yet to see the last call
	}
}

// Run sends and receives until ctx ends, then returns nil. It fails when the
// topic ends before.
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
	quiet := false // the last sample could not be sent, and that was said
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

// pause is the time to the next sample: Every, give or take a part of it that
// depends on node and sequence.
func (g *Gossip) pause() time.Duration {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d", g.opts.Self, g.seq)
	spread := g.opts.Every / jitterParts
	if spread <= 0 {
		return g.opts.Every
	}
	return g.opts.Every - spread/2 + time.Duration(h.Sum64()%uint64(spread))
}

// leave tells the others that this process was told to end, so that nobody takes it for
// dead. One that ends for another reason says nothing. It waits leaveTimeout at the most.
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
	if errors.Is(err, ErrSampleTooLarge) { // addresses matter more
		s.Accounts = nil
		b, err = s.Encode()
	}
	for errors.Is(err, ErrSampleTooLarge) && len(s.Addrs)+len(s.ClusterAddrs) > 0 {
		// Fewer addresses are better than none; the state has them all.
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
