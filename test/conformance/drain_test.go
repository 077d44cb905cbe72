//go:build conformance

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestAMemberIsDrainedAndRemoved promises that a drain moves all content off a member, which gets none meanwhile, and
// that nothing is lost when the member is removed. The leader is killed during the drain.
func TestAMemberIsDrainedAndRemoved(t *testing.T) {
	t.Parallel() // it mostly waits
	const objects = 40
	g := newGateway(t, harness.Options{Nodes: 4, Env: []string{"HOLDFAST_REPAIR_AFTER=10s"}})
	c := g.cluster
	follower := c.Followers()[0]
	api := g.sdk(follower)
	put := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, err := api.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: aws.String("drained"), Key: aws.String(fmt.Sprint("object-", i)), Body: strings.NewReader(fmt.Sprint("content ", i)),
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("drained")}); err != nil {
		t.Fatal(err)
	}
	put(0, objects)
	leaving := c.Followers()[1].Status().Node.ID
	drain := func() (roots uint64, err error) {
		said := follower.TryCLI("", "peers", "drain", leaving, "--json")
		var plan struct {
			Roots uint64 `json:"roots"`
		}
		if err := json.Unmarshal([]byte(said.Stdout), &plan); err != nil {
			return 0, fmt.Errorf("%w: %+v", err, said)
		}
		return plan.Roots, nil
	}
	if roots, err := drain(); err != nil || roots == 0 {
		t.Fatalf("%d roots are on the member to drain, %v", roots, err)
	}
	leader := c.Leader()
	leader.Kill()
	c.Leader() // another one
	put(objects, objects+10)
	leader.Restart()
	harness.Eventually(t, 3*time.Minute, "the drained member holds nothing", func() (bool, error) {
		roots, err := drain()
		return err == nil && roots == 0, errors.Join(err, fmt.Errorf("%d roots are left", roots))
	})
	state := func() string {
		for _, p := range follower.Status().Peers {
			if p.ID == leaving {
				return p.State
			}
		}
		return ""
	}
	if got := state(); got != "draining" {
		t.Errorf("the member is %s", got)
	}
	harness.Eventually(t, time.Minute, "the rate of the drain is known", func() (bool, error) {
		row, _ := follower.Status().Member(leaving)
		if row.Drain == nil || row.Drain.RootsLeft > 0 || row.Drain.BytesLeft == nil || *row.Drain.BytesLeft > 0 || row.Drain.SecondsLeft == nil || *row.Drain.SecondsLeft > 0 {
			t.Fatalf("the drain is over, and the status has %+v", row.Drain)
		}
		return row.Drain.RootsPerMinute != nil && row.Drain.BytesPerMinute != nil, fmt.Errorf("%+v", *row.Drain)
	})
	put(objects+10, objects+20)
	if roots, err := drain(); err != nil || roots > 0 {
		t.Errorf("it was given %d new roots, %v", roots, err)
	}
	follower.CLI("peers", "drain", leaving, "--cancel")
	if got := state(); got != "alive" {
		t.Errorf("after the end of the drain the member is %s", got)
	}
	follower.CLI("peers", "drain", leaving)
	follower.CLI("peers", "drain", leaving, "--wait")
	follower.CLI("peers", "rm", leaving, "--yes")
	for i := range objects + 20 {
		out, err := api.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("drained"), Key: aws.String(fmt.Sprint("object-", i))})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(out.Body); err != nil || string(got) != fmt.Sprint("content ", i) {
			t.Errorf("object %d is %q, %v", i, got, err)
		}
	}
	refused := follower.TryCLI("", "peers", "drain", "nobody")
	if refused.Code == 0 || !strings.Contains(refused.Stderr, "no member has the id or the name") {
		t.Errorf("the drain of nobody: %+v", refused)
	}
}
