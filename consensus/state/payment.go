package state

import (
	"fmt"
	"math/big"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// PaymentsLevel is the lowest feature level with payments and paid content.
const PaymentsLevel FeatureLevel = 10

// Limits of payments.
const (
	// PaymentTimeout is how long a reservation lasts without a renewal, in milliseconds.
	// Afterwards SweepPayments makes the payment refundable.
	PaymentTimeout = Millis(15 * 60 * 1000)
	// FailedTrace is how long the record of a failed payment is kept after the failure and after
	// the end of its authorization, in milliseconds. Afterwards ForgetPayments removes it.
	FailedTrace = 30 * dayMillis
	// PaidTrace is how long the record of a paid object is kept after the end of its paid time,
	// in milliseconds.
	PaidTrace = 30 * dayMillis
	// MaxPaidSeconds is the longest time that one payment can pay for.
	MaxPaidSeconds = 10 * 366 * 24 * 3600
	// MaxAmountDigits is the largest number of decimal digits of an amount, which is a number of
	// 256 bits.
	MaxAmountDigits = 78

	maxNetwork     = 64  // bytes of the name of a network, and of an address
	maxNonce       = 128 // bytes of a nonce
	maxTransaction = 256 // bytes of the name of a transaction
	maxSumDigits   = 128 // decimal digits of a sum of amounts
)

// PaymentState is the outcome of a payment. The numbers are on disk: never renumber them.
type PaymentState uint8

// All states of payments. A payment is reserved first, and then changes to one of the other
// states, which are final.
const (
	PaymentReserved   PaymentState = 1 // its nonce is recorded, so that no other attempt uses it; the outcome is not known yet
	PaymentPaid       PaymentState = 2 // settled, and the content was stored or deleted
	PaymentFailed     PaymentState = 3 // the facilitator refused to settle it; nothing was done
	PaymentRefundable PaymentState = 4 // settled, or perhaps settled, but nothing was stored or deleted
)

// PaymentStates lists all states.
func PaymentStates() []PaymentState {
	return []PaymentState{PaymentReserved, PaymentPaid, PaymentFailed, PaymentRefundable}
}

// String returns the name of the state.
func (s PaymentState) String() string {
	switch s {
	case PaymentReserved:
		return "reserved"
	case PaymentPaid:
		return "paid"
	case PaymentFailed:
		return "failed"
	case PaymentRefundable:
		return "refundable"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// PaymentKind is what a payment pays for. The numbers are on disk: never renumber them.
type PaymentKind uint8

// All kinds of payments.
const (
	PaysObject PaymentKind = 1
	PaysPin    PaymentKind = 2
	PaysDelete PaymentKind = 3 // deletion of an object by its owner
)

// String returns the name of the kind.
func (k PaymentKind) String() string {
	switch k {
	case PaysObject:
		return "object"
	case PaysPin:
		return "pin"
	case PaysDelete:
		return "delete"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// PaymentID identifies a payment. A network executes at most one payment with the same ID.
type PaymentID struct {
	Network string // plain name, such as base-sepolia
	Asset   string // address of the asset's contract
	Payer   string // address
	Nonce   string
}

func (v *PaymentID) code(c *codec.Coder) {
	codec.String(c, &v.Network, maxNetwork)
	codec.String(c, &v.Asset, maxNetwork)
	codec.String(c, &v.Payer, maxNetwork)
	codec.String(c, &v.Nonce, maxNonce)
}

func (v *PaymentID) check() error {
	for _, of := range []struct {
		text string
		most int
	}{{v.Network, maxNetwork}, {v.Asset, maxNetwork}, {v.Payer, maxNetwork}, {v.Nonce, maxNonce}} {
		if !plainText(of.text, of.most) || of.text == "" {
			return Errorf(CodeInvalid, "a payment names its network, asset, payer and nonce, in lower case")
		}
	}
	return nil
}

// plainText returns whether a text has at most most bytes, all of them visible ASCII characters
// other than capital letters.
func plainText(text string, most int) bool {
	for i := range len(text) {
		if b := text[i]; b <= ' ' || b > '~' || b >= 'A' && b <= 'Z' {
			return false
		}
	}
	return len(text) <= most
}

// Payment is the record of a payment: a receipt.
type Payment struct {
	ID     PaymentID
	State  PaymentState
	Kind   PaymentKind
	Amount string // decimal number of atomic units of the asset
	PayTo  string // address
	// Request is the id of the attempt that has reserved the payment. Commands of other attempts
	// change nothing.
	Request string
	Node    NodeID    // node of the attempt
	Object  string    // bucket/key of the paid object, for PaysObject and PaysDelete
	Pin     RequestID // for a pin
	Bytes   uint64    // the paid size
	Seconds uint64    // the paid time
	// Transaction is the facilitator's name of the settlement; "" if it is not known.
	Transaction string
	Reason      string // why the payment has failed or is refundable
	Reserved    Millis
	Renewed     Millis // time of the last renewal of the reservation
	Settled     Millis // when the payment left the state PaymentReserved
	Until       Millis // end of the paid time
	// ValidBefore is the end of the payer's authorization: from then on no network executes the
	// payment. 0 means unknown.
	ValidBefore Millis
}

// Code encodes or decodes the record. Version 2 is written only if the end of the authorization is known.
func (v *Payment) Code(c *codec.Coder) {
	version := uint64(1)
	if c.Decoding() || v.ValidBefore != 0 {
		version = 2
	}
	version = c.Version(version)
	v.ID.code(c)
	codec.Uint(c, &v.State)
	codec.Uint(c, &v.Kind)
	codec.String(c, &v.Amount, MaxAmountDigits)
	codec.String(c, &v.PayTo, maxNetwork)
	codec.String(c, &v.Request, MaxIDLen)
	codec.String(c, &v.Node, MaxIDLen)
	codec.String(c, &v.Object, MaxKeyBytes)
	codec.String(c, &v.Pin, MaxIDLen)
	codec.Uint(c, &v.Bytes)
	codec.Uint(c, &v.Seconds)
	codec.String(c, &v.Transaction, maxTransaction)
	codec.String(c, &v.Reason, MaxReasonLen)
	codec.Int(c, &v.Reserved)
	codec.Int(c, &v.Renewed)
	codec.Int(c, &v.Settled)
	codec.Int(c, &v.Until)
	if version >= 2 {
		codec.Int(c, &v.ValidBefore)
	}
}

// Check returns ErrInvalid if a field that the proposer sets is out of bounds.
func (v *Payment) Check() error {
	if err := v.ID.check(); err != nil {
		return err
	}
	switch {
	case !validAmount(v.Amount):
		return Errorf(CodeInvalid, "the amount of a payment is a decimal number above 0 of at most %d digits", MaxAmountDigits)
	case !plainText(v.PayTo, maxNetwork) || v.PayTo == "":
		return Errorf(CodeInvalid, "a payment names its recipient, in lower case")
	case v.Request == "" || len(v.Request) > MaxIDLen || v.Node == "" || len(v.Node) > MaxIDLen || v.Reserved <= 0 || v.Reserved > maxCreated,
		v.ValidBefore < 0 || v.ValidBefore > maxCreated:
		return Errorf(CodeInvalid, "payment record out of bounds")
	case v.Seconds > MaxPaidSeconds || v.Bytes > MaxContentBytes:
		return Errorf(CodeTooLarge, "a payment pays for at most %d bytes and %d seconds", uint64(MaxContentBytes), MaxPaidSeconds)
	case v.Kind != PaysDelete && v.Seconds == 0:
		return Errorf(CodeInvalid, "a payment pays for a second or more")
	}
	switch v.Kind {
	case PaysObject, PaysDelete:
		if v.Pin != "" {
			return Errorf(CodeInvalid, "a payment for an object names no pin")
		}
		return checkObjectKey(v.Object)
	case PaysPin:
		if v.Pin == "" || len(v.Pin) > MaxIDLen || v.Object != "" {
			return Errorf(CodeInvalid, "a payment for a pin names the pin and no object")
		}
		return nil
	}
	return Errorf(CodeInvalid, "a payment of an unknown kind, %d", v.Kind)
}

func validAmount(text string) bool {
	if text == "" || len(text) > MaxAmountDigits || text[0] == '0' {
		return false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

// Parts of the table of payments and paid objects. A comment gives the rest of the key -> the
// value; "-" means an empty value.
const (
	paidRow      = 'p' // payment -> Payment
	paidByTime   = 't' // reserved descending, payment -> -
	paidSum      = 's' // state, network, asset -> paidTotal
	paidReserved = 'r' // renewed, payment in the state reserved -> -
	paidFailed   = 'f' // Payment.forgotten, payment in the state failed -> -
	paidClaim    = 'c' // object, payment in the state reserved -> -
	paidOwner    = 'o' // object -> PaidObject
	paidEnds     = 'e' // until, object that is stored -> -
	paidEnded    = 'g' // until, object whose time is over -> -
)

func paidKey(of byte) key { return table(tablePaid).byte(of) }

// in appends the id to the key k.
func (v *PaymentID) in(k key) key {
	return part(part(part(part(k, v.Network), v.Asset), v.Payer), v.Nonce)
}

func (v *PaymentID) key() key { return v.in(paidKey(paidRow)) }

func (v *Payment) timeKey() key { return v.ID.in(paidKey(paidByTime).descending(v.Reserved)) }

func (v *Payment) reservedKey() key { return v.ID.in(paidKey(paidReserved).u64(uint64(v.Renewed))) }

// forgotten returns the time at which the record of a failed payment is removed, or 0 if it is
// kept, because the end of its authorization is unknown.
func (v *Payment) forgotten() Millis {
	if v.State != PaymentFailed || v.ValidBefore == 0 {
		return 0
	}
	return max(v.Settled, v.ValidBefore) + FailedTrace
}

func (v *Payment) failedKey() key { return v.ID.in(paidKey(paidFailed).u64(uint64(v.forgotten()))) }

func claimsOf(object string) key { return part(paidKey(paidClaim), object) }

func (v *Payment) claimKey() key { return v.ID.in(claimsOf(v.Object)) }

func (v *Payment) sumKey() key {
	return part(part(paidKey(paidSum).byte(byte(v.State)), v.ID.Network), v.ID.Asset)
}

// readPaymentID decodes an id that PaymentID.in has appended.
func readPaymentID(k []byte) (id PaymentID, err error) {
	for _, text := range []*string{&id.Network, &id.Asset, &id.Payer, &id.Nonce} {
		if *text, k, err = readPart[string](k); err != nil {
			return id, err
		}
	}
	if len(k) > 0 {
		err = fmt.Errorf("state: %d bytes after the id of a payment", len(k))
	}
	return id, err
}

func findPayment(r Reader, id *PaymentID) (*Payment, error) { return get[Payment](r, id.key()) }

// write stores a payment with its index rows and sums, in place of old, which is nil for a new
// payment.
func (v *Payment) write(tx Tx, old *Payment) error {
	if old != nil {
		if err := old.unindex(tx); err != nil {
			return err
		}
	} else if err := tx.Set(v.timeKey(), nil); err != nil {
		return err
	}
	if v.State == PaymentReserved {
		if err := tx.Set(v.reservedKey(), nil); err != nil {
			return err
		}
		if v.Object != "" {
			if err := tx.Set(v.claimKey(), nil); err != nil {
				return err
			}
		}
	}
	if v.forgotten() != 0 {
		if err := tx.Set(v.failedKey(), nil); err != nil {
			return err
		}
	}
	if err := v.sum(tx, 1); err != nil {
		return err
	}
	return put(tx, v.ID.key(), v)
}

// unindex removes the index rows that depend on the state of the payment, and subtracts the
// payment from the sums.
func (v *Payment) unindex(tx Tx) error {
	if v.State == PaymentReserved {
		if err := tx.Delete(v.reservedKey()); err != nil {
			return err
		}
		if v.Object != "" {
			if err := tx.Delete(v.claimKey()); err != nil {
				return err
			}
		}
	}
	if v.forgotten() != 0 {
		if err := tx.Delete(v.failedKey()); err != nil {
			return err
		}
	}
	return v.sum(tx, -1)
}

// erase removes all rows of the payment.
func (v *Payment) erase(tx Tx) error {
	if err := v.unindex(tx); err != nil {
		return err
	}
	if err := tx.Delete(v.timeKey()); err != nil {
		return err
	}
	return tx.Delete(v.ID.key())
}

// paidTotal is the number of payments of one state, network and asset, and their total amount.
type paidTotal struct {
	Count  uint64
	Amount string // decimal
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *paidTotal) Code(c *codec.Coder) {
	c.Version(1)
	codec.Uint(c, &v.Count)
	codec.String(c, &v.Amount, maxSumDigits)
}

// sum adds the payment to the total of its state, or subtracts it if sign is negative.
func (v *Payment) sum(tx Tx, sign int64) error {
	k := v.sumKey()
	total, err := get[paidTotal](tx, k)
	if err != nil {
		return err
	}
	if total == nil {
		total = &paidTotal{Amount: "0"}
	}
	sum, ok := new(big.Int).SetString(total.Amount, 10)
	amount, fits := new(big.Int).SetString(v.Amount, 10)
	if !ok || !fits {
		return fmt.Errorf("state: the sum %q or the amount %q is no number", total.Amount, v.Amount)
	}
	sum.Add(sum, amount.Mul(amount, big.NewInt(sign)))
	total.Count += uint64(sign) //nolint:gosec // -1 subtracts
	if sum.Sign() < 0 || sign < 0 && total.Count == 1<<64-1 {
		return fmt.Errorf("state: sum %x below zero", []byte(k))
	}
	if total.Count == 0 {
		return tx.Delete(k)
	}
	total.Amount = sum.String()
	return put(tx, k, total)
}
