package ingest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"sync"
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

// While others wait for memory, a body whose client has been waited for slowWait for
// slowBytes is slow and may be ended: it sends less than 48 KiB a second. slowWait is
// less than callers wait before the first byte of a body is asked for.
const (
	slowBytes = 144 << 10
	slowWait  = 3 * time.Second
	// slowEvery is how often those that wait look for slow ones.
	slowEvery = 500 * time.Millisecond
)

var errSlow = state.Errorf(state.CodeLimited, "the content comes slowly, and others wait for the memory that it has")

// Interrupter is a body whose reading others can end. A body that is none is ended
// when its Read returns.
type Interrupter interface {
	// Interrupt has the Read that waits fail, and all that follow. It does not wait,
	// and is not called any more when a Read has failed or Store has returned.
	Interrupt()
}

// Hashed is a body that is hashed as it is read.
type Hashed interface {
	// Blake3 is the BLAKE3 hash of all that has been read; nil: it is not known. It is
	// asked for when there is no more to read.
	Blake3() []byte
}

// bodies is the memory of all bodies of a node.
type bodies struct {
	room *semaphore.Weighted // in bytes

	// mu guards what follows. It is never held while calling out.
	mu     sync.Mutex
	read   map[*memory]struct{} // those that are being read
	wanted int64                // bytes that some of them wait for
	none   time.Time            // when too few of them were slow, last
}

func newBodies(size int64) *bodies {
	return &bodies{room: semaphore.NewWeighted(size), read: map[*memory]struct{}{}}
}

// open returns the memory of a body that is read from now on, until leave. end ends
// ctx, with a reason.
func (o *bodies) open(ctx context.Context, end context.CancelCauseFunc, body io.Reader, turn uint64) *memory {
	m := &memory{ctx: ctx, end: end, of: o, body: body, turn: turn}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read[m] = struct{}{}
	return m
}

// wait waits for n bytes until ctx ends, and ends slow bodies meanwhile.
func (o *bodies) wait(ctx context.Context, n int64) error {
	o.want(n)
	defer o.want(-n)
	ctx, cancel := context.WithCancel(ctx)
	var look sync.WaitGroup
	look.Go(func() {
		for more := true; more; more = sleep(ctx, slowEvery) {
			for _, m := range o.slow(time.Now()) {
				m.interrupt()
			}
		}
	})
	err := o.room.Acquire(ctx, n)
	cancel()
	look.Wait()
	return err
}

func (o *bodies) want(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wanted += n
}

// slow chooses the slowest bodies that together have what others wait for, or all slow
// ones if that is less. Each is chosen once.
func (o *bodies) slow(now time.Time) (chosen []*memory) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.none) < slowEvery/2 { // somebody else has just looked
		return nil
	}
	type candidate struct {
		m      *memory
		waited time.Duration
		has    int64
	}
	var slow []candidate
	missing := o.wanted
	for m := range o.read {
		waited, has, ends := m.pace(now)
		switch {
		case ends:
			missing -= has // it comes back soon
		case waited >= slowWait && has > 0:
			slow = append(slow, candidate{m, waited, has})
		}
	}
	slices.SortFunc(slow, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.waited, a.waited), cmp.Compare(a.m.turn, b.m.turn))
	})
	for _, c := range slow {
		if missing <= 0 {
			return chosen
		}
		c.m.choose()
		chosen, missing = append(chosen, c.m), missing-c.has
	}
	if missing > 0 {
		o.none = now
	}
	return chosen
}

// memory is a body and what it has taken of the memory for all bodies.
type memory struct {
	ctx  context.Context // of the one Store
	end  context.CancelCauseFunc
	of   *bodies
	body io.Reader
	turn uint64

	// mu guards what follows. It is held while the body is interrupted, which is what
	// leave waits for, and comes after that of bodies.
	mu     sync.Mutex
	held   int64 // ever taken
	handed int64 // of it, handed on: whoever has it releases it
	left   bool  // nothing is read any more
	slow   bool  // chosen to be ended

	// Since the last slowBytes:
	got    int
	waited time.Duration // for the client
	since  time.Time     // the client is waited for; zero: it is not
}

// take waits for n bytes. Bodies that wait may have some already, so that all of them
// would wait for ever: each waits for a time of its own, and what one that is refused
// gives back lets others go on.
func (m *memory) take(n int64) error {
	if !m.of.room.TryAcquire(n) {
		ctx, cancel := context.WithTimeout(m.ctx, memoryPatience/2+time.Duration(m.turn%memoryTurns)*memoryPatience/2/memoryTurns)
		defer cancel()
		if m.of.wait(ctx, n) != nil {
			if err := m.ctx.Err(); err != nil {
				return err
			}
			return state.Errorf(state.CodeLimited, "too much content arrives at this node at once")
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held += n
	return nil
}

// hand hands on up to n bytes of what is there, and returns how many: they are to be
// released.
func (m *memory) hand(n int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n = min(n, m.held-m.handed)
	m.handed += n
	return n
}

// release gives bytes back that were handed on.
func (m *memory) release(n int64) { m.of.room.Release(n) }

// free gives back all that was not handed on.
func (m *memory) free() { m.release(m.hand(math.MaxInt64)) }

// Read reads from the client, and notes how long it is waited for.
func (m *memory) Read(b []byte) (int, error) {
	began := time.Now()
	m.mu.Lock()
	m.since = began
	m.mu.Unlock()
	n, err := m.body.Read(b)
	m.mu.Lock()
	m.since = time.Time{}
	m.waited += time.Since(began)
	if m.got += n; m.got >= slowBytes {
		m.got, m.waited = 0, 0
	}
	m.mu.Unlock()
	if err != nil {
		m.leave()
	}
	return n, err
}

// blake3 is the hash of a body that has been read to its end; nil: it is not known.
func (m *memory) blake3() []byte {
	if b, ok := m.body.(Hashed); ok {
		return b.Blake3()
	}
	return nil
}

// leave says that nothing is read any more.
func (m *memory) leave() {
	m.of.mu.Lock()
	delete(m.of.read, m)
	m.of.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = true
}

// pace tells how long the client has been waited for, for less than slowBytes, what
// the body has, and whether it is chosen to be ended.
func (m *memory) pace(now time.Time) (waited time.Duration, has int64, ends bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waited = m.waited
	if !m.since.IsZero() {
		waited += now.Sub(m.since)
	}
	return waited, m.held - m.handed, m.slow
}

func (m *memory) choose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slow = true
}

// interrupt ends a body that is still being read.
func (m *memory) interrupt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return
	}
	m.end(errSlow)
	if b, ok := m.body.(Interrupter); ok {
		b.Interrupt()
	}
}

// first reads the first chunk of a body; more: it is longer than that, and data has
// one byte of what follows.
func (m *memory) first() (data []byte, more bool, err error) {
	n := 0
	for size := firstPiece; ; size = min(pieceGrowth*size, ChunkSize+1) {
		if err := m.take(int64(size - len(data))); err != nil {
			return nil, false, err
		}
		buf := make([]byte, size)
		copy(buf, data[:n])
		data = buf
		got, err := fill(m.ctx, m, data[n:])
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
	n, err := r.m.Read(b[:min(len(b), r.paid)])
	r.paid -= n
	return n, err
}
