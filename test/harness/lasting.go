package harness

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
)

// lasting is the testing.TB of what tests of a package share. The test that makes it fails for
// what goes wrong until it is made. Later errors are told on standard error, and fail the run.
type lasting struct {
	testing.TB // of the test that makes it
	ctx        context.Context
	cancel     context.CancelFunc
	told       io.Writer // what is told after all tests

	mu       sync.Mutex
	cleanups []func()
	ending   bool // all tests have ended
	failed   bool
}

// common are those that Main ends.
var common struct {
	mu  sync.Mutex
	all []*lasting
}

// Lasting returns a testing.TB for something that tests of a package share, such as a cluster: its
// context ends and its cleanups run when all tests have ended. The package's TestMain calls Main.
func Lasting(tb testing.TB) testing.TB {
	l := newLasting(tb)
	common.mu.Lock()
	defer common.mu.Unlock()
	common.all = append(common.all, l)
	return l
}

func newLasting(tb testing.TB) *lasting {
	ctx, cancel := context.WithCancel(context.Background())
	return &lasting{TB: tb, ctx: ctx, cancel: cancel, told: os.Stderr}
}

// endLasting ends all that lasts, the last one first, and returns whether that went well.
func endLasting() bool {
	common.mu.Lock()
	defer common.mu.Unlock()
	ok := true
	for _, l := range slices.Backward(common.all) {
		ok = l.end() && ok
	}
	common.all = nil
	return ok
}

// end runs the cleanups, the last one first, and returns whether they went well.
func (l *lasting) end() bool {
	l.mu.Lock()
	l.ending = true
	cleanups := l.cleanups
	l.mu.Unlock()
	l.cancel()
	for _, f := range slices.Backward(cleanups) {
		f()
	}
	return !l.Failed()
}

// Context implements testing.TB.
func (l *lasting) Context() context.Context { return l.ctx }

// Cleanup implements testing.TB.
func (l *lasting) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

// TempDir implements testing.TB.
func (l *lasting) TempDir() string {
	l.Helper()
	dir, err := os.MkdirTemp("", "holdfast-test-")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			l.Errorf("remove a folder: %v", err)
		}
	})
	return dir
}

// Errorf implements testing.TB.
func (l *lasting) Errorf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ending {
		l.TB.Errorf(format, args...)
		return
	}
	l.failed = true
	fmt.Fprintf(l.told, "after all tests: "+format+"\n", args...)
}

// Logf implements testing.TB.
func (l *lasting) Logf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ending {
		l.TB.Logf(format, args...)
		return
	}
	fmt.Fprintf(l.told, format+"\n", args...)
}

// Failed implements testing.TB.
func (l *lasting) Failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ending {
		return l.TB.Failed()
	}
	return l.failed
}
