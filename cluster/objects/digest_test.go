package objects

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/holdfast-ipfs/holdfast/cluster/bao"
	"go.uber.org/goleak"
)

// The digests of the string 123456789 are the published check values. They are from the CRC catalogue (reveng), FIPS
// 180-4, RFC 1321, xxhsum and b3sum.
func TestDigestsOfTheCheckString(t *testing.T) {
	d, err := newDigester(new(hashing), bytes.NewReader([]byte("123456789")), Algorithms(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, d); err != nil {
		t.Fatal(err)
	}
	s := d.sums()
	for name, want := range map[string]string{
		CRC32: "cbf43926", CRC32C: "e3069283", CRC64NVME: "ae8b14860a799888",
		SHA1:   "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
		SHA256: "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
		SHA512: "d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f1176d0c29169bc24e71c3f274ad27fcd5811b313d681f7e55ec02d73d499c95455b6b5bb503acf574fba8ffe85",
		MD5:    "25f9e794323b453885f5181f1b624d0b",
		// What xxhsum 0.8.1 says of it.
		XXHASH64: "8cb841db40e6ae83", XXHASH3: "72dcb18b67a17dff", XXHASH128: "33119477ede5dcd5e9716427681d5860",
	} {
		if got := hex.EncodeToString(s.By[name]); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	// What b3sum says of it.
	if got := hex.EncodeToString(d.Blake3()); got != "b7d65b48420d1033cb2595293263b6f72eabee20d55e699d0df1973b3c9deed1" {
		t.Error("BLAKE3:", got)
	}
	if got := hex.EncodeToString(s.MD5[:]); got != "25f9e794323b453885f5181f1b624d0b" {
		t.Error("MD5:", got)
	}
}

// The digests of a body are those of its bytes, whatever sizes its reads have and whatever its reader does with the
// bytes.
func TestDigestsDoNotDependOnHowItIsRead(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, hashBuffer - 1, hashBuffer, hashBuffer + 1, 5*hashBuffer + 17, 40 * hashBuffer} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		for name, read := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "half": iotest.HalfReader, "data with EOF": iotest.DataErrReader,
		} {
			d, err := newDigester(new(hashing), read(bytes.NewReader(data)), Algorithms(), 2048)
			if err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 1<<20)
			for {
				n, err := d.Read(buf)
				clear(buf[:n]) // the reader may do with its bytes what it likes
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			got := d.sums()
			if got.MD5 != md5.Sum(data) {
				t.Errorf("%d bytes, %s: another MD5", size, name)
			}
			tree := bao.NewHasher(2048)
			_, _ = tree.Write(data)
			if !bytes.Equal(d.trees(), tree.Trees()) || d.Blake3() != nil {
				t.Errorf("%d bytes, %s: another tree", size, name)
			}
			for _, a := range Algorithms() {
				h := NewHash(a)
				h.Write(data)
				if !bytes.Equal(got.By[a], h.Sum(nil)) {
					t.Errorf("%d bytes, %s: another %s", size, name, a)
				}
			}
		}
	}
}

// A digester whose body fails leaves no goroutine after its end, which may be called twice.
func TestABodyThatIsGivenUpLeavesNoGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t)
	d, err := newDigester(new(hashing), io.MultiReader(bytes.NewReader(make([]byte, 3*hashBuffer)), iotest.ErrReader(io.ErrUnexpectedEOF)), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, d); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	d.end()
	d.end()
}

// The checksum that is combined of those of the parts is the checksum of the whole for each CRC.
func TestCombinedChecksumsAreThoseOfTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var whole []byte
		var parts [][]byte
		for range 1 + r.IntN(6) {
			part := make([]byte, r.IntN(5000))
			for i := range part {
				part[i] = byte(r.Uint32())
			}
			parts = append(parts, part)
			whole = append(whole, part...)
		}
		for _, a := range []string{CRC32, CRC32C, CRC64NVME} {
			c := combined{algorithm: a}
			for _, part := range parts {
				h := NewHash(a)
				h.Write(part)
				if err := c.add(h.Sum(nil), uint64(len(part))); err != nil {
					t.Fatal(err)
				}
			}
			h := NewHash(a)
			h.Write(whole)
			if !bytes.Equal(c.bytes(), h.Sum(nil)) {
				t.Fatalf("%s of %d parts: %x, want %x", a, len(parts), c.bytes(), h.Sum(nil))
			}
		}
	}
	if err := (&combined{algorithm: CRC32}).add(make([]byte, 8), 1); err == nil {
		t.Error("took a checksum of another width")
	}
}

// BenchmarkDigester tells what the BLAKE3 tree and a checksum of a body cost beside its MD5.
func BenchmarkDigester(b *testing.B) {
	data := make([]byte, 8<<20)
	for name, with := range map[string]struct {
		at   uint64
		sums []string
	}{
		"with a tree":               {0, nil},
		"without":                   {unplaced, nil},
		"with a tree and CRC64NVME": {0, []string{CRC64NVME}},
	} {
		b.Run(name, func(b *testing.B) {
			at, sums := with.at, with.sums
			with := new(hashing)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				d, err := newDigester(with, bytes.NewReader(data), sums, at)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, d, make([]byte, 1<<20)); err != nil {
					b.Fatal(err)
				}
				d.end()
			}
		})
	}
}
