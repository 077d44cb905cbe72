package credits

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// chargeEvery is the time between two looks at whether a period is over.
const chargeEvery = 10 * time.Second

// Run proposes charges for storage while this node leads, until ctx ends.
func (l *Ledger) Run(ctx context.Context) error {
	ticker := time.NewTicker(chargeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := l.ChargeStorage(ctx); err != nil && ctx.Err() == nil {
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
		cmd := state.ChargeStorage{Now: now, Every: state.Millis(l.period.Milliseconds()), Rate: l.rate}
		due, err := l.due(cmd)
		if err != nil || !due {
			return err
		}
		if _, err := l.state.Propose(ctx, &cmd); err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) due(cmd state.ChargeStorage) (bool, error) {
	view, release := l.state.LocalView()
	defer release()
	if level, err := view.FeatureLevel(); err != nil || level < state.LedgerLevel || cmd.Every <= 0 {
		return false, err
	}
	return view.ChargeDue(cmd)
}
