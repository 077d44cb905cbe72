package s3

import "testing"

// TestContentEncodingIsKeptAsItIsWritten but for the framing, which is undone.
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
