package payments

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Journal keeps settlements on this node's disk until the state has their outcome. A node that stops in
// between then knows at its next start which payments the facilitator was asked to settle, and which
// transaction settled them.
type Journal interface {
	Get(key string) (value []byte, ok bool)
	Set(key string, value []byte)
	Delete(key string)
	// Keys calls fn for every key, in any order. fn may delete.
	Keys(fn func(key string))
	// Sync returns when the changes so far are on the disk, or cannot be written.
	Sync()
}

// recalledReason is the reason of a payment that becomes refundable because of recall.
const recalledReason = "the payment was settled, and the node could not record that in time"

// settled is the entry of a settlement.
type settled struct {
	payment state.Payment // as it was reserved
	// transaction is "" if the facilitator was asked and its answer is not known.
	transaction string
	question    question // only without a transaction
	// The following fields are not on the disk.
	reason   string // why the payment is refundable, only without a transaction
	recorded bool   // the state has the payment as refundable
}

// Bounds of an entry in bytes.
const (
	// maxTransaction bounds the transaction. The state takes no longer one.
	maxTransaction = 256
	// maxEntry bounds an entry. A Journal keeps no longer one.
	maxEntry = 4 << 10
)

// Code encodes or decodes the record. Version 2 is written only without a transaction.
func (s *settled) Code(c *codec.Coder) {
	version := uint64(1)
	if c.Decoding() || s.transaction == "" {
		version = 2
	}
	version = c.Version(version)
	s.payment.Code(c)
	codec.String(c, &s.transaction, maxTransaction)
	if version >= 2 {
		s.question.code(c)
	}
}

// journalKey returns the key of a payment's entry. The parts of an id have no line breaks.
func journalKey(id *state.PaymentID) string {
	return strings.Join([]string{id.Network, id.Asset, id.Payer, id.Nonce}, "\n")
}

// note keeps a settlement until forget. It is on the disk when note returns. Without a journal, or if the
// entry is out of bounds, note does nothing.
func (p *Payments) note(row *state.Payment, transaction string) {
	if p.keep(&settled{payment: *row, transaction: transaction}) {
		p.opts.Journal.Sync()
	}
}

// noteAsked keeps what the facilitator is about to be asked until note or forget. It does not wait for the
// disk: the end of the process loses nothing, and after the end of the machine the leader makes the payment
// refundable when its reservation has timed out.
func (p *Payments) noteAsked(s *settled) {
	if !p.keep(s) { // the question is too long to be kept
		s.question = question{}
		p.keep(s)
	}
}

// keep writes an entry. It returns false if the entry is not written.
func (p *Payments) keep(s *settled) bool {
	if p.opts.Journal == nil {
		return false
	}
	c := codec.Encoder(nil)
	s.Code(c)
	entry, err := c.Finish()
	if err != nil || len(entry) > maxEntry {
		return false
	}
	p.opts.Journal.Set(journalKey(&s.payment.ID), entry)
	return true
}

// forget removes the entry of a settlement whose outcome the state has.
func (p *Payments) forget(id *state.PaymentID) {
	if p.opts.Journal != nil {
		p.opts.Journal.Delete(journalKey(id))
	}
}

// noted returns the entries that an earlier life of this node has left.
func (p *Payments) noted() (all []settled) {
	if p.opts.Journal == nil {
		return nil
	}
	p.opts.Journal.Keys(func(key string) {
		entry, _ := p.opts.Journal.Get(key)
		var s settled
		c := codec.Decoder(entry)
		s.Code(c)
		if _, err := c.Finish(); err != nil {
			p.opts.Logger.Error("a settlement in the journal cannot be read", "err", err)
			p.opts.Journal.Delete(key)
			return
		}
		s.reason = stoppedReason
		all = append(all, s)
	})
	return all
}

// leave keeps a settlement for recall, because its attempt has ended and the state may not have it.
func (p *Payments) leave(s *settled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = append(p.left, *s)
}

// recall records the settlements that an earlier life of this node, or an attempt without a majority or
// without an answer, has left: a payment that is not paid becomes refundable, and gets the transaction if
// it is known or the facilitator tells it now. It tries to record until ctx ends.
func (p *Payments) recall(ctx context.Context) {
	p.questions = maxQuestions
	p.mu.Lock()
	left := len(p.left)
	p.mu.Unlock()
	for range left {
		p.mu.Lock()
		s := p.left[0]
		p.left = p.left[1:]
		p.mu.Unlock()
		done := false
		if s.transaction == "" {
			done = p.recallAsked(ctx, &s)
		} else {
			done = p.record(ctx, &s, recalledReason)
		}
		if done {
			p.forget(&s.payment.ID)
		} else {
			p.leave(&s)
		}
	}
}

// record makes the payment of a settlement refundable that is not paid. It returns false if ctx ended
// before the state has it or refuses it.
func (p *Payments) record(ctx context.Context, s *settled, reason string) bool {
	err := p.propose(ctx, func() state.Command {
		now, _, ok := p.opts.Agreed()
		if !ok {
			now = state.MillisOf(p.opts.Now())
		}
		return &state.FailPayment{
			PaymentOutcome: state.PaymentOutcome{Payment: s.payment, Transaction: s.transaction, Now: now}, Refundable: true, Reason: reason,
		}
	})
	id := &s.payment.ID
	var refused *state.Error
	switch {
	case err == nil:
		p.opts.Logger.InfoContext(ctx, "the outcome of a settlement is recorded late", "nonce", id.Nonce, "payer", id.Payer, "transaction", s.transaction)
	case errors.As(err, &refused) && refused.Code != state.CodeUnavailable:
		p.opts.Logger.ErrorContext(ctx, "the state refuses a settlement of the journal", "nonce", id.Nonce, "payer", id.Payer, "transaction", s.transaction, "err", err)
	default:
		return false
	}
	return true
}
