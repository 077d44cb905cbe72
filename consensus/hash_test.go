package consensus

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Every node has the same hash at the same index, and another one as soon as a
// byte of its state is another.
func TestNodesAtTheSameIndexHaveTheSameHash(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		for i := range 20 {
			c.leader().mustPin(fmt.Sprintf("p%d", i))
		}
		c.sameEverywhere()
		index, want, err := c.nodes["n1"].StateHash(t.Context())
		if err != nil || index == 0 {
			t.Fatal(index, err)
		}
		for id, n := range c.nodes {
			at, got, err := n.StateHash(t.Context())
			if err != nil || at != index || got != want {
				t.Errorf("%s: %s at %d, %v, want %s at %d", id, got, at, err, want, index)
			}
		}
		c.nodes["n2"].store.tamper("operator@localhost", "operator@Localhost")
		if _, got, err := c.nodes["n2"].StateHash(t.Context()); err != nil || got == want {
			t.Errorf("a changed state has the same hash, %v", err)
		}
	})
}

// A large state is read at the bounded rate, one hash at a time, and nobody who
// hashes keeps entries from being applied.
func TestHashingTakesItsTimeAndHoldsNothingUp(t *testing.T) {
	inVirtualTime(t, 1, Timings{}, func(t *testing.T, c *testCluster) {
		n := c.nodes["n1"]
		const size = 128 << 20
		big := make([]byte, 4<<20)
		for i := range size / len(big) {
			n.store.put(fmt.Sprintf("z%d", i), string(big))
		}
		began := time.Now()
		done := make(chan error, 1)
		go func() {
			_, _, err := n.StateHash(t.Context())
			done <- err
		}()
		<-time.After(time.Second)
		n.mustPin("meanwhile")
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("a write took until %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, _, err := n.StateHash(ctx); err == nil {
			t.Error("two hashes at a time")
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < size*time.Second/hashRate*9/10 {
			t.Errorf("%d bytes in %v", size, took)
		}
	})
}
