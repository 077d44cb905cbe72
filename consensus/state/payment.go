package state

import (
	"fmt"
	"math/big"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// PaymentsLevel is the lowest feature level with payments and paid content.
const PaymentsLevel FeatureLevel = 10

// Bounds of payments.
const (
	// PaymentTimeout is how long a payment stays reserved without a renewal, in milliseconds. Then
	// SweepPayments makes it refundable.
	PaymentTimeout = Millis(15 * 60 * 1000)
	// FailedTrace is how long a failed payment stays known after it failed and after its authorization
	// has ended, in milliseconds. Then ForgetPayments removes it.
	FailedTrace = 30 * dayMillis
	// PaidTrace is how long the owner of an object whose time is over stays known, in milliseconds.
	PaidTrace = 30 * dayMillis
	// MaxPaidSeconds is the longest time that one payment can pay for.
	MaxPaidSeconds = 10 * 366 * 24 * 3600
	// MaxAmountDigits is the largest number of decimal digits of an amount: a number of 256 bits.
	MaxAmountDigits = 78

	maxNetwork     = 64  // bytes of the name of a network, and of an address
	maxNonce       = 128 // bytes of a nonce
	maxTransaction = 256 // bytes of the name of a transaction
	maxSumDigits   = 128 // decimal digits of a sum of amounts
)

// PaymentState is what became of a payment. The numbers are on disk: never renumber them.
type PaymentState uint8

// All states of payments. A payment leaves the state reserved once, and no other.
const (
	PaymentReserved   PaymentState = 1 // its nonce is recorded, and the outcome is not known yet
	PaymentPaid       PaymentState = 2 // settled, and what it pays for was done
	PaymentFailed     PaymentState = 3 // the facilitator refused to settle it; nothing was done
	PaymentRefundable PaymentState = 4 // settled, or maybe settled, and nothing was done
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
	PaysDelete PaymentKind = 3 // of an object, by its owner
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

// PaymentID identifies a payment. A network executes a payment with one ID once at most.
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

// plainText returns whether a text has at most so many bytes, all of them visible ASCII without capital
// letters.
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
	// Request is the id of the attempt that reserved the payment. The command of another attempt
	// changes nothing.
	Request string
	Node    NodeID    // node of the attempt
	Object  string    // bucket/key, for an object and for a deletion
	Pin     RequestID // for a pin
	Bytes   uint64    // the paid size
	Seconds uint64    // the paid time
	// Transaction is the facilitator's name of the settlement; "" if it is not known.
	Transaction string
	Reason      string // why the payment has failed or is refundable
	Reserved    Millis
	Renewed     Millis // the newest time at which the attempt was known to go on
	Settled     Millis // when the payment left the state reserved
	Until       Millis // end of the paid time
	// ValidBefore is the end of the payer's authorization: no network executes the payment from then
	// on. 0: unknown.
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

// Check returns an ErrInvalid if a field that the proposer sets is outside of the bounds.
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

// Parts of the table of payments and paid objects.
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

// in appends the id to a key.
func (v *PaymentID) in(k key) key {
	return part(part(part(part(k, v.Network), v.Asset), v.Payer), v.Nonce)
}

func (v *PaymentID) key() key { return v.in(paidKey(paidRow)) }

func (v *Payment) timeKey() key { return v.ID.in(paidKey(paidByTime).descending(v.Reserved)) }

func (v *Payment) reservedKey() key { return v.ID.in(paidKey(paidReserved).u64(uint64(v.Renewed))) }

// forgotten returns when the record of a failed payment goes. 0: it stays, because nobody knows how long
// its authorization is valid.
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

// readPaymentID reads what PaymentID.in wrote.
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

// write writes a payment in place of old, which is nil for a new one, with its indexes and sums.
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

// unindex removes what write has written beside the row and its place in time.
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

// Code encodes or decodes the record.
func (v *paidTotal) Code(c *codec.Coder) {
	c.Version(1)
	codec.Uint(c, &v.Count)
	codec.String(c, &v.Amount, maxSumDigits)
}

// sum adds the payment to the total of its state, or subtracts it.
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
