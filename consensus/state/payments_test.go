package state

import (
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// testPayment returns a payment of one payer for an object.
func testPayment(nonce string) Payment {
	return Payment{
		ID:   PaymentID{Network: "base-sepolia", Asset: "0xa55e7", Payer: "0xann", Nonce: nonce},
		Kind: PaysObject, Amount: "1000", PayTo: "0x9a7ee", Request: "request " + nonce, Node: "n1", Object: "b/k", Bytes: 9, Seconds: 60, Reserved: 1000,
	}
}

// till is a machine at PaymentsLevel with what tests of payments do.
type till struct{ *machine }

func newTill(t reporter) *till {
	t.Helper()
	return &till{rich(t, Unlimited)}
}

func (m *till) reserve(p Payment, now Millis) {
	m.t.Helper()
	m.must(&ReservePayment{Payment: p, Now: now})
}

func (m *till) commits(p Payment, version VersionID, content string, now Millis) *CommitPayment {
	m.t.Helper()
	b, err := m.view().Bucket(PaidAccount, PaidBucket)
	if err != nil {
		m.t.Fatal(err)
	}
	put := (&shelf{m.machine, b}).putOf(p.Object, version, content)
	return &CommitPayment{PaymentOutcome: PaymentOutcome{Payment: p, Transaction: "0x7a", Now: now}, Put: put}
}

// is returns the record of a payment.
func (m *till) is(p Payment) Payment {
	m.t.Helper()
	got, err := m.view().Payment(p.ID)
	if err != nil {
		m.t.Fatal(err)
	}
	return got
}

// wantState checks the state of a payment, and that its reason contains a text.
func (m *till) wantState(p Payment, want PaymentState, reason string) {
	m.t.Helper()
	if got := m.is(p); got.State != want || !strings.Contains(got.Reason, reason) || (reason == "") != (got.Reason == "") {
		m.t.Errorf("payment %s is %s, %q, want %s, %q", p.ID.Nonce, got.State, got.Reason, want, reason)
	}
	m.check()
}

// wantContent checks which version is stored under the object of a payment; "" for none.
func (m *till) wantContent(p Payment, want VersionID) {
	m.t.Helper()
	b, err := m.view().Bucket(PaidAccount, PaidBucket)
	if err != nil {
		m.t.Fatal(err)
	}
	o, err := m.view().Object(&b, p.Object)
	if err != nil && !errors.Is(err, ErrNoKey) || o.ID != want {
		m.t.Errorf("%s has the content %q, %v, want %q", p.Object, o.ID, err, want)
	}
}

// One attempt reserves a payment and commits it once, and any later attempt is rejected or changes nothing. The
// same attempt can renew its reservation.
func TestAPaymentIsReservedOnceAndCommitsOnce(t *testing.T) {
	m := newTill(t)
	p := testPayment("0x1")
	m.reserve(p, 1000)
	m.wantState(p, PaymentReserved, "")
	m.wantContent(p, "")
	again := p
	again.Request = "another"
	m.refused(&ReservePayment{Payment: again, Now: 1001}, ErrExists)
	m.reserve(p, 1002) // the same attempt renews it
	if got := m.is(p); got.Renewed != 1002 || got.Reserved != 1000 {
		t.Errorf("renewed: %+v", got)
	}
	m.must(m.commits(p, "v1", contents[2], 2000))
	m.wantState(p, PaymentPaid, "")
	m.wantContent(p, "v1")
	if got := m.is(p); got.Until != 62_000 || got.Settled != 2000 || got.Transaction != "0x7a" {
		t.Errorf("paid: %+v", got)
	}
	before := m.rows()
	m.must(m.commits(p, "v1", contents[2], 3000))
	if !slices.Equal(m.rows(), before) {
		t.Error("a repeat changed something")
	}
	m.refused(&ReservePayment{Payment: p, Now: 3000}, ErrExists)
	m.must(&FailPayment{PaymentOutcome{Payment: p, Now: 3000}, true, "late"})
	m.wantState(p, PaymentPaid, "")
	m.refused(&FailPayment{PaymentOutcome{Payment: again, Now: 3000}, true, "late"}, ErrExists)
}

// Another attempt can reserve a payment after the attempt that holds it has released it. No other attempt releases
// it, and a payment that is paid stays paid.
func TestAReleasedPaymentCanBeUsedAgain(t *testing.T) {
	m := newTill(t)
	p := testPayment("0x1")
	m.reserve(p, 1000)
	m.must(&ReleasePayment{p.ID, "another"})
	m.wantState(p, PaymentReserved, "")
	m.must(&ReleasePayment{p.ID, p.Request})
	if _, err := m.view().Payment(p.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("released: %v", err)
	}
	m.check()
	other := testPayment("0x2")
	other.ID.Payer = "0xbob"
	m.reserve(other, 1001)
	m.must(&ReleasePayment{other.ID, other.Request})
	p.Request = "another"
	m.reserve(p, 1002)
	m.must(m.commits(p, "v1", contents[2], 2000))
	m.must(&ReleasePayment{p.ID, p.Request})
	m.wantState(p, PaymentPaid, "")
}

// Only the payer of a paid object can replace or delete the object while its time lasts. After a deletion another
// payer can have the name.
func TestOnlyTheOwnerChangesAPaidObject(t *testing.T) {
	m := newTill(t)
	p, other := testPayment("0x1"), testPayment("0x2")
	other.ID.Payer = "0xbob"
	deletes := func(p Payment) Payment {
		p.Kind, p.Seconds, p.ID.Nonce, p.Request = PaysDelete, 0, p.ID.Nonce+"d", p.Request+"d"
		return p
	}
	m.refused(&ReservePayment{Payment: deletes(p), Now: 1000}, ErrNotFound)
	m.reserve(p, 1000)
	m.refused(&ReservePayment{Payment: other, Now: 1000}, ErrConflict)
	m.must(m.commits(p, "v1", contents[2], 2000))
	m.refused(&ReservePayment{Payment: other, Now: 61_999}, ErrForbidden)
	m.refused(&ReservePayment{Payment: deletes(other), Now: 61_999}, ErrForbidden)
	d := deletes(p)
	m.reserve(d, 3000)
	m.must(&DeletePaidObject{PaymentOutcome{d, "0x7b", 3001}})
	m.wantState(d, PaymentPaid, "")
	m.wantContent(p, "")
	m.must(&DeletePaidObject{PaymentOutcome{d, "0x7b", 3002}})
	if _, err := m.view().PaidObject(p.Object); !errors.Is(err, ErrNotFound) {
		t.Errorf("owner after the deletion: %v", err)
	}
	m.reserve(other, 3003)
	m.must(m.commits(other, "v2", contents[2], 3004))
	m.wantContent(p, "v2")
}

// EndPaidObjects removes an object when its time is over, and keeps its owner's record for PaidTrace. An object of
// equal content stays.
func TestAnObjectEndsAloneAndLeavesATrace(t *testing.T) {
	m := newTill(t)
	p, stays := testPayment("0x1"), testPayment("0x2")
	stays.Object, stays.Seconds = "b/stays", 600
	for i, p := range []Payment{p, stays} {
		m.reserve(p, 1000)
		m.must(m.commits(p, VersionID(fmt.Sprint("v", i)), contents[2], 2000)) // equal contents
	}
	m.must(&EndPaidObjects{61_999})
	m.wantContent(p, "v0")
	m.must(&EndPaidObjects{62_000})
	m.check()
	m.wantContent(p, "")
	m.wantContent(stays, "v1")
	if o, err := m.view().PaidObject(p.Object); err != nil || !o.Ended || o.Until != 62_000 || o.Payer != p.ID.Payer {
		t.Errorf("after the end: %+v, %v", o, err)
	}
	m.must(&EndPaidObjects{62_000 + PaidTrace - 1})
	if _, err := m.view().PaidObject(p.Object); err != nil {
		t.Error(err)
	}
	m.must(&EndPaidObjects{62_000 + PaidTrace})
	if _, err := m.view().PaidObject(p.Object); !errors.Is(err, ErrNotFound) {
		t.Errorf("the trace: %v", err)
	}
	m.check()
}

// Paid time is added to what is left for the same content, and begins anew for other content.
func TestPaidTimeIsAddedToThatOfTheSameContent(t *testing.T) {
	m := newTill(t)
	until := func(nonce string, version VersionID, content string, now Millis) Millis {
		p := testPayment(nonce)
		m.reserve(p, now)
		m.must(m.commits(p, version, content, now))
		o, err := m.view().PaidObject(p.Object)
		if err != nil || o.Until != m.is(p).Until {
			t.Fatal(o, err)
		}
		m.check()
		return o.Until
	}
	for i, step := range []struct {
		content   string
		now, want Millis
	}{
		{contents[2], 2000, 62_000},
		{contents[2], 3000, 122_000}, // added
		{contents[4], 4000, 64_000},  // other content begins anew
		{contents[4], 64_000, 124_000},
	} {
		if got := until(fmt.Sprint("0x", i), VersionID(fmt.Sprint("v", i)), step.content, step.now); got != step.want {
			t.Errorf("step %d: until %d, want %d", i, got, step.want)
		}
	}
}

// A settled payment becomes refundable if the state rejects its content or the reservation is gone. Its record has
// the reason and the transaction, and a repeat changes nothing.
func TestASettledPaymentWithoutContentIsRefundable(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*till, Payment)
		change func(*CommitPayment)
		reason string
	}{
		"the state refuses the object": {change: func(c *CommitPayment) { c.Put.Object.ETag = "" }, reason: "needs an ETag"},
		"swept":                        {before: func(m *till, _ Payment) { m.must(&SweepPayments{1000 + PaymentTimeout}) }, reason: "the payment was settled and is not reserved any more"},
		"lost":                         {before: func(m *till, p Payment) { m.must(&ReleasePayment{p.ID, p.Request}) }, reason: "the reservation was lost"},
		"refused before": {
			before: func(m *till, p Payment) { m.must(&FailPayment{PaymentOutcome{p, "", 1500}, false, "no"}) },
			reason: "the payment was settled and is not reserved any more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newTill(t)
			p := testPayment("0x1")
			m.reserve(p, 1000)
			if tc.before != nil {
				tc.before(m, p)
			}
			c := m.commits(p, "v1", contents[2], 2000)
			if tc.change != nil {
				tc.change(c)
			}
			m.must(c)
			m.wantState(p, PaymentRefundable, tc.reason)
			m.wantContent(p, "")
			if got := m.is(p); got.Transaction != "0x7a" {
				t.Errorf("the transaction is %q", got.Transaction)
			}
			before := m.rows()
			m.must(c)
			if !slices.Equal(m.rows(), before) {
				t.Error("a repeat changed something")
			}
		})
	}
}

