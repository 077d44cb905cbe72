package ingest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	block "github.com/ipfs/go-block-format"
)

// Times and limits of streams to other nodes.
const (
	// dialTimeout is how long a put waits for a connection to a node to which it has no stream.
	dialTimeout = 5 * time.Second
	// reachedWithin is the time of dialling after which the node counts as silent, see
	// silentAfter. Several spare nodes may be down, and each is tried when the previous one
	// counts as silent.
	reachedWithin = time.Second
	// moveTimeout limits the time for sending one block.
	moveTimeout = 30 * time.Second
	// answerTimeout is the longest time without a message from a node after the end of a body; a
	// node that is still working sends one every workingEvery. After silentAfter, a spare node
	// gets the content too, because the client is waiting.
	answerTimeout = 30 * time.Second
	silentAfter   = 2 * workingEvery
	workingEvery  = 5 * time.Second
	// doneTimeout limits the time for sending an outcome.
	doneTimeout = 5 * time.Second
	// tellWithin is how long an outcome may wait to be sent together with the next put on the
	// stream. Nothing depends on the arrival of the outcome.
	tellWithin = 200 * time.Millisecond
	// cutTimeout is how long sending a block may take after its put has ended.
	cutTimeout = time.Second
	// reasonWait is how long the node waits for the other side's reason on a stream that broke.
	reasonWait = 100 * time.Millisecond
	// maxIdle is the largest number of idle streams to one node; they are closed after idleAfter.
	maxIdle    = 32
	idleAfter  = time.Minute
	sweepEvery = 20 * time.Second
	bufferSize = 68 << 10
)

var errBroken = errors.New("the stream has ended")

// answer is a decoded answer of the other node.
type answer struct {
	working bool
	kept    kept
	err     error // error with which the other node has rejected the put
}

// stream is a stream to another node, used by one put at a time.
type stream struct {
	conn   net.Conn
	out    *bufio.Writer
	head   []byte // buffer for the head of a frame
	reused bool
	idle   time.Time // when the stream became idle
	late   bool      // out has an outcome that is not flushed yet

	answers chan answer
	broken  chan struct{} // closed when no more answers can arrive
}

// read sends the answers to the channel answers until the stream ends or the other node rejects
// the put. In the latter case the other node reads nothing more, so read also aborts a running
// write, which would otherwise block for moveTimeout.
func (s *stream) read() {
	defer func() {
		close(s.broken)
		_ = s.conn.SetWriteDeadline(time.Unix(1, 0)) // after broken is closed, which a write checks after it set its own deadline
	}()
	r := bufio.NewReaderSize(s.conn, 512)
	for {
		f, err := readFrame(r)
		if err != nil {
			return
		}
		var a answer
		switch f.kind {
		case kindWorking:
			a.working = true
		case kindKept:
			if a.kept, err = parseKept(f.body); err != nil {
				return
			}
		case kindRefused:
			a.err = parseRefused(f.body)
		default:
			return
		}
		select {
		case s.answers <- a:
		default:
			return // more than was asked for
		}
		if a.err != nil {
			return
		}
	}
}

func (s *stream) ended() bool {
	select {
	case <-s.broken:
		return true
	default:
		return len(s.answers) > 0
	}
}

// write calls fn, which writes to the stream, with a time limit. After ctx has ended, a running
// write may finish within cutTimeout, so that the end of the put can still be sent. After any
// other error the stream is unusable.
func (s *stream) write(ctx context.Context, timeout time.Duration, fn func() error) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	select {
	case <-s.broken:
		return errBroken
	default:
	}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetWriteDeadline(time.Now().Add(cutTimeout)) })
	err := fn()
	if err == nil {
		err = s.out.Flush()
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	return err
}

// await returns the next answer other than "working". It calls silent whenever silentAfter has
// passed without an answer.
func (s *stream) await(ctx context.Context, silent func()) (kept, error) {
	tick := time.NewTicker(silentAfter)
	defer tick.Stop()
	heard := time.Now()
	for {
		select {
		case a := <-s.answers:
			if a.working {
				heard = time.Now()
				tick.Reset(silentAfter)
				continue
			}
			return a.kept, a.err
		case <-ctx.Done():
			return kept{}, ctx.Err()
		case <-tick.C:
			if time.Since(heard) >= answerTimeout {
				return kept{}, errors.New("no answer in time")
			}
			silent()
		case <-s.broken:
			select {
			case a := <-s.answers: // the last word, perhaps the reason
				if !a.working {
					return a.kept, a.err
				}
			default:
			}
			return kept{}, errBroken
		}
	}
}

