package consensus

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// living returns the running nodes that vote, as a node knows it.
func (c *testCluster) living(on *testNode) (voters []state.NodeID) {
	for id, role := range on.Roles() {
		if role == roleVoter && c.nodes[id].Node != nil {
			voters = append(voters, id)
		}
	}
	slices.Sort(voters)
	return voters
}

// A cluster of seven takes writes until three members are left, because others get the votes of those that are gone.
// Members die one after the other, with more time between than makes one of them gone. Those that are left go on
// though four of the five that voted first, or as many as there are, are dead.
func TestVotesOfMembersThatAreGoneGoToOthers(t *testing.T) {
	inVirtualTime(t, 0, Timings{}, func(t *testing.T, c *testCluster) {
		var gone sync.Map
		for i := range 7 {
			node := c.empty(state.NodeID(fmt.Sprintf("n%d", i+1)))
			node.tune = func(o *Options) {
				o.Gone = func(id state.NodeID) bool {
					_, is := gone.Load(id)
					return is
				}
			}
			node.start()
			if i == 0 {
				c.found(node)
			} else {
				c.join(node.id)
			}
		}
		c.until("five of seven vote", func() bool { return c.know(5) && c.ready() == 7 })
		var written []string
		for i, left := range []int{5, 5, 4, 3} {
			leader := c.leader()
			dying := leader
			if i%2 == 0 {
				voters := c.living(leader)
				dying = c.nodes[voters[slices.IndexFunc(voters, func(id state.NodeID) bool { return id != leader.id })]]
			}
			before := leader.voters()
			dying.kill()
			<-time.After(time.Minute)
			if roles := c.leader().Roles(); roles[dying.id] != roleVoter || c.voters() != before {
				t.Fatalf("%s has died a moment ago, and its vote is taken: %v", dying.id, roles)
			}
			gone.Store(dying.id, true)
			c.until("others vote", func() bool {
				leader := c.leader()
				return len(c.living(leader)) == left && leader.voters() == 5
			})
			written = append(written, fmt.Sprint("after ", dying.id))
			c.leader().mustPin(written[i])
		}
		for id, n := range c.nodes {
			if n.Node == nil {
				gone.Delete(id)
				n.start()
			}
		}
		c.until("all are back", func() bool { return c.ready() == 7 })
		c.until("five vote", func() bool { return c.know(5) })
		c.sameEverywhere()
		for _, n := range c.nodes {
			n.wantPins(written...)
		}
	})
}