// A swept payment has a reason that says that it may have been settled, until its transaction is known. Members of
// older releases write other reasons, and so do all members below the feature level.
func TestAPaymentThatMayHaveBeenSettledSaysSo(t *testing.T) {
	for level, want := range map[FeatureLevel][2]string{
		NewestFeatureLevel:    {SweptReason, "settled"},
		plainReasonsLevel - 1: {sweptReason10, sweptReason10},
	} {
		m := newTill(t)
		if level < NewestFeatureLevel {
			m = &till{machine: found(t)}
			m.must(&RaiseLevel{FeatureLevel: level})
		}
		p := testPayment("0x1")
		m.reserve(p, 1000)
		m.must(&SweepPayments{1000 + PaymentTimeout})
		m.wantState(p, PaymentRefundable, want[0])
		m.must(&FailPayment{PaymentOutcome{p, "", 2000}, true, "nothing new"})
		m.wantState(p, PaymentRefundable, want[0])
		m.must(&FailPayment{PaymentOutcome{p, "0x7a", 2000}, true, "settled"})
		m.wantState(p, PaymentRefundable, want[1])
		m.must(&FailPayment{PaymentOutcome{p, "0x7b", 2000}, true, "settled again"})
		m.wantState(p, PaymentRefundable, want[1])
		if got := m.is(p).Transaction; got != "0x7b" {
			t.Errorf("at level %d the transaction is %q", level, got)
		}
		m.check()
	}
}

