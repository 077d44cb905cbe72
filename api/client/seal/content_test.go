package seal

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"testing/iotest"
)

// sizes are around the borders of chunks.
func sizes() []int {
	return []int{0, 1, 15, 16, 17, 1000, ChunkSize - 1, ChunkSize, ChunkSize + 1, 2 * ChunkSize, 2*ChunkSize + 1, 5*ChunkSize + 77}
}

// TestContentComesBack promises that content of any size, known or not, comes back with its
// metadata, in the sizes that were announced.
func TestContentComesBack(t *testing.T) {
	id := generate(t)
	for _, stream := range []bool{false, true} {
		for _, n := range sizes() {
			t.Run(fmt.Sprintf("%d stream %v", n, stream), func(t *testing.T) {
				o := object(n)
				if stream {
					o.Digest = nil
				}
				e, err := New(id.PublicKey(), o)
				if err != nil {
					t.Fatal(err)
				}
				ciphertext, err := io.ReadAll(iotest.HalfReader(e.Reader(slowly(bytes.NewReader(bytesOf(n)), 40_000))))
				if err != nil {
					t.Fatal(err)
				}
				h, err := e.Header()
				if err != nil {
					t.Fatal(err)
				}
				c := open(t, id, h)
				if size, ok := c.Size(); !ok || size != int64(len(ciphertext)) {
					t.Errorf("size is %d, want %d", size, len(ciphertext))
				}
				if size, ok := e.Size(); !ok || size != int64(len(ciphertext)) {
					t.Errorf("announced size is %d, want %d", size, len(ciphertext))
				}
				plain, err := io.ReadAll(c.Reader(slowly(bytes.NewReader(ciphertext), 50_000)))
				if err != nil || !bytes.Equal(plain, bytesOf(n)) {
					t.Fatalf("plaintext of %d bytes, want %d: %v", len(plain), n, err)
				}
				m, wanted := c.Metadata(), object(n)
				if m.Path != wanted.Path || m.ContentType != wanted.ContentType || !m.Created.Equal(wanted.Created) ||
					!m.Modified.Equal(wanted.Modified) || m.User["camera"] != "Ω" || m.Size != int64(n) || m.Hash != wanted.Digest.Hash {
					t.Errorf("metadata is %+v", m)
				}
			})
		}
	}
}

// TestRangesComeBack promises that each range of chunked content comes back from the part of the ciphertext that
// Range names.
func TestRangesComeBack(t *testing.T) {
	id := generate(t)
	for _, n := range []int{100, 3*ChunkSize + 5} {
		ciphertext, h := encrypt(t, id, n)
		c := open(t, id, h)
		for _, offset := range []int{0, 1, ChunkSize - 1, ChunkSize, ChunkSize + 1, n - 1} {
			for _, length := range []int{1, 2, ChunkSize, ChunkSize + 1, n - offset} {
				if offset < 0 || offset+length > n || length < 1 {
					_, _, err := c.Range(int64(offset), int64(length))
					want(t, err, ErrRange)
					continue
				}
				start, size, err := c.Range(int64(offset), int64(length))
				if err != nil {
					t.Fatal(err)
				}
				if c.Chunked() && size > int64(length+2*ChunkSize+3*ChunkOverhead) {
					t.Errorf("%d bytes at %d need %d of ciphertext", length, offset, size)
				}
				r, err := c.RangeReader(bytes.NewReader(ciphertext[start:start+size]), int64(offset), int64(length))
				if err != nil {
					t.Fatal(err)
				}
				plain, err := io.ReadAll(r)
				if err != nil || !bytes.Equal(plain, bytesOf(n)[offset:offset+length]) {
					t.Errorf("range %d+%d of %d: %d bytes, %v", offset, length, n, len(plain), err)
				}
			}
		}
	}
}

