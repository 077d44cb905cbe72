// Package raftlog stores Raft's log and votes, and Raft's snapshots. The log and the votes are in
// raft-boltdb (bbolt, with an fsync for each write), and each value has a checksum. A snapshot is a
// folder that contains a checkpoint of the replicated state.
//
// Imports: storage/durable, storage/kv, hashicorp/raft, raft-boltdb.
// Never:   imports of libp2p or cluster; decisions based on the content of an entry.
package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

const (
	dirPerm = 0o700

	// lockWait bounds how long Open waits for another process that is about to end.
	lockWait = time.Second
	// mapBytes is the size of the first memory map of the file. It is large enough for a log of
	// usual length. To enlarge the map, bbolt would have to wait for all readers and let new
	// readers wait.
	mapBytes = 64 << 20
	// mostMapped is how many bytes of entries are stored until the pages of the file leave the
	// memory of the process.
	mostMapped = 16 << 20
	// maxVerifyBytes is how much of the newest entries Open verifies. Earlier entries are
	// verified when they are read: by Raft at its start, if they follow its newest
	// snapshot, or for a follower that lacks them.
	maxVerifyBytes = 64 << 20
)

var (
	// ErrCorrupt is wrapped by every error about an entry or a value that differs from the
	// stored one. The text of the error names the entry or value.
	ErrCorrupt = errors.New("raftlog: corrupt")
	// ErrBroken is returned by every write after a failed write. Then it is unknown whether the
	// failed write is on the disk, and bbolt would nevertheless accept and acknowledge further
	// writes. So the process must end and recover at its next start.
	ErrBroken = errors.New("raftlog: an earlier write failed")
	// ErrNoSpace means that the disk was full and the write changed nothing. A later write may
	// succeed.
	ErrNoSpace = errors.New("raftlog: no space left")
	// errGone is the error of a write into a file that the next start will not find, because
	// the file was removed, replaced or moved.
	errGone = errors.New("the file was removed or replaced, or its folder was: what is written to it is lost with this process")
)

var (
	_ raft.LogStore          = (*Log)(nil)
	_ raft.MonotonicLogStore = (*Log)(nil)
	_ raft.StableStore       = (*Log)(nil)
)

// Log is Raft's log store and stable store. Its methods may be called
// concurrently.
type Log struct {
	path string
	bolt *raftboltdb.BoltStore
	file fs.FileInfo // identity of the file that was opened at path

	// mapping is locked while no transaction may change where the file is mapped. Writing
	// transactions hold a read lock.
	mapping sync.RWMutex
	stored  atomic.Int64 // bytes of entries that were stored since the pages left the memory

	// mu guards broken and is not held during input or output.
	mu     sync.Mutex
	broken error
	failed chan struct{} // closed after broken is set
}

// Open opens the log in the file at path, and creates the file and its folder if they do not
// exist. It verifies the log. The error wraps durable.ErrLocked if the log is open already,
// ErrCorrupt if it is damaged, and durable.ErrNewer if a newer release wrote it.
func Open(path string) (*Log, error) {
	if err := durable.MkdirAll(filepath.Dir(path), dirPerm); err != nil {
		return nil, fmt.Errorf("raftlog: open: %w", err)
	}
	l := &Log{path: path, failed: make(chan struct{})}
	entries, err := l.verify()
	if err != nil {
		return nil, fmt.Errorf("raftlog: open %s: %w", path, err)
	}
	err = l.guard(func() (err error) {
		l.bolt, err = raftboltdb.New(raftboltdb.Options{
			Path: path,
			BoltOptions: &bbolt.Options{
				Timeout:         lockWait,
				InitialMmapSize: mapBytes,
				FreelistType:    bbolt.FreelistMapType,
				// Rebuilt on open from the pages: less to write per commit.
				NoFreelistSync: true,
			},
			MsgpackUseNewTimeFormat: true,
		})
		return err
	})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		err = durable.ErrLocked
	}
	if err != nil {
		return nil, fmt.Errorf("raftlog: open %s: %w", path, err)
	}
	for read := 0; len(entries) > 0 && read < maxVerifyBytes; entries = entries[:len(entries)-1] {
		newest := entries[len(entries)-1]
		read += newest.bytes
		var entry raft.Log
		if err := l.GetLog(newest.index, &entry); err != nil {
			return nil, errors.Join(fmt.Errorf("raftlog: open %s: %w", path, err), l.bolt.Close())
		}
	}
	// bbolt syncs the file; its name is ours to make durable.
	if err = durable.SyncDir(filepath.Dir(path)); err == nil {
		l.file, err = os.Stat(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("raftlog: open: %w", err), l.bolt.Close())
	}
	return l, nil
}

