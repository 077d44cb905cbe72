//go:build conformance

package conformance

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestVersionsOfObjects promises the rules of versioning, with each request at another node than the one before.
func TestVersionsOfObjects(t *testing.T) {
	t.Parallel() // a cluster of its own
	c := harness.Start(t, harness.Options{})
	o := newObjects(t, c, "versions@example.org")
	c.Leader().CLI("user", "quota", "versions@example.org", "unlimited")
	other := newObjects(t, c, "other@example.org")
	t.Run("kept", func(t *testing.T) { testVersionsKept(t, o.as(t), other.as(t)) })
	t.Run("null", func(t *testing.T) { testNullVersions(t, o.as(t)) })
	t.Run("copied", func(t *testing.T) { testVersionsCopied(t, o.as(t)) })
	t.Run("listed", func(t *testing.T) { testVersionsListed(t, o.as(t)) })
	t.Run("refused", func(t *testing.T) { testVersionsRefused(t, o.as(t)) })
	t.Run("many", func(t *testing.T) { testManyVersionsDeleted(t, o.as(t)) })
}

func versioning(status string) []byte {
	return []byte(`<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>` + status + `</Status></VersioningConfiguration>`)
}

// versioned makes a bucket that keeps versions, or has another status.
func (o *objects) versioned(name, status string) (path string) {
	o.t.Helper()
	path = "/" + name + randomName()
	o.ok(http.StatusOK, http.MethodPut, path, nil)
	o.ok(http.StatusOK, http.MethodPut, path+"?versioning", versioning(status))
	return path
}

// put stores an object and returns the version that it is.
func (o *objects) put(path, body string, pairs ...string) string {
	o.t.Helper()
	r := o.ok(http.StatusOK, http.MethodPut, path, []byte(body), pairs...)
	return r.Header.Get("X-Amz-Version-Id")
}

// holds fails the test unless a version has a body, by GET and by HEAD.
func (o *objects) holds(path, body, version string) {
	o.t.Helper()
	r := o.ok(http.StatusOK, http.MethodGet, path, nil)
	if got := r.Header.Get("X-Amz-Version-Id"); string(r.Body) != body || got != version {
		o.t.Errorf("%s holds %q as %s, want %q as %s", path, r.Body, got, body, version)
	}
	r = o.ok(http.StatusOK, http.MethodHead, path, nil)
	if got := r.Header.Get("X-Amz-Version-Id"); got != version || r.Header.Get("ETag") != harness.ETag([]byte(body)) {
		o.t.Errorf("HEAD %s: %v, want version %s", path, r.Header, version)
	}
}

// dropped deletes and returns which version the answer speaks of, and whether that is
// a delete marker.
func (o *objects) dropped(path string) (version string, marker bool) {
	o.t.Helper()
	r := o.ok(http.StatusNoContent, http.MethodDelete, path, nil)
	return r.Header.Get("X-Amz-Version-Id"), r.Header.Get("X-Amz-Delete-Marker") == "true"
}

// marked fails the test unless a key is below a delete marker.
func (o *objects) marked(path, marker string) {
	o.t.Helper()
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		r := o.refused(http.StatusNotFound, "NoSuchKey", method, path, nil)
		if r.Header.Get("X-Amz-Delete-Marker") != "true" || r.Header.Get("X-Amz-Version-Id") != marker {
			o.t.Errorf("%s %s: %v, want marker %s", method, path, r.Header, marker)
		}
		r = o.refused(http.StatusMethodNotAllowed, "MethodNotAllowed", method, path+"?versionId="+marker, nil)
		if r.Header.Get("X-Amz-Delete-Marker") != "true" || r.Header.Get("Allow") != "DELETE" || r.Header.Get("Last-Modified") == "" {
			o.t.Errorf("%s %s of the marker: %v", method, path, r.Header)
		}
	}
}

