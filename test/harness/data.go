package harness

import (
	crand "crypto/rand"
	"math/rand/v2"
)

// RandomBytes returns n random bytes, different ones in each call.
func RandomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = crand.Read(b) // never fails
	return b
}

// BytesOf returns n bytes that depend only on seed and n.
func BytesOf(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(b) // never fails
	return b
}