// TestResumedUpload promises that chunks that are encrypted after a restart continue those before, that chunks
// behind the end are ErrRange, and that a source that is too short is ErrSourceChanged.
func TestResumedUpload(t *testing.T) {
	const n = 4*ChunkSize + 9
	id := generate(t)
	e, err := New(id.PublicKey(), object(n))
	if err != nil {
		t.Fatal(err)
	}
	h, err := e.Header()
	if err != nil {
		t.Fatal(err)
	}
	first, err := e.ReaderFrom(bytes.NewReader(bytesOf(n)), 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	ciphertext, err := io.ReadAll(first)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Resume(id, h, "e/0123")
	if err != nil {
		t.Fatal(err)
	}
	rest, err := again.ReaderFrom(bytes.NewReader(bytesOf(n)[2*ChunkSize:]), 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	tail, err := io.ReadAll(rest)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(open(t, id, h).Reader(io.MultiReader(bytes.NewReader(ciphertext), bytes.NewReader(tail))))
	if err != nil || !bytes.Equal(plain, bytesOf(n)) {
		t.Fatalf("%d bytes: %v", len(plain), err)
	}
	_, err = again.ReaderFrom(nil, 6, 0)
	want(t, err, ErrRange)
	short, err := again.ReaderFrom(bytes.NewReader(bytesOf(n)[:ChunkSize+5]), 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(short)
	want(t, err, ErrSourceChanged)
}

// TestChangedSource promises that an upload fails whose file is not what the digest says, before
// its last chunk is out.
func TestChangedSource(t *testing.T) {
	id := generate(t)
	for _, n := range []int{100, 2*ChunkSize + 5} {
		other := bytesOf(n)
		other[n/2] ^= 1
		for name, src := range map[string][]byte{"other": other, "shorter": bytesOf(n)[:n-1], "longer": append(bytesOf(n), 0)} {
			e, err := New(id.PublicKey(), object(n))
			if err != nil {
				t.Fatal(err)
			}
			ciphertext, err := io.ReadAll(e.Reader(bytes.NewReader(src)))
			want(t, err, ErrSourceChanged)
			if whole, _ := e.Size(); int64(len(ciphertext)) >= whole {
				t.Errorf("%s: all of the ciphertext is out", name)
			}
		}
	}
}

// TestStreamHasNoHeaderBeforeItsEnd promises that a stream has no header before its last byte is read, and none
// after its source has failed.
func TestStreamHasNoHeaderBeforeItsEnd(t *testing.T) {
	o := object(0)
	o.Digest = nil
	e, err := New(generate(t).PublicKey(), o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Header()
	want(t, err, ErrUnfinished)
	_, err = e.ReaderFrom(nil, 0, 0)
	want(t, err, ErrUnfinished)
	_, err = io.ReadAll(e.Reader(iotest.ErrReader(io.ErrClosedPipe)))
	want(t, err, io.ErrClosedPipe)
	_, err = e.Header()
	want(t, err, ErrUnfinished)
}

// TestDamagedContent promises that chunks that are left out, cut off, swapped, repeated, added or
// taken from elsewhere are refused, each with its own error, and that nothing of them is handed on.
func TestDamagedContent(t *testing.T) {
	const n, record = 4*ChunkSize + 10, ChunkSize + ChunkOverhead
	id := generate(t)
	ciphertext, h := encrypt(t, id, n)
	other, _ := encrypt(t, id, n)
	c := open(t, id, h)
	part := func(b []byte, from, to int) []byte { return b[from*record : min(to*record, len(b))] }
	for _, tc := range []struct {
		name string
		data []byte
		want error
		good int // chunks that may be handed on
	}{
		{"nothing", nil, ErrTruncated, 0},
		{"last chunk missing", part(ciphertext, 0, 4), ErrTruncated, 4},
		{"last byte missing", ciphertext[:len(ciphertext)-1], ErrTruncated, 4},
		{"swapped", bytes.Join([][]byte{part(ciphertext, 0, 1), part(ciphertext, 2, 3), part(ciphertext, 1, 2), part(ciphertext, 3, 5)}, nil), ErrChunkMoved, 1},
		{"left out", bytes.Join([][]byte{part(ciphertext, 0, 1), part(ciphertext, 2, 5)}, nil), ErrChunkMoved, 1},
		{"repeated", bytes.Join([][]byte{part(ciphertext, 0, 2), part(ciphertext, 1, 2), part(ciphertext, 3, 5)}, nil), ErrChunkRepeated, 2},
		{"of another object", bytes.Join([][]byte{part(ciphertext, 0, 1), part(other, 1, 2), part(ciphertext, 2, 5)}, nil), ErrChunk, 1},
		{"continued", append(bytes.Clone(ciphertext), 0), ErrTrailing, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plain, err := io.ReadAll(c.Reader(bytes.NewReader(tc.data)))
			want(t, err, tc.want)
			if len(plain) > tc.good*ChunkSize || !bytes.HasPrefix(bytesOf(n), plain) {
				t.Errorf("%d bytes were handed on", len(plain))
			}
		})
	}
	start, size, err := c.Range(ChunkSize, 2*ChunkSize)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		data []byte
		want error
	}{
		{"range cut off", ciphertext[start : start+size-1], ErrTruncated},
		{"range continued", ciphertext[start : start+size+1], ErrTrailing},
		{"range of another place", ciphertext[:size], ErrChunkMoved},
	} {
		r, err := c.RangeReader(bytes.NewReader(tc.data), ChunkSize, 2*ChunkSize)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(r)
		want(t, err, tc.want)
	}
	moved, err := Open(id, h, "e/other", Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(moved.Reader(bytes.NewReader(ciphertext)))
	want(t, err, ErrChunk)
	_, err = Open(id, h, "e/0123", Options{Path: "/photos/other.jpg"})
	want(t, err, ErrWrongObject)
}

// TestWrongHash promises that authentic chunks of another plaintext end with ErrHash, before the last bytes are
// handed on.
func TestWrongHash(t *testing.T) {
	id := generate(t)
	for _, n := range []int{100, ChunkSize + 100} {
		ciphertext, h := encrypt(t, id, n)
		c := open(t, id, h)
		c.m.Hash[0] ^= 1
		plain, err := io.ReadAll(c.Reader(bytes.NewReader(ciphertext)))
		want(t, err, ErrHash)
		if len(plain) > n-100 {
			t.Errorf("the last of %d bytes were handed on", n)
		}
	}
}

// TestVersionFourIsBoundToItsStorageKey promises that content in one piece of version 4 is bound to its storage key.
func TestVersionFourIsBoundToItsStorageKey(t *testing.T) {
	id := generate(t)
	o := object(100)
	o.Bound = true
	ciphertext, h, err := Encrypt(id.PublicKey(), o, bytesOf(100))
	if err != nil {
		t.Fatal(err)
	}
	if plain, _, err := Decrypt(id, h, o.StorageKey, o.Path, ciphertext); err != nil || !bytes.Equal(plain, bytesOf(100)) {
		t.Fatal(err)
	}
	_, _, err = Decrypt(id, h, "e/other", o.Path, ciphertext)
	want(t, err, ErrContent)
}

// TestOnePieceIsEncryptedOnce promises that a part of content in one piece is refused if the file has
// changed: its nonce is fixed, and must not encrypt two plaintexts.
func TestOnePieceIsEncryptedOnce(t *testing.T) {
	id := generate(t)
	e, err := New(id.PublicKey(), object(100))
	if err != nil {
		t.Fatal(err)
	}
	read := func(src []byte) ([]byte, error) {
		r, err := e.ReaderFrom(bytes.NewReader(src), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return io.ReadAll(r)
	}
	first, err := read(bytesOf(100))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := read(bytesOf(100)); err != nil || !bytes.Equal(first, again) {
		t.Errorf("the same plaintext is encrypted otherwise: %v", err)
	}
	other := bytesOf(100)
	other[50] ^= 1
	out, err := read(other)
	want(t, err, ErrSourceChanged)
	if len(out) > 0 {
		t.Errorf("%d bytes of ciphertext are out", len(out))
	}
}

// TestChunksNeedTheirHeader promises that chunks under a header of content in one piece are refused.
func TestChunksNeedTheirHeader(t *testing.T) {
	id := generate(t)
	_, h := encrypt(t, id, ChunkSize+1)
	for name, change := range map[string]func(h *header){
		"version": func(h *header) { h.Version = versionPlain },
		"nonce":   func(h *header) { h.Nonce = bytesOf(nonceSize) },
	} {
		parsed, err := parseHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		change(parsed)
		altered, err := parsed.encode()
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(id, altered, "e/0123", Options{})
		t.Run(name, func(t *testing.T) { want(t, err, ErrHeader) })
	}
}

// TestWholeContentHasABound promises that content in one piece that is too large for memory is
// refused before it is read, or while it is read if its size is not known.
func TestWholeContentHasABound(t *testing.T) {
	id := generate(t)
	ciphertext, h := encrypt(t, id, 100)
	_, err := Open(id, h, "e/0123", Options{MaxWhole: 99})
	want(t, err, ErrTooLarge)
	if _, err := Open(id, h, "e/0123", Options{MaxWhole: 100}); err != nil {
		t.Error(err)
	}
	parsed, err := parseHeader(h)
	if err != nil {
		t.Fatal(err)
	}
	parsed.Metadata = nil
	bare, err := parsed.encode()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(id, bare, "e/0123", Options{Bare: true, MaxWhole: 99})
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(c.Reader(bytes.NewReader(ciphertext)))
	want(t, err, ErrTooLarge)
	_, err = Open(id, bare, "e/0123", Options{Bare: true, Path: "/photos/vacation/beach.jpg"})
	want(t, err, ErrNoMetadata)
}
