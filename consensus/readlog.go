package consensus

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// readableLog is the log as Raft reads it. An entry that cannot be read is this
// node's end: it may not be passed over, and the next start finds what is left.
// Raft would answer it with a panic where it applies entries, and ask again for
// ever where it sends them. So the goroutine that asked ends, as it does for
// watchedValues.
type readableLog struct {
	raft.LogStore
	fail func(error)
	// started is set once Raft runs: until then who starts it gets the error.
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