func testVersionsKept(t *testing.T, o, other *objects) {
	bucket := "/kept" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	status := func(want string) {
		t.Helper()
		if got := into[struct{ Status string }](t, o.ok(http.StatusOK, http.MethodGet, bucket+"?versioning", nil)).Status; got != want {
			t.Errorf("the bucket is %q, want %q", got, want)
		}
	}
	status("")
	k := bucket + "/k"
	was := o.put(k, "before")
	o.holds(k, "before", was)
	o.ok(http.StatusOK, http.MethodPut, bucket+"?versioning", versioning("Enabled"))
	status("Enabled")
	o.holds(k, "before", "null")
	one := o.put(k, "one")
	two := o.put(k, "two", "x-amz-tagging", "a=2")
	if len(slices.Compact([]string{"null", was, one, two})) != 4 {
		t.Fatalf("versions %q", []string{was, one, two})
	}
	o.holds(k, "two", two)
	o.holds(k+"?versionId="+one, "one", one)
	o.holds(k+"?versionId="+two, "two", two)
	o.holds(k+"?versionId=null", "before", "null")
	o.holds(k+"?versionId="+was, "before", "null")

	marker, is := o.dropped(k)
	if !is || marker == "" {
		t.Errorf("the deletion made %q", marker)
	}
	o.marked(k, marker)
	o.holds(k+"?versionId="+two, "two", two)
	o.refused(http.StatusConflict, "BucketNotEmpty", http.MethodDelete, bucket, nil)
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodPut, k, []byte("x"), "If-Match", "*")
	if l := into[listResult](t, o.ok(http.StatusOK, http.MethodGet, bucket+"?list-type=2", nil)); len(l.keys()) != 0 {
		t.Errorf("%v is listed", l.keys())
	}
	absent, is := o.dropped(bucket + "/absent")
	if !is {
		t.Errorf("a key that is not there got %q", absent)
	}
	o.marked(bucket+"/absent", absent)

	for _, q := range []string{"", "?versionId=" + two, "?versionId=null", "?tagging&versionId=" + two, "?acl&versionId=" + two} {
		other.refused(http.StatusNotFound, "NoSuchBucket", http.MethodGet, k+q, nil)
	}
	other.refused(http.StatusNotFound, "NoSuchBucket", http.MethodDelete, k+"?versionId="+two, nil)
	other.refused(http.StatusNotFound, "NoSuchBucket", http.MethodGet, bucket+"?versions", nil)
	other.refused(http.StatusNotFound, "NoSuchBucket", http.MethodPut, bucket+"?versioning", versioning("Suspended"))

	if gone, is := o.dropped(k + "?versionId=" + marker); gone != marker || !is {
		t.Errorf("the marker went as %q, %v", gone, is)
	}
	o.holds(k, "two", two) // again
	if gone, is := o.dropped(k + "?versionId=" + one); gone != one || is {
		t.Errorf("a version went as %q, %v", gone, is)
	}
	o.refused(http.StatusNotFound, "NoSuchVersion", http.MethodGet, k+"?versionId="+one, nil)
	o.dropped(k + "?versionId=" + two)
	o.holds(k, "before", "null")
	o.dropped(k + "?versionId=null")
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, k, nil)
	o.dropped(k + "?versionId=" + one) // once more
	o.dropped(bucket + "/absent?versionId=" + absent)
	o.ok(http.StatusNoContent, http.MethodDelete, bucket, nil)
}

