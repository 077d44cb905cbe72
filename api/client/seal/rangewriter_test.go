package seal

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// TestRangesComeBackFromAWriter promises that each range of chunked content comes back from a RangeWriter,
// whether the ciphertext is written or read, in pieces of any size.
func TestRangesComeBackFromAWriter(t *testing.T) {
	const n = 3*ChunkSize + 5
	id := generate(t)
	ciphertext, h := encrypt(t, id, n)
	c := open(t, id, h)
	for _, offset := range []int{0, 1, ChunkSize - 1, ChunkSize, n - 1} {
		for _, length := range []int{1, ChunkSize + 1, n - offset} {
			if offset+length > n {
				continue
			}
			start, size, err := c.Range(int64(offset), int64(length))
			if err != nil {
				t.Fatal(err)
			}
			sealed := ciphertext[start : start+size]
			for name, send := range map[string]func(*RangeWriter) error{
				"written": func(w *RangeWriter) error {
					for rest := sealed; len(rest) > 0; {
						step := min(len(rest), 100_000)
						if n, err := w.Write(rest[:step]); n != step || err != nil {
							return errors.Join(err, io.ErrShortWrite)
						}
						rest = rest[step:]
					}
					return nil
				},
				"read": func(w *RangeWriter) error {
					read, err := w.ReadFrom(slowly(bytes.NewReader(sealed), 50_000))
					if read != size {
						t.Errorf("%d of %d bytes were read", read, size)
					}
					return err
				},
				"read with a gap": func(w *RangeWriter) error {
					broken := io.MultiReader(bytes.NewReader(sealed[:size/2]), iotest.ErrReader(iotest.ErrTimeout))
					read, err := w.ReadFrom(broken)
					if !errors.Is(err, iotest.ErrTimeout) || read != size/2 {
						return errors.New("the error of the source is lost")
					}
					_, err = w.ReadFrom(bytes.NewReader(sealed[read:]))
					return err
				},
			} {
				var plain bytes.Buffer
				w, err := c.RangeWriter(&plain, int64(offset), int64(length))
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(send(w), w.Close()); err != nil || !bytes.Equal(plain.Bytes(), bytesOf(n)[offset:offset+length]) {
					t.Errorf("%s, %d at %d: %d bytes, %v", name, length, offset, plain.Len(), err)
				}
			}
		}
	}
	if _, err := c.RangeWriter(io.Discard, n, 1); !errors.Is(err, ErrRange) {
		t.Errorf("a range behind the end: %v", err)
	}
	_, whole := encrypt(t, id, 100)
	if _, err := open(t, id, whole).RangeWriter(io.Discard, 0, 100); !errors.Is(err, ErrRange) {
		t.Errorf("a range of content in one piece: %v", err)
	}
}

// TestARangeWriterChecksChunks promises that a chunk with a wrong bit, a chunk at another place, a range
// that ends early and bytes behind it are refused with their errors, and that no byte of such a chunk is
// written.
func TestARangeWriterChecksChunks(t *testing.T) {
	const n = 3 * ChunkSize
	const step = ChunkSize + ChunkOverhead
	id := generate(t)
	ciphertext, h := encrypt(t, id, n)
	c := open(t, id, h)
	flipped := bytes.Clone(ciphertext)
	flipped[step+1000] ^= 1
	swapped := bytes.Clone(ciphertext)
	copy(swapped[step:2*step], ciphertext[2*step:])
	repeated := bytes.Clone(ciphertext)
	copy(repeated[step:2*step], ciphertext[:step])
	for name, tc := range map[string]struct {
		sent    []byte
		want    error
		written int
	}{
		"a wrong bit":        {flipped, ErrChunk, ChunkSize},
		"a chunk from later": {swapped, ErrChunkMoved, ChunkSize},
		"a chunk twice":      {repeated, ErrChunkRepeated, ChunkSize},
		"an early end":       {ciphertext[:2*step+5], ErrTruncated, 2 * ChunkSize},
		"nothing":            {nil, ErrTruncated, 0},
		"bytes behind it":    {append(bytes.Clone(ciphertext), 0), ErrTrailing, n},
	} {
		t.Run(name, func(t *testing.T) {
			for _, read := range []bool{false, true} {
				var plain bytes.Buffer
				w, err := c.RangeWriter(&plain, 0, n)
				if err != nil {
					t.Fatal(err)
				}
				if read {
					_, err = w.ReadFrom(bytes.NewReader(tc.sent))
				} else {
					_, err = w.Write(tc.sent)
				}
				if closed := w.Close(); !errors.Is(closed, tc.want) || err != nil && !errors.Is(closed, err) {
					t.Errorf("%v, and then %v, not %v", err, closed, tc.want)
				}
				if !bytes.Equal(plain.Bytes(), bytesOf(n)[:tc.written]) {
					t.Errorf("%d bytes were written, not %d", plain.Len(), tc.written)
				}
				if _, again := w.Write(ciphertext); !errors.Is(again, tc.want) {
					t.Errorf("after an error it takes more: %v", again)
				}
			}
		})
	}
	failing := errors.New("the disk is full")
	w, err := c.RangeWriter(fullDisk{failing}, 0, n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(ciphertext); !errors.Is(err, failing) {
		t.Errorf("the error of the target is %v", err)
	}
}

// fullDisk is a writer that fails.
type fullDisk struct{ err error }

func (w fullDisk) Write([]byte) (int, error) { return 0, w.err }

// BenchmarkDecryptRange measures one range of 8 MiB, as a download of a file reads it.
func BenchmarkDecryptRange(b *testing.B) {
	const n = 32 * ChunkSize
	id := generate(b)
	ciphertext, h := encrypt(b, id, n)
	b.SetBytes(n)
	b.ReportAllocs()
	for b.Loop() {
		w, err := open(b, id, h).RangeWriter(io.Discard, 0, n)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.ReadFrom(bytes.NewReader(ciphertext)); err != nil {
			b.Fatal(err)
		}
	}
}
