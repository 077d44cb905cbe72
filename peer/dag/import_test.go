package dag

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// asked notes how much it is asked for at the beginning of each chunk.
type asked struct {
	r     io.Reader
	n     int
	heads []int
}

func (a *asked) Read(b []byte) (int, error) {
	if a.n%ChunkSize == 0 {
		a.heads = append(a.heads, len(b))
	}
	n, err := a.r.Read(b)
	a.n += n
	return n, err
}

// Import asks its reader for at most headBytes at the beginning of a chunk. So a chunk has no memory before its first
// bytes are there. The root does not depend on the sizes of the reads, and Import returns the reader's error. A
// reader that gives out memory does so when it is asked for bytes.
func TestAChunkTakesItsMemoryWhenItBegins(t *testing.T) {
	for _, size := range []int{0, 1, headBytes, ChunkSize - 1, ChunkSize, ChunkSize + 1, 3*ChunkSize + headBytes} {
		data := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		r := &asked{r: bytes.NewReader(data)}
		var got []byte
		root, n, err := Import(t.Context(), r, func(blks []blocks.Block) error {
			for _, b := range blks {
				if len(b.RawData()) > ChunkSize {
					t.Errorf("a block of %d bytes", len(b.RawData()))
				}
				if links, err := Links(b); err == nil && len(links) == 0 {
					got = append(got, b.RawData()...)
				}
			}
			return nil
		})
		if err != nil || n != uint64(size) || size > 0 && !bytes.Equal(got, data) {
			t.Fatalf("%d bytes: %d were read, %d are in leaves, %v", size, n, len(got), err)
		}
		for _, h := range r.heads {
			if h > headBytes {
				t.Errorf("%d bytes: %d are asked for at the beginning of a chunk", size, h)
			}
		}
		slow, _, err := Import(t.Context(), iotest.OneByteReader(bytes.NewReader(data)), func([]blocks.Block) error { return nil })
		if err != nil || !slow.Equals(root) {
			t.Errorf("%d bytes, one by one, are %s instead of %s, %v", size, slow, root, err)
		}
	}
	for _, broken := range []error{errors.New("broken"), io.ErrUnexpectedEOF, fmt.Errorf("cut: %w", io.ErrUnexpectedEOF)} {
		for _, after := range []int{0, 10, ChunkSize, ChunkSize + headBytes + 1} {
			for _, with := range []bool{false, true} { // the error comes with the last bytes
				r := io.MultiReader(bytes.NewReader(make([]byte, after)), iotest.ErrReader(broken))
				if with {
					r = &endsIn{make([]byte, after), broken}
				}
				if _, _, err := Import(t.Context(), r, func([]blocks.Block) error { return nil }); !errors.Is(err, broken) {
					t.Errorf("%v after %d bytes: %v", broken, after, err)
				}
			}
		}
	}
}

// endsIn is a reader that tells its error, once, with the last of its bytes.
type endsIn struct {
	data []byte
	err  error
}

func (e *endsIn) Read(b []byte) (n int, err error) {
	n = copy(b, e.data)
	if e.data = e.data[n:]; len(e.data) == 0 {
		err, e.err = e.err, io.EOF
	}
	return n, err
}

// flushing is a reader that has everything handed over before each of its reads.
type flushing struct {
	io.Reader
	flush func() error
	n     int // bytes read
	told  func(n int)
}

func (f *flushing) FlushWith(flush func() error) { f.flush = flush }

func (f *flushing) Read(b []byte) (int, error) {
	if err := f.flush(); err != nil {
		return 0, err
	}
	f.told(f.n)
	n, err := f.Reader.Read(b)
	f.n += n
	return n, err
}

// Import hands over all chunks that it has cut, each once, when its reader flushes, and uses their memory again.
func TestWhatHasBeenCutIsHandedOver(t *testing.T) {
	for _, size := range []int{0, 1, ChunkSize, ChunkSize + 1, 2 * ChunkSize, 5*ChunkSize + 7} {
		data := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
		want, _, err := Import(t.Context(), bytes.NewReader(data), func([]blocks.Block) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		r := &flushing{Reader: bytes.NewReader(data), told: func(n int) {
			if whole := n - n%ChunkSize; len(got) < whole {
				t.Errorf("%d bytes: %d of %d are handed over", size, len(got), whole)
			}
		}}
		root, n, err := new(Buffers).Import(t.Context(), r, importBatch, func(blks []blocks.Block, free func()) error {
			for _, b := range blks {
				if b.Cid().Prefix().Codec == cid.Raw {
					got = append(got, b.RawData()...)
				}
				if sum, err := b.Cid().Prefix().Sum(b.RawData()); err != nil || !sum.Equals(b.Cid()) {
					t.Errorf("%d bytes: a block of %d is not what it is called, %v", size, len(b.RawData()), err)
				}
				if b.Cid().Prefix().Codec == cid.Raw {
					clear(b.RawData())
				}
			}
			free()
			return nil
		})
		if err != nil || !root.Equals(want) || n != uint64(size) || !bytes.Equal(got, data) {
			t.Errorf("%d bytes are %s instead of %s, %d in leaves, %v", size, root, want, len(got), err)
		}
	}
}
