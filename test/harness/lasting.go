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

// lasting is the testing.TB of something that several tests of a package share. While it is being
// made, its errors fail the test that makes it. Errors after the last test go to standard error and
// make the run fail.
type lasting struct {
	testing.TB // that of the test that called Lasting
	ctx        context.Context
	cancel     context.CancelFunc
	told       io.Writer // receives errors and log lines after the last test

	mu       sync.Mutex
	cleanups []func()
	ending   bool // all tests of the package have ended
	failed   bool
}

// common has all values that Lasting has returned. Main ends them.
var common struct {
	mu  sync.Mutex
	all []*lasting
}

// Lasting returns a testing.TB for something that several tests of a package share, such as a
// cluster. Its context ends, and its cleanups run, after all tests of the package. The package's
// TestMain must call Main.
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

// endLasting ends all values of Lasting, the newest first, and returns whether none of them has
// failed.
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

// end runs the cleanups, the newest first, and returns whether none has failed.
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
