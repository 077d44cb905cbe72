package ingest

import (
	"cmp"
	"context"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
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
	// slowEvery is the interval at which waiting bodies look for slow ones.
	slowEvery = 500 * time.Millisecond
	// giveWayAfter is how long bodies may wait with their first piece while others wait to
	// begin. If bodies arrive at a usual pace, memory becomes free sooner.
	giveWayAfter = time.Second
)

var errSlow = state.Errorf(state.CodeLimited, "the content comes slowly, and others wait for the memory that it has")

// Interrupter is a body whose reading others can end. A body that is none is ended
// when its Read returns.
type Interrupter interface {
	// Interrupt makes the current Read fail, and all later ones. It does not block. It is
	// not called after a Read has failed or Store has returned.
	Interrupt()
}

// Hashed is a body that is hashed as it is read.
type Hashed interface {
	// Blake3 is the BLAKE3 hash of all that has been read; nil: it is not known. It is
	// asked for when there is no more to read.
	Blake3() []byte
}

// bodies is the memory of all bodies of a node. The first pieces of bodies have a part of
// it for themselves, so that small bodies do not wait behind large ones.
type bodies struct {
	first, rest share
	buffers     Buffers // of first chunks

	// mu guards what follows, and wanted and none of the shares. It is never held while calling out.
	mu     sync.Mutex
	read   map[*memory]struct{} // those that are being read
	claims map[*claim]struct{}  // of those that wait for memory of rest
	idle   int64                // bytes of rest that they have meanwhile
	gave   time.Time            // last search for bodies that give way
}

// share is a part of the memory for bodies.
type share struct {
	room *semaphore.Weighted
	size int64 // of room, in bytes

	wanted int64     // bytes that bodies wait for
	none   time.Time // when too few of them were slow, last
}

// claim is a body that waits for memory of rest.
type claim struct {
	m      *memory
	first  int64 // bytes that it has of first
	has    int64 // and of rest
	begins bool  // it is in its first chunk
	since  time.Time
	refuse context.CancelFunc
}

// firstPart is the part of all memory that is for first pieces.
const firstPart = 8

func newBodies(size int64, buffers Buffers) *bodies {
	first := size / firstPart
	return &bodies{
		buffers: buffers,
		first:   share{room: semaphore.NewWeighted(first), size: first},
		rest:    share{room: semaphore.NewWeighted(size - first), size: size - first},
		read:    map[*memory]struct{}{}, claims: map[*claim]struct{}{},
	}
}

// open returns the memory of a body that is read from now on, until leave. end ends
// ctx, with a reason.
func (o *bodies) open(ctx context.Context, end context.CancelCauseFunc, body io.Reader, turn uint64) *memory {
	m := &memory{ctx: ctx, end: end, of: o, body: body, turn: turn, begins: true}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read[m] = struct{}{}
	return m
}

// wait waits for n bytes of a share until ctx ends. Meanwhile it ends slow bodies that
// have some of it, and has others give way.
func (o *bodies) wait(ctx context.Context, p *share, n int64) error {
	o.want(p, n)
	defer o.want(p, -n)
	ctx, cancel := context.WithCancel(ctx)
	var look sync.WaitGroup
	look.Go(func() {
		for more := true; more; more = backoff.Wait(ctx, slowEvery) {
			now := time.Now()
			for _, m := range o.slow(p, now) {
				m.interrupt()
			}
			if p == &o.first {
				o.giveWay(now)
			}
		}
	})
	err := p.room.Acquire(ctx, n)
	cancel()
	look.Wait()
	return err
}

func (o *bodies) want(p *share, n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.wanted += n
}

// enter notes that a body waits for memory of rest; refuse ends that.
func (o *bodies) enter(m *memory, refuse context.CancelFunc) *claim {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := &claim{m: m, first: m.has(&o.first), has: m.has(&o.rest), begins: m.begins, since: time.Now(), refuse: refuse}
	o.claims[c] = struct{}{}
	o.idle += c.has
	o.breakDeadlock()
	return c
}

func (o *bodies) exit(c *claim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.remove(c)
	o.breakDeadlock()
}

// remove removes a claim if it is still there. The caller holds mu.
func (o *bodies) remove(c *claim) {
	if _, ok := o.claims[c]; ok {
		delete(o.claims, c)
		o.idle -= c.has
	}
}

