package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// StallTimeout is how long a client may send no byte of an announced body, or accept no byte of
// an answer. It replaces the time limits of net/http, because content of any size can take any
// time.
const StallTimeout = time.Minute

// LeastBytes is the number of bytes of a body that a client must send in each StallTimeout. A
// lower bound is needed because a body occupies memory for which other bodies wait. The rate of
// 546 bytes per second is within reach of slow lines, even with several parts at once.
const LeastBytes = 32 << 10

// grains is how often at most a deadline is moved within StallTimeout. Each move costs a timer.
const grains = 12

// Attended returns a handler that sets deadlines on the connection around h. The first bytes of a
// body must arrive within stall, unless h moves the deadline. After h has returned, net/http has
// twice stall to read the rest of the body and to write the rest of the answer. While h runs,
// Patient and Steady bound the waits for the client.
func Attended(stall time.Duration, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		// A writer without deadlines is not a network connection.
		_ = control.SetWriteDeadline(time.Time{}) // of the request before
		if r.Body != nil && r.Body != http.NoBody {
			_ = control.SetReadDeadline(time.Now().Add(stall))
		}
		h.ServeHTTP(w, r)
		// After the read deadline, because net/http reads the rest of a body before it
		// sends the answer.
		_ = control.SetWriteDeadline(time.Now().Add(2 * stall))
	})
}

// Patient reads the body of a request, and returns an error if the client sends too slowly or
// stops sending.
type Patient struct {
	Body    io.Reader
	Control *http.ResponseController
	Stall   time.Duration         // longest wait for LeastBytes
	Until   time.Time             // deadline of the whole body; zero means none
	Broken  error                 // error of Read for a body that ends too early
	set     time.Time             // when the deadline was last set
	ended   atomic.Bool           // Interrupt was called
	refused atomic.Pointer[error] // argument of Refuse; nil: not called
	whole   atomic.Bool           // the whole body was read

	// The following fields start again at 0 whenever LeastBytes have arrived.
	got    int           // bytes received
	waited time.Duration // time spent in Read, waiting for the client
}

// Read implements io.Reader. It returns os.ErrDeadlineExceeded if the client is too slow or after
// Interrupt, the argument of Refuse if that was called, and Broken for other failures. All of
// these are the client's mistakes, not the node's.
func (p *Patient) Read(b []byte) (int, error) {
	now := time.Now()
	if now.Sub(p.set) > p.Stall/grains {
		p.set = now
		at := now.Add(p.Stall - p.waited)
		if !p.Until.IsZero() && p.Until.Before(at) {
			at = p.Until
		}
		_ = p.Control.SetReadDeadline(at)
	}
	if p.ended.Load() { // checked after the deadline is set, because Interrupt sets its own after ended
		p.Interrupt()
		return 0, p.over(os.ErrDeadlineExceeded)
	}
	n, err := p.Body.Read(b)
	p.got, p.waited = p.got+n, p.waited+time.Since(now)
	if p.got >= LeastBytes {
		if p.waited > p.Stall/grains {
			p.set = time.Time{} // the old deadline is too early now
		}
		p.got, p.waited = 0, 0
	}
	if err == nil {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		p.whole.Store(true)
		// From here on net/http checks whether the client is still connected, and a
		// deadline would end that.
		_ = p.Control.SetReadDeadline(time.Time{})
		return n, err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, p.over(err)
	}
	return n, p.Broken
}

// over returns the argument of Refuse if that was called, else err.
func (p *Patient) over(err error) error {
	if why := p.Refused(); why != nil {
		return why
	}
	return err
}

// WaitUntil sets the deadline of the whole body; zero means none. Only the goroutine that calls
// Read may call it.
func (p *Patient) WaitUntil(at time.Time) { p.Until, p.set = at, time.Time{} }

// Refused returns the argument of Refuse, or nil if Refuse was not called.
func (p *Patient) Refused() error {
	if why := p.refused.Load(); why != nil {
		return *why
	}
	return nil
}

// Refuse makes the current and all later reads fail with err. It does nothing after the whole
// body was read. Any goroutine may call it.
func (p *Patient) Refuse(err error) {
	if p.whole.Load() { // the caller processes a complete body anyway
		return
	}
	p.refused.CompareAndSwap(nil, &err)
	p.Interrupt()
}

// Interrupt makes the current Read and all later ones fail. Any goroutine may call it during the
// request.
func (p *Patient) Interrupt() {
	p.ended.Store(true)
	_ = p.Control.SetReadDeadline(time.Unix(1, 0))
}

// WriteBuffer is the size in bytes of one write to a client that accepts data fast, see
// takenFast.
const WriteBuffer = 256 << 10

// takenAtOnce is the number of bytes of an answer that a client must accept in each StallTimeout.
// It is also the size of one write, because the write deadline shows only whether a whole write
// succeeded. Fast clients get larger writes, because each write costs a system call.
const takenAtOnce = 64 << 10

// takenFast is the number of bytes that a client must accept without a pause before it counts as
// fast. It exceeds the socket buffers, about 5 MiB, which accept bytes even if the client reads
// nothing.
const takenFast = 8 << 20

// Steady writes an answer, and returns an error if the client stops reading.
type Steady struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	set     time.Time // when the deadline was last set
	fast    int       // bytes written without a pause, at most takenFast
}

// NewSteady returns a writer for the answer w. Its Write fails if the client accepts no data for
// the duration stall.
func NewSteady(w http.ResponseWriter, stall time.Duration) *Steady {
	return &Steady{w: w, control: http.NewResponseController(w), stall: stall}
}

// Write implements io.Writer.
func (s *Steady) Write(b []byte) (written int, err error) {
	for now := time.Now(); len(b) > 0; {
		if now.Sub(s.set) > s.stall/grains {
			s.set = now
			_ = s.control.SetWriteDeadline(now.Add(s.stall))
		}
		piece := takenAtOnce
		if s.fast >= takenFast {
			piece = WriteBuffer
		}
		n, err := s.w.Write(b[:min(len(b), piece)])
		written, b = written+n, b[n:]
		if err != nil {
			return written, err
		}
		began := now
		if now = time.Now(); now.Sub(began) > s.stall/grains {
			s.fast = 0
		} else {
			s.fast = min(s.fast+n, takenFast)
		}
	}
	return written, nil
}
