package ingest

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"golang.org/x/sync/semaphore"
)

// The first chunk of a body is read into firstPiece bytes, and then into pieceGrowth
// times as many and so on, up to a chunk: most bodies are small.
const (
	firstPiece  = 64<<10 + 1
	pieceGrowth = 4
	// memoryTurns are the different times for which bodies wait for memory.
	memoryTurns = 32
)

// memory is what one body has taken of the memory for all bodies.
type memory struct {
	ctx  context.Context // of the one Store
	of   *semaphore.Weighted
	held int64 // the reader's; what was handed on is released by release alone
	turn uint64
}

// take waits for n bytes. Bodies that wait may have some already, so that all of them
// would wait for ever: each waits for a time of its own, and what one that is refused
// gives back lets others go on.
func (m *memory) take(n int64) error {
	if !m.of.TryAcquire(n) {
		ctx, cancel := context.WithTimeout(m.ctx, memoryPatience/2+time.Duration(m.turn%memoryTurns)*memoryPatience/2/memoryTurns)
		defer cancel()
		if m.of.Acquire(ctx, n) != nil {
			if err := m.ctx.Err(); err != nil {
				return err
			}
			return state.Errorf(state.CodeLimited, "too much content arrives at this node at once")
		}
	}
	m.held += n
	return nil
}

// release gives n bytes back.
func (m *memory) release(n int64) { m.of.Release(n) }

// first reads the first chunk of a body; more: it is longer than that, and data has
// one byte of what follows.
func (m *memory) first(body io.Reader) (data []byte, more bool, err error) {
	n := 0
	for size := firstPiece; ; size = min(pieceGrowth*size, ChunkSize+1) {
		if err := m.take(int64(size - len(data))); err != nil {
			return nil, false, err
		}
		buf := make([]byte, size)
		copy(buf, data[:n])
		data = buf
		got, err := fill(m.ctx, body, data[n:])
		n += got
		if ended(err) {
			return data[:n], false, nil
		}
		if err != nil {
			return nil, false, err
		}
		if n > ChunkSize {
			return data, true, nil
		}
	}
}

// fill is io.ReadFull that ends with ctx.
func fill(ctx context.Context, r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	if n == len(buf) {
		return n, nil
	}
	return n, err
}

// ended tells the end of a body from a failure of it.
func ended(err error) bool { return errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) }

// rest reads a body whose beginning has been read, and takes memory for each chunk.
type rest struct {
	m     *memory
	first []byte
	body  io.Reader
	paid  int // bytes that may be read before more memory is taken
}

// Read implements io.Reader.
func (r *rest) Read(b []byte) (int, error) {
	if len(r.first) > 0 { // its memory is taken
		n := copy(b, r.first)
		if r.first = r.first[n:]; len(r.first) < firstPiece { // and let go, what is there is a copy
			r.first = append([]byte(nil), r.first...)
		}
		return n, nil
	}
	if len(b) == 0 {
		return 0, nil
	}
	if r.paid == 0 {
		if err := r.m.take(ChunkSize); err != nil {
			return 0, err
		}
		r.paid = ChunkSize
	}
	n, err := r.body.Read(b[:min(len(b), r.paid)])
	r.paid -= n
	return n, err
}
