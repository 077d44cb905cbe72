package raftlog

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// A Raft log file and an entry of a newer release are refused with ErrNewer, not as damage.
func TestALogOfANewerReleaseIsRefusedAndNotDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	meta := b[pageHeadBytes : pageHeadBytes+metaBytes]
	binary.NativeEndian.PutUint32(meta[4:], boltVersion+1)
	sum := fnv.New64a()
	_, _ = sum.Write(meta[:metaSumAt])
	binary.NativeEndian.PutUint64(meta[metaSumAt:], sum.Sum64())
	if err := os.WriteFile(path, b, filePerm); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, durable.ErrNewer) || errors.Is(err, ErrCorrupt) {
		t.Errorf("the file: %v", err)
	}
	frame := appendEntry(nil, &raft.Log{Index: 3})
	frame[0] = entryVersion + 1
	binary.BigEndian.PutUint32(frame[len(frame)-crcBytes:], entrySum(frame[:len(frame)-crcBytes], 3))
	if err := decodeEntry(frame, 3, new(raft.Log)); !errors.Is(err, durable.ErrNewer) || errors.Is(err, ErrCorrupt) {
		t.Errorf("an entry: %v", err)
	}
}

// List fails with ErrNewer if a snapshot is of a newer release.
func TestASnapshotOfANewerReleaseIsRefused(t *testing.T) {
	dir := t.TempDir()
	const id = "00000000000000000001-00000000000000000001-0000000000001"
	fields, err := json.Marshal(metaFields{Version: snapshotVersion + 1, ID: id})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(storedMeta{Meta: fields, CRC32C: fmt.Sprintf("%08x", crc32.Checksum(fields, castagnoli()))})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, id), dirPerm); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, id, metaFile), raw, filePerm); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSnapshots(dir, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(); !errors.Is(err, durable.ErrNewer) {
		t.Errorf("%v", err)
	}
}
