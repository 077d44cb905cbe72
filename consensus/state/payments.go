package state

import (
	"errors"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// needsPayments returns ErrUnavailable if the cluster is below PaymentsLevel.
func needsPayments(r Reader) error {
	return needsLevel(r, PaymentsLevel, "payments need feature level %d")
}

var errPaymentUsed = Errorf(CodeExists, "this payment was used before")

// ReservePayment records a payment before it is settled and before anything is stored, so that no
// other attempt can use it. It creates the internal account and its bucket if they do not exist.
// If the same attempt has reserved the payment already, the command renews the reservation; a
// long attempt must repeat it within PaymentTimeout. While a payment for an object is reserved,
// no other payer can reserve one for that object. The command needs feature level PaymentsLevel.
//
// Errors:
//
//   - ErrInvalid or ErrTooLarge: a field is out of bounds, or the authorization has ended more
//     than FailedTrace ago, so that the record of an earlier use may have been removed.
//   - ErrExists: another attempt has used the payment, or this attempt has and the payment is no
//     longer reserved.
//   - ErrForbidden: the object belongs to another payer and its paid time is not over.
//   - ErrConflict: another payer has reserved a payment for the object.
//   - ErrNotFound: the object to delete has no owner, or its paid time is over.
type ReservePayment struct {
	Payment Payment // Apply sets State, Renewed and the fields of the outcome
	Now     Millis  // time that most members' clocks have reached
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *ReservePayment) Code(c *codec.Coder) {
	v.Payment.Code(c)
	codec.Int(c, &v.Now)
}

func (v *ReservePayment) apply(tx Tx, e *entry) (Result, error) {
	if err := needsPayments(tx); err != nil {
		return Result{}, err
	}
	p := v.Payment
	if err := p.Check(); err != nil {
		return Result{}, err
	}
	if v.Now <= 0 || v.Now > maxCreated {
		return Result{}, Errorf(CodeInvalid, "a payment is reserved at a time")
	}
	old, err := findPayment(tx, &p.ID)
	if err != nil {
		return Result{}, err
	}
	if old != nil {
		if !old.sameAttempt(&p) || old.State != PaymentReserved {
			return Result{}, errPaymentUsed
		}
		renewed := *old
		renewed.Renewed = max(old.Renewed, v.Now)
		return Result{}, renewed.write(tx, old)
	}
	if p.ValidBefore != 0 && p.ValidBefore+FailedTrace <= v.Now { // the record of a failure may be gone
		return Result{}, Errorf(CodeInvalid, "the authorization of the payment ended long ago")
	}
	if err := p.claimable(tx, v.Now); err != nil {
		return Result{}, err
	}
	if err := ensurePaid(tx, v.Now, e); err != nil {
		return Result{}, err
	}
	p.State, p.Renewed = PaymentReserved, v.Now
	p.Transaction, p.Reason, p.Settled, p.Until = "", "", 0, 0
	return Result{}, p.write(tx, nil)
}

// sameAttempt returns whether two records are from the same attempt and pay for the same thing.
func (v *Payment) sameAttempt(o *Payment) bool {
	return v.Request == o.Request && v.Kind == o.Kind && v.Object == o.Object && v.Pin == o.Pin
}

// claimable returns nil if the payer may create, extend or delete the object at the time now.
// Otherwise it returns one of the errors of ReservePayment.
func (v *Payment) claimable(r Reader, now Millis) error {
	if v.Object == "" {
		return nil
	}
	owner, err := get[PaidObject](r, ownerKey(v.Object))
	if err != nil {
		return err
	}
	switch lives := owner != nil && owner.Lives(now); {
	case lives && owner.Payer != v.ID.Payer:
		return Errorf(CodeForbidden, "%s belongs to another payer until %s", v.Object, owner.Until.Time().Format("2006-01-02T15:04:05Z"))
	case !lives && v.Kind == PaysDelete:
		return Errorf(CodeNotFound, "there is no paid object %s", v.Object)
	}
	// All payments that are reserved for an object are of one payer, so the first one is enough.
	prefix, other := claimsOf(v.Object), false
	err = r.Scan(prefix, prefix.end(), false, func(k, _ []byte) (bool, error) {
		id, err := readPaymentID(k[len(prefix):])
		other = id.Payer != v.ID.Payer
		return false, err
	})
	if err == nil && other {
		err = Errorf(CodeConflict, "another payer pays for %s at this moment", v.Object)
	}
	return err
}

// ReleasePayment removes a reservation, so that the client can use the payment again. Only an
// attempt that has not asked the facilitator to settle the payment may propose it. It changes
// nothing if another attempt has reserved the payment, or if the payment is no longer reserved.
// It needs feature level PaymentsLevel.
type ReleasePayment struct {
	ID      PaymentID
	Request string
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *ReleasePayment) Code(c *codec.Coder) {
	v.ID.code(c)
	codec.String(c, &v.Request, MaxIDLen)
}

func (v *ReleasePayment) apply(tx Tx, _ *entry) (Result, error) {
	if err := needsPayments(tx); err != nil {
		return Result{}, err
	}
	p, err := findPayment(tx, &v.ID)
	if err != nil || p == nil || p.Request != v.Request || p.State != PaymentReserved {
		return Result{}, err
	}
	return Result{}, p.erase(tx)
}

// PaymentOutcome has the fields that the commands with the outcome of a payment have in common.
type PaymentOutcome struct {
	// Payment is the record as it was reserved. Apply uses all of it if the state no longer has
	// the reservation.
	Payment     Payment
	Transaction string
	Now         Millis // time that most members' clocks have reached
}

func (v *PaymentOutcome) code(c *codec.Coder) {
	v.Payment.Code(c)
	codec.String(c, &v.Transaction, maxTransaction)
	codec.Int(c, &v.Now)
}

// find checks the fields and returns the stored record of the payment. If there is none, it
// returns a copy of v.Payment with the state 0.
func (v *PaymentOutcome) find(r Reader) (row *Payment, err error) {
	if err := needsPayments(r); err != nil {
		return nil, err
	}
	if err := v.Payment.Check(); err != nil {
		return nil, err
	}
	if v.Now <= 0 || v.Now > maxCreated || len(v.Transaction) > maxTransaction {
		return nil, Errorf(CodeInvalid, "the outcome of a payment has a time and a transaction of at most %d bytes", maxTransaction)
	}
	row, err = findPayment(r, &v.Payment.ID)
	switch {
	case err != nil:
		return nil, err
	case row == nil:
		lost := v.Payment
		lost.State, lost.Renewed, lost.Settled, lost.Until = 0, lost.Reserved, 0, 0
		return &lost, nil
	case !row.sameAttempt(&v.Payment):
		return nil, errPaymentUsed
	}
	return row, nil
}

// end stores the state to and the reason for a payment. row is the record that find has returned.
func (v *PaymentOutcome) end(tx Tx, row *Payment, to PaymentState, reason string) error {
	p := *row
	p.State, p.Reason, p.Settled = to, clipped(reason), max(v.Now, row.Reserved)
	if v.Transaction != "" {
		p.Transaction = v.Transaction
	}
	if row.State == 0 {
		return p.write(tx, nil)
	}
	return p.write(tx, row)
}

// refund makes a payment refundable. If the payment is refundable already, refund adds the
// transaction, and replaces the reason if no transaction was known before.
func (v *PaymentOutcome) refund(tx Tx, row *Payment, reason string) error {
	switch row.State {
	case 0:
		reason = "the reservation was lost: " + reason
	case PaymentRefundable:
		if v.Transaction == "" || row.Transaction == v.Transaction {
			return nil
		}
		level, err := levelOf(tx)
		if err != nil {
			return err
		}
		if row.Transaction != "" || level < plainReasonsLevel {
			reason = row.Reason
		}
	}
	return v.end(tx, row, PaymentRefundable, reason)
}

// clipped returns at most the first MaxReasonLen bytes of a text.
func clipped(text string) string { return text[:min(len(text), MaxReasonLen)] }

// CommitPayment records a payment that was settled, and in the same entry puts the object or
// creates the pin that it pays for. The paid time begins now. If the payer already owns the
// object with the same content, the new time begins at the end of the remaining paid time. If
// Apply cannot put the object or create the pin, or if the payment is no longer reserved, the
// payment becomes refundable: the command succeeds, and the record of the payment has the reason.
// A repeat changes nothing. The command needs feature level PaymentsLevel.
//
// Errors: ErrInvalid; ErrExists if another attempt has reserved the payment; ErrConflict if the
// holders of the content have changed. After ErrConflict nothing has changed, and the proposer
// should try again with the present holders.
type CommitPayment struct {
	PaymentOutcome
	// Exactly one of Put and Pin is set.
	Put *PutObject // into the bucket PaidBucket of PaidAccount, under the key Payment.Object
	Pin *CreatePin // for PaidAccount, with the id Payment.Pin; Apply sets its end
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CommitPayment) Code(c *codec.Coder) {
	v.code(c)
	switch v.Payment.Kind {
	case PaysObject:
		if v.Put == nil {
			v.Put = new(PutObject)
		}
		v.Put.Code(c)
	case PaysPin:
		if v.Pin == nil {
			v.Pin = new(CreatePin)
		}
		v.Pin.Code(c)
	default:
		c.Fail("a payment that commits nothing")
	}
}

func (v *CommitPayment) apply(tx Tx, e *entry) (Result, error) {
	if err := v.check(); err != nil {
		return Result{}, err
	}
	row, err := v.find(tx)
	if err != nil {
		return Result{}, err
	}
	if row.State == PaymentPaid {
		return Result{}, nil
	}
	if row.State != PaymentReserved {
		return Result{}, v.refund(tx, row, "the payment was settled and is not reserved any more")
	}
	until, result, err := v.make(tx, row, e)
	var refused *Error
	switch {
	case errors.As(err, &refused) && refused.Code != CodeConflict:
		return Result{}, v.refund(tx, row, "the payment was settled and its content is not stored: "+refused.Error())
	case err != nil:
		return Result{}, err
	}
	paid := *row
	paid.Until = until
	paid.State, paid.Transaction, paid.Settled = PaymentPaid, v.Transaction, max(v.Now, row.Reserved)
	return result, paid.write(tx, row)
}

func (v *CommitPayment) check() error {
	switch p := &v.Payment; {
	case p.Kind == PaysObject && v.Put != nil && v.Pin == nil:
		if v.Put.Account == PaidAccount && v.Put.Bucket == PaidBucket && v.Put.Object.Key == p.Object && v.Put.If.None() {
			return nil
		}
	case p.Kind == PaysPin && v.Pin != nil && v.Put == nil:
		if v.Pin.Pin.Account == PaidAccount && v.Pin.Pin.ID == p.Pin {
			return nil
		}
	}
	return Errorf(CodeInvalid, "a payment commits what it was reserved for")
}

// make puts the object or creates the pin, and returns the end of the paid time.
func (v *CommitPayment) make(tx Tx, row *Payment, e *entry) (until Millis, r Result, err error) {
	from := max(v.Now, row.Reserved)
	paid := Millis(row.Seconds) * 1000 //nolint:gosec // at most MaxPaidSeconds
	if v.Pin != nil {
		pin := *v.Pin
		pin.Pin.Until = min(from+paid, maxCreated)
		r, err = pin.apply(tx, e)
		return pin.Pin.Until, r, err
	}
	owner, err := get[PaidObject](tx, ownerKey(row.Object))
	if err != nil {
		return 0, r, err
	}
	if owner != nil && owner.Lives(from) {
		if owner.Payer != row.ID.Payer {
			return 0, r, Errorf(CodeForbidden, "the object belongs to another payer")
		}
		current, err := paidContent(tx, owner)
		if err != nil {
			return 0, r, err
		}
		if current != nil && current.Root == v.Put.Object.Root {
			from = max(from, owner.Until)
		}
	}
	if r, err = v.Put.apply(tx, e); err != nil {
		return 0, r, err
	}
	until = min(from+paid, maxCreated)
	is := &PaidObject{Object: row.Object, Payer: row.ID.Payer, Until: until, Version: v.Put.Object.ID}
	return until, r, is.write(tx, owner)
}

// FailPayment records that nothing is stored for a payment. The payment becomes failed if the
// facilitator has refused to settle it, and refundable if it was settled or may have been. A
// payment that is no longer reserved never becomes failed, and a paid payment remains paid. The
// command needs feature level PaymentsLevel.
//
// Errors: ErrInvalid; ErrExists if another attempt has reserved the payment.
type FailPayment struct {
	PaymentOutcome
	Refundable bool
	Reason     string
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *FailPayment) Code(c *codec.Coder) {
	v.code(c)
	codec.Bool(c, &v.Refundable)
	codec.String(c, &v.Reason, MaxReasonLen)
}

func (v *FailPayment) apply(tx Tx, _ *entry) (Result, error) {
	if v.Reason == "" {
		return Result{}, Errorf(CodeInvalid, "a payment fails for a reason")
	}
	row, err := v.find(tx)
	switch {
	case err != nil || row.State == PaymentPaid:
		return Result{}, err
	case v.Refundable:
		return Result{}, v.refund(tx, row, v.Reason)
	case row.State == PaymentReserved || row.State == 0:
		return Result{}, v.end(tx, row, PaymentFailed, v.Reason)
	}
	return Result{}, nil
}

// SweepPayments makes payments refundable whose reservation was not renewed for PaymentTimeout,
// at most MaxSettle of them. Their node has stopped, and it is unknown whether they were settled.
// The command needs feature level PaymentsLevel.
type SweepPayments struct{ Now Millis } // time that most members' clocks have reached

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SweepPayments) Code(c *codec.Coder) { codec.Int(c, &v.Now) }

