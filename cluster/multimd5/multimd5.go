// Package multimd5 computes the MD5 of several bodies at once.
//
// The steps of one MD5 depend on each other, so one body uses only a fraction of a
// processor. Vector registers compute the steps of eight bodies side by side at little
// more than the cost of one (Guilford and others, Processing Multiple Buffers in
// Parallel to Increase Performance on Intel Architecture Processors, 2010). The
// standard library hashes a body that is alone.
//
// Imports: std, golang.org/x/sys/cpu.
// Never:   anything of ours.
package multimd5

import (
	"bytes"
	"crypto/md5" //nolint:gosec // what S3 calls an ETag
	"encoding"
	"encoding/binary"
	"hash"
	"runtime"
	"slices"
	"sync"
)

const (
	// width is the number of bodies that are hashed at once.
	width = 8
	// least is the smallest number of bytes for which a caller waits for other bodies.
	least = 8 << 10
	// slice is the number of bytes of each body that are hashed before further bodies may be
	// included.
	slice = 16 << 10
)

// Pool hashes the data of several hashes together if they are written at the same time. It has no
// goroutines of its own: one of the goroutines that wait in Write does the work for the others.
// The zero value is ready to use.
type Pool struct {
	// mu guards the fields below, and those of Hash that say so. It is not held while
	// hashing.
	mu      sync.Mutex
	queue   []*Hash // hashes with data to process
	led     bool    // a goroutine is doing the work, or was told to
	patient int     // number of hashes on which Wait was called
}

// Hash is an MD5 hash.Hash that takes part in a Pool. Only one goroutine at a time may use it,
// except for Hurry and Leave.
type Hash struct {
	hash.Hash
	pool  *Pool
	alone bool // this machine cannot hash several bodies at once
	saved state
	begun int       // number of bytes of an incomplete block
	rest  []byte    // complete blocks that are not hashed yet
	turn  chan bool // true tells the waiting writer to do the work; false tells it that all of rest is hashed

	// The following fields are guarded by Pool.mu.
	patient bool // Wait was called
	hurry   bool // the current or the next write must not wait for others
}

var _ hash.Hash = (*Hash)(nil)

// New returns a new Hash to which nothing was written.
func (p *Pool) New() *Hash {
	h := &Hash{Hash: md5.New(), pool: p} //nolint:gosec // see above
	if h.alone = !haveLanes() || !h.saved.load(h.Hash); !h.alone {
		h.turn = make(chan bool, 1)
	}
	return h
}

// Reset implements hash.Hash.
func (h *Hash) Reset() {
	h.Hash.Reset()
	h.begun = 0
}

// Wait makes later writes of this hash wait for the other hashes on which Wait was called: the
// data is hashed when all of them, or as many as can be hashed at once, have data. Leave ends
// this, and must be called.
func (h *Hash) Wait() { h.waits(true) }

// Leave ends the effect of Wait, also for data that is being written. Any goroutine may call it.
func (h *Hash) Leave() { h.waits(false) }

func (h *Hash) waits(patient bool) {
	p := h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.alone || h.patient == patient {
		return
	}
	h.patient = patient
	if patient {
		p.patient++
		return
	}
	p.patient--
	p.begin()
}

// Hurry makes the current or the next write not wait for other hashes. Any goroutine may call it.
func (h *Hash) Hurry() {
	p := h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !h.alone {
		h.hurry = true
		p.begin()
	}
}

// Write implements io.Writer. It never fails.
func (h *Hash) Write(p []byte) (int, error) {
	n := len(p)
	if n >= least && !h.alone {
		head := (md5.BlockSize - h.begun) % md5.BlockSize
		_, _ = h.Hash.Write(p[:head])
		whole := head + (n-head)/md5.BlockSize*md5.BlockSize
		h.pool.hash(h, p[head:whole])
		p, h.begun = p[whole:], 0
	}
	_, _ = h.Hash.Write(p)
	h.begun = (h.begun + len(p)) % md5.BlockSize
	return n, nil
}

