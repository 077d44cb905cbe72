package s3

import (
	"net/http/httptest"
	"testing"
)

// Content-Encoding comes back as it was written, without aws-chunked if the body had this framing.
func TestContentEncodingIsKeptAsItIsWritten(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct{ sent, want string }{
		{"gzip, br", "gzip, br"},
		{"gzip,br", "gzip,br"},
		{"gzip ,\tbr", "gzip ,\tbr"},
		{"gzip,", "gzip,"},
		{",", ","},
		{"GZip", "GZip"},
		{"aws-chunked-not", "aws-chunked-not"},
	} {
		w.put(t, "/photos/k", "hello", "Content-Encoding: "+tc.sent)
		if got := w.must(t, 200, call{method: "HEAD", path: "/photos/k"}).Header().Get("Content-Encoding"); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.sent, got, tc.want)
		}
	}
	for _, tc := range []struct{ sent, want string }{
		{"aws-chunked", ""},
		{"aws-chunked,", ""},
		{"AWS-Chunked , aws-chunked", ""},
		{"gzip, aws-chunked", "gzip"},
		{"aws-chunked,gzip", "gzip"},
		{"gzip, br, aws-chunked", "gzip, br"},
		{"gzip, aws-chunked, br", "gzip, br"},
		{"gzip,aws-chunked,br", "gzip,br"},
	} {
		w.put(t, "/photos/k", "5\r\nhello\r\n0\r\n\r\n", "Content-Encoding: "+tc.sent, "x-amz-decoded-content-length: 5")
		rec := w.must(t, 200, call{method: "GET", path: "/photos/k"})
		if got := rec.Header().Get("Content-Encoding"); got != tc.want || rec.Body.String() != "hello" {
			t.Errorf("%q: %q, want %q: %s", tc.sent, got, tc.want, rec.Body)
		}
	}
}

// Names of metadata go out in lower case, as they are stored. botocore makes keys of the letters that come after
// the prefix, whatever their case.
func TestNamesOfMetadataGoOutAsTheyAreStored(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/k", "hello", "x-amz-meta-My-Key: v", "x-amz-meta-under_score: w")
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, w.request(t, call{method: "HEAD", path: "/photos/k"}))
	for _, name := range []string{"x-amz-meta-my-key", "x-amz-meta-under_score", "ETag"} {
		if len(rec.Header()[name]) != 1 {
			t.Errorf("no %s in %v", name, rec.Header())
		}
	}
}

// Metadata with an empty value is kept, from a PUT and from a form.
func TestEmptyMetadataIsKept(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/put", "hello", "x-amz-meta-e: ")
	w.must(t, 204, call{method: "POST", path: "/photos", header: []string{formHeader}, body: formOf("x",
		field{"key", "form"}, field{"x-amz-meta-e", ""}, field{"acl", ""}, field{"Content-Type", ""}, field{"Content-MD5", ""}, field{"file", "hello"})})
	for _, path := range []string{"/photos/put", "/photos/form"} {
		h := w.must(t, 200, call{method: "HEAD", path: path}).Header()
		if values, there := h["X-Amz-Meta-E"]; !there || len(values) != 1 || values[0] != "" || h.Get("Content-Type") != defaultType {
			t.Errorf("%s: %v", path, h)
		}
	}
}