func testNullVersions(t *testing.T, o *objects) {
	bucket := o.versioned("null", "Enabled")
	k := bucket + "/k"
	one := o.put(k, "one")
	o.ok(http.StatusOK, http.MethodPut, bucket+"?versioning", versioning("Suspended"))
	for _, body := range []string{"two", "three"} {
		if id := o.put(k, body); id != "null" {
			t.Errorf("a put in a suspended bucket is %q", id)
		}
		o.holds(k, body, "null")
	}
	o.holds(k+"?versionId="+one, "one", one)
	if id, is := o.dropped(k); id != "null" || !is {
		t.Errorf("a deletion in a suspended bucket made %q, %v", id, is)
	}
	o.marked(k, "null")
	o.ok(http.StatusOK, http.MethodPut, bucket+"?versioning", versioning("Enabled"))
	four := o.put(k, "four")
	o.holds(k, "four", four)
	o.ok(http.StatusOK, http.MethodPut, bucket+"?versioning", versioning("Suspended"))
	o.put(k, "five") // in the place of the marker, which is not the newest
	want := []string{"k null latest", "k " + four, "k " + one}
	if got := o.versions(bucket, "").lines(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, id := range []string{"null", four, one} {
		o.dropped(k + "?versionId=" + id)
	}
	o.ok(http.StatusNoContent, http.MethodDelete, bucket, nil)
}

func testVersionsCopied(t *testing.T, o *objects) {
	bucket := o.versioned("copied", "Enabled")
	k := bucket + "/k"
	old := o.put(k, "old", "x-amz-meta-m", "1")
	now := o.put(k, "now")
	from := func(path, version string) []string {
		return []string{"x-amz-copy-source", path + "?versionId=" + version}
	}
	r := o.ok(http.StatusOK, http.MethodPut, k, nil, from(k, old)...)
	again := r.Header.Get("X-Amz-Version-Id")
	if r.Header.Get("X-Amz-Copy-Source-Version-Id") != old || again == old || again == "" {
		t.Errorf("%v", r.Header)
	}
	o.holds(k, "old", again)
	o.holds(k+"?versionId="+now, "now", now)
	r = o.ok(http.StatusOK, http.MethodPut, bucket+"/copy", nil, "x-amz-copy-source", k)
	if r.Header.Get("X-Amz-Copy-Source-Version-Id") != again {
		t.Errorf("the copy of the current one is of %v", r.Header)
	}
	up := o.begin(k)
	r = o.ok(http.StatusOK, http.MethodPut, k+"?partNumber=1&uploadId="+up, nil, from(k, now)...)
	if r.Header.Get("X-Amz-Copy-Source-Version-Id") != now {
		t.Errorf("%v", r.Header)
	}
	part := into[struct{ ETag string }](t, r).ETag
	r = o.ok(http.StatusOK, http.MethodPost, k+"?uploadId="+up, harness.Completion(1, part))
	whole := r.Header.Get("X-Amz-Version-Id")
	if r := o.ok(http.StatusOK, http.MethodGet, k, nil); string(r.Body) != "now" || r.Header.Get("X-Amz-Version-Id") != whole || whole == "" {
		t.Errorf("%q as %v, want %s", r.Body, r.Header, whole)
	}
	// What belongs to one version is its own.
	o.ok(http.StatusOK, http.MethodPut, k+"?tagging&versionId="+old, []byte("<Tagging><TagSet><Tag><Key>a</Key><Value>old</Value></Tag></TagSet></Tagging>"))
	if r := o.ok(http.StatusOK, http.MethodGet, k+"?tagging&versionId="+old, nil); !strings.Contains(string(r.Body), "<Value>old</Value>") || r.Header.Get("X-Amz-Version-Id") != old {
		t.Errorf("%v %s", r.Header, r.Body)
	}
	if r := o.ok(http.StatusOK, http.MethodPut, k+"?tagging", []byte("<Tagging><TagSet><Tag><Key>a</Key><Value>new</Value></Tag></TagSet></Tagging>")); r.Header.Get("X-Amz-Version-Id") != whole {
		t.Errorf("tagged %s, the current version is %s", r.Header.Get("X-Amz-Version-Id"), whole)
	}
	if r := o.ok(http.StatusOK, http.MethodGet, k+"?tagging", nil); strings.Contains(string(r.Body), "old") {
		t.Errorf("%s", r.Body)
	}
	o.ok(http.StatusNoContent, http.MethodDelete, k+"?tagging&versionId="+old, nil)
	o.ok(http.StatusOK, http.MethodGet, k+"?acl&versionId="+old, nil)
	r = o.ok(http.StatusOK, http.MethodGet, k+"?attributes&versionId="+old, nil, "x-amz-object-attributes", "ObjectSize,ETag")
	if r.Header.Get("X-Amz-Version-Id") != old || !strings.Contains(string(r.Body), "<ObjectSize>3</ObjectSize>") {
		t.Errorf("%v %s", r.Header, r.Body)
	}
	if r := o.ok(http.StatusOK, http.MethodGet, k+"?bao&versionId="+old, nil); r.Header.Get("X-Amz-Version-Id") != old {
		t.Errorf("%v", r.Header)
	}
	marker, _ := o.dropped(k)
	o.refused(http.StatusBadRequest, "InvalidRequest", http.MethodPut, bucket+"/copy", nil, from(k, marker)...)
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodPut, bucket+"/copy", nil, "x-amz-copy-source", k)
	o.refused(http.StatusNotFound, "NoSuchVersion", http.MethodPut, bucket+"/copy", nil, from(k, "other")...)
}

// versionsPage is the answer to ListObjectVersions, as far as it is looked at.
type versionsPage struct {
	IsTruncated         bool
	NextKeyMarker       string
	NextVersionIDMarker string `xml:"NextVersionIdMarker"`
	CommonPrefixes      []struct{ Prefix string }
	Entries             []versionEntry `xml:",any"` // versions and markers in one order
}

