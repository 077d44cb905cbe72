package client

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lukechampine.com/blake3"
)

// randomBytes returns n bytes that are the same in each run.
func randomBytes(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	return data
}

// TestALyingNodeIsNamed promises that no wrong byte is handed on, and that the error names the
// node that sent it, for each way of a node to lie.
func TestALyingNodeIsNamed(t *testing.T) {
	data := randomBytes(3<<20 + 77)
	other := bytes.Clone(data)
	other[2<<20] ^= 1
	for name, lie := range map[string]struct {
		change func(slice []byte, r *http.Request) []byte
		reason string
	}{
		"wrong byte":     {func(s []byte, _ *http.Request) []byte { s[len(s)-5] ^= 1; return s }, reasonBytes},
		"wrong proof":    {func(s []byte, _ *http.Request) []byte { s[9] ^= 1; return s }, reasonBytes},
		"truncated":      {func(s []byte, _ *http.Request) []byte { return s[:len(s)/2] }, reasonTruncated},
		"no bytes":       {func([]byte, *http.Request) []byte { return nil }, reasonTruncated},
		"longer":         {func(s []byte, _ *http.Request) []byte { return append(s, 0) }, reasonLonger},
		"another length": {func(s []byte, _ *http.Request) []byte { s[0] ^= 1; return s }, reasonSize},
		"another object": {func(_ []byte, r *http.Request) []byte { return sliceOf(other, r.URL.Query()) }, reasonBytes},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			c.store("bucket/key", data)
			liar := c.nodes[1]
			liar.breaks(func(w http.ResponseWriter, r *http.Request) bool {
				if !r.URL.Query().Has("bao") {
					return false
				}
				_, _ = w.Write(lie.change(sliceOf(data, r.URL.Query()), r))
				return true
			})
			check := func(err error, got []byte, off int) {
				t.Helper()
				var wrong *VerifyError
				if !errors.As(err, &wrong) || wrong.Endpoint != liar.server.URL || wrong.Reason != lie.reason {
					t.Errorf("%v", err)
					return
				}
				if !strings.Contains(err.Error(), liar.server.URL) || !strings.Contains(err.Error(), "s3://bucket/key") {
					t.Errorf("%q", err)
				}
				if !bytes.Equal(got, data[off:off+len(got)]) || lie.reason != reasonLonger && len(got) >= len(data)-off {
					t.Errorf("%d bytes were handed on", len(got))
				}
			}
			var all, some bytes.Buffer
			client := c.client(func(o *Options) { o.Endpoints = o.Endpoints[:2] })
			_, err := client.Download(t.Context(), "bucket", "key", &all, DownloadOptions{Verify: true})
			check(err, all.Bytes(), 0)
			const from = 1<<20 + 5
			client = c.client()
			_, err = client.DownloadRange(t.Context(), "bucket", "key", from, 2<<20+72, &some, DownloadOptions{Verify: true})
			check(err, some.Bytes(), from)
			path := filepath.Join(t.TempDir(), "file")
			_, err = c.client().DownloadFile(t.Context(), "bucket", "key", path, DownloadOptions{Verify: true})
			check(err, nil, 0)
			if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestAClusterThatLiesIsFoundByTheHashOfTheCaller promises that another object with a proof of
// its own, of another size or none, does not pass for the one whose hash the caller has.
func TestAClusterThatLiesIsFoundByTheHashOfTheCaller(t *testing.T) {
	data := randomBytes(50_000)
	for name, other := range map[string][]byte{"same size": randomBytes(50_001)[1:], "empty": nil, "shorter": data[:1024], "longer": append(bytes.Clone(data), 1)} {
		c := newCluster(t, 1)
		c.store("bucket/key", data)
		head, err := c.client().Head(t.Context(), "bucket", "key")
		if err != nil {
			t.Fatal(err)
		}
		root, err := ParseHash(head.BLAKE3)
		if err != nil {
			t.Fatal(err)
		}
		c.store("bucket/key", other)
		var got bytes.Buffer
		var wrong *VerifyError
		if _, err := c.client().Download(t.Context(), "bucket", "key", &got, DownloadOptions{Verify: true, Hash: &root}); !errors.As(err, &wrong) || got.Len() > 0 {
			t.Errorf("%s: %v after %d bytes", name, err, got.Len())
		}
	}
}

// TestEveryRangeVerifies promises that a verified download of each range around the borders of chunks has its
// bytes, and so has one of an empty object.
func TestEveryRangeVerifies(t *testing.T) {
	c := newCluster(t, 1)
	client := c.client()
	for _, size := range []int{0, 1, 1023, 1024, 1025, 3000, 4096, 70_000} {
		data := randomBytes(size)
		c.store("bucket/key", data)
		for _, r := range [][2]int{{0, size}, {0, 1}, {size / 2, 1}, {size / 2, size}, {max(0, size-1), 1}, {1023, 2}, {1024, 1024}, {size, 5}} {
			from, n := min(r[0], size), r[1]
			var got bytes.Buffer
			_, err := client.DownloadRange(t.Context(), "bucket", "key", int64(from), int64(n), &got, DownloadOptions{Verify: true})
			if want := data[from:min(from+n, size)]; err != nil || !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%d bytes from %d on of %d: got %d, %v", n, from, size, got.Len(), err)
			}
		}
	}
}

// ParseHash takes exactly 64 hexadecimal digits.
func TestHashesAreParsedStrictly(t *testing.T) {
	for _, text := range []string{"", "00", strings.Repeat("0", 63), strings.Repeat("0", 66), strings.Repeat("x", 64)} {
		if _, err := ParseHash(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	if h, err := ParseHash(emptyHash.String()); err != nil || h != emptyHash {
		t.Errorf("%v, %v", h, err)
	}
}

// TestAHashThatIsComputedLaterVerifies promises that an object without a hash in HEAD is verified
// by the hash that a node computes for its Bao encoding.
func TestAHashThatIsComputedLaterVerifies(t *testing.T) {
	c := newCluster(t, 1)
	data := randomBytes(5000)
	c.store("bucket/key", data)
	c.nodes[0].breaks(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			c.objects["bucket/key"].header.Del("X-Holdfast-Blake3")
		} else {
			c.store("bucket/key", data)
		}
		return false
	})
	var got bytes.Buffer
	if _, err := c.client().Download(t.Context(), "bucket", "key", &got, DownloadOptions{Verify: true}); err != nil || !bytes.Equal(got.Bytes(), data) {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
}

// TestFlippedBitsOfASlice promises that each flipped bit of a Bao slice, in its length, its proof or its
// content, ends the transfer, and that no byte from the wrong KiB on is handed on.
func TestFlippedBitsOfASlice(t *testing.T) {
	data := randomBytes(1100) // two chunks and the node above them
	root := Hash(blake3.Sum256(data))
	for _, r := range [][2]int{{0, len(data)}, {1050, 20}} {
		off, n := r[0], r[1]
		slice := sliceOf(data, url.Values{"start": {strconv.Itoa(off)}, "length": {strconv.Itoa(n)}})
		for bit := range len(slice) * 8 {
			slice[bit/8] ^= 1 << (bit % 8)
			var out bytes.Buffer
			_, reason, err := decodeSlice(&out, bytes.NewReader(slice), int64(off), int64(n), int64(len(data)), root)
			if err != nil || reason != reasonBytes && (bit >= 64 || reason != reasonSize) || out.Len() >= n || !bytes.HasPrefix(data[off:off+n], out.Bytes()) {
				t.Errorf("bit %d of %d: %d bytes, %q, %v", bit, len(slice)*8, out.Len(), reason, err)
			}
			slice[bit/8] ^= 1 << (bit % 8)
		}
	}
}

// TestSlicesOfTheBaoProject promises that the slices of the Bao project's test vectors decode to their content,
// and that a changed byte at each place that the vectors name is found. The vectors are those within the content
// of tests/test_vectors.json of github.com/oconnor663/bao, in testdata/bao.tsv: size of the content, start and
// length of the slice, size and BLAKE3 of the slice, BLAKE3 of the content, and the places. The content is 32
// bit numbers from 1.
func TestSlicesOfTheBaoProject(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "bao.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		number := func(text string) int64 {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		size, start, length := number(f[0]), number(f[1]), number(f[2])
		data := make([]byte, 0, size+4)
		for i := uint32(1); int64(len(data)) < size; i++ {
			data = binary.LittleEndian.AppendUint32(data, i)
		}
		data = data[:size]
		slice := sliceOf(data, url.Values{"start": {f[1]}, "length": {f[2]}})
		if sum := blake3.Sum256(slice); int64(len(slice)) != number(f[3]) || hex.EncodeToString(sum[:]) != f[4] {
			t.Fatalf("%s: another slice", line)
		}
		root, err := ParseHash(f[5])
		if err != nil {
			t.Fatal(err)
		}
		want := data[min(start, size):min(start+length, size)]
		decode := func(slice []byte) (*bytes.Buffer, string) {
			var out bytes.Buffer
			_, reason, err := decodeSlice(&out, bytes.NewReader(slice), start, length, size, root)
			if err != nil {
				t.Fatal(err)
			}
			return &out, reason
		}
		if got, reason := decode(slice); reason != "" || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: %d bytes, %q", line, got.Len(), reason)
		}
		for place := range strings.SplitSeq(f[6], ",") {
			changed := bytes.Clone(slice)
			changed[number(place)] ^= 1
			if got, reason := decode(changed); reason == "" || !bytes.HasPrefix(want, got.Bytes()) {
				t.Errorf("%s: byte %s was changed: %d bytes, %q", line, place, got.Len(), reason)
			}
		}
	}
}
