package consensus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// serving is how long after a snapshot was sent to a follower TrailingBytes do
// not count. The follower still lacks what was written meanwhile; if that is gone
// by then it is sent another snapshot, and so on for as long as much is written.
const serving = 5 * time.Minute

// growth is how much the log has got since the newest snapshot. Raft's goroutine
// counts, others look.
type growth struct {
	entries, bytes meter
	limit          uint64        // bytes at which a snapshot is due at once
	full           chan struct{} // has a token when they have been reached
	told           atomic.Bool   // there was one since the newest snapshot
}

// meter counts, and notes how much of the count a snapshot has.
type meter struct{ total, covered atomic.Uint64 }

func (m *meter) open() uint64 {
	covered := m.covered.Load() // first: no later total is below it
	return m.total.Load() - covered
}

func newGrowth(limit uint64) *growth { return &growth{limit: limit, full: make(chan struct{}, 1)} }

func (g *growth) add(entries []*raft.Log) {
	var size uint64
	for _, e := range entries {
		size += uint64(len(e.Data))
	}
	g.entries.total.Add(uint64(len(entries)))
	g.bytes.total.Add(size)
}

// tell wakes who takes snapshots if one is due at once.
func (g *growth) tell() {
	if g.bytes.open() < g.limit || g.told.Swap(true) {
		return
	}
	select {
	case g.full <- struct{}{}:
	default:
	}
}

// mark returns what is to be called once a snapshot is kept that has all that was
// counted until now.
func (g *growth) mark() (kept func()) {
	entries, bytes := g.entries.total.Load(), g.bytes.total.Load()
	return func() {
		g.entries.covered.Store(entries)
		g.bytes.covered.Store(bytes)
		g.told.Store(false)
	}
}

// keepLogShort takes a snapshot when the log has grown by enough, so that Raft can
// drop what lies before. Raft itself would count entries only, and an entry has
// one command or hundreds. It is bytes that a node which starts or joins has to go
// through, so they make a snapshot due at once.
func (n *Node) keepLogShort(ctx context.Context) error {
	for {
		// Not all members at the same time: writes wait for a majority.
		timer := time.NewTimer(n.timings.SnapshotInterval + rand.N(n.timings.SnapshotInterval)) //nolint:gosec // no secret
		select {
		case <-n.fsm.grown.full:
		case <-timer.C:
			if n.fsm.grown.entries.open() < n.timings.SnapshotThreshold && n.fsm.grown.bytes.open() < n.timings.SnapshotBytes {
				continue
			}
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
		if err := n.snapshot(ctx); err != nil { // the next look is soon enough
			n.log.DebugContext(ctx, "no snapshot now", "err", err)
		}
	}
}

// snapshot takes one, and has Raft keep behind it what is worth sending to a
// follower that lacks some entries.
func (n *Node) snapshot(ctx context.Context) error {
	trailing, err := n.trailing()
	if err != nil {
		return err
	}
	conf := n.raft.ReloadableConfig()
	conf.TrailingLogs = trailing
	if err := n.raft.ReloadConfig(conf); err != nil {
		return fmt.Errorf("entries behind a snapshot: %w", err)
	}
	return n.await(ctx, n.raft.Snapshot())
}

// trailing is how many of the newest entries stay behind a snapshot:
// TrailingLogs, and while no follower is served no more than have TrailingBytes.
func (n *Node) trailing() (entries uint64, err error) {
	if n.snapshots.served() {
		return n.timings.TrailingLogs, nil
	}
	first, err := n.opts.Log.FirstIndex()
	if err != nil {
		return 0, fmt.Errorf("read the log: %w", err)
	}
	last, err := n.opts.Log.LastIndex()
	if err != nil {
		return 0, fmt.Errorf("read the log: %w", err)
	}
	var size uint64
	for index := last; index >= max(first, 1) && entries < n.timings.TrailingLogs; index-- {
		var entry raft.Log
		if err := n.opts.Log.GetLog(index, &entry); err != nil {
			if !errors.Is(err, raft.ErrLogNotFound) { // Raft has removed it meanwhile
				n.log.Warn("an old entry of the log cannot be read", "entry", index, "err", err)
			}
			break
		}
		if size += uint64(len(entry.Data)); size > n.timings.TrailingBytes {
			break
		}
		entries++
	}
	return entries, nil
}
