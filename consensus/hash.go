package consensus

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits for hashing the state.
const (
	// hashRate is the largest number of bytes of the state that are read per second, so that
	// hashing leaves most of the disk and the processor to clients.
	hashRate = 64 << 20
	// hashStep is the number of bytes after which the rate is checked.
	hashStep = 1 << 20
)

// StateHash returns a hash of the whole local state, and the index of the newest entry in it.
// Nodes with correct states have the same hash at the same index. StateHash reads the state at a
// bounded rate, serves one caller at a time, and blocks no other work.
func (n *Node) StateHash(ctx context.Context) (index uint64, hash state.Hash, err error) {
	view, release := n.LocalView()
	defer release()
	hash, err = n.hashOnce(ctx, view)
	return view.Index(), hash, err
}

// hashView hashes a view at no more than hashRate.
func hashView(ctx context.Context, view state.View) (state.Hash, error) {
	p := pacer{ctx: ctx, began: time.Now()}
	hash, err := view.Hash(p.read)
	if err != nil {
		return state.Hash{}, fmt.Errorf("consensus: hash the state: %w", err)
	}
	return hash, nil
}

// pacer slows a reader down to hashRate.
type pacer struct {
	ctx     context.Context // context of the hashView call that uses the pacer
	began   time.Time
	bytes   int64 // bytes read so far
	checked int64 // value of bytes at the last check of the rate
}

func (p *pacer) read(bytes int) error {
	p.bytes += int64(bytes)
	if p.bytes-p.checked < hashStep {
		return p.ctx.Err()
	}
	p.checked = p.bytes
	due := time.Duration(p.bytes) * time.Second / hashRate
	ahead := due - time.Since(p.began)
	if ahead <= 0 {
		return p.ctx.Err()
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}
