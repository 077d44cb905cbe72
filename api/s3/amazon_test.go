package s3

import (
	"strings"
	"testing"
)

// What tests against Amazon S3 found of its answers: those of versity/versitygw.

// An object keeps its redirect location, and a copy has only the one that its own request names.
func TestARedirectLocationIsKeptAndNotCopied(t *testing.T) {
	w := newWorld(t)
	const to = "x-amz-website-redirect-location: "
	w.put(t, "/photos/k", "hello", to+"/other", "Content-Type: text/x", "x-amz-meta-a: b")
	at := func(path string) string {
		return w.must(t, 200, call{method: "HEAD", path: path}).Header().Get("X-Amz-Website-Redirect-Location")
	}
	for i, tc := range []struct {
		header []string
		want   string
	}{
		{nil, ""},
		{[]string{to + "https://example.org/"}, "https://example.org/"},
		{[]string{to + "http://example.org/", "x-amz-metadata-directive: REPLACE"}, "http://example.org/"},
		{[]string{"x-amz-metadata-directive: REPLACE"}, ""},
		{[]string{"x-amz-tagging-directive: REPLACE"}, ""},
	} {
		w.must(t, 200, call{method: "PUT", path: "/photos/copy", header: append(tc.header, "x-amz-copy-source: photos/k")})
		if got := at("/photos/copy"); got != tc.want {
			t.Errorf("copy %d has %q, want %q", i, got, tc.want)
		}
		if got := w.must(t, 200, call{method: "GET", path: "/photos/copy"}).Header(); len(tc.header) < 2 && i != 3 && i != 4 && (got.Get("Content-Type") != "text/x" || got.Get("X-Amz-Meta-A") != "b") {
			t.Errorf("copy %d: %v", i, got)
		}
	}
	if got := at("/photos/k"); got != "/other" {
		t.Errorf("the source has %q", got)
	}
	// Onto itself it is a change.
	w.must(t, 200, call{method: "PUT", path: "/photos/k", header: []string{"x-amz-copy-source: photos/k", to + "/more"}})
	if got := at("/photos/k"); got != "/more" {
		t.Errorf("it has %q", got)
	}
}

// A copy whose source has not changed by its conditions is answered 304 without a body, and one whose other
// condition fails 412.
func TestACopyOfWhatHasNotChanged(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/k", "hello")
	const match, none = "x-amz-copy-source-if-match: ", "x-amz-copy-source-if-none-match: "
	its := md5Of("hello")
	for i, tc := range []struct {
		header []string
		want   int
	}{
		{[]string{match + its, none + its}, 304},
		{[]string{match + "*", none + "*"}, 304},
		{[]string{match + its, "x-amz-copy-source-if-modified-since: Fri, 02 Jan 2026 04:04:05 GMT"}, 304},
		{[]string{match + "x", none + its}, 412},
		{[]string{none + its}, 412},
		{[]string{match + its, none + "x"}, 200},
	} {
		rec := w.must(t, tc.want, call{method: "PUT", path: "/photos/copy", header: append(tc.header, "x-amz-copy-source: photos/k")})
		if tc.want == 304 && (rec.Body.Len() != 0 || rec.Header().Get("X-Amz-Error-Code") != "NotModified") {
			t.Errorf("copy %d: %v %s", i, rec.Header(), rec.Body)
		}
	}
}

// A Content-MD5 that is not the base64 of 16 bytes gets InvalidDigest, and one of other content BadDigest.
func TestAContentMD5IsTheBase64OfSixteenBytes(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/md5", "")
	for _, tc := range []struct {
		sum, body string
		code      Code // empty: it is stored
	}{
		{"XUFAKrxLKna5cZ2REBfFkg==", "hello", ""},
		{"XUFAKrxLKna5cZ2REBfFkg==", "other", BadDigest},
		{"XUFAKrxLKna5cZ2REBfFkv==", "hello", ""}, // bits behind the last byte are none of it
		{"uU0nuZNNPgilLlLX2n2r+s==", "hello", BadDigest},
		{"", "hello", InvalidDigest},
		{"invalid", "hello", InvalidDigest},
		{"XUFAKrxLKna5cZ2REBfFkg", "hello", InvalidDigest},           // no padding
		{"XUFAKrxLKna5cZ2REBfF", "hello", InvalidDigest},             // 15 bytes
		{"XUFAKrxLKna5cZ2REBfFkpI=", "hello", InvalidDigest},         // 17 bytes
		{"5d41402abc4b2a76b9719d911017c592", "hello", InvalidDigest}, // hexadecimal
		{"XUFAKrxLKna5cZ2REBfFkg==, XUFAKrxLKna5cZ2REBfFkg==", "hello", InvalidDigest},
	} {
		want := 400
		if tc.code == "" {
			want = 200
		}
		rec := w.must(t, want, call{method: "PUT", path: "/photos/md5", body: tc.body, header: []string{"Content-MD5: " + tc.sum}})
		if tc.code != "" && !strings.Contains(rec.Body.String(), "<Code>"+string(tc.code)+"</Code>") {
			t.Errorf("%q: %s, want %s", tc.sum, rec.Body, tc.code)
		}
	}
}