type versionEntry struct {
	XMLName   xml.Name
	Key       string
	VersionID string `xml:"VersionId"`
	IsLatest  bool
}

func (o *objects) versions(bucket, query string) versionsPage {
	o.t.Helper()
	p := into[versionsPage](o.t, o.ok(http.StatusOK, http.MethodGet, bucket+"?versions"+query, nil))
	p.Entries = slices.DeleteFunc(p.Entries, func(e versionEntry) bool {
		return e.XMLName.Local != "Version" && e.XMLName.Local != "DeleteMarker"
	})
	return p
}

// lines returns the entries of a page as text.
func (p versionsPage) lines() (lines []string) {
	for _, e := range p.Entries {
		line := e.Key + " " + e.VersionID
		if e.XMLName.Local == "DeleteMarker" {
			line += " marker"
		}
		if e.IsLatest {
			line += " latest"
		}
		lines = append(lines, line)
	}
	return lines
}

func testVersionsListed(t *testing.T, o *objects) {
	bucket := o.versioned("listed", "Enabled")
	var want []string
	for _, key := range []string{"a", "b/1", "b/2", "c"} {
		var of []string
		for n := range 3 {
			id := o.put(bucket+"/"+key, fmt.Sprint(key, n))
			of = append(of, key+" "+id)
		}
		if key == "a" || key == "b/1" {
			id, _ := o.dropped(bucket + "/" + key)
			of = append(of, key+" "+id+" marker")
		}
		slices.Reverse(of)
		of[0] += " latest"
		want = append(want, of...)
	}
	if got := o.versions(bucket, ""); !slices.Equal(got.lines(), want) || got.IsTruncated {
		t.Errorf("%q, want %q", got.lines(), want)
	}
	for limit := range len(want) + 1 {
		var got []string
		for query := ""; ; {
			page := o.versions(bucket, fmt.Sprintf("&max-keys=%d%s", limit+1, query))
			got = append(got, page.lines()...)
			if !page.IsTruncated {
				break
			}
			query = "&key-marker=" + page.NextKeyMarker + "&version-id-marker=" + page.NextVersionIDMarker
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %q, want %q", limit+1, got, want)
		}
	}
	page := o.versions(bucket, "&delimiter=/&max-keys=5")
	if len(page.CommonPrefixes) != 1 || page.CommonPrefixes[0].Prefix != "b/" || page.NextKeyMarker != "b/" || page.NextVersionIDMarker != "" {
		t.Errorf("%+v", page)
	}
	if page = o.versions(bucket, "&delimiter=/&key-marker=b/"); !slices.Equal(page.lines(), want[8+3:]) || len(page.CommonPrefixes) != 0 {
		t.Errorf("behind the prefix: %q", page.lines())
	}
	if page = o.versions(bucket, "&prefix=b/2"); !slices.Equal(page.lines(), want[8:8+3]) {
		t.Errorf("b/2: %q", page.lines())
	}
	// A tool deletes what a page has, and goes on behind it.
	for query := ""; ; {
		page := o.versions(bucket, "&max-keys=3"+query)
		for _, e := range page.Entries {
			o.dropped(bucket + "/" + e.Key + "?versionId=" + e.VersionID)
		}
		if !page.IsTruncated {
			break
		}
		query = "&key-marker=" + page.NextKeyMarker + "&version-id-marker=" + page.NextVersionIDMarker
	}
	o.ok(http.StatusNoContent, http.MethodDelete, bucket, nil)
	plain := "/plain" + randomName()
	o.ok(http.StatusOK, http.MethodPut, plain, nil)
	id := o.put(plain+"/k", "x")
	if got := o.versions(plain, "").lines(); !slices.Equal(got, []string{"k " + id + " latest"}) {
		t.Errorf("a bucket without versioning has %q", got)
	}
	for _, at := range []string{"/k?versionId=other", "/nothing?versionId=other", "/nothing?versionId=null", "/nothing?tagging&versionId=other"} {
		o.refused(http.StatusNotFound, "NoSuchVersion", http.MethodGet, plain+at, nil)
	}
	o.ok(http.StatusNoContent, http.MethodDelete, plain+"/nothing?versionId=other", nil)
}

func testVersionsRefused(t *testing.T, o *objects) {
	bucket := o.versioned("refused", "Enabled")
	id := o.put(bucket+"/k", "kept")
	for _, body := range []string{"", "x", "<VersioningConfiguration><Status>Off</Status></VersioningConfiguration>", "<Other/>"} {
		o.refused(http.StatusBadRequest, "MalformedXML", http.MethodPut, bucket+"?versioning", []byte(body))
	}
	o.refused(http.StatusBadRequest, "IllegalVersioningConfigurationException", http.MethodPut, bucket+"?versioning", []byte("<VersioningConfiguration/>"))
	o.refused(http.StatusNotImplemented, "NotImplemented", http.MethodPut, bucket+"?versioning",
		[]byte("<VersioningConfiguration><Status>Suspended</Status><MfaDelete>Enabled</MfaDelete></VersioningConfiguration>"))
	o.refused(http.StatusNotFound, "NoSuchBucket", http.MethodPut, bucket+"x?versioning", versioning("Enabled"))
	for _, bad := range []string{"", "%20", "a%2Fb", strings.Repeat("x", 200)} {
		o.refused(http.StatusBadRequest, "InvalidArgument", http.MethodGet, bucket+"/k?versionId="+bad, nil)
		o.refused(http.StatusBadRequest, "InvalidArgument", http.MethodDelete, bucket+"/k?versionId="+bad, nil)
	}
	o.refused(http.StatusBadRequest, "InvalidArgument", http.MethodGet, bucket+"?versions&version-id-marker="+id, nil)
	o.refused(http.StatusBadRequest, "InvalidArgument", http.MethodPut, bucket+"/k?versionId="+id, []byte("x"))
	o.refused(http.StatusPreconditionFailed, "PreconditionFailed", http.MethodPut, bucket+"/k", []byte("x"), "If-None-Match", "*")
	o.refused(http.StatusPreconditionFailed, "PreconditionFailed", http.MethodDelete, bucket+"/k?versionId="+id, nil, "If-Match", `"x"`)
	for _, q := range []string{"?versionId=other", "?tagging&versionId=other", "?acl&versionId=other"} {
		o.refused(http.StatusNotFound, "NoSuchVersion", http.MethodGet, bucket+"/k"+q, nil)
	}
	if got := o.versions(bucket, "").lines(); !slices.Equal(got, []string{"k " + id + " latest"}) {
		t.Errorf("what was refused left %q", got)
	}
	o.holds(bucket+"/k", "kept", id)
}

func testManyVersionsDeleted(t *testing.T, o *objects) {
	bucket := o.versioned("many", "Enabled")
	one, two := o.put(bucket+"/a", "one"), o.put(bucket+"/a", "two")
	gone := o.put(bucket+"/b", "three")
	marker, _ := o.dropped(bucket + "/b")
	type result struct {
		Deleted []struct {
			Key                   string
			VersionID             string `xml:"VersionId"`
			DeleteMarker          bool
			DeleteMarkerVersionID string `xml:"DeleteMarkerVersionId"`
		}
		Error []struct{ Key, Code string }
	}
	many := func(pairs ...string) result {
		t.Helper()
		var b strings.Builder
		b.WriteString("<Delete>")
		for i := 0; i < len(pairs); i += 2 {
			fmt.Fprintf(&b, "<Object><Key>%s</Key>", pairs[i])
			if pairs[i+1] != "" {
				fmt.Fprintf(&b, "<VersionId>%s</VersionId>", pairs[i+1])
			}
			b.WriteString("</Object>")
		}
		b.WriteString("</Delete>")
		return into[result](t, o.ok(http.StatusOK, http.MethodPost, bucket+"?delete", []byte(b.String())))
	}
	r := many("a", one, "b", marker, "c", "", "a", "other", "a", "a b")
	if len(r.Deleted) != 4 || len(r.Error) != 1 || r.Error[0].Code != "InvalidArgument" {
		t.Fatalf("%+v", r)
	}
	if d := r.Deleted[0]; d.VersionID != one || d.DeleteMarker {
		t.Errorf("a version: %+v", d)
	}
	if d := r.Deleted[1]; d.VersionID != marker || !d.DeleteMarker || d.DeleteMarkerVersionID != marker {
		t.Errorf("a marker: %+v", d)
	}
	if d := r.Deleted[2]; d.VersionID != "" || !d.DeleteMarker || d.DeleteMarkerVersionID == "" {
		t.Errorf("a key: %+v", d)
	}
	o.holds(bucket+"/a", "two", two)
	o.holds(bucket+"/b", "three", gone)
	o.marked(bucket+"/c", r.Deleted[2].DeleteMarkerVersionID)

	// A thousand versions in one request.
	var pairs []string
	for n := range 1000 {
		key := fmt.Sprint("k", n)
		pairs = append(pairs, key, o.put(bucket+"/"+key, "x"))
	}
	if r := many(pairs...); len(r.Deleted) != 1000 || len(r.Error) != 0 {
		t.Errorf("%d of 1,000 versions are deleted, %v", len(r.Deleted), r.Error)
	}
	if got := o.versions(bucket, "&prefix=k"); len(got.Entries) != 0 {
		t.Errorf("%q are left", got.lines())
	}
}