// breakDeadlock refuses waiting bodies if the memory that all others can return may be less
// than one of them waits for, which is at most one chunk. Otherwise they could wait for
// each other. The caller holds mu.
func (o *bodies) breakDeadlock() {
	for o.idle > 0 && o.rest.size-o.idle < ChunkSize {
		o.refuseOne(func(c *claim) bool { return c.has > 0 })
	}
}

// giveWay refuses bodies that have waited for a while behind their first pieces, where
// others that begin need the room of those.
func (o *bodies) giveWay(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.gave) < slowEvery/2 { // another caller has just checked
		return
	}
	o.gave = now
	for missing := o.first.wanted; missing > 0; missing -= firstPiece {
		if !o.refuseOne(func(c *claim) bool { return c.first > 0 && now.Sub(c.since) >= giveWayAfter }) {
			return
		}
	}
}

// refuseOne refuses the youngest of the waiting bodies for which of is true, preferably one
// in its first chunk, for which the client has sent the least in vain. It returns whether
// there was one. The caller holds mu.
func (o *bodies) refuseOne(of func(*claim) bool) bool {
	var one *claim
	for c := range o.claims {
		switch {
		case !of(c):
		case one == nil, c.begins && !one.begins, c.begins == one.begins && c.m.turn > one.m.turn:
			one = c
		}
	}
	if one == nil {
		return false
	}
	one.refuse()
	o.remove(one)
	return true
}

// slow chooses the slowest bodies that together have what others wait for of a share, or
// all slow ones if that is less. Each is chosen once.
func (o *bodies) slow(p *share, now time.Time) (chosen []*memory) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(p.none) < slowEvery/2 { // another caller has just checked
		return nil
	}
	type candidate struct {
		m      *memory
		waited time.Duration
		has    int64
	}
	var slow []candidate
	missing := p.wanted
	for m := range o.read {
		has := m.has(p)
		waited, ends := m.pace(now)
		switch {
		case ends:
			missing -= has // it will be free soon
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
		p.none = now
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

	// Used by the goroutine that reads the body, and then by the last user of buf.
	begins bool    // it is in its first chunk
	buf    *[]byte // what its first chunk is in

	// mu guards the fields below. It is held while the body is interrupted, for which leave
	// waits, and is locked after that of bodies.
	mu     sync.Mutex
	begun  int64 // bytes of its first piece, if those are of first
	held   int64 // ever taken of the rest
	handed int64 // the part that was passed on; its new holder releases it
	left   bool  // nothing more is read
	slow   bool  // chosen to be ended

	// Since the last slowBytes:
	got    int
	waited time.Duration // for the client
	since  time.Time     // the client is waited for; zero: it is not
}

// has returns how much of a share it has and has not handed on.
func (m *memory) has(p *share) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p == &m.of.first {
		return m.begun
	}
	return m.held - m.handed
}

// begin waits for the first piece of the body, and returns how much of it is of rest.
func (m *memory) begin() (paid int, err error) {
	o := m.of
	begun, held := int64(firstPiece), int64(0)
	switch {
	case o.first.room.TryAcquire(firstPiece):
	case o.rest.room.TryAcquire(firstPiece):
		begun, held = 0, firstPiece
	default:
		ctx, cancel := m.patience()
		defer cancel()
		if o.wait(ctx, &o.first, firstPiece) != nil {
			return 0, m.refused()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun, m.held = begun, held
	return int(held), nil
}

// endFirst gives the first piece back, when there is memory of rest or nothing is left.
func (m *memory) endFirst() {
	m.mu.Lock()
	n := m.begun
	m.begun = 0
	m.mu.Unlock()
	m.of.first.room.Release(n)
}

// try takes n bytes if they are free.
func (m *memory) try(n int64) bool {
	if !m.of.rest.room.TryAcquire(n) {
		return false
	}
	m.took(n)
	return true
}

// take waits for n bytes. Bodies that wait may have some already: before all of them
// would wait for each other one is refused.
func (m *memory) take(n int64) error {
	if m.try(n) {
		return nil
	}
	o := m.of
	ctx, cancel := m.patience()
	defer cancel()
	c := o.enter(m, cancel)
	err := o.wait(ctx, &o.rest, n)
	o.exit(c)
	if err != nil {
		return m.refused()
	}
	m.took(n)
	return nil
}

func (m *memory) took(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held += n
}

// patience returns a context that bounds a wait for memory, by a different time for each
// body.
func (m *memory) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(m.ctx, memoryPatience/2+time.Duration(m.turn%memoryTurns)*memoryPatience/2/memoryTurns)
}

// refused returns the reason why there is no memory.
func (m *memory) refused() error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	return state.Errorf(state.CodeLimited, "too much content arrives at this node at once")
}

