package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
)

// bench is one group of measurements that is running. It implements testing.TB, because the harness
// was written for tests. A failure ends the group, and at its end everything that the group has
// started is ended.
type bench struct {
	testing.TB // nil; the harness calls only methods that bench has itself
	settings

	ctx      context.Context
	cleanups []func()
	failure  error
}

// scope runs a group and returns why it failed, or nil.
func scope(ctx context.Context, s settings, run func(*bench)) error {
	ctx, cancel := context.WithCancel(ctx)
	b := &bench{settings: s, ctx: ctx}
	done := make(chan struct{})
	go func() { // Fatal ends the goroutine, as in a test
		defer close(done)
		defer b.clean()
		defer cancel()
		run(b)
	}()
	<-done
	return b.failure
}

func (b *bench) clean() {
	for _, f := range slices.Backward(b.cleanups) {
		f()
	}
}

// Context returns a context that ends with the group.
func (b *bench) Context() context.Context { return b.ctx }

// Cleanup registers f, which is called at the end of the group.
func (b *bench) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }

// Helper does nothing.
func (b *bench) Helper() {}

// Failed reports whether the group has failed.
func (b *bench) Failed() bool { return b.failure != nil }

// Logf writes a line to standard error if the flag for logs is set.
func (b *bench) Logf(format string, args ...any) {
	if b.logs {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// Errorf records a failure; the group continues.
func (b *bench) Errorf(format string, args ...any) {
	b.failure = errors.Join(b.failure, fmt.Errorf(format, args...))
}

// Fatalf records a failure and ends the group.
func (b *bench) Fatalf(format string, args ...any) {
	b.Errorf(format, args...)
	runtime.Goexit()
}

// Fatal records a failure and ends the group.
func (b *bench) Fatal(args ...any) { b.Fatalf("%s", fmt.Sprint(args...)) }

// must ends the group with a failure if err is not nil.
func (b *bench) must(err error) {
	if err != nil {
		b.Fatal(err)
	}
}

// TempDir returns a new folder that is removed at the end of the group.
func (b *bench) TempDir() string {
	dir, err := os.MkdirTemp("", "hf-bench-")
	b.must(err)
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
