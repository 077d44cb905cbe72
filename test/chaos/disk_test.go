package chaos

import (
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus"
)

// What slow disks take for a write, in virtual time.
const slowWrite = 150 * time.Millisecond

// platter is the disk under the Raft log of one member, or the one under its
// state, through its lives.
type platter struct {
	// mu guards what follows; nothing waits while it is held.
	mu     sync.Mutex
	slow   time.Duration // what each write takes
	hangs  chan struct{} // closed when it goes on; nil: it works
	late   bool          // a write that hangs is done, and only its answer waits
	broken bool          // the next write fails, and those after it
	hit    int           // writes that met any of it
	harmed bool          // a write of this life hung or failed
}

// fresh begins another life.
func (p *platter) fresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.harmed = false
}

// hurt tells whether the life may have ended because of its disk.
func (p *platter) hurt() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.harmed
}

// condition is how a disk is; the zero value is one that works.
type condition struct {
	slow                time.Duration
	hangs, late, broken bool
}

// set changes how the disk is. It returns how many writes met what it was.
func (p *platter) set(c condition) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hangs != nil {
		close(p.hangs)
		p.hangs = nil
	}
	if c.hangs {
		p.hangs = make(chan struct{})
	}
	p.slow, p.late, p.broken = c.slow, c.late, c.broken
	hit := p.hit
	p.hit = 0
	return hit
}

// release lets what hangs go on, and what comes after it.
func (p *platter) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hangs != nil {
		close(p.hangs)
		p.hangs = nil
	}
}

// hits returns how many writes met what the disk is.
func (p *platter) hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hit
}

// write returns what a write to the disk goes through.
func (p *platter) write(do func() error) error {
	p.mu.Lock()
	slow, hangs, late, broken := p.slow, p.hangs, p.late, p.broken
	if slow > 0 || hangs != nil || broken {
		p.hit++
	}
	p.harmed = p.harmed || hangs != nil || broken
	p.mu.Unlock()
	if hangs != nil && !late {
		<-hangs
	}
	if slow > 0 {
		<-time.After(slow)
	}
	if broken {
		return fmt.Errorf("write: %w", syscall.EIO)
	}
	err := do()
	if hangs != nil && late {
		<-hangs
	}
	return err
}

// replica is a store of the state on the disk.
type replica struct {
	consensus.Store
	disk *platter
}

func (s replica) Begin() consensus.Tx { return change{s.Store.Begin(), s.disk} }

func (s replica) Sync() error { return s.disk.write(s.Store.Sync) }

// change is a transaction of a replica.
type change struct {
	consensus.Tx
	disk *platter
}

func (c change) Commit(sync bool) error {
	return c.disk.write(func() error { return c.Tx.Commit(sync) })
}

// log is a Raft log on the disk.
type log struct {
	consensus.Log
	disk *platter
}

func (l log) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

func (l log) StoreLogs(entries []*raft.Log) error {
	return l.disk.write(func() error { return l.Log.StoreLogs(entries) })
}

func (l log) DeleteRange(first, last uint64) error {
	return l.disk.write(func() error { return l.Log.DeleteRange(first, last) })
}

// unsyncedFor is how long a log that lies keeps entries to itself.
const unsyncedFor = 400 * time.Millisecond

// unsynced is a log that says at once that entries are stored, and stores them
// later: what a log without fsync does when the power goes.
type unsynced struct {
	consensus.Log

	// mu guards waiting and timed.
	mu      sync.Mutex
	waiting []*raft.Log
	timed   bool
}

func (u *unsynced) StoreLog(entry *raft.Log) error { return u.StoreLogs([]*raft.Log{entry}) }

func (u *unsynced) StoreLogs(entries []*raft.Log) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waiting = append(u.waiting, entries...)
	if !u.timed {
		u.timed = true
		time.AfterFunc(unsyncedFor, func() {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.timed = false
			_ = u.flush() // the mistake is that nobody hears of it
		})
	}
	return nil
}

// flush stores what waits. mu is held.
func (u *unsynced) flush() error {
	waiting := u.waiting
	u.waiting = nil
	if len(waiting) == 0 {
		return nil
	}
	return u.Log.StoreLogs(waiting)
}

func (u *unsynced) GetLog(index uint64, into *raft.Log) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, entry := range u.waiting {
		if entry.Index == index {
			*into = *entry
			return nil
		}
	}
	return u.Log.GetLog(index, into)
}

func (u *unsynced) FirstIndex() (uint64, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.flushIfEmpty(); err != nil {
		return 0, err
	}
	return u.Log.FirstIndex()
}

// flushIfEmpty gives a log without any entry its first ones. mu is held.
func (u *unsynced) flushIfEmpty() error {
	last, err := u.Log.LastIndex()
	if err != nil || last > 0 {
		return err
	}
	return u.flush()
}

func (u *unsynced) LastIndex() (uint64, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := len(u.waiting); n > 0 {
		return u.waiting[n-1].Index, nil
	}
	return u.Log.LastIndex()
}

func (u *unsynced) DeleteRange(first, last uint64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.flush(); err != nil {
		return err
	}
	return u.Log.DeleteRange(first, last)
}
