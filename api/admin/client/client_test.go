package client

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin"
)

// A process that hangs still has its socket: connecting succeeds and nothing follows.
func TestANodeThatHangsIsToldOf(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, admin.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := New(dir)
	t.Cleanup(c.Close)
	c.look = 20 * time.Millisecond
	_, status := c.Status(t.Context())
	_, peers := c.Peers(t.Context())
	for _, err := range []error{status, peers} {
		if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "20ms") {
			t.Error(err)
		}
	}
	c.look = lookTimeout
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Status(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrNoAnswer) {
		t.Errorf("given up by the caller: %v", err)
	}
}

// Where no node runs, what has no bound in time says so at once, as the rest does.
func TestWithoutANodeNothingIsAnswered(t *testing.T) {
	c := New(t.TempDir())
	t.Cleanup(c.Close)
	for name, ask := range map[string]func() error{
		"scrub":        func() error { _, err := c.Scrub(t.Context()); return err },
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
