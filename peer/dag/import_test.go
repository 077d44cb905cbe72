package dag

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	blocks "github.com/ipfs/go-block-format"
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

// A chunk has no memory before its first bytes are there: who gives out memory does so
// when it is asked for them.
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
	broken := errors.New("broken")
	for _, after := range []int{0, 10, ChunkSize + headBytes + 1} {
		r := io.MultiReader(bytes.NewReader(make([]byte, after)), iotest.ErrReader(broken))
		if _, _, err := Import(t.Context(), r, func([]blocks.Block) error { return nil }); !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", after, err)
		}
	}
}
