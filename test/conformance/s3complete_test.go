//go:build conformance

package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"sync"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Completions of one upload that meet, through all nodes: there is one object, and who
// is told 200 is told of it.
func testS3CompletionsMeet(t *testing.T, o *objects) {
	u := &uploads{o, o.versioned("meet", "Enabled")}
	first, last := harness.RandomBytes(5_000_000), []byte("last")
	for range 4 {
		id := u.begin("k")
		path := u.bucket + "/k?uploadId=" + id
		both := harness.Completion(1, u.part("k", id, 1, first), 2, u.part("k", id, 2, last))
		one := harness.Completion(1, harness.ETag(first))
		answers := make([]reply, 3*len(o.cluster.Nodes))
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() {
				list := both
				if i%3 == 2 {
					list = one
				}
				r, err := o.tryOn(o.cluster.Nodes[i%len(o.cluster.Nodes)], http.MethodPost, path, list)
				if err != nil {
					t.Error(err)
				}
				answers[i] = r
			})
		}
		all.Wait()
		var made *reply
		list := -1
		for i, r := range answers {
			which := b2i(i%3 == 2)
			switch {
			case r.Status == http.StatusOK && made == nil:
				made, list = &answers[i], which
			case r.Status == http.StatusOK:
				for _, name := range []string{"X-Amz-Version-Id", "X-Holdfast-Cid"} {
					if which != list || r.Header.Get(name) != made.Header.Get(name) {
						t.Errorf("told %s %q and %q", name, made.Header.Get(name), r.Header.Get(name))
					}
				}
				if completed(t, r) != completed(t, *made) {
					t.Errorf("told %s and %s", made.Body, r.Body)
				}
			case r.Status != http.StatusBadRequest || into[s3Error](t, r).Code != "InvalidPart":
				t.Errorf("%d %s", r.Status, r.Body)
			}
		}
		if made == nil {
			t.Fatal("nobody completed the upload")
		}
		for i, r := range answers {
			if which := b2i(i%3 == 2); (r.Status == http.StatusOK) != (which == list) {
				t.Errorf("who listed as the first was told %d %s", r.Status, r.Body)
			}
		}
		body := append(append([]byte{}, first...), last...)
		if list == 1 {
			body = first
		}
		version := made.Header.Get("X-Amz-Version-Id")
		if r := o.ok(http.StatusOK, http.MethodGet, u.bucket+"/k?versionId="+version, nil); version == "" || !bytes.Equal(r.Body, body) {
			t.Errorf("version %q has %d bytes, want %d", version, len(r.Body), len(body))
		}
	}
}

// completed returns what a completion is told, but for the address of the node.
func completed(t *testing.T, r reply) (told [3]string) {
	t.Helper()
	type result struct {
		XMLName                   xml.Name `xml:"CompleteMultipartUploadResult"`
		Key, ETag, ChecksumSHA256 string
	}
	x := into[result](t, r)
	return [3]string{x.Key, x.ETag, x.ChecksumSHA256}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A finished upload answers who asks again as the first time, and judges what it says.
func testS3CompleteAgain(t *testing.T, o *objects) {
	u := &uploads{o, "/again" + randomName()}
	o.ok(http.StatusOK, http.MethodPut, u.bucket, nil)
	id := u.begin("k", "x-amz-checksum-algorithm", "SHA256")
	path := u.bucket + "/k?uploadId=" + id
	first, last := harness.RandomBytes(5_000_000), []byte("last")
	one, two := u.part("k", id, 1, first), u.part("k", id, 2, last)
	right := harness.Completion(1, one, 2, two)
	made := o.ok(http.StatusOK, http.MethodPost, path, right)
	sum := sha256.Sum256(last)
	of := base64.StdEncoding.EncodeToString(sum[:])
	judge := func() {
		t.Helper()
		if r := o.ok(http.StatusOK, http.MethodPost, path, right, "x-amz-mp-object-size", "5000004"); completed(t, r) != completed(t, made) {
			t.Errorf("%s, then %s", made.Body, r.Body)
		}
		for _, wrong := range [][]byte{harness.Completion(1, one), harness.Completion(7, "deadbeef"), harness.Completion(1, one, 3, two), harness.Completion(1, two, 2, one)} {
			o.refused(http.StatusBadRequest, "InvalidPart", http.MethodPost, path, wrong)
		}
		o.refused(http.StatusBadRequest, "InvalidRequest", http.MethodPost, path, right, "x-amz-mp-object-size", "5000003")
		o.refused(http.StatusBadRequest, "BadDigest", http.MethodPost, path, right, "x-amz-checksum-sha256", of+"-2")
		r := o.ok(http.StatusPartialContent, http.MethodHead, u.bucket+"/k?partNumber=2&versionId=null", nil, "x-amz-checksum-mode", "ENABLED")
		if got := r.Header.Get("X-Amz-Checksum-Sha256"); got != of {
			t.Errorf("part 2 has %q, want %q", got, of)
		}
	}
	judge()
	o.ok(http.StatusOK, http.MethodPut, u.bucket+"?versioning", versioning("Enabled"))
	judge()
	o.put(u.bucket+"/k", "newer")
	judge()
	o.ok(http.StatusNoContent, http.MethodDelete, u.bucket+"/k?versionId=null", nil)
	o.refused(http.StatusNotFound, "NoSuchUpload", http.MethodPost, path, right)
}
