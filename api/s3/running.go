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
	// lookEvery is how often who sends a body is looked at though nothing was told: keys and
	// sessions end by the clock too.
	lookEvery = time.Second
	// endAfter is how long a request goes on for which its caller is not let in any more: what
	// is about to end is answered by itself, since no change is made then.
	endAfter = time.Second
	// lookApart is the least time between two looks: keys may come and go all the time.
	lookApart = 100 * time.Millisecond
)

// running are the requests whose bodies are read. The callers of all of them are judged anew
// by the state of this node when keys or sessions have gone from it, and each lookEvery: a body
// may take hours to come, and nobody is to send 340 MiB more with a key that was revoked.
// One goroutine does it, as long as there are such requests.
type running struct {
	accounts Accounts

	// mu guards what follows, and that no request which has left is ended.
	mu   sync.Mutex
	all  map[*run]struct{}
	stop context.CancelFunc // ends the goroutine; nil: there is none
	done <-chan struct{}    // closed by stop
}

// run is one of them.
type run struct {
	who   accounts.Principal
	again func(context.Context) error // judges by the state as it is now anywhere
	since time.Time                   // who sends it is not let in; zero: who does is. Under running.mu
	wire  *web.Patient                // the body comes over it
}

// enter adds a request. The caller leaves.
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

// leave takes it away; one that did not enter is none.
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

// follow looks until ctx ends.
func (s *running) follow(ctx context.Context) {
	losses := s.accounts.Losses()
	defer losses.Close()
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			s.look(ctx)
		case <-losses.C():
			if losses.Take() {
				s.look(ctx)
			}
			if !backoff.Wait(ctx, lookApart) { // what comes meanwhile is told at once then
				return
			}
		}
	}
}

// look ends the requests of those who are not let in any more. That they are not is asked of
// the cluster, since this node may be behind.
func (s *running) look(ctx context.Context) {
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

// overdue notes whether the caller of a request is let in, and tells whether that has not been
// so for endAfter.
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

// reads has the caller of a request looked at from now on, while its body comes over wire.
func (s *surface) reads(r *request, wire *web.Patient) {
	if r.caller.again == nil || r.run != nil {
		return
	}
	r.run = &run{who: r.who, again: r.caller.again, wire: wire}
	s.running.enter(r.run)
}

// refused is why the request was ended; nil: it was not.
func (r *run) refused() error {
	if r == nil || r.wire == nil {
		return nil
	}
	return r.wire.Refused()
}

// part prepares the answer to a request that was ended: the connection ends with it, once the
// client, which is sending, has had the time to read it. A little of what it sends is read for that.
func (r *run) part(h http.Header) {
	if r.refused() == nil {
		return
	}
	h.Set("Connection", "close")
	_ = r.wire.Control.SetReadDeadline(time.Now().Add(lookEvery))
}
