package client

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"lukechampine.com/blake3"
)

// TestRangesHaveTheHashOfTheWhole promises that the hash of ranges is that of the whole content, whatever the
// sizes of content, ranges and writes and whichever order the ranges arrive in.
func TestRangesHaveTheHashOfTheWhole(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	check := func(size, step int64, most int) {
		t.Helper()
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		h := newRangeHash(size, step)
		for _, at := range random.Perm(len(h.cvs)) {
			off := int64(at) * step
			w := h.writer(off)
			for rest := content[off:min(off+step, size)]; len(rest) > 0; {
				n := min(1+random.IntN(most), len(rest))
				if _, err := w.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			w.end()
		}
		if got, want := h.sum(), Hash(blake3.Sum256(content)); got != want {
			t.Errorf("%d bytes in ranges of %d have the hash %s, the ranges %s", size, step, want, got)
		}
	}
	for _, step := range []int64{1 << 10, 4 << 10, 64 << 10} {
		for _, size := range []int64{step + 1, 2*step - 1, 2 * step, 2*step + 1, 3*step + 1024, 5 * step, 7*step + 1025, 8 * step, 11*step - 1, 16*step + 1} {
			check(size, step, 3000)
		}
		for range 50 {
			check(step+1+random.Int64N(20*step), step, 1+random.IntN(20_000))
		}
	}
	for _, size := range []int64{DefaultPartSize + 1, 2 * DefaultPartSize, 2*DefaultPartSize + 3*hashPiece + 7, 3*DefaultPartSize - 1} {
		check(size, DefaultPartSize, 300<<10)
	}
}

func BenchmarkRangeHash(b *testing.B) {
	for _, writes := range []int{32 << 10, hashPiece} {
		b.Run(fmt.Sprintf("writes of %d", writes), func(b *testing.B) {
			content := make([]byte, 4*DefaultPartSize)
			b.SetBytes(int64(len(content)))
			b.ReportAllocs()
			for b.Loop() {
				h := newRangeHash(int64(len(content)), DefaultPartSize)
				for off := int64(0); off < int64(len(content)); off += DefaultPartSize {
					w := h.writer(off)
					for rest := content[off : off+DefaultPartSize]; len(rest) > 0; rest = rest[writes:] {
						if _, err := w.Write(rest[:writes]); err != nil {
							b.Fatal(err)
						}
					}
					w.end()
				}
				h.sum()
			}
		})
	}
}
