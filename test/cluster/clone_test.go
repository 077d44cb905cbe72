package cluster

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/node"
)

// TestACopyOfAMemberThatRunsDoesNotStart promises that a copy of a running member's folder does not start, and says
// why. Two processes would be one voter. Once the member has ended, its copy may take its place at another address.
func TestACopyOfAMemberThatRunsDoesNotStart(t *testing.T) {
	nodes := three(t)
	n := nodes[2]
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	c := n.config
	c.Peer.ClusterListen = freeAddrs(t, 1)
	n = run(t, c) // where it was last, there it is
	s, err := n.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	await(t, "its address in its folder", func() bool { return atAddrs(n.dir, s.Node.ClusterAddrs) == nil })
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	copied := c
	copied.Data = filepath.Join(t.TempDir(), "copy")
	copied.Peer.ClusterListen = []string{"/ip4/127.0.0.1/tcp/0"}
	if err := os.CopyFS(copied.Data, os.DirFS(n.dir)); err != nil {
		t.Fatal(err)
	}
	n = run(t, c)
	_, err = node.Open(t.Context(), node.Options{Config: copied, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, node.ErrRunsElsewhere) || !strings.Contains(err.Error(), copied.Data) || !strings.Contains(err.Error(), s.Node.ClusterAddrs[0]) {
		t.Fatalf("the copy starts, or does not say why not: %v", err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	run(t, copied)
}
