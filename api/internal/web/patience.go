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
// an answer. The listener bounds only the head of a request, because content can take any time.
const StallTimeout = time.Minute

// LeastBytes is the number of bytes of a body that a client must send in each StallTimeout. A
// body occupies memory for which other bodies wait, so a byte now and then is not enough. The
// rate of 546 bytes per second is within reach of slow lines, even with several parts at once.
const LeastBytes = 32 << 10

// grains is the maximum number of new deadlines within StallTimeout, because each one costs a
// timer.
const grains = 12

// Attended returns a handler that bounds each wait of h for its client by stall. This includes
// the bytes of a body that net/http reads, and the bytes of a buffer that it writes, after h has
// returned.
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

// Patient reads the body of a request, and fails if the client stops sending.
type Patient struct {
	Body    io.Reader
	Control *http.ResponseController
	Stall   time.Duration         // longest wait for LeastBytes
	Until   time.Time             // deadline of the whole body; zero means none
	Broken  error                 // of Read, for a body that ends too early
	set     time.Time             // when the deadline was set last
	ended   atomic.Bool           // by Interrupt
	refused atomic.Pointer[error] // by Refuse
	whole   atomic.Bool           // all of it was read

	// The following fields count since the last LeastBytes were complete.
	got    int
	waited time.Duration // wait for the client only, not for this side
}

// Read reads from the body. A failed read is the client's mistake.
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

// over returns the reason why the reading ended.
func (p *Patient) over(err error) error {
	if why := p.Refused(); why != nil {
		return why
	}
	return err
}

// WaitUntil changes the deadline of the whole body; zero means none. The reader may call it.
func (p *Patient) WaitUntil(at time.Time) { p.Until, p.set = at, time.Time{} }

// Refused returns the error of Refuse; nil: the body was not refused.
func (p *Patient) Refused() error {
	if why := p.refused.Load(); why != nil {
		return *why
	}
	return nil
}

// Refuse interrupts the body like Interrupt, and Read then returns err. Refuse does nothing
// after the whole body was read.
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

// WriteBuffer is the size of one write to a client that reads fast, in bytes.
const WriteBuffer = 256 << 10

// takenAtOnce is the number of bytes of an answer that a client must accept in each StallTimeout.
// It is the size of one write, because a deadline does not show how far a write has come. Fast
// clients get larger writes, because each write costs a system call.
const takenAtOnce = 64 << 10

// takenFast is the number of bytes that a client must accept without a wait before it counts as
// fast. It is more than the 5 MiB or so that the system buffers for a client that reads nothing.
const takenFast = 8 << 20

// Steady writes an answer, and fails if the client stops reading.
type Steady struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	set     time.Time
	fast    int // bytes written without a wait
}

// NewSteady returns a writer for the answer w. A write fails if the client accepts nothing
// for stall.
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
