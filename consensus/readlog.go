package consensus

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// readableLog is the log store that Raft reads from. If an entry cannot be read, this node stops,
// because it must not skip the entry; the next start determines which entries are left. Raft
// itself would panic where it applies entries, and would retry forever where it sends them.
// GetLog therefore ends the calling goroutine in that case, as watchedValues does.
type readableLog struct {
	raft.LogStore
	fail func(error)
	// started is set once Raft runs. Before that, GetLog returns the error, and the caller of
	// Open gets it.
	started *atomic.Bool
}

// GetLog implements raft.LogStore.
func (l readableLog) GetLog(index uint64, entry *raft.Log) error {
	err := l.LogStore.GetLog(index, entry)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) || !l.started.Load() {
		return err
	}
	l.fail(fmt.Errorf("%w: read the log: %w", ErrBroken, err))
	runtime.Goexit()
	return err
}
