package api

import (
	"net/http"
	"sync"
	"time"
)

// flight counts the running requests of all listeners. The server needs the count because
// http.Server.Close does not wait for the handlers of connections that it closes.
type flight struct {
	mu    sync.Mutex
	n     int
	ended bool
	idle  chan struct{} // closed when ended and n is zero
}

func newFlight() *flight { return &flight{idle: make(chan struct{})} }

// count returns a handler that calls h and counts the request as running until h returns. After a
// call of end, the handler answers 503 without a call of h.
func (f *flight) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.enter() {
			w.WriteHeader(http.StatusServiceUnavailable) // on a connection that was cut
			return
		}
		defer f.leave()
		h.ServeHTTP(w, r)
	})
}

func (f *flight) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return false
	}
	f.n++
	return true
}

func (f *flight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.ended && f.n == 0 {
		close(f.idle)
	}
}

// end rejects new requests and waits up to within for the running ones. It returns the number of
// requests that still run then. It may be called only once.
func (f *flight) end(within time.Duration) (left int) {
	f.mu.Lock()
	f.ended = true
	if f.n == 0 {
		close(f.idle)
	}
	f.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-f.idle:
	case <-timer.C:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}
