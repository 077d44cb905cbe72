//go:build conformance

package conformance

import (
	"bytes"
	"crypto/md5" //nolint:gosec // one of the checksums of S3
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/holdfast-ipfs/holdfast/test/harness"
	"github.com/zeebo/xxh3"
)

// testS3Classes: storage classes, tags of buckets, and the checksums that Amazon's model got
// last, each call at the next node.
func testS3Classes(t *testing.T, o *objects) {
	bucket := "/classes" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	for _, class := range []string{"STANDARD_IA", "REDUCED_REDUNDANCY", "GLACIER", "DEEP_ARCHIVE"} {
		key := bucket + "/" + class
		o.ok(http.StatusOK, http.MethodPut, key, []byte("cold"), "x-amz-storage-class", class)
		if r := o.ok(http.StatusOK, http.MethodGet, key, nil); r.Header.Get("x-amz-storage-class") != class || string(r.Body) != "cold" {
			t.Errorf("%v %q", r.Header, r.Body)
		}
		if r := o.ok(http.StatusOK, http.MethodGet, bucket+"?list-type=2&prefix="+class, nil); !bytes.Contains(r.Body, []byte("<StorageClass>"+class+"</StorageClass>")) {
			t.Errorf("%s", r.Body)
		}
	}
	o.ok(http.StatusOK, http.MethodPut, bucket+"/usual", nil, "x-amz-copy-source", bucket+"/GLACIER")
	if r := o.ok(http.StatusOK, http.MethodHead, bucket+"/usual", nil); r.Header.Get("x-amz-storage-class") != "" {
		t.Errorf("%v", r.Header)
	}
	o.refused(http.StatusBadRequest, "InvalidStorageClass", http.MethodPut, bucket+"/k", []byte("x"), "x-amz-storage-class", "GLACIAL")

	o.refused(http.StatusNotFound, "NoSuchTagSet", http.MethodGet, bucket+"?tagging", nil)
	set := "<Tagging><TagSet><Tag><Key>team</Key><Value>a</Value></Tag><Tag><Key>cost</Key><Value/></Tag></TagSet></Tagging>"
	o.ok(http.StatusNoContent, http.MethodPut, bucket+"?tagging", []byte(set))
	if r := o.ok(http.StatusOK, http.MethodGet, bucket+"?tagging", nil); !bytes.Contains(r.Body, []byte("<Key>team</Key><Value>a</Value></Tag><Tag><Key>cost</Key>")) {
		t.Errorf("%s", r.Body)
	}
	o.ok(http.StatusNoContent, http.MethodDelete, bucket+"?tagging", nil)
	o.refused(http.StatusNotFound, "NoSuchTagSet", http.MethodGet, bucket+"?tagging", nil)

	data := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	sha, md, x128 := sha512.Sum512(data), md5.Sum(data), xxh3.Hash128(data).Bytes() //nolint:gosec // see the import
	for name, sum := range map[string][]byte{
		"sha512": sha[:], "md5": md[:], "xxhash64": binary.BigEndian.AppendUint64(nil, xxhash.Sum64(data)),
		"xxhash3": binary.BigEndian.AppendUint64(nil, xxh3.Hash(data)), "xxhash128": x128[:],
	} {
		key, header, value := bucket+"/"+name, "x-amz-checksum-"+name, base64.StdEncoding.EncodeToString(sum)
		o.refused(http.StatusBadRequest, "BadDigest", http.MethodPut, key, data[1:], header, value)
		o.ok(http.StatusOK, http.MethodPut, key, data, header, value)
		r := o.ok(http.StatusOK, http.MethodGet, key, nil, "x-amz-checksum-mode", "ENABLED")
		if r.Header.Get(header) != value || r.Header.Get("x-amz-checksum-type") != "FULL_OBJECT" || !bytes.Equal(r.Body, data) {
			t.Errorf("%s: %v", name, r.Header)
		}
		algorithm := strings.ToUpper(name)
		id := o.begin(key, "x-amz-checksum-algorithm", algorithm)
		part := o.ok(http.StatusOK, http.MethodPut, key+"?partNumber=1&uploadId="+id, data, header, value)
		if part.Header.Get(header) != value || part.Header.Get("x-amz-checksum-type") != "COMPOSITE" {
			t.Errorf("%s: %v", name, part.Header)
		}
		body := fmt.Sprintf("<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag><Checksum%s>%s</Checksum%[2]s></Part></CompleteMultipartUpload>",
			part.Header.Get("ETag"), algorithm, value)
		o.ok(http.StatusOK, http.MethodPost, key+"?uploadId="+id, []byte(body))
		if r := o.ok(http.StatusOK, http.MethodHead, key, nil, "x-amz-checksum-mode", "ENABLED"); !strings.HasSuffix(r.Header.Get(header), "-1") ||
			r.Header.Get("x-amz-checksum-type") != "COMPOSITE" {
			t.Errorf("%s: %v", name, r.Header)
		}
		// A copy that asks for it has that of the whole.
		o.ok(http.StatusOK, http.MethodPut, key+"/copy", nil, "x-amz-copy-source", key, "x-amz-checksum-algorithm", algorithm)
		if r := o.ok(http.StatusOK, http.MethodHead, key+"/copy", nil, "x-amz-checksum-mode", "ENABLED"); r.Header.Get(header) != value ||
			r.Header.Get("x-amz-checksum-type") != "FULL_OBJECT" {
			t.Errorf("a copy of %s: %v", name, r.Header)
		}
	}
	// Of what is large it is there when a node has read it, and until then none is.
	large := bytes.Repeat(data, 20)
	sum := sha512.Sum512(large)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/large", large)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/later", nil, "x-amz-copy-source", bucket+"/large", "x-amz-checksum-algorithm", "SHA512")
	harness.Eventually(t, time.Minute, "the checksum of a large copy", func() (bool, error) {
		r := o.ok(http.StatusOK, http.MethodHead, bucket+"/later", nil, "x-amz-checksum-mode", "ENABLED")
		got := r.Header.Get("x-amz-checksum-sha512")
		if got != "" && (got != base64.StdEncoding.EncodeToString(sum[:]) || r.Header.Get("x-amz-checksum-type") != "FULL_OBJECT") {
			return false, fmt.Errorf("it is %v", r.Header)
		}
		return got != "", nil
	})
}
