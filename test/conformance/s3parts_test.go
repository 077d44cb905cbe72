//go:build conformance

package conformance

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

type initiated struct {
	XMLName               xml.Name `xml:"InitiateMultipartUploadResult"`
	Bucket, Key, UploadId string   //nolint:revive // as the element is called
}

// uploads is multipart uploads into one bucket.
type uploads struct {
	*objects
	bucket string
}

func (u *uploads) begin(key string, pairs ...string) string {
	u.t.Helper()
	return u.objects.begin(u.bucket+"/"+key, pairs...)
}

func (u *uploads) part(key, id string, n int, data []byte) string {
	u.t.Helper()
	return u.objects.part(u.bucket+"/"+key, id, n, data)
}

func testS3Multipart(t *testing.T, o *objects) {
	u := &uploads{o, "/parts" + randomName()}
	o.ok(http.StatusOK, http.MethodPut, u.bucket, nil)
	whole := testS3Assembly(t, u)
	testS3SmallParts(t, u)
	testS3Aborts(t, u)
	testS3PartCopies(t, u, whole)
}

// testS3Assembly makes an object of three parts and returns its content.
func testS3Assembly(t *testing.T, u *uploads) []byte {
	o, bucket := u.objects, u.bucket
	id := u.begin("big", "Content-Type", "x/y", "x-amz-meta-colour", "blue", "x-amz-tagging", "t=1")
	parts := [][]byte{harness.RandomBytes(5_000_000), harness.RandomBytes(6 << 20), harness.RandomBytes(100)}
	whole := bytes.Join(parts, nil)
	etags := make([]string, 3)
	for _, n := range []int{3, 1, 2} { // in any order
		etags[n-1] = u.part("big", id, n, parts[n-1])
	}
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/big", nil)
	if r := o.ok(http.StatusOK, http.MethodGet, bucket+"/big?uploadId="+id, nil); bytes.Count(r.Body, []byte("<Part>")) != 3 {
		t.Errorf("parts: %s", r.Body)
	}
	if r := o.ok(http.StatusOK, http.MethodGet, bucket+"?uploads", nil); !bytes.Contains(r.Body, []byte(id)) {
		t.Errorf("uploads: %s", r.Body)
	}
	path := bucket + "/big?uploadId=" + id
	o.refused(http.StatusBadRequest, "InvalidPart", http.MethodPost, path, harness.Completion(1, etags[1], 2, etags[1]))
	o.refused(http.StatusBadRequest, "InvalidPart", http.MethodPost, path, harness.Completion(1, etags[0], 4, etags[1]))
	o.refused(http.StatusBadRequest, "InvalidPartOrder", http.MethodPost, path, harness.Completion(2, etags[1], 1, etags[0]))
	o.refused(http.StatusBadRequest, "MalformedXML", http.MethodPost, path, harness.Completion())
	o.refused(http.StatusBadRequest, "MalformedXML", http.MethodPost, path, []byte("<nonsense"))
	type result struct {
		XMLName                     xml.Name `xml:"CompleteMultipartUploadResult"`
		Location, Bucket, Key, ETag string
	}
	want := harness.PartsETag(parts...)
	for range 2 { // told twice, it answers twice
		r := into[result](t, o.ok(http.StatusOK, http.MethodPost, path, harness.Completion(1, etags[0], 2, etags[1], 3, etags[2])))
		if r.ETag != want || r.Bucket != bucket[1:] || r.Key != "big" || r.Location == "" {
			t.Errorf("%+v, want ETag %s", r, want)
		}
	}
	for range o.cluster.Nodes {
		got := o.ok(http.StatusOK, http.MethodGet, bucket+"/big", nil)
		if !bytes.Equal(got.Body, whole) || got.Header.Get("ETag") != want || got.Header.Get("Content-Type") != "x/y" ||
			got.Header.Get("x-amz-meta-colour") != "blue" || got.Header.Get("x-amz-tagging-count") != "1" {
			t.Errorf("%d bytes, %v", len(got.Body), got.Header)
		}
	}
	if got := o.ok(http.StatusPartialContent, http.MethodGet, bucket+"/big", nil, "Range", "bytes=4999990-5000009"); !bytes.Equal(got.Body, whole[4999990:5000010]) {
		t.Error("a range over two parts is wrong")
	}
	if got := o.ok(http.StatusPartialContent, http.MethodGet, bucket+"/big?partNumber=3", nil); !bytes.Equal(got.Body, parts[2]) {
		t.Errorf("part 3 has %d bytes", len(got.Body))
	}
	o.refused(http.StatusNotFound, "NoSuchUpload", http.MethodPut, bucket+"/big?partNumber=1&uploadId="+id, []byte("x"))
	return whole
}

