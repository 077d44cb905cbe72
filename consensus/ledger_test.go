package consensus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// books is a random history of the ledger of an account in a cluster.
type books struct {
	*testCluster
	rand    *rand.Rand
	period  time.Duration
	price   uint64 // of a million requests
	began   time.Time
	posted  map[string]int64 // credits of each posting that was accepted
	counted uint64           // requests that were counted
	number  uint64
}

// anyone returns a node that runs.
func (b *books) anyone() *testNode {
	var live []*testNode
	for _, id := range b.ids() {
		if n := b.nodes[id]; n.Node != nil {
			live = append(live, n)
		}
	}
	return live[b.rand.IntN(len(live))]
}

// everywhere proposes a command by one node or by several in turn, as after a lost answer.
func (b *books) everywhere(cmd state.Command) error {
	b.t.Helper()
	var first error
	for i := range 1 + b.rand.IntN(3) {
		_, err := b.anyone().Propose(b.t.Context(), cmd)
		var refused *state.Error
		if err != nil && !errors.As(err, &refused) {
			b.t.Fatalf("%T: %v", cmd, err)
		}
		if i == 0 {
			first = err
		}
	}
	return first
}

// charge charges by the time of a clock that is exact or an hour late, and then by one that is exact.
func (b *books) charge() {
	b.t.Helper()
	b.chargeBy(time.Duration(b.rand.IntN(2))*time.Hour, 0)
}

// chargeBy charges by clocks that are late by some time.
func (b *books) chargeBy(late ...time.Duration) {
	b.t.Helper()
	for _, by := range late {
		b.chargeAt(time.Now().Add(-by))
	}
}

// chargeAt charges the periods that have ended by a time.
func (b *books) chargeAt(now time.Time) {
	b.t.Helper()
	cmd := &state.ChargeStorage{
		Now: state.MillisOf(now), Every: state.Millis(b.period.Milliseconds()), Rate: 3 * 30 * 24 * 3600 / 20, Requests: b.price,
	}
	if err := b.everywhere(cmd); err != nil {
		b.t.Fatal(err)
	}
}

// post makes a random posting.
func (b *books) post(n int) {
	b.t.Helper()
	p := state.Posting{ID: fmt.Sprint("p", n), Account: account, Kind: state.Grant, Credits: uint64(1 + b.rand.IntN(50))}
	switch b.rand.IntN(3) {
	case 0:
		p.Kind = state.Refund
	case 1:
		p.Kind, p.Corrects, p.Takes = state.Correction, "g", b.rand.IntN(2) == 0
	}
	if err := b.everywhere(&state.PostCredits{Posting: p}); err != nil {
		b.t.Fatalf("%+v: %v", p, err)
	}
	b.posted[p.ID] = int64(p.Credits)
	if p.Takes {
		b.posted[p.ID] *= -1
	}
}

// count counts requests of the account.
func (b *books) count() {
	b.t.Helper()
	b.number++
	n := uint64(1 + b.rand.IntN(3_000_000))
	cmd := &state.NoteUsage{Day: 1, Items: []state.AccountRequests{{Account: account, Count: n}}, Node: "n1", Number: b.number}
	if err := b.everywhere(cmd); err != nil {
		b.t.Fatal(err)
	}
	b.counted += n
}

// step makes one step of the history, and waits.
func (b *books) step(n int) {
	b.t.Helper()
	switch b.rand.IntN(6) {
	case 0, 1:
		b.post(n)
	case 2:
		b.count()
	case 3: // the leader ends between two charges, and misses what follows
		b.charge()
		old := b.leader()
		old.kill()
		b.leader(b.others(old.id)...)
		for i := range b.rand.IntN(30) {
			b.post(1000*n + 1000 + i)
		}
		b.charge()
		old.start()
		b.until("all are ready again", func() bool { return b.ready() == 3 })
	default:
		b.charge()
	}
	<-time.After(time.Duration(b.rand.Int64N(int64(b.period))))
}

// want compares the ledger on a node with the history.
func (b *books) want(n *testNode, end time.Time) {
	b.t.Helper()
	view, release, err := n.View(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	defer release()
	rows, err := view.Ledger(account, 0, 10_000)
	if err != nil {
		b.t.Fatal(err)
	}
	quota, err := view.Quota(account)
	if err != nil {
		b.t.Fatal(err)
	}
	var sum, charged int64
	var periods time.Duration
	for i := range rows { // newest first
		p := &rows[len(rows)-1-i]
		credits := int64(p.Credits)
		if p.Takes {
			credits = -credits
		}
		sum += credits
		if p.Seq != uint64(i+1) || int64(p.Balance) != sum {
			b.t.Errorf("%s: posting %d is %+v, and the sum %d", n.id, i+1, p, sum)
		}
		if p.Kind != state.Charge {
			if b.posted[p.ID] != credits {
				b.t.Errorf("%s: %+v was never made", n.id, p)
			}
			continue
		}
		charged -= credits
		periods++
		if at := state.MillisOf(b.began.Add(periods * b.period)); p.Made != at {
			b.t.Errorf("%s: the charge of period %d is of %d, not %d", n.id, periods, p.Made, at)
		}
	}
	if uint64(sum) != quota.Credits || len(rows) != len(b.posted)+int(periods) {
		b.t.Errorf("%s: %d postings of %d sum up to %d, and the balance is %d", n.id, len(rows), len(b.posted), sum, quota.Credits)
	}
	whole := int64(3*periods) + int64(b.counted*b.price/1_000_000)
	if want := end.Sub(b.began) / b.period; periods != want || charged != whole {
		b.t.Errorf("%s: %d credits are charged in %d periods, not %d in %d", n.id, charged, periods, whole, want)
	}
}

// On each node the postings sum up to the balance, and each posting, period and request counts once. Random postings,
// charges and counts of requests are proposed by all nodes, some several times, while leaders are killed between two
// charges and get the state back from a snapshot or from the log.
func TestTheLedgerIsRightAfterAnyHistory(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inVirtualTime(t, 3, Timings{SnapshotInterval: 10 * time.Second, SnapshotThreshold: 16, TrailingLogs: 4}, func(t *testing.T, c *testCluster) {
				b := &books{testCluster: c, rand: rand.New(rand.NewPCG(seed, 1)), period: 20 * time.Second, price: 10, posted: map[string]int64{}}
				leader := c.leader()
				c.until("the level is the newest", func() bool { return leader.fsm.level() == state.NewestFeatureLevel })
				leader.mustPin("p")
				held := heldAs(t, leader, cids[0])
				for _, id := range c.ids() {
					if err := b.everywhere(&state.ReportCopies{Node: id, Items: []state.CopyReport{held}}); err != nil {
						t.Fatal(err)
					}
				}
				for _, cmd := range []state.Command{
					&state.SetQuota{Account: account, Allowance: 0},
					&state.PostCredits{Posting: state.Posting{ID: "g", Account: account, Kind: state.Grant, Credits: 1 << 20}},
				} {
					if err := b.everywhere(cmd); err != nil {
						t.Fatal(err)
					}
				}
				b.posted["g"] = 1 << 20
				b.began = time.Now().Truncate(b.period)
				b.chargeBy(0)
				for n := range 40 {
					b.step(n)
				}
				<-time.After(b.period) // requests are charged in the period after they were counted
				end := time.Now()
				for range 2 * state.MaxChargePeriods {
					b.chargeAt(end) // proposals take time too, and the next period may begin meanwhile
				}
				for _, id := range c.ids() {
					b.want(c.nodes[id], end)
				}
				c.sameEverywhere()
			})
		})
	}
}
