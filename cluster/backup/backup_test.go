package backup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

const content = "the archive of a store, of which this package knows only the size"

func sample() *Header {
	return &Header{
		ClusterID: "c1", Index: 42, FeatureLevel: 11, Time: time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC), StateHash: state.Hash{1, 2, 3},
		Release: "v1", Node: "n1", Secret: []byte("0123456789abcdef"), ArchiveBytes: int64(len(content)),
	}
}

func written(t *testing.T, h *Header) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, h, func(w io.Writer) error { _, err := io.WriteString(w, content); return err }); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A backup is read as it was written, and its bytes stay the same from release to release.
func TestABackupIsReadAsItWasWritten(t *testing.T) {
	b := written(t, sample())
	goldentest.File(t, "testdata/backup", b)
	var got bytes.Buffer
	h, size, err := Read(iotest.OneByteReader(bytes.NewReader(b)), func(_ *Header, r io.Reader) error {
		_, err := io.Copy(&got, r)
		return err
	})
	if err != nil || size != int64(len(b)) || got.String() != content {
		t.Fatalf("%d of %d bytes, %q: %v", size, len(b), got.String(), err)
	}
	if h.ClusterID != "c1" || h.Index != 42 || h.StateHash != (state.Hash{1, 2, 3}) || string(h.Secret) != "0123456789abcdef" || !h.Time.Equal(sample().Time) {
		t.Errorf("header %+v", h)
	}
	if text := h.String(); strings.Contains(text, "0123") {
		t.Errorf("%q has the secret", text)
	}
}

// Each changed byte, each cut and each byte too many is an error that says so.
func TestEveryChangeOfABackupIsFound(t *testing.T) {
	whole := written(t, sample())
	for i := range whole {
		for _, flip := range []byte{1, 0x20, 0x80} {
			b := bytes.Clone(whole)
			b[i] ^= flip
			if _, _, err := Read(bytes.NewReader(b), nil); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNone) && !errors.Is(err, ErrNewer) {
				t.Fatalf("byte %d changed by %#x: %v", i, flip, err)
			}
		}
	}
	for i := range whole {
		if _, _, err := Read(bytes.NewReader(whole[:i]), nil); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNone) {
			t.Fatalf("cut after %d bytes: %v", i, err)
		}
	}
	if _, _, err := Read(bytes.NewReader(append(bytes.Clone(whole), 0)), nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte too many: %v", err)
	}
	later := bytes.Clone(whole)
	later[len(magic)] = version + 1
	if _, _, err := Read(bytes.NewReader(later), nil); !errors.Is(err, ErrNewer) {
		t.Errorf("a newer version: %v", err)
	}
	huge := binary.BigEndian.AppendUint32(append([]byte(magic), version), MaxHeader+1)
	if _, _, err := Read(bytes.NewReader(huge), nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("a huge header: %v", err)
	}
}

// The error of the caller's reader and writer is returned, and damage of the file comes before an error of the archive.
func TestErrorsOfABackupAreTold(t *testing.T) {
	broken := errors.New("broken")
	b := written(t, sample())
	if _, _, err := Read(io.MultiReader(bytes.NewReader(b[:len(b)-9]), iotest.ErrReader(broken)), nil); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
	refuse := func(*Header, io.Reader) error { return broken }
	if _, _, err := Read(bytes.NewReader(b), refuse); !errors.Is(err, broken) {
		t.Errorf("an archive that is refused: %v", err)
	}
	b[len(b)-40] ^= 1
	if _, _, err := Read(bytes.NewReader(b), refuse); !errors.Is(err, ErrDamaged) {
		t.Errorf("an archive that is refused because of damage: %v", err)
	}
	if err := Write(io.Discard, sample(), func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("an archive that cannot be read: %v", err)
	}
	if err := Write(io.Discard, sample(), func(io.Writer) error { return nil }); err == nil {
		t.Error("an archive of another size than announced is written")
	}
	long := sample()
	long.Release = strings.Repeat("v", MaxHeader)
	if err := Write(io.Discard, long, func(io.Writer) error { return nil }); err == nil {
		t.Error("a header that cannot be read is written")
	}
}

// Any bytes are read without a panic.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := Write(&b, sample(), func(w io.Writer) error { _, err := io.WriteString(w, content); return err }); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, size, err := Read(bytes.NewReader(in), nil)
		if err == nil && (size != int64(len(in)) || h.ClusterID == "") {
			t.Errorf("%d of %d bytes: %+v", size, len(in), h)
		}
	})
}
