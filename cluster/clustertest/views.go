package clustertest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// lenderFrames is the number of callers that are remembered for a view, so that a test can name
// the code that did not release it.
const lenderFrames = 8

// releaseTimeout is how long the end of a test waits for views that other goroutines have.
const releaseTimeout = 10 * time.Second

// views counts the open views. On a real node each open view keeps a snapshot of the store, and
// so the disk space of data that was deleted since.
type views struct {
	mu     sync.Mutex
	open   map[*lent]struct{}
	closed chan struct{} // closed when the last view is released; nil if nobody waits
}

// lent is an open view, with the callers that requested it.
type lent struct{ callers []uintptr }

// lend returns v as an open view until release is called. Further calls of release do nothing.
func (o *views) lend(v state.View) (view state.View, release func()) {
	l := &lent{callers: make([]uintptr, lenderFrames)}
	l.callers = l.callers[:runtime.Callers(3, l.callers)] // beyond Callers, lend and LocalView
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[*lent]struct{}{}
	}
	o.open[l] = struct{}{}
	return v, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if delete(o.open, l); len(o.open) == 0 && o.closed != nil {
			close(o.closed)
			o.closed = nil
		}
	}
}

// check fails tb for each view that stays open for releaseTimeout, because a goroutine that was
// told to end may just be using one.
func (o *views) check(tb testing.TB) {
	tb.Helper()
	if o.none(releaseTimeout) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for l := range o.open {
		tb.Errorf("a view was not released, of\n%s", l)
	}
}

// none waits until no view is open. It returns whether that happened within the given time.
func (o *views) none(within time.Duration) bool {
	o.mu.Lock()
	if len(o.open) == 0 {
		o.mu.Unlock()
		return true
	}
	if o.closed == nil {
		o.closed = make(chan struct{})
	}
	closed := o.closed
	o.mu.Unlock()
	select {
	case <-closed:
		return true
	case <-time.After(within):
		return false
	}
}

// String returns the callers, one in each line.
func (l *lent) String() string {
	var b strings.Builder
	frames := runtime.CallersFrames(l.callers)
	for {
		f, more := frames.Next()
		fmt.Fprintf(&b, "\t%s:%d %s\n", f.File, f.Line, f.Function)
		if !more {
			return b.String()
		}
	}
}
