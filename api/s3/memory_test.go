package s3

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
)

// limited gives the surface limits of memory alone.
func (w *world) limited(t *testing.T) *web.Limits {
	limits := web.NewLimits(web.Rate{}, web.Rate{}, nil, w.now)
	w.options.Limits = limits
	w.rebuild(t)
	return limits
}

// fill takes all the memory that there is for somebody, and tells how many bytes.
func fill(held *web.Held) (bytes int64) {
	for step := int64(1 << 30); step > 0; step /= 2 {
		for held.Grow(step) == nil {
			bytes += step
		}
	}
	return bytes
}

// An account that sends one byte of 200 bodies of the largest size does not keep another account's request out.
func TestWhoAnnouncesLargeBodiesKeepsNobodyElseOut(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	w.limited(t)
	var all sync.WaitGroup
	var writers []*io.PipeWriter
	for range 200 {
		in, out := io.Pipe()
		r := w.request(t, call{method: "POST", path: "/photos?delete", token: w.bob.Token})
		r.Body, r.ContentLength = io.NopCloser(in), maxDelete
		all.Go(func() {
			rec := httptest.NewRecorder()
			w.handler.ServeHTTP(rec, r)
			if rec.Code != 400 {
				t.Errorf("%d %s", rec.Code, rec.Body)
			}
		})
		if _, err := out.Write([]byte("<")); err != nil { // it is being read
			t.Fatal(err)
		}
		writers = append(writers, out)
	}
	body := "<Delete><Object><Key>cat.jpg</Key></Object>" + strings.Repeat(" ", 1<<20) + "</Delete>"
	w.must(t, 200, call{method: "POST", path: "/photos?delete", body: body})
	for _, out := range writers {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
}

// An account whose answers hold as much memory as it may gets SlowDown, and other accounts do not.
func TestAnswersThatWaitForTheirClientsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	w.put(t, "/photos/large", strings.Repeat("x", 1<<20))
	limits := w.limited(t)
	get := func(path string) call { return call{method: "GET", path: path} }
	for _, tc := range []struct {
		held *web.Held
		call call
		most int64
	}{
		{limits.Hold(w.who.Account), get("/photos"), 64 << 20},
		{limits.HoldContent(w.who.Account), get("/photos/large"), 192 << 20},
		{limits.HoldContent(w.who.Account), get("/photos/large?bao"), 192 << 20},
		{limits.HoldContent(w.who.Account), get("/photos/large?bao&start=0&length=1"), 192 << 20},
	} {
		w.must(t, 200, tc.call)
		if held := fill(tc.held); held != tc.most {
			t.Errorf("%s: an account may hold %d", tc.call.path, held)
		}
		rec := w.must(t, 503, tc.call)
		if !strings.Contains(rec.Body.String(), "<Code>SlowDown</Code>") || rec.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %v %s", tc.call.path, rec.Header(), rec.Body)
		}
		w.must(t, 404, call{method: tc.call.method, path: tc.call.path, token: w.bob.Token})
		w.must(t, 200, call{method: "HEAD", path: "/photos/large"})
		tc.held.Release()
		w.must(t, 200, tc.call)
	}
	others := limits.Hold("somebody else")
	defer others.Release()
	if held := fill(others); held != 64<<20 {
		t.Errorf("requests that have ended hold something: %d are left of another account's", held)
	}
	// Of 3 MiB a slice finds too little: beside the block that is read it holds what it makes.
	readers := limits.HoldContent(w.who.Account)
	defer readers.Release()
	if err := readers.Grow(189 << 20); err != nil {
		t.Fatal(err)
	}
	w.must(t, 200, get("/photos/large"))
	w.must(t, 200, get("/photos/large?bao"))
	w.must(t, 503, get("/photos/large?bao&start=0&length=1"))
}