// A commit of content with too few holders is ErrConflict and changes nothing, so its proposer can try again.
func TestACommitWithTooFewHoldersChangesNothing(t *testing.T) {
	m := newTill(t)
	p := testPayment("0x1")
	m.reserve(p, 1000)
	c := m.commits(p, "v1", contents[2], 2000)
	c.Put.Content.Held = c.Put.Content.Held[:1]
	m.refused(c, ErrConflict)
	m.wantState(p, PaymentReserved, "")
	m.must(m.commits(p, "v1", contents[2], 2000))
	m.wantState(p, PaymentPaid, "")
}

// A reservation becomes refundable by a sweep PaymentTimeout after it was renewed last, and not before.
func TestAReservationThatIsRenewedIsNotSwept(t *testing.T) {
	m := newTill(t)
	p := testPayment("0x1")
	m.reserve(p, 1000)
	m.reserve(p, 500_000)
	m.must(&SweepPayments{500_000 + PaymentTimeout - 1})
	m.wantState(p, PaymentReserved, "")
	m.wantDue(500_000+PaymentTimeout-1, nil)
	m.wantDue(500_000+PaymentTimeout, &SweepPayments{500_000 + PaymentTimeout})
	m.must(&SweepPayments{500_000 + PaymentTimeout})
	m.wantState(p, PaymentRefundable, SweptReason)
	m.refused(&ReservePayment{Payment: p, Now: 600_000}, ErrExists)
}

