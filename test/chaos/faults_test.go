package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// fault is something that goes wrong for a while.
type fault uint8

const (
	partition fault = iota // a node reaches nobody and nobody reaches it
	deaf                   // a node sends, and hears nothing
	mute                   // a node hears, and nobody hears it
	pair                   // two nodes do not reach each other, the third reaches both
	slow                   // what a node sends takes long
	powerLoss              // a node ends without a word, and comes back
	blackout               // all do, at one moment
	restart                // a node ends as it should, and comes back
	faults
)

func (f fault) String() string {
	return [...]string{"partition", "deaf", "mute", "pair", "slow", "power loss", "blackout", "restart"}[f]
}

// Bounds of the faults of one run, in virtual time.
const (
	calm       = 2 * time.Second // before the first
	maxGap     = 2 * time.Second // between two
	minFault   = 500 * time.Millisecond
	maxFault   = 5 * time.Second
	slowBy     = 400 * time.Millisecond
	faultsEach = 5 // in one run
)

// step is one fault of a plan.
type step struct {
	fault     fault
	leader    bool // the node is the leader, if one is known
	node      int  // else it is this one
	other     int  // of a pair: how far from node, 1 or 2
	gap, last time.Duration
}

func (s step) String() string {
	who := fmt.Sprintf("node %d", s.node+1)
	if s.leader {
		who = "leader"
	}
	return fmt.Sprintf("after %v %v of %s for %v", s.gap, s.fault, who, s.last)
}

// plan draws the faults of a seed.
func plan(rng *rand.Rand) []step {
	steps := make([]step, faultsEach)
	for i := range steps {
		steps[i] = step{
			fault: fault(rng.IntN(int(faults))), leader: rng.IntN(2) == 0, node: rng.IntN(nodes), other: 1 + rng.IntN(nodes-1),
			gap:  time.Duration(rng.Int64N(int64(maxGap))).Round(time.Millisecond),
			last: minFault + time.Duration(rng.Int64N(int64(maxFault-minFault))).Round(time.Millisecond),
		}
	}
	return steps
}

// cause lets one fault happen and end. An error says that the run does not
// count, because it did not happen, or that a node did not come back.
func (c *cluster) cause(ctx context.Context, s step) error {
	err := c.happen(ctx, s)
	if err == nil {
		c.fired[s.fault]++
	}
	return err
}

func (c *cluster) happen(ctx context.Context, s step) error {
	node := s.node
	if number, known := c.leader(ctx); s.leader && known {
		node = number
	}
	other := (node + s.other) % nodes
	third := nodes - node - other
	switch s.fault {
	case powerLoss:
		return c.crash(ctx, s.last, node)
	case blackout:
		return c.crash(ctx, s.last, node, other, third)
	case restart:
		return c.restart(ctx, node, s.last)
	case slow:
		return c.slowDown(ctx, s.last, link{node, other}, link{node, third})
	case partition:
		return c.cutOff(ctx, s.last, link{node, other}, link{node, third}, link{other, node}, link{third, node})
	case deaf:
		return c.cutOff(ctx, s.last, link{other, node}, link{third, node})
	case mute:
		return c.cutOff(ctx, s.last, link{node, other}, link{node, third})
	case pair:
		return c.cutOff(ctx, s.last, link{node, other}, link{other, node})
	}
	return fmt.Errorf("no fault %v", s.fault)
}

// cutOff loses everything on some directions for a while.
func (c *cluster) cutOff(ctx context.Context, d time.Duration, links ...link) error {
	before := uint64(0)
	for _, l := range links {
		before += c.network.losses(l)
		c.network.set(l, true)
	}
	pause(ctx, d)
	lost := uint64(0)
	for _, l := range links {
		lost += c.network.losses(l)
		c.network.set(l, false)
	}
	if lost == before {
		return errInvalid("nothing was lost on cut links")
	}
	return nil
}

// slowDown delays everything on some directions for a while.
func (c *cluster) slowDown(ctx context.Context, d time.Duration, links ...link) error {
	before := c.network.late()
	for _, l := range links {
		c.network.delay(l, slowBy)
	}
	pause(ctx, d)
	for _, l := range links {
		c.network.delay(l, 0)
	}
	if c.network.late() == before {
		return errInvalid("nothing was late on slow links")
	}
	return nil
}
