package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin"
)

// If a node accepts the connection and does not answer, the client fails with ErrNoAnswer, the folder and the
// time that it waited. A context that the caller cancels is no such error.
func TestANodeThatHangsIsToldOf(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, admin.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := New(dir)
	t.Cleanup(c.Close)
	c.quick = 20 * time.Millisecond
	_, status := c.Status(t.Context())
	_, peers := c.Peers(t.Context())
	for _, err := range []error{status, peers} {
		if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "20ms") {
			t.Error(err)
		}
	}
	c.quick = quickTimeout
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Status(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrNoAnswer) {
		t.Errorf("given up by the caller: %v", err)
	}
}

// Where no node runs, each call fails with ErrNotRunning, also a call without a time limit.
func TestWithoutANodeNothingIsAnswered(t *testing.T) {
	c := New(t.TempDir())
	t.Cleanup(c.Close)
	for name, ask := range map[string]func() error{
		"scrub":        func() error { _, err := c.Scrub(t.Context()); return err },
		"collect":      func() error { _, err := c.Collect(t.Context()); return err },
		"check":        func() error { _, err := c.Check(t.Context()); return err },
		"state hash":   func() error { _, err := c.StateHash(t.Context()); return err },
		"check state":  func() error { _, err := c.CheckState(t.Context()); return err },
		"state checks": func() error { _, err := c.StateChecks(t.Context()); return err },
		"status":       func() error { _, err := c.Status(t.Context()); return err },
		"peers":        func() error { _, err := c.Peers(t.Context()); return err },
	} {
		if err := ask(); !errors.Is(err, ErrNotRunning) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// RetryAfter reads seconds and dates and is never negative: a date in the past or an unreadable value is 0.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-7": 0, "soon": 0,
		now.Add(90 * time.Second).Format(http.TimeFormat):  90 * time.Second,
		now.Format(http.TimeFormat):                        0,
		now.Add(-90 * time.Second).Format(http.TimeFormat): 0,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := RetryAfter(http.Header{}, now); got != 0 {
		t.Errorf("without the header: %v", got)
	}
}