// pool keeps streams to other nodes open between puts.
type pool struct {
	network Network
	work    sync.WaitGroup // counts goroutines that read streams

	// mu guards the fields below. It is not held during calls of other code.
	mu     sync.Mutex
	idle   map[state.NodeID][]*stream
	teller *time.Timer // timer that calls tell; nil if no outcome waits
	closed bool
}

func newPool(n Network) *pool { return &pool{network: n, idle: map[state.NodeID][]*stream{}} }

// get returns an idle stream to a node. If fresh is true or none is idle, it opens a new one, and
// calls silent if that takes longer than reachedWithin.
func (o *pool) get(ctx context.Context, node state.NodeID, fresh bool, silent func()) (*stream, error) {
	for !fresh {
		o.mu.Lock()
		list := o.idle[node]
		if len(list) == 0 {
			o.mu.Unlock()
			break
		}
		s := list[len(list)-1] // the youngest, so that the others age
		o.idle[node] = list[:len(list)-1]
		o.mu.Unlock()
		if !s.ended() {
			s.reused, s.late = true, false
			return s, nil
		}
		_ = s.conn.Close()
	}
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	long := time.AfterFunc(reachedWithin, silent)
	conn, err := o.network.Dial(dial, string(node), Protocol)
	long.Stop()
	if err != nil {
		return nil, err
	}
	s := &stream{
		conn: conn, out: bufio.NewWriterSize(conn, bufferSize), answers: make(chan answer, 4), broken: make(chan struct{}),
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	o.work.Go(s.read)
	return s, nil
}

// put returns a stream to the pool, after its outcome was sent or buffered.
func (o *pool) put(node state.NodeID, s *stream) {
	o.mu.Lock()
	keep := !o.closed && !s.ended() && len(o.idle[node]) < maxIdle
	if keep {
		s.idle = time.Now()
		o.idle[node] = append(o.idle[node], s)
		if s.late && o.teller == nil {
			o.teller = time.AfterFunc(tellWithin, o.tell)
		}
	}
	o.mu.Unlock()
	if !keep {
		s.close()
	}
}

// tell sends the buffered outcomes of idle streams.
func (o *pool) tell() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.teller = nil
	if o.closed {
		return // the code that closes the streams sends them
	}
	for node, list := range o.idle {
		rest := make([]*stream, 0, len(list))
		for _, s := range list {
			if !s.late {
				rest = append(rest, s)
				continue
			}
			o.work.Go(func() {
				if s.flush() != nil {
					_ = s.conn.Close()
					return
				}
				o.put(node, s)
			})
		}
		o.idle[node] = rest
	}
}

// flush sends the buffered outcome.
func (s *stream) flush() error {
	s.late = false
	return s.write(context.Background(), doneTimeout, func() error { return nil })
}

// close closes a stream that no put uses.
func (s *stream) close() {
	if s.late {
		_ = s.flush()
	}
	_ = s.conn.Close()
}

// sweep closes the streams that have been idle since before the given time.
func (o *pool) sweep(before time.Time) {
	var old []*stream
	o.mu.Lock()
	for node, list := range o.idle {
		n := 0
		for n < len(list) && list[n].idle.Before(before) {
			n++
		}
		old = append(old, list[:n]...)
		if o.idle[node] = slices.Clone(list[n:]); n == len(list) {
			delete(o.idle, node)
		}
	}
	o.mu.Unlock()
	for _, s := range old {
		s.close()
	}
}

// run closes idle streams until ctx ends, and then closes all streams. It returns when no
// goroutine reads a stream any more.
func (o *pool) run(ctx context.Context) {
	for backoff.Wait(ctx, sweepEvery) {
		o.sweep(time.Now().Add(-idleAfter))
	}
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.sweep(time.Now().Add(time.Hour))
}

// remote implements dest for another node. Only one goroutine uses it.
type remote struct {
	pool   *pool
	node   state.NodeID
	id     putID
	silent func() // called repeatedly while no answer arrives; must not block

	s *stream
}

