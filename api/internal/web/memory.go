package web

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of the memory of requests that wait for their clients, in bytes: of all, of one
// account, and of one network of clients that are not authenticated yet.
const (
	memoryOfAccounts = 256 << 20
	memoryOfAccount  = 64 << 20
	memoryOfUnknown  = 64 << 20
	memoryOfNetwork  = 4 << 20
	// For content that is read, one block of each request. A slow client holds its block
	// for long.
	memoryOfContent = 512 << 20
	memoryOfReaders = 192 << 20 // of one account
)

// Memory limits the memory of requests that wait for their clients: whole bodies and
// answers. It does not block; it refuses.
type Memory struct {
	all, each int64 // in bytes

	// mu guards the fields below.
	mu   sync.Mutex
	used int64
	by   map[any]int64 // key: holder of the memory
}

// NewMemory returns a Memory of all bytes, of which one holder may use each.
func NewMemory(all, each int64) *Memory {
	return &Memory{all: all, each: each, by: map[any]int64{}}
}

// Of returns the memory of one request. who identifies its holder, such as an account, and may be
// any value that can be the key of a map.
func (m *Memory) Of(who any) *Held { return &Held{m: m, who: who} }

func (m *Memory) take(who any, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > m.all || m.by[who]+n > m.each {
		return false
	}
	m.used += n
	m.by[who] += n
	return true
}

func (m *Memory) give(who any, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if m.by[who] -= n; m.by[who] == 0 {
		delete(m.by, who)
	}
}

// Held is the memory of one request. Only one goroutine may use it at a time. A nil Held
// has no limit.
type Held struct {
	m     *Memory
	who   any
	bytes int64
}

// Grow takes n more bytes. If they are not available, it takes none and returns an error
// that wraps state.ErrLimited.
func (h *Held) Grow(n int64) error {
	if h == nil || n <= 0 {
		return nil
	}
	if !h.m.take(h.who, n) {
		return state.Errorf(state.CodeLimited, "too many large requests at once")
	}
	h.bytes += n
	return nil
}

// Release returns all memory.
func (h *Held) Release() {
	if h != nil && h.bytes > 0 {
		h.m.give(h.who, h.bytes)
		h.bytes = 0
	}
}

// firstRead is how many bytes of a body are reserved before any arrived.
const firstRead = 4 << 10

// ReadAll reads r to its end into memory of h. It takes memory as bytes arrive, not for an
// announced size. size is the expected number of bytes, or negative.
func ReadAll(r io.Reader, size int64, h *Held) ([]byte, error) {
	room := int64(firstRead)
	if size >= 0 {
		room = min(room, size+bytes.MinRead)
	}
	if err := h.Grow(room); err != nil {
		return nil, err
	}
	for buf := make([]byte, 0, room); ; {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read body: %w", err)
		}
		if len(buf) < cap(buf) {
			continue
		}
		more := int64(cap(buf))
		if size > int64(len(buf)) {
			more = min(more, size-int64(len(buf))+bytes.MinRead)
		}
		if err := h.Grow(more); err != nil {
			return nil, err
		}
		buf = append(make([]byte, 0, int64(cap(buf))+more), buf...)
	}
}

// Hold returns the memory of a request of an account. A nil Limits has no limits.
func (l *Limits) Hold(id state.AccountID) *Held {
	if l == nil {
		return nil
	}
	return l.accounts.Of(id)
}

// HoldContent returns the memory for the content that a request of an account reads.
func (l *Limits) HoldContent(id state.AccountID) *Held {
	if l == nil {
		return nil
	}
	return l.content.Of(id)
}

// HoldUnknown returns the memory of a request that is not authenticated yet.
func (l *Limits) HoldUnknown(r *http.Request) *Held {
	if l == nil {
		return nil
	}
	return l.unknown.Of(accounts.Network(l.Client(r)))
}
