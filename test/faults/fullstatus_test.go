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

// TestStatusSaysThatFullDisksTakeTheMajority promises that status on every node says that nothing can be written, and
// why, while the disks of two of three Raft logs are full.
func TestStatusSaysThatFullDisksTakeTheMajority(t *testing.T) {
	longForm(t)
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
	followers := harness.Without(c.Nodes, leader)
	// write makes an entry of the log that needs room, and waits no longer than a moment for it.
	writes := 0
	write := func() error {
		asked, done := context.WithTimeout(t.Context(), 2*time.Second)
		defer done()
		writes++
		_, err := leader.Pins(token).Post(asked, harness.Pin{CID: source.AddBytes(fmt.Appendf(nil, "content %d", writes)).CID, Meta: map[string]string{"long": strings.Repeat("x", 32<<10)}})
		return err
	}
	var frees []func()
	for _, n := range followers {
		status(leader, 0, "cluster ")
		frees = append(frees, diskOf(c, disks, n).keepFull())
		harness.Eventually(t, healWithin, n.Name+" refuses a write", func() (bool, error) {
			err := write()
			return n.Metrics()["holdfast_consensus_log_writes_refused_total"] > 0, errors.Join(err, errors.New("no write is refused for want of room"))
		})
	}
	// The ballast that a full disk lets go has room for what was refused, for once: only writes
	// that go on are refused for good.
	harness.Eventually(t, healWithin, "writes are refused for good", func() (bool, error) {
		err := write()
		r := leader.TryCLI("", "status")
		return err != nil && r.Code == 1, errors.Join(err, fmt.Errorf("status ended with %d", r.Code))
	})
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