// SweptReason is the reason in the record of a payment that SweepPayments has made refundable.
const SweptReason = "the node stopped before it recorded the outcome; the payment may have been settled: look its payer and nonce up on the network"

// sweptReason10 is the reason that SweepPayments writes below plainReasonsLevel.
const sweptReason10 = "the node stopped before it recorded the outcome; look the nonce up on the network"

// plainReasonsLevel is the feature level from which on SweepPayments writes SweptReason, and from
// which on the reason of a refundable payment is replaced when its transaction becomes known. All
// members must write the same.
const plainReasonsLevel FeatureLevel = 11

func (v *SweepPayments) apply(tx Tx, _ *entry) (Result, error) {
	if err := needsPayments(tx); err != nil {
		return Result{}, err
	}
	left, err := paymentsBy(tx, paidReserved, v.Now-PaymentTimeout, MaxSettle)
	if err != nil {
		return Result{}, err
	}
	level, err := levelOf(tx)
	if err != nil {
		return Result{}, err
	}
	reason := SweptReason
	if level < plainReasonsLevel {
		reason = sweptReason10
	}
	for _, row := range left {
		swept := *row
		swept.State, swept.Reason, swept.Settled = PaymentRefundable, reason, max(v.Now, row.Reserved)
		if err := swept.write(tx, row); err != nil {
			return Result{}, err
		}
	}
	return Result{}, nil
}