// stored is an entry as read from the file.
type stored struct {
	index uint64
	bytes int
}

// verify checks that the file is as bbolt wrote it. It returns the newest entries of the file,
// oldest first.
func (l *Log) verify() (entries []stored, err error) {
	return entries, verify(l.path, func(bucket string, key, value []byte) error {
		switch bucket {
		case "conf":
			if _, err := openValue(key, value); err != nil {
				return fmt.Errorf("value %q: %w", key, err)
			}
		case "logs":
			if len(key) != 8 {
				return damaged("an entry under a key of %d bytes", len(key))
			}
			entries = append(entries, stored{binary.BigEndian.Uint64(key), len(value)})
		default:
			return damaged("a bucket %q", bucket)
		}
		return nil
	})
}

// guard calls fn and converts panics of bbolt into errors that wrap ErrCorrupt. bbolt panics on a
// damaged page.
func (l *Log) guard(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: file %s: %v", ErrCorrupt, l.path, p)
		}
	}()
	return fn()
}

func (l *Log) read(op string, fn func() error) error {
	if err := l.guard(fn); err != nil {
		return fmt.Errorf("raftlog: %s: %w", op, err)
	}
	return nil
}

// write runs one write transaction. After a failed write, it returns ErrBroken without running the
// transaction. A write that a full disk refuses does not count as failed, because it changes
// nothing. A write to a file that was removed or replaced counts as failed.
func (l *Log) write(op string, fn func() error) error {
	l.mu.Lock()
	broken := l.broken
	l.mu.Unlock()
	if broken != nil {
		return fmt.Errorf("raftlog: %s: %w: %w", op, ErrBroken, broken)
	}
	l.mapping.RLock()
	err := l.guard(fn)
	l.mapping.RUnlock()
	if err == nil && !durable.Linked(l.path, l.file) { // afterwards, so that everything acknowledged was in the file while it was linked
		err = fmt.Errorf("%s: %w", l.path, errGone) // bbolt writes and syncs on
	}
	if err == nil {
		return nil
	}
	if durable.IsFull(err) {
		// bbolt has written pages that nothing refers to, and goes on from the
		// transaction before.
		return fmt.Errorf("raftlog: %s: %w: %w", op, ErrNoSpace, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
		close(l.failed)
	}
	return fmt.Errorf("raftlog: %s: %w", op, err)
}

// Failed returns a channel that is closed when a write fails. From then on every write
// returns ErrBroken, and the node should end.
func (l *Log) Failed() <-chan struct{} { return l.failed }

// IsMonotonic returns false: the log may have gaps, because it is a B-tree. So Raft need
// not delete the whole log when it restores a snapshot.
func (l *Log) IsMonotonic() bool { return false }

// FirstIndex returns the index of the oldest entry, 0 if there is none.
func (l *Log) FirstIndex() (index uint64, err error) {
	err = l.read("first index", func() (err error) { index, err = l.bolt.FirstIndex(); return err })
	return index, err
}

// LastIndex returns the index of the newest entry, 0 if there is none.
func (l *Log) LastIndex() (index uint64, err error) {
	err = l.read("last index", func() (err error) { index, err = l.bolt.LastIndex(); return err })
	return index, err
}

// GetLog fills entry with the entry at index. If there is no such entry, it returns
// raft.ErrLogNotFound unwrapped, because Raft compares it. If the entry is damaged, the error
// wraps ErrCorrupt and names the index.
func (l *Log) GetLog(index uint64, entry *raft.Log) error {
	var stored raft.Log
	err := l.guard(func() error { return l.bolt.GetLog(index, &stored) })
	if errors.Is(err, raft.ErrLogNotFound) {
		return raft.ErrLogNotFound
	}
	if err != nil {
		// The bytes are there but raft-boltdb cannot decode them.
		return fmt.Errorf("raftlog: entry %d: %w: %w", index, ErrCorrupt, err)
	}
	if err := decodeEntry(stored.Data, index, entry); err != nil {
		return fmt.Errorf("raftlog: entry %d: %w", index, err)
	}
	return nil
}

// StoreLog appends one entry. The entry is durable on return.
func (l *Log) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs appends entries in one transaction. They are durable on return.
func (l *Log) StoreLogs(entries []*raft.Log) error {
	size := 0
	for _, e := range entries {
		size += entryBytes(e)
	}
	frames := make([]byte, 0, size) // one buffer for all of them
	logs := make([]raft.Log, len(entries))
	wrapped := make([]*raft.Log, len(entries))
	for i, e := range entries {
		start := len(frames)
		frames = appendEntry(frames, e)
		logs[i] = raft.Log{Index: e.Index, Data: frames[start:len(frames):len(frames)]}
		wrapped[i] = &logs[i]
	}
	if err := l.write("store entries", func() error { return l.bolt.StoreLogs(wrapped) }); err != nil {
		return err
	}
	if l.stored.Add(int64(size)) > mostMapped {
		l.dropMapped()
	}
	return nil
}

// DeleteRange removes the entries from min to max, including both.
func (l *Log) DeleteRange(minIndex, maxIndex uint64) error {
	if err := l.write("delete entries", func() error { return l.bolt.DeleteRange(minIndex, maxIndex) }); err != nil {
		return err
	}
	l.dropMapped()
	return nil
}

// dropMapped removes the mapped pages of the file from the memory of the process. bbolt reads few of
// them again, and the file never becomes smaller. Without it, a leader that keeps a long log for a
// new member, or had one, would have all of it in memory.
func (l *Log) dropMapped() {
	l.mapping.Lock()
	defer l.mapping.Unlock()
	l.stored.Store(0)
	_ = durable.DropMapped(l.file) // otherwise they stay
}

// Set stores a value of Raft's stable store. The value is durable on return.
func (l *Log) Set(key, value []byte) error {
	return l.write("set "+string(key), func() error { return l.bolt.Set(key, sealValue(key, value)) })
}

// Get returns a value that Set has stored. If the key is missing, it returns
// raftboltdb.ErrKeyNotFound unwrapped, because Raft compares its text.
func (l *Log) Get(key []byte) (value []byte, err error) {
	var sealed []byte
	err = l.guard(func() (err error) { sealed, err = l.bolt.Get(key); return err })
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, raftboltdb.ErrKeyNotFound
	}
	if err == nil {
		value, err = openValue(key, sealed)
	}
	if err != nil {
		return nil, fmt.Errorf("raftlog: get %s: %w", key, err)
	}
	return value, nil
}

// SetUint64 stores a number as Set does.
func (l *Log) SetUint64(key []byte, value uint64) error {
	return l.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 returns a number that SetUint64 has stored.
func (l *Log) GetUint64(key []byte) (uint64, error) {
	value, err := l.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("raftlog: get %s: %w: %d bytes for a number", key, ErrCorrupt, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

// Close closes the file.
func (l *Log) Close() error {
	l.mapping.Lock()
	defer l.mapping.Unlock()
	if err := l.bolt.Close(); err != nil {
		return fmt.Errorf("raftlog: close: %w", err)
	}
	return nil
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }
