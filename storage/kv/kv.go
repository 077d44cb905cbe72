// Package kv is the ordered key-value store of a node. It uses Pebble, with settings that detect
// damage, and provides consistent views, one write transaction at a time, checkpoints made of hard
// links, and atomic replacement of the whole store by an archived checkpoint.
//
// Imports: storage/durable, pebble.
// Never:   imports of raft or libp2p; decisions based on the meaning of a key.
//
// On disk, the folder of a store has a lock file LOCK, a pointer file "live", and the folder that
// the pointer file names, "gen-NNNNNN", which is a Pebble store. Restore creates the next such
// folder and then replaces the pointer file, so after a crash either the old or the new store is
// complete. Open removes all other folders.
package kv

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

const (
	pointerFile = "live"
	lockFile    = "LOCK"
	tmpSuffix   = ".tmp"
	dirPerm     = 0o700
	filePerm    = 0o600

	// DefaultCacheBytes is the size of the block cache if Options set none.
	DefaultCacheBytes = 32 << 20
	// memTableBytes is the size of a memtable in bytes. A restart reads the write-ahead log of one
	// memtable again, and a checkpoint copies this log instead of linking it. Pebble takes the
	// memory of memtables from the block cache. A memtable has at most a quarter of the cache,
	// because one memtable is written to while another is flushed.
	memTableBytes = 16 << 20
	// level0Tables is twice the number of overlapping tables in level 0 at which Pebble merges
	// them. At level0Most tables, writes wait. If more tables are merged at once, there are fewer
	// merges, and each merge writes all overlapping tables of the level below.
	level0Tables = 24
	level0Most   = 2 * level0Tables
	// denseTable is the part of a table's blocks that must consist mostly of tombstones before
	// Pebble merges the table only for this reason. With Pebble's default of 10 %, it merged each
	// table that it had written from a memtable, at once and separately.
	denseTable = 0.5
	// maxOpenFiles bounds the file descriptors of one store.
	maxOpenFiles = 512
	// bloomBitsPerKey gives about 1 % false positives for point reads.
	bloomBitsPerKey = 10
	// maxPointerBytes is the maximum size of the pointer file.
	maxPointerBytes = 64
)

var (
	// ErrClosed is the error of a store, view or transaction after Close.
	ErrClosed = errors.New("kv: closed")
	// ErrCorrupt is wrapped by every error about bytes on the disk that differ from the written
	// bytes.
	ErrCorrupt = errors.New("kv: corrupt data on disk")
)

var generationName = regexp.MustCompile(`^gen-([0-9]{6,})$`)

// Options are the settings of a store. The zero value has working defaults.
type Options struct {
	// Logger gets Pebble's own messages at debug and its errors at error. Nil
	// discards them.
	Logger *slog.Logger
	// CacheBytes is the size of the block cache, including memtables; 0 means
	// DefaultCacheBytes.
	CacheBytes int64
	// Fatal is called, after the message is logged, when Pebble cannot guarantee its writes
	// any more, for example after a failed fsync of its log. It must not return. Nil ends
	// the process with status 1.
	Fatal func(message string)
	// Full is called when a write finds the disk full, before the write is tried once more.
	// Full may wait for free space. During the call writes wait and reads continue. If Full is
	// nil, the store fails as described at Fatal.
	Full func()
	// Sparse selects keys that transactions often look up but seldom find; nil selects no keys.
	// The store has a filter of the existing keys, so a transaction seldom searches Pebble for
	// a missing key. The filter takes 4 MiB up to 2 million keys, then 16 and 32 MiB, and serves up
	// to 64 million keys. While it is built anew, it takes twice as much.
	Sparse *Sparse
	// Passing selects keys with short lives. A transaction may set such a key only if the key does
	// not exist, or if the transaction has deleted it before. The result must depend only on the
	// key. For these keys Pebble drops a value and its deletion as soon as it finds both, and not
	// only in its last level. Nil selects no keys.
	Passing func(key []byte) bool

	// fs is the file system; nil means the file system of the machine. Tests use one whose operations fail.
	fs vfs.FS
	// tune changes Pebble's settings; nil changes none. Benchmarks use it.
	tune func(*pebble.Options)
}

// Sparse selects keys. The results of both functions depend only on their argument.
type Sparse struct {
	// Is returns whether a key is selected.
	Is func(key []byte) bool
	// After returns, for a key that is not selected, a position such that no key before it is
	// selected. If After is nil, any later key may be selected.
	After func(key []byte) []byte
}

