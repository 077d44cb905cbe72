package clustertest

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Lagging is the state of a node that has not received the newest changes: its LocalView is older
// than its View.
type Lagging struct {
	*State
	view  state.View
	asked atomic.Int64
}

// NewLagging returns a Lagging whose LocalView remains at the present state of s.
func NewLagging(tb testing.TB, s *State) *Lagging {
	tb.Helper()
	view, release := s.LocalView()
	tb.Cleanup(release)
	return &Lagging{State: s, view: view}
}

// View returns the newest state of the cluster and counts the call.
func (l *Lagging) View(ctx context.Context) (state.View, func(), error) {
	l.asked.Add(1)
	return l.State.View(ctx)
}

// LocalView returns the state of the moment when NewLagging was called.
func (l *Lagging) LocalView() (state.View, func()) { return l.views.lend(l.view) }

// Asked returns how often View was called.
func (l *Lagging) Asked() int64 { return l.asked.Load() }
