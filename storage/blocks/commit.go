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
	// maxQueuedOps and maxQueuedBytes bound the queue of operations. Further callers wait until
	// the queue has room.
	maxQueuedOps   = 1024
	maxQueuedBytes = 64 << 20
	// maxBatchOps and maxBatchBytes bound the operations of one fdatasync.
	maxBatchOps   = 512
	maxBatchBytes = 8 << 20
)

// op is an operation of the store that must run alone. It reads the index through the batch and
// appends records to the batch. An op may fail with ErrNoSpace before it has changed anything. Any
// other error marks the whole store as broken.
type op struct {
	bytes int64 // approximate number of bytes that the op appends
	cold  bool  // the data will probably not be read soon
	run   func(b *batch) error

	err  error
	done chan struct{} // closed when err has the result
}

// batch is a group of operations that are committed together.
type batch struct {
	*change
	s     *Store
	base  int64 // position of s.buf in the active segment
	start int   // position of the start of the current record
	low   bool  // the disk has no space for new blocks
}

// begin starts a record. The caller appends its payload to s.buf.
func (b *batch) begin() {
	b.start = len(b.s.buf)
	b.s.buf = beginRecord(b.s.buf)
}

// position returns the position of the next record in the journal. If a reference begins with this
// record, the position is also the number of its incarnation (its life).
func (b *batch) position() uint64 {
	return uint64(b.s.active.number)<<32 | uint64(b.base+int64(len(b.s.buf)))
}

// end completes the record and adds its effect to the index.
func (b *batch) end(rec record) error {
	rec.off = b.base + int64(b.start)
	endRecord(b.s.buf, b.start, b.s.active.seed, rec.off, rec.kind)
	return b.apply(rec, b.s.active.number)
}

// block appends the record of a block.
func (b *batch) block(rec record) error {
	b.begin()
	rec.off = b.base + int64(b.start)
	var sum uint32
	b.s.buf, sum = appendBlock(b.s.buf, b.s.active.seed, rec.off, rec)
	endSummed(b.s.buf, b.start, b.s.active.seed, rec.off, rec.kind, sum)
	return b.apply(rec, b.s.active.number)
}

// do runs fn while no other operation runs. It returns when the changes of fn are durable and
// readable.
func (s *Store) do(ctx context.Context, bytes int64, fn func(b *batch) error) error {
	return s.queued(ctx, &op{bytes: bytes, run: fn})
}

// queued waits until the queue has room for an op, and then does the same as do.
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
		<-o.done // it is being committed
	}
	return o.err
}

// withdraw removes an op from the queue. It returns false if the op is already being committed.
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

// commitAll commits the queued operations, batch by batch, until the store is closed and the queue
// is empty. It runs in a single goroutine, so that only one stack has to grow to the size that the
// index needs.
//
// Callers that have received their result usually write again soon. So between two batches
// commitAll lets other goroutines run first. On a busy machine this makes batches larger, and on an
// idle machine it costs no time.
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

// take waits for operations and moves one batch of them from the queue to ops. It returns
// none when the store is closed.
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

// commit runs the operations and makes their changes durable, then readable. Only the
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
			s.broken = errIndex // watchIndex logs it
		}
	default:
	}
	if s.broken != nil {
		fail(fmt.Errorf("%w: %w", ErrBroken, s.broken))
		return
	}
	if err := s.roll(); err != nil {
		// If the folder was removed or unmounted, no write can succeed before the next
		// start.
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
			// The index could not be read, and half a step cannot be removed from the
			// change.
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
	// The blocks are durable. After a crash here, recovery adds them to the index.
	if err := s.publish(b.change, s.active.number, s.active.size); err != nil {
		fail(s.breakdown(err))
	}
}

// breakdown marks the store as broken because of err, and returns the error for callers.
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

// roll starts a new segment if the active one is full, damaged or missing.
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
	// Each batch has flushed its own data.
	if err := old.close(); err != nil {
		s.log.Error("cannot close a full segment", "file", old.f.Name(), "err", err)
	}
	return nil
}

// publish commits the change to the index, without fsync, and then adds its counts to those of the
// store. number and off are the position in the segments up to which the index then has all
// records.
func (s *Store) publish(c *change, number uint32, off int64) error {
	loads, sums, err := s.counts(c, number, off)
	if err != nil {
		return err
	}
	// On a full disk this waits for space, and readers must not wait for it.
	if err := c.tx.Commit(false); err != nil {
		return err
	}
	s.stats.Lock()
	defer s.stats.Unlock()
	maps.Copy(s.loads, loads)
	s.totals = sums
	s.sizes[number] = max(s.sizes[number], off)
	s.freed.Blocks += c.freed.Blocks
	s.freed.Bytes += c.freed.Bytes
	for _, removed := range c.removed {
		s.freed.Files++
		s.freed.FileBytes += uint64(s.sizes[removed])
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

// counts computes the counts of the store including the change c, writes them into the index, and
// returns them.
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
