package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
)

// Pauses of a node after consecutive failures. The first pause is short, because an election takes
// about a second. The longest pause bounds how late the client notices that a node is back.
const (
	firstPause    = 100 * time.Millisecond
	longestPause  = 10 * time.Second
	maxRetryAfter = time.Minute // upper bound of the pause that Retry-After can cause
)

// node is one node of the cluster, with a minio-go client for its S3 gateway.
type node struct {
	endpoint string // scheme and host
	core     *minio.Core

	by                   http.RoundTripper
	others               atomic.Pointer[addresses] // of the other APIs; nil until the node has told them
	accessKey, secretKey string                    // empty if the client has a token

	// The mutex nodes.mu guards failures and paused.
	failures int       // consecutive failures
	paused   time.Time // end of the pause; the client sends no request to the node before
}

// nodes selects the node for each request, in round-robin order.
type nodes struct {
	list []*node // never changes

	mu   sync.Mutex
	next int // index in list of the node for the next request
}

// pick returns the next node that is not paused, and 0. If all nodes are paused, it returns the
// node whose pause ends first, and how long the caller must wait.
func (s *nodes) pick(now time.Time) (*node, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first *node
	for i := range s.list {
		at := (s.next + i) % len(s.list)
		n := s.list[at]
		if !n.paused.After(now) {
			s.next = at + 1
			if n.failures > 0 { // one request tests whether the node is back
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

// worked resets the failures and the pause of a node that has answered.
func (s *nodes) worked(n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.failures, n.paused = 0, time.Time{}
}

// failed pauses a node after a failure. asked is the duration of its Retry-After, up to
// maxRetryAfter. If asked is 0, the pause grows with the number of consecutive failures.
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

// pauseAfter returns a random pause for a number of consecutive failures. The upper bound doubles
// with each failure up to longestPause, and the lower bound is half of it.
func pauseAfter(failures int) time.Duration {
	bound := min(longestPause, firstPause<<min(failures-1, 10))
	return bound/2 + rand.N(bound/2+1) //nolint:gosec // spreads the requests of clients; not a secret
}

// do calls send with one node after another until the request succeeds or the patience has ended.
// It does not repeat a request after a failure of the local file, wrong bytes, or an answer that
// every node would give. The error is an *Error, a *VerifyError, or the error of the file or of
// the context.
func (c *Client) do(ctx context.Context, op operation, send func(ctx context.Context, n *node) error) (answer, error) {
	return c.on(ctx, c.nodes, op, send)
}

// on does the same as do with the given nodes.
func (c *Client) on(ctx context.Context, among *nodes, op operation, send func(ctx context.Context, n *node) error) (answer, error) {
	var since time.Time // time of the first failure
	for attempt := 1; ; attempt++ {
		n, wait := among.pick(time.Now())
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
			among.worked(n)
			return seen, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return seen, cause
		}
		var local *sourceError
		var wrong *VerifyError
		if errors.As(err, &wrong) || errors.As(err, &local) {
			among.worked(n)
			return seen, err
		}
		failure := describe(op, n, err, seen)
		if !failure.Temporary() || failure.final || op.once && !failure.unsent {
			if seen.status != 0 {
				among.worked(n)
			}
			return seen, failure
		}
		now := time.Now()
		among.failed(n, now, seen.retryAfter)
		if since.IsZero() {
			since = now
		}
		patience := c.patience
		if !c.answered.Load() {
			patience = min(patience, firstPatience)
		}
		if now.Sub(since) >= patience || failure.lasting && attempt >= len(among.list) {
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
