package blocks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

const (
	// maxQueuedOps and maxQueuedBytes bound what waits for its commit; who
	// comes then waits to be allowed to wait.
	maxQueuedOps   = 1024
	maxQueuedBytes = 64 << 20
	// maxBatchOps and maxBatchBytes bound what one fdatasync carries.
	maxBatchOps   = 512
	maxBatchBytes = 8 << 20
)

// op is one step that has to be the only one: it reads the index through the
// batch and appends records to it. It may refuse with ErrNoSpace before it has
// done anything; any other error breaks the store.
type op struct {
	bytes int64 // what it may append, roughly
	cold  bool  // nobody is expected to read it soon
	run   func(b *batch) error

	err  error
	done chan struct{} // closed when err is what came of it
}

// batch is what is committed together.
type batch struct {
	*change
	s     *Store
	base  int64 // where s.buf will stand in the active segment
	start int   // of the record being built
	low   bool  // no room for new blocks
}

// begin starts a record; its payload is then appended to s.buf.
func (b *batch) begin() {
	b.start = len(b.s.buf)
	b.s.buf = beginRecord(b.s.buf)
}

// position is where the next record will stand, which is also the incarnation
// of an owner that begins with it.
func (b *batch) position() uint64 {
	return uint64(b.s.active.number)<<32 | uint64(b.base+int64(len(b.s.buf)))
}

// end completes the record and enters it into the index.
func (b *batch) end(rec record) error {
	rec.off = b.base + int64(b.start)
	endRecord(b.s.buf, b.start, b.s.active.seed, rec.off, rec.kind)
	return b.apply(rec, b.s.active.number)
}

// block is the record of a block, from its begin to its end.
func (b *batch) block(rec record) error {
	b.begin()
	rec.off = b.base + int64(b.start)
	var sum uint32
	b.s.buf, sum = appendBlock(b.s.buf, b.s.active.seed, rec.off, rec)
	endSummed(b.s.buf, b.start, b.s.active.seed, rec.off, rec.kind, sum)
	return b.apply(rec, b.s.active.number)
}

// do has fn run alone and returns when what it did is durable and readable.
func (s *Store) do(ctx context.Context, bytes int64, fn func(b *batch) error) error {
	return s.queued(ctx, &op{bytes: bytes, run: fn})
}

// queued is do of an op.
func (s *Store) queued(ctx context.Context, o *op) error {
	bytes := min(o.bytes, maxQueuedBytes)
	if err := s.queueOps.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.queueOps.Release(1)
	if err := s.queueBytes.Acquire(ctx, bytes); err != nil {
		return err
	}
	defer s.queueBytes.Release(bytes)

	o.bytes, o.done = bytes, make(chan struct{})
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.queue = append(s.queue, o)
	s.work.Signal()
	s.mu.Unlock()

	select {
	case <-o.done:
	case <-ctx.Done():
		if s.withdraw(o) {
			return ctx.Err()
		}
		<-o.done // being committed
	}
	return o.err
}

// withdraw takes an op out of the queue, unless it is too late.
func (s *Store) withdraw(o *op) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.queue, o)
	if i < 0 {
		return false
	}
	s.queue = slices.Delete(s.queue, i, i+1)
	return true
}

// commitAll commits what waits, batch by batch, until the store is closed and
// nothing waits any more. It is one goroutine for all, whose stack has grown once
// to what the index needs.
//
// Those who are answered are about to come again, so between two batches whoever can
// run does: batches are fuller on a busy machine, and nobody waits on an idle one.
func (s *Store) commitAll() {
	var ops []*op
	for {
		if ops = s.take(ops[:0]); len(ops) == 0 {
			return
		}
		s.commit(ops)
		for i, o := range ops {
			close(o.done)
			ops[i] = nil
		}
		runtime.Gosched()
	}
}

// take waits for ops, and moves what is one batch from the head of the queue to
// ops. It returns none when the store is closed.
func (s *Store) take(ops []*op) []*op {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && !s.closed {
		s.work.Wait()
	}
	n, bytes := 0, int64(0)
	for n < len(s.queue) && n < maxBatchOps && (n == 0 || bytes+s.queue[n].bytes <= maxBatchBytes) {
		bytes += s.queue[n].bytes
		n++
	}
	ops = append(ops, s.queue[:n]...)
	s.queue = slices.Delete(s.queue, 0, n)
	return ops
}

