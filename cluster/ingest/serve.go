package ingest

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	block "github.com/ipfs/go-block-format"
	"golang.org/x/sync/semaphore"
)

// Limits for content that other nodes put on this node.
const (
	maxStreams = 1024
	// serveIdle is how long a stream may be open without a put. It is longer than idleAfter, so
	// that the other side closes the stream first.
	serveIdle = 3 * time.Minute
	// batchBlocks is the largest number of blocks that are stored together. Options.Batch limits
	// their bytes.
	batchBlocks = 256
	// storeAfter is how long received blocks wait for further ones of their batch before they are
	// stored. A client may be slow for hours, and waiting blocks occupy memory that other puts
	// need.
	storeAfter = time.Second
)

// serve accepts the puts of other nodes until ctx ends.
func (i *Ingest) serve(ctx context.Context, l net.Listener) error {
	var streams sync.WaitGroup
	defer streams.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	slots := make(chan struct{}, maxStreams)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("ingest: accept: %w", err)
		}
		select {
		case slots <- struct{}{}:
		default:
			i.opts.Logger.WarnContext(ctx, "stream refused: too many are open", "node", conn.RemoteAddr().String(), "limit", maxStreams)
			_ = conn.Close()
			continue
		}
		streams.Go(func() {
			defer func() { <-slots }()
			if err := i.serveStream(ctx, conn); err != nil && !errors.Is(err, io.EOF) {
				i.opts.Logger.DebugContext(ctx, "stream of a put ended", "node", conn.RemoteAddr().String(), "err", err)
			}
		})
	}
}

// serveStream handles the puts on one stream, one after the other. It returns the error that
// ended the stream.
func (i *Ingest) serveStream(ctx context.Context, conn net.Conn) error {
	s := &served{i: i, from: conn.RemoteAddr().String(), conn: conn, in: bufio.NewReaderSize(conn, bufferSize)}
	share, _ := i.shares.LoadOrStore(s.from, semaphore.NewWeighted(max(i.opts.Arriving/2, 2*maxBlock)))
	s.share = share.(*semaphore.Weighted)
	defer s.work.Wait()
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0))
		_ = conn.Close()
	})
	defer stop()
	for {
		if err := conn.SetReadDeadline(time.Now().Add(serveIdle)); err != nil {
			return err
		}
		f, err := readSmall(s.in)
		if err != nil {
			return err
		}
		if f.kind != kindBegin {
			return fmt.Errorf("%w: kind %d between puts", errFrame, f.kind)
		}
		id, err := parseBegin(f.body)
		if err != nil {
			return err
		}
		// A client may be slow; the connection itself detects that the node is gone.
		if err := conn.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
		if err := s.put(ctx, id); err != nil {
			return err
		}
	}
}

// readSmall reads a frame of any kind but block.
func readSmall(r *bufio.Reader) (frame, error) {
	kind, n, err := readHead(r)
	if err != nil {
		return frame{}, err
	}
	if kind == kindBlock {
		return frame{}, fmt.Errorf("%w: a block out of place", errFrame)
	}
	body, err := readBody(r, n)
	return frame{kind, body}, err
}

// served is a stream over which another node puts content on this node.
type served struct {
	i     *Ingest
	from  string // id of the other node
	conn  net.Conn
	in    *bufio.Reader
	work  sync.WaitGroup      // counts the goroutine that reads the frames after an end
	share *semaphore.Weighted // the other node's part of i.arriving
}

// takeRoom waits until n more bytes may arrive: first in the share of the other node, and then in
// the limit for all nodes. The share ensures that slow content of one member does not use up the
// memory for the others.
func (s *served) takeRoom(ctx context.Context, n int64) error {
	if err := s.share.Acquire(ctx, n); err != nil {
		return err
	}
	if err := s.i.arriving.Acquire(ctx, n); err != nil {
		s.share.Release(n)
		return err
	}
	return nil
}

func (s *served) tryRoom(n int64) bool {
	if !s.share.TryAcquire(n) {
		return false
	}
	if !s.i.arriving.TryAcquire(n) {
		s.share.Release(n)
		return false
	}
	return true
}