// Store is an open store. Its methods may be called concurrently.
type Store struct {
	dir  string
	opts Options
	log  *slog.Logger
	lock io.Closer

	damage *damage

	// writer is held by the one open Tx, and by Restore while it switches generations.
	writer sync.Mutex

	// mu guards live. Readers hold it only to take a reference, never during input or output.
	mu   sync.RWMutex
	live *generation // nil after Close
}

// Open opens the store in dir, or creates it. Only one process at a time can have a store open;
// another process gets an error that wraps durable.ErrLocked. If Open finds damaged bytes, it
// returns an error that wraps ErrCorrupt.
func Open(dir string, opts Options) (*Store, error) {
	if opts.CacheBytes == 0 {
		opts.CacheBytes = DefaultCacheBytes
	}
	s := &Store{dir: dir, opts: opts, log: opts.Logger, damage: newDamage()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := durable.MkdirAll(dir, dirPerm); err != nil {
		return nil, fmt.Errorf("kv: open: %w", err)
	}
	lock, err := durable.Lock(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("kv: open: %w", err)
	}
	s.lock = lock
	if s.live, err = s.openLive(); err != nil {
		return nil, errors.Join(fmt.Errorf("kv: open %s: %w", dir, err), lock.Close())
	}
	return s, nil
}

// openLive opens the live generation, or creates the first generation. It also removes other
// folders that crashes have left behind.
func (s *Store) openLive() (*generation, error) {
	name, err := s.liveName()
	if err != nil {
		return nil, err
	}
	if name == "" {
		if name, err = s.create(1); err != nil {
			return nil, err
		}
	}
	// The pointer is written again when it was missing: a crash between the
	// first folder's rename and the pointer's leaves exactly one folder.
	if err := s.point(name); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(s.dir, name)); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: the store that the pointer file names is not there: %w", ErrCorrupt, err)
	}
	if err := s.removeLeftovers(name); err != nil {
		return nil, err
	}
	if _, err := durable.Narrow(filepath.Join(s.dir, name)); err != nil {
		s.log.Warn("cannot restrict access to the store", "err", err)
	}
	db, err := s.openPebble(filepath.Join(s.dir, name), true, false)
	if err != nil {
		return nil, err
	}
	return newGeneration(name, filepath.Join(s.dir, name), db, s.opts), nil
}

// liveName reads the name of the live generation from the pointer file. If the pointer file is
// missing, a single generation is the live one, and no generation means a new store. Several
// generations are refused, because a guess could discard the newer one.
func (s *Store) liveName() (string, error) {
	f, err := os.Open(filepath.Join(s.dir, pointerFile))
	if err == nil {
		raw, err := io.ReadAll(io.LimitReader(f, maxPointerBytes))
		if err = errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		name := strings.TrimSpace(string(raw))
		if !generationName.MatchString(name) {
			return "", fmt.Errorf("%w: pointer file %s names %q", ErrCorrupt, f.Name(), name)
		}
		return name, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return "", err
	}
	name := ""
	for _, e := range entries {
		if !generationName.MatchString(e.Name()) {
			continue
		}
		if name != "" {
			return "", fmt.Errorf("%w: pointer file is missing and both %s and %s could be live", ErrCorrupt, name, e.Name())
		}
		name = e.Name()
	}
	return name, nil
}

func (s *Store) point(name string) error {
	path := filepath.Join(s.dir, pointerFile)
	if old, err := os.ReadFile(path); err == nil && string(old) == name+"\n" {
		return nil
	}
	return durable.WriteFile(path, []byte(name+"\n"), filePerm)
}

// create makes an empty generation. It opens and closes Pebble once in the new folder. A log
// that began under an older format does not detect damage: a flipped bit would silently drop
// the rest of the log.
func (s *Store) create(number uint64) (string, error) {
	name := fmt.Sprintf("gen-%06d", number)
	tmp := filepath.Join(s.dir, name+tmpSuffix)
	if err := durable.RemoveAll(tmp); err != nil {
		return "", err
	}
	db, err := s.openPebble(tmp, false, false)
	if err != nil {
		return "", err
	}
	if err := db.Close(); err != nil {
		return "", fmt.Errorf("close new store: %w", err)
	}
	return name, durable.Rename(tmp, filepath.Join(s.dir, name))
}

