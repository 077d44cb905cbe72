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

// Facilitator is a client of the service that verifies payments and executes them on their
// network. To settle a payment means to execute it.
type Facilitator interface {
	// Verify returns the address of the payer if the payment can be settled. The error is a
	// *Rejected if the facilitator rejects the payment. It wraps ErrFacilitator if the
	// facilitator does not answer.
	Verify(ctx context.Context, p *Payment) (payer string, err error)
	// Settle asks the facilitator to execute the payment. The error is a *Rejected if the
	// facilitator answers that it did not execute the payment. Any other error wraps
	// ErrFacilitator; then it is unknown whether the payment was executed.
	Settle(ctx context.Context, p *Payment) (Settlement, error)
	// Supported returns nil if the facilitator answers and supports the configured network.
	Supported(ctx context.Context) error
}

// Payment is a payment that a client has signed, with the requirements that it must meet.
type Payment struct {
	X402Version  int             // 1 or 2
	Payload      json.RawMessage // paymentPayload of the client, unchanged
	Requirements json.RawMessage // paymentRequirements of the same version

	// The following fields are those of a payment of the scheme "exact" on an EVM network.
	// Network is a plain name such as base. The addresses and the nonce are hexadecimal digits in
	// lower case after 0x.
	Network, Asset, PayTo, Payer, Nonce string
	Value                               *big.Int // atomic units of the asset
	ValidAfter, ValidBefore             int64    // Unix seconds
}

// ID returns the id of the payment in the replicated state.
func (p *Payment) ID() state.PaymentID {
	return state.PaymentID{Network: p.Network, Asset: p.Asset, Payer: p.Payer, Nonce: p.Nonce}
}

// lastSecond is the end of the year 9999 in Unix seconds. The state stores no later time.
const lastSecond = 253_402_300_799

// validBefore returns the time at which the signed authorization ends; 0 if it is not known.
func (p *Payment) validBefore() state.Millis {
	return state.Millis(1000 * max(0, min(p.ValidBefore, lastSecond)))
}

// Settlement is the answer of a facilitator that has settled a payment: the hash of the
// transaction, the network and the address of the payer.
type Settlement struct{ Transaction, Network, Payer string }

// Rejected is the error for a payment that the facilitator rejects.
type Rejected struct {
	Reason string // error code of the x402 protocol, for example insufficient_funds
	Payer  string // may be empty
}

func (e *Rejected) Error() string { return "the payment is rejected: " + e.Reason }

// Errors of this package, with the status codes of the HTTP answers. The methods also return
// *Rejected and errors of the state and of bodies.
var (
	// ErrPaymentUsed is returned if the state already has a record of the payment, whatever its
	// outcome: 402 nonce_already_used.
	ErrPaymentUsed = errors.New("this payment was used before")
	// ErrNotOwner is returned if the object to change belongs to another payer: 403.
	ErrNotOwner = errors.New("the object belongs to another payer")
	// ErrBusy is returned while another payment for the same object is in progress: 409.
	ErrBusy = errors.New("another payment for this object is in progress")
	// ErrNotFound is returned for an object that nobody has paid for: 404.
	ErrNotFound = errors.New("there is no such object")
	// ErrFacilitator is returned if the facilitator does not answer: 503. Nothing is stored.
	ErrFacilitator = errors.New("the facilitator does not answer")
	// ErrLength is returned if the body does not have the length that the payment is for: 400.
	// The client can use the payment again.
	ErrLength = errors.New("the body does not have the paid length")
)

// EndedError is returned for an object whose paid time is over: 410. Until is the end of that
// time.
type EndedError struct{ Until time.Time }

func (e *EndedError) Error() string {
	return fmt.Sprintf("the paid time ended at %s", e.Until.UTC().Format(time.RFC3339))
}

// PutRequest describes an object to store, and the payment for it.
type PutRequest struct {
	Bucket, Key string // as in the URL
	// Body is the content. Its Size must be known, because the price depends on it. If Reader has
	// another length, Put returns ErrLength.
	Body       objects.Body
	TTL        time.Duration // whole seconds
	Attributes objects.Attributes
	Amount     *big.Int // price in atomic units of the asset; the payment must have at least this value
	Payment    Payment
}

// PinRequest describes a pin to create, and the payment for it.
type PinRequest struct {
	CID      string
	Name     string
	Origins  []string
	Meta     map[string]string
	TTL      time.Duration // whole seconds
	MaxBytes uint64        // paid size in bytes; the pin of a larger DAG fails
	Amount   *big.Int
	Payment  Payment
}

// DeleteRequest describes an object to delete, which belongs to the payer, and the payment for
// the deletion.
type DeleteRequest struct {
	Bucket, Key string
	Amount      *big.Int
	Payment     Payment
}

// Receipt is the record of a payment, with what was stored for it.
type Receipt struct {
	state.Payment
	Object state.Object    // the stored object; set only by Put
	Pin    state.RequestID // id of the created pin; set only by Pin
}

// Settlement returns the recorded answer of the facilitator.
func (r *Receipt) Settlement() Settlement {
	return Settlement{Transaction: r.Transaction, Network: r.ID.Network, Payer: r.ID.Payer}
}

// Owner is the owner of a paid object and the end of the paid time.
type Owner struct {
	Payer string
	Until time.Time
	Ended bool // the paid time is over
}

// Opened is a paid object whose content can be read with Payments.Open.
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

// RefundError is returned if a payment was settled or may have been settled, but what it pays for
// was not done. The payment is refundable now. If the state could not be reached, it becomes
// refundable state.PaymentTimeout later. Err is the cause; it is ErrFacilitator if the
// facilitator did not answer.
type RefundError struct {
	Payment state.Payment
	Err     error
}

func (e *RefundError) Error() string {
	return fmt.Sprintf("payment %s of %s is to be refunded: %v", e.Payment.ID.Nonce, e.Payment.ID.Payer, e.Err)
}

// Unwrap returns the cause.
func (e *RefundError) Unwrap() error { return e.Err }
