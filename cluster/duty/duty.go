// Package duty does what the leader of a cluster has to do by itself when the agreed time has come: it
// ends pins, charges for storage, and ends what was paid for. A new leader goes on where the last one
// stopped, because the state says what is due.
//
// Imports: consensus/state, internal/backoff.
// Never:   raft, libp2p, storage, HTTP; what is due.
package duty

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// State has the methods of package consensus that this package needs.
type State interface {
	// LocalView returns the state that this node has applied. The caller must call release.
	LocalView() (view state.View, release func())
	// Propose commits a command. A later LocalView has its result.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// IsLeader returns whether this node leads the cluster.
	IsLeader() bool
}

// Duty is a kind of command that is due again and again. All fields but Pause are required.
type Duty struct {
	State State
	// Agreed returns a time that the clocks of most members have reached. ok is false while no such
	// time is known.
	Agreed func() (early, late state.Millis, ok bool)
	// Due returns the command that is due at a time, or nil if none is.
	Due func(view state.View, now state.Millis) (state.Command, error)
	// Pause is the time between two commands, in which other writes need not wait.
	Pause time.Duration
}

// Do proposes one command after the other until none is due, if this node leads. It does nothing while
// the agreed time is unknown.
//
// Errors: those of Due, and state.ErrUnavailable without a majority.
func (d *Duty) Do(ctx context.Context) error {
	for d.State.IsLeader() {
		now, _, ok := d.Agreed()
		if !ok {
			return nil
		}
		cmd, err := d.due(now)
		if err != nil || cmd == nil {
			return err
		}
		if _, err := d.State.Propose(ctx, cmd); err != nil {
			return err
		}
		if d.Pause > 0 && !backoff.Wait(ctx, d.Pause) {
			return nil
		}
	}
	return nil
}

func (d *Duty) due(now state.Millis) (state.Command, error) {
	view, release := d.State.LocalView()
	defer release()
	return d.Due(view, now)
}

// Every calls pass in intervals until ctx ends. It then returns nil. It logs errors of pass with a message,
// because the next pass tries again.
func Every(ctx context.Context, interval time.Duration, log *slog.Logger, message string, pass func(context.Context) error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := pass(ctx); err != nil && ctx.Err() == nil {
			log.LogAttrs(ctx, slog.LevelDebug, message, slog.Any("err", err))
		}
	}
}
