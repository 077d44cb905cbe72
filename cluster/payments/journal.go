package payments

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Journal keeps settlements on this node's disk until the state has their outcome. A node that stops in
// between then knows at its next start which transaction settled a payment.
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
	payment     state.Payment // as it was reserved
	transaction string
}

// maxTransaction bounds the transaction of an entry in bytes. The state takes no longer one.
const maxTransaction = 256

// Code implements the record's form.
func (s *settled) Code(c *codec.Coder) {
	c.Version(1)
	s.payment.Code(c)
	codec.String(c, &s.transaction, maxTransaction)
}

// journalKey returns the key of a payment's entry. The parts of an id have no line breaks.
func journalKey(id *state.PaymentID) string {
	return strings.Join([]string{id.Network, id.Asset, id.Payer, id.Nonce}, "\n")
}

// note keeps a settlement until forget. Without a journal, or if the entry is out of bounds, it does
// nothing.
func (p *Payments) note(row *state.Payment, transaction string) {
	if p.opts.Journal == nil {
		return
	}
	c := codec.Encoder(nil)
	(&settled{*row, transaction}).Code(c)
	entry, err := c.Finish()
	if err != nil {
		return
	}
	p.opts.Journal.Set(journalKey(&row.ID), entry)
	p.opts.Journal.Sync()
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
		all = append(all, s)
	})
	return all
}

// leave keeps a settlement for recall, because its attempt has ended and the state may not have it.
func (p *Payments) leave(row *state.Payment, transaction string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = append(p.left, settled{*row, transaction})
}

// recall records the settlements that an earlier life of this node, or an attempt without a majority, has
// left: a payment that is not paid becomes refundable, and gets the transaction. It tries until ctx ends.
func (p *Payments) recall(ctx context.Context) {
	p.mu.Lock()
	left := p.left
	p.left = nil
	p.mu.Unlock()
	for i := range left {
		if p.record(ctx, &left[i]) {
			p.forget(&left[i].payment.ID)
		} else {
			p.leave(&left[i].payment, left[i].transaction)
		}
	}
}

// record records a settlement. It returns false if ctx ended before the state has it or refuses it.
func (p *Payments) record(ctx context.Context, s *settled) bool {
	err := p.propose(ctx, func() state.Command {
		now, _, ok := p.opts.Agreed()
		if !ok {
			now = state.MillisOf(p.opts.Now())
		}
		return &state.FailPayment{
			PaymentOutcome: state.PaymentOutcome{Payment: s.payment, Transaction: s.transaction, Now: now}, Refundable: true, Reason: recalledReason,
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