// wantDue checks the command that is due at a time.
func (m *till) wantDue(now Millis, want Command) {
	m.t.Helper()
	if got, err := m.view().PaymentsDue(now); err != nil || !reflect.DeepEqual(got, want) {
		m.t.Errorf("at %d %T %+v is due, %v, want %+v", now, got, got, err, want)
	}
}

// The record of a failed payment goes when nobody can send the payment any more, and all others stay.
func TestFailedPaymentsAreForgottenWhenNobodyCanSendThemAgain(t *testing.T) {
	m := newTill(t)
	at := func(nonce string, validBefore Millis) Payment {
		p := testPayment(nonce)
		p.Object, p.ValidBefore = "b/"+nonce, validBefore
		m.reserve(p, 1000)
		return p
	}
	fails := func(p Payment, refundable bool) Payment {
		m.must(&FailPayment{PaymentOutcome{p, "", 5000}, refundable, "no"})
		return p
	}
	short, long := fails(at("0x1", 2000), false), fails(at("0x2", 90_000), false)
	endless, unknown := fails(at("0x3", maxCreated), false), fails(at("0x4", 0), false)
	owed, paid := fails(at("0x5", 2000), true), at("0x6", 2000)
	m.must(m.commits(paid, "v1", contents[2], 5000))
	late := fails(at("0x7", 3000), false)
	m.must(m.commits(late, "v2", contents[2], 6000)) // it was settled after all
	m.must(&EndPaidObjects{5000 + 60_000})
	gone := func(all ...Payment) {
		t.Helper()
		for i := range all {
			if _, err := m.view().Payment(all[i].ID); !errors.Is(err, ErrNotFound) {
				t.Errorf("payment %s: %v", all[i].ID.Nonce, err)
			}
		}
	}
	m.wantDue(5000+FailedTrace-1, nil)
	m.must(&ForgetPayments{5000 + FailedTrace - 1})
	m.wantState(short, PaymentFailed, "no")
	m.refused(&ReservePayment{Payment: short, Now: 5000 + FailedTrace - 1}, ErrExists)
	m.wantDue(5000+FailedTrace, &ForgetPayments{5000 + FailedTrace})
	m.must(&ForgetPayments{5000 + FailedTrace})
	gone(short)
	m.wantState(long, PaymentFailed, "no")
	m.must(&ForgetPayments{90_000 + FailedTrace - 1})
	m.wantState(long, PaymentFailed, "no")
	m.must(&ForgetPayments{90_000 + FailedTrace})
	gone(short, long)
	m.check()
	for _, p := range []Payment{short, long} {
		m.refused(&ReservePayment{Payment: p, Now: 90_000 + FailedTrace}, ErrInvalid)
	}
	m.must(&ForgetPayments{maxCreated})
	m.wantState(endless, PaymentFailed, "no")
	m.wantState(unknown, PaymentFailed, "no")
	m.wantState(owed, PaymentRefundable, "no")
	m.wantState(late, PaymentRefundable, "not reserved any more")
	m.wantState(paid, PaymentPaid, "")
	sums, err := m.view().PaymentSums()
	if want := []PaymentSum{
		{PaymentPaid, "base-sepolia", "0xa55e7", 1, "1000"}, {PaymentFailed, "base-sepolia", "0xa55e7", 2, "2000"}, {PaymentRefundable, "base-sepolia", "0xa55e7", 2, "2000"},
	}; err != nil || !slices.Equal(sums, want) {
		t.Errorf("the sums are %v, %v, want %v", sums, err, want)
	}
}

