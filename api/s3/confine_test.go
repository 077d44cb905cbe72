package s3

import (
	"strings"
	"testing"
)

// An object is served with a sandbox policy unless it is a PDF or its request asks for the type of one, also in
// ranges and 304 answers.
func TestAPageOfAnObjectIsAnOriginOfItsOwn(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct {
		stored, asked string
		free          bool
	}{
		{"text/html", "", false},
		{"text/html; charset=utf-8", "", false},
		{"image/svg+xml", "", false},
		{"", "", false},
		{"application/pdf", "", true},
		{"Application/PDF; charset=binary", "", true},
		{"application/pdfx", "", false},
		{"application/pdf, text/html", "", false},
		{"application/pdf;,text/html", "", false},
		{"text/html, application/pdf", "", false},
		{"application/pdf", "text/html", false},
		{"text/html", "application/pdf", true},
	} {
		var header []string
		if tc.stored != "" {
			header = []string{"Content-Type: " + tc.stored}
		}
		w.put(t, "/photos/k", "hello", header...)
		path := "/photos/k?response-content-type=" + strings.NewReplacer("+", "%2B").Replace(tc.asked)
		for status, c := range map[int]call{
			200: {method: "GET", path: path},
			206: {method: "GET", path: path, header: []string{"Range: bytes=0-1"}},
			304: {method: "GET", path: path, header: []string{"If-None-Match: *"}},
		} {
			got := w.must(t, status, c).Header().Get("Content-Security-Policy")
			if want := !tc.free; want != (got == sandbox) || tc.free && got != "" {
				t.Errorf("%d of %q as %q: %q", status, tc.stored, tc.asked, got)
			}
		}
	}
	if strings.Contains(sandbox, "allow-same-origin") {
		t.Error("the sandbox has a hole")
	}
	w.put(t, "/photos/sealed", "hello", "Content-Type: application/pdf", sealedMeta)
	if got := w.must(t, 200, call{method: "HEAD", path: "/photos/sealed"}).Header().Get("Content-Security-Policy"); got != sandbox {
		t.Errorf("of what is encrypted: %q", got)
	}
}
