package payments

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Values of Rejected.Reason that this package sets itself, without the facilitator.
const (
	reasonValue   = "invalid_exact_evm_payload_authorization_value"
	reasonPayload = "invalid_payload"
)

var errNoFacilitator = state.Errorf(state.CodeUnavailable, "no facilitator is set on this node: it sells nothing")

// attempt is one attempt to pay with a payment, from its reservation in the state to its outcome.
type attempt struct {
	p       *Payments
	payment *Payment
	row     state.Payment // the record with which the payment was reserved
	begun   time.Time     // time of the reservation by this node's clock; row.Reserved is the agreed time

	mu      sync.Mutex
	renewed time.Time // last renewal of the reservation by this node's clock
}

// begin verifies a payment with the facilitator and reserves it in the state. amount is the
// price. row describes what the payment pays for. After an error nothing is reserved.
func (p *Payments) begin(ctx context.Context, pay *Payment, amount *big.Int, row state.Payment) (*attempt, error) {
	if p.opts.Facilitator == nil {
		return nil, errNoFacilitator
	}
	if pay.Value == nil || amount == nil || pay.Value.Cmp(amount) < 0 {
		return nil, &Rejected{Reason: reasonValue, Payer: pay.Payer}
	}
	row.ID, row.Amount, row.PayTo, row.Request, row.Node = pay.ID(), pay.Value.String(), pay.PayTo, p.opts.NewID(), p.opts.Self
	row.ValidBefore = pay.validBefore()
	if err := p.precheck(ctx, &row); err != nil {
		return nil, err
	}
	payer, err := p.opts.Facilitator.Verify(ctx, pay)
	if err != nil {
		var rejected *Rejected
		if errors.As(err, &rejected) {
			// It may have been used on another node a moment ago.
			if known := p.confirm(ctx, &row); known != nil && !errors.Is(known, state.ErrUnavailable) {
				return nil, known
			}
		}
		return nil, fmt.Errorf("verify payment: %w", err)
	}
	if payer != "" && payer != pay.Payer {
		return nil, &Rejected{Reason: reasonPayload, Payer: payer}
	}
	now, err := p.agreed(ctx)
	if err != nil {
		return nil, err
	}
	row.Reserved = now
	if err := row.Check(); err != nil {
		return nil, err
	}
	a := &attempt{p: p, payment: pay, row: row, begun: p.opts.Now(), renewed: p.opts.Now()}
	_, err = p.opts.State.Propose(ctx, &state.ReservePayment{Payment: row, Now: now})
	var refused *state.Error
	if err != nil && (!errors.As(err, &refused) || refused.Code == state.CodeUnavailable) {
		a.release(ctx) // it may be committed yet
	}
	if err != nil {
		return nil, fmt.Errorf("reserve payment: %w", reserveError(err))
	}
	return a, nil
}

// agreed returns a time that the clocks of most members have reached. If it is unknown, agreed
// waits up to agreedWait and then returns state.ErrUnavailable. A node that has just started
// learns the times of the others from their next gossip samples.
func (p *Payments) agreed(ctx context.Context) (state.Millis, error) {
	ctx, cancel := context.WithTimeout(ctx, agreedWait)
	defer cancel()
	for {
		if now, _, ok := p.opts.Agreed(); ok {
			return now, nil
		}
		if !backoff.Wait(ctx, agreedPoll) {
			return 0, state.Errorf(state.CodeUnavailable, "too few members report their time")
		}
	}
}

// reserveError translates an error of the command ReservePayment into an error of this package.
func reserveError(err error) error {
	switch {
	case errors.Is(err, state.ErrExists):
		return ErrPaymentUsed
	case errors.Is(err, state.ErrForbidden):
		return ErrNotOwner
	case errors.Is(err, state.ErrConflict):
		return ErrBusy
	case errors.Is(err, state.ErrNotFound):
		return ErrNotFound
	}
	return err
}

// precheck returns the error with which the state would reject the reservation now. It comes
// before the question to the facilitator, whose answer about a used payment has a less clear
// reason. If the local state accepts the reservation, that is enough, because the command checks
// again. If it rejects the reservation, precheck asks confirm, because the local state may be
// outdated.
func (p *Payments) precheck(ctx context.Context, row *state.Payment) error {
	view, release := p.opts.State.LocalView()
	err := p.check(view, row)
	release()
	if err != nil {
		err = p.confirm(ctx, row)
	}
	return err
}

// confirm is check with a linearizable view of the state.
func (p *Payments) confirm(ctx context.Context, row *state.Payment) error {
	view, release, err := p.opts.State.View(ctx)
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	defer release()
	return p.check(view, row)
}

