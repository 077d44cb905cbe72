package s3

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"lukechampine.com/blake3"
	reference "lukechampine.com/blake3/bao"
)

// The Bao encoding of an object and its slices verify its bytes in the reference implementation.
func TestBaoEncodingsVerifyWhatTheyHold(t *testing.T) {
	w := newWorld(t)
	text := strings.Repeat("0123456789abcde", 4000)
	w.put(t, "/photos/k", text)
	sum := blake3.Sum256([]byte(text))
	get := func(query string) *httptest.ResponseRecorder {
		t.Helper()
		rec := w.must(t, 200, call{method: "GET", path: "/photos/k?bao" + query, token: w.reader.Token})
		h := rec.Header()
		if h.Get("Content-Length") != strconv.Itoa(rec.Body.Len()) || h.Get("X-Holdfast-Blake3") != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: %d bytes, %v", query, rec.Body.Len(), h)
		}
		return rec
	}
	if out := get("").Body.Bytes(); !reference.VerifyBuf([]byte(text), out, 0, sum) {
		t.Error("the outboard encoding does not verify the object")
	}
	n := len(text)
	for _, tc := range []struct{ start, length, count int }{
		{0, n, n}, {0, 1, 1}, {1023, 2, 2}, {n - 1, 1, 1}, {2048, 1024, 1024}, {n - 5, 1 << 40, 5}, {0, 1 << 62, n},
	} {
		out := get(fmt.Sprintf("&start=%d&length=%d", tc.start, tc.length)).Body
		var plain bytes.Buffer
		ok, err := reference.DecodeSlice(&plain, out, 0, uint64(tc.start), uint64(tc.count), sum)
		if err != nil || !ok || plain.String() != text[tc.start:tc.start+tc.count] || out.Len() != 0 {
			t.Errorf("%+v: %t, %v, %d bytes left", tc, ok, err, out.Len())
		}
	}
	w.put(t, "/photos/empty", "")
	rec := w.must(t, 200, call{method: "GET", path: "/photos/empty?bao&start=0&length=7"})
	if rec.Body.String() != "\x00\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("slice of nothing: %q", rec.Body)
	}
	// Who has the encoding of this version need not read it again.
	etag := rec.Header().Get("Etag")
	if rec := w.must(t, 304, call{method: "GET", path: "/photos/empty?bao", header: []string{"If-None-Match: " + etag}}); rec.Body.Len() != 0 {
		t.Errorf("%q", rec.Body)
	}
}

// An object without a stored hash reports its BLAKE3 in the answer with its Bao encoding, for which the node
// computes it.
func TestTheHashOfAnUploadComesWithItsEncoding(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	sum := blake3.Sum256([]byte("aaaaabbbbbcc"))
	if got := w.must(t, 200, call{method: "HEAD", path: "/photos/film"}).Header().Get("X-Holdfast-Blake3"); got != "" {
		t.Fatal("the upload knows its hash:", got)
	}
	rec := w.must(t, 200, call{method: "GET", path: "/photos/film?bao"})
	if got := rec.Header().Get("X-Holdfast-Blake3"); got != hex.EncodeToString(sum[:]) || rec.Body.String() != "\x0c\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("%s %q", got, rec.Body)
	}
}

// The Bao encoding of content that cannot be read is answered with 500, without ETag and hash.
func TestABaoEncodingOfContentThatCannotBeReadIsNeverAWholeAnswer(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/k", strings.Repeat("x", 5000))
	w.fake.torn = 100
	rec := w.must(t, 500, call{method: "GET", path: "/photos/k?bao"})
	if h := rec.Header(); h.Get("Etag") != "" || h.Get("X-Holdfast-Blake3") != "" {
		t.Errorf("%v", h)
	}
	w.fake.torn, w.fake.err = -1, errTorn
	w.must(t, 500, call{method: "GET", path: "/photos/k?bao"})
}

// A Bao encoding whose content fails after the answer has begun ends before its length, with an error for the
// client.
func TestABaoEncodingIsCutWhenItsContentEnds(t *testing.T) {
	w := newWorld(t)
	w.options.MaxObject = 4 << 20
	w.rebuild(t)
	w.put(t, "/photos/large", strings.Repeat("x", 3<<20))
	w.fake.torn = 2 << 20
	server := w.serve(t)
	r := newRequest(t, "GET", server.URL+"/photos/large?bao", "")
	r.Header.Set("Authorization", "Bearer "+w.alice.Token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || n >= resp.ContentLength || resp.StatusCode != 200 {
		t.Errorf("%d: %d of %d bytes, %v", resp.StatusCode, n, resp.ContentLength, err)
	}
}
