package payments

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits for asking a facilitator again about settlements that it has not answered.
const (
	// askMargin is how long after the end of an authorization the network may still execute it,
	// because the times of blocks differ from the real time.
	askMargin = 30 * time.Second
	// askPause is the pause before a facilitator that did not answer is asked again. askFor is
	// how long it is asked about a settlement, counted from the end of the authorization and
	// askMargin.
	askPause = 10 * time.Minute
	askFor   = 24 * time.Hour
	// askWithin is the longest validity of an authorization about which the facilitator is asked,
	// counted from the reservation.
	askWithin = 24 * time.Hour
	// maxUnanswered is the largest number of settlements about which the facilitator is asked,
	// and maxQuestions the largest number of questions in one pass.
	maxUnanswered = 1 << 12
	maxQuestions  = 16
)

// Reasons in the records of payments whose settlement the facilitator has not answered in time.
const (
	unansweredReason = "the facilitator did not answer; the payment may have been settled"
	stoppedReason    = "the node stopped before the facilitator answered; the payment may have been settled"
	toldLateReason   = "the payment was settled, and the facilitator said so only after the attempt had ended"
)

// question is the payment that a facilitator was asked to settle. It is stored so that the
// facilitator can be asked again.
type question struct {
	x402Version           uint8
	payload, requirements []byte
}

func (q *question) code(c *codec.Coder) {
	codec.Uint(c, &q.x402Version)
	codec.Bytes(c, &q.payload, maxEntry)
	codec.Bytes(c, &q.requirements, maxEntry)
}

// asked returns the journal entry for the request to settle the payment of this attempt.
func (a *attempt) asked() *settled {
	return &settled{payment: a.row, question: question{
		uint8(a.payment.X402Version), a.payment.Payload, a.payment.Requirements, //nolint:gosec // 1 or 2
	}}
}

// again returns the payment of an entry, for another request to settle it.
func (s *settled) again() *Payment {
	id := &s.payment.ID
	return &Payment{
		X402Version: int(s.question.x402Version), Payload: json.RawMessage(s.question.payload), Requirements: json.RawMessage(s.question.requirements),
		Network: id.Network, Asset: id.Asset, PayTo: s.payment.PayTo, Payer: id.Payer, Nonce: id.Nonce,
		ValidBefore: int64(s.payment.ValidBefore / 1000),
	}
}

// recallAsked makes the payment of a settlement without an answer refundable. After the signed
// authorization has ended, it asks the facilitator again to settle the payment. The network no
// longer executes the authorization then, so the question cannot move money, and a positive
// answer contains the transaction of the first request. done is true if nothing is left to do.
func (p *Payments) recallAsked(ctx context.Context, s *settled) (done bool) {
	if !s.recorded {
		row, err := p.Payment(ctx, s.payment.ID)
		switch {
		case err != nil && !errors.Is(err, state.ErrNotFound):
			return false
		case row.State == state.PaymentPaid || row.State == state.PaymentFailed || row.Transaction != "":
			return true
		}
		if s.recorded = row.State == state.PaymentRefundable || p.record(ctx, s, s.reason); !s.recorded {
			return false
		}
	}
	if !s.answerable() || p.Unanswered() >= maxUnanswered {
		return true
	}
	from := s.payment.ValidBefore + state.Millis(askMargin.Milliseconds())
	now, _, ok := p.opts.Agreed()
	switch {
	case !ok || now < from:
		return false
	case now >= from+state.Millis(askFor.Milliseconds()):
		return true
	case p.opts.Facilitator == nil || p.questions <= 0 || p.opts.Now().Before(p.askFrom):
		return false
	}
	p.questions--
	outcome, err := p.opts.Facilitator.Settle(ctx, s.again())
	var rejected *Rejected
	switch {
	case errors.As(err, &rejected): // the nonce was used, or the time is over: both prove nothing
		return true
	case err != nil:
		p.askFrom = p.opts.Now().Add(askPause)
		return false
	case outcome.Transaction == "":
		return true
	}
	s.transaction = outcome.Transaction
	p.note(&s.payment, s.transaction)
	return p.record(ctx, s, toldLateReason)
}

// answerable returns whether the facilitator can be asked again about an entry. The entry must
// contain the question, and the authorization must end within askWithin.
func (s *settled) answerable() bool {
	end := s.payment.ValidBefore
	return len(s.question.payload) > 0 && end > 0 && end <= s.payment.Reserved+state.Millis(askWithin.Milliseconds())
}

// Unanswered returns the number of settlements whose attempts on this node have ended and whose
// outcome this node does not know.
func (p *Payments) Unanswered() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.left {
		if p.left[i].transaction == "" {
			n++
		}
	}
	return n
}
