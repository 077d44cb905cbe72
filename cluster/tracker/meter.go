package tracker

import (
	"context"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

const (
	// meterStep is the number of bytes of a root that arrive between two reports of its meter.
	// Together with the bytes in flight it is less than 64 MiB, the largest amount by which the
	// stored bytes of a pin may exceed what its account is charged for.
	meterStep = 32 << 20
	// meterPause is the pause between two attempts to report arrived bytes.
	meterPause = 500 * time.Millisecond
)

// meter charges accounts for content of unknown size while it arrives. The zero meter charges
// nothing.
type meter struct {
	root state.RootKey
	born uint64
	said uint64 // bytes that were reported so far
}

// meterOf returns the meter of a fetch. It returns the zero meter for a repair, whose content is
// charged already, and in a cluster whose feature level has no quotas.
func meterOf(view state.View, root *state.Root) meter {
	level, err := view.FeatureLevel()
	if err != nil || level < 2 || root.Status == state.Pinned {
		return meter{}
	}
	return meter{root: root.Key, born: root.Born}
}

// charge reports how many bytes of a root have arrived, if they are meterStep more than at the last
// report. It delays the fetch until the report is committed. If the accounts that want the root
// cannot pay for that much, the state removes the root, and the dispatcher stops the fetch.
func (t *Tracker) charge(ctx context.Context, m *meter, bytes uint64) {
	if m.born == 0 || bytes < m.said+meterStep {
		return
	}
	for {
		_, err := t.opts.State.Propose(ctx, &state.ReportArrivals{Items: []state.Arrival{{Root: m.root, Born: m.born, Bytes: bytes}}})
		if err == nil || final(err) {
			m.said = bytes
			return
		}
		if !backoff.Wait(ctx, meterPause) {
			return
		}
	}
}
