package credits

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of the time between two looks at whether a period is over.
const (
	chargeEvery = 10 * time.Second
	chargeLeast = 100 * time.Millisecond
	// looksInPeriod is the number of looks in a period that is shorter than a minute.
	looksInPeriod = 6
)

// chargePause is the pause between two commands that charge accounts. Other writes then do not wait
// for one such command after the other.
const chargePause = 20 * time.Millisecond

// Run proposes charges, and the end of content that is not paid for, while this node leads, until ctx
// ends.
func (l *Ledger) Run(ctx context.Context) error {
	ticker := time.NewTicker(max(chargeLeast, min(chargeEvery, l.period/looksInPeriod)))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := errors.Join(l.ChargeStorage(ctx), l.EndContent(ctx)); err != nil && ctx.Err() == nil {
			l.log.LogAttrs(ctx, slog.LevelDebug, "storage not charged yet", slog.Any("err", err))
		}
	}
}

// ChargeStorage charges all accounts for the periods that are over, if this node leads. It does
// nothing while the agreed time is unknown, and below state.LedgerLevel. Another leader goes on where
// this one stops.
//
// Errors: state.ErrUnavailable without a majority.
func (l *Ledger) ChargeStorage(ctx context.Context) error {
	for l.state.IsLeader() {
		now, _, ok := l.agreed()
		if !ok {
			return nil
		}
		cmd := state.ChargeStorage{Now: now, Every: state.Millis(l.period.Milliseconds()), Rate: l.rate, Requests: l.requests}
		due, err := l.due(&cmd)
		if err != nil || !due {
			return err
		}
		if _, err := l.state.Propose(ctx, &cmd); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(chargePause):
		}
	}
	return nil
}

// due returns whether a command changes anything. Below state.GraceLevel it removes the price of
// requests from the command.
func (l *Ledger) due(cmd *state.ChargeStorage) (bool, error) {
	view, release := l.state.LocalView()
	defer release()
	level, err := view.FeatureLevel()
	if err != nil || level < state.LedgerLevel || cmd.Every <= 0 {
		return false, err
	}
	if level < state.GraceLevel {
		cmd.Requests = 0
	}
	return view.ChargeDue(*cmd)
}
