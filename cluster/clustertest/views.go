package clustertest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// lenderFrames is how many callers of a view are remembered, to name who left it open.
const lenderFrames = 8

// views counts the views that are open: on a real node each keeps a snapshot of the
// store, and with it the disk space of what was deleted since.
type views struct {
	mu   sync.Mutex
	open map[*lent]struct{}
}

// lent is a view that somebody has: the callers that asked for it.
type lent struct{ callers []uintptr }

// lend returns v as open until release is called. A further call of release does nothing.
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
		delete(o.open, l)
	}
}

// check fails tb for each view that is open.
func (o *views) check(tb testing.TB) {
	tb.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for l := range o.open {
		tb.Errorf("a view was not released, of\n%s", l)
	}
}

// String returns the callers, one a line.
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
