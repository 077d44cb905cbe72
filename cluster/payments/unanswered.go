package payments

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of the questions to a facilitator about settlements that it has not answered.
const (
	// askMargin is the time after the end of an authorization from which no network executes it, by the
	// clock of any of its blocks.
	askMargin = 30 * time.Second
	// askPause is the time between two questions to a facilitator that does not answer, and askFor the
	// time after askMargin in which it is asked.
	askPause = 10 * time.Minute
	askFor   = 24 * time.Hour
	// askWithin bounds the time for which an authorization was valid. A longer one is not asked about.
	askWithin = 24 * time.Hour
	// maxUnanswered bounds the number of settlements that are asked about, and maxQuestions that of the
	// questions of one pass.
	maxUnanswered = 1 << 12
	maxQuestions  = 16
)

// Reasons of payments whose settlement was not answered.
const (
	unansweredReason = "the facilitator did not answer; the payment may have been settled"
	stoppedReason    = "the node stopped before the facilitator answered; the payment may have been settled"
	toldLateReason   = "the payment was settled, and the facilitator said so only after the attempt had ended"
)

// question is what a facilitator was asked to settle, so that it can be asked again.
type question struct {
	x402Version           uint8
	payload, requirements []byte
}

func (q *question) code(c *codec.Coder) {
	codec.Uint(c, &q.x402Version)
	codec.Bytes(c, &q.payload, maxEntry)
	codec.Bytes(c, &q.requirements, maxEntry)
}

// asked returns the entry of a payment that the facilitator is about to be asked to settle.
func (a *attempt) asked() *settled {
	return &settled{payment: a.row, question: question{
		uint8(a.payment.X402Version), a.payment.Payload, a.payment.Requirements, //nolint:gosec // 1 or 2
	}}
}

// again returns the payment of an entry as the facilitator was asked to settle it.
func (s *settled) again() *Payment {
	id := &s.payment.ID
	return &Payment{
		X402Version: int(s.question.x402Version), Payload: json.RawMessage(s.question.payload), Requirements: json.RawMessage(s.question.requirements),
		Network: id.Network, Asset: id.Asset, PayTo: s.payment.PayTo, Payer: id.Payer, Nonce: id.Nonce,
		ValidBefore: int64(s.payment.ValidBefore / 1000),
	}
}

// recallAsked records a settlement without an answer, and asks the facilitator again when the authorization
// has ended: no network executes it any more, so the question cannot move money, and a yes has the transaction
// of the first time. It returns true if nothing is left to do.
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

// answerable returns whether the facilitator can be asked again about an entry: what it was asked is known,
// and its authorization ends.
func (s *settled) answerable() bool {
	end := s.payment.ValidBefore
	return len(s.question.payload) > 0 && end > 0 && end <= s.payment.Reserved+state.Millis(askWithin.Milliseconds())
}

// Unanswered returns the number of settlements of which this node does not know the outcome, although their
// attempts have ended.
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
