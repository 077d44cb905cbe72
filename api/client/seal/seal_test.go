package seal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"lukechampine.com/blake3"
)

// testCost is the least work that a reader accepts.
func testCost() Cost { return Cost{Time: 1, Memory: minMemory, Threads: 1} }

// count returns the 32 bytes 00 to 1f.
func count() (b [32]byte) {
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func generate(t testing.TB) *Identity {
	t.Helper()
	id, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// bytesOf returns n bytes that look random, the same for the same n.
func bytesOf(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8(sha256.Sum256([]byte("plaintext"))).Read(b)
	return b
}

func want(t testing.TB, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("error is %v, want %v", got, want)
	}
}

func object(n int) Object {
	return Object{
		StorageKey: "e/0123", Path: "/photos/vacation/beach.jpg", ContentType: "image/jpeg",
		Created: time.Unix(1_700_000_000, 0).UTC(), Modified: time.Unix(1_700_000_001, 0).UTC(),
		User: map[string]string{"camera": "Ω"}, Digest: &Digest{int64(n), blake3.Sum256(bytesOf(n))},
	}
}

// encrypt returns the ciphertext and header of n bytes.
func encrypt(t testing.TB, id *Identity, n int) ([]byte, Header) {
	t.Helper()
	ciphertext, h, err := Encrypt(id.PublicKey(), object(n), bytesOf(n))
	if err != nil {
		t.Fatal(err)
	}
	return ciphertext, h
}

func open(t testing.TB, with Opener, h Header) *Content {
	t.Helper()
	c, err := Open(with, h, "e/0123", Options{Path: "/photos/vacation/beach.jpg"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// memory is a Store in memory that can delete.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	reads   int
}

func newMemory() *memory { return &memory{objects: map[string][]byte{}} }

func etagOf(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func (m *memory) Get(_ context.Context, key string) ([]byte, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	data, ok := m.objects[key]
	if !ok {
		return nil, "", ErrNotFound
	}
	return data, etagOf(data), nil
}

func (m *memory) PutIf(_ context.Context, key string, data []byte, etag string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, ok := m.objects[key]
	if ok != (etag != "") || ok && etagOf(old) != etag {
		return ErrConflict
	}
	m.objects[key] = bytes.Clone(data)
	return nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}

// slowly returns r so that each Read gives at most n bytes.
func slowly(r io.Reader, n int) io.Reader { return &slow{r, n} }

type slow struct {
	r io.Reader
	n int
}

func (s *slow) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }
