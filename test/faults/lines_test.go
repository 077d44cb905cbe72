//go:build faults

package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// What a follower lacks, over a line that carries five eighths of it within the 5 s that
// one message of Raft has.
const (
	slowRate    = 20_000_000 / 8 // bytes a second
	slowQueue   = slowRate / 10
	slowDelay   = 10 * time.Millisecond // one way
	bulkPins    = 600
	bulkBytes   = 32 << 10 // of each
	bulkClients = 64
)

// TestAMemberCatchesUpOverASlowLine promises that a member that was away catches up over a line slower than the
// entries that it lacks. They are entries of some hundred KiB, as bulk writes with much to say of each pin make them.
func TestAMemberCatchesUpOverASlowLine(t *testing.T) {
	longForm(t)
	c := harness.Start(t, harness.Options{Line: &harness.Line{Delay: slowDelay, Rate: slowRate, Queue: slowQueue}})
	token := c.Nodes[0].UserKey("lines@example.org").Token
	leader, away := c.Leader(), c.Followers()[0]
	away.Kill()
	began := time.Now()
	var clients errgroup.Group
	clients.SetLimit(bulkClients)
	for i := range bulkPins {
		clients.Go(func() error {
			_, err := leader.Pins(token).Post(t.Context(), harness.Pin{
				CID: unreachable, Name: fmt.Sprintf("bulk-%d", i), Meta: map[string]string{"k": strings.Repeat("v", bulkBytes)},
			})
			return err
		})
	}
	if err := clients.Wait(); err != nil {
		t.Fatal(err)
	}
	written := time.Since(began)
	began = time.Now()
	away.Restart()
	if err := away.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pins of %d KiB were written in %v; a member that was away is back after %v", bulkPins, bulkBytes>>10, written, time.Since(began))
	c.Settle()
	if err := c.SameState(t.Context()); err != nil {
		t.Error(err)
	}
}

// unreachable is a CID that nobody has.
const unreachable = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq"