// send writes blocks, and the end frame if e is not nil, and then calls wait if it is not nil. If
// a stream from the pool turns out to be dead, send repeats this on a new stream.
func (d *remote) send(ctx context.Context, blks []block.Block, e *end, wait func() error) error {
	for fresh := false; ; fresh = true {
		first := d.s == nil
		if first {
			silent := d.silent
			if e == nil {
				silent = func() {} // the body is still arriving: a node that is slow now may be fast at the end
			}
			s, err := d.pool.get(ctx, d.node, fresh, silent)
			if err != nil {
				return err
			}
			d.s = s
		}
		err := d.write(ctx, first, blks, e)
		if err != nil && ctx.Err() == nil {
			if why := d.reason(); why != nil {
				return why
			}
		}
		if err == nil && wait != nil {
			err = wait()
		}
		if err == nil {
			return nil
		}
		var refused *state.Error
		if first && d.s.reused && !fresh && ctx.Err() == nil && !errors.As(err, &refused) && d.s.ended() {
			_ = d.s.conn.Close()
			d.s = nil
			continue
		}
		return err
	}
}

// reason returns the error that the other node has sent before the stream broke, or nil.
func (d *remote) reason() error {
	timer := time.NewTimer(reasonWait)
	defer timer.Stop()
	select {
	case <-d.s.broken:
	case <-timer.C:
	}
	select {
	case a := <-d.s.answers:
		return a.err
	default:
		return nil
	}
}

func (d *remote) write(ctx context.Context, first bool, blks []block.Block, e *end) error {
	s := d.s
	if first {
		if _, err := s.out.Write(appendBegin(s.head[:0], d.id)); err != nil {
			return err
		}
	}
	for i, b := range blks {
		err := s.write(ctx, moveTimeout, func() error {
			s.head = appendBlockHead(s.head[:0], b)
			if _, err := s.out.Write(s.head); err != nil {
				return err
			}
			if _, err := s.out.Write(b.RawData()); err != nil {
				return err
			}
			if e != nil && i == len(blks)-1 {
				_, err := s.out.Write(appendEnd(nil, *e))
				return err
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("send block: %w", err)
		}
	}
	if e == nil || len(blks) > 0 {
		return nil
	}
	return s.write(ctx, moveTimeout, func() error {
		_, err := s.out.Write(appendEnd(nil, *e))
		return err
	})
}

// put implements dest.
func (d *remote) put(ctx context.Context, blks []block.Block) error {
	if d.s != nil && len(d.s.answers) > 0 { // it does not want more
		_, err := d.s.await(ctx, d.silent)
		return errors.Join(err, errBroken)
	}
	return d.send(ctx, blks, nil, nil)
}

// end implements dest.
func (d *remote) end(ctx context.Context, e end, last []block.Block) (k kept, err error) {
	err = d.send(ctx, last, &e, func() (err error) {
		k, err = d.s.await(ctx, d.silent)
		return err
	})
	return k, err
}

// renew implements dest.
func (d *remote) renew(ctx context.Context) (kept, error) {
	err := d.s.write(ctx, moveTimeout, func() error {
		_, err := d.s.out.Write(appendBare(nil, kindRenew))
		return err
	})
	if err != nil {
		return kept{}, err
	}
	return d.s.await(ctx, d.silent)
}

// done implements dest. If the outcome cannot be sent, the other node treats it as unknown.
func (d *remote) done(outcome byte) {
	s := d.s
	if s == nil {
		return
	}
	d.s = nil
	_, err := s.out.Write(appendDone(s.head[:0], outcome))
	if s.late = outcome == outcomeCommitted; err == nil && !s.late {
		err = s.flush()
	}
	if err != nil {
		_ = s.conn.Close()
		return
	}
	d.pool.put(d.node, s)
}

// quit implements dest. It closes the stream, because an answer to the end frame may still
// arrive.
func (d *remote) quit() {
	s := d.s
	if s == nil {
		return
	}
	d.s = nil
	_ = s.write(context.Background(), doneTimeout, func() error {
		_, err := s.out.Write(appendDone(nil, outcomeGivenUp))
		return err
	})
	_ = s.conn.Close()
}

// lost implements dest.
func (d *remote) lost() {
	if d.s != nil {
		_ = d.s.conn.Close()
		d.s = nil
	}
}
