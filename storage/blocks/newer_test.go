package blocks

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"testing"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// A segment or an index of a newer format is refused with ErrNewer, and one with a bad checksum with ErrCorrupt. A
// segment of a newer release must not count as damage, which is set aside.
func TestASegmentOfANewerReleaseIsRefusedAndStays(t *testing.T) {
	dir := t.TempDir()
	header := segmentHeader(1, 7)
	for at := 0; at < headerBytes; at += headerCopyBytes {
		c := header[at : at+headerCopyBytes]
		c[7] = segmentVersion + 1
		binary.BigEndian.PutUint32(c[28:], crc32.Checksum(c[:28], castagnoli()))
	}
	if err := os.WriteFile(segmentPath(dir, 1), header, filePerm); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openSegment(dir, 1, os.O_RDWR); !errors.Is(err, durable.ErrNewer) || errors.Is(err, ErrCorrupt) {
		t.Errorf("%v", err)
	}
	rotten := segmentHeader(1, 7)
	rotten[7], rotten[headerCopyBytes+7] = segmentVersion+1, segmentVersion+1 // without its checksum
	if err := os.WriteFile(segmentPath(dir, 1), rotten, filePerm); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openSegment(dir, 1, os.O_RDWR); !errors.Is(err, ErrCorrupt) {
		t.Errorf("rot: %v", err)
	}
	if _, err := decodeMeta([]byte{indexVersion + 1}); !errors.Is(err, durable.ErrNewer) {
		t.Errorf("a newer index: %v", err)
	}
}

// Open refuses an index of a newer format each time, and does not rebuild it from the segments. The newer release may
// know more than the segments have.
func TestAnIndexOfANewerReleaseIsRefusedAndStays(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx := s.index.Begin()
	if err := errors.Join(tx.Set([]byte{keyMeta}, append([]byte{indexVersion + 1}, make([]byte, 40)...)), tx.Commit(true), s.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if s, err := Open(dir, Options{}); !errors.Is(err, durable.ErrNewer) {
			t.Fatalf("opened: %v, %v", err, s.Close())
		}
	}
}
