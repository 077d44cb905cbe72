// Package nodemeta stores node-local metadata that should survive a restart: a map of limited size
// in memory, and a journal of its changes on the disk.
//
// Imports: storage/durable.
// Never:   decisions based on the meaning of a key; data that must not be lost, unless its writer
// calls Sync.
//
// Metadata may be lost. Changes are written without fsync, so a crash of the machine may lose the
// changes since the last Sync. Unreadable records are skipped. A disk error is therefore logged and
// not returned, and the map in memory stays usable.
//
// The journal consists of a header and records. A record is the CRC-32C of the rest of the record
// (4 bytes, big endian), the lengths of key and value (2 bytes each; a value length of 0xffff marks
// a deleted key), the key and the value. When most of the journal is obsolete, a new journal with
// the current records replaces it.
package nodemeta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

const (
	// MaxEntries is the largest number of keys in a Store. If it is reached, Set deletes another
	// key.
	MaxEntries = 1 << 16
	// MaxKeyBytes is the largest length of a key in bytes. Set ignores longer keys.
	MaxKeyBytes = 1 << 10
	// MaxValueBytes is the largest length of a value in bytes. Set ignores longer values.
	MaxValueBytes = 4 << 10

	headerForm = "holdfast notes %d\n"
	version    = 1
	header     = "holdfast notes 1\n"
	maxHeader  = 64 // bytes
	headBytes  = 8  // size of the head of a record in bytes
	deleted    = 0xffff
	// The journal is rewritten when its size exceeds slack times the size of its current records,
	// plus slackBytes.
	slack      = 2
	slackBytes = 1 << 20
	// retryEvery is the number of changes between two attempts to rewrite the journal
	// after one has failed.
	retryEvery = 64

	perm = 0o600
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Store is an open journal and the map that it records. Its methods may be called concurrently.
type Store struct {
	path string
	log  *slog.Logger

	// flushing is held by a call of Sync while it waits for the disk. mu is not held at that time.
	flushing sync.Mutex

	// mu guards the following fields. It is held during writes of the journal, so records are
	// in the order of the changes.
	mu      sync.Mutex
	file    *os.File // nil after a disk error and after Close
	entries map[string][]byte
	live    int64 // size of the current records in bytes
	size    int64 // size of the journal file in bytes
	buf     []byte
	quiet   bool   // the current disk error is logged already
	wait    int    // number of changes until the next attempt to rewrite the journal
	ended   bool   // Close was called
	changes uint64 // number of changes
	flushed uint64 // number of changes that are on the disk for certain
}

// Open reads the journal at path. If the file does not exist, it returns an empty Store. It
// reads a damaged file as far as possible. It returns an error if the file cannot be read at
// all. If a newer release wrote the file, Open returns an error that wraps durable.ErrNewer and
// does not change the file.
func Open(path string, log *slog.Logger) (*Store, error) {
	s := &Store{path: path, log: log, entries: map[string][]byte{}}
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("nodemeta: open: %w", err)
	}
	var found uint64
	if _, err := fmt.Sscanf(string(b[:min(len(b), maxHeader)]), headerForm, &found); err == nil && found > version {
		return nil, fmt.Errorf("nodemeta: open: %w", durable.Newer(path, found, version))
	}
	good := s.read(b)
	if good < len(b) {
		log.Warn("the journal of node-local metadata is damaged or its last record is incomplete", "file", path, "bytes", len(b)-good)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(b) == 0 || good < len(b) {
		s.rewrite()
		return s, nil
	}
	s.size = int64(len(b))
	s.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, perm)
	s.trouble("open", err)
	return s, nil
}

// read applies the records of b to the map and returns the number of readable bytes.
func (s *Store) read(b []byte) (good int) {
	if len(b) < len(header) || string(b[:len(header)]) != header {
		return 0
	}
	good = len(header)
	for {
		key, value, size := parse(b[good:])
		if size == 0 {
			return good
		}
		good += size
		if value == nil {
			s.forget(string(key))
		} else {
			s.keep(string(key), append([]byte{}, value...))
		}
	}
}

// parse reads the first record of b. A nil value marks a deleted key. The size is 0 if
// the record is incomplete or damaged.
func parse(b []byte) (key, value []byte, size int) {
	if len(b) < headBytes {
		return nil, nil, 0
	}
	keys, values := int(binary.BigEndian.Uint16(b[4:])), int(binary.BigEndian.Uint16(b[6:]))
	gone := values == deleted
	if gone {
		values = 0
	}
	size = headBytes + keys + values
	if keys == 0 || keys > MaxKeyBytes || values > MaxValueBytes || len(b) < size ||
		crc32.Checksum(b[4:size], castagnoli) != binary.BigEndian.Uint32(b) {
		return nil, nil, 0
	}
	key = b[headBytes : headBytes+keys]
	if !gone {
		value = b[headBytes+keys : size : size]
	}
	return key, value, size
}