// commit runs the ops and makes what they did durable, then readable. The
// committer calls it.
func (s *Store) commit(ops []*op) {
	fail := func(err error) {
		for _, o := range ops {
			if o.err == nil {
				o.err = err
			}
		}
	}
	select {
	case <-s.failed:
		if s.broken == nil {
			s.broken = errIndex // watchIndex says so
		}
	default:
	}
	if s.broken != nil {
		fail(fmt.Errorf("%w: %w", ErrBroken, s.broken))
		return
	}
	if err := s.roll(); err != nil {
		// Without its folder, which somebody removed or unmounted, nothing gets in again
		// before the next start.
		if errors.Is(err, errUnsynced) || errors.Is(err, fs.ErrNotExist) {
			err = s.breakdown(err)
		}
		fail(noSpace(err))
		return
	}
	s.ready(ops)
	content, _ := s.room()
	b := &batch{change: s.change(), s: s, base: s.active.size, low: content <= 0}
	b.born = b.position()
	defer b.tx.Discard()
	for _, o := range ops {
		err := o.run(b)
		if errors.Is(err, ErrNoSpace) {
			o.err = err
		} else if err != nil {
			// The index could not be read, and half a step cannot be taken out
			// of the change again.
			fail(s.breakdown(err))
			return
		}
	}
	if len(s.buf) > 0 {
		if err := s.append(); err != nil {
			fail(err)
			return
		}
	}
	// The blocks are durable. A crash here leaves them for recovery to index.
	if err := s.publish(b.change, s.active.number, s.active.size); err != nil {
		fail(s.breakdown(err))
	}
}

// breakdown marks the store broken.
func (s *Store) breakdown(err error) error {
	err = s.distrustIndex(err)
	s.broken = err
	s.log.Error("block store has failed", "dir", s.dir, "err", err)
	s.failing.Do(func() { close(s.failed) })
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

func noSpace(err error) error {
	if durable.IsFull(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// roll begins a new segment when the active one is full, damaged or gone.
func (s *Store) roll() error {
	gone := !s.active.linked()
	if s.active.size < s.opts.SegmentBytes && s.active.number != s.retired && !gone {
		return nil
	}
	if gone {
		s.log.Error("the active segment is missing", "file", s.active.f.Name())
	}
	next, err := createSegment(filepath.Join(s.dir, segmentsDir), s.active.number+1)
	if err != nil {
		return err
	}
	old := s.active
	s.active = next
	s.stats.Lock()
	s.sizes[next.number] = next.size
	s.stats.Unlock()
	// Everything in it was synced by its own batch.
	if err := old.close(); err != nil {
		s.log.Error("cannot close a full segment", "file", old.f.Name(), "err", err)
	}
	return nil
}

// publish commits the change to the index, without fsync, and takes over its
// counts.
// number and off say up to where it covers the segments.
func (s *Store) publish(c *change, number uint32, off int64) error {
	loads, sums, err := s.counts(c, number, off)
	if err != nil {
		return err
	}
	// On a full disk this waits for room, and those who only ask must not.
	if err := c.tx.Commit(false); err != nil {
		return err
	}
	s.stats.Lock()
	defer s.stats.Unlock()
	maps.Copy(s.loads, loads)
	s.totals = sums
	s.sizes[number] = max(s.sizes[number], off)
	for _, removed := range c.removed {
		delete(s.loads, removed)
		delete(s.sizes, removed)
	}
	for inc := range c.opened {
		if _, ok := s.unswept[inc]; !ok {
			s.unswept[inc] = false
		}
	}
	for inc := range c.turned {
		if _, ok := s.uncounted[inc]; !ok {
			s.uncounted[inc] = false
		}
	}
	return nil
}

// counts enters into the change what the counts are with it, and returns them.
func (s *Store) counts(c *change, number uint32, off int64) (loads map[uint32]load, sums totals, err error) {
	s.stats.Lock()
	defer s.stats.Unlock()
	if _, ok := c.loads[number]; !ok {
		c.loads[number] = load{} // a segment without an entry would not be found
	}
	loads = make(map[uint32]load, len(c.loads))
	for segment, add := range c.loads {
		l := s.loads[segment]
		l = load{l.records + add.records, l.bytes + add.bytes}
		if err := c.tx.Set(segmentKey(segment), l.encode()); err != nil {
			return nil, sums, err
		}
		loads[segment] = l
	}
	sums = totals{s.totals.blocks + c.totals.blocks, s.totals.bytes + c.totals.bytes, s.totals.missing + c.totals.missing}
	return loads, sums, c.tx.Set([]byte{keyMeta}, meta{number, off, sums}.encode())
}
