package tracker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Intervals of the Reconciler.
const (
	reconcileEvery = 5 * time.Second // interval of passes without a reported change
	reconcileRetry = 200 * time.Millisecond
	indexingEvery  = 10 * time.Second // interval of log lines about the progress of an index
)

// Reconciler proposes the commands of the state's background work on the leader. A command that
// affects many rows changes only some of them at once; the Reconciler completes the change. It
// sets pins to the status of their roots, clears closed accounts, deleted buckets and ended
// uploads, and changes objects to the public setting of their bucket. It also builds the index of
// pins by meta and packs the names of pins of older releases. All exported fields are required.
type Reconciler struct {
	Self   state.NodeID
	State  State
	Watch  *state.Watch
	Logger *slog.Logger

	indexingSaid time.Time // time of the last log line about the index by meta
	packingSaid  time.Time // time of the last log line about packed names
}

// Run proposes commands while this node is the leader, until ctx ends. Then it returns nil.
func (s *Reconciler) Run(ctx context.Context) error {
	sub := s.Watch.Subscribe(s.Self)
	defer sub.Close()
	timer := time.NewTimer(reconcileEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sub.C:
			if ch := sub.Take(); !ch.All && !ch.Settling {
				continue
			}
		case <-timer.C: // this node may lead since
		}
		next := reconcileEvery
		if s.State.IsLeader() {
			if err := s.pass(ctx); err != nil && ctx.Err() == nil {
				s.Logger.WarnContext(ctx, "cannot set pins to the status of their roots", "err", err)
				next = reconcileRetry
			}
		}
		timer.Reset(next)
	}
}

// pass proposes commands until nothing is left to do.
func (s *Reconciler) pass(ctx context.Context) error {
	for ctx.Err() == nil && s.State.IsLeader() {
		view, release := s.State.LocalView()
		roots, err := view.Settling(state.MaxReports)
		closed, cerr := view.Closing(state.MaxReports)
		buckets, berr := view.Emptying(state.MaxReports)
		uploads, uerr := view.Ended(state.MaxReports)
		turning, terr := view.Turning(state.MaxReports)
		index, indexed, pins, ierr := view.PinsToIndex()
		pack, packed, named, perr := view.NamesToPack()
		release()
		if err := errors.Join(err, cerr, berr, uerr, terr, ierr, perr); err != nil {
			return wrap("read what is to be settled", err)
		}
		if len(roots)+len(closed)+len(buckets)+len(uploads)+len(turning) == 0 && index == nil && pack == nil {
			return nil
		}
		if index != nil {
			s.say(ctx, &s.indexingSaid, "pins of an older release are added to the index by meta; lists by meta read all pins until then", indexed, pins)
			if _, err := s.State.Propose(ctx, index); err != nil {
				return wrap("index pins by meta", err)
			}
		}
		if pack != nil {
			s.say(ctx, &s.packingSaid, "names of pins of an older release are packed; lists by a part of a name are slower until then", packed, named)
			if _, err := s.State.Propose(ctx, pack); err != nil {
				return wrap("pack names of pins", err)
			}
		}
		if len(roots) > 0 {
			if _, err := s.State.Propose(ctx, &state.SettleRoots{Roots: roots}); err != nil {
				return wrap("settle roots", err)
			}
		}
		if len(closed) > 0 {
			if _, err := s.State.Propose(ctx, &state.ClearAccounts{Accounts: closed}); err != nil {
				return wrap("clear closed accounts", err)
			}
		}
		if len(buckets) > 0 {
			if _, err := s.State.Propose(ctx, &state.ClearBuckets{Items: buckets}); err != nil {
				return wrap("clear deleted buckets", err)
			}
		}
		if len(uploads) > 0 {
			if _, err := s.State.Propose(ctx, &state.ClearUploads{Items: uploads}); err != nil {
				return wrap("clear ended uploads", err)
			}
		}
		if len(turning) > 0 {
			if _, err := s.State.Propose(ctx, &state.TurnBuckets{Items: turning}); err != nil {
				return wrap("turn buckets", err)
			}
		}
	}
	return nil
}

// say logs the progress of an index, at most every indexingEvery. last is the time of the last
// line, done the number of processed pins and pins that of all pins.
func (s *Reconciler) say(ctx context.Context, last *time.Time, what string, done, pins uint64) {
	if now := time.Now(); now.Sub(*last) >= indexingEvery {
		*last = now
		s.Logger.InfoContext(ctx, what, "done", done, "pins", pins)
	}
}
