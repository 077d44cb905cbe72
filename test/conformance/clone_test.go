//go:build conformance

package conformance

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestAMemberIsHeardAgainAfterItsClone promises that a member's log tells of a copy of it that runs, and that the
// others hear the member again once the copy has ended.
func TestAMemberIsHeardAgainAfterItsClone(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	original := c.Followers()[0]
	original.Stop()
	clone := c.Prepare()
	if err := os.CopyFS(clone.Dir, os.DirFS(original.Dir)); err != nil {
		t.Fatal(err)
	}
	// At its old address the clone would find the member, and would not start.
	c.Move(original)
	original.Restart()
	if err := original.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Settle()
	clone.Restart()
	harness.Eventually(t, 2*time.Minute, "the log of a member says that there are two", func() (bool, error) {
		for _, n := range c.Live() {
			if n != clone && strings.Contains(n.Log(), "two processes run with the identity of one member") {
				return true, nil
			}
		}
		return false, nil
	})
	clone.Kill()
	t.Logf("the copy, to its end:\n%s", clone.Log())
	id := original.Status().Node.ID
	for _, n := range c.Live() {
		harness.Eventually(t, time.Minute, n.Name+" hears the member again", func() (bool, error) {
			s, err := n.StatusNow()
			if err != nil {
				return false, err
			}
			p, _ := s.Member(id)
			return p.State == "alive", fmt.Errorf("it is %s", p.State)
		})
	}
	c.Settle()
	if err := c.SameState(t.Context()); err != nil {
		t.Error(err)
	}
}
