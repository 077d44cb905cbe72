package tracker

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// TestTheReconcilerIndexesPinsOfAnOlderRelease promises that the leader builds the index of pins by
// meta and packs names after an upgrade, however many pins there are, and that log lines say so.
func TestTheReconcilerIndexesPinsOfAnOlderRelease(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		for range 2_500 {
			w.pin(1)
		}
		w.state.Apply(w, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
		toIndex := func() (next *state.IndexPins, of uint64) {
			view, release := w.state.State.LocalView()
			defer release()
			next, _, of, err := view.PinsToIndex()
			pack, _, named, perr := view.NamesToPack()
			if err := errors.Join(err, perr); err != nil {
				w.Fatal(err)
			}
			if (next == nil) != (pack == nil) || of != named {
				w.Errorf("%d pins are to be indexed, and the names of %d", of, named)
			}
			return next, of
		}
		if next, of := toIndex(); next == nil || of != 2_500 {
			w.Fatalf("%d pins are to be indexed, next is %+v", of, next)
		}
		var log strings.Builder
		s := &Reconciler{Self: self, State: w.state, Watch: w.state.Watch, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		stop := running(w, s.Run)
		w.pass(2 * reconcileEvery)
		stop()
		if next, _ := toIndex(); next != nil || strings.Count(log.String(), "index by meta") != 1 || strings.Count(log.String(), "are packed") != 1 {
			w.Errorf("next is %+v, and the log says %s", next, log.String())
		}
	})
}