// hash hashes whole blocks of h, together with those of other hashes, and returns when they are
// hashed.
func (p *Pool) hash(h *Hash, blocks []byte) {
	h.rest = blocks
	p.mu.Lock()
	p.queue = append(p.queue, h)
	p.begin()
	p.mu.Unlock()
	if leads := <-h.turn; leads {
		// Let other goroutines queue their bodies first: on a busy machine many have data to
		// hash, and on an idle one this costs nothing.
		runtime.Gosched()
		p.lead(h)
	}
}

// begin tells the writer of a hash in the queue to do the work. It does nothing if a writer does
// it already, or if all hashes in the queue may still wait. The caller must hold mu.
func (p *Pool) begin() {
	n := len(p.queue)
	if p.led || n == 0 {
		return
	}
	now := func(h *Hash) bool { return h.hurry || !h.patient }
	if n >= min(width, p.patient) || slices.ContainsFunc(p.queue, now) {
		p.led = true
		p.queue[0].turn <- true
	}
}

// lead hashes the data in the queue until all data of h is hashed. Then it tells the writer of
// another hash to continue.
func (p *Pool) lead(h *Hash) {
	in := p.fill(make([]*Hash, 0, width))
	for len(h.rest) > 0 {
		step(in)
		in = p.fill(p.ended(in, h))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue, p.led = append(p.queue, in...), false
	p.begin()
}

// fill adds hashes from the queue to in while there are free lanes.
func (p *Pool) fill(in []*Hash) []*Hash {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(width-len(in), len(p.queue))
	in = append(in, p.queue[:n]...)
	p.queue = slices.Delete(p.queue, 0, n)
	return in
}

// ended notifies the writers of the hashes whose data is hashed, except leads, and returns the
// other hashes.
func (p *Pool) ended(in []*Hash, leads *Hash) []*Hash {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(in, func(h *Hash) bool {
		if len(h.rest) > 0 {
			return false
		}
		if h.hurry = false; h != leads {
			h.turn <- false
		}
		return true
	})
}

// step hashes the same number of bytes of each hash: as many as the shortest has, but at most
// slice.
func step(in []*Hash) {
	n := slice
	for _, h := range in {
		n = min(n, len(h.rest))
	}
	if len(in) == 1 {
		_, _ = in[0].Hash.Write(in[0].rest[:n])
	} else {
		together(in, n)
	}
	for _, h := range in {
		h.rest = h.rest[n:]
	}
}

// together hashes n bytes of each hash, for at most width hashes.
func together(in []*Hash, n int) {
	var words [4][width]uint32
	var from [width]*byte
	for i := range from {
		from[i] = &in[0].rest[0] // the result of this lane is not used
	}
	for i, h := range in {
		h.saved.load(h.Hash) // as New did
		for k := range words {
			words[k][i] = h.saved.word(k)
		}
		from[i] = &h.rest[0]
	}
	lanes(&words, &from, n/md5.BlockSize)
	for i, h := range in {
		for k := range words {
			h.saved.set(k, words[k][i])
		}
		h.saved.add(n)
		h.saved.store(h.Hash)
	}
}

// state is the state of an MD5 as the standard library marshals it: a magic number, A to D of
// RFC 1321, the incomplete block, and the length.
type state []byte

const (
	magic  = "md5\x01"
	length = len(magic) + md5.Size + md5.BlockSize
)

// load reads the state of h. It returns false if the state has an unknown format.
func (s *state) load(h hash.Hash) bool {
	var err error
	if a, ok := h.(encoding.BinaryAppender); ok {
		*s, err = a.AppendBinary((*s)[:0])
	}
	return err == nil && len(*s) == length+8 && bytes.HasPrefix(*s, []byte(magic))
}

// store sets the state of h. This cannot fail, because the state was read from h.
func (s state) store(h hash.Hash) {
	if err := h.(encoding.BinaryUnmarshaler).UnmarshalBinary(s); err != nil {
		panic("multimd5: " + err.Error())
	}
}

func (s state) word(k int) uint32      { return binary.BigEndian.Uint32(s[len(magic)+4*k:]) }
func (s state) set(k int, word uint32) { binary.BigEndian.PutUint32(s[len(magic)+4*k:], word) }
func (s state) add(bytes int) {
	at := s[length:]
	binary.BigEndian.PutUint64(at, binary.BigEndian.Uint64(at)+uint64(bytes))
}
