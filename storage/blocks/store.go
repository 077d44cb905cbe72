// Package blocks stores the blocks of a node in append-only segment files. A reference is a named
// set of blocks, such as "root/<CID>". The store keeps a block as long as at least one reference
// includes it.
//
// Imports: storage/durable, storage/kv, boxo's blockstore and verifcid, go-cid, go-multihash,
// go-block-format, go-ipld-format, xxh3.
// Never:   imports of libp2p, raft or cluster; decisions based on the meaning of a reference's
// name.
//
// The segments together are a journal. Its records are blocks, references, seals (a seal declares a
// reference complete) and drops (a drop removes a reference); each record has its own checksum. The
// index (storage/kv) is derived from the segments. It is written without fsync, together with the
// position in the journal up to which it is complete. After a crash, Open reads only the journal
// after this position. If there is no index, Open reads all of the journal.
//
// Concurrent writers share one write and one fdatasync: while one batch is being committed, the
// store collects the next one. One goroutine commits, from Open to Close. Run collects garbage in
// the background.
//
// Put and Adopt add blocks to a reference. Drop removes a reference, at a cost proportional to its
// number of blocks. The committer runs these operations one after the other, so the Drop of one
// reference cannot free a block that Put or Adopt has acknowledged for another reference.
package blocks

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

const (
	// MaxBlockBytes is the maximum size of a block. bitswap cannot transfer one of 4 MiB,
	// and IPFS peers normally make none above this size.
	MaxBlockBytes = 2 << 20
	// MaxReferenceBytes is the maximum length of the name of a reference.
	MaxReferenceBytes = 256

	// DefaultSegmentBytes is the size at which a segment is full.
	DefaultSegmentBytes = 256 << 20
	// MaxSegmentBytes bounds Options.SegmentBytes.
	MaxSegmentBytes = 1 << 30
	minSegmentBytes = 4 << 10
	// DefaultMinFreeBytes stays free on the disk, so that a full store can still drop
	// references and other programs can write.
	DefaultMinFreeBytes = 256 << 20
	// DefaultCompactBytesPerSecond is the rate at which Compact copies.
	DefaultCompactBytesPerSecond = 32 << 20
	// DefaultCompactEvery is the interval at which Run looks for garbage.
	DefaultCompactEvery = time.Minute

	dirPerm = 0o700

	segmentsDir = "segments"
	indexDir    = "index"
	lockFile    = "LOCK"
	// rebuildFile marks a damaged index, so that the next Open rebuilds it.
	rebuildFile = "index.rebuild"
)

var (
	// ErrBroken is returned by every write after a failed fsync or index commit. The content of
	// the disk is unknown then; the process must end and recover.
	ErrBroken = errors.New("blocks: store is broken by an earlier failure")
	// ErrClosed is the error of every call after Close.
	ErrClosed = errors.New("blocks: store is closed")
	// ErrTooLarge is the error for a block of more than MaxBlockBytes.
	ErrTooLarge = errors.New("blocks: block is too large")
	// ErrCorrupt means that stored bytes are damaged.
	ErrCorrupt = errors.New("blocks: corrupt")
	// ErrBadBlock is the error for a block whose bytes do not have its hash, or whose hash
	// function is not secure.
	ErrBadBlock = errors.New("blocks: block does not match its CID")
	// ErrNoSpace is the error for new blocks if the disk is full or almost full.
	ErrNoSpace = errors.New("blocks: no space left")
	// ErrNoReference is the error of writes through Blockstore.
	ErrNoReference = errors.New("blocks: a block needs a reference: use Put of the store")
	// ErrBadReference is the error for a name that is empty or longer than
	// MaxReferenceBytes.
	ErrBadReference = errors.New("blocks: bad reference")

	errIndex = fmt.Errorf("%w: in the index", kv.ErrCorrupt)
)

// Options are the settings of a store. The zero value has the defaults.
type Options struct {
	Logger *slog.Logger
	// SegmentBytes is the size in bytes at which a segment is full.
	SegmentBytes int64
	// MinFreeBytes is the space that stays free on the disk; a negative value means no space.
	MinFreeBytes int64
	// Room replaces MinFreeBytes. It returns how many bytes new blocks may still use, and how
	// many bytes the temporary copies of Compact may still use. If Room is nil, MinFreeBytes
	// applies to both.
	Room func() (content, copies int64)
	// Full is passed to the index as kv.Options.Full.
	Full func()
	// CompactBytesPerSecond bounds the rate at which Compact copies.
	CompactBytesPerSecond int64
	// CompactEvery is the interval at which Run looks for garbage.
	CompactEvery time.Duration
	// CacheBytes is the size of the cache of the index.
	CacheBytes int64
	// Fatal is passed to the index as kv.Options.Fatal.
	Fatal func(message string)

	// Tests change the following fields. In the program they have the values of the constants
	// of the same names and of durable.OpenDirect.
	countStep   int
	directBytes int64
	openDirect  func(path string) (*os.File, error)
}

