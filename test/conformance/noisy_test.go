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

// noisyWithin bounds how long it may take until a noisy account is paced.
const noisyWithin = 30 * time.Second

// TestANoisyAccountIsPacedAndNotRefused promises that on defaults a node holds requests of an
// account back that stores with 32 clients beside another account, and refuses none of either.
// How long the other one waits is measured by test/bench, group noisy.
func TestANoisyAccountIsPacedAndNotRefused(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/pressure/cpu"); err != nil {
		t.Skip("the kernel does not tell whether its processors are busy")
	}
	c := harness.Start(t, harness.Options{DefaultRates: true})
	n := c.Followers()[0]
	const metric = "holdfast_http_requests_paced_total"
	if held, ok := n.Metrics()[metric]; !ok || held != 0 {
		t.Fatalf("%s is %g, %v at the start", metric, held, ok)
	}
	ctx, cancel := context.WithTimeout(t.Context(), noisyWithin)
	defer cancel()
	var clients errgroup.Group
	for name, count := range map[string]int{"noisy": 32, "modest": 1} {
		o := newObjects(t, c, name+"@example.org")
		bucket := "/" + name + randomName()
		if r := o.callOn(n, http.MethodPut, bucket, nil); r.Status != http.StatusOK {
			t.Fatal(r.Status)
		}
		var turn atomic.Int64
		for range count {
			clients.Go(func() error {
				for ctx.Err() == nil {
					path := fmt.Sprintf("%s/%d", bucket, turn.Add(1))
					r, err := o.tryOn(n, http.MethodPut, path, []byte(path))
					if err != nil || r.Status != http.StatusOK {
						cancel()
						return fmt.Errorf("%s: %d %s, %w", path, r.Status, r.Body, err)
					}
				}
				return nil
			})
		}
	}
	held := n.Metrics()[metric]
	for held == 0 && ctx.Err() == nil {
		held = n.Metrics()[metric]
	}
	cancel()
	if err := clients.Wait(); err != nil {
		t.Error(err)
	}
	if held == 0 {
		t.Errorf("no request was held back within %s", noisyWithin)
	}
}
