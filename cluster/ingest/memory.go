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

// The first chunk of a body is read in pieces that grow, because most bodies are small: a piece
// of firstPiece bytes first, and then pieceGrowth times as many bytes in total, and so on, up to
// a whole chunk.
const (
	firstPiece  = 64<<10 + 1
	pieceGrowth = 4
	// memoryTurns is the number of different limits for the time that bodies wait for memory, so
	// that not all give up at the same time.
	memoryTurns = 32
)

// A body is slow if the node has waited for its client for slowWait in total while it received
// slowBytes. Such a client sends less than 48 KiB per second. While other bodies wait for memory,
// the node may abort slow bodies. slowWait is shorter than the time that callers wait for memory
// before they read a client's first byte.
const (
	slowBytes = 144 << 10
	slowWait  = 3 * time.Second
	// slowEvery is the interval at which waiting bodies check for slow ones.
	slowEvery = 500 * time.Millisecond
	// giveWayAfter is how long a body may wait for more memory while it occupies its first piece,
	// if other bodies wait to begin. If bodies arrive at a usual rate, memory becomes free
	// sooner.
	giveWayAfter = time.Second
)

var errSlow = state.Errorf(state.CodeLimited, "the content comes slowly, and others wait for the memory that it has")

// Interrupter is a body whose Read another goroutine can abort. A body that does not implement
// Interrupter is aborted only when its current Read returns.
type Interrupter interface {
	// Interrupt makes the current Read fail, and all later ones. It does not block. It is
	// not called after a Read has failed or Store has returned.
	Interrupt()
}

// Hashed is a body that computes the BLAKE3 hash of its bytes while it is read.
type Hashed interface {
	// Blake3 returns the BLAKE3 hash of all bytes that were read, or nil if it is not known. It
	// is called after the last byte was read.
	Blake3() []byte
}

// bodies manages the memory for all bodies of a node. A part of it is reserved for the first
// pieces of bodies, so that small bodies need not wait for large ones.
type bodies struct {
	first, rest share
	buffers     Buffers // memory for first chunks

	// mu guards the fields below, and the fields wanted and none of the shares. It is not held
	// during calls of other code.
	mu     sync.Mutex
	read   map[*memory]struct{} // bodies that are being read
	claims map[*claim]struct{}  // bodies that wait for memory from rest
	idle   int64                // bytes of rest that the waiting bodies occupy
	gave   time.Time            // time of the last call of giveWay that had an effect
}

// share is a part of the memory for bodies.
type share struct {
	room *semaphore.Weighted
	size int64 // size of room in bytes

	wanted int64     // number of bytes for which bodies wait
	none   time.Time // last time at which the slow bodies had too little memory
}

// claim is a body that waits for memory from rest.
type claim struct {
	m      *memory
	first  int64 // bytes of first that the body occupies
	has    int64 // bytes of rest that the body occupies
	begins bool  // the body is in its first chunk
	since  time.Time
	refuse context.CancelFunc
}

// firstPart is the divisor that gives the part of all memory that is reserved for first pieces.
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

// open returns the memory of a body that is going to be read. The body counts as being read until
// leave is called. end aborts the body: it ends ctx with a reason.
func (o *bodies) open(ctx context.Context, end context.CancelCauseFunc, body io.Reader, turn uint64) *memory {
	m := &memory{ctx: ctx, end: end, of: o, body: body, turn: turn, begins: true}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read[m] = struct{}{}
	return m
}

// wait waits until n bytes of a share are free, and takes them, or until ctx ends. Meanwhile it
// aborts slow bodies that occupy memory of this share, and rejects bodies by giveWay.
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

// enter records that a body waits for memory from rest. refuse aborts its wait.
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

// remove removes a claim if it is still in the set. The caller must hold mu.
func (o *bodies) remove(c *claim) {
	if _, ok := o.claims[c]; ok {
		delete(o.claims, c)
		o.idle -= c.has
	}
}

// breakDeadlock rejects waiting bodies while the memory that waiting bodies do not occupy is less
// than one chunk, the most that one of them needs. Otherwise the waiting bodies could wait for
// each other forever. The caller must hold mu.
func (o *bodies) breakDeadlock() {
	for o.idle > 0 && o.rest.size-o.idle < ChunkSize {
		o.refuseOne(func(c *claim) bool { return c.has > 0 })
	}
}

// giveWay rejects bodies that occupy their first piece and have waited for giveWayAfter, if
// bodies that wait to begin need that memory.
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

// refuseOne rejects one of the waiting bodies for which of returns true, and returns whether
// there was one. It prefers a body in its first chunk, because its client loses the least, and
// among equal ones the youngest. The caller must hold mu.
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

// slow returns slow bodies to abort, the slowest first: as many as are needed to free the memory
// of a share for which others wait. It returns each body only once.
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

