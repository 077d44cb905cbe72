package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
)

// Pauses of a node after failures in a row. The first is short, because an election takes
// about a second. The last bounds how late a node that came back is noticed.
const (
	firstPause    = 100 * time.Millisecond
	longestPause  = 10 * time.Second
	maxRetryAfter = time.Minute // a longer Retry-After is cut
)

// node is one endpoint.
type node struct {
	endpoint string // scheme and host
	core     *minio.Core

	by                   http.RoundTripper
	accessKey, secretKey string // "" with a token

	// Guarded by nodes.mu.
	failures int       // in a row
	paused   time.Time // the node gets no request before
}

// nodes selects the node of each request.
type nodes struct {
	list []*node // set once

	mu   sync.Mutex
	next int // index of the node that is asked next
}

// pick returns a node for a request, and how long to wait before it. Nodes take turns. If all
// are paused, it is the one whose pause ends first.
func (s *nodes) pick(now time.Time) (*node, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first *node
	for i := range s.list {
		at := (s.next + i) % len(s.list)
		n := s.list[at]
		if !n.paused.After(now) {
			s.next = at + 1
			if n.failures > 0 { // one request finds out whether it is back
				n.paused = now.Add(pauseAfter(n.failures))
			}
			return n, 0
		}
		if first == nil || n.paused.Before(first.paused) {
			first = n
		}
	}
	return first, first.paused.Sub(now)
}

// worked ends the pause of a node that has answered.
func (s *nodes) worked(n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.failures, n.paused = 0, time.Time{}
}

// failed pauses a node: as long as its answer asked for, or else longer with each failure.
func (s *nodes) failed(n *node, now time.Time, asked time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := min(asked, maxRetryAfter)
	if pause == 0 {
		n.failures++
		pause = pauseAfter(n.failures)
	}
	if until := now.Add(pause); until.After(n.paused) {
		n.paused = until
	}
}

// pauseAfter returns the pause after failures in a row, between half and all of its bound.
func pauseAfter(failures int) time.Duration {
	bound := min(longestPause, firstPause<<min(failures-1, 10))
	return bound/2 + rand.N(bound/2+1) //nolint:gosec // it only keeps clients apart
}

// do sends a request until a node answers it or the patience has ended. send sends it to one
// node, and must be able to repeat. Failures of a local file, wrong bytes, and answers that
// another node would repeat end it at once. The error is an *Error, a *VerifyError, or that of
// the file or the context.
func (c *Client) do(ctx context.Context, op operation, send func(ctx context.Context, n *node) error) (answer, error) {
	var since time.Time // of the first failure
	for attempt := 1; ; attempt++ {
		n, wait := c.nodes.pick(time.Now())
		if wait > 0 {
			if err := sleep(ctx, wait); err != nil {
				return answer{}, err
			}
		}
		var seen answer
		err := send(withAnswer(ctx, &seen), n)
		if seen.status != 0 {
			c.answered.Store(true)
		}
		if err == nil {
			c.nodes.worked(n)
			return seen, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return seen, cause
		}
		var local *sourceError
		var wrong *VerifyError
		if errors.As(err, &wrong) || errors.As(err, &local) {
			c.nodes.worked(n)
			return seen, err
		}
		failure := describe(op, n, err, seen)
		if !failure.Temporary() || op.once && !failure.unsent {
			if seen.status != 0 {
				c.nodes.worked(n)
			}
			return seen, failure
		}
		now := time.Now()
		c.nodes.failed(n, now, seen.retryAfter)
		if since.IsZero() {
			since = now
		}
		patience := c.patience
		if !c.answered.Load() {
			patience = min(patience, firstPatience)
		}
		if now.Sub(since) >= patience || failure.lasting && attempt >= len(c.nodes.list) {
			return seen, failure
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
