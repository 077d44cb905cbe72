// Package backup is the format of a backup of the replicated state: a header, an archive of the
// store of the state, and a checksum over all of it.
//
// Imports: consensus/state.
// Never:   files, storage, settings.
package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A backup, version 1, is
//
//	magic    "HFBACKUP" 0x00 0x01; the last byte is the version
//	header   length of the JSON (uint32, big endian), the JSON of Header
//	archive  Header.ArchiveBytes bytes; see package storage/kv
//	sum      SHA-256 of all bytes before
const (
	magic   = "HFBACKUP\x00"
	version = 1

	// MaxHeader is the largest size of the JSON of a header, in bytes.
	MaxHeader = 64 << 10

	bufferBytes = 256 << 10
)

// Errors about the content of a backup, for errors.Is.
var (
	// ErrNone means that the first bytes are not those of a backup.
	ErrNone = errors.New("this is no backup of Holdfast")
	// ErrNewer means that a newer release has written the backup.
	ErrNewer = errors.New("a newer release has written this backup")
	// ErrDamaged means that bytes are missing, too many or different from those that were written.
	ErrDamaged = errors.New("the backup is cut off or damaged")
)

// Header describes a backup. Secret makes a backup as confidential as the data folder of a node.
type Header struct {
	ClusterID    string             `json:"cluster_id"`
	Index        uint64             `json:"index"` // of the newest log entry in the state
	FeatureLevel state.FeatureLevel `json:"feature_level"`
	Time         time.Time          `json:"time"`       // by the clock of the node
	StateHash    state.Hash         `json:"state_hash"` // see state.HashOf
	Release      string             `json:"release"`    // release of the node
	Node         state.NodeID       `json:"node"`
	Secret       []byte             `json:"secret"` // account secret of the cluster
	ArchiveBytes int64              `json:"archive_bytes"`
}

// String returns a text without the secret.
func (h *Header) String() string {
	return fmt.Sprintf("backup of cluster %s at index %d", h.ClusterID, h.Index)
}

// Write writes a backup to w. archive writes exactly h.ArchiveBytes bytes to its argument.
func Write(w io.Writer, h *Header, archive func(io.Writer) error) error {
	sum := sha256.New()
	all := io.MultiWriter(w, sum)
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode the header of the backup: %w", err)
	}
	if len(text) > MaxHeader {
		return fmt.Errorf("the header of the backup has %d bytes, more than %d", len(text), MaxHeader)
	}
	head := append([]byte(magic), version)
	head = binary.BigEndian.AppendUint32(head, uint32(len(text)))
	if _, err := all.Write(append(head, text...)); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	c := &counted{w: all}
	if err := archive(c); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	if c.n != h.ArchiveBytes {
		return fmt.Errorf("write the backup: the archive has %d bytes and not %d", c.n, h.ArchiveBytes)
	}
	if _, err := w.Write(sum.Sum(nil)); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	return nil
}

type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// Read reads a backup from r to its end. It calls archive with the header and a reader of the
// archive; archive need not read it to its end, and a nil archive reads nothing. The content may
// be damaged until Read returns nil. size is that of the backup.
//
// Errors: ErrNone, ErrNewer, ErrDamaged, and those of r and of archive.
func Read(r io.Reader, archive func(h *Header, r io.Reader) error) (h *Header, size int64, err error) {
	sum := sha256.New()
	in := &summed{r: bufio.NewReaderSize(r, bufferBytes), sum: sum}
	if h, err = readHeader(in); err != nil {
		return nil, 0, err
	}
	body := io.LimitReader(in, h.ArchiveBytes)
	if archive != nil {
		err = archive(h, body)
	}
	// The rest is read even after an error: damage of the file is the better reason.
	if _, rest := io.Copy(io.Discard, body); rest != nil {
		return nil, 0, fmt.Errorf("read the backup: %w", rest)
	}
	want := sum.Sum(nil)
	var got [sha256.Size + 1]byte
	n, end := io.ReadFull(in.r, got[:])
	switch {
	case end != nil && !errors.Is(end, io.ErrUnexpectedEOF) && !errors.Is(end, io.EOF):
		return nil, 0, fmt.Errorf("read the backup: %w", end)
	case n < sha256.Size:
		return nil, 0, fmt.Errorf("%w: it ends too early", ErrDamaged)
	case n > sha256.Size:
		return nil, 0, fmt.Errorf("%w: more follows its end", ErrDamaged)
	case !bytes.Equal(want, got[:n]):
		return nil, 0, fmt.Errorf("%w: its checksum differs", ErrDamaged)
	case err != nil:
		return nil, 0, err
	}
	return h, in.n + sha256.Size, nil
}

func readHeader(in io.Reader) (*Header, error) {
	head := make([]byte, len(magic)+1+4)
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, cut(err, ErrNone)
	}
	switch {
	case string(head[:len(magic)]) != magic:
		return nil, ErrNone
	case head[len(magic)] > version:
		return nil, fmt.Errorf("%w: version %d, and this release reads up to %d", ErrNewer, head[len(magic)], version)
	case head[len(magic)] != version:
		return nil, ErrNone
	}
	size := binary.BigEndian.Uint32(head[len(magic)+1:])
	if size > MaxHeader {
		return nil, fmt.Errorf("%w: a header of %d bytes", ErrDamaged, size)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(in, text); err != nil {
		return nil, cut(err, ErrDamaged)
	}
	h := new(Header)
	if err := json.Unmarshal(text, h); err != nil {
		return nil, fmt.Errorf("%w: its header cannot be read: %w", ErrDamaged, err)
	}
	if h.ArchiveBytes < 0 || h.ClusterID == "" || h.Index == 0 || len(h.Secret) == 0 {
		return nil, fmt.Errorf("%w: its header is not complete", ErrDamaged)
	}
	return h, nil
}

// cut returns an error that wraps why if err is the end of the input.
func cut(err, why error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", why)
	}
	return fmt.Errorf("read the backup: %w", err)
}

// summed reads from r, hashes and counts.
type summed struct {
	r   io.Reader
	sum hash.Hash
	n   int64
}

// Read implements io.Reader.
func (s *summed) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.sum.Write(b[:n]) // never fails
	s.n += int64(n)
	return n, err
}