func (s *served) giveRoom(n int64) {
	s.i.arriving.Release(n)
	s.share.Release(n)
}

// arriving has the blocks of one put that are not stored yet.
type arriving struct {
	s    *served
	keep *intake

	batch []block.Block
	bufs  []*[]byte // memory of the blocks in batch
	bytes int64
	going chan error // receives the result of the batch that is being stored; nil if none is
	told  bool       // the other side may have received the answer kept
}

// put handles one put until its outcome is known. After an error the stream is unusable.
func (s *served) put(ctx context.Context, id putID) error {
	a := &arriving{s: s, keep: s.i.keeper.open(s.from + "/" + hex.EncodeToString(id[:]))}
	ctx, cancel := context.WithCancel(ctx)
	outcome, err := s.take(ctx, a)
	cancel()
	_ = a.settle()
	a.forget()
	switch {
	case err == nil:
		a.keep.done(outcome)
	case a.told:
		a.keep.lost()
	default:
		a.keep.quit()
	}
	return err
}

// take reads the blocks of a put, its end, and its outcome.
func (s *served) take(ctx context.Context, a *arriving) (outcome byte, err error) {
	for {
		if err := a.expect(ctx); err != nil {
			return 0, s.refuse(err)
		}
		kind, n, err := readHead(s.in)
		if err != nil {
			return 0, err
		}
		if kind == kindBlock {
			if err := a.block(ctx, n); err != nil {
				return 0, s.refuse(err)
			}
			continue
		}
		body, err := readBody(s.in, n)
		if err != nil {
			return 0, err
		}
		switch kind {
		case kindEnd:
			e, err := parseEnd(body)
			if err != nil {
				return 0, err
			}
			return s.end(ctx, a, e)
		case kindDone:
			return parseDone(body)
		default:
			return 0, fmt.Errorf("%w: kind %d within a put", errFrame, kind)
		}
	}
}

// expect waits for the next frame. If none arrives within storeAfter, it stores the waiting
// blocks.
func (a *arriving) expect(ctx context.Context) error {
	if len(a.batch) == 0 || a.s.in.Buffered() >= headBytes {
		return nil
	}
	err := a.s.conn.SetReadDeadline(time.Now().Add(storeAfter))
	if err == nil && ctx.Err() == nil { // its end sets a deadline too
		_, err = a.s.in.Peek(headBytes)
	}
	late, ok := errors.AsType[net.Error](err)
	if ctx.Err() != nil || !ok || !late.Timeout() {
		err = nil // the next read returns the error again
	} else {
		err = a.store(ctx)
	}
	return errors.Join(err, a.s.conn.SetReadDeadline(time.Time{}), ctx.Err())
}

// block reads a block frame of n bytes, and stores the batch if that fills it. The waiting blocks
// of all puts have a common limit. At the limit, this put stores its batch before it waits for
// memory, so that puts do not wait for each other.
func (a *arriving) block(ctx context.Context, n int) error {
	if !a.s.tryRoom(int64(n)) {
		if err := errors.Join(a.store(ctx), a.settle()); err != nil {
			return err
		}
		if err := a.s.takeRoom(ctx, int64(n)); err != nil {
			return err
		}
	}
	a.bytes += int64(n)
	buf := a.s.i.opts.Buffers.Get(n) // all at once, for its room is taken
	a.bufs = append(a.bufs, buf)
	body := (*buf)[:n]
	if _, err := io.ReadFull(a.s.in, body); err != nil {
		return fmt.Errorf("%w: %w", errFrame, noEOF(err))
	}
	b, err := parseBlock(body)
	if err != nil {
		return err
	}
	a.batch = append(a.batch, b)
	if a.bytes >= int64(a.s.i.opts.Batch) || len(a.batch) >= batchBlocks {
		return a.store(ctx)
	}
	return nil
}

