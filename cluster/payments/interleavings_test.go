package payments

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// interleavings is the number of histories that TestAnyInterleavingKeepsThePromises draws.
const interleavings = 1000

// storm is what one node meets in a drawn history: pauses, leader changes, and its own end.
type storm struct {
	*world
	mu     sync.Mutex
	rng    *rand.Rand
	faults bool
	dead   bool // the node has stopped: none of its goroutines goes on
	disk   disk
	told   bool // the facilitator told the node that it has settled the payment
}

// draw returns a number from 0 to n-1.
func (s *storm) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// step is between any two steps of an attempt. It waits, and a node that crashes goes no further.
func (s *storm) step() {
	after(time.Duration(s.draw(50)) * time.Millisecond)
	s.mu.Lock()
	if s.faults && s.rng.IntN(40) == 0 {
		s.dead = true
	}
	dead := s.dead
	s.mu.Unlock()
	if dead {
		runtime.Goexit()
	}
}

// calm ends the faults: the node starts again.
func (s *storm) calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.dead = false, false
}

// faulty returns whether the node meets faults.
func (s *storm) faulty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// wasTold returns whether the facilitator told the node that it has settled the payment.
func (s *storm) wasTold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}

// View implements State.
func (s *storm) View(ctx context.Context) (state.View, func(), error) {
	s.step()
	return s.state.View(ctx)
}

// LocalView implements State.
func (s *storm) LocalView() (state.View, func()) { return s.state.LocalView() }

// IsLeader implements State.
func (s *storm) IsLeader() bool { return true }

// Propose implements State. When the leader changes, the proposer does not learn whether the command is
// applied, and it may be applied later.
func (s *storm) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	s.step()
	change := s.faulty() && s.draw(6) == 0
	if change && s.draw(2) == 0 {
		return state.Result{}, state.ErrUnavailable
	}
	result, err := s.state.Propose(ctx, cmd)
	s.step()
	if change {
		return state.Result{}, state.ErrUnavailable
	}
	return result, err
}

// Verify implements Facilitator.
func (s *storm) Verify(ctx context.Context, p *Payment) (string, error) {
	s.step()
	if s.faulty() && s.draw(20) == 0 {
		return "", errCut
	}
	return s.chain.Verify(ctx, p)
}

// Settle implements Facilitator.
func (s *storm) Settle(ctx context.Context, p *Payment) (Settlement, error) {
	s.step()
	if !s.faulty() {
		return s.chain.Settle(ctx, p)
	}
	switch s.draw(8) {
	case 0:
		return Settlement{}, errCut
	case 1:
		return Settlement{}, &Rejected{Reason: "insufficient_funds"}
	case 2: // the answer is lost
		_, _ = s.chain.Settle(ctx, p)
		return Settlement{}, errCut
	case 3:
		after(20 * time.Second)
	}
	done, err := s.chain.Settle(ctx, p)
	s.step()
	s.mu.Lock()
	s.told = s.told || err == nil
	s.mu.Unlock()
	return done, err
}

// Supported implements Facilitator.
func (s *storm) Supported(context.Context) error { return nil }

// bads are payments that nobody may get anything for, by what is wrong with them.
var bads = [...]struct {
	what   string
	change func(*Payment)
}{
	{"short", func(p *Payment) { p.Value = big.NewInt(999) }},
	{"expired", func(p *Payment) { p.ValidBefore = time.Now().Unix() }},
	{"forged", func(p *Payment) { p.Payload = []byte(`{"By":"0xmal","PayTo":"0x9a7ee","Network":"base-sepolia"}`) }},
	{"for another recipient", func(p *Payment) { p.Payload = []byte(`{"By":"0xann","PayTo":"0xmal","Network":"base-sepolia"}`) }},
	{"for another network", func(p *Payment) { p.Payload = []byte(`{"By":"0xann","PayTo":"0x9a7ee","Network":"base"}`) }},
}

