package consensus

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// readableLog is the log as Raft reads it. If an entry cannot be read, this node stops, because
// the entry must not be skipped, and the next start finds out what is left. Raft itself would
// panic where it applies entries, and would retry forever where it sends them. So the goroutine
// that reads the entry ends, as with watchedValues.
type readableLog struct {
	raft.LogStore
	fail func(error)
	// started is set once Raft runs. Before that, the caller of Open gets the error.
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
