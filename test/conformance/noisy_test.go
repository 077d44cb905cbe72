//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// How long noisy accounts send.
const (
	noisyWithin = 30 * time.Second // at the most, until one is paced
	aloneFor    = 8 * time.Second  // nodes hear of each other's clients several times
)

// pacedMetric counts the requests that a node held back.
const pacedMetric = "holdfast_http_requests_paced_total"

// TestANoisyAccountIsPacedAndNotRefused promises that on defaults a node holds back requests of an account that
// stores with 32 clients beside another account, and refuses none of either. How long the other one waits is measured
// by test/bench, group noisy.
func TestANoisyAccountIsPacedAndNotRefused(t *testing.T) {
	longForm(t)
	t.Parallel()
	needsPressure(t)
	c := harness.Start(t, harness.Options{DefaultRates: true})
	n := c.Followers()[0]
	awaitPaced(t, c, n, n)
}

// TestANoisyAccountIsPacedForOneOnAnotherNode promises that a node holds back a noisy account for an account on
// another node, and that an account alone on all nodes is not paced.
func TestANoisyAccountIsPacedForOneOnAnotherNode(t *testing.T) {
	longForm(t)
	t.Parallel()
	needsPressure(t)
	c := harness.Start(t, harness.Options{DefaultRates: true})
	ctx, cancel := context.WithTimeout(t.Context(), aloneFor)
	defer cancel()
	crowd := newCrowd(t, c, "alone", 32, c.Nodes...)
	if err := crowd(ctx); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		if held := n.Metrics()[pacedMetric]; held != 0 {
			t.Errorf("%s held back %g requests of an account that was alone", n.Name, held)
		}
	}
	followers := c.Followers()
	awaitPaced(t, c, followers[0], followers[1])
}

// needsPressure skips a test where no account is paced.
func needsPressure(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/pressure/cpu"); err != nil {
		t.Skip("the kernel does not tell whether its processors are busy")
	}
}

// awaitPaced has a noisy account send to a node and a modest one to a node, until requests of
// the noisy one are held back.
func awaitPaced(t *testing.T, c *harness.Cluster, noisyTo, modestTo *harness.Node) {
	t.Helper()
	if held, ok := noisyTo.Metrics()[pacedMetric]; !ok || held != 0 {
		t.Fatalf("%s is %g, %v at the start", pacedMetric, held, ok)
	}
	noisy, modest := newCrowd(t, c, "noisy", 32, noisyTo), newCrowd(t, c, "modest", 1, modestTo)
	ctx, cancel := context.WithTimeout(t.Context(), noisyWithin)
	defer cancel()
	clients, ctx := errgroup.WithContext(ctx)
	clients.Go(func() error { return noisy(ctx) })
	clients.Go(func() error { return modest(ctx) })
	held := noisyTo.Metrics()[pacedMetric]
	for held == 0 && ctx.Err() == nil {
		held = noisyTo.Metrics()[pacedMetric]
	}
	cancel()
	if err := clients.Wait(); err != nil {
		t.Error(err)
	}
	if held == 0 {
		t.Errorf("no request was held back within %s", noisyWithin)
	}
}

// newCrowd returns a function with which clients of a new account store small objects on nodes
// until a context ends, or an answer is not 200.
func newCrowd(t *testing.T, c *harness.Cluster, account string, clients int, nodes ...*harness.Node) func(context.Context) error {
	t.Helper()
	o := newObjects(t, c, account+"@example.org")
	bucket := "/" + account + randomName()
	if r := o.callOn(nodes[0], http.MethodPut, bucket, nil); r.Status != http.StatusOK {
		t.Fatal(r.Status)
	}
	return func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		var turn atomic.Int64
		for i := range clients {
			n := nodes[i%len(nodes)]
			group.Go(func() error {
				for ctx.Err() == nil {
					path := fmt.Sprintf("%s/%d", bucket, turn.Add(1))
					r, err := o.tryOn(n, http.MethodPut, path, []byte(path))
					if err != nil || r.Status != http.StatusOK {
						return fmt.Errorf("%s: %d %s, %w", path, r.Status, r.Body, err)
					}
				}
				return nil
			})
		}
		return group.Wait()
	}
}
