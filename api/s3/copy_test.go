package s3

import (
	"strings"
	"testing"
)

// A copy whose source, target or bucket is missing names the missing one in its error. With If-Match the target
// has to exist too.
func TestACopySaysWhichOfTheTwoIsMissing(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	o, err := w.fake.Object(t.Context(), w.who.Account, "photos", "cat.jpg", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ source, code, names string }{
		{"photos/cat.jpg?versionId=" + string(o.ID), "NoSuchKey", "<Key>absent</Key>"},
		{"photos/cat.jpg?versionId=null", "NoSuchKey", "<Key>absent</Key>"},
		{"photos/cat.jpg", "NoSuchKey", "<Key>absent</Key>"},
		{"photos/gone", "NoSuchKey", "<Key>gone</Key>"},
		{"photos/gone?versionId=" + string(o.ID), "NoSuchVersion", ""},
		{"photos/cat.jpg?versionId=other", "NoSuchVersion", ""},
		{"nobodys/cat.jpg", "NoSuchBucket", "<BucketName>nobodys</BucketName>"},
	} {
		rec := w.must(t, 404, call{method: "PUT", path: "/photos/absent", header: []string{"x-amz-copy-source: " + tc.source, `If-Match: "x"`}})
		if body := rec.Body.String(); rec.Header().Get("X-Amz-Error-Code") != tc.code || !strings.Contains(body, tc.names) {
			t.Errorf("%s: %s", tc.source, body)
		}
	}
	rec := w.must(t, 404, call{method: "PUT", path: "/unmade/k", header: []string{"x-amz-copy-source: nobodys/k"}})
	if body := rec.Body.String(); !strings.Contains(body, "<BucketName>unmade</BucketName>") {
		t.Errorf("%s", body)
	}
}