// TestStockToolsUseVersions promises that versions work with aws, rclone and minio-go.
func TestStockToolsUseVersions(t *testing.T) {
	t.Parallel() // a cluster of its own
	g := newGateway(t, harness.Options{})
	t.Run("aws", func(t *testing.T) { testAWSVersions(t, g) })
	t.Run("rclone", func(t *testing.T) { testRcloneVersions(t, g) })
	t.Run("minio-go", func(t *testing.T) { testMinioVersions(t, g) })
}

func testAWSVersions(t *testing.T, g gateway) {
	longForm(t)
	x := g.tool(t)
	bucket := "aws" + randomName()
	api := func(out any, call string, args ...string) {
		t.Helper()
		text := x.run("aws", append([]string{"--endpoint-url", g.node.S3URL(), "--output", "json", "s3api", call, "--bucket", bucket}, args...)...)
		if out != nil {
			if err := json.Unmarshal([]byte(text), out); err != nil {
				t.Fatalf("%s: %v\n%s", call, err, text)
			}
		}
	}
	type made struct {
		VersionID    string `json:"VersionId"`
		DeleteMarker bool
	}
	api(nil, "create-bucket")
	api(nil, "put-bucket-versioning", "--versioning-configuration", "Status=Enabled")
	var status struct{ Status string }
	if api(&status, "get-bucket-versioning"); status.Status != "Enabled" {
		t.Errorf("%+v", status)
	}
	var one, two, marker made
	first, second := x.file("one", 70_000), x.file("two", 5)
	api(&one, "put-object", "--key", "k", "--body", first)
	api(&two, "put-object", "--key", "k", "--body", second)
	if api(&marker, "delete-object", "--key", "k"); !marker.DeleteMarker || one.VersionID == two.VersionID {
		t.Fatalf("%+v %+v %+v", one, two, marker)
	}
	api(nil, "get-object", "--key", "k", "--version-id", one.VersionID, filepath.Join(x.home, "back"))
	x.same(first, filepath.Join(x.home, "back"))
	if out, err := x.try("aws", "--endpoint-url", g.node.S3URL(), "s3api", "get-object", "--bucket", bucket, "--key", "k", filepath.Join(x.home, "none")); err == nil || !strings.Contains(out, "NoSuchKey") {
		t.Errorf("%v %s", err, out)
	}
	type versions struct {
		Versions      []made
		DeleteMarkers []made
	}
	var all versions
	api(&all, "list-object-versions", "--page-size", "1") // the tool goes from page to page
	if len(all.Versions) != 2 || all.Versions[0].VersionID != two.VersionID || all.Versions[1].VersionID != one.VersionID ||
		len(all.DeleteMarkers) != 1 || all.DeleteMarkers[0].VersionID != marker.VersionID {
		t.Errorf("%+v", all)
	}
	var copied struct {
		CopySourceVersionID string `json:"CopySourceVersionId"`
		VersionID           string `json:"VersionId"`
	}
	api(&copied, "copy-object", "--key", "k", "--copy-source", bucket+"/k?versionId="+one.VersionID)
	if copied.CopySourceVersionID != one.VersionID {
		t.Errorf("%+v", copied)
	}
	api(nil, "get-object", "--key", "k", filepath.Join(x.home, "again"))
	x.same(first, filepath.Join(x.home, "again"))
	var gone made
	if api(&gone, "delete-object", "--key", "k", "--version-id", marker.VersionID); !gone.DeleteMarker || gone.VersionID != marker.VersionID {
		t.Errorf("%+v", gone)
	}
	for _, id := range []string{one.VersionID, two.VersionID, copied.VersionID} {
		api(nil, "delete-object", "--key", "k", "--version-id", id)
	}
	api(nil, "delete-bucket")
}

