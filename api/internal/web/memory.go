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

// Limits of the memory of requests that wait for their clients, in bytes: of all accounts
// together, of one account, of all clients that are not authenticated yet, and of one network of
// such clients.
const (
	memoryOfAccounts = 256 << 20
	memoryOfAccount  = 64 << 20
	memoryOfUnknown  = 64 << 20
	memoryOfNetwork  = 4 << 20
	// The limits for downloads, each of which has one block in memory: of all accounts, and of
	// one account. A slow client occupies its block for a long time.
	memoryOfContent = 512 << 20
	memoryOfReaders = 192 << 20
)

// Memory limits the memory that requests use for whole bodies and answers while they wait for
// their clients. When the memory is used up, it rejects a request instead of blocking it.
type Memory struct {
	all, each int64 // maximum of all users together and of one user, in bytes

	// mu guards the fields below.
	mu   sync.Mutex
	used int64
	by   map[any]int64 // bytes by user
}

// NewMemory returns a Memory that grants all bytes in total, and each bytes to one user.
func NewMemory(all, each int64) *Memory {
	return &Memory{all: all, each: each, by: map[any]int64{}}
}

// Of returns the memory account of one request, with no bytes yet. who identifies the user that
// the bytes count for, such as an account id. It may be any comparable value.
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

// Held counts the memory that one request has reserved from a Memory. Only one goroutine may use
// it at a time. A nil Held has no limit.
type Held struct {
	m     *Memory
	who   any
	bytes int64
}

// Grow reserves n more bytes. If they are not available, it reserves none and returns an error
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

// Release gives all reserved bytes back.
func (h *Held) Release() {
	if h != nil && h.bytes > 0 {
		h.m.give(h.who, h.bytes)
		h.bytes = 0
	}
}

// firstRead is how many bytes ReadAll reserves before the first byte of a body has arrived.
const firstRead = 4 << 10

// ReadAll reads r to its end and reserves the memory from h. size is the announced number of
// bytes, negative if unknown. ReadAll reserves memory only as bytes arrive, so that an
// announcement alone does not occupy it. If h has too little memory left, the error wraps
// state.ErrLimited.
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

// Hold returns a Held for the bodies and answers of a request of the account. A nil Limits
// returns nil, which has no limit.
func (l *Limits) Hold(id state.AccountID) *Held {
	if l == nil {
		return nil
	}
	return l.accounts.Of(id)
}

// HoldContent returns a Held for the content that a request of the account downloads. A nil
// Limits returns nil, which has no limit.
func (l *Limits) HoldContent(id state.AccountID) *Held {
	if l == nil {
		return nil
	}
	return l.content.Of(id)
}

// HoldUnknown returns a Held for a request that is not authenticated yet; it counts for the
// network of the client. A nil Limits returns nil, which has no limit.
func (l *Limits) HoldUnknown(r *http.Request) *Held {
	if l == nil {
		return nil
	}
	return l.unknown.Of(accounts.Network(l.Client(r)))
}

// HoldFor returns a Held for the content that a client without an account downloads; it counts for the
// network of the client. A nil Limits returns nil, which has no limit.
func (l *Limits) HoldFor(r *http.Request) *Held {
	if l == nil {
		return nil
	}
	return l.content.Of(accounts.Network(l.Client(r)))
}
