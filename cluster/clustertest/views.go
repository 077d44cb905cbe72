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

// lenderFrames is the number of stack frames that are recorded for each view, so that a test can
// name the code that did not release it.
const lenderFrames = 8

// releaseTimeout is how long a test waits at its end for views that other goroutines still use.
const releaseTimeout = 10 * time.Second

// views records the open views, so that a test fails if a view is not released. On a real node,
// each open view retains a snapshot of the store, and so the disk space of data that was deleted
// since.
type views struct {
	mu     sync.Mutex
	open   map[*lent]struct{}
	closed chan struct{} // closed when the last view is released; nil if no goroutine waits
}

// lent is an open view, with the stack of the call that requested it.
type lent struct{ callers []uintptr }

// lend records v as open until release is called. Further calls of release do nothing.
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

// check fails tb for each view that is still open. It waits up to releaseTimeout, because a
// goroutine that was told to end may still use one.
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

// none waits until no view is open, and returns false if that does not happen within the given
// time.
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

// String returns the recorded stack, one caller per line.
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