// One command forgets a bounded number of payments, the earliest first.
func TestOneCommandForgetsABoundedNumberOfPayments(t *testing.T) {
	m := newTill(t)
	for i := range MaxSettle + 2 {
		p := testPayment(fmt.Sprintf("0x%04x", i))
		p.ValidBefore = Millis(2000 + i)
		m.must(&FailPayment{PaymentOutcome{p, "", 1500}, false, "no"})
	}
	m.must(&ForgetPayments{10_000 + FailedTrace})
	left, more, err := m.view().Payments(PaymentsQuery{Limit: 10})
	if err != nil || more || len(left) != 2 || left[1].ID.Nonce != fmt.Sprintf("0x%04x", MaxSettle+1) {
		t.Errorf("%d payments are left, %t, %v", len(left), more, err)
	}
	m.must(&ForgetPayments{10_000 + FailedTrace})
	if left, _, err := m.view().Payments(PaymentsQuery{Limit: 10}); err != nil || len(left) != 0 {
		t.Errorf("%d payments are left, %v", len(left), err)
	}
	m.check()
}

// CommitPayment creates a paid pin that ends when its time is over, and the payment is paid.
func TestAPaidPin(t *testing.T) {
	m := newTill(t)
	p := testPayment("0x1")
	p.Kind, p.Object, p.Pin = PaysPin, "", "pin"
	m.reserve(p, 1000)
	pin := &CreatePin{Pin: Pin{ID: "pin", Account: PaidAccount, CID: contents[0], Created: 1}, Nodes: []NodeID{"n1", "n2"}}
	c := &CommitPayment{PaymentOutcome: PaymentOutcome{p, "0x7a", 2000}, Pin: pin}
	if r := m.must(c); r.Pin == nil || r.Pin.ID != "pin" {
		t.Errorf("the result is %+v", r)
	}
	m.wantState(p, PaymentPaid, "")
	if got, err := m.view().Pin(PaidAccount, "pin"); err != nil || got.Status != Queued || got.Until != 62_000 {
		t.Errorf("%+v, %v", got, err)
	}
	m.must(c)
	m.check()
}

// A command for another object or kind than was reserved is ErrExists, and the payment stays reserved.
func TestAPaymentIsNotCommittedForAnotherThing(t *testing.T) {
	m := newTill(t)
	p := testPayment("0x1")
	m.reserve(p, 1000)
	other := p
	other.Object = "b/other"
	m.refused(m.commits(other, "v1", contents[2], 2000), ErrExists)
	m.refused(&ReservePayment{Payment: other, Now: 2000}, ErrExists)
	other = p
	other.Kind = PaysDelete
	m.refused(&DeletePaidObject{PaymentOutcome{other, "0x7a", 2000}}, ErrExists)
	m.wantState(p, PaymentReserved, "")
}

