// Package notes stores node-local metadata that outlives the process: a bounded map in
// memory and a journal of its changes.
//
// Imports: storage/durable.
// Never:   the meaning of a key; facts that must not be lost.
//
// Metadata may be lost. Changes are written without fsync, so a crash of the machine
// loses the newest, and unreadable records are skipped. A disk error is therefore logged
// and not returned, and the map in memory goes on.
//
// The journal is a header and records. A record is the CRC-32C of its rest (4 bytes, big
// endian), the lengths of key and value (2 bytes each; a value length of 0xffff marks a
// deleted key), the key and the value. When most of the journal is obsolete, it is
// rewritten and replaces the old one.
package notes

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
	// MaxNotes bounds the notes; beyond it, any other one makes room.
	MaxNotes = 1 << 16
	// MaxKeyBytes bounds the key of a note; one with a larger is not kept.
	MaxKeyBytes = 1 << 10
	// MaxValueBytes bounds the value of a note; a larger one is not kept.
	MaxValueBytes = 4 << 10

	headerForm = "holdfast notes %d\n"
	version    = 1
	header     = "holdfast notes 1\n"
	maxHeader  = 64 // bytes
	headBytes  = 8  // of a record
	deleted    = 0xffff
	// The journal is written anew when it is as long as slack times what is
	// true, and slackBytes more.
	slack      = 2
	slackBytes = 1 << 20
	// retryEvery is how many changes pass between two attempts to write it anew
	// when that has failed.
	retryEvery = 64

	perm = 0o600
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Notes is an open journal. Its methods may be called concurrently.
type Notes struct {
	path string
	log  *slog.Logger

	// mu guards the rest. Writes to the file are under it: their order is that
	// of the changes.
	mu    sync.Mutex
	file  *os.File // nil: there is trouble with the disk, or Close was called
	notes map[string][]byte
	live  int64 // bytes of the records that are true
	size  int64 // of the file
	buf   []byte
	quiet bool // that there is trouble was said
	wait  int  // changes until the next attempt to write all of it anew
	ended bool // by Close
}

// Open reads the journal at path. Without a file it returns an empty one, and it reads a
// damaged file as far as it is readable. It returns an error if the file cannot be read at
// all, and one that wraps durable.ErrNewer, without changing the file, if a newer release
// wrote it.
func Open(path string, log *slog.Logger) (*Notes, error) {
	n := &Notes{path: path, log: log, notes: map[string][]byte{}}
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("notes: open: %w", err)
	}
	var found uint64
	if _, err := fmt.Sscanf(string(b[:min(len(b), maxHeader)]), headerForm, &found); err == nil && found > version {
		return nil, fmt.Errorf("notes: open: %w", durable.Newer(path, found, version))
	}
	good := n.read(b)
	if good < len(b) {
		log.Warn("notes are damaged, or the last was cut short", "file", path, "bytes", len(b)-good)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(b) == 0 || good < len(b) {
		n.rewrite()
		return n, nil
	}
	n.size = int64(len(b))
	n.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, perm)
	n.trouble("open", err)
	return n, nil
}

// read takes the records in and returns how many bytes are good.
func (n *Notes) read(b []byte) (good int) {
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
			n.forget(string(key))
		} else {
			n.keep(string(key), append([]byte{}, value...))
		}
	}
}

// parse reads one record; a nil value says that the key is deleted, size 0 that
// there is no good record.
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

// appendRecord is what parse reads; a nil value deletes.
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

func (n *Notes) keep(key string, value []byte) {
	n.forget(key)
	n.notes[key] = value
	n.live += recordBytes(key, value)
}

func (n *Notes) forget(key string) {
	if old, ok := n.notes[key]; ok {
		n.live -= recordBytes(key, old)
		delete(n.notes, key)
	}
}

// Get returns the value of a key. The caller must not change it.
func (n *Notes) Get(key string) (value []byte, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	value, ok = n.notes[key]
	return value, ok
}

// Len is the number of notes.
func (n *Notes) Len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.notes)
}

// Set stores value under key, without fsync. It ignores an empty key, a key of more than MaxKeyBytes and
// a value of more than MaxValueBytes.
func (n *Notes) Set(key string, value []byte) {
	if key == "" || len(key) > MaxKeyBytes || len(value) > MaxValueBytes {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.notes[key]; !known && len(n.notes) >= MaxNotes {
		for other := range n.notes {
			n.change(other, nil)
			break
		}
	}
	n.change(key, append([]byte{}, value...))
}

// Delete removes a key.
func (n *Notes) Delete(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.notes[key]; known {
		n.change(key, nil)
	}
}

// Keys calls fn for every key, in any order. fn may change notes.
func (n *Notes) Keys(fn func(key string)) {
	n.mu.Lock()
	keys := make([]string, 0, len(n.notes))
	for key := range n.notes {
		keys = append(keys, key)
	}
	n.mu.Unlock()
	for _, key := range keys {
		fn(key)
	}
}

// change makes a change and writes it down. The caller has the lock.
func (n *Notes) change(key string, value []byte) {
	if value == nil {
		n.forget(key)
	} else {
		n.keep(key, value)
	}
	if n.ended {
		return
	}
	if n.wait > 0 {
		n.wait--
		return
	}
	if n.file == nil || n.size > slack*n.live+slackBytes {
		n.rewrite()
		return
	}
	n.buf = appendRecord(n.buf[:0], key, value)
	if _, err := n.file.Write(n.buf); err != nil {
		n.trouble("write", errors.Join(err, n.file.Close()))
		n.file = nil // the next change writes everything anew
		return
	}
	n.size += int64(len(n.buf))
}

// rewrite puts a journal of what is true in the place of the old one. The caller
// has the lock. After a failure it is tried again with a later change.
func (n *Notes) rewrite() {
	if n.file != nil {
		n.trouble("close", n.file.Close())
		n.file = nil
	}
	b := make([]byte, 0, int64(len(header))+n.live)
	b = append(b, header...)
	for key, value := range n.notes {
		b = appendRecord(b, key, value)
	}
	err := durable.WriteFile(n.path, b, perm)
	if err == nil {
		n.file, err = os.OpenFile(n.path, os.O_WRONLY|os.O_APPEND, perm)
	}
	n.size = int64(len(b))
	if err != nil {
		n.wait = retryEvery
	}
	n.trouble("rewrite", err)
}

// trouble says once that changes do not reach the disk. The caller has the lock.
func (n *Notes) trouble(operation string, err error) {
	if err != nil && !n.quiet {
		n.log.Error("notes are not written down", "operation", operation, "err", err)
	}
	n.quiet = err != nil
}

// Close closes the journal.
func (n *Notes) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	file := n.file
	n.file, n.ended = nil, true
	if file == nil {
		return nil
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("notes: close: %w", err)
	}
	return nil
}
