package s3

import (
	"slices"
	"strings"
	"testing"
)

// A list begins behind its start-after or marker as on Amazon S3: keys behind a start-after are rolled up into
// its prefix, and a marker that is rolled up stands for its whole prefix.
func TestWhereAListBegins(t *testing.T) {
	w := newWorld(t)
	for _, key := range []string{"a", "a/", "a/b", "a/c", "b/x", "c", "d/"} {
		w.put(t, "/photos/"+key, "x")
		w.must(t, 200, call{method: "POST", path: "/photos/" + key + "?uploads"})
	}
	for _, tc := range []struct{ start, query, v2, v1 string }{
		{"", "delimiter=/", "a a/ b/ c d/", "a a/ b/ c d/"},
		{"a", "delimiter=/", "a/ b/ c d/", "a/ b/ c d/"},
		{"a/", "delimiter=/", "a/ b/ c d/", "b/ c d/"},
		{"a/", "delimiter=%2F&prefix=a", "a/", ""},
		{"a/", "", "a/b a/c b/x c d/", "a/b a/c b/x c d/"},
		{"a/", "delimiter=/&prefix=a/", "a/b a/c", "a/b a/c"},
		{"a/b", "delimiter=/", "a/ b/ c d/", "b/ c d/"},
		{"a/b", "delimiter=/&prefix=a/", "a/c", "a/c"},
		{"a/b", "", "a/c b/x c d/", "a/c b/x c d/"},
		{"a/c", "delimiter=/", "b/ c d/", "b/ c d/"},
		{"a/zzz", "delimiter=/", "b/ c d/", "b/ c d/"},
		{"b/x", "delimiter=/", "c d/", "c d/"},
		{"d/", "delimiter=/", "", ""}, // the key alone is there, and it is not behind itself
		{"a/", "delimiter=b", "a/b a/c b c d/", "a/b a/c b c d/"},
		{"0", "delimiter=/&prefix=a/", "a/ a/b a/c", "a/ a/b a/c"},
		{"zz", "delimiter=/", "", ""},
	} {
		sorted := func(names []string) string {
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		for _, size := range []string{"1", "2", "1000"} {
			var v2, v1 []string
			page := "&max-keys=" + size + "&" + tc.query
			for token := ""; ; {
				l, names := w.list(t, "/photos?list-type=2&start-after="+tc.start+"&continuation-token="+token+page)
				if v2, token = append(v2, names...), l.NextContinuationToken; token == "" {
					break
				}
			}
			for marker := tc.start; ; {
				l, names := w.list(t, "/photos?marker="+marker+page)
				if v1, marker = append(v1, names...), l.NextMarker; marker == "" {
					break
				}
			}
			if got := sorted(v2); got != tc.v2 {
				t.Errorf("start-after %q, %s, by %s: %q, want %q", tc.start, tc.query, size, got, tc.v2)
			}
			if got := sorted(v1); got != tc.v1 {
				t.Errorf("marker %q, %s, by %s: %q, want %q", tc.start, tc.query, size, got, tc.v1)
			}
		}
		for _, of := range []string{"versions", "uploads"} {
			l, names := w.list(t, "/photos?"+of+"&key-marker="+tc.start+"&"+tc.query)
			for _, entry := range append(l.Upload, l.Version...) {
				names = append(names, entry.Key)
			}
			if got := sorted(names); got != tc.v1 || l.KeyMarker != tc.start {
				t.Errorf("%s behind %q, %s: %q, want %q", of, tc.start, tc.query, got, tc.v1)
			}
		}
	}
}

// A marker of a list of uploads need not be of an upload, and an upload id counts only with the key that has it.
func TestMarkersOfUploadsArePlaces(t *testing.T) {
	w := newWorld(t)
	w.must(t, 200, call{method: "PUT", path: "/photos"})
	for _, key := range []string{"bar", "baz", "baz", "foo"} {
		w.must(t, 200, call{method: "POST", path: "/photos/" + key + "?uploads"})
	}
	all, _ := w.list(t, "/photos?uploads")
	if len(all.Upload) != 4 {
		t.Fatalf("%+v", all)
	}
	for markers, want := range map[string]int{
		"key-marker=bat": 1,
		"key-marker=baz": 3,
		"key-marker=zoo": 4,
		"key-marker=bat&upload-id-marker=" + all.Upload[2].UploadId: 1,
		"key-marker=baz&upload-id-marker=" + all.Upload[1].UploadId: 2,
		"upload-id-marker=" + all.Upload[3].UploadId:                0,
	} {
		l, _ := w.list(t, "/photos?uploads&"+markers)
		if !slices.Equal(l.Upload, all.Upload[want:]) {
			t.Errorf("%s: %+v, want those from %d on", markers, l.Upload, want)
		}
	}
}
