package sigv4

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzAuthorization looks for headers that are not refused by an Error, or that
// pass with another signature than the request's.
func FuzzAuthorization(f *testing.F) {
	r := signed(f, "GET", "/b/k", emptySHA256, "", nil)
	good := r.Header.Get("Authorization")
	c, err := (&request{scheme: SchemeHeader, header: good}).credential(r)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		good, "", "Bearer x", algorithm, algorithm + " Credential=", strings.ReplaceAll(good, ", ", ","), strings.ToLower(good),
		strings.Replace(good, testKey, "JWT:x", 1), strings.Replace(good, "host", "host;host", 1), good + ",", "AWS a:b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		r := wire(t, signed(t, "GET", "/b/k", emptySHA256, "", nil))
		r.Header["Authorization"] = []string{header}
		caller, err := verifierAt(t, awsStamp).Verify(t.Context(), r)
		if err != nil {
			code(t, err)
			return
		}
		if caller.Token == "" && (caller.AccessKey != testKey || !strings.Contains(header, c.signature)) {
			t.Errorf("%s passes %q", caller, header)
		}
		if (caller.Token == "") == (caller.AccessKey == "") {
			t.Errorf("%q gives both or neither of token and key", header)
		}
	})
}

// FuzzQuery looks for queries that are not refused by an Error, that pass without
// the signature, or whose canonical form is not one.
func FuzzQuery(f *testing.F) {
	link := presigned(f, "/b/k?a=1&a", nil).URL.RawQuery
	_, signature, _ := strings.Cut(link, "X-Amz-Signature=")
	for _, seed := range []string{
		link, "", "a=1&a=0&b", "a=%2f+%20;b", "%zz", "&&=&=x", "X-Amz-Algorithm=" + algorithm, link + "&" + link,
		strings.ReplaceAll(link, "X-Amz", "x-amz"), "AWSAccessKeyId=x&Signature=y&Expires=1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		r := presigned(t, "/b/k", nil)
		r.RequestURI = "/b/k?" + query
		if caller, err := verifierAt(t, awsStamp).Verify(t.Context(), r); err != nil {
			code(t, err)
		} else if !strings.Contains(query, signature) && !strings.Contains(query, "%") {
			t.Errorf("%s passes by %q", caller, query)
		}
		parameters, err := parseQuery(query)
		if err != nil {
			code(t, err)
			return
		}
		once := string(appendQuery(nil, &request{query: parameters}))
		again, err := parseQuery(once)
		if err != nil || string(appendQuery(nil, &request{query: again})) != once {
			t.Errorf("%q becomes %q, %v", query, once, err)
		}
		// Where net/url reads a query it reads the same.
		if values, err := url.ParseQuery(query); err == nil {
			for _, p := range parameters {
				if !slices.Contains(values[p.name], p.value) {
					t.Errorf("%q: net/url has %q for %q, not %q", query, values[p.name], p.name, p.value)
				}
			}
		}
	})
}

// FuzzBody reads a body as the transport may cut it: whole, by the byte, in halves
// and as the fuzzer says. The outcome has to be the same.
func FuzzBody(f *testing.F) {
	for i, framing := range []Framing{signedFraming, signedTrailers, unsignedFraming} {
		links := testChain()
		if !framing.Signed {
			links = nil
		}
		trailers := []string{"", "x-a:1\nx-b:2\n", "x-a:1\n"}[i]
		for _, chunks := range [][]string{nil, {"hello"}, {"hello", "world"}} {
			f.Add([]byte(encode(links, trailers, chunks...)), uint8(i), int64(-1), []byte{1, 2, 3})
			if links != nil {
				links = testChain()
			}
		}
	}
	names, _ := filepath.Glob("testdata/*_trailer.http")
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
		f.Add(body, uint8(2), int64(11), []byte{90})
	}
	f.Fuzz(func(t *testing.T, raw []byte, kind uint8, length int64, cuts []byte) {
		framing := []Framing{signedFraming, signedTrailers, unsignedFraming}[kind%3]
		if framing.Length = length; length < -1 || length > MaxLength {
			framing.Length = -1
		}
		type outcome struct {
			got      []byte
			trailers []Trailer
			err      error
		}
		read := func(src io.Reader, buffer int) (o outcome) {
			var links *chain
			if framing.Signed {
				links = testChain()
			}
			body := newBody(framing, links, src)
			p := make([]byte, buffer)
			for o.err == nil {
				var n int
				n, o.err = body.Read(p)
				o.got = append(o.got, p[:n]...)
			}
			o.trailers = body.Trailers()
			return o
		}
		first := read(bytes.NewReader(raw), 4096)
		whole := errors.Is(first.err, io.EOF)
		if !whole {
			code(t, first.err)
		}
		if framing.Length >= 0 && whole && int64(len(first.got)) != framing.Length {
			t.Fatalf("%d bytes of %d", len(first.got), framing.Length)
		}
		for i, src := range []io.Reader{
			iotest.OneByteReader(bytes.NewReader(raw)), iotest.HalfReader(bytes.NewReader(raw)),
			iotest.DataErrReader(bytes.NewReader(raw)), &cutter{bytes.NewReader(raw), cuts, 0},
		} {
			o := read(src, i*i*100+1)
			if o.err.Error() != first.err.Error() || errors.Is(o.err, io.EOF) != whole {
				t.Fatalf("%v, whole %v", o.err, first.err)
			}
			if whole && (!bytes.Equal(o.got, first.got) || !slices.Equal(o.trailers, first.trailers)) {
				t.Fatalf("%q %v, whole %q %v", o.got, o.trailers, first.got, first.trailers)
			}
			// How much comes before an error may differ, not what.
			if !bytes.HasPrefix(o.got, first.got) && !bytes.HasPrefix(first.got, o.got) {
				t.Fatalf("%q, whole %q", o.got, first.got)
			}
		}
	})
}

// cutter reads as many bytes at a time as the next of cuts says.
type cutter struct {
	src  io.Reader
	cuts []byte
	next int
}

func (c *cutter) Read(p []byte) (int, error) {
	n := 1
	if len(c.cuts) > 0 {
		n = 1 + int(c.cuts[c.next%len(c.cuts)])
		c.next++
	}
	return c.src.Read(p[:min(n, len(p))])
}

// FuzzPath looks for paths that are lost or not what they stand for.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/", "//", "/b/../k", "/b/%2F", "/b/é", "/b/%c3%a9", "/b/%", "http://h/k", "*", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if strings.ContainsAny(path, "?") {
			return
		}
		r := &http.Request{RequestURI: path + "?a", URL: &url.URL{}}
		q, err := read(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(path, "/") && q.path != path {
			t.Errorf("%q became %q", path, q.path)
		}
		plain, ok := Unescape(q.path, false)
		for _, p := range q.paths() {
			if again, _ := Unescape(p, false); ok && again != plain {
				t.Errorf("%q and %q are not one key", q.path, p)
			}
		}
	})
}
