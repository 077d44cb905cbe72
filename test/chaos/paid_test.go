package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const (
	payersUsed = 2
	paidBucket = "bucket"
	// paidKeys is how many objects a payer stores, again and again.
	paidKeys = 3
	// paidFor is longer than any run and any wrong clock.
	paidFor   = 24 * time.Hour
	paidBytes = 1 << 10
	paidPrice = 1000
	// paysWithin is how long a payer's authorization is valid.
	paysWithin = 8 * time.Second
	// slowSettle is what one settlement in settleOdds takes.
	slowSettle = 7 * time.Second
	settleOdds = 16
)

// purchase is a payment with what it pays for.
type purchase struct {
	payment payments.Payment
	key     string // of an object; "": it is for a pin
	body    []byte
	cid     string

	// mu guards won.
	mu  sync.Mutex
	won int // requests that were told that this payment paid for them
}

// market is the network on which payers pay, its facilitator, and what was bought.
type market struct {
	forgetful bool // the facilitator does not tell the transaction of an earlier settlement
	blind     bool // nodes take a settlement without an answer for one: a mistake

	// mu guards the fields below.
	mu       sync.Mutex
	rng      *rand.Rand
	executed map[string]int // by nonce
	sold     []*purchase
}

func newMarket(seed uint64, blind bool) *market {
	return &market{forgetful: seed%2 == 0, blind: blind, rng: rand.New(rand.NewPCG(seed, 2)), executed: map[string]int{}}
}