// A payment with a field out of bounds is rejected and changes nothing, and one at its bounds is paid.
func TestPaymentsOutOfBoundsChangeNothing(t *testing.T) {
	m := newTill(t)
	for name, change := range map[string]func(*Payment){
		"no network":      func(p *Payment) { p.ID.Network = "" },
		"capital letters": func(p *Payment) { p.ID.Payer = "0xAnn" },
		"a long nonce":    func(p *Payment) { p.ID.Nonce = strings.Repeat("a", maxNonce+1) },
		"no amount":       func(p *Payment) { p.Amount = "" },
		"amount 0":        func(p *Payment) { p.Amount = "0" },
		"negative amount": func(p *Payment) { p.Amount = "-1" },
		"a long amount":   func(p *Payment) { p.Amount = strings.Repeat("9", MaxAmountDigits+1) },
		"no recipient":    func(p *Payment) { p.PayTo = "" },
		"no request":      func(p *Payment) { p.Request = "" },
		"no time":         func(p *Payment) { p.Seconds = 0 },
		"no object":       func(p *Payment) { p.Object = "" },
		"a pin too":       func(p *Payment) { p.Pin = "pin" },
		"an unknown kind": func(p *Payment) { p.Kind = 9 },
		"no kind":         func(p *Payment) { p.Kind = 0 },
		"valid before 0":  func(p *Payment) { p.ValidBefore = -1 },
		"always valid":    func(p *Payment) { p.ValidBefore = maxCreated + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			m.t = t
			p := testPayment("0x1")
			change(&p)
			m.refused(&ReservePayment{Payment: p, Now: 1000}, ErrInvalid)
			m.refused(&FailPayment{PaymentOutcome{p, "", 1000}, true, "why"}, ErrInvalid)
		})
	}
	m.t = t
	long := testPayment("0x1")
	long.Seconds = MaxPaidSeconds + 1
	m.refused(&ReservePayment{Payment: long, Now: 1000}, ErrTooLarge)
	most := testPayment("0x2")
	most.Amount, most.Seconds = strings.Repeat("9", MaxAmountDigits), MaxPaidSeconds
	m.reserve(most, maxCreated)
	m.must(m.commits(most, "v", contents[2], maxCreated))
	m.wantState(most, PaymentPaid, "")
}

// Below feature level PaymentsLevel payments can be neither reserved, released nor ended: ErrUnavailable.
func TestPaymentsNeedTheirLevel(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: PaymentsLevel - 1})
	p := testPayment("0x1")
	for _, cmd := range []Command{
		&ReservePayment{Payment: p, Now: 1000}, &ReleasePayment{p.ID, p.Request}, &FailPayment{PaymentOutcome{p, "", 1000}, true, "why"},
		&SweepPayments{1000}, &EndPaidObjects{1000}, &ForgetPayments{1000},
	} {
		m.refused(cmd, ErrUnavailable)
	}
}

// The account of the paid gateway cannot be closed or changed, and gets no key, session, link, identity or
// credits. It is not found by its e-mail address.
func TestNobodyUsesTheAccountOfThePaidGateway(t *testing.T) {
	m := newTill(t)
	m.reserve(testPayment("0x1"), 1000)
	if _, err := m.view().AccountByEmail(PaidAccountEmail); !errors.Is(err, ErrNotFound) {
		t.Errorf("by e-mail: %v", err)
	}
	for _, cmd := range []Command{
		&CloseAccount{PaidAccount}, &CloseOwnAccount{PaidAccount}, &SetPassword{PaidAccount, "hash"}, &SetQuota{PaidAccount, 1},
		&SetAdmin{PaidAccount, true}, &DecideAdmin{Account: PaidAccount, Admin: true},
		&CreateKey{Key: APIKey{ID: "k", Account: PaidAccount, Scope: []string{ScopeRead}}},
		&AddOneTimeLink{Link: OneTimeLink{ID: "l", Purpose: ForPassword, Account: PaidAccount, Expires: 9}},
		&LinkIdentity{identity(PaidAccount, "1")},
		&GrantCredits{Posting{ID: "g", Account: PaidAccount, Credits: 1}},
		&PostCredits{Posting{ID: "g", Account: PaidAccount, Credits: 1, Kind: Grant}},
	} {
		m.refused(cmd, ErrForbidden)
	}
	s := session("s1", 10)
	s.Session.Account = PaidAccount
	m.refused(s, ErrUnauthorized)
	m.check()
}

