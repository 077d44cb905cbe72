// Package datastore provides the datastores of the embedded IPFS peer: small Pebble stores in one
// folder, behind the datastore interface of IPFS. The peer can get all their content again. So a
// damaged store is replaced by an empty one, single writes are not flushed to the disk, and writes
// are refused while the disk is nearly full.
//
// Imports: storage/durable, storage/kv, go-ds-pebble, pebble.
// Never:   imports of raft or libp2p; decisions based on the meaning of a key.
package datastore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ipfs/go-datastore"
	pebbleds "github.com/ipfs/go-ds-pebble"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// Bounds of the datastores of one folder.
const (
	// cacheBytes is the size of the block cache that all datastores share. Pebble takes the
	// memory of memtables from this cache.
	cacheBytes = 8 << 20
	// memTableBytes is the size of one memtable. A crash of the machine may lose as many bytes
	// of each datastore. Pebble has at most two memtables of a datastore before writes wait.
	memTableBytes = 2 << 20
	// maxOpenFiles bounds the file descriptors of one store.
	maxOpenFiles = 128
)

// ErrNoRoom is the error of a write while the disk is nearly full.
var ErrNoRoom = errors.New("datastore: the disk is nearly full")

// Options are the settings of a Folder. The zero value has working defaults.
type Options struct {
	Logger *slog.Logger // nil discards log lines
	// Full is called when a write finds the disk full, as in kv.Options. If Full is nil, the
	// process ends.
	Full func()
	// Tight reports whether the disk has so little room that only necessary writes are allowed. Nil
	// means that it always has enough room.
	Tight func() bool
	// Fatal is passed to kv.PebbleLogger.
	Fatal func(message string)
}

// Folder is a folder of datastores. Its methods may be called concurrently.
type Folder struct {
	dir   string
	opts  Options
	cache *pebble.Cache
	close sync.Once
}

// Open returns the folder dir for datastores. The folder itself is created together with its first
// datastore. The caller must close the result.
func Open(dir string, opts Options) *Folder {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Tight == nil {
		opts.Tight = func() bool { return false }
	}
	return &Folder{dir: dir, opts: opts, cache: pebble.NewCache(cacheBytes)}
}

// Close frees the memory that the datastores share. It must be called after all of them are
// closed, and may be called twice.
func (f *Folder) Close() error {
	f.close.Do(f.cache.Unref)
	return nil
}

// Open opens the datastore with a name, or creates it. A datastore that cannot be opened is
// removed and created again; if that fails too, its content is kept in memory. Open logs both
// cases. The caller closes the datastore.
func (f *Folder) Open(name string) (datastore.Batching, error) {
	s, err := f.open(name, vfs.Default)
	if err == nil {
		return s, nil
	}
	log := f.opts.Logger.With("folder", f.path(name))
	log.Warn("datastore of the IPFS peer cannot be opened and is made anew", "err", err)
	if err = f.Remove(name); err == nil {
		s, err = f.open(name, vfs.Default)
	}
	if err != nil {
		log.Error("datastore of the IPFS peer is kept in memory until the next start", "err", err)
		s, err = f.open(name, vfs.NewMem())
	}
	if err != nil {
		return nil, fmt.Errorf("datastore: open %s: %w", name, err)
	}
	return s, nil
}

// Remove removes the datastore with a name, which must not be open. It is no error if there is
// none.
func (f *Folder) Remove(name string) error {
	if err := durable.RemoveAll(f.path(name)); err != nil {
		return fmt.Errorf("datastore: %w", err)
	}
	return nil
}

func (f *Folder) path(name string) string { return filepath.Join(f.dir, name) }

func (f *Folder) open(name string, fs vfs.FS) (*store, error) {
	if fs == vfs.Default {
		if err := durable.MkdirAll(f.dir, 0o700); err != nil {
			return nil, err
		}
	}
	s := &store{folder: f, name: name}
	opts := &pebble.Options{
		FS:                 kv.FileSystem(fs, f.opts.Full),
		FormatMajorVersion: pebble.FormatNewest,
		Cache:              f.cache,
		MemTableSize:       memTableBytes,
		MaxOpenFiles:       maxOpenFiles,
		Logger:             kv.PebbleLogger{Log: f.opts.Logger, Fatal: f.opts.Fatal},
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				f.opts.Logger.Error("datastore background error", "folder", f.path(name), "err", err)
			},
			// Pebble's default ends the process.
			DataCorruption: func(info pebble.DataCorruptionInfo) { s.damage(info.Details) },
		},
	}
	var err error
	s.Datastore, err = pebbleds.NewDatastore(f.path(name), pebbleds.WithPebbleOpts(opts))
	return s, err
}

// store is one open datastore.
type store struct {
	*pebbleds.Datastore
	folder  *Folder
	name    string
	damaged atomic.Bool
}

func (s *store) damage(err error) {
	if !s.damaged.Swap(true) {
		s.folder.opts.Logger.Error("datastore of the IPFS peer is damaged and is made anew by the next start",
			"folder", s.folder.path(s.name), "err", err)
	}
}

// Put implements datastore.Write.
func (s *store) Put(ctx context.Context, key datastore.Key, value []byte) error {
	if s.folder.opts.Tight() {
		return ErrNoRoom
	}
	return s.Datastore.Put(ctx, key, value)
}

// Sync implements datastore.Datastore and does nothing. A flush of data that can be learnt
// again would delay the flushes of Raft.
func (s *store) Sync(context.Context, datastore.Key) error { return nil }

// Batch implements datastore.Batching.
func (s *store) Batch(ctx context.Context) (datastore.Batch, error) {
	b, err := s.Datastore.Batch(ctx)
	return &batch{Batch: b, store: s}, err
}

// Close closes the datastore, and removes it if a read has found damage in it.
func (s *store) Close() error {
	err := s.Datastore.Close()
	if s.damaged.Load() {
		err = errors.Join(err, s.folder.Remove(s.name))
	}
	return err
}

// batch collects writes until Commit.
type batch struct {
	datastore.Batch
	store *store
	puts  bool // the batch contains a Put, so it needs space on the disk
}

// Put implements datastore.Write.
func (b *batch) Put(ctx context.Context, key datastore.Key, value []byte) error {
	b.puts = true
	return b.Batch.Put(ctx, key, value)
}

// Commit implements datastore.Batch.
func (b *batch) Commit(ctx context.Context) error {
	if b.puts && b.store.folder.opts.Tight() {
		return ErrNoRoom
	}
	return b.Batch.Commit(ctx)
}