// memory is one body that is being read, with the memory that it occupies.
type memory struct {
	ctx  context.Context // context of the Store call
	end  context.CancelCauseFunc
	of   *bodies
	body io.Reader
	turn uint64

	// Used by the goroutine that reads the body, and then by the last user of buf.
	begins bool    // the body is in its first chunk
	buf    *[]byte // memory of the first chunk

	// mu guards the fields below. It is held while the body is being interrupted; leave waits for
	// that. It must be locked after the mu of bodies.
	mu     sync.Mutex
	begun  int64 // bytes of the first piece, if taken from the share first
	held   int64 // bytes of rest that the body has taken in total
	handed int64 // bytes of rest for whose release another owner is responsible by now
	left   bool  // no more bytes are read
	slow   bool  // the body was chosen to be aborted because it is slow

	// The following fields count since the last slowBytes.
	got    int
	waited time.Duration // time that the node has waited for the client
	since  time.Time     // when the current wait for the client began; zero if there is none
}

// has returns how many bytes of a share the body occupies and is responsible for.
func (m *memory) has(p *share) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p == &m.of.first {
		return m.begun
	}
	return m.held - m.handed
}

// begin takes memory for the first piece of the body: from bodies.first, or from bodies.rest if first
// is full. If both are full, it waits for first. paid is the number of bytes taken from rest, which is
// firstPiece or 0.
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

// endFirst releases the memory of the first piece, when the body has memory from rest or has
// ended.
func (m *memory) endFirst() {
	m.mu.Lock()
	n := m.begun
	m.begun = 0
	m.mu.Unlock()
	m.of.first.room.Release(n)
}

// try takes n bytes from rest if they are free, and returns whether it did.
func (m *memory) try(n int64) bool {
	if !m.of.rest.room.TryAcquire(n) {
		return false
	}
	m.took(n)
	return true
}

// take takes n bytes from rest, and waits for them if necessary. Bodies may occupy memory while
// they wait; if all of them would wait for each other, one body is rejected with
// state.ErrLimited.
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

// patience returns a context that limits a wait for memory, to a different time for different
// bodies.
func (m *memory) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(m.ctx, memoryPatience/2+time.Duration(m.turn%memoryTurns)*memoryPatience/2/memoryTurns)
}

// refused returns the error for a body that got no memory, with the reason.
func (m *memory) refused() error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	return state.Errorf(state.CodeLimited, "too much content arrives at this node at once")
}

// hand transfers the responsibility for up to n bytes of memory to the caller, who must release
// them, and returns their number.
func (m *memory) hand(n int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n = min(n, m.held-m.handed)
	m.handed += n
	return n
}

// release releases bytes that hand has returned.
func (m *memory) release(n int64) { m.of.rest.room.Release(n) }

// free releases all memory for which the body is still responsible.
func (m *memory) free() {
	m.release(m.hand(math.MaxInt64))
	m.endFirst()
}

// Read reads from the client and measures how long it waits for the client.
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

// blake3 returns the hash of a body that was read to its end, or nil if it is not known.
func (m *memory) blake3() []byte {
	if b, ok := m.body.(Hashed); ok {
		return b.Blake3()
	}
	return nil
}

// leave records that no more bytes of the body are read.
func (m *memory) leave() {
	m.of.mu.Lock()
	delete(m.of.read, m)
	m.of.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = true
}

// pace returns how long the node has waited for the client since the last slowBytes, and whether
// the body was chosen to be aborted.
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

// interrupt aborts a body that is still being read.
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

// first reads the first chunk of a body. If the body is longer than the chunk, more is true and
// data has one more byte.
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

// reuse returns the buffer of the first chunk to the pool. The chunk must not be used afterwards.
func (m *memory) reuse() {
	if m.buf != nil {
		m.of.buffers.Put(m.buf)
		m.buf = nil
	}
}

// fill is io.ReadFull, but also ends with ctx, and returns io.EOF instead of io.ErrUnexpectedEOF.
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

// ended returns whether err is the regular end of a body, and not a failure that wraps io.EOF.
func ended(err error) bool { return err == io.EOF } //nolint:errorlint // see above

// rest is the reader of a body that is longer than its first chunk. It takes memory before each
// chunk. If no memory is free, it first makes the splitter pass on the bytes that were read
// before (flush), because a waiting body should occupy no memory. It waits before it returns the
// first byte of a chunk, because the splitter then allocates a buffer for the chunk. And it waits
// only after it has read that byte, because at the end of the body no memory is needed.
type rest struct {
	m     *memory
	first []byte // bytes read already: one byte, or a chunk and one byte; no memory was taken for the last byte
	paid  int    // number of bytes that may be read before more memory is taken
	flush func() error
}

// FlushWith sets the function that makes the splitter pass on the bytes that it has read.
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

// begin reads the first byte of a chunk, takes memory for the chunk, and returns the byte in b.
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