// check returns the error with which the command ReservePayment would fail in the given state.
func (p *Payments) check(view state.View, row *state.Payment) error {
	level, err := view.FeatureLevel()
	switch {
	case err != nil:
		return err
	case level < state.PaymentsLevel:
		return state.Errorf(state.CodeUnavailable, "not every member of the cluster has been upgraded to a release with payments")
	}
	if _, err := view.Payment(row.ID); err == nil {
		return ErrPaymentUsed
	} else if !errors.Is(err, state.ErrNotFound) {
		return err
	}
	if row.Object == "" {
		return nil
	}
	now, _, ok := p.opts.Agreed()
	owner, err := view.PaidObject(row.Object)
	switch {
	case errors.Is(err, state.ErrNotFound):
		err = nil
		if row.Kind == state.PaysDelete {
			err = ErrNotFound
		}
		return err
	case err != nil:
		return err
	case ok && owner.Lives(now) && owner.Payer != row.ID.Payer:
		return ErrNotOwner
	case row.Kind == state.PaysDelete && (owner.Ended || ok && !owner.Lives(now)):
		return &EndedError{Until: owner.Until.Time()}
	}
	return nil
}

// now returns the agreed time. If that is not known, it returns later.
func (a *attempt) now() state.Millis {
	if now, _, ok := a.p.opts.Agreed(); ok {
		return now
	}
	return a.later()
}

// later returns the agreed time of the reservation plus the duration since then.
func (a *attempt) later() state.Millis {
	return a.row.Reserved + state.Millis(a.p.opts.Now().Sub(a.begun).Milliseconds())
}

// release deletes the reservation, so that the client can use the payment again. It may be called
// only while the facilitator has not been asked to settle the payment.
func (a *attempt) release(ctx context.Context) {
	ctx, cancel := a.p.detached(ctx, endTimeout)
	defer cancel()
	if err := a.p.propose(ctx, func() state.Command { return &state.ReleasePayment{ID: a.row.ID, Request: a.row.Request} }); err != nil {
		a.p.opts.Logger.WarnContext(ctx, "a payment that was not used stays reserved until it is swept", "nonce", a.row.ID.Nonce, "payer", a.row.ID.Payer, "err", err)
	}
}

// propose proposes a command repeatedly until the state accepts or rejects it, or until ctx ends.
// A command may be applied twice, so a repetition must change nothing. propose calls cmd for each
// try.
func (p *Payments) propose(ctx context.Context, cmd func() state.Command) error {
	again := backoff.New(firstPause, longestPause)
	for {
		_, err := p.opts.State.Propose(ctx, cmd())
		var outcome *state.Error
		if err == nil || errors.As(err, &outcome) && outcome.Code != state.CodeUnavailable {
			return err
		}
		if !again.Wait(ctx) {
			return err
		}
	}
}

// keep renews the reservation every renewAfter in the background until stop is called. The caller
// must call stop.
func (a *attempt) keep(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for backoff.Wait(ctx, renewAfter) {
			if err := a.renew(ctx); err != nil && ctx.Err() == nil {
				a.p.opts.Logger.DebugContext(ctx, "a reservation was not renewed", "nonce", a.row.ID.Nonce, "err", err)
			}
		}
	})
	return func() { cancel(); work.Wait() }
}

func (a *attempt) renew(ctx context.Context) error {
	at := a.p.opts.Now()
	if _, err := a.p.opts.State.Propose(ctx, &state.ReservePayment{Payment: a.row, Now: a.now()}); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.renewed = at
	return nil
}

// fresh renews the reservation if the last renewal is renewAfter ago. Then the reservation does
// not time out during settlement and commit.
func (a *attempt) fresh(ctx context.Context) error {
	a.mu.Lock()
	due := a.p.opts.Now().Sub(a.renewed) >= renewAfter
	a.mu.Unlock()
	if !due {
		return nil
	}
	if err := a.renew(ctx); err != nil {
		return fmt.Errorf("renew reservation: %w", reserveError(err))
	}
	return nil
}