func (s *Store) removeLeftovers(live string) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), tmpSuffix)
		if e.Name() == live || !generationName.MatchString(name) {
			continue
		}
		s.log.Info("removing leftover of an interrupted restore", "folder", e.Name())
		if err := durable.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func generationNumber(name string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimPrefix(name, "gen-"), 10, 63)
	return n
}

func (s *Store) openPebble(dir string, mustExist, readOnly bool) (*pebble.DB, error) {
	opts := s.settings()
	opts.ErrorIfNotExists, opts.ReadOnly = mustExist, readOnly
	opts.EventListener = &pebble.EventListener{
		BackgroundError: func(err error) { s.log.Error("store background error", "dir", dir, "err", err) },
		// Pebble's default ends the process. The reader gets the error and can repair, so
		// here it is only logged.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			s.log.Error("store found corrupt data", "path", info.Path, "err", info.Details)
			if s.isLive(dir) { // the live store, not an archive that is being checked
				s.damage.note()
			}
		},
	}
	if mustExist {
		if err := checkFormat(dir); err != nil {
			return nil, fmt.Errorf("open: %w", err)
		}
		if err := checkManifest(dir); err != nil {
			return nil, fmt.Errorf("open %s: %w", dir, err)
		}
	}
	db, err := pebble.Open(dir, opts)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, coded(err))
	}
	return db, nil
}

// settings returns the settings of Pebble that all generations have.
func (s *Store) settings() *pebble.Options {
	inner := s.opts.fs
	if inner == nil {
		inner = vfs.Default
	}
	opts := &pebble.Options{
		FS:                    FileSystem(inner, s.opts.Full),
		FormatMajorVersion:    pebble.FormatNewest,
		CacheSize:             s.opts.CacheBytes,
		MemTableSize:          uint64(min(memTableBytes, s.opts.CacheBytes/4)),
		L0CompactionThreshold: level0Tables,
		L0StopWritesThreshold: level0Most,
		MaxOpenFiles:          maxOpenFiles,
		Logger:                PebbleLogger{Log: s.log, Fatal: s.opts.Fatal},
	}
	opts.Experimental.TombstoneDenseCompactionThreshold = denseTable
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
	}
	if s.opts.tune != nil {
		s.opts.tune(opts)
	}
	return opts
}

// coded makes errors that Pebble marks as corruption wrap ErrCorrupt.
func coded(err error) error {
	if err != nil && pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// Get returns the newest committed value of key. The value belongs to the caller.
func (s *Store) Get(key []byte) (value []byte, ok bool, err error) {
	g, err := s.acquire()
	if err != nil {
		return nil, false, err
	}
	value, ok, err = g.newest(key)
	return value, ok, errors.Join(err, g.release(s.log))
}

// Sync makes everything durable that was committed before the call.
func (s *Store) Sync() error {
	g, err := s.acquire()
	if err != nil {
		return err
	}
	if err = g.db.LogData(nil, pebble.Sync); err != nil {
		err = fmt.Errorf("kv: sync: %w", coded(err))
	}
	return errors.Join(err, g.release(s.log))
}

// Checkpoint writes a copy of the store into the new folder dir. The copy has everything that
// is committed so far, synced or not. On the same file system the data is hard-linked, so the
// cost does not depend on the size; only the log of at most one memtable is copied. The copy is
// durable on return.
func (s *Store) Checkpoint(dir string) error {
	g, err := s.acquire()
	if err != nil {
		return err
	}
	if err = g.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		err = fmt.Errorf("kv: checkpoint: %w", coded(err))
	}
	return errors.Join(err, g.release(s.log))
}

// Close makes everything committed durable and closes the store. It waits for
// an open Tx. Views that are still open keep the data open until their own
// Close, and only then can the store be opened again.
func (s *Store) Close() error {
	s.writer.Lock()
	defer s.writer.Unlock()
	s.mu.Lock()
	g := s.live
	s.live = nil
	s.mu.Unlock()
	if g == nil {
		return nil
	}
	var err error
	if err = g.db.LogData(nil, pebble.Sync); err != nil {
		err = fmt.Errorf("kv: close: %w", err)
	}
	g.onClosed = s.lock.Close
	return errors.Join(err, g.release(s.log))
}

func (s *Store) acquire() (*generation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.live == nil {
		return nil, ErrClosed
	}
	s.live.retain()
	return s.live, nil
}