// A form gets SlowDown while forms of unknown callers hold all memory that they may, and a field is read only up
// to its bound. The signer of a form is known when its fields are read.
func TestFormsOfUnknownCallersAreBounded(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	limits := w.limited(t)
	form := append([]field{{"key", "k"}}, w.signedFields(&w.writer, policyOf(`["starts-with", "$key", ""]`))...)
	form = append(form, field{"file", "hello"})
	if rec := w.post(t, form...); rec.Code != 204 {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	unknown := limits.HoldUnknown(httptest.NewRequest("POST", "/", nil))
	if err := unknown.Grow(4<<20 - formMemory + 1); err != nil {
		t.Fatal(err)
	}
	if rec := w.post(t, form...); rec.Code != 503 || !strings.Contains(rec.Body.String(), "SlowDown") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	unknown.Release()
	if rec := w.post(t, form...); rec.Code != 204 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	// A field is read up to what all may have, whatever comes.
	r := w.request(t, call{method: "POST", path: "/photos", token: "-", header: []string{formHeader}})
	endless := io.MultiReader(strings.NewReader("--edge\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\n"), bytes.NewReader(make([]byte, maxFormHead)))
	counted := &countingReader{r: endless}
	r.Body, r.ContentLength = io.NopCloser(counted), 1<<20
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, r)
	if rec.Code != 400 || !strings.Contains(rec.Body.String(), "MaxPostPreDataLengthExceeded") || counted.n > maxFieldBytes+formBuffer+8<<10 {
		t.Errorf("%d bytes: %d %s", counted.n, rec.Code, rec.Body)
	}
}

// The fields of a form count as memory of its account until the file is stored, whether it is signed or has a
// token.
func TestFormsAreHeldByTheirAccounts(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	limits := w.limited(t)
	file := []field{{"key", "k"}, {"file", "hello"}}
	for name, post := range map[string]func() *httptest.ResponseRecorder{
		"signed": func() *httptest.ResponseRecorder {
			return w.post(t, append(w.signedFields(&w.writer, policyOf(`["starts-with", "$key", ""]`)), file...)...)
		},
		"of a bearer token": func() *httptest.ResponseRecorder {
			return w.do(t, call{method: "POST", path: "/photos", header: []string{formHeader}, body: formOf("f", file...)})
		},
	} {
		held := limits.Hold(w.who.Account)
		fill(held)
		if rec := post(); rec.Code != 503 || !strings.Contains(rec.Body.String(), "SlowDown") {
			t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
		}
		held.Release()
		if rec := post(); rec.Code != 204 {
			t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
		}
		if n := fill(held); n != 64<<20 {
			t.Errorf("%s: %d bytes can be held when it is stored", name, n)
		}
		held.Release()
	}
}

type countingReader struct {
	r io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// A query of more than sigv4.MaxParameters parameters gets 400 and takes at most 1 MiB of memory. A head of 32
// KiB can have 16,000.
func TestAQueryHasSoManyParameters(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	for path, want := range map[string]int{
		"/photos/cat.jpg?" + strings.Repeat("a=&", sigv4.MaxParameters-1):     200,
		"/photos/cat.jpg?" + strings.Repeat("&", 28<<10):                      400,
		"/photos/cat.jpg?" + strings.Repeat("a&", 14<<10) + "X-Amz-Signature": 400,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rec := w.do(t, call{method: "GET", path: path})
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; rec.Code != want || took > 1<<20 {
			t.Errorf("%.40s: %d, with %d bytes of memory", path, rec.Code, took)
		}
	}
}

// A list of parts with unknown checksums takes at most five times its size in memory.
func TestAListOfUnknownChecksumsTakesLittleMemory(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	var body strings.Builder
	body.WriteString("<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag>")
	for i := range 100_000 {
		fmt.Fprintf(&body, "<Checksum%x/>", i)
	}
	body.WriteString("</Part></CompleteMultipartUpload>")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	parts, err := readParts([]byte(body.String()), 1)
	if err == nil {
		_, err = completeParts(parts)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || took > 5*uint64(body.Len()) {
		t.Errorf("%d bytes took %d, %v", body.Len(), took, err)
	}
}
