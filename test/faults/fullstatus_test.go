//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestStatusSaysThatFullDisksTakeTheMajority fills the disks of the Raft logs of two of three
// nodes: all answer, and nothing can be written.
func TestStatusSaysThatFullDisksTakeTheMajority(t *testing.T) {
	t.Parallel()
	c, disks := onVolumes(t, "raft", 64, "HOLDFAST_STORAGE_RESERVE=16MiB")
	source := harness.StartBoxo(t)
	token := c.Nodes[0].UserKey("full@example.org").Token
	status := func(n *harness.Node, code int, says string) {
		t.Helper()
		harness.Eventually(t, healWithin, fmt.Sprintf("status ends with %d and says %q", code, says), func() (bool, error) {
			r := n.TryCLI("", "status")
			return r.Code == code && strings.Contains(r.Stdout, says), fmt.Errorf("code %d: %s%s", r.Code, r.Stdout, r.Stderr)
		})
	}
	leader := c.Leader()
	followers := without(c.Nodes, leader)
	var frees []func()
	for i, n := range followers {
		status(leader, 0, "cluster ")
		frees = append(frees, diskOf(c, disks, n).keepFull())
		ctx, cancel := context.WithTimeout(t.Context(), healWithin)
		err := harness.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
			asked, done := context.WithTimeout(ctx, 5*time.Second)
			defer done()
			_, err := leader.Pins(token).Post(asked, harness.Pin{CID: source.AddBytes(fmt.Appendf(nil, "content %d", i)).CID, Meta: map[string]string{"long": strings.Repeat("x", 32<<10)}})
			return n.Metrics()["holdfast_consensus_log_writes_refused_total"] > 0, errors.Join(err, errors.New("no write is refused for want of room"))
		})
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", n.Name, err)
		}
	}
	for _, n := range c.Nodes {
		status(n, 1, "cannot write  2 of 3 votes are needed and 1 is here; missing: ")
		status(n, 1, "the disk of its Raft log is full")
	}
	for _, free := range frees {
		free()
	}
	for _, n := range c.Nodes {
		status(n, 0, "cluster ")
	}
	if _, err := leader.Pins(token).Post(t.Context(), harness.Pin{CID: source.AddBytes([]byte("more")).CID}); err != nil {
		t.Errorf("after there is room: %v", err)
	}
}