// store waits until the previous batch is stored, and then starts to store the present one in a
// goroutine.
func (a *arriving) store(ctx context.Context) error {
	if err := a.settle(); err != nil || len(a.batch) == 0 {
		return err
	}
	batch, bufs, bytes := a.batch, a.bufs, a.bytes
	a.batch, a.bufs, a.bytes = nil, nil, 0
	a.going = make(chan error, 1)
	going := a.going
	a.s.work.Go(func() {
		err := a.keep.put(ctx, batch)
		if err == nil { // else what was begun may still use it
			a.reuse(bufs)
		}
		a.s.giveRoom(bytes)
		going <- err
	})
	return nil
}

// reuse returns buffers to the pool that are no longer used.
func (a *arriving) reuse(bufs []*[]byte) {
	for _, buf := range bufs {
		a.s.i.opts.Buffers.Put(buf)
	}
}

// settle waits until the batch that is being stored is stored, and returns the error.
func (a *arriving) settle() error {
	if a.going == nil {
		return nil
	}
	err := <-a.going
	a.going = nil
	return err
}

// forget discards the blocks that are not being stored yet.
func (a *arriving) forget() {
	a.s.giveRoom(a.bytes)
	a.batch, a.bufs, a.bytes = nil, nil, 0
}

// ending is the result of processing the end of a put.
type ending struct {
	kept kept
	err  error
}

// read is the result of reading a frame: the frame or an error.
type read struct {
	frame
	err error
}

// end completes the content on this node, sends the answer, and waits for the outcome. It stops
// if the other node disconnects.
func (s *served) end(ctx context.Context, a *arriving, e end) (outcome byte, err error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan ending, 1)
	var work sync.WaitGroup
	work.Go(func() {
		err := a.settle()
		var k kept
		if err == nil {
			k, err = a.keep.end(ctx, e, a.batch)
		}
		ended <- ending{k, err}
	})
	defer work.Wait()
	defer cancel()
	frames := make(chan read, 1)
	next := func() {
		s.work.Go(func() {
			f, err := readSmall(s.in)
			frames <- read{f, err}
		})
	}
	next()
	tick := time.NewTicker(workingEvery)
	defer tick.Stop()
	whole := false
	for {
		select {
		case done := <-ended:
			if done.err != nil {
				return 0, s.refuse(done.err)
			}
			whole, a.told = true, true
			a.reuse(a.bufs)
			a.forget()
			if err := s.write(appendKept(nil, done.kept)); err != nil {
				return lastWord(frames, err)
			}
		case <-tick.C:
			if whole {
				continue
			}
			if err := s.write(appendBare(nil, kindWorking)); err != nil {
				return 0, err
			}
		case f := <-frames:
			switch {
			case f.err != nil:
				return 0, f.err
			case f.kind == kindDone:
				return parseDone(f.body)
			case f.kind == kindRenew && whole:
				k, err := a.keep.renew(ctx)
				if err != nil {
					return 0, s.refuse(err)
				}
				if err := s.write(appendKept(nil, k)); err != nil {
					return 0, err
				}
				next()
			default:
				return 0, fmt.Errorf("%w: kind %d after the end", errFrame, f.kind)
			}
		}
	}
}

// lastWord is called when this side can no longer send its answer because of err. It waits for an
// outcome that may still arrive and returns it, or else err.
func lastWord(frames <-chan read, err error) (outcome byte, _ error) {
	timer := time.NewTimer(doneTimeout)
	defer timer.Stop()
	select {
	case f := <-frames:
		if f.err == nil && f.kind == kindDone {
			return parseDone(f.body)
		}
	case <-timer.C:
	}
	return 0, err
}

func (s *served) write(frame []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(moveTimeout)); err != nil {
		return err
	}
	_, err := s.conn.Write(frame)
	return err
}

// refuse sends err to the other node, which ends the put, and returns it.
func (s *served) refuse(err error) error {
	code, text := state.CodeUnavailable, err.Error()
	var known *state.Error
	switch {
	case errors.As(err, &known):
		code = known.Code
	case errors.Is(err, errFrame), errors.Is(err, errBadBlock):
		code = state.CodeInvalid
	}
	return errors.Join(err, s.write(appendRefused(nil, code, text)))
}
