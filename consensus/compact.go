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

// serving is how long the log still has the entries after a snapshot once the snapshot was sent
// to a follower. If the entries were removed before the follower has loaded the snapshot, the
// follower would need another snapshot, and under many writes this would repeat forever.
const serving = 5 * time.Minute

// growth counts the entries and bytes that were added to the log since the newest snapshot. Only
// Raft's goroutine writes the counts; other goroutines read them.
type growth struct {
	entries, bytes meter
	limit          uint64        // largest number of bytes
	due            atomic.Uint64 // number of bytes at which a snapshot is taken without waiting for the next periodic check
	full           chan struct{} // has a token when the log has grown by due bytes
	notified       atomic.Bool   // a token was sent to full since the newest snapshot
}

// meter counts upwards and never resets. covered is the value of total at the newest snapshot.
type meter struct{ total, covered atomic.Uint64 }

func (m *meter) open() uint64 {
	covered := m.covered.Load() // first: no later total is below it
	return m.total.Load() - covered
}

func newGrowth(limit uint64) *growth {
	g := &growth{limit: limit, full: make(chan struct{}, 1)}
	g.draw()
	return g
}

// draw chooses at random when the next snapshot is due. Writes wait for a majority, so the
// members should not take their snapshots at the same entry.
func (g *growth) draw() { g.due.Store(g.limit - rand.Uint64N(g.limit/4+1)) } //nolint:gosec // no secret

func (g *growth) add(entries []*raft.Log) {
	var size uint64
	for _, e := range entries {
		size += uint64(len(e.Data))
	}
	g.entries.total.Add(uint64(len(entries)))
	g.bytes.total.Add(size)
}

// notify makes the compactor take a snapshot now if the number of bytes makes one due.
func (g *growth) notify() {
	if g.bytes.open() < g.due.Load() || g.notified.Swap(true) {
		return
	}
	select {
	case g.full <- struct{}{}:
	default:
	}
}

// enough returns whether a snapshot is due, by entries or by bytes.
func (g *growth) enough(entries uint64) bool {
	return g.entries.open() >= entries || g.bytes.open() >= g.due.Load()
}

// mark records the present counts and returns a function. The caller calls that function once a
// snapshot that covers these counts is stored.
func (g *growth) mark() (kept func()) {
	entries, bytes := g.entries.total.Load(), g.bytes.total.Load()
	return func() {
		g.entries.covered.Store(entries)
		g.bytes.covered.Store(bytes)
		g.draw()
		g.notified.Store(false)
		g.notify() // much may have been counted meanwhile, and nothing after it
	}
}

// keepLogShort takes a snapshot when the log has grown by enough, so that Raft can remove
// earlier entries. Raft itself would count only entries, and an entry may have one command or
// hundreds. A node that starts or joins has to process all bytes of the log, so the number of
// bytes makes a snapshot due at once.
func (n *Node) keepLogShort(ctx context.Context) error {
	for {
		// Not all members at the same time: writes wait for a majority.
		timer := time.NewTimer(n.timings.SnapshotInterval + rand.N(n.timings.SnapshotInterval)) //nolint:gosec // no secret
		select {
		case <-n.fsm.grown.full:
		case <-timer.C:
			_, serves := n.snapshots.served()
			if long := n.longLog.Load() && !serves; !long && !n.fsm.grown.enough(n.timings.SnapshotThreshold) {
				continue
			}
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
		if err := n.snapshot(ctx); err != nil { // the next check tries again
			// There may be one, and a full disk has kept Raft from cutting the log.
			n.longLog.Store(true)
			n.log.DebugContext(ctx, "cannot write a snapshot now", "err", err)
		}
	}
}

// snapshot takes a snapshot and makes Raft keep the entries after it that a lagging
// follower may need.
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

// newcomerPart limits the log after the newest snapshot when a member is added: if it is larger
// than SnapshotBytes/newcomerPart, a new snapshot is cheaper to send and to apply than that log.
const newcomerPart = 8

// renewSnapshot takes a snapshot before a member is added, if the log after the newest snapshot
// is long. A failure is only logged, because the member catches up without the new snapshot too,
// only more slowly.
func (n *Node) renewSnapshot(ctx context.Context) {
	if n.fsm.grown.bytes.open() < n.timings.SnapshotBytes/newcomerPart {
		return
	}
	if err := n.snapshot(ctx); err != nil {
		n.log.WarnContext(ctx, "cannot write a snapshot for a new member now", "err", err)
	}
}

// trailing returns how many of the newest entries stay in the log after a snapshot:
// TrailingLogs, limited by TrailingBytes. While a snapshot is sent to a follower, the
// entries that the follower lacks stay too, with a margin until Raft truncates, limited by
// ServingBytes.
func (n *Node) trailing() (entries uint64, err error) {
	first, err := n.opts.Log.FirstIndex()
	if err != nil {
		return 0, fmt.Errorf("read the log: %w", err)
	}
	last, err := n.opts.Log.LastIndex()
	if err != nil {
		return 0, fmt.Errorf("read the log: %w", err)
	}
	keep, most := n.timings.TrailingLogs, n.timings.TrailingBytes
	has, serves := n.snapshots.served()
	if serves {
		keep, most = keep+last-min(has, last), n.timings.ServingBytes
	}
	n.longLog.Store(serves)
	var size uint64
	for index := last; index >= max(first, 1) && entries < keep; index-- {
		var entry raft.Log
		if err := n.opts.Log.GetLog(index, &entry); err != nil {
			if !errors.Is(err, raft.ErrLogNotFound) { // Raft has removed it meanwhile
				n.log.Warn("cannot read an old entry of the Raft log", "entry", index, "err", err)
			}
			return entries, nil
		}
		if size += uint64(len(entry.Data)); size > most {
			return entries, nil
		}
		entries++
	}
	if serves {
		entries = keep
	}
	return entries, nil
}
