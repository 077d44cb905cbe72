package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Limits of a write to the Raft log. A leader whose disk hangs would stay leader forever,
// because Raft's heartbeats need no disk.
const (
	// slowWrite is the duration of a running write beyond which this node, as leader, rejects
	// proposals.
	slowWrite = 2 * time.Second
	// stalledWrite is the duration of a running write after which Run ends with ErrStalled.
	stalledWrite = 5 * time.Second
	// diskCheck is the interval at which running writes are checked.
	diskCheck = 250 * time.Millisecond
	// refusedFor is how long this node does not stand for election after a full disk has
	// refused a write.
	refusedFor = 3 * time.Second
)

// The kinds of writes. At most one write of each kind runs at a time, except that a truncation
// after a snapshot may overlap a truncation that a follower makes.
const (
	writeAppend = iota
	writeTruncate
	writeOwn // Raft's own values: term and vote
	writeKinds
)

// disk watches the writes to Raft's log and stable store. If a write fails, the node stops,
// because it is unknown which bytes are on the disk, and Raft would continue. A write that a
// full disk refused has changed nothing: a leader then becomes a follower, and a follower falls
// behind until there is space.
type disk struct {
	ran     *ran
	fail    func(error)
	noSpace func(error) bool // nil means that no error counts as a full disk
	log     *slog.Logger
	closing chan struct{} // closed on shutdown: afterwards no write waits for disk space

	under   [writeKinds]stopwatch // the running writes
	refused stopwatch             // time of the last refused write
	refusal atomic.Uint64         // number of refused writes
	refuses atomic.Bool           // no write has succeeded since the last refused one
	cut     atomic.Bool           // the log's last entries were removed, and the entries that replace them are not written yet
}

// errCut means that the disk became full after a follower had removed conflicting entries and
// before it had written the leader's entries. Raft does not know that the old entries are gone:
// it would vote and accept entries as if it still had them. The node therefore stops. After a
// restart Raft reads the log and knows what is missing.
var errCut = errors.New("a full disk refused what was to replace entries")

// errUnwritten means that a full disk refused a change of the Raft configuration. A leader uses
// a new configuration at once, even if it could not write it. The leader, and the members that
// get its snapshots, would then count voters differently from the others. A restarted node uses
// the configuration in its log.
var errUnwritten = errors.New("a full disk refused a change of who votes")

// watchedLog is the Raft log store whose writes disk watches.
type watchedLog struct {
	raft.LogStore
	*disk
	leading func() bool // whether this node leads; nil means that it does not
}

// StoreLog implements raft.LogStore.
func (l watchedLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore.
func (l watchedLog) StoreLogs(entries []*raft.Log) error {
	return l.write(writeAppend, "append to raft log", func() error {
		err := l.LogStore.StoreLogs(entries)
		switch {
		case err == nil:
			l.cut.Store(false)
			l.refuses.Store(false)
		case l.cut.Load() && l.full(err):
			// Raft continues from the end that it remembers, which is gone.
			err = fmt.Errorf("%w: the end of the log was cut off before", errCut)
		case l.leading != nil && l.leading() && l.full(err) && slices.ContainsFunc(entries, configures):
			err = errUnwritten // without the error of the disk, which may be met again
		}
		return err
	})
}

func configures(entry *raft.Log) bool { return entry.Type == raft.LogConfiguration }

// DeleteRange implements raft.LogStore.
func (l watchedLog) DeleteRange(first, last uint64) error {
	return l.write(writeTruncate, "truncate raft log", func() error {
		end, err := l.LogStore.LastIndex()
		if err != nil {
			return err
		}
		if err := l.LogStore.DeleteRange(first, last); err != nil {
			return err
		}
		if last >= end {
			l.cut.Store(true)
		}
		return nil
	})
}

// watchedValues is the store of Raft's own values whose writes disk watches. Raft panics if
// this store returns an error, and must not continue without the value. So a write that a full
// disk refuses waits for space. After any other error, and when the node ends, the calling
// goroutine ends. This goroutine is Raft's main loop, and the node is ending anyway.
type watchedValues struct {
	raft.StableStore
	*disk
}

// Set implements raft.StableStore.
func (v watchedValues) Set(key, value []byte) error {
	return v.persist(string(key), func() error { return v.StableStore.Set(key, value) })
}

// SetUint64 implements raft.StableStore.
func (v watchedValues) SetUint64(key []byte, value uint64) error {
	return v.persist(string(key), func() error { return v.StableStore.SetUint64(key, value) })
}

func (v watchedValues) persist(key string, fn func() error) error {
	for {
		err := v.write(writeOwn, "store "+key, fn)
		if err == nil {
			return nil
		}
		if !v.full(err) {
			runtime.Goexit()
		}
		timer := time.NewTimer(diskCheck)
		select {
		case <-v.closing:
			timer.Stop()
			runtime.Goexit()
		case <-timer.C:
		}
	}
}

// full returns whether an error means that a full disk refused a write.
func (d *disk) full(err error) bool { return d.noSpace != nil && d.noSpace(err) }

func (d *disk) write(kind int, op string, fn func() error) error {
	d.under[kind].start(d.ran)
	err := fn()
	d.under[kind].stop()
	if err == nil {
		return nil
	}
	if d.full(err) {
		if !d.refusedLately() {
			d.log.Error("the disk of the Raft log is full", "err", err)
		}
		d.refused.start(d.ran)
		d.refusal.Add(1)
		d.refuses.Store(true)
		return err
	}
	err = fmt.Errorf("%w: %s: %w", ErrBroken, op, err)
	d.fail(err)
	return err
}

// writing returns how long the oldest running write has taken, or 0 if none runs.
func (d *disk) writing() (longest time.Duration) {
	for i := range d.under {
		took, _ := d.under[i].shows(d.ran)
		longest = max(longest, took)
	}
	return longest
}

// refusedLately returns whether a full disk refused a write recently.
func (d *disk) refusedLately() bool {
	ago, refused := d.refused.shows(d.ran)
	return refused && ago < refusedFor
}

// Refuses reports whether the disk of the Raft log is full. lately is true if the disk refused
// a write a moment ago. since is true if no write has succeeded after the last refusal.
func (n *Node) Refuses() (lately, since bool) {
	return n.disk.refusedLately(), n.disk.refuses.Load()
}
