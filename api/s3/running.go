package s3

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

const (
	// checkEvery is the interval of regular checks, which find keys and sessions that have expired.
	checkEvery = time.Second
	// endAfter is how long a request continues after its caller has lost access. A request that
	// ends within this time gets its normal answer: Apply of the state machine rejects its change.
	endAfter = time.Second
	// checkApart is the minimum interval between two checks, because keys may be removed very often.
	checkApart = 100 * time.Millisecond
)

// running is the set of requests whose bodies are being read. A body may take hours to arrive,
// and a caller whose key was revoked should not send all of it in vain. While there are such
// requests, one goroutine checks their callers by the local state: every checkEvery, and when
// keys or sessions were removed.
type running struct {
	accounts Accounts

	// mu guards the fields below. It is held while a request is interrupted, so that the request
	// cannot leave the set meanwhile.
	mu   sync.Mutex
	all  map[*run]struct{}
	stop context.CancelFunc // stops the goroutine; nil: none runs
	done <-chan struct{}    // closed by stop
}

// run is one request in the set running.
type run struct {
	who   accounts.Principal
	again func(context.Context) error // authenticates the caller again by a linearizable read
	since time.Time                   // when the caller lost access; zero: it has access. Guarded by running.mu
	wire  *web.Patient                // reader of the body, by which the request is interrupted
}

// enter adds a request to the set. The caller must call leave.
func (s *running) enter(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*run]struct{}{}
	}
	s.all[r] = struct{}{}
	if s.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		s.stop, s.done = stop, ctx.Done()
		go s.follow(ctx)
	}
}

// leave removes a request from the set. It does nothing if r is nil.
func (s *running) leave(r *run) {
	if r == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.all, r); len(s.all) == 0 && s.stop != nil {
		s.stop()
		s.stop, s.done = nil, nil
	}
}

// follow calls check at regular intervals and after losses, until ctx ends.
func (s *running) follow(ctx context.Context) {
	losses := s.accounts.Losses()
	defer losses.Close()
	ticks := time.NewTicker(checkEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			s.check(ctx)
		case <-losses.C():
			if losses.Take() {
				s.check(ctx)
			}
			if !backoff.Wait(ctx, checkApart) { // later losses are reported by C at once
				return
			}
		}
	}
}

// check interrupts the requests whose callers have lost access. Because the local state may be
// stale, it authenticates such a caller again by a linearizable read before it interrupts the
// request.
func (s *running) check(ctx context.Context) {
	s.mu.Lock()
	all := make([]*run, 0, len(s.all))
	for r := range s.all {
		all = append(all, r)
	}
	s.mu.Unlock()
	for _, r := range all {
		if ctx.Err() != nil {
			return
		}
		if !s.overdue(r, errors.Is(s.accounts.Still(r.who), state.ErrUnauthorized)) {
			continue
		}
		soon, cancel := context.WithTimeout(ctx, caseTimeout)
		err := r.again(soon)
		cancel()
		if errors.Is(err, state.ErrUnauthorized) {
			s.mu.Lock()
			if _, there := s.all[r]; there {
				r.wire.Refuse(err)
			}
			s.mu.Unlock()
		}
	}
}

// overdue records whether the caller of a request has lost access, and returns true if that was
// at least endAfter ago.
func (s *running) overdue(r *run, unauthorized bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !unauthorized {
		r.since = time.Time{}
		return false
	}
	if r.since.IsZero() {
		r.since = time.Now()
	}
	return time.Since(r.since) >= endAfter
}

// reads adds a request to running while its body arrives over wire.
func (s *surface) reads(r *request, wire *web.Patient) {
	if r.caller.again == nil || r.run != nil {
		return
	}
	r.run = &run{who: r.who, again: r.caller.again, wire: wire}
	s.running.enter(r.run)
}

// refused returns the error with which the request was interrupted, or nil. r may be nil.
func (r *run) refused() error {
	if r == nil || r.wire == nil {
		return nil
	}
	return r.wire.Refused()
}

// part prepares the answer to a request that was interrupted: the connection closes after it. The
// server still reads the body for checkEvery, so that the client has time to read the answer.
func (r *run) part(h http.Header) {
	if r.refused() == nil {
		return
	}
	h.Set("Connection", "close")
	_ = r.wire.Control.SetReadDeadline(time.Now().Add(checkEvery))
}