func testRcloneVersions(t *testing.T, g gateway) {
	x := g.tool(t, "RCLONE_LOG_LEVEL=ERROR", "RCLONE_CONFIG_R_TYPE=s3", "RCLONE_CONFIG_R_PROVIDER=Other", "RCLONE_CONFIG_R_ENV_AUTH=true", "RCLONE_CONFIG_R_ENDPOINT="+g.node.S3URL())
	bucket := "rclone" + randomName()
	x.run("rclone", "mkdir", "r:"+bucket)
	x.has(x.run("rclone", "backend", "versioning", "r:"+bucket, "Enabled"), "Enabled")
	for n := range 3 {
		x.run("rclone", "copyto", x.file("in", 10+n), "r:"+bucket+"/dir/f.bin")
	}
	x.run("rclone", "deletefile", "r:"+bucket+"/dir/f.bin")
	if out := strings.TrimSpace(x.run("rclone", "lsf", "-R", "--files-only", "r:"+bucket)); out != "" {
		t.Errorf("%q is listed", out)
	}
	old := strings.Fields(x.run("rclone", "lsf", "-R", "--files-only", "--s3-versions", "r:"+bucket))
	if len(old) != 3 {
		t.Fatalf("versions: %q", old)
	}
	into := filepath.Join(x.home, "out")
	x.run("rclone", "copy", "--s3-versions", "r:"+bucket, into)
	sizes := 0
	for _, name := range old {
		f, err := os.Stat(filepath.Join(into, name))
		if err != nil {
			t.Fatal(err)
		}
		sizes += int(f.Size())
	}
	if sizes != 10+11+12 {
		t.Errorf("the versions have %d bytes together", sizes)
	}
	x.run("rclone", "backend", "cleanup-hidden", "r:"+bucket)
	if out := strings.TrimSpace(x.run("rclone", "lsf", "-R", "--files-only", "--s3-versions", "r:"+bucket)); out != "" {
		t.Errorf("%q is left", out)
	}
	x.run("rclone", "purge", "r:"+bucket)
}

