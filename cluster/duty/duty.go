// Package duty runs recurring work of the leader that is due at certain times: it ends pins,
// charges for storage, and removes content whose paid time is over. A new leader continues where
// the last one stopped, because the replicated state determines what is due.
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
	// LocalView returns a view of the state that this node has applied. The caller must call
	// release.
	LocalView() (view state.View, release func())
	// Propose commits a command. A later LocalView has its result.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// IsLeader returns whether this node leads the cluster.
	IsLeader() bool
}

// Duty describes a kind of command that the leader must propose again and again. All fields but
// Pause are required.
type Duty struct {
	State State
	// Agreed returns early, a time that most members' clocks have reached. ok is false while no
	// such time is known.
	Agreed func() (early, late state.Millis, ok bool)
	// Due returns the command that is due at the time now, or nil if none is.
	Due func(view state.View, now state.Millis) (state.Command, error)
	// Pause is the time between two commands, during which other writes can proceed.
	Pause time.Duration
}

// Do proposes one command after the other until none is due, if this node leads. It does nothing
// while Agreed knows no time.
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

// Every calls pass at intervals until ctx ends, and then returns nil. It logs an error of pass
// with the given message, and tries again at the next interval.
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
