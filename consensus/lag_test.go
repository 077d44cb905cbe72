package consensus

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// wantBehind waits until a node says that it is behind, soon, and sees that nobody
// else is concerned.
func (c *testCluster) wantBehind(sick *testNode, leader state.NodeID, why string) {
	c.t.Helper()
	began := time.Now()
	var err error
	c.until("it is not ready", func() bool { err = sick.Ready(); return err != nil })
	if !errors.Is(err, state.ErrUnavailable) || !strings.Contains(err.Error(), "behind") || !strings.Contains(err.Error(), why) {
		c.t.Errorf("it says: %v", err)
	}
	if took := time.Since(began); took > viewTimeout+2*lagCheck {
		c.t.Errorf("it said so after %s", took)
	}
	// Nothing changes while it lasts.
	for began := time.Now(); time.Since(began) < time.Minute; <-time.After(100 * time.Millisecond) {
		if sick.Ready() == nil {
			c.t.Fatal("it is ready and answers no reads")
		}
		for _, id := range c.others(sick.id) {
			if err := c.nodes[id].Ready(); err != nil {
				c.t.Fatalf("%s: %v", id, err)
			}
		}
	}
	if now := c.leader().id; now != leader {
		c.t.Errorf("%s leads, before %s", now, leader)
	}
	sick.ran(c.t)
}

// wantBack waits until a node is ready, soon, without anybody reading on it.
func (c *testCluster) wantBack(sick *testNode, want ...string) {
	c.t.Helper()
	began := time.Now()
	c.until("it is ready again", func() bool { return sick.Ready() == nil })
	if took := time.Since(began); took > 15*time.Second { // the leader's longest wait between two tries, and a look
		c.t.Errorf("it was ready again after %s", took)
	}
	began = time.Now()
	sick.wantPins(want...)
	if took := time.Since(began); took > time.Second {
		c.t.Errorf("and answered a read after %s", took)
	}
}

// A follower whose Raft log has no room is not ready and says so, and is ready soon after there is room.
func TestAFollowerWhoseDiskIsFullIsNotReadyUntilThereIsRoom(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, full *testNode){
		"nobody reads on it": func(*testing.T, *testNode) {},
		"somebody does": func(t *testing.T, full *testNode) {
			if _, err := full.pins(); !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("a read: %v", err)
			}
			if full.Ready() == nil {
				t.Error("it is ready when a read has failed")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
				full := c.follower()
				d := onSmallDisk(t, c, full, false)
				leader := c.leader()
				d.set(errFull)
				leader.mustPin("a")
				use(t, full)
				c.wantBehind(full, leader.id, "disk of its Raft log is full")
				d.set(nil)
				c.wantBack(full, "a")
			})
		})
	}
}

// A follower on which a read or a write waits for entries in vain is not ready until it applies them.
func TestAFollowerWhoseStateHangsIsNotReadyUntilItGoesOn(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, sick *testNode){
		"somebody reads on it": func(t *testing.T, sick *testNode) {
			if _, err := sick.pins(); !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("a read: %v", err)
			}
		},
		"somebody in a hurry does": func(t *testing.T, sick *testNode) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, _, err := sick.View(ctx); !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("a read: %v", err)
			}
			if err := sick.Ready(); err != nil {
				t.Errorf("for a reader in a hurry alone: %v", err)
			}
		},
		"somebody writes through it": func(t *testing.T, sick *testNode) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := sick.Propose(ctx, pin("b")); err != nil {
				t.Errorf("a write that is decided: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
				sick, leader, goOn := c.whoseStateHangs()
				use(t, sick)
				c.wantBehind(sick, leader.id, "")
				goOn()
				want, err := leader.pins()
				if err != nil {
					t.Fatal(err)
				}
				c.wantBack(sick, want...)
			})
		})
	}
}

// A node that is behind and then finds no majority for a while is ready again after both.
func TestANodeThatIsBehindAndCutOffIsReadyAgain(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		sick, _, goOn := c.whoseStateHangs()
		if _, err := sick.pins(); !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("a read: %v", err)
		}
		c.network.isolate(sick.id, c.others(sick.id)...)
		<-time.After(3 * viewTimeout)
		goOn()
		<-time.After(viewTimeout)
		c.network.heal()
		want, err := c.leader().pins()
		if err != nil {
			t.Fatal(err)
		}
		c.until("it follows", func() bool { return sick.Applied() >= c.leader().Applied() })
		c.wantBack(sick, want...)
	})
}

// A read that fails because there is no majority does not make its node behind. It says nothing of how far the node
// is.
func TestAReadThatFindsNoMajorityDoesNotMakeANodeBehind(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		cut := c.follower()
		c.network.isolate(cut.id, c.others(cut.id)...)
		if _, err := cut.pins(); !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("a read: %v", err)
		}
		if cut.lag.behind.Load() || cut.lag.doubted.Load() {
			t.Error("it takes itself for behind")
		}
		c.network.heal()
		c.until("it follows", func() bool { return cut.Ready() == nil })
	})
}

// whoseStateHangs returns a follower that does not apply what its leader has pinned, until the
// function is called.
func (c *testCluster) whoseStateHangs() (sick, leader *testNode, goOn func()) {
	c.t.Helper()
	sick, store := c.withHangingStore()
	c.until("it is back", func() bool { return sick.Ready() == nil })
	leader = c.leader()
	goOn = store.hangs()
	leader.mustPin("a")
	return sick, leader, goOn
}
