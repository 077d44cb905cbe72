package peer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
)

// Slow members that hold all places that they get leave one for a member that comes after them. One that is alone
// gets half of the places, and a place that is given back goes to a waiting member.
func TestSlowMembersLeavePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := newPlaces(64)
		ended := make(chan error)
		const slow, each = 4, 64
		for i := range slow {
			for range each {
				go func() { ended <- p.take(ctx, libp2ppeer.ID(rune('a'+i))) }()
			}
			synctest.Wait()
		}
		got := 64 - p.free
		for range got {
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		if p.held["a"] != 32 {
			t.Errorf("one that is alone has %d places of 64, want half", p.held["a"])
		}
		if err := p.take(ctx, "fast"); err != nil || p.held["fast"] != 1 {
			t.Errorf("who comes after %d slow members: %v, %v", slow, err, p.held)
		}
		// What is given back goes to who waits and has fewer than are left.
		for range 2 {
			p.giveBack("a")
		}
		if err := <-ended; err != nil || p.held["d"] != 5 {
			t.Errorf("with two places more: %v, %v", err, p.held)
		}
		cancel()
		for range slow*each - got - 1 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Fatalf("one that waits at the end: %v", err)
			}
		}
		for member, n := range p.held {
			for range n {
				p.giveBack(member)
			}
		}
		if p.free != 64 || len(p.held) != 0 {
			t.Errorf("%d of 64 places free in the end, %v held", p.free, p.held)
		}
	})
}
