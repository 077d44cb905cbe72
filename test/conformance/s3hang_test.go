//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// hangPatience is how long a client waits for an answer in any fault (promise P13).
const hangPatience = 15 * time.Second

// TestAMemberThatHangsHoldsUpNobodyForLong promises that reads and puts through the other nodes succeed within
// hangPatience while a follower hangs. The test stops it where it is, which its connections outlive. It holds copies
// of what is read, and was to hold copies of what is put.
func TestAMemberThatHangsHoldsUpNobodyForLong(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	const (
		objectBytes = 3000
		count       = 24
	)
	c := harness.Start(t, harness.Options{Nodes: 4, Replication: 2})
	o := newObjects(t, c, "hangs@example.org")
	o.ok(http.StatusOK, http.MethodPut, "/hangs", nil)
	bodies := map[string][]byte{}
	put := func(n *harness.Node, key string) error {
		ctx, cancel := context.WithTimeout(t.Context(), hangPatience)
		defer cancel()
		r, err := o.tryFor(ctx, n, http.MethodPut, key, bodies[key])
		if err != nil || r.Status != http.StatusOK {
			return fmt.Errorf("PUT %s through %s: %d %s, %w", key, n.Name, r.Status, r.Body, err)
		}
		return nil
	}
	get := func(n *harness.Node, key string) error {
		ctx, cancel := context.WithTimeout(t.Context(), hangPatience)
		defer cancel()
		r, err := o.tryFor(ctx, n, http.MethodGet, key, nil)
		if err != nil || r.Status != http.StatusOK || !bytes.Equal(r.Body, bodies[key]) {
			return fmt.Errorf("GET %s through %s: %d with %d bytes, %w", key, n.Name, r.Status, len(r.Body), err)
		}
		return nil
	}
	for i := range 2 * count {
		bodies[fmt.Sprintf("/hangs/%d", i)] = harness.RandomBytes(objectBytes)
	}
	for i := range count {
		if err := put(c.Nodes[i%len(c.Nodes)], fmt.Sprintf("/hangs/%d", i)); err != nil {
			t.Fatal(err)
		}
	}

	hung := slices.MinFunc(c.Followers(), func(a, b *harness.Node) int { // who is asked first
		return strings.Compare(a.Status().Node.ID, b.Status().Node.ID)
	})
	others := slices.DeleteFunc(slices.Clone(c.Nodes), func(n *harness.Node) bool { return n == hung })
	hung.Pause()
	var during errgroup.Group
	for i := range count {
		for _, n := range others {
			during.Go(func() error { return get(n, fmt.Sprintf("/hangs/%d", i)) })
		}
		during.Go(func() error { return put(others[i%len(others)], fmt.Sprintf("/hangs/%d", count+i)) })
	}
	err := during.Wait()
	hung.Resume()
	if err != nil {
		t.Fatal(err)
	}
	for key := range bodies {
		for _, n := range c.Nodes {
			harness.Eventually(t, time.Minute, key+" through "+n.Name, func() (bool, error) { err := get(n, key); return err == nil, err })
		}
	}
}
