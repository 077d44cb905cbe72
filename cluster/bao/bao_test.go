package bao

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"lukechampine.com/blake3"
	reference "lukechampine.com/blake3/bao"
)

// counting returns the input of the vectors of the Bao project: 32 bit numbers from 1.
func counting(n int) []byte {
	b := make([]byte, 0, n+4)
	for i := uint32(1); len(b) < n; i++ {
		b = binary.LittleEndian.AppendUint32(b, i)
	}
	return b[:n]
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(b)
	return b
}

// sizes are those around which a tree changes its form.
var sizes = []int{
	0, 1, 63, 64, 65, 1023, 1024, 1025, 2047, 2048, 2049, 3072, 3073, 8192, 16383, 16384, 16385, 17408, 32768, 32769, 48 << 10,
	1<<20 - 1, 1 << 20, 1<<20 + 1, 2 << 20, 4 << 20, 4<<20 + 1025,
}

func encoded(t testing.TB, e *Encoding) []byte {
	t.Helper()
	var out bytes.Buffer
	n, err := e.WriteTo(&out)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(out.Len()) || e.Size() != n {
		t.Fatalf("an encoding of %d bytes says %d, and %d were written", out.Len(), e.Size(), n)
	}
	return out.Bytes()
}

func indexOf(t testing.TB, data []byte, most int) *Index {
	t.Helper()
	x, err := newIndex(iotest.HalfReader(bytes.NewReader(data)), uint64(len(data)), most)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// The hash, the outboard encoding and slices of the test contents are those of the Bao project. The vectors are a
// choice of tests/test_vectors.json of github.com/oconnor663/bao.
func TestVectorsOfTheBaoProject(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "vectors.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		f := strings.Split(line, "\t")
		number := func(i int) uint64 {
			n, err := strconv.ParseUint(f[i], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		data := counting(int(number(1)))
		x := indexOf(t, data, maxSpans)
		sum := x.Sum()
		switch f[0] {
		case "outboard":
			sum = blake3.Sum256(encoded(t, x.Outboard(bytes.NewReader(data))))
		case "slice":
			sum = blake3.Sum256(encoded(t, x.Slice(bytes.NewReader(data), number(3), number(4))))
		}
		if got := hex.EncodeToString(sum[:]); got != f[2] {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// The hasher and the index compute the hashes of all 35 test vectors of BLAKE3. testdata/blake3.tsv has the length
// and the hash of each case of test_vectors.json of github.com/BLAKE3-team/BLAKE3.
func TestVectorsOfBLAKE3(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "blake3.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for line := range strings.Lines(string(text)) {
		cases++
		f := strings.Fields(line)
		n, err := strconv.Atoi(f[0])
		if err != nil {
			t.Fatal(err)
		}
		input := make([]byte, n)
		for i := range input {
			input[i] = byte(i % 251)
		}
		h := NewHasher(0)
		if _, err := h.Write(input); err != nil {
			t.Fatal(err)
		}
		for _, sum := range [][HashSize]byte{h.Sum(), indexOf(t, input, maxSpans).Sum()} {
			if got := hex.EncodeToString(sum[:]); got != f[1] {
				t.Errorf("%d bytes: %s, want %s", n, got, f[1])
			}
		}
	}
	if cases != 35 {
		t.Errorf("there are %d cases", cases)
	}
}

// The hasher of a small object takes a used buffer, and what was left in the buffer changes no hash.
func TestBuffersOfHashersAreUsedAgain(t *testing.T) {
	const rounds = 100
	var buffers Buffers
	sum := func(data []byte) [HashSize]byte {
		h := buffers.NewHasher(0)
		if _, err := h.Write(data); err != nil {
			t.Fatal(err)
		}
		return h.Sum()
	}
	longest := random(batch - 1)
	var contents [rounds][]byte
	var want [rounds][HashSize]byte
	for n := range rounds {
		contents[n] = random(n * 163)
		want[n] = blake3.Sum256(contents[n])
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for n, data := range contents {
		sum(longest)
		if got := sum(data); got != want[n] {
			t.Errorf("%d bytes: %x, want %x", len(data), got, want[n])
		}
	}
	runtime.ReadMemStats(&after)
	// The race detector has a pool drop a quarter of what it is given.
	if took := after.TotalAlloc - before.TotalAlloc; took > rounds*batch {
		t.Errorf("%d hashers took %d bytes", 2*rounds, took)
	}
}

// The hasher and the index compute the BLAKE3 hash at every size, in whatever pieces the content is written.
func TestHashes(t *testing.T) {
	for _, n := range sizes {
		data := random(n)
		want := blake3.Sum256(data)
		for _, step := range []int{1 << 30, 1<<20 + 3, 16 << 10, 1024, 777} {
			h := NewHasher(0)
			for rest := data; len(rest) > 0; rest = rest[min(step, len(rest)):] {
				if _, err := h.Write(rest[:min(step, len(rest))]); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second time nothing is left to hash
				if got := h.Sum(); got != want {
					t.Errorf("%d bytes, %d at once: %x, want %x", n, step, got, want)
				}
			}
		}
		if got := indexOf(t, data, maxSpans).Sum(); got != want {
			t.Errorf("index of %d bytes: %x, want %x", n, got, want)
		}
	}
}

// pieces cuts data at multiples of Chunk.
func pieces(data []byte, cuts []int) (all []Piece) {
	at := 0
	for _, end := range append(cuts, len(data)) {
		h := NewHasher(uint64(at))
		_, _ = h.Write(data[at:end])
		all = append(all, Piece{uint64(at), uint64(end - at), h.Trees()})
		at = end
	}
	return all
}

// Join computes the BLAKE3 hash of content from its pieces, wherever between chunks it is cut, and a piece has at
// most MaxTrees subtrees.
func TestPiecesMakeTheHashOfTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	check := func(n int, cuts []int) {
		t.Helper()
		data := random(n)
		all := pieces(data, cuts)
		for _, p := range all {
			if len(p.Trees) > MaxTrees*HashSize {
				t.Errorf("%d bytes at %d: %d subtrees", p.Size, p.At, len(p.Trees)/HashSize)
			}
		}
		got, ok := Join(all)
		if want := blake3.Sum256(data); !ok || got != want {
			t.Errorf("%d bytes cut at %v: %x %t, want %x", n, cuts, got, ok, want)
		}
	}
	check(2048, []int{1024})
	check(1025, []int{1024})
	check(4096, []int{1024, 3072})
	check(4096, []int{3072})
	check(4<<20, []int{3 << 20})
	check(6<<20+5, []int{5 << 19, 5 << 20})
	check(4<<20, []int{1 << 20, 2 << 20, 3 << 20})
	check(6<<20, []int{3 << 20, 6 << 20}) // an empty one at the end
	for range 100 {
		chunks := 2 + r.IntN(100)
		var cuts []int
		for at := 1 + r.IntN(chunks-1); at < chunks; at += 1 + r.IntN(chunks) {
			cuts = append(cuts, at*Chunk)
		}
		check(chunks*Chunk-r.IntN(Chunk), cuts)
	}
}

// Join returns no hash if pieces are missing, out of place or not cut between chunks, or have a wrong number of
// subtrees.
func TestPiecesOfWhichTooLittleIsKnown(t *testing.T) {
	data := random(10 << 10)
	good := func() []Piece { return pieces(data, []int{4 << 10, 7 << 10}) }
	if _, ok := Join(good()); !ok {
		t.Fatal("the pieces are not good")
	}
	for name, change := range map[string]func(all []Piece) []Piece{
		"none":           func([]Piece) []Piece { return nil },
		"one subtree":    func(all []Piece) []Piece { return all[:1] },
		"elsewhere":      func(all []Piece) []Piece { all[1].At = 5 << 10; return all },
		"not the first":  func(all []Piece) []Piece { return all[1:] },
		"a gap":          func(all []Piece) []Piece { return append(all[:1], all[2]) },
		"inside a chunk": func(all []Piece) []Piece { all[0].Size--; all[1].At--; return all },
		"unknown":        func(all []Piece) []Piece { all[2].Trees = nil; return all },
		"a value less":   func(all []Piece) []Piece { all[2].Trees = all[2].Trees[:HashSize]; return all },
		"half a value":   func(all []Piece) []Piece { all[2].Trees = all[2].Trees[:HashSize/2]; return all },
		"a value too many": func(all []Piece) []Piece {
			all[2].Trees = append(all[2].Trees, make([]byte, HashSize)...)
			return all
		},
	} {
		if sum, ok := Join(change(good())); ok {
			t.Errorf("%s: %x", name, sum)
		}
	}
}

// Outboard encodings and slices are those of the reference implementation, also if the index has only two values.
func TestEncodings(t *testing.T) {
	for _, n := range sizes {
		data := random(n)
		want, _ := reference.EncodeBuf(data, 0, true)
		combined := combinedOf(data)
		for _, most := range []int{maxSpans, 2} {
			x := indexOf(t, data, most)
			if got := encoded(t, x.Outboard(bytes.NewReader(data))); !bytes.Equal(got, want) {
				t.Errorf("outboard of %d bytes, %d values", n, most)
			}
			if got := encoded(t, x.Slice(bytes.NewReader(data), 0, uint64(n))); n > 0 && !bytes.Equal(got, combined) {
				t.Errorf("slice that is all of %d bytes, %d values", n, most)
			}
			r := rand.New(rand.NewPCG(3, 4))
			for range 3 {
				if n == 0 {
					break
				}
				start := uint64(r.IntN(n))
				checkSlice(t, x, data, combined, start, 1+uint64(r.IntN(n-int(start))))
			}
		}
	}
}

func combinedOf(data []byte) []byte {
	combined, _ := reference.EncodeBuf(data, 0, false)
	return combined
}

func checkSlice(t *testing.T, x *Index, data, combined []byte, start, count uint64) {
	t.Helper()
	got := encoded(t, x.Slice(bytes.NewReader(data), start, count))
	var plain bytes.Buffer
	ok, err := reference.DecodeSlice(&plain, bytes.NewReader(got), 0, start, count, x.Sum())
	if err != nil || !ok || !bytes.Equal(plain.Bytes(), data[start:start+count]) {
		t.Errorf("slice of %d bytes behind %d of %d: %t, %v", count, start, len(data), ok, err)
	}
	var want bytes.Buffer
	if err := reference.ExtractSlice(&want, bytes.NewReader(combined), nil, 0, start, count); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("slice of %d bytes behind %d of %d is another one: %v", count, start, len(data), err)
	}
}

// Every slice of small content that begins and ends near the end of a chunk is that of the reference implementation.
func TestAllSlicesOfSmallContent(t *testing.T) {
	for _, n := range []int{1, 2, 1024, 1025, 3 * 1024, 5*1024 - 1} {
		data := random(n)
		x, combined := indexOf(t, data, maxSpans), combinedOf(data)
		var near []uint64 // to where a chunk ends
		for at := 0; at <= n; at++ {
			if m := at % Chunk; m < 2 || m == Chunk-1 || at == n {
				near = append(near, uint64(at))
			}
		}
		for i, start := range near {
			for _, end := range near[i+1:] {
				checkSlice(t, x, data, combined, start, end-start)
			}
		}
	}
}

// A slice that starts at the end of the content or behind it is the slice of its last byte.
func TestASliceBehindTheContentIsOfItsLastByte(t *testing.T) {
	for _, n := range []int{1, Chunk, Chunk + 1, 3 * Chunk} {
		data := random(n)
		x, size := indexOf(t, data, maxSpans), uint64(n)
		slice := func(start uint64) []byte { return encoded(t, x.Slice(bytes.NewReader(data), start, 1)) }
		for _, start := range []uint64{size, size + 1, math.MaxUint64} {
			if !bytes.Equal(slice(start), slice(size-1)) {
				t.Errorf("%d bytes from %d on: not the slice of the last byte", n, start)
			}
		}
	}
}

// A slice reads no more of the content than the groups that it has bytes of.
func TestASliceReadsWhatItNeeds(t *testing.T) {
	data := random(8<<20 + 5)
	x := indexOf(t, data, maxSpans)
	for _, tc := range []struct{ start, count, most uint64 }{
		{0, 1, 1 << 20}, {8 << 20, 5, 5}, {3<<20 - 1, 2, 2 << 20}, {5 << 20, 2 << 20, 2 << 20},
	} {
		c := &counter{Reader: bytes.NewReader(data)}
		if _, err := x.Slice(c, tc.start, tc.count).WriteTo(io.Discard); err != nil || c.read > tc.most {
			t.Errorf("%+v: read %d bytes, %v", tc, c.read, err)
		}
	}
}

type counter struct {
	*bytes.Reader
	read uint64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += uint64(n)
	return n, err
}

// An index has at most the number of values that it was given, by longer spans, and its weight is bounded with them.
func TestAnIndexStaysSmall(t *testing.T) {
	x, err := newIndex(&zeros{}, 70<<20, 16)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.cvs) > 16 || x.span != 8<<20 || x.Weight() > 512+32*32 {
		t.Errorf("%d values of %d bytes each, %d bytes", len(x.cvs), x.span, x.Weight())
	}
}

type zeros struct{}

func (*zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Memory returns what an encoding holds with an error of at most 25 % and, above, one batch.
func TestMemorySaysWhatAnEncodingHolds(t *testing.T) {
	for _, size := range append(sizes, 40<<20) {
		data := random(size)
		x := indexOf(t, data, maxSpans)
		for slice, e := range map[bool]*Encoding{
			false: x.Outboard(bytes.NewReader(data)), true: x.Slice(bytes.NewReader(data), 0, uint64(size)),
		} {
			if _, err := e.WriteTo(io.Discard); err != nil {
				t.Fatal(err)
			}
			used := int64(cap(e.buf) + cap(e.out) + HashSize*cap(x.cvs))
			if says := Memory(uint64(size), slice); used > says+says/4 || says > used+used/4+batch {
				t.Errorf("of %d bytes, a slice %t: it holds %d, and says %d", size, slice, used, says)
			}
		}
	}
}

// An encoding of content that differs from what was hashed fails with ErrChanged, and of content that ends early with
// io.ErrUnexpectedEOF.
func TestContentThatIsNotWhatWasHashed(t *testing.T) {
	data := random(5 << 20)
	for _, most := range []int{maxSpans, 2} {
		x := indexOf(t, data, most)
		for _, at := range []int{0, 1<<20 - 1, 1 << 20, 5<<20 - 1} {
			other := bytes.Clone(data)
			other[at] ^= 1
			for name, e := range map[string]*Encoding{
				"outboard": x.Outboard(bytes.NewReader(other)), "slice": x.Slice(bytes.NewReader(other), uint64(at), 1),
			} {
				if _, err := e.WriteTo(io.Discard); !errors.Is(err, ErrChanged) {
					t.Errorf("%s, byte %d, %d values: %v", name, at, most, err)
				}
			}
		}
		short := x.Outboard(bytes.NewReader(data[:len(data)-1]))
		if _, err := short.WriteTo(io.Discard); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("content that ends early, %d values: %v", most, err)
		}
	}
	if _, err := NewIndex(bytes.NewReader(data), uint64(len(data))+1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("index of content that ends early: %v", err)
	}
}

// WriteTo returns the error of its writer and the number of bytes written, and an encoding can be written twice.
func TestErrorsOfWhoTakesAnEncoding(t *testing.T) {
	data := random(3<<20 + 1)
	x := indexOf(t, data, maxSpans)
	full := encoded(t, x.Outboard(bytes.NewReader(data)))
	gone := errors.New("gone")
	for _, room := range []int{0, 8, 72, 100, len(full) - 1} {
		w := &narrow{left: room, err: gone}
		if n, err := x.Outboard(bytes.NewReader(data)).WriteTo(w); !errors.Is(err, gone) || n != int64(room) {
			t.Errorf("room for %d bytes: %d, %v", room, n, err)
		}
	}
	e := x.Outboard(bytes.NewReader(data)) // and it can be written again
	if a, b := encoded(t, e), encoded(t, e); !bytes.Equal(a, b) {
		t.Error("the second time it is another one")
	}
}

type narrow struct {
	left int
	err  error
}

func (n *narrow) Write(p []byte) (int, error) {
	k := min(len(p), n.left)
	if n.left -= k; k < len(p) {
		return k, n.err
	}
	return k, nil
}

func FuzzSlices(f *testing.F) {
	f.Add(5000, uint64(1000), uint64(2000))
	f.Add(0, uint64(0), uint64(0))
	f.Add(1<<20+1, uint64(1<<20), uint64(1)<<63)
	f.Fuzz(func(t *testing.T, n int, start, count uint64) {
		if n < 0 || n > 3<<20 {
			t.Skip()
		}
		data := counting(n)
		x := indexOf(t, data, 2)
		got := encoded(t, x.Slice(bytes.NewReader(data), start, count))
		if start >= uint64(n) || count == 0 || start+count < start {
			return // the other implementation has no such slices
		}
		count = min(count, uint64(n)-start)
		var plain bytes.Buffer
		ok, err := reference.DecodeSlice(&plain, bytes.NewReader(got), 0, start, count, x.Sum())
		if err != nil || !ok || !bytes.Equal(plain.Bytes(), data[start:start+count]) {
			t.Errorf("slice of %d bytes behind %d of %d: %t, %v", count, start, n, ok, err)
		}
	})
}

func BenchmarkHasher(b *testing.B) {
	data := random(8 << 20)
	for _, step := range []int{32 << 10, 256 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%d KiB", step>>10), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				h := NewHasher(0)
				for rest := data; len(rest) > 0; rest = rest[step:] {
					_, _ = h.Write(rest[:step])
				}
				h.Sum()
			}
		})
	}
}

// BenchmarkOther is the same by the other implementation, which uses all processors.
func BenchmarkOther(b *testing.B) {
	data := random(8 << 20)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		h := blake3.New(HashSize, nil)
		for rest := data; len(rest) > 0; rest = rest[256<<10:] {
			_, _ = h.Write(rest[:256<<10])
		}
		h.Sum(nil)
	}
}

func BenchmarkOutboard(b *testing.B) {
	data := random(8 << 20)
	x := indexOf(b, data, maxSpans)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := x.Outboard(bytes.NewReader(data)).WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
