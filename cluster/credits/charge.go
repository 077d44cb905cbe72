package credits

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/duty"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits of the interval at which the leader checks whether a period is over.
const (
	chargeEvery = 10 * time.Second
	chargeLeast = 100 * time.Millisecond
	// looksInPeriod is the number of checks per period if a period is shorter than a minute.
	looksInPeriod = 6
)

// chargePause is the pause between two commands that charge accounts, so that other writes can
// proceed in between.
const chargePause = 20 * time.Millisecond

// Run charges accounts for storage and requests, and deletes content that is not paid for, while
// this node leads, until ctx ends.
func (l *Ledger) Run(ctx context.Context) error {
	every := max(chargeLeast, min(chargeEvery, l.period/looksInPeriod))
	return duty.Every(ctx, every, l.log, "storage not charged yet", func(ctx context.Context) error {
		return errors.Join(l.ChargeStorage(ctx), l.EndContent(ctx))
	})
}

// ChargeStorage charges all accounts for the periods that are over, if this node leads. It does
// nothing while no time is known on which most members agree, and below state.LedgerLevel. If
// this node stops leading, the next leader continues.
//
// Errors: state.ErrUnavailable without a majority.
func (l *Ledger) ChargeStorage(ctx context.Context) error {
	charges := duty.Duty{State: l.state, Agreed: l.agreed, Due: l.due, Pause: chargePause}
	return charges.Do(ctx)
}

// due returns the command that charges at the time now, or nil if none is due. Below
// state.GraceLevel the command has no price of requests.
func (l *Ledger) due(view state.View, now state.Millis) (state.Command, error) {
	cmd := &state.ChargeStorage{Now: now, Every: state.Millis(l.period.Milliseconds()), Rate: l.rate, Requests: l.requests}
	level, err := view.FeatureLevel()
	if err != nil || level < state.LedgerLevel || cmd.Every <= 0 {
		return nil, err
	}
	if level < state.GraceLevel {
		cmd.Requests = 0
	}
	if due, err := view.ChargeDue(*cmd); err != nil || !due {
		return nil, err
	}
	return cmd, nil
}