func (o *Options) setDefaults() error {
	setDefault := func(v *int64, to int64) {
		if *v == 0 {
			*v = to
		}
	}
	setDefault(&o.SegmentBytes, DefaultSegmentBytes)
	setDefault(&o.MinFreeBytes, DefaultMinFreeBytes)
	setDefault(&o.CompactBytesPerSecond, DefaultCompactBytesPerSecond)
	if o.countStep == 0 {
		o.countStep = countStep
	}
	setDefault(&o.directBytes, directBytes)
	if o.openDirect == nil {
		o.openDirect = durable.OpenDirect
	}
	if o.CompactEvery == 0 {
		o.CompactEvery = DefaultCompactEvery
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.SegmentBytes < minSegmentBytes || o.SegmentBytes > MaxSegmentBytes {
		return fmt.Errorf("blocks: segment size %d is not within %d and %d", o.SegmentBytes, minSegmentBytes, MaxSegmentBytes)
	}
	if o.CompactBytesPerSecond < 0 || o.CompactEvery < 0 {
		return errors.New("blocks: negative compaction setting")
	}
	return nil
}

// Sealed is the declaration that a reference is complete, with its size and number of blocks.
type Sealed struct {
	Bytes, Blocks uint64
	// Hidden excludes the blocks from Visible, unless another reference makes them visible.
	Hidden bool
}

// ReferenceInfo describes a reference. Bytes and Blocks are the values that its seal declares.
// Before it is sealed, they are the sums over its blocks so far.
type ReferenceInfo struct {
	Reference     string
	Sealed        bool
	Hidden        bool // whether the reference is sealed as hidden
	Bytes, Blocks uint64
}

// Usage has the sizes of the store at one moment.
type Usage struct {
	Blocks    uint64 // number of readable blocks
	LiveBytes uint64 // bytes of the readable blocks
	DiskBytes uint64 // size of all segments
	FreeBytes uint64 // free bytes of the file system
	Segments  uint64
	Missing   uint64 // number of missing blocks that have a reference and need a repair
	Corrupt   uint64 // number of damaged blocks that reads have found since Open
	Damaged   uint64 // number of unreadable parts of segments that were found since Open
}

// Store is an open block store. Its methods may be called concurrently.
type Store struct {
	dir   string
	opts  Options
	log   *slog.Logger
	lock  io.Closer
	index *kv.Store
	files *handles
	known *known

	// queueOps and queueBytes bound the queue of operations.
	queueOps   *semaphore.Weighted
	queueBytes *semaphore.Weighted
	// mu guards queue and closed. It is not held during input or output.
	mu     sync.Mutex
	queue  []*op
	work   sync.Cond // condition on mu: the queue is not empty, or closed is true
	closed bool

	committer sync.WaitGroup // waits for the goroutines of commitAll and watchIndex
	// The following fields are used by the committer only, and by Open before the committer
	// starts.
	active *active
	// memory is the allocated memory that contains buf.
	memory []byte // the allocated memory that contains buf
	buf    []byte // the batch in its final form on the disk
	direct bool   // large batches of blocks that will not be read soon bypass the page cache
	broken error
	// retired is a segment that must not be appended to: it is damaged, or Collect empties it.
	retired uint32
	rebuilt bool // the index was rebuilt from the segments; Open sets this

	failed  chan struct{}  // closed when broken is set, or when the store must break
	failing sync.Once      // closes failed only once
	closing chan struct{}  // closed by Close
	walks   sync.WaitGroup // counts the running goroutines of AllKeysChan

	// stats guards loads, sizes, totals, freed, unswept and uncounted. Only the committer changes
	// the first four.
	stats   sync.Mutex
	loads   map[uint32]load
	sizes   map[uint32]int64 // sizes of the segment files
	totals  totals
	freed   Freed
	unswept map[uint64]bool // dropped incarnations with index entries; true while a call of Drop is removing them
	// uncounted has the incarnations whose blocks are not all marked as hidden or visible as their
	// seals say. The value is true while a call of Seal is marking them.
	uncounted map[uint64]bool

	corrupt, damaged atomic.Uint64

	garbage    chan struct{} // receives a value when Run should collect garbage
	losses     chan struct{} // the channel that Lost returns
	compacting chan struct{} // allows one pass of Compact at a time
	copying    *rate.Limiter
	stuck      map[uint32]bool // segments that the current pass of Compact could not empty; only the pass uses it
	// heads has, for each segment that weigh has measured, the size of the parts of reference
	// records that loads does not count. Only a pass of Compact uses it.
	heads map[uint32]int64
}

// Open opens or creates the store in dir and recovers it after a crash. It starts a
// goroutine, which Close ends. If another process has the store open, the error wraps
// durable.ErrLocked.
func Open(dir string, opts Options) (*Store, error) {
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	segments := filepath.Join(dir, segmentsDir)
	if err := durable.MkdirAll(segments, dirPerm); err != nil {
		return nil, fmt.Errorf("blocks: open: %w", err)
	}
	lock, err := durable.Lock(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("blocks: open: %w", err)
	}
	s := &Store{
		dir: dir, opts: opts, log: opts.Logger, lock: lock,
		files:      newHandles(segments),
		known:      newKnown(),
		queueOps:   semaphore.NewWeighted(maxQueuedOps),
		queueBytes: semaphore.NewWeighted(maxQueuedBytes),
		failed:     make(chan struct{}),
		closing:    make(chan struct{}),
		loads:      make(map[uint32]load),
		unswept:    make(map[uint64]bool),
		uncounted:  make(map[uint64]bool),
		garbage:    make(chan struct{}, 1),
		losses:     make(chan struct{}, 1),
		compacting: make(chan struct{}, 1),
		copying:    rate.NewLimiter(rate.Limit(opts.CompactBytesPerSecond), copyBatchBytes+maxPayloadBytes),
		stuck:      make(map[uint32]bool),
		heads:      make(map[uint32]int64),
		direct:     true,
	}
	s.work.L = &s.mu
	if err := s.recoverOrRebuild(); err != nil {
		err = fmt.Errorf("blocks: open %s: %w", dir, err)
		if s.index != nil {
			err = errors.Join(err, s.index.Close())
		}
		if s.active != nil {
			err = errors.Join(err, s.active.close())
		}
		s.files.close()
		return nil, errors.Join(err, lock.Close())
	}
	s.committer.Go(s.commitAll)
	s.committer.Go(s.watchIndex)
	return s, nil
}

// Usage returns the sizes of the store.
func (s *Store) Usage() Usage {
	u := Usage{Corrupt: s.corrupt.Load(), Damaged: s.damaged.Load()}
	s.stats.Lock()
	u.Blocks, u.LiveBytes, u.Missing = uint64(s.totals.blocks), uint64(s.totals.bytes), uint64(s.totals.missing)
	u.Segments = uint64(len(s.sizes))
	for _, size := range s.sizes {
		u.DiskBytes += uint64(size)
	}
	s.stats.Unlock()
	free, err := durable.FreeBytes(s.dir)
	if err != nil {
		s.log.Error("cannot read the free space of the disk", "dir", s.dir, "err", err)
	}
	u.FreeBytes = free
	return u
}

// room returns how many bytes new blocks may still use, and how many bytes the copies of
// Compact may still use.
func (s *Store) room() (content, copies int64) {
	if s.opts.Room != nil {
		return s.opts.Room()
	}
	if s.opts.MinFreeBytes < 0 {
		return math.MaxInt64, math.MaxInt64
	}
	free, err := durable.FreeBytes(s.dir)
	if err != nil {
		return math.MaxInt64, math.MaxInt64 // the write will fail if there is no space
	}
	left := int64(min(free, math.MaxInt64)) - s.opts.MinFreeBytes
	return left, left
}

// distrustIndex makes the next Open rebuild the index if err says that the index is damaged. It
// returns err unchanged.
func (s *Store) distrustIndex(err error) error {
	if !errors.Is(err, kv.ErrCorrupt) {
		return err
	}
	s.log.Error("block index is damaged: the next start rebuilds it", "err", err)
	if werr := durable.WriteFile(filepath.Join(s.dir, rebuildFile), nil, filePerm); werr != nil {
		return errors.Join(err, werr)
	}
	return err
}

// watchIndex marks the store as broken when a reader has found damage in its index, so that the
// process ends and the next start repairs the index. Without this, reads of the damaged part would
// fail forever, because nothing else would cause a restart, and a table that cannot be read cannot
// be rewritten either.
func (s *Store) watchIndex() {
	select {
	case <-s.closing:
	case <-s.index.Damaged():
		s.log.Error("block store has failed", "dir", s.dir, "err", s.distrustIndex(errIndex))
		s.failing.Do(func() { close(s.failed) })
	}
}

// Failed returns a channel that is closed when the store has broken. From then on every write
// returns ErrBroken, and the node should stop.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Close waits for running writes and closes the store. Run should have ended before. Later
// calls return ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.closing)
	s.work.Signal()
	s.mu.Unlock()
	s.committer.Wait()
	s.walks.Wait()
	s.files.close()
	err := errors.Join(s.index.Close(), s.active.close(), s.lock.Close())
	if err != nil {
		return fmt.Errorf("blocks: close: %w", err)
	}
	return nil
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