func testS3SmallParts(t *testing.T, u *uploads) {
	o, bucket := u.objects, u.bucket
	id := u.begin("small")
	first, last := u.part("small", id, 1, []byte("too small")), u.part("small", id, 2, []byte("last"))
	o.refused(http.StatusBadRequest, "EntityTooSmall", http.MethodPost, bucket+"/small?uploadId="+id, harness.Completion(1, first, 2, last))
	for _, n := range []string{"0", "10001", "-1", "x"} {
		o.refused(http.StatusBadRequest, "InvalidArgument", http.MethodPut, bucket+"/small?partNumber="+n+"&uploadId="+id, []byte("x"))
	}
	first = u.part("small", id, 1, []byte("the last wins"))
	o.ok(http.StatusOK, http.MethodPost, bucket+"/small?uploadId="+id, harness.Completion(1, first)) // a subset
	if got := o.ok(http.StatusOK, http.MethodGet, bucket+"/small", nil); string(got.Body) != "the last wins" {
		t.Errorf("%q", got.Body)
	}
}

func testS3Aborts(t *testing.T, u *uploads) {
	o, bucket := u.objects, u.bucket
	id := u.begin("aborted")
	etag := u.part("aborted", id, 1, []byte("x"))
	other := newObjects(t, o.cluster, "other-parts@example.org")
	other.ok(http.StatusOK, http.MethodPut, bucket, nil)
	for _, absent := range []string{bucket + "/aborted?uploadId=nonsense", bucket + "/other?uploadId=" + id} {
		o.refused(http.StatusNotFound, "NoSuchUpload", http.MethodDelete, absent, nil)
		o.refused(http.StatusNotFound, "NoSuchUpload", http.MethodGet, absent, nil)
		o.refused(http.StatusNotFound, "NoSuchUpload", http.MethodPut, absent+"&partNumber=1", []byte("x"))
		o.refused(http.StatusNotFound, "NoSuchUpload", http.MethodPost, absent, harness.Completion(1, etag))
	}
	other.refused(http.StatusNotFound, "NoSuchUpload", http.MethodDelete, bucket+"/aborted?uploadId="+id, nil)
	o.ok(http.StatusNoContent, http.MethodDelete, bucket+"/aborted?uploadId="+id, nil)
	o.refused(http.StatusNotFound, "NoSuchUpload", http.MethodPut, bucket+"/aborted?partNumber=2&uploadId="+id, []byte("x"))
}

// testS3PartCopies makes an object of pieces of another, whose content is whole.
func testS3PartCopies(t *testing.T, u *uploads, whole []byte) {
	o, bucket := u.objects, u.bucket
	id := u.begin("copied")
	type partCopy struct {
		XMLName xml.Name `xml:"CopyPartResult"`
		ETag    string
	}
	path := func(n int) string { return fmt.Sprintf("%s/copied?partNumber=%d&uploadId=%s", bucket, n, id) }
	c1 := into[partCopy](t, o.ok(http.StatusOK, http.MethodPut, path(1), nil, "x-amz-copy-source", bucket+"/big"))
	c2 := into[partCopy](t, o.ok(http.StatusOK, http.MethodPut, path(2), nil, "x-amz-copy-source", bucket+"/big", "x-amz-copy-source-range", "bytes=5-14"))
	o.ok(http.StatusOK, http.MethodPost, bucket+"/copied?uploadId="+id, harness.Completion(1, c1.ETag, 2, c2.ETag))
	if got := o.ok(http.StatusOK, http.MethodGet, bucket+"/copied", nil); !bytes.Equal(got.Body, append(bytes.Clone(whole), whole[5:15]...)) {
		t.Errorf("copied parts make %d bytes", len(got.Body))
	}
}

func testS3Tags(t *testing.T, o *objects) {
	bucket := "/tags" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/k", []byte("x"))
	path := bucket + "/k?tagging"
	tagging := func(pairs ...string) []byte {
		var b strings.Builder
		b.WriteString("<Tagging><TagSet>")
		for i := 0; i < len(pairs); i += 2 {
			fmt.Fprintf(&b, "<Tag><Key>%s</Key><Value>%s</Value></Tag>", pairs[i], pairs[i+1])
		}
		b.WriteString("</TagSet></Tagging>")
		return []byte(b.String())
	}
	type result struct {
		XMLName xml.Name `xml:"Tagging"`
		TagSet  struct {
			Tag []struct{ Key, Value string }
		}
	}
	get := func() string {
		t.Helper()
		return fmt.Sprint(into[result](t, o.ok(http.StatusOK, http.MethodGet, path, nil)).TagSet.Tag)
	}
	if get() != "[]" {
		t.Error(get())
	}
	var ten []string
	for i := range 10 {
		ten = append(ten, strings.Repeat("🔑", 127)+string(rune('z'-i)), strings.Repeat("ü", 256))
	}
	if r := o.ok(http.StatusOK, http.MethodPut, path, tagging(ten...)); r.Header.Get("Content-Length") != "0" {
		t.Errorf("%v", r.Header)
	}
	if got := get(); !strings.HasPrefix(got, "[{"+ten[0]) || strings.Count(got, "{") != 10 {
		t.Error(got)
	}
	o.ok(http.StatusOK, http.MethodPut, path, tagging("b", "2", "a", ""))
	if get() != "[{b 2} {a }]" {
		t.Error(get())
	}
	for _, bad := range [][]string{
		append(ten[:20:20], "more", "1"), {"", "x"}, {strings.Repeat("k", 129), "x"}, {"k", strings.Repeat("v", 257)}, {"k", "1", "k", "2"},
	} {
		o.refused(http.StatusBadRequest, "InvalidTag", http.MethodPut, path, tagging(bad...))
	}
	o.refused(http.StatusBadRequest, "MalformedXML", http.MethodPut, path, []byte("<Tagging><TagSet>"))
	if get() != "[{b 2} {a }]" {
		t.Error("a refused set of tags changed something:", get())
	}
	if r := o.ok(http.StatusOK, http.MethodGet, bucket+"/k", nil); r.Header.Get("x-amz-tagging-count") != "2" {
		t.Errorf("%v", r.Header)
	}
	o.ok(http.StatusNoContent, http.MethodDelete, path, nil)
	if get() != "[]" {
		t.Error(get())
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		o.refused(http.StatusNotFound, "NoSuchKey", method, bucket+"/absent?tagging", nil)
	}
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodPut, bucket+"/absent?tagging", tagging("a", "1"))
	o.ok(http.StatusOK, http.MethodPut, bucket+"/h", []byte("x"), "x-amz-tagging", "c=3&d=e%20f")
	if r := into[result](t, o.ok(http.StatusOK, http.MethodGet, bucket+"/h?tagging", nil)); fmt.Sprint(r.TagSet.Tag) != "[{c 3} {d e f}]" {
		t.Errorf("%v", r.TagSet.Tag)
	}
}

