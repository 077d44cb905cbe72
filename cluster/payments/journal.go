package payments

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Journal stores settlements on this node's disk until the state has their outcome. If a node
// stops in between, it knows at its next start which payments it has asked the facilitator to
// settle, and with which transactions they were settled. Keys and values are those of this
// package.
type Journal interface {
	Get(key string) (value []byte, ok bool)
	Set(key string, value []byte)
	Delete(key string)
	// Keys calls fn with each key, in any order. fn may call Delete.
	Keys(fn func(key string))
	// Sync waits until all earlier changes are on the disk, or until it is clear that they cannot
	// be written.
	Sync()
}

// recalledReason is the reason in the record of a payment that recall makes refundable.
const recalledReason = "the payment was settled, and the node could not record that in time"

// settled is a journal entry about one settlement.
type settled struct {
	payment state.Payment // record with which the payment was reserved
	// transaction is "" if the facilitator was asked and its answer is not known.
	transaction string
	question    question // set only without a transaction
	// The following fields are not on the disk.
	reason   string // reason for the record if the payment becomes refundable; only without a transaction
	recorded bool   // the payment is refundable in the state
}

// Limits of an entry in bytes.
const (
	// maxTransaction is the largest length of a transaction. It is that of the state.
	maxTransaction = 256
	// maxEntry is the largest length of an entry. It is that of a Journal.
	maxEntry = 4 << 10
)

// Code encodes or decodes the entry. An entry without a transaction is encoded as version 2,
// others as version 1.
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

// journalKey returns the key of a payment's entry. It separates the parts of the id by line
// breaks, which the parts cannot contain.
func journalKey(id *state.PaymentID) string {
	return strings.Join([]string{id.Network, id.Asset, id.Payer, id.Nonce}, "\n")
}

// note writes to the journal that transaction has settled a payment, and waits until the entry is
// on the disk. forget deletes the entry. Without a journal, or if the entry is too long, note
// does nothing.
func (p *Payments) note(row *state.Payment, transaction string) {
	if p.keep(&settled{payment: *row, transaction: transaction}) {
		p.opts.Journal.Sync()
	}
}

// noteAsked writes to the journal what the facilitator is about to be asked. note replaces the
// entry, and forget deletes it. noteAsked does not wait for the disk. The end of the process
// loses no entry. If the machine stops, the entry may be lost; then the leader makes the payment
// refundable after its reservation has timed out.
func (p *Payments) noteAsked(s *settled) {
	if !p.keep(s) { // the question is too long to be kept
		s.question = question{}
		p.keep(s)
	}
}

// keep writes an entry to the journal. It returns false without a journal, or if the entry is too
// long.
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

// forget deletes the entry of a settlement whose outcome is in the state.
func (p *Payments) forget(id *state.PaymentID) {
	if p.opts.Journal != nil {
		p.opts.Journal.Delete(journalKey(id))
	}
}

// noted returns the journal entries that an earlier process of this node has left. It deletes
// entries that it cannot decode.
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

// leave passes a settlement to the next call of recall. The attempt has ended, and its outcome
// may not be in the state.
func (p *Payments) leave(s *settled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = append(p.left, *s)
}

// recall records outcomes that are not in the state yet. They were left by an earlier process of
// this node, or by attempts that had no majority or no answer of the facilitator. recall makes
// each payment refundable that is not recorded as paid. It adds the transaction if that is known
// or if the facilitator returns it now. It tries until ctx ends.
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

// record makes the payment of a settlement refundable, unless it is recorded as paid. It returns
// false if ctx ends before the state accepts or rejects that.
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
