package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Limits for the requests that this node serves for other members.
const (
	// maxStreams is the largest number of streams that are served.
	maxStreams = 1024
	// maxServed is the largest number of requests of one stream that are processed at the same
	// time. Further requests wait unread.
	maxServed = 512
	// maxBudget is the longest time for which a request is processed, even if the caller would
	// wait longer.
	maxBudget = 30 * time.Second
)

// Handler answers one request of the node from, and returns the kind and the body of the answer.
// ctx ends when the caller no longer waits.
type Handler func(ctx context.Context, from string, kind uint8, body []byte) (answer uint8, result []byte)

// Serve accepts streams on l and answers their requests until ctx ends. Then it closes l, and
// returns when all handlers have returned. It returns an error only if l fails. It calls ended
// with the node id of the peer whenever a stream has ended; ended must not block.
func Serve(ctx context.Context, l net.Listener, handle Handler, ended func(from string), log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	var streams sync.WaitGroup
	defer streams.Wait()
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
			return fmt.Errorf("transport: accept: %w", err)
		}
		select {
		case slots <- struct{}{}:
		default:
			log.WarnContext(ctx, "stream refused: too many are open", "node", conn.RemoteAddr().String(), "limit", maxStreams)
			_ = conn.Close()
			continue
		}
		streams.Go(func() {
			defer func() { <-slots }()
			if err := serveStream(ctx, conn, handle); err != nil {
				log.DebugContext(ctx, "stream of a member ended", "node", conn.RemoteAddr().String(), "err", err)
			}
			ended(conn.RemoteAddr().String())
		})
	}
}

// serveStream answers the requests of one stream, several at a time, and closes the stream when
// the other side has closed it. Otherwise the stream would remain half open as long as the
// connection.
func serveStream(ctx context.Context, conn net.Conn, handle Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel() // a request whose caller has gone need not be finished
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if stop() { // else that closes it
			_ = conn.Close()
		}
	}()

	out := make(chan []byte, maxQueued)
	work.Go(func() {
		if err := writeFrames(conn, out, ctx.Done()); err != nil {
			cancel()
		}
	})
	slots := make(chan struct{}, maxServed)
	from := conn.RemoteAddr().String()
	r := bufio.NewReaderSize(conn, bufferBytes)
	for {
		f, err := ReadFrame(r)
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		work.Go(func() {
			defer func() { <-slots }()
			if answer := serveOne(ctx, from, f, handle); answer != nil {
				select {
				case out <- answer:
				case <-ctx.Done():
				}
			}
		})
	}
}

// serveOne calls handle for one request and returns the encoded answer, or nil if there is
// nothing to send.
func serveOne(ctx context.Context, from string, f Frame, handle Handler) []byte {
	budget := maxBudget
	if f.Budget > 0 {
		budget = min(budget, f.Budget)
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	kind, body := handle(ctx, from, f.Kind, f.Body)
	answer, err := AppendFrame(make([]byte, 0, lengthBytes+headerBytes+len(body)), Frame{ID: f.ID, Kind: kind, Body: body})
	if err != nil {
		return nil // too large for a frame: the asker's time runs out
	}
	return answer
}