// settle asks the facilitator to execute the payment. While the outcome is unknown, it asks
// again, up to settleTries times: the network executes a nonce only once, so this cannot pay
// twice. After an error, the payment is recorded as failed or refundable. If the outcome is still
// unknown, recall asks for it later. The error is a *Rejected, or a *RefundError that wraps
// ErrFacilitator.
func (a *attempt) settle(ctx context.Context) (Settlement, error) {
	bounded, cancel := a.p.detached(ctx, settleTimeout)
	defer cancel()
	asked := a.asked()
	a.p.noteAsked(asked)
	var err error
	again := backoff.New(settlePause, longestPause)
	for try := 1; ; try++ {
		var done Settlement
		if done, err = a.p.opts.Facilitator.Settle(bounded, a.payment); err == nil {
			a.p.note(&a.row, done.Transaction)
			return done, nil
		}
		var rejected *Rejected
		if errors.As(err, &rejected) {
			if try > 1 { // an earlier try may have been executed, which is why this one is rejected
				break
			}
			a.fail(ctx, "", false, "the facilitator refused to settle: "+rejected.Reason)
			return Settlement{}, rejected
		}
		if try == settleTries || !again.Wait(bounded) {
			break
		}
	}
	a.p.opts.Logger.ErrorContext(ctx, "the outcome of a settlement is unknown", "nonce", a.row.ID.Nonce, "payer", a.row.ID.Payer, "network", a.row.ID.Network, "err", err)
	row := a.fail(ctx, "", true, unansweredReason)
	asked.reason = unansweredReason
	a.p.leave(asked)
	return Settlement{}, &RefundError{Payment: row, Err: fmt.Errorf("%w to the request to settle", ErrFacilitator)}
}

// fail records that the payment failed, or that it must be refunded if refundable is true. It
// returns the record of the payment. If the state cannot be reached, it returns the record that
// the payment will have after its reservation has timed out.
func (a *attempt) fail(ctx context.Context, transaction string, refundable bool, reason string) state.Payment {
	ctx, cancel := a.p.detached(ctx, endTimeout)
	defer cancel()
	err := a.p.propose(ctx, func() state.Command {
		return &state.FailPayment{
			PaymentOutcome: state.PaymentOutcome{Payment: a.row, Transaction: transaction, Now: a.now()},
			Refundable:     refundable, Reason: reason[:min(len(reason), state.MaxReasonLen)],
		}
	})
	if err == nil {
		var row state.Payment
		if row, err = a.recorded(); err == nil {
			if transaction != "" || !refundable { // else the facilitator is asked again
				a.p.forget(&row.ID)
			}
			return row
		}
	}
	a.p.opts.Logger.ErrorContext(ctx, "the outcome of a payment is not recorded; it becomes refundable", "nonce", a.row.ID.Nonce, "payer", a.row.ID.Payer,
		"network", a.row.ID.Network, "transaction", transaction, "refundable", refundable, "reason", reason, "err", err)
	if transaction != "" {
		a.p.leave(&settled{payment: a.row, transaction: transaction})
	}
	row := a.row
	row.State, row.Reason, row.Transaction = state.PaymentRefundable, reason, transaction
	return row
}

// recorded returns the record of the payment in this node's copy of the state.
func (a *attempt) recorded() (state.Payment, error) {
	view, release := a.p.opts.State.LocalView()
	defer release()
	return view.Payment(a.row.ID)
}

// commit proposes the command that cmd returns for a settled payment until the state accepts or
// rejects it. It returns a *RefundError if the state has made the payment refundable instead of
// paid.
func (a *attempt) commit(ctx context.Context, cmd func() state.Command) error {
	if err := a.p.propose(ctx, cmd); err != nil {
		return err
	}
	row, err := a.recorded()
	if err != nil {
		return err
	}
	a.p.forget(&row.ID)
	if row.State != state.PaymentPaid {
		return &RefundError{Payment: row, Err: state.Errorf(state.CodePrecondition, "%s", row.Reason)}
	}
	return nil
}

// outcome returns the record of the payment at the end of an attempt. err is the error of the
// commit. If err is not nil, outcome makes the payment refundable and returns a *RefundError,
// unless the record shows that the command was committed nevertheless.
func (a *attempt) outcome(ctx context.Context, done Settlement, err error) (state.Payment, error) {
	var refund *RefundError
	switch {
	case err == nil:
		return a.recorded()
	case errors.As(err, &refund):
		return refund.Payment, refund
	}
	row := a.fail(ctx, done.Transaction, true, "the payment was settled and its outcome was not recorded in time: "+err.Error())
	if row.State == state.PaymentPaid {
		return row, nil
	}
	return row, &RefundError{Payment: row, Err: err}
}

// ends returns the part of a command that records a settlement and ends the reservation. The paid
// time begins at the Now of the result.
func (a *attempt) ends(done Settlement) state.PaymentOutcome {
	now := a.later()
	if early, late, ok := a.p.opts.Agreed(); ok {
		now = state.BeginsWithin(state.MillisOf(a.p.opts.Now()), early, late)
	}
	return state.PaymentOutcome{Payment: a.row, Transaction: done.Transaction, Now: now}
}