func (m *market) draw(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

// counter is the facilitator as one life of a node reaches it.
type counter struct {
	*market
	life *life
}

var errNoAnswer = fmt.Errorf("%w: the answer is lost", payments.ErrFacilitator)

// reach lets time pass. It returns an error for a node that has crashed: it asks nobody any more.
func (c *counter) reach(ctx context.Context) error {
	harness.Pause(ctx, time.Duration(1+c.draw(40))*time.Millisecond)
	if c.life.crashed.Load() || ctx.Err() != nil {
		return errNoAnswer
	}
	return nil
}

// Supported implements payments.Facilitator.
func (c *counter) Supported(context.Context) error { return nil }

// Verify implements payments.Facilitator.
func (c *counter) Verify(ctx context.Context, p *payments.Payment) (string, error) {
	if err := c.reach(ctx); err != nil {
		return "", err
	}
	switch c.draw(settleOdds) {
	case 0:
		return "", errNoAnswer
	case 1:
		return "", &payments.Rejected{Reason: "insufficient_funds", Payer: p.Payer}
	}
	return p.Payer, nil
}

// Settle implements payments.Facilitator. It may be slow, lose its answer before or after the network has
// executed the payment, and refuse what it has verified.
func (c *counter) Settle(ctx context.Context, p *payments.Payment) (payments.Settlement, error) {
	if err := c.reach(ctx); err != nil {
		return payments.Settlement{}, err
	}
	lost := false
	switch c.draw(settleOdds) {
	case 0:
		return c.nothing(p)
	case 1:
		return payments.Settlement{}, &payments.Rejected{Reason: "insufficient_funds", Payer: p.Payer}
	case 2, 3:
		lost = true
	case 4:
		harness.Pause(context.WithoutCancel(ctx), slowSettle) // the request is on its way, whatever becomes of the node
	}
	done, err := c.execute(p)
	if err == nil {
		err = c.reach(ctx)
	}
	if err != nil && errors.Is(err, payments.ErrFacilitator) || lost {
		return c.nothing(p)
	}
	return done, err
}

// nothing is the answer that never came.
func (c *counter) nothing(p *payments.Payment) (payments.Settlement, error) {
	if c.blind {
		return payments.Settlement{Transaction: transactionOf(p), Network: p.Network, Payer: p.Payer}, nil
	}
	return payments.Settlement{}, errNoAnswer
}

func transactionOf(p *payments.Payment) string { return "0x7a" + p.Nonce }

// execute is what the network does: it executes a nonce once, while its authorization is valid.
func (m *market) execute(p *payments.Payment) (payments.Settlement, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch first := m.executed[p.Nonce] == 0; {
	case first && time.Now().Unix() >= p.ValidBefore, !first && m.forgetful:
		return payments.Settlement{}, &payments.Rejected{Reason: "invalid_transaction_state", Payer: p.Payer}
	case first:
		m.executed[p.Nonce]++
	}
	return payments.Settlement{Transaction: transactionOf(p), Network: p.Network, Payer: p.Payer}, nil
}

// payer buys one thing after the other, of any node, and sends some payments twice.
type payer struct {
	number  int
	rng     *rand.Rand
	market  *market
	cluster *cluster
	library *library
	bought  int
	// unexpected gets what no payer should be told.
	unexpected func(error)
}

// run buys until ctx ends.
func (p *payer) run(ctx context.Context) {
	for ctx.Err() == nil {
		b := p.next()
		var sent sync.WaitGroup
		at := p.rng.IntN(len(p.cluster.members))
		times := 1 + max(0, p.rng.IntN(4)-2) // one payment of four goes to two nodes at once
		for i := range times {
			sent.Go(func() { p.send(b, p.cluster.members[(at+i)%len(p.cluster.members)]) })
		}
		sent.Wait()
		harness.Pause(ctx, time.Duration(p.rng.Int64N(int64(thinking))))
	}
}

// next returns what to buy next.
func (p *payer) next() *purchase {
	p.bought++
	address := fmt.Sprintf("0xpayer%d", p.number)
	b := &purchase{payment: payments.Payment{
		X402Version: 1, Payload: []byte(`{"signed":true}`), Requirements: []byte(`{"amount":"1000"}`), Network: "base-sepolia", Asset: "0xa55e7", PayTo: "0x9a7ee",
		Payer: address, Nonce: fmt.Sprintf("0x%d%04d", p.number, p.bought), Value: big.NewInt(paidPrice), ValidBefore: time.Now().Add(paysWithin).Unix(),
	}}
	if id, ok := p.library.any(p.rng); ok && p.rng.IntN(3) == 0 {
		b.cid = id
	} else {
		b.key = fmt.Sprintf("%d/%d", p.number, p.rng.IntN(paidKeys))
		b.body = bytes.Repeat([]byte(b.payment.Nonce), paidBytes/len(b.payment.Nonce))
		sum, err := multihash.Sum(b.body, multihash.BLAKE3, 32)
		p.unexpected(err)
		p.library.keep(cid.NewCidV1(cid.Raw, sum).String(), b.body)
	}
	p.market.mu.Lock()
	defer p.market.mu.Unlock()
	p.market.sold = append(p.market.sold, b)
	return b
}

// keep adds content that clients do not pin.
func (l *library) keep(cid string, b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes[cid] = b
}

// send sends a payment to a node.
func (p *payer) send(b *purchase, at *member) {
	l := at.call()
	if l == nil {
		return // nobody answers
	}
	defer l.calls.Done()
	call, cancel := context.WithTimeout(l.ctx, maxPatience)
	defer cancel()
	var err error
	if b.cid != "" {
		_, err = l.Payments().Pin(call, payments.PinRequest{
			CID: b.cid, Name: b.payment.Nonce, TTL: paidFor, MaxBytes: 1 << 30, Amount: big.NewInt(paidPrice), Payment: b.payment,
		})
	} else {
		_, err = l.Payments().Put(call, payments.PutRequest{
			Bucket: paidBucket, Key: b.key, Body: objects.Body{Reader: bytes.NewReader(b.body), Size: int64(len(b.body))}, TTL: paidFor,
			Amount: big.NewInt(paidPrice), Payment: b.payment,
		})
	}
	if l.crashed.Load() {
		return // the answer was never sent
	}
	var rejected *payments.Rejected
	var refund *payments.RefundError
	switch {
	case err == nil:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.won++
	case errors.As(err, &rejected), errors.As(err, &refund), errors.Is(err, payments.ErrFacilitator), errors.Is(err, payments.ErrPaymentUsed),
		errors.Is(err, payments.ErrBusy), errors.Is(err, state.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, state.ErrNoSpace):
	default:
		p.unexpected(fmt.Errorf("payer %d at node %d: %w", p.number, at.number+1, err))
	}
}

// decided returns whether the state that a node has applied knows what became of all executed payments.
func (m *market) decided(ctx context.Context, l *life) bool {
	var executed []*purchase
	m.mu.Lock()
	for _, b := range m.sold {
		if m.executed[b.payment.Nonce] > 0 {
			executed = append(executed, b)
		}
	}
	m.mu.Unlock()
	for _, b := range executed { // without the lock: a read waits for virtual time to pass
		if row, err := l.Payments().Payment(ctx, b.payment.ID()); err != nil || row.State == state.PaymentReserved {
			return false
		}
	}
	return true
}

// check checks the state of a node after the run: nothing is stored unpaid, no payment is executed twice, each
// executed payment has a row, and what is paid for is stored or its row says that it is refundable.
func (m *market) check(ctx context.Context, s state.View, got *report) error {
	stored, pinned := map[string]bool{}, map[state.RequestID]bool{}
	for _, b := range m.sold {
		nonce, times := b.payment.Nonce, m.executed[b.payment.Nonce]
		row, err := s.Payment(b.payment.ID())
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
		is := fmt.Sprintf("payment %s, executed %d times and told to be paid %d times, is %s, transaction %q, reason %q", nonce, times, b.won, row.State, row.Transaction, row.Reason)
		paid := row.State == state.PaymentPaid
		switch {
		case times > 1, b.won > 1, b.won == 1 && !paid, paid && times == 0:
			return errors.New(is)
		case times == 1 && !paid && row.State != state.PaymentRefundable:
			return errors.New(is)
		case row.Transaction != "" && (times == 0 || row.Transaction != transactionOf(&b.payment)):
			return errors.New(is)
		}
		if paid && b.cid == "" {
			stored[row.Object] = true
		} else if paid {
			pinned[row.Pin] = true
		}
		got.Payments[row.State]++
	}
	return errors.Join(m.checkObjects(s, stored), checkPaidPins(ctx, s, pinned))
}

// checkObjects checks that exactly the objects that were paid for are stored.
func (m *market) checkObjects(s state.View, stored map[string]bool) error {
	bucket, err := s.Bucket(state.PaidAccount, state.PaidBucket)
	if errors.Is(err, state.ErrNoBucket) && len(stored) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	for number := range payersUsed {
		for key := range paidKeys {
			name := paidBucket + "/" + strconv.Itoa(number) + "/" + strconv.Itoa(key)
			o, err := s.Object(&bucket, name)
			if err != nil && !errors.Is(err, state.ErrNoKey) {
				return err
			}
			if there := err == nil; there != stored[name] {
				return fmt.Errorf("object %s is paid for: %t; it is stored: %t", name, stored[name], there)
			}
			if err != nil {
				continue
			}
			if root, err := s.Root(o.Root); err != nil || root.Status != state.Pinned {
				return fmt.Errorf("the content of paid object %s is %s: %w", name, root.Status, err)
			}
		}
	}
	return nil
}

// checkPaidPins checks that exactly the pins that were paid for exist.
func checkPaidPins(ctx context.Context, s state.View, pinned map[state.RequestID]bool) error {
	_, all, err := s.ListPins(ctx, state.PaidAccount, state.PinQuery{Limit: 1000})
	if err != nil {
		return err
	}
	for _, p := range all {
		if !pinned[p.ID] {
			return fmt.Errorf("pin %s of payment %s exists, and is not paid", p.ID, p.Name)
		}
		delete(pinned, p.ID)
	}
	if len(pinned) > 0 {
		return fmt.Errorf("%d pins are paid, and do not exist", len(pinned))
	}
	return nil
}
