//go:build conformance

package conformance

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// testS3Conditions has changes with conditions on one node and then another: ETags, size and
// time of what a change replaces or removes.
func testS3Conditions(t *testing.T, o *objects) {
	bucket := "/conditions" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	k, one, two := bucket+"/k", []byte("one"), []byte("two, longer")
	put := func(status int, body []byte, pairs ...string) {
		t.Helper()
		if status == http.StatusOK {
			o.ok(status, http.MethodPut, k, body, pairs...)
			return
		}
		o.refused(status, map[int]string{404: "NoSuchKey", 412: "PreconditionFailed"}[status], http.MethodPut, k, body, pairs...)
	}
	put(404, one, "If-Match", "*")
	put(200, one, "If-None-Match", harness.ETag(one))
	put(412, two, "If-None-Match", harness.ETag(one))
	put(412, two, "If-None-Match", `"x", W/`+harness.ETag(one))
	put(412, two, "If-Match", "*", "If-None-Match", harness.ETag(one))
	put(200, two, "If-Match", "*", "If-None-Match", harness.ETag(two))
	put(200, one, "If-None-Match", `"x"`)
	o.refused(412, "PreconditionFailed", http.MethodPut, k, nil, "x-amz-copy-source", k, "x-amz-metadata-directive", "REPLACE", "If-None-Match", harness.ETag(one))

	// One of several that want to replace the same version does.
	o.oneWins(9, k, "If-Match", harness.ETag(one))
}

// testS3DeleteConditions has conditions on what is deleted, also of versions.
func testS3DeleteConditions(t *testing.T, o *objects) {
	bucket := "/doomed" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	k, one, two := bucket+"/k", []byte("one"), []byte("two, longer")
	put := func(status int, body []byte) {
		t.Helper()
		o.ok(status, http.MethodPut, k, body)
	}
	for _, tc := range []struct {
		status int
		pairs  []string
	}{
		{204, []string{"If-Match", "*"}},
		{204, []string{"If-Match", harness.ETag(two)}},
		{412, []string{"If-Match", harness.ETag(one)}},
		{204, []string{"x-amz-if-match-size", "11"}},
		{412, []string{"x-amz-if-match-size", "0"}},
		{204, []string{"x-amz-if-match-last-modified-time", "now"}},
		{412, []string{"x-amz-if-match-last-modified-time", "Fri, 02 Jan 2015 03:04:05 GMT"}},
		{412, []string{"If-Match", harness.ETag(two), "x-amz-if-match-size", "3"}},
	} {
		put(200, two)
		head := o.ok(http.StatusOK, http.MethodHead, k, nil)
		for i, value := range tc.pairs {
			if value == "now" {
				tc.pairs[i] = head.Header.Get("Last-Modified")
			}
		}
		if tc.status == 204 {
			o.ok(204, http.MethodDelete, k, nil, tc.pairs...)
			o.ok(204, http.MethodDelete, k, nil, tc.pairs...) // where nothing is left nothing is judged
			continue
		}
		o.refused(412, "PreconditionFailed", http.MethodDelete, k, nil, tc.pairs...)
		o.ok(http.StatusOK, http.MethodHead, k, nil)
	}
	o.refused(http.StatusBadRequest, "InvalidArgument", http.MethodDelete, k, nil, "x-amz-if-match-size", "x")

	many := func(conditions string, want ...string) {
		t.Helper()
		got := string(o.ok(http.StatusOK, http.MethodPost, bucket+"?delete", []byte("<Delete><Object><Key>k</Key>"+conditions+"</Object></Delete>")).Body)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %s", conditions, got)
			}
		}
	}
	put(200, two)
	at := o.ok(http.StatusOK, http.MethodHead, k, nil).Header.Get("Last-Modified")
	when, err := time.Parse(http.TimeFormat, at)
	if err != nil {
		t.Fatal(err)
	}
	many("<Size>3</Size>", "PreconditionFailed")
	many("<LastModifiedTime>"+when.Add(-time.Second).Format(http.TimeFormat)+"</LastModifiedTime>", "PreconditionFailed")
	many("<ETag>"+harness.ETag(one)+"</ETag>", "PreconditionFailed")
	many("<ETag>"+harness.ETag(two)+"</ETag><Size>11</Size><LastModifiedTime>"+at+"</LastModifiedTime>", "<Deleted><Key>k</Key></Deleted>")
	many("<Size>3</Size>", "<Deleted><Key>k</Key></Deleted>")

	// Versions: the one that is named is judged, and a delete marker has no ETag.
	kept := o.versioned("conditions", "Enabled") + "/k"
	id := o.put(kept, "one")
	o.put(kept, "two")
	o.refused(412, "PreconditionFailed", http.MethodDelete, kept+"?versionId="+id, nil, "x-amz-if-match-size", "4")
	o.ok(204, http.MethodDelete, kept+"?versionId="+id, nil, "If-Match", harness.ETag(one), "x-amz-if-match-size", "3")
	o.ok(204, http.MethodDelete, kept+"?versionId="+id, nil, "x-amz-if-match-size", "4")
	if got := o.ok(204, http.MethodDelete, kept, nil, "If-Match", harness.ETag([]byte("two"))); got.Header.Get("x-amz-version-id") == "" {
		t.Errorf("no delete marker: %v", got.Header)
	}
	o.refused(412, "PreconditionFailed", http.MethodDelete, kept, nil, "If-Match", harness.ETag([]byte("two")))
	o.ok(204, http.MethodDelete, kept, nil, "If-Match", "*")

	// Without versions attributes name none.
	put(200, one)
	if got := o.ok(http.StatusOK, http.MethodGet, k+"?attributes", nil, "x-amz-object-attributes", "ETag"); got.Header.Get("x-amz-version-id") != "" {
		t.Errorf("attributes: %v", got.Header)
	}
	upload := o.begin(bucket + "/up")
	o.refused(http.StatusBadRequest, "InvalidArgument", http.MethodPut, bucket+"/up?partNumber=1&uploadId="+upload, nil,
		"x-amz-copy-source", k, "x-amz-copy-source-range", "bytes=0-3")
	o.refused(412, "PreconditionFailed", http.MethodDelete, bucket+"/up?uploadId="+upload, nil, "x-amz-if-match-initiated-time", "Fri, 02 Jan 2015 03:04:05 GMT")
	o.ok(204, http.MethodDelete, bucket+"/up?uploadId="+upload, nil)
}