// Pages of payments have every payment once and the newest first, whatever the limit is.
func TestPagesOfPaymentsBeginWithTheNewest(t *testing.T) {
	m := newTill(t)
	var want []string
	for i := range 7 {
		p := testPayment(fmt.Sprint("0x", i))
		p.Object, p.Reserved = fmt.Sprint("b/", i), Millis(1000+i/2)
		m.reserve(p, p.Reserved)
	}
	for _, pair := range []string{"6", "4 5", "2 3", "0 1"} {
		for _, n := range strings.Fields(pair) {
			want = append(want, "0x"+n)
		}
	}
	for limit := 1; limit <= 8; limit++ {
		var got []string
		q := PaymentsQuery{Limit: limit}
		for {
			page, more, err := m.view().Payments(q)
			if err != nil {
				t.Fatal(err)
			}
			for i := range page {
				got = append(got, page[i].ID.Nonce)
				q.After = page[i].Place()
			}
			if !more {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v, want %v", limit, got, want)
		}
	}
}

// wantPayments writes what the table of payments should have, and checks payments, owners and contents
// against each other.
func (m *machine) wantPayments(want *memory) {
	m.t.Helper()
	all, err := scanAll[Payment](m, paidKey(paidRow))
	if err != nil {
		m.t.Fatal(err)
	}
	type of struct {
		state   PaymentState
		network string
		asset   string
	}
	sums, counts, payers := map[of]*big.Int{}, map[of]int{}, map[string]string{}
	for i := range all {
		p := &all[i]
		if err := put(want, p.ID.key(), p); err != nil {
			m.t.Fatal(err)
		}
		set(m.t, want, p.timeKey(), nil)
		if p.State == PaymentReserved {
			set(m.t, want, p.reservedKey(), nil)
		}
		if p.State == PaymentFailed && p.ValidBefore != 0 {
			set(m.t, want, p.failedKey(), nil)
		}
		if p.State == PaymentReserved && p.Object != "" {
			set(m.t, want, p.claimKey(), nil)
			if other := payers[p.Object]; other != "" && other != p.ID.Payer {
				m.t.Errorf("%s and %s pay for %s at once", other, p.ID.Payer, p.Object)
			}
			payers[p.Object] = p.ID.Payer
		}
		k := of{p.State, p.ID.Network, p.ID.Asset}
		amount, _ := new(big.Int).SetString(p.Amount, 10)
		if sums[k] == nil {
			sums[k] = new(big.Int)
		}
		sums[k].Add(sums[k], amount)
		counts[k]++
	}
	for k, sum := range sums {
		row := part(part(paidKey(paidSum).byte(byte(k.state)), k.network), k.asset)
		if err := put(want, row, &paidTotal{uint64(counts[k]), sum.String()}); err != nil {
			m.t.Fatal(err)
		}
	}
	m.wantOwners(want)
}

func (m *machine) wantOwners(want *memory) {
	m.t.Helper()
	owners, err := scanAll[PaidObject](m, paidKey(paidOwner))
	if err != nil {
		m.t.Fatal(err)
	}
	stored := 0
	for i := range owners {
		o := &owners[i]
		if err := put(want, ownerKey(o.Object), o); err != nil {
			m.t.Fatal(err)
		}
		set(m.t, want, o.endKey(), nil)
		content, err := paidContent(m, o)
		if err != nil || (content == nil) != o.Ended {
			m.t.Errorf("%s has ended: %t; its content is %v, %v", o.Object, o.Ended, content, err)
		}
		if content != nil {
			stored++
		}
	}
	_, objects, err := rowsIn[Object](m, tableObject, PaidAccount, part(table(tableObject), PaidAccount), 1<<20)
	if err != nil || len(objects) != stored {
		m.t.Errorf("%d paid objects are stored, and %d have owners: %v", len(objects), stored, err)
	}
}

// anyPayment draws a command of payments out of a small world.
func anyPayment(t *rapid.T, m *machine) Command {
	d := &drawing{T: t, m: m, account: PaidAccount}
	b, err := m.view().Bucket(PaidAccount, PaidBucket)
	if err != nil && !errors.Is(err, ErrNoBucket) {
		t.Fatal(err)
	}
	now := Millis(rapid.IntRange(0, 4).Draw(t, "quarters of an hour"))*PaymentTimeout + Millis(rapid.IntRange(1, 3).Draw(t, "ms"))
	p := Payment{
		ID: PaymentID{
			Network: rapid.SampledFrom([]string{"base", "base-sepolia"}).Draw(t, "network"), Asset: "0xa55e7",
			Payer: rapid.SampledFrom([]string{"0xann", "0xbob"}).Draw(t, "payer"), Nonce: fmt.Sprint("0x", rapid.IntRange(0, 3).Draw(t, "nonce")),
		},
		Amount: rapid.SampledFrom([]string{"1", "1000", "0"}).Draw(t, "amount"), PayTo: "0x9a7ee", Node: "n1", Reserved: now, Bytes: 9,
		Request: rapid.SampledFrom([]string{"r1", "r1", "r1", "r2"}).Draw(t, "request"),
		Kind:    rapid.SampledFrom([]PaymentKind{PaysObject, PaysObject, PaysObject, PaysPin, PaysDelete}).Draw(t, "kind of payment"),
		Object:  rapid.SampledFrom([]string{"b/x", "b/x", "b/y"}).Draw(t, "object"), Seconds: uint64(rapid.IntRange(1, 3).Draw(t, "thousands")) * 1000,
		ValidBefore: rapid.SampledFrom([]Millis{0, 1, PaymentTimeout, FailedTrace}).Draw(t, "valid before"),
	}
	if known, err := m.view().Payment(p.ID); err == nil && rapid.IntRange(0, 4).Draw(t, "as it is known") > 0 {
		p = known
	} else if p.Kind == PaysPin {
		p.Object, p.Pin = "", RequestID(fmt.Sprint("paid", p.ID.Nonce))
	}
	end := PaymentOutcome{Payment: p, Transaction: rapid.SampledFrom([]string{"", "0x7a", "0x7b"}).Draw(t, "transaction"), Now: now}
	switch rapid.IntRange(0, 15).Draw(t, "payment command") {
	case 0, 1, 2, 3:
		return &ReservePayment{Payment: p, Now: now}
	case 4:
		return &ReleasePayment{p.ID, p.Request}
	case 5, 6, 7, 8:
		c := &CommitPayment{PaymentOutcome: end}
		switch p.Kind {
		case PaysPin:
			c.Pin = &CreatePin{
				Pin:   Pin{ID: p.Pin, Account: PaidAccount, CID: rapid.SampledFrom(contents).Draw(t, "cid"), Created: now},
				Nodes: []NodeID{"n1", "n2"},
			}
			return c
		case PaysObject:
			o := d.object()
			o.Key = p.Object
			c.Put = &PutObject{Account: PaidAccount, Bucket: PaidBucket, Born: b.Born, Object: o, Content: d.content(o.Root)}
			return c
		}
		return &DeletePaidObject{end}
	case 9:
		return &FailPayment{end, rapid.Bool().Draw(t, "refundable"), "why"}
	case 10:
		return &SweepPayments{now}
	case 14, 15:
		return &ForgetPayments{now + Millis(rapid.IntRange(0, 2).Draw(t, "traces"))*FailedTrace}
	case 11:
		return &EndPaidObjects{now + Millis(rapid.IntRange(0, 1).Draw(t, "trace"))*PaidTrace}
	default:
		return &DeletePaidObject{end}
	}
}

// After any commands, most of them of payments, all rows of payments and owners agree with each other and with
// what is stored. A rejected command and a repeat change nothing.
func TestAnyHistoryOfPaymentsKeepsThemAndTheirContent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := rich(rt, Unlimited)
		history(rt, m, func() Command {
			if rapid.IntRange(0, 5).Draw(rt, "of something else") == 0 {
				return anyCommand(rt, m)
			}
			return anyPayment(rt, m)
		})
	})
}