// ForgetPayments removes the records of failed payments, FailedTrace after the failure and after
// the end of their authorization, at most MaxSettle of them. Nothing was paid, and the
// authorization can no longer be used. Other payments are kept forever. The command needs feature
// level PaymentsLevel.
type ForgetPayments struct{ Now Millis } // time that most members' clocks have reached

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *ForgetPayments) Code(c *codec.Coder) { codec.Int(c, &v.Now) }

func (v *ForgetPayments) apply(tx Tx, _ *entry) (Result, error) {
	if err := needsPayments(tx); err != nil {
		return Result{}, err
	}
	old, err := paymentsBy(tx, paidFailed, v.Now, MaxSettle)
	if err != nil {
		return Result{}, err
	}
	for _, row := range old {
		if err := row.erase(tx); err != nil {
			return Result{}, err
		}
	}
	return Result{}, nil
}

// paymentsBy returns up to limit payments whose time in an index is not after by, in the order of
// these times. of is the index: paidReserved or paidFailed.
func paymentsBy(r Reader, of byte, by Millis, limit int) (all []*Payment, err error) {
	if by <= 0 || limit <= 0 {
		return nil, nil
	}
	prefix := paidKey(of)
	var ids []PaymentID
	err = r.Scan(prefix, paidKey(of).u64(uint64(by)+1), false, func(k, _ []byte) (bool, error) {
		if len(k) < len(prefix)+8 {
			return false, fmt.Errorf("state: short key %x", k)
		}
		id, err := readPaymentID(k[len(prefix)+8:])
		ids = append(ids, id)
		return err == nil && len(ids) < limit, err
	})
	if err != nil {
		return nil, err
	}
	for i := range ids {
		row, err := findPayment(r, &ids[i])
		if err != nil {
			return nil, err
		}
		if row == nil {
			return nil, brokenPayment(&ids[i])
		}
		all = append(all, row)
	}
	return all, nil
}

func brokenPayment(id *PaymentID) error {
	return fmt.Errorf("state: the payment %s of %s is in an index and has no record", id.Nonce, id.Payer)
}
