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

// bench is one group under way. It is a testing.TB for the harness, which was
// written for tests: a failure ends the group, and what was started is ended
// with it.
type bench struct {
	testing.TB // for the methods that the harness does not call
	settings

	ctx      context.Context
	cleanups []func()
	failure  error
}

// scope runs a group and returns why it failed.
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

// Context ends with the group.
func (b *bench) Context() context.Context { return b.ctx }

// Cleanup has f called when the group ends.
func (b *bench) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }

// Helper does nothing.
func (b *bench) Helper() {}

// Failed returns whether the group failed.
func (b *bench) Failed() bool { return b.failure != nil }

// Logf writes to standard error, where that was asked for.
func (b *bench) Logf(format string, args ...any) {
	if b.logs {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// Errorf notes a failure.
func (b *bench) Errorf(format string, args ...any) {
	b.failure = errors.Join(b.failure, fmt.Errorf(format, args...))
}

// Fatalf notes a failure and ends the group.
func (b *bench) Fatalf(format string, args ...any) {
	b.Errorf(format, args...)
	runtime.Goexit()
}

// Fatal notes a failure and ends the group.
func (b *bench) Fatal(args ...any) { b.Fatalf("%s", fmt.Sprint(args...)) }

// must ends the group when err is one.
func (b *bench) must(err error) {
	if err != nil {
		b.Fatal(err)
	}
}

// TempDir returns a folder that goes with the group.
func (b *bench) TempDir() string {
	dir, err := os.MkdirTemp("", "hf-bench-")
	b.must(err)
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
