package seal

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// BenchmarkEncrypt and BenchmarkDecrypt measure one stream, with its content hash.
func BenchmarkEncrypt(b *testing.B) {
	id := generate(b)
	for _, n := range []int{1 << 10, 64 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("%d", n), func(b *testing.B) {
			plain, o := bytesOf(n), object(n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				e, err := New(id.PublicKey(), o)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, e.Reader(bytes.NewReader(plain))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecrypt(b *testing.B) {
	id := generate(b)
	for _, n := range []int{1 << 10, 64 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("%d", n), func(b *testing.B) {
			ciphertext, h := encrypt(b, id, n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				c := open(b, id, h)
				if _, err := io.Copy(io.Discard, c.Reader(bytes.NewReader(ciphertext))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
