package s3

import (
	"net/http"
	"testing"
)

// A bucket and an object are created, read as they were stored and deleted, and a bucket with objects is not
// deleted.
func TestAnObjectLivesItsLife(t *testing.T) {
	w := newWorld(t)
	w.must(t, 200, call{method: "PUT", path: "/photos"})
	w.must(t, 409, call{method: "PUT", path: "/photos/"})
	w.must(t, 404, call{method: "GET", path: "/photos/a/b"})
	put := w.must(t, 200, call{method: "PUT", path: "/photos/a//../b%2Fc", body: "hello", header: []string{"x-amz-meta-Color: blue", "Content-Type: text/x"}})
	if got := put.Header().Get("ETag"); got != `"5d41402abc4b2a76b9719d911017c592"` {
		t.Errorf("ETag %s", got)
	}
	got := w.must(t, 200, call{method: "GET", path: "/photos/a//../b%2Fc"})
	if got.Body.String() != "hello" || got.Header().Get("X-Amz-Meta-Color") != "blue" || got.Header().Get("Content-Type") != "text/x" {
		t.Errorf("%v %s", got.Header(), got.Body)
	}
	w.must(t, 404, call{method: "GET", path: "/photos/a/b%2Fc"})
	if got := w.must(t, 206, call{method: "GET", path: "/photos/a//../b/c", header: []string{"Range: bytes=1-2"}}); got.Body.String() != "el" {
		t.Errorf("%v %s", got.Header(), got.Body)
	}
	w.must(t, 409, call{method: "DELETE", path: "/photos"})
	if rec := w.must(t, 204, call{method: "DELETE", path: "/photos/a//../b/c"}); rec.Header().Get("X-Amz-Delete-Marker") != "true" {
		t.Errorf("%v", rec.Header())
	}
	w.must(t, 204, call{method: "DELETE", path: "/photos"})
	w.must(t, http.StatusNotFound, call{method: "HEAD", path: "/photos"})
}