func testMinioVersions(t *testing.T, g gateway) {
	ctx, c := t.Context(), g.minio(t, true)
	bucket := "minio" + randomName()
	if err := c.MakeBucket(ctx, bucket, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.EnableVersioning(ctx, bucket); err != nil {
		t.Fatal(err)
	}
	if status, err := c.GetBucketVersioning(ctx, bucket); err != nil || !status.Enabled() {
		t.Fatalf("%+v, %v", status, err)
	}
	for n := range 5 {
		body := fmt.Sprint("body ", n)
		if _, err := c.PutObject(ctx, bucket, fmt.Sprint("k", n%2), strings.NewReader(body), int64(len(body)), minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.RemoveObject(ctx, bucket, "k0", minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.SuspendVersioning(ctx, bucket); err != nil {
		t.Fatal(err)
	}
	var all []minio.ObjectInfo
	latest, markers := 0, 0
	for o := range c.ListObjects(ctx, bucket, minio.ListObjectsOptions{WithVersions: true, Recursive: true, MaxKeys: 2}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		if all = append(all, o); o.IsLatest {
			latest++
		}
		if o.IsDeleteMarker {
			markers++
		}
	}
	if len(all) != 6 || latest != 2 || markers != 1 {
		t.Errorf("%d versions, %d latest, %d markers: %+v", len(all), latest, markers, all)
	}
	stat, err := c.StatObject(ctx, bucket, all[len(all)-1].Key, minio.StatObjectOptions{VersionID: all[len(all)-1].VersionID})
	if err != nil || stat.VersionID != all[len(all)-1].VersionID {
		t.Errorf("%+v, %v", stat, err)
	}
	doomed := make(chan minio.ObjectInfo, len(all))
	for _, o := range all {
		doomed <- o
	}
	close(doomed)
	for r := range c.RemoveObjectsWithResult(ctx, bucket, doomed, minio.RemoveObjectsOptions{}) {
		if r.Err != nil {
			t.Errorf("%+v", r)
		}
	}
	if err := c.RemoveBucket(ctx, bucket); err != nil {
		t.Fatal(err)
	}
}

// Writers of TestVersionsOutliveNodesThatDie.
const (
	versionWriters = 6
	versionKeys    = 2
	versionWrites  = 300 // acknowledged, markers included
)

// TestVersionsOutliveNodesThatDie promises that every acknowledged version is there once and in order after a
// follower and the leader were killed under load. The order is that of the acknowledgements of its client. Nothing is
// there that nobody asked for. Clients put and delete a few keys.
func TestVersionsOutliveNodesThatDie(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: []string{"HOLDFAST_API_ACCOUNT_RATE=0", "HOLDFAST_API_ADDRESS_RATE=0"}})
	o := newObjects(t, c, "fire@example.org")
	c.Leader().CLI("user", "quota", "fire@example.org", "unlimited")
	v := &versionLoad{objects: o, bucket: o.versioned("fire", "Enabled"), acked: map[string]int{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers errgroup.Group
	for w := range versionWriters {
		writers.Go(func() error { return v.write(ctx, w) })
	}
	for i, victim := range []func() *harness.Node{func() *harness.Node { return c.Followers()[0] }, c.Leader} {
		v.await(t, (i+1)*versionWrites/3)
		n := victim()
		n.Kill()
		harness.Pause(ctx, crashDown)
		n.Restart()
		c.Settle()
	}
	v.await(t, versionWrites)
	stop()
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	seen, newest := map[string]bool{}, map[string]int{}
	for query := ""; ; {
		page := o.versions(v.bucket, "&max-keys=100"+query)
		for _, e := range page.Entries {
			name := e.Key + " " + e.VersionID
			at, known := v.acked[name]
			if seen[name] {
				t.Errorf("%s is there twice", name)
			}
			if seen[name] = true; !known {
				continue
			}
			of := fmt.Sprint(e.Key, " of client ", at>>32)
			if later, ok := newest[of]; ok && later < at {
				t.Errorf("%s: the write %d comes before %d", of, at&0xffff, later&0xffff)
			}
			newest[of] = at
		}
		if !page.IsTruncated {
			break
		}
		query = "&key-marker=" + page.NextKeyMarker + "&version-id-marker=" + page.NextVersionIDMarker
	}
	for name := range v.acked {
		if !seen[name] {
			t.Errorf("%s was acknowledged and is gone", name)
		}
	}
	if len(seen) > len(v.acked)+v.unknown {
		t.Errorf("%d versions of %d writes and %d without an answer", len(seen), len(v.acked), v.unknown)
	}
	t.Logf("%d writes acknowledged, %d without an answer", len(v.acked), v.unknown)
}

// versionLoad is writes to few keys through all nodes.
type versionLoad struct {
	*objects
	bucket string

	// mu guards the fields below.
	mu      sync.Mutex
	acked   map[string]int // by key and version: the client, and the number of its write
	unknown int            // writes whose end nobody knows
}

func (v *versionLoad) await(t *testing.T, n int) {
	t.Helper()
	harness.Eventually(t, crashSettledSoon, fmt.Sprintf("%d writes are acknowledged", n), func() (bool, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		return len(v.acked) >= n, nil
	})
}

// write puts, and each third time deletes, until its context ends.
func (v *versionLoad) write(ctx context.Context, client int) error {
	for n := 0; ctx.Err() == nil; n++ {
		key, method, body := fmt.Sprint("k", n%versionKeys), http.MethodPut, fmt.Appendf(nil, "%d.%d", client, n)
		if n%3 == 2 {
			method, body = http.MethodDelete, nil
		}
		r, err := v.tryOn(v.cluster.Nodes[(client+n)%len(v.cluster.Nodes)], method, v.bucket+"/"+key, body)
		done := err == nil && (r.Status == http.StatusOK || r.Status == http.StatusNoContent)
		if err == nil && !done && r.Status != http.StatusServiceUnavailable {
			return fmt.Errorf("%s %s: %d %s", method, key, r.Status, r.Body)
		}
		v.mu.Lock()
		if done {
			v.acked[key+" "+r.Header.Get("X-Amz-Version-Id")] = client<<32 | n
		} else {
			v.unknown++
		}
		v.mu.Unlock()
		if !done {
			harness.Pause(ctx, fireRetry)
		}
	}
	return nil
}