// hand passes on up to n bytes of the held memory and returns how many. The receiver must
// release them.
func (m *memory) hand(n int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n = min(n, m.held-m.handed)
	m.handed += n
	return n
}

// release gives bytes back that were handed on.
func (m *memory) release(n int64) { m.of.rest.room.Release(n) }

// free gives back all that was not handed on.
func (m *memory) free() {
	m.release(m.hand(math.MaxInt64))
	m.endFirst()
}

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

// blake3 returns the hash of a body that has been read to its end; nil: it is not known.
func (m *memory) blake3() []byte {
	if b, ok := m.body.(Hashed); ok {
		return b.Blake3()
	}
	return nil
}

// leave records that nothing more is read.
func (m *memory) leave() {
	m.of.mu.Lock()
	delete(m.of.read, m)
	m.of.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = true
}

// pace returns how long the client has been waited for while it sent less than slowBytes,
// and whether the body was chosen to be ended.
func (m *memory) pace(now time.Time) (waited time.Duration, ends bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waited = m.waited
	if !m.since.IsZero() {
		waited += now.Sub(m.since)
	}
	return waited, m.slow
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
	n, paid := 0, 0 // bytes of rest
	for size := firstPiece; ; size = min(pieceGrowth*size, ChunkSize+1) {
		if size == firstPiece {
			paid, err = m.begin()
		} else if err = m.take(int64(size - paid)); err == nil {
			paid = size
			m.endFirst()
		}
		if err != nil {
			return nil, false, err
		}
		next := m.of.buffers.Get(size)
		copy(*next, data[:n])
		m.reuse()
		m.buf, data = next, (*next)[:size]
		got, err := fill(m.ctx, m, data[n:])
		n += got
		if ended(err) {
			return data[:n], false, nil
		}
		if err != nil {
			return nil, false, err
		}
		if n > ChunkSize {
			m.begins = false
			return data, true, nil
		}
	}
}

// reuse returns the memory of the first chunk, which is no longer used.
func (m *memory) reuse() {
	if m.buf != nil {
		m.of.buffers.Put(m.buf)
		m.buf = nil
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

// ended returns whether err is the end of a body and not a failure that wraps io.EOF.
func ended(err error) bool { return err == io.EOF } //nolint:errorlint // see above

// rest reads a body whose beginning was read and takes memory for each chunk. If there is
// none, it first passes on what was read before, because a body that waits for memory must
// not hold any. It waits before it returns the first byte of a chunk, because the splitter
// takes a buffer for the chunk from then on. It waits only after it has read that byte,
// because at the end of a body there is nothing to wait for.
type rest struct {
	m     *memory
	first []byte // one byte or a chunk and one byte; the last byte begins a chunk without memory
	paid  int    // bytes that may be read before more memory is taken
	flush func() error
}

// FlushWith takes a call that hands on what has been read.
func (r *rest) FlushWith(flush func() error) { r.flush = flush }

// Read implements io.Reader.
func (r *rest) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if len(r.first) > 1 { // its memory is taken
		n := copy(b, r.first[:len(r.first)-1])
		if r.first = r.first[n:]; len(r.first) < firstPiece { // release the buffer; the rest is a copy
			r.first = append([]byte(nil), r.first...)
			r.m.reuse()
		}
		return n, nil
	}
	if r.paid == 0 {
		return r.begin(b)
	}
	n, err := r.m.Read(b[:min(len(b), r.paid)])
	r.paid -= n
	return n, err
}

// begin reads the first byte of a chunk, and takes memory for the chunk.
func (r *rest) begin(b []byte) (int, error) {
	if len(r.first) == 0 {
		var next [1]byte
		if n, err := r.m.Read(next[:]); n == 0 {
			return 0, err
		}
		r.first = next[:]
	}
	if !r.m.try(ChunkSize) {
		if r.flush != nil {
			if err := r.flush(); err != nil {
				return 0, err
			}
		}
		if err := r.m.take(ChunkSize); err != nil {
			return 0, err
		}
	}
	b[0], r.first = r.first[0], nil
	r.paid = ChunkSize - 1
	return 1, nil
}
