//go:build conformance

package conformance

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"lukechampine.com/blake3"
	reference "lukechampine.com/blake3/bao"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestBao promises that a reader who has the BLAKE3 hash of an object verifies its bytes as they arrive from any node
// (acceptance rows 157 and 194). What verifies is another implementation than the one that encodes.
func TestBao(t *testing.T) {
	t.Parallel() // a cluster of its own
	c := harness.Start(t, harness.Options{})
	o := newObjects(t, c, "bao@example.org")
	o.ok(200, "PUT", "/bao", nil)
	nodes := c.Live()
	writer, reader := nodes[0], nodes[len(nodes)-1]
	on := func(t *testing.T, n *harness.Node, status int, method, path string, body []byte, pairs ...string) reply {
		t.Helper()
		r := o.as(t).callOn(n, method, path, body, pairs...)
		if r.Status != status {
			t.Fatalf("%s %s: %d %s, want %d", method, path, r.Status, r.Body, status)
		}
		return r
	}
	said := func(t *testing.T, r reply, data []byte) {
		t.Helper()
		sum := blake3.Sum256(data)
		if got := r.Header.Get("x-holdfast-blake3"); got != hex.EncodeToString(sum[:]) {
			t.Errorf("x-holdfast-blake3 %q, want %x", got, sum)
		}
	}
	for _, size := range []int{0, 1, 1023, 1024, 1025, 1<<20 - 1, 1 << 20, 1<<20 + 1, 5<<20 + 77} {
		t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
			data := harness.RandomBytes(size)
			path := fmt.Sprintf("/bao/%d", size)
			said(t, on(t, writer, 200, "PUT", path, data), data)
			said(t, on(t, reader, 200, "HEAD", path, nil), data)
			said(t, on(t, reader, 200, "GET", path, nil), data)
			copied := on(t, reader, 200, "PUT", path+"-copy", nil, "x-amz-copy-source", path)
			said(t, copied, data)
			verifyBao(t, data, func(query string) reply { return on(t, reader, 200, "GET", path+query, nil) })
		})
	}
	// The parts go to all nodes, the last one first.
	for name, parts := range map[string][][]byte{
		"one part":    {harness.RandomBytes(12345)},
		"three parts": {harness.RandomBytes(5 << 20), harness.RandomBytes(5 << 20), harness.RandomBytes(1<<20 + 5)},
	} {
		t.Run(name, func(t *testing.T) {
			path := "/bao/" + strings.ReplaceAll(name, " ", "-")
			up := into[initiated](t, on(t, writer, 200, "POST", path+"?uploads", nil)).UploadId
			for i := len(parts) - 1; i >= 0; i-- {
				on(t, nodes[i%len(nodes)], 200, "PUT", fmt.Sprintf("%s?partNumber=%d&uploadId=%s", path, i+1, up), parts[i])
			}
			data := bytes.Join(parts, nil)
			on(t, writer, 200, "POST", path+"?uploadId="+up, harness.CompletionOf(parts...))
			said(t, on(t, reader, 200, "HEAD", path, nil), data)
			verifyBao(t, data, func(query string) reply { return on(t, reader, 200, "GET", path+query, nil) })
		})
	}
	t.Run("bad requests", func(t *testing.T) {
		o := o.as(t)
		o.ok(200, "PUT", "/bao/bad", []byte("hello"))
		for query, want := range map[string]string{
			"bao&start=0": "InvalidArgument", "bao&length=1": "InvalidArgument", "bao&start=0&length=0": "InvalidArgument",
			"bao&start=-1&length=1": "InvalidArgument", "bao&start=x&length=1": "InvalidArgument",
		} {
			o.refused(http.StatusBadRequest, want, "GET", "/bao/bad?"+query, nil)
		}
		o.refused(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "GET", "/bao/bad?bao&start=5&length=1", nil)
		o.refused(http.StatusNotFound, "NoSuchKey", "GET", "/bao/absent?bao", nil)
		o.with("").refused(http.StatusForbidden, "AccessDenied", "GET", "/bao/bad?bao", nil)
	})
}

// verifyBao asks for encodings of an object and verifies data, and nothing else, by
// them.
func verifyBao(t *testing.T, data []byte, get func(query string) reply) {
	t.Helper()
	sum := blake3.Sum256(data)
	outboard := get("?bao").Body
	if !reference.VerifyBuf(data, outboard, 0, sum) {
		t.Error("the outboard encoding does not verify the object")
	}
	if len(data) == 0 {
		return
	}
	other := bytes.Clone(data)
	other[len(other)/2] ^= 1
	if reference.VerifyBuf(other, outboard, 0, sum) {
		t.Error("the outboard encoding verifies other bytes")
	}
	n := uint64(len(data))
	for _, s := range []struct{ start, count uint64 }{{0, n}, {0, 1}, {n - 1, 1}, {n / 2, (n + 1) / 2}, {n / 3, min(1000, n-n/3)}} {
		slice := get(fmt.Sprintf("?bao&start=%d&length=%d", s.start, s.count)).Body
		var plain bytes.Buffer
		ok, err := reference.DecodeSlice(&plain, bytes.NewReader(slice), 0, s.start, s.count, sum)
		if err != nil || !ok || !bytes.Equal(plain.Bytes(), data[s.start:s.start+s.count]) {
			t.Errorf("slice of %d bytes behind %d of %d: %t, %v", s.count, s.start, n, ok, err)
		}
		slice[len(slice)-1] ^= 1
		if ok, err := reference.DecodeSlice(new(bytes.Buffer), bytes.NewReader(slice), 0, s.start, s.count, sum); ok && err == nil {
			t.Errorf("slice of %d bytes behind %d of %d: verified with a bit that has changed", s.count, s.start, n)
		}
	}
}
