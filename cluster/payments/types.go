package payments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Facilitator verifies and settles payments on a network.
type Facilitator interface {
	// Verify returns the address of the payer if the payment can be settled. The error is a
	// *Rejected if the facilitator says no, and wraps ErrFacilitator if there is no answer.
	Verify(ctx context.Context, p *Payment) (payer string, err error)
	// Settle has the payment executed. The error is a *Rejected if the facilitator says that the
	// payment was not executed. With any other error, which wraps ErrFacilitator, the outcome is
	// unknown.
	Settle(ctx context.Context, p *Payment) (Settlement, error)
	// Supported returns nil if the facilitator answers and supports the configured network.
	Supported(ctx context.Context) error
}

// Payment is a signed payment of a client with what it has to pay.
type Payment struct {
	X402Version  int             // 1 or 2
	Payload      json.RawMessage // the client's paymentPayload, as it came
	Requirements json.RawMessage // paymentRequirements of the same version

	// The following fields are those of an exact payment on an EVM network. The network has its
	// plain name, and addresses and the nonce are hexadecimal digits in lower case after 0x.
	Network, Asset, PayTo, Payer, Nonce string
	Value                               *big.Int // atomic units of the asset
	ValidAfter, ValidBefore             int64    // Unix seconds
}

// ID returns the key of the payment in the replicated state.
func (p *Payment) ID() state.PaymentID {
	return state.PaymentID{Network: p.Network, Asset: p.Asset, Payer: p.Payer, Nonce: p.Nonce}
}

// lastSecond is the end of the year 9999 in Unix seconds, which is the last time that the state knows.
const lastSecond = 253_402_300_799

// validBefore returns the end of the authorization as a time of the state; 0 if it is not known.
func (p *Payment) validBefore() state.Millis {
	return state.Millis(1000 * max(0, min(p.ValidBefore, lastSecond)))
}

// Settlement is the answer of a facilitator that has settled a payment.
type Settlement struct{ Transaction, Network, Payer string }

// Rejected is the error for a payment that the facilitator rejects.
type Rejected struct {
	Reason string // as the x402 protocol names it, for example insufficient_funds
	Payer  string // may be empty
}

func (e *Rejected) Error() string { return "the payment is rejected: " + e.Reason }

// Errors of this package. The state's errors, those of bodies and *Rejected are returned too.
var (
	// ErrPaymentUsed is returned for a payment that the state has, whatever became of it: 402
	// nonce_already_used.
	ErrPaymentUsed = errors.New("this payment was used before")
	// ErrNotOwner is returned for a change of an object or pin of another payer: 403.
	ErrNotOwner = errors.New("the object belongs to another payer")
	// ErrBusy is returned while another payment for the same object is in progress: 409.
	ErrBusy = errors.New("another payment for this object is in progress")
	// ErrNotFound is returned for an object that nobody has paid for: 404.
	ErrNotFound = errors.New("there is no such object")
	// ErrFacilitator is returned if the facilitator gives no answer: 503. Nothing is stored.
	ErrFacilitator = errors.New("the facilitator does not answer")
	// ErrLength is returned if the body does not have the length that was paid: 400. The client can
	// use the payment again.
	ErrLength = errors.New("the body does not have the paid length")
)

// EndedError is returned for an object whose paid time is over: 410.
type EndedError struct{ Until time.Time }

func (e *EndedError) Error() string {
	return fmt.Sprintf("the paid time ended at %s", e.Until.UTC().Format(time.RFC3339))
}

// PutRequest is an object to store for a payment.
type PutRequest struct {
	Bucket, Key string // as in the URL
	// Body is the content. Its Size must be known; it was priced. Reader may be longer or shorter
	// than Size, which is ErrLength.
	Body       objects.Body
	TTL        time.Duration // whole seconds
	Attributes objects.Attributes
	Amount     *big.Int // the price in atomic units; the payment must have this value or more
	Payment    Payment
}

// PinRequest is a pin to create for a payment.
type PinRequest struct {
	CID      string
	Name     string
	Origins  []string
	Meta     map[string]string
	TTL      time.Duration // whole seconds
	MaxBytes uint64        // the paid size: a larger DAG makes the pin fail
	Amount   *big.Int
	Payment  Payment
}

// DeleteRequest removes an object of the payer, for a payment.
type DeleteRequest struct {
	Bucket, Key string
	Amount      *big.Int
	Payment     Payment
}

// Receipt is a payment and what became of it.
type Receipt struct {
	state.Payment
	Object state.Object    // the stored object, only of Put
	Pin    state.RequestID // only of Pin
}

// Settlement returns the facilitator's answer as it was recorded.
func (r *Receipt) Settlement() Settlement {
	return Settlement{Transaction: r.Transaction, Network: r.ID.Network, Payer: r.ID.Payer}
}

// Owner says to whom a paid object belongs.
type Owner struct {
	Payer string
	Until time.Time
	Ended bool // by the clock of this node
}

// Opened is a paid object that can be read.
type Opened struct {
	Object state.Object
	Owner  Owner
}

// Page is one page of receipts, newest first. Next is the cursor of the next page; "" if this page
// is the last.
type Page struct {
	Receipts []state.Payment
	Next     string
}

// RefundError is returned if a payment was settled, or may have been, and what it pays for was not
// done. The payment is refundable, unless the state could not be reached: then it becomes so
// state.PaymentTimeout later. Err is the cause; ErrFacilitator if the facilitator gave no answer.
type RefundError struct {
	Payment state.Payment
	Err     error
}

func (e *RefundError) Error() string {
	return fmt.Sprintf("payment %s of %s is to be refunded: %v", e.Payment.ID.Nonce, e.Payment.ID.Payer, e.Err)
}

// Unwrap returns the cause.
func (e *RefundError) Unwrap() error { return e.Err }
