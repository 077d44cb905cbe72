package consensus

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Bounds of a write to the Raft log. A leader whose disk hangs would stay
// leader for ever, for Raft's heartbeats need no disk.
const (
	// slowWrite is when this node takes no more proposals.
	slowWrite = 2 * time.Second
	// stalledWrite is when it gives up.
	stalledWrite = 5 * time.Second
	// diskCheck is how often it looks.
	diskCheck = 250 * time.Millisecond
)

// watchedLog is the Raft log store; a write that fails is the node's end, since
// nobody knows what of it is on disk, and Raft itself would go on.
type watchedLog struct {
	raft.LogStore
	now  func() time.Time
	fail func(error)

	since atomic.Int64 // when the write under way began, in nanoseconds; 0: none
}

// StoreLog implements raft.LogStore.
func (l *watchedLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore.
func (l *watchedLog) StoreLogs(entries []*raft.Log) error {
	return l.write("append", func() error { return l.LogStore.StoreLogs(entries) })
}

// DeleteRange implements raft.LogStore.
func (l *watchedLog) DeleteRange(first, last uint64) error {
	return l.write("truncate", func() error { return l.LogStore.DeleteRange(first, last) })
}

func (l *watchedLog) write(op string, fn func() error) error {
	l.since.Store(l.now().UnixNano())
	err := fn()
	l.since.Store(0)
	if err != nil {
		err = fmt.Errorf("%w: %s raft log: %w", ErrBroken, op, err)
		l.fail(err)
	}
	return err
}

// writing is how long the write under way has taken, 0 when there is none.
func (l *watchedLog) writing() time.Duration {
	since := l.since.Load()
	if since == 0 {
		return 0
	}
	return max(0, l.now().Sub(time.Unix(0, since)))
}
