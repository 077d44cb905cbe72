package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// StallTimeout is how long a client may send nothing of a body that it has
// announced, or take nothing of an answer. The listener bounds only the head of a
// request: content takes as long as it takes.
const StallTimeout = time.Minute

// LeastBytes is how much of a body has to come in each StallTimeout that a client is
// waited for. A body takes memory that other bodies wait for, so a byte now and then
// is not enough; 546 bytes a second are, which slow lines have for several parts at once.
const LeastBytes = 32 << 10

// grains is how often within StallTimeout a deadline is set anew at the most: it
// costs a timer.
const grains = 12

// Attended lets no request wait for its client for longer than stall, whatever the
// handler reads and writes: net/http itself reads what a handler left of a body,
// and writes what it left in a buffer.
func Attended(stall time.Duration, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		// Not every writer has deadlines; those that have none are not from a network.
		_ = control.SetWriteDeadline(time.Time{}) // of the request before
		if r.Body != nil && r.Body != http.NoBody {
			_ = control.SetReadDeadline(time.Now().Add(stall))
		}
		h.ServeHTTP(w, r)
		// Behind that for reading: what is left of a body is read before the answer.
		_ = control.SetWriteDeadline(time.Now().Add(2 * stall))
	})
}

// Patient reads the body of a request from a client that has to go on sending.
type Patient struct {
	Body    io.Reader
	Control *http.ResponseController
	Stall   time.Duration         // how long is waited for LeastBytes
	Until   time.Time             // when all has to be there; zero: whenever
	Broken  error                 // of Read, for a body that ends too early
	set     time.Time             // when the deadline was set last
	ended   atomic.Bool           // by Interrupt
	refused atomic.Pointer[error] // by Refuse
	whole   atomic.Bool           // all of it was read

	// Since the last LeastBytes:
	got    int
	waited time.Duration // for the client; what this side takes is not its fault
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
	if p.ended.Load() { // looked at behind the deadline, which Interrupt sets later
		p.Interrupt()
		return 0, p.over(os.ErrDeadlineExceeded)
	}
	n, err := p.Body.Read(b)
	p.got, p.waited = p.got+n, p.waited+time.Since(now)
	if p.got >= LeastBytes {
		if p.waited > p.Stall/grains {
			p.set = time.Time{} // the deadline that is set is too soon now
		}
		p.got, p.waited = 0, 0
	}
	if err == nil {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		p.whole.Store(true)
		// From here on net/http looks whether the client is still there, which a
		// deadline would end.
		_ = p.Control.SetReadDeadline(time.Time{})
		return n, err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, p.over(err)
	}
	return n, p.Broken
}

// over is why the reading ended, where err is that it did.
func (p *Patient) over(err error) error {
	if why := p.Refused(); why != nil {
		return why
	}
	return err
}

// WaitUntil changes when all has to be there; zero: whenever. The reader may call it.
func (p *Patient) WaitUntil(at time.Time) { p.Until, p.set = at, time.Time{} }

// Refused returns the error of Refuse; nil: the body was not refused.
func (p *Patient) Refused() error {
	if why := p.refused.Load(); why != nil {
		return *why
	}
	return nil
}

// Refuse is Interrupt with the error that Read ends in. A body that was read it leaves alone.
func (p *Patient) Refuse(err error) {
	if p.whole.Load() { // what is done with it is judged by itself
		return
	}
	p.refused.CompareAndSwap(nil, &err)
	p.Interrupt()
}

// Interrupt has the Read that waits fail, and all that follow. Others than the reader
// may call it, as long as the request lasts.
func (p *Patient) Interrupt() {
	p.ended.Store(true)
	_ = p.Control.SetReadDeadline(time.Unix(1, 0))
}

// WriteBuffer is how many bytes of content are written at once to a client that takes them fast.
const WriteBuffer = 256 << 10

// takenAtOnce is how much of an answer a client has to take in each StallTimeout, in bytes:
// a deadline tells nothing of how far a write has come. More is written at once, for a write
// costs a system call, to whom takes it fast.
const takenAtOnce = 64 << 10

// takenFast is how much has to have gone without a wait before a client is fast: more than
// the buffers of the system take for one that reads nothing, which is some 5 MiB.
const takenFast = 8 << 20

// Steady writes an answer to a client that has to go on taking it.
type Steady struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	set     time.Time
	fast    int // bytes that have gone without a wait
}

// NewSteady returns a writer of the answer w. A write fails once the client has taken nothing for
// as long as stall.
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
