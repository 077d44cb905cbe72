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
