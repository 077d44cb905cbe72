package consensus

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Each period is charged once, on every node, though leaders are killed between two commands of one period. Leaders
// charge each period for what an account stores, and the nodes that come back restore their states.
func TestPeriodsAreChargedOnceAcrossLeaders(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		const period, rounds, granted = 20 * time.Second, 9, 1000
		propose := func(n *testNode, cmd state.Command) {
			t.Helper()
			if _, err := n.Propose(t.Context(), cmd); err != nil {
				t.Fatalf("%T: %v", cmd, err)
			}
		}
		leader := c.leader()
		c.until("the level is the newest", func() bool { return leader.fsm.level() == state.NewestFeatureLevel })
		for i := range state.MaxCharged { // the operator comes after them, so a period takes two commands
			id := state.AccountID(fmt.Sprintf("a%07d", i)) // as long as "operator"
			propose(leader, &state.OpenAccount{Account: state.Account{ID: id, Email: string(id) + "@localhost"}, Allowance: 1})
		}
		propose(leader, &state.CreatePin{Pin: state.Pin{ID: "p", Account: account, CID: cids[0], Created: 1}, Nodes: c.ids()})
		held := heldAs(t, leader, cids[0])
		for _, id := range c.ids() {
			propose(leader, &state.ReportCopies{Node: id, Items: []state.CopyReport{held}})
		}
		propose(leader, &state.SetQuota{Account: account, Allowance: 0})
		propose(leader, &state.PostCredits{Posting: state.Posting{ID: "g", Account: account, Kind: state.Grant, Credits: granted}})
		charge := func(n *testNode, at time.Time) { // 3 credits for the gigabyte in a period
			t.Helper()
			propose(n, &state.ChargeStorage{Now: state.MillisOf(at), Every: state.Millis(period.Milliseconds()), Rate: 3 * 30 * 24 * 3600 / 20})
		}
		began := time.Now().Truncate(period)
		charge(leader, time.Now())
		for round := range rounds {
			<-time.After(period)
			leader = c.leader()
			charge(leader, time.Now())
			if round%3 == 1 { // between the commands of a period
				leader.kill()
				charge(c.leader(c.others(leader.id)...), time.Now())
				leader.start()
				c.until("all are ready again", func() bool { return c.ready() == 3 })
				leader = c.leader()
			}
			charge(leader, time.Now().Add(-time.Hour)) // a clock that is late
		}
		end := time.Now()
		for range 2 * state.MaxChargePeriods {
			charge(leader, end)
		}
		periods := int(end.Sub(began) / period)
		for _, id := range c.ids() {
			view, release, err := c.nodes[id].View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			rows, err := view.Ledger(account, 0, 1000)
			release()
			if err != nil || len(rows) != periods+1 || periods < rounds {
				t.Fatalf("%s: %d postings for %d periods, %v", id, len(rows), periods, err)
			}
			for i, p := range rows[:periods] {
				n := periods - i
				if p.Kind != state.Charge || p.Credits != 3 || p.Made != state.MillisOf(began.Add(time.Duration(n)*period)) || p.Balance != granted-uint64(3*n) {
					t.Errorf("%s: the charge for period %d is %+v", id, n, p)
				}
			}
		}
	})
}

// heldAs returns a report of a complete copy of 1 GB.
func heldAs(t *testing.T, n *testNode, content string) state.CopyReport {
	t.Helper()
	return heldBy(t, n.Node, content)
}

func heldBy(t testing.TB, n *Node, content string) state.CopyReport {
	t.Helper()
	view, release := n.LocalView()
	defer release()
	k := state.RootOf(cid.MustParse(content))
	r, err := view.Root(k)
	if err != nil {
		t.Fatal(err)
	}
	return state.CopyReport{Root: k, Born: r.Born, Phase: state.Held, Size: 1_000_000_000, Blocks: 1}
}