func testS3Encrypted(t *testing.T, o *objects) {
	bucket := "/sealed" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	meta := `{"version":2,"algorithm":"AES-256-GCM","nonce":"AAAAAAAAAAAAAAAA","wrapped_key":{"encapsulated_key":"a","ciphertext":"b","nonce":"c"},"metadata_privacy":true}`
	o.ok(http.StatusOK, http.MethodPut, bucket+"/e/1", []byte("cipher"), "Content-Type", "text/plain", "x-amz-meta-encrypted", "true", "x-amz-meta-encryption", meta)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/e/2", nil, "x-amz-copy-source", bucket+"/e/1")
	for _, path := range []string{bucket + "/e/1", bucket + "/e/2"} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			r := o.ok(http.StatusOK, method, path, nil)
			if r.Header.Get("x-amz-meta-encryption") != meta || r.Header.Get("Content-Type") != "application/octet-stream" || r.Header.Get("Content-Length") != "6" {
				t.Errorf("%s %s: %v", method, path, r.Header)
			}
		}
	}
}

func testS3Quota(t *testing.T, o *objects) {
	poor := newObjects(t, o.cluster, "poor-objects@example.org")
	o.cluster.Leader().CLI("user", "quota", "poor-objects@example.org", "3000000")
	bucket := "/poor" + randomName()
	poor.ok(http.StatusOK, http.MethodPut, bucket, nil)
	poor.ok(http.StatusOK, http.MethodPut, bucket+"/a", harness.RandomBytes(2_000_000))
	poor.refused(http.StatusForbidden, "AccountProblem", http.MethodPut, bucket+"/b", harness.RandomBytes(2_000_000))
	poor.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/b", nil)
	poor.ok(http.StatusOK, http.MethodPut, bucket+"/a", harness.RandomBytes(2_500_000)) // the net change counts
	poor.ok(http.StatusNoContent, http.MethodDelete, bucket+"/a", nil)
	poor.ok(http.StatusOK, http.MethodPut, bucket+"/b", harness.RandomBytes(2_000_000))
	id := poor.begin(bucket + "/c")
	poor.refused(http.StatusForbidden, "AccountProblem", http.MethodPut, bucket+"/c?partNumber=1&uploadId="+id, harness.RandomBytes(2_000_000))
	poor.ok(http.StatusNoContent, http.MethodDelete, bucket+"/b", nil)
	x, y := harness.RandomBytes(2_000_000), harness.RandomBytes(2_000_000)
	for _, data := range [][]byte{x, x, y, y} { // a part again, and another in its place
		poor.ok(http.StatusOK, http.MethodPut, bucket+"/c?partNumber=1&uploadId="+id, data)
	}
	poor.ok(http.StatusOK, http.MethodPut, bucket+"/same", y) // it counts once
	poor.ok(http.StatusNoContent, http.MethodDelete, bucket+"/c?uploadId="+id, nil)
	poor.ok(http.StatusOK, http.MethodPut, bucket+"/again", y)
	poor.ok(http.StatusNoContent, http.MethodDelete, bucket+"/same", nil)
	poor.ok(http.StatusNoContent, http.MethodDelete, bucket+"/again", nil)
	poor.ok(http.StatusOK, http.MethodPut, bucket+"/all", harness.RandomBytes(3_000_000)) // nodes take no room
	poor.refused(http.StatusForbidden, "AccountProblem", http.MethodPut, bucket+"/more", []byte("x"))
}
