package s3

import (
	"strings"
	"testing"
)

// A deletion that names the ETag, size or time of its object deletes only that object, and one of an absent key
// succeeds.
func TestDeletionsHaveConditions(t *testing.T) {
	w := newWorld(t)
	w.must(t, 200, call{method: "PUT", path: "/photos"})
	w.put(t, "/photos/k", "hello")
	at := w.must(t, 200, call{method: "HEAD", path: "/photos/k"}).Header().Get("Last-Modified")
	const other = "Fri, 02 Jan 2015 03:04:05 GMT"
	for _, tc := range []struct {
		header []string
		want   int
	}{
		{[]string{"x-amz-if-match-size: 5"}, 204},
		{[]string{"x-amz-if-match-size: 0"}, 412},
		{[]string{"x-amz-if-match-last-modified-time: " + at}, 204},
		{[]string{"x-amz-if-match-last-modified-time: " + other}, 412},
		{[]string{"If-Match: *"}, 204},
		{[]string{"If-Match: " + md5Of("hello"), "x-amz-if-match-size: 5", "x-amz-if-match-last-modified-time: " + at}, 204},
		{[]string{"If-Match: " + md5Of("hello"), "x-amz-if-match-size: 5", "x-amz-if-match-last-modified-time: " + other}, 412},
		{[]string{"If-Match: " + md5Of("hello"), "x-amz-if-match-size: 6"}, 412},
	} {
		w.put(t, "/photos/k", "hello")
		header := tc.header
		for i := range header { // each put has a time of its own
			header[i] = strings.Replace(header[i], at, w.must(t, 200, call{method: "HEAD", path: "/photos/k"}).Header().Get("Last-Modified"), 1)
		}
		w.must(t, tc.want, call{method: "DELETE", path: "/photos/k", header: header})
		there := 404
		if tc.want != 204 {
			there = 200
		}
		w.must(t, there, call{method: "HEAD", path: "/photos/k"})
		w.must(t, 204, call{method: "DELETE", path: "/photos/absent", header: header})
	}
	size := func(text string) string {
		w.put(t, "/photos/k", "hello")
		return w.must(t, 200, call{method: "POST", path: "/photos?delete", body: "<Delete><Object><Key>k</Key>" + text + "</Object><Object><Key>absent</Key>" + text + "</Object></Delete>"}).Body.String()
	}
	for text, want := range map[string]string{
		"<Size>5</Size>": "<Deleted><Key>k</Key></Deleted><Deleted><Key>absent</Key></Deleted>",
		"<Size>6</Size>": "<Code>PreconditionFailed</Code>",
		"<Size></Size>":  "<Code>InvalidArgument</Code>",
		"<LastModifiedTime>" + other + "</LastModifiedTime>":        "<Code>PreconditionFailed</Code>",
		"<LastModifiedTime>2015-01-02T03:04:05Z</LastModifiedTime>": "<Code>PreconditionFailed</Code>",
		"<LastModifiedTime>soon</LastModifiedTime>":                 "<Code>InvalidArgument</Code>",
		"<ETag>*</ETag>": "<Deleted><Key>k</Key></Deleted>",
	} {
		if got := size(text); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// GetObjectAttributes names the version if the bucket has versioning or the request names one, and else none.
func TestAttributesNameAVersionWhereThereAreSome(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/k", "hello")
	id := w.must(t, 200, call{method: "HEAD", path: "/photos/k"}).Header().Get("X-Amz-Version-Id")
	ask := func(query string) string {
		return w.must(t, 200, call{method: "GET", path: "/photos/k?attributes" + query, header: []string{"x-amz-object-attributes: ObjectSize"}}).Header().Get("X-Amz-Version-Id")
	}
	if got := ask(""); got != "" {
		t.Errorf("the version is %q", got)
	}
	if got := ask("&versionId=" + id); got != id {
		t.Errorf("the version is %q, want %q", got, id)
	}
	w.must(t, 200, call{method: "PUT", path: "/photos?versioning", body: "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"})
	if got := ask(""); got != "null" {
		t.Errorf("the version is %q, want null", got)
	}
}