// In any history of three nodes, one attempt of a payment wins at most, nothing is stored unpaid and nothing is paid
// twice. The nodes get the same payment for an object or a pin at once, another payment for the object, and a payment
// that is short, expired, forged, or for another recipient or network: the last one leaves no record, and a payment
// that is sent again at the end gets nothing. A payment that was executed is paid, with its content stored, or
// refundable. If a node was told of the settlement, the record of the payment has the transaction, after a crash too.
// If the facilitator remembers its settlements, the record of each payment that was executed has the transaction in
// the end. Without faults, exactly one attempt of each payer wins.
func TestAnyInterleavingKeepsThePromises(t *testing.T) {
	met := map[state.PaymentState]int{}
	for seed := range uint64(interleavings) {
		synctest.Test(t, func(t *testing.T) { interleave(t, seed, met, mistake{}, nil) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, s := range []state.PaymentState{0, state.PaymentPaid, state.PaymentFailed, state.PaymentRefundable} {
		if met[s] < interleavings/50 {
			t.Errorf("%d payments of %d histories are in the end %s", met[s], interleavings, s)
		}
	}
	t.Log(met)
}

// mistake is what nodes do wrong on purpose.
type mistake struct {
	state       func(*storm) State
	facilitator func(*storm) Facilitator
}

// interleave draws a history, and reports to wrong what it finds; nil: to t.
func interleave(t *testing.T, seed uint64, met map[state.PaymentState]int, m mistake, wrong func(string, ...any)) {
	t.Helper()
	w := newWorld(t)
	if wrong != nil {
		w.wrong = wrong
	}
	faults := seed%4 != 0
	same, other := signedOf("0x1", 10*time.Minute), signedOf("0x2", 10*time.Minute)
	w.chain.remembers = seed%5 < 3
	if seed%3 == 0 {
		other.Payer = "0xbob"
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	won := map[string]int{}
	answers := map[string][]error{}
	var work sync.WaitGroup
	storms := map[*storm]Payment{}
	bad, is := signedOf("0x3", 10*time.Minute), bads[seed/5%uint64(len(bads))]
	is.change(&bad)
	for i, pay := range []Payment{same, same, same, other, bad} {
		node := state.NodeID(fmt.Sprintf("n%d", i%3+1))
		s := &storm{world: w, rng: rand.New(rand.NewPCG(seed, uint64(i))), faults: faults}
		storms[s] = pay
		p := w.onDisk(node, m.stateOf(s), m.facilitatorOf(s), &s.disk)
		work.Go(func() {
			var err error
			if seed%3 == 1 && pay.Nonce == same.Nonce {
				_, err = p.Pin(ctx, PinRequest{CID: pinnedCID, TTL: time.Minute, MaxBytes: 300, Amount: big.NewInt(1000), Payment: pay})
			} else {
				_, err = p.Put(ctx, putOf("k", "hello "+pay.Nonce, pay))
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won[pay.Nonce]++
			}
			answers[pay.Nonce] = append(answers[pay.Nonce], err)
		})
	}
	work.Wait()
	cancel() // what crashed nodes have left running
	sweep := func() {
		after(time.Hour)                                                        // more than state.PaymentTimeout
		w.state.Apply(t, &state.SweepPayments{Now: state.MillisOf(time.Now())}) // reservations of crashed nodes
	}
	if seed%2 == 0 {
		sweep() // before they start again
	}
	lives := map[*storm]*Payments{}
	for s, pay := range storms {
		s.calm()
		lives[s] = w.onDisk("again", w.state, s, &s.disk)
		lives[s].recall(t.Context())
		if row := w.row(pay); s.wasTold() && row.Transaction != "0x7a"+pay.Nonce {
			w.wrong("the facilitator told the transaction of payment %s, which is %s with %q", pay.Nonce, row.State, row.Transaction)
		}
	}
	sweep()
	for _, p := range lives {
		p.recall(t.Context())
	}
	for s, pay := range storms {
		if row := w.row(pay); w.chain.remembers && w.chain.times(pay.Nonce) > 0 && row.Transaction != "0x7a"+pay.Nonce {
			w.wrong("payment %s was executed, and is %s with the transaction %q", pay.Nonce, row.State, row.Transaction)
		}
		if len(s.disk.entries) > 0 || lives[s].Unanswered() > 0 {
			w.wrong("the journal of a node has %d entries in the end, and %d settlements have no answer", len(s.disk.entries), lives[s].Unanswered())
		}
	}
	for _, p := range lives {
		if _, err := p.Put(t.Context(), putOf("k", "hello 0x1", same)); err == nil || w.row(same).State != 0 && !errors.Is(err, ErrPaymentUsed) {
			w.wrong("payment 0x1, which is %s, was sent again: %v", w.row(same).State, err)
		}
	}
	if row := w.row(bad); won["0x3"] > 0 || row.State != 0 || w.chain.times("0x3") > 0 {
		w.wrong("a payment that is %s won %d times, is %s, and was executed %d times", is.what, won["0x3"], row.State, w.chain.times("0x3"))
	}
	for nonce, n := range won {
		row := w.row(map[string]Payment{"0x1": same, "0x2": other, "0x3": bad}[nonce])
		if n > 1 || row.State != state.PaymentPaid {
			w.wrong("%d attempts of payment %s won, and it is %s", n, nonce, row.State)
		}
	}
	if !faults {
		if won["0x1"] > 1 || won["0x1"]+won["0x2"] == 0 || same.Payer == other.Payer && (won["0x1"] != 1 || won["0x2"] != 1) {
			w.wrong("without faults, %v attempts won: %v", won, answers)
		}
		for _, err := range answers["0x1"] {
			if err != nil && !errors.Is(err, ErrPaymentUsed) && !errors.Is(err, ErrBusy) && !errors.Is(err, ErrNotOwner) {
				w.wrong("a losing attempt got %v", err)
			}
		}
	}
	met[w.row(same).State]++
	met[w.row(other).State]++
	w.check("b/k", same, other, bad)
}

// pinnedCID is the content of paid pins.
const pinnedCID = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"

func (m mistake) stateOf(s *storm) State {
	if m.state == nil {
		return s
	}
	return m.state(s)
}

func (m mistake) facilitatorOf(s *storm) Facilitator {
	if m.facilitator == nil {
		return s
	}
	return m.facilitator(s)
}

// hasty stores content before the payment is settled.
type hasty struct{ *storm }

// Settle implements Facilitator.
func (h hasty) Settle(ctx context.Context, p *Payment) (Settlement, error) {
	go func() { _, _ = h.storm.Settle(context.WithoutCancel(ctx), p) }() // synctest.Test waits for it
	return Settlement{Transaction: "0x7a" + p.Nonce, Network: p.Network, Payer: p.Payer}, nil
}

// trusting takes a settlement without an answer for one.
type trusting struct{ *storm }

// Settle implements Facilitator.
func (f trusting) Settle(ctx context.Context, p *Payment) (Settlement, error) {
	done, err := f.storm.Settle(ctx, p)
	if errors.Is(err, ErrFacilitator) {
		done, err = Settlement{Transaction: "0x7a" + p.Nonce, Network: p.Network, Payer: p.Payer}, nil
	}
	return done, err
}

// careless calls a payment that may have been settled a failed one.
type careless struct{ *storm }

// Propose implements State.
func (c careless) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	if f, ok := cmd.(*state.FailPayment); ok && f.Refundable {
		failed := *f
		failed.Refundable = false
		cmd = &failed
	}
	return c.storm.Propose(ctx, cmd)
}

// gullible does not ask whether a payment is good.
type gullible struct{ *storm }

// Verify implements Facilitator.
func (gullible) Verify(_ context.Context, p *Payment) (string, error) { return p.Payer, nil }

// The histories find each mistake with payments that a node makes on purpose.
func TestMistakesWithPaymentsAreFound(t *testing.T) {
	for name, m := range map[string]mistake{
		"stored before it is settled":  {facilitator: func(s *storm) Facilitator { return hasty{s} }},
		"stored without an answer":     {facilitator: func(s *storm) Facilitator { return trusting{s} }},
		"stored before it is verified": {facilitator: func(s *storm) Facilitator { return gullible{s} }},
		"failed, and maybe settled":    {state: func(s *storm) State { return careless{s} }},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			found := ""
			for seed := uint64(0); seed < interleavings && found == ""; seed++ {
				synctest.Test(t, func(t *testing.T) {
					interleave(t, seed, map[state.PaymentState]int{}, m, func(format string, args ...any) {
						mu.Lock()
						defer mu.Unlock()
						found = fmt.Sprintf("seed %d: "+format, append([]any{seed}, args...)...)
					})
				})
			}
			if found == "" {
				t.Errorf("%d histories did not find it", interleavings)
			}
			t.Log(found)
		})
	}
}
