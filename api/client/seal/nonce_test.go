package seal

import (
	"bytes"
	"io"
	"testing"
)

// TestNoncesDoNotRepeat promises that a million encryptions have a million nonces: of content in one
// piece, of chunks of one data key, of private metadata, of folder keys and of parts of an index.
func TestNoncesDoNotRepeat(t *testing.T) {
	const total = 1_000_000
	seen := make(map[[nonceSize]byte]struct{}, total)
	add := func(nonce []byte) {
		n := [nonceSize]byte(nonce)
		if _, twice := seen[n]; twice {
			t.Fatalf("nonce %x is there twice", n)
		}
		seen[n] = struct{}{}
	}
	id := generate(t)
	root, err := id.FolderKey("trip")
	if err != nil {
		t.Fatal(err)
	}
	store := newMemory()
	x := index(t, store)
	for range 500 {
		o := object(1)
		o.Folder = &root
		_, h, err := Encrypt(id.PublicKey(), o, bytesOf(1))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parseHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		add(parsed.Nonce)
		add(parsed.Metadata.Nonce)
		add(parsed.Folder.Nonce)
		if err := x.Put(t.Context(), entry(1)); err != nil {
			t.Fatal(err)
		}
		add(store.objects[x.storageKey(nodeRoot)][len(indexMagic):][:nonceSize])
	}
	// The chunks of one upload that is sent again and again, as small as they get.
	o := object(ChunkSize + 1)
	e, err := New(id.PublicKey(), o)
	if err != nil {
		t.Fatal(err)
	}
	src, record := bytes.NewReader(nil), make([]byte, 1+ChunkOverhead)
	last := bytesOf(ChunkSize + 1)[ChunkSize:]
	for len(seen) < total {
		src.Reset(last)
		r, err := e.ReaderFrom(src, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		r.(*encrypting).buf = make([]byte, nonceSize+1, nonceSize+1+tagSize) // else most of the time goes into clearing memory
		r.(*encrypting).aead = e.key.aead()
		if _, err := io.ReadFull(r, record); err != nil {
			t.Fatal(err)
		}
		add(record[:nonceSize])
	}
}
