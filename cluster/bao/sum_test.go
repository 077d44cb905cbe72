package bao

import (
	"bytes"
	"fmt"
	"testing"

	"lukechampine.com/blake3"
	"pgregory.net/rapid"
)

func filled(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*7>>3) ^ byte(i>>11)
	}
	return data
}

// The hash is that of the library blake3 at every length near those where its tree changes.
func TestHashIsTheLibrarys(t *testing.T) {
	data := filled(9*batch + 3)
	h, ok := NewHash(HashSize)
	if !ok {
		t.Fatal("no hash")
	}
	for batches := 0; batches <= 9; batches++ {
		for _, near := range []int{0, 1, 2, 63, 64, 65, Chunk - 1, Chunk, Chunk + 1, 2*Chunk - 1, 5 * Chunk, batch - 1} {
			n := min(batches*batch+near, len(data))
			h.Reset()
			if _, err := h.Write(data[:n]); err != nil {
				t.Fatal(err)
			}
			want := blake3.Sum256(data[:n])
			if got := h.Sum(nil); !bytes.Equal(got, want[:]) {
				t.Errorf("%d bytes: %x, the library says %x", n, got, want)
			}
		}
	}
}

// The hash does not depend on the sizes of the writes, and Sum between them changes nothing.
func TestHashOfAnyWrites(t *testing.T) {
	data := filled(6 * batch)
	rapid.Check(t, func(rt *rapid.T) {
		h, _ := NewHash(-1)
		n := 0
		for range rapid.IntRange(0, 8).Draw(rt, "writes") {
			size := min(rapid.OneOf(rapid.IntRange(0, 3*batch), rapid.SampledFrom([]int{1, Chunk, batch, 2 * batch})).Draw(rt, "bytes"), len(data)-n)
			if _, err := h.Write(data[n : n+size]); err != nil {
				rt.Fatal(err)
			}
			n += size
			want := blake3.Sum256(data[:n])
			if got := h.Sum([]byte("before")); !bytes.Equal(got, append([]byte("before"), want[:]...)) {
				rt.Fatalf("%d bytes: %x, the library says %x", n, got, want)
			}
		}
	})
}

// A hash of 1 to 128 bytes is that of the library blake3, and there is none of another size.
func TestHashSizes(t *testing.T) {
	data := filled(100)
	for _, size := range []int{1, 20, 31, 32, 33, 64, 128} {
		h, ok := NewHash(size)
		if !ok {
			t.Fatalf("no hash of %d bytes", size)
		}
		want := blake3.New(size, nil)
		_, _ = h.Write(data)
		_, _ = want.Write(data)
		if !bytes.Equal(h.Sum(nil), want.Sum(nil)) || h.Size() != size || h.BlockSize() != want.BlockSize() {
			t.Errorf("the hash of %d bytes is another one", size)
		}
	}
	for _, size := range []int{-2, 0, 129} {
		if _, ok := NewHash(size); ok {
			t.Errorf("there is a hash of %d bytes", size)
		}
	}
}

// BenchmarkSum hashes blocks, as the library does and as NewHash does.
func BenchmarkSum(b *testing.B) {
	for _, n := range []int{1 << 10, 64 << 10, 1 << 20} {
		data := filled(n)
		b.Run(fmt.Sprintf("library/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				h := blake3.New(HashSize, nil)
				_, _ = h.Write(data)
				h.Sum(nil)
			}
		})
		b.Run(fmt.Sprintf("in-place/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				h, _ := NewHash(HashSize)
				_, _ = h.Write(data)
				h.Sum(nil)
			}
		})
	}
}