// appendRecord appends a record that parse can read. A nil value deletes the key.
func appendRecord(b []byte, key string, value []byte) []byte {
	start := len(b)
	values := len(value)
	if value == nil {
		values = deleted
	}
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(key)))
	b = binary.BigEndian.AppendUint16(b, uint16(values))
	b = append(append(b, key...), value...)
	binary.BigEndian.PutUint32(b[start:], crc32.Checksum(b[start+4:], castagnoli))
	return b
}

func recordBytes(key string, value []byte) int64 { return int64(headBytes + len(key) + len(value)) }

func (s *Store) keep(key string, value []byte) {
	s.forget(key)
	s.entries[key] = value
	s.live += recordBytes(key, value)
}

func (s *Store) forget(key string) {
	if old, ok := s.entries[key]; ok {
		s.live -= recordBytes(key, old)
		delete(s.entries, key)
	}
}

// Get returns the value of a key. The caller must not change it.
func (s *Store) Get(key string) (value []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok = s.entries[key]
	return value, ok
}

// Len returns the number of keys.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// Set stores value under key, without fsync. It ignores an empty key, a key of more than
// MaxKeyBytes and a value of more than MaxValueBytes.
func (s *Store) Set(key string, value []byte) {
	if key == "" || len(key) > MaxKeyBytes || len(value) > MaxValueBytes {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.entries[key]; !known && len(s.entries) >= MaxEntries {
		for other := range s.entries {
			s.change(other, nil)
			break
		}
	}
	s.change(key, append([]byte{}, value...))
}

// Delete removes a key.
func (s *Store) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.entries[key]; known {
		s.change(key, nil)
	}
}

// Keys calls fn for every key, in any order. fn may call Set and Delete.
func (s *Store) Keys(fn func(key string)) {
	s.mu.Lock()
	keys := make([]string, 0, len(s.entries))
	for key := range s.entries {
		keys = append(keys, key)
	}
	s.mu.Unlock()
	for _, key := range keys {
		fn(key)
	}
}

// Sync returns when all changes so far are on the disk. Concurrent calls share one flush. After a
// disk error, or after Close, it returns at once.
func (s *Store) Sync() {
	s.mu.Lock()
	want := s.changes
	s.mu.Unlock()
	s.flushing.Lock()
	defer s.flushing.Unlock()
	s.mu.Lock()
	file, now, done := s.file, s.changes, s.flushed >= want
	s.mu.Unlock()
	if done || file == nil {
		return
	}
	err := file.Sync()
	if errors.Is(err, os.ErrClosed) {
		return // a new journal has all changes, and is on the disk
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.flushed = max(s.flushed, now)
	}
	s.trouble("flush", err)
}

// change applies a change to the map and appends it to the journal. The caller holds mu.
func (s *Store) change(key string, value []byte) {
	s.changes++
	if value == nil {
		s.forget(key)
	} else {
		s.keep(key, value)
	}
	if s.ended {
		return
	}
	if s.wait > 0 {
		s.wait--
		return
	}
	if s.file == nil || s.size > slack*s.live+slackBytes {
		s.rewrite()
		return
	}
	s.buf = appendRecord(s.buf[:0], key, value)
	if _, err := s.file.Write(s.buf); err != nil {
		s.trouble("write", errors.Join(err, s.file.Close()))
		s.file = nil // the next change writes everything again
		return
	}
	s.size += int64(len(s.buf))
}

// rewrite replaces the journal by one of the current records. The caller holds mu. After
// a failure a later change tries again.
func (s *Store) rewrite() {
	if s.file != nil {
		s.trouble("close", s.file.Close())
		s.file = nil
	}
	b := make([]byte, 0, int64(len(header))+s.live)
	b = append(b, header...)
	for key, value := range s.entries {
		b = appendRecord(b, key, value)
	}
	err := durable.WriteFile(s.path, b, perm)
	if err == nil {
		s.flushed = s.changes
		s.file, err = os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND, perm)
	}
	s.size = int64(len(b))
	if err != nil {
		s.wait = retryEvery
	}
	s.trouble("rewrite", err)
}

// trouble logs the first of consecutive disk errors. The caller holds mu.
func (s *Store) trouble(operation string, err error) {
	if err != nil && !s.quiet {
		s.log.Error("cannot write node-local metadata to disk", "operation", operation, "err", err)
	}
	s.quiet = err != nil
}

// Close closes the journal.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	file := s.file
	s.file, s.ended = nil, true
	if file == nil {
		return nil
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("nodemeta: close: %w", err)
	}
	return nil
}
