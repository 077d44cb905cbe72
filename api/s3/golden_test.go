package s3

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

const (
	sumOfHello = "5d41402abc4b2a76b9719d911017c592" // MD5
	crcOfHello = "NhCmhg=="                         // CRC32
	sealedMeta = `x-amz-meta-encryption: {"version":2,"algorithm":"AES-256-GCM","nonce":"AA==","wrapped_key":{"a":"b"}}`
)

// scene fills the world that the golden files and the bad requests are about.
func (w *world) scene(t testing.TB) {
	t.Helper()
	w.put(t, "/photos/cat.jpg", "a\r\n0123456789\r\n0\r\n\r\n", "x-amz-decoded-content-length: 10", "Content-Type: image/jpeg", "Cache-Control: max-age=60", "x-amz-meta-Color: blå",
		"Content-Encoding: gzip, aws-chunked", "Content-Disposition: inline", "Content-Language: sv", "Expires: 0",
		"x-amz-tagging: a=1&b%20c=%2B", "x-amz-checksum-crc32: poTHxg==")
	w.put(t, "/photos/a+b/<&>.txt", "hello")
	w.put(t, "/photos/dir/", "")
	w.put(t, "/photos/dir/one", "1")
	w.put(t, "/photos/dir/%01%0A%C3%A5", "2")
	w.put(t, "/photos/sealed", "???", "Content-Type: text/html", sealedMeta, "x-amz-meta-encrypted: true")
	w.must(t, 200, call{method: "PUT", path: "/empty"})
	w.must(t, 200, call{method: "PUT", path: "/empty?cors", body: shared})
	w.must(t, 200, call{method: "POST", path: "/photos/film?uploads", header: []string{"x-amz-checksum-algorithm: CRC32", "Content-Type: video/x"}}) // upload-9
	for n, body := range []string{"aaaaa", "bbbbb", "cc"} {
		w.must(t, 200, call{method: "PUT", path: fmt.Sprintf("/photos/film?partNumber=%d&uploadId=upload-9", n+1), body: body})
	}
	w.must(t, 200, call{method: "POST", path: "/photos/film?uploadId=upload-9", body: complete("4", md5Of("aaaaa"), md5Of("bbbbb"), md5Of("cc"))})
	w.must(t, 200, call{method: "POST", path: "/photos/open?uploads="}) // upload-14
	w.must(t, 200, call{method: "PUT", path: "/photos/open?uploadId=upload-14&partNumber=2", body: "second"})
	w.must(t, 200, call{method: "PUT", path: "/photos/open?uploadId=upload-14&partNumber=1", body: "first"})
	w.must(t, 200, call{method: "POST", path: "/photos/dir/open?uploads"}) // upload-17
}

// versions adds a bucket that keeps versions: k has the null version and one with an
// id, gone has one below a delete marker, dir/ two keys.
func (w *world) versions(t testing.TB) {
	t.Helper()
	w.put(t, "/kept/k", "before", "x-amz-tagging: a=1")
	w.must(t, 200, call{method: "PUT", path: "/kept?versioning", body: versioningOf(versioningEnabled)})
	w.put(t, "/kept/k", "after", "x-amz-sdk-checksum-algorithm: CRC32C")
	w.put(t, "/kept/gone", "hello")
	w.must(t, 204, call{method: "DELETE", path: "/kept/gone"})
	w.put(t, "/kept/dir/one", "1")
	w.put(t, "/kept/dir/two", "2")
	o, err := w.fake.Object(t.Context(), w.who.Account, "kept", "gone", "")
	if err != nil || !o.Marker {
		t.Fatalf("%+v, %v", o, err)
	}
	w.marker = o.ID
}

func versioningOf(status string) string {
	return `<VersioningConfiguration xmlns="` + xmlSpace + `"><Status>` + status + `</Status></VersioningConfiguration>`
}

// complete returns the body of CompleteMultipartUpload; of the first argument only
// whether it is empty counts: then ETags have no quotes.
func complete(quotes string, tags ...string) string {
	var b strings.Builder
	b.WriteString(`<CompleteMultipartUpload xmlns="` + xmlSpace + `">`)
	for i, tag := range tags {
		if quotes != "" {
			tag = "&quot;" + tag + `"`
		}
		fmt.Fprintf(&b, "<Part><ETag>%s</ETag><PartNumber>%d</PartNumber></Part>", tag, i+1)
	}
	return b.String() + "</CompleteMultipartUpload>"
}

func md5Of(text string) string { return fmt.Sprintf("%x", md5Sum(text)) }

// Each answer and each error is the golden file, byte for byte, with status and headers.
func TestAnswersKeepTheirForm(t *testing.T) {
	const uploads = "/photos/open?uploadId=upload-14"
	for _, tc := range []struct {
		name string
		call
	}{
		{"list_buckets", call{method: "GET", path: "/"}},
		{"list_buckets_page", call{method: "GET", path: "/?max-buckets=1&prefix=e"}},
		{"create_bucket", call{method: "PUT", path: "/new", body: `<CreateBucketConfiguration><LocationConstraint>EU</LocationConstraint></CreateBucketConfiguration>`}},
		{"create_bucket_exists", call{method: "PUT", path: "/photos"}},
		{"delete_bucket", call{method: "DELETE", path: "/empty"}},
		{"delete_bucket_not_empty", call{method: "DELETE", path: "/photos"}},
		{"head_bucket", call{method: "HEAD", path: "/photos"}},
		{"head_bucket_absent", call{method: "HEAD", path: "/absent"}},
		{"location", call{method: "GET", path: "/photos/?location="}},
		{"versioning", call{method: "GET", path: "/photos?versioning"}},
		{"bucket_acl", call{method: "GET", path: "/photos?acl"}},
		{"object_acl", call{method: "GET", path: "/photos/cat.jpg?acl"}},
		{"policy_status", call{method: "GET", path: "/photos?policyStatus"}},
		{"policy", call{method: "GET", path: "/photos?policy"}},
		{"get_cors", call{method: "GET", path: "/empty?cors="}},
		{"put_cors", call{method: "PUT", path: "/photos?cors", body: shared}},
		{"delete_cors", call{method: "DELETE", path: "/empty?cors"}},
		{"get_cross_origin", call{method: "GET", path: "/empty/absent", header: []string{"Origin: https://a.example"}}},
		{"preflight", call{method: "OPTIONS", path: "/photos/k", token: "-", header: []string{"Origin: https://a.example", "Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: authorization"}}},
		{"list_v2", call{method: "GET", path: "/photos?list-type=2"}},
		{"list_v2_all_echoes", call{method: "GET", path: "/photos/?list-type=2&prefix=d&delimiter=%2F&start-after=a%20b%2Bc&fetch-owner=true&encoding-type=url&max-keys=5&continuation-token="}},
		{"list_v2_delimiter", call{method: "GET", path: "/photos?list-type=2&prefix=&delimiter=%2F&encoding-type=url"}},
		{"list_v2_page", call{method: "GET", path: "/photos?list-type=2&max-keys=2"}},
		{"list_v2_next", call{method: "GET", path: "/photos?list-type=2&max-keys=2&continuation-token=" + toToken("cat.jpg")}},
		{"list_v2_none", call{method: "GET", path: "/photos?list-type=2&max-keys=0"}},
		{"list_v2_absent", call{method: "GET", path: "/absent?list-type=2"}},
		{"list_v1", call{method: "GET", path: "/photos?max-keys=1000&prefix="}},
		{"list_v1_page", call{method: "GET", path: "/photos?max-keys=2&delimiter=/&marker=b"}},
		{"list_uploads", call{method: "GET", path: "/photos?uploads"}},
		{"list_uploads_page", call{method: "GET", path: "/photos?uploads&max-uploads=1&encoding-type=url"}},
		{"put", call{method: "PUT", path: "/photos/new", body: "hello", header: []string{"Content-MD5: XUFAKrxLKna5cZ2REBfFkg==", "x-amz-checksum-crc32: " + crcOfHello}}},
		{"put_bad_digest", call{method: "PUT", path: "/photos/new", body: "hello", header: []string{"Content-MD5: AAAAAAAAAAAAAAAAAAAAAA=="}}},
		{"get", call{method: "GET", path: "/photos/cat.jpg"}},
		{"get_range", call{method: "GET", path: "/photos/cat.jpg", header: []string{"Range: bytes=-3"}}},
		{"get_range_unsatisfiable", call{method: "GET", path: "/photos/cat.jpg", header: []string{"Range: bytes=10-"}}},
		{"get_checksum", call{method: "GET", path: "/photos/cat.jpg?x-id=GetObject", header: []string{"x-amz-checksum-mode: ENABLED"}}},
		{"get_overrides", call{method: "GET", path: "/photos/cat.jpg?response-content-type=text%2Fplain&response-cache-control=no-cache&response-content-disposition=attachment&response-content-encoding=x&response-content-language=de&response-expires=now"}},
		{"get_sealed", call{method: "GET", path: "/photos/sealed?response-content-type=text/html"}},
		{"get_empty", call{method: "GET", path: "/photos/dir/"}},
		{"get_absent", call{method: "GET", path: "/photos/%3Cabsent%3E%01"}},
		{"get_not_modified", call{method: "GET", path: "/photos/cat.jpg", header: []string{`If-None-Match: "x", W/"781e5e245d69b566979b86e28d23f2c7"`}}},
		{"get_bao", call{method: "GET", path: "/photos/cat.jpg?bao"}},
		{"get_bao_slice", call{method: "GET", path: "/photos/cat.jpg?bao=&start=3&length=1"}},
		{"get_bao_unsatisfiable", call{method: "GET", path: "/photos/cat.jpg?bao&start=10&length=1"}},
		{"get_failed", call{method: "GET", path: "/photos/cat.jpg", header: []string{`If-Match: "x"`}}},
		{"get_part", call{method: "GET", path: "/photos/film?partNumber=2"}},
		{"get_part_checksum", call{method: "GET", path: "/photos/film?partNumber=2", header: []string{"x-amz-checksum-mode: ENABLED"}}},
		{"head_part_checksum", call{method: "HEAD", path: "/photos/film?partNumber=3", header: []string{"x-amz-checksum-mode: ENABLED"}}},
		{"head", call{method: "HEAD", path: "/photos/cat.jpg"}},
		{"head_absent", call{method: "HEAD", path: "/photos/absent"}},
		{"head_multipart", call{method: "HEAD", path: "/photos/film", header: []string{"x-amz-checksum-mode: ENABLED"}}},
		{"delete", call{method: "DELETE", path: "/photos/cat.jpg?x-id=DeleteObject"}},
		{"delete_absent", call{method: "DELETE", path: "/photos/absent"}},
		{"delete_many", call{method: "POST", path: "/photos?delete=", body: `<?xml version="1.0" encoding="UTF-8"?><Delete xmlns="` + xmlSpace + `"><Object><Key>cat.jpg</Key></Object><Object><Key>dir/&#x1;&#10;å</Key></Object><Object><Key>absent</Key><VersionId>null</VersionId></Object><Object><Key>dir/one</Key><VersionId>other</VersionId></Object><Object><Key>sealed</Key><ETag>"x"</ETag></Object></Delete>`}},
		{"delete_many_quiet", call{method: "POST", path: "/photos/?delete", body: `<Delete><Quiet>true</Quiet><Object><Key>cat.jpg</Key></Object></Delete>`}},
		{"copy", call{method: "PUT", path: "/empty/copy", header: []string{"x-amz-copy-source: /photos/cat.jpg"}}},
		{"copy_source_absent", call{method: "PUT", path: "/empty/copy", header: []string{"x-amz-copy-source: photos/absent"}}},
		{"copy_bucket_absent", call{method: "PUT", path: "/empty/copy", header: []string{"x-amz-copy-source: /absent/cat.jpg"}}},
		{"get_tagging", call{method: "GET", path: "/photos/cat.jpg?tagging"}},
		{"get_tagging_none", call{method: "GET", path: "/photos/sealed?tagging"}},
		{"put_tagging", call{method: "PUT", path: "/photos/cat.jpg?tagging", body: `<Tagging><TagSet><Tag><Key>k</Key><Value/></Tag></TagSet></Tagging>`}},
		{"delete_tagging", call{method: "DELETE", path: "/photos/cat.jpg?tagging"}},
		{"create_upload", call{method: "POST", path: "/photos/new?uploads", header: []string{"x-amz-checksum-algorithm: CRC64NVME"}}},
		{"put_part", call{method: "PUT", path: uploads + "&partNumber=3&x-id=UploadPart", body: "hello", header: []string{"x-amz-checksum-crc32: " + crcOfHello}}},
		{"copy_part", call{method: "PUT", path: uploads + "&partNumber=3", header: []string{"x-amz-copy-source: photos/cat.jpg", "x-amz-copy-source-range: bytes=2-4"}}},
		{"list_parts", call{method: "GET", path: uploads}},
		{"list_parts_page", call{method: "GET", path: uploads + "&max-parts=1&part-number-marker=0"}},
		{"complete", call{method: "POST", path: uploads, body: complete("", md5Of("first"), md5Of("second")), header: []string{"Host: s3.example.org"}}},
		{"complete_again", call{method: "POST", path: "/photos/film?uploadId=upload-9", body: complete("", md5Of("aaaaa"), md5Of("bbbbb"), md5Of("cc"))}},
		{"complete_wrong_part", call{method: "POST", path: uploads, body: complete("", md5Of("first"), md5Of("other"))}},
		{"complete_unknown", call{method: "POST", path: "/photos/film?uploadId=upload-9x", body: complete("", md5Of("x"))}},
		{"abort", call{method: "DELETE", path: uploads}},
		{"no_token", call{method: "GET", path: "/photos/cat.jpg", token: "-"}},
		{"no_token_head", call{method: "HEAD", path: "/photos/cat.jpg", token: "-"}},
		{"not_implemented", call{method: "PUT", path: "/photos/cat.jpg?acl"}},
		{"method_not_allowed", call{method: "PATCH", path: "/photos/cat.jpg"}},
	} {
		t.Run(tc.name, func(t *testing.T) { keepsItsForm(t, tc.name, tc.call) })
	}
}

// Each answer about attributes of an object and to a form is the golden file, byte for byte.
func TestAnswersAboutObjectsAndToFormsKeepTheirForm(t *testing.T) {
	for _, tc := range []struct {
		name string
		call
	}{
		{"attributes", call{method: "GET", path: "/photos/cat.jpg?attributes", header: []string{"x-amz-object-attributes: ETag,Checksum , ObjectParts", "x-amz-object-attributes: StorageClass,ObjectSize"}}},
		{"attributes_multipart", call{method: "GET", path: "/photos/film?attributes=", header: []string{"x-amz-object-attributes: Checksum,ObjectParts"}}},
		{"attributes_page", call{method: "GET", path: "/photos/film?attributes", header: []string{"x-amz-object-attributes: ObjectParts", "x-amz-max-parts: 1", "x-amz-part-number-marker: 1"}}},
		{"attributes_past_the_end", call{method: "GET", path: "/photos/film?attributes", header: []string{"x-amz-object-attributes: ObjectParts", "x-amz-part-number-marker: 10000"}}},
		{"attributes_no_parts", call{method: "GET", path: "/photos/film?attributes", header: []string{"x-amz-object-attributes: ObjectParts", "x-amz-max-parts: 0"}}},
		{"attributes_failed", call{method: "GET", path: "/photos/film?attributes", header: []string{"x-amz-object-attributes: ETag", `If-Match: "x"`}}},
		{"attributes_absent", call{method: "GET", path: "/photos/absent?attributes", header: []string{"x-amz-object-attributes: ETag"}}},
		{"form", call{method: "POST", path: "/photos", body: formOf("hello.txt", field{"key", "a b/${filename}"}, field{"Content-Type", "text/plain"}, field{"file", "hello"}), header: []string{formHeader}}},
		{"form_200", call{method: "POST", path: "/photos", body: formOf("x", field{"key", "k"}, field{"success_action_status", "200"}, field{"file", ""}), header: []string{formHeader}}},
		{"form_201", call{method: "POST", path: "/", body: formOf("<&>.txt", field{"key", "${filename}"}, field{"success_action_status", "201"}, field{"file", "hello"}), header: []string{formHeader, "Host: photos.s3.test"}}},
		{"form_redirect", call{method: "POST", path: "/photos", body: formOf("x", field{"key", "a b"}, field{"success_action_status", "201"}, field{"success_action_redirect", "https://example.org/done?a=1"}, field{"file", "hello"}), header: []string{formHeader}}},
		{"form_no_page", call{method: "POST", path: "/photos", body: formOf("x", field{"key", "k"}, field{"success_action_redirect", "javascript:alert(1)"}, field{"success_action_status", "404"}, field{"file", "hello"}), header: []string{formHeader}}},
		{"form_policy_expired", call{method: "POST", path: "/photos", body: formOf("x", field{"key", "k"}, field{"policy", base64.StdEncoding.EncodeToString([]byte(`{"expiration":"2026-01-02T03:04:05Z","conditions":[]}`))}, field{"file", "hello"}), header: []string{formHeader}}},
	} {
		t.Run(tc.name, func(t *testing.T) { keepsItsForm(t, tc.name, tc.call) })
	}
}

// Each answer about a configuration that a bucket does not have is the golden file, byte for byte.
func TestAnswersAboutWhatABucketDoesNotHaveKeepTheirForm(t *testing.T) {
	for _, tc := range []struct {
		name string
		call
	}{
		{"unset_lifecycle", call{method: "GET", path: "/photos?lifecycle"}},
		{"unset_object_lock", call{method: "GET", path: "/photos?object-lock"}},
		{"unset_encryption", call{method: "GET", path: "/photos?encryption"}},
		{"unset_ownership", call{method: "GET", path: "/photos?ownershipControls"}},
		{"unset_public_access", call{method: "GET", path: "/photos?publicAccessBlock"}},
		{"unset_website", call{method: "GET", path: "/photos?website"}},
		{"unset_replication", call{method: "GET", path: "/photos?replication="}},
		{"unset_accelerate", call{method: "GET", path: "/photos?accelerate"}},
		{"unset_logging", call{method: "GET", path: "/photos?logging"}},
		{"unset_notification", call{method: "GET", path: "/photos?notification"}},
		{"unset_payment", call{method: "GET", path: "/photos?requestPayment"}},
		{"unset_analytics", call{method: "GET", path: "/photos?analytics"}},
		{"unset_analytics_one", call{method: "GET", path: "/photos?analytics&id=one&x-id=GetBucketAnalyticsConfiguration"}},
		{"unset_inventory", call{method: "GET", path: "/photos?inventory&continuation-token=x"}},
		{"unset_metrics", call{method: "GET", path: "/photos?metrics"}},
		{"unset_tiering", call{method: "GET", path: "/photos?intelligent-tiering"}},
		{"unset_metadata", call{method: "GET", path: "/photos?metadataConfiguration"}},
		{"unset_metadata_table", call{method: "GET", path: "/photos?metadataTable"}},
		{"unset_abac", call{method: "GET", path: "/photos?abac"}},
		{"unset_delete_website", call{method: "DELETE", path: "/photos?website"}},
	} {
		t.Run(tc.name, func(t *testing.T) { keepsItsForm(t, tc.name, tc.call) })
	}
}

// Each answer about a public bucket is the golden file, byte for byte.
func TestAnswersOfAPublicBucketKeepTheirForm(t *testing.T) {
	for _, tc := range []struct {
		name string
		call
	}{
		{"public_create", call{method: "PUT", path: "/new", header: []string{"x-amz-acl: public-read"}}},
		{"public_put_acl", call{method: "PUT", path: "/shown?acl", header: []string{"x-amz-acl: private"}}},
		{"public_put_acl_malformed", call{method: "PUT", path: "/shown?acl", body: "<AccessControlPolicy/>"}},
		{"public_put_acl_not_implemented", call{method: "PUT", path: "/shown?acl", header: []string{"x-amz-acl: authenticated-read"}}},
		{"public_bucket_acl", call{method: "GET", path: "/shown?acl"}},
		{"public_policy_status", call{method: "GET", path: "/shown?policyStatus"}},
		{"public_object_acl", call{method: "GET", path: "/shown/k?acl"}},
		{"public_put", call{method: "PUT", path: "/shown/k", body: "x", header: []string{"x-amz-acl: public-read"}}},
		{"public_put_private", call{method: "PUT", path: "/shown/k", body: "x", header: []string{"x-amz-acl: private"}}},
		{"private_put_public", call{method: "PUT", path: "/photos/k", body: "x", header: []string{"x-amz-acl: public-read"}}},
	} {
		t.Run(tc.name, func(t *testing.T) { keepsItsForm(t, tc.name, tc.call, (*world).shown) })
	}
}

// Each answer about versions is the golden file, byte for byte.
func TestAnswersAboutVersionsKeepTheirForm(t *testing.T) {
	const many = `<Delete><Object><Key>k</Key></Object><Object><Key>k</Key><VersionId>null</VersionId></Object><Object><Key>gone</Key><VersionId>{marker}</VersionId></Object>` +
		`<Object><Key>dir/one</Key><VersionId>other</VersionId></Object><Object><Key>dir/two</Key><VersionId>a b</VersionId></Object><Object><Key>dir/two</Key><ETag>"x"</ETag></Object>` +
		`<Object><Key>dir/two</Key><VersionId></VersionId></Object><Object><VersionId/><Key>dir/two</Key></Object><Object><Key>dir/two</Key><ETag/></Object></Delete>`
	for _, tc := range []struct {
		name string
		call
	}{
		{"versioning_enabled", call{method: "GET", path: "/kept?versioning"}},
		{"put_versioning", call{method: "PUT", path: "/empty?versioning", body: versioningOf(versioningSuspended)}},
		{"list_versions", call{method: "GET", path: "/kept?versions"}},
		{"list_versions_page", call{method: "GET", path: "/kept?versions&max-keys=2&delimiter=/&encoding-type=url&key-marker=dir/&prefix="}},
		{"list_versions_prefix", call{method: "GET", path: "/kept?versions=&max-keys=1&delimiter=%2F"}},
		{"list_versions_next", call{method: "GET", path: "/kept?versions&key-marker=gone&version-id-marker={marker}"}},
		{"list_versions_none", call{method: "GET", path: "/kept?versions&max-keys=0"}},
		{"list_versions_unversioned", call{method: "GET", path: "/photos?versions&prefix=cat"}},
		{"version_put", call{method: "PUT", path: "/kept/k", body: "new"}},
		{"version_get_null", call{method: "GET", path: "/kept/k?versionId=null"}},
		{"version_head", call{method: "HEAD", path: "/kept/k"}},
		{"version_marked", call{method: "GET", path: "/kept/gone"}},
		{"version_head_marked", call{method: "HEAD", path: "/kept/gone"}},
		{"version_of_marker", call{method: "GET", path: "/kept/gone?versionId={marker}"}},
		{"version_absent", call{method: "GET", path: "/kept/k?versionId=other"}},
		{"version_delete", call{method: "DELETE", path: "/kept/k"}},
		{"version_delete_absent", call{method: "DELETE", path: "/kept/absent"}},
		{"version_delete_null", call{method: "DELETE", path: "/kept/k?versionId=null"}},
		{"version_delete_marker", call{method: "DELETE", path: "/kept/gone?versionId={marker}"}},
		{"version_delete_unknown", call{method: "DELETE", path: "/kept/k?versionId=other"}},
		{"version_delete_many", call{method: "POST", path: "/kept?delete", body: many}},
		{"version_copy", call{method: "PUT", path: "/kept/k", header: []string{"x-amz-copy-source: /kept/k?versionId=null"}}},
		{"version_copy_current", call{method: "PUT", path: "/photos/copy", header: []string{"x-amz-copy-source: /kept/k"}}},
		{"version_copy_part", call{method: "PUT", path: "/photos/open?uploadId=upload-14&partNumber=3", header: []string{"x-amz-copy-source: kept/k?versionId=null"}}},
		{"version_get_tagging", call{method: "GET", path: "/kept/k?tagging&versionId=null"}},
		{"version_put_tagging", call{method: "PUT", path: "/kept/k?tagging&versionId=null", body: `<Tagging><TagSet/></Tagging>`}},
		{"version_acl", call{method: "GET", path: "/kept/k?acl&versionId=null"}},
		{"version_attributes", call{method: "GET", path: "/kept/k?attributes&versionId=null", header: []string{"x-amz-object-attributes: ETag,ObjectSize"}}},
	} {
		t.Run(tc.name, func(t *testing.T) { keepsItsForm(t, tc.name, tc.call, (*world).versions) })
	}
}

// keepsItsForm compares the answer to a request with its golden file.
func keepsItsForm(t *testing.T, name string, c call, also ...func(*world, testing.TB)) {
	t.Helper()
	w := newWorld(t)
	w.scene(t)
	for _, more := range also {
		more(w, t)
	}
	c.path, c.body = w.expand(c.path), w.expand(c.body)
	rec := w.do(t, c)
	var got bytes.Buffer
	fmt.Fprintf(&got, "%s %s\n%d\n", c.method, c.path, rec.Code)
	for _, name := range slices.Sorted(maps.Keys(rec.Header())) {
		fmt.Fprintf(&got, "%s: %s\n", name, strings.Join(rec.Header()[name], " | "))
	}
	fmt.Fprintf(&got, "\n%s\n", rec.Body)
	goldentest.File(t, filepath.Join("testdata", name+".http"), got.Bytes())
}

// Each error code of the state has an S3 code, a status and a message, each 503 a time to wait, and an unknown
// error is an InternalError without detail.
func TestEveryCodeOfTheStateHasAnAnswer(t *testing.T) {
	s := &surface{minPart: 5}
	for _, code := range state.Codes() {
		e := s.answer(fmt.Errorf("wrapped: %w", state.Errorf(code, "words")))
		f, known := codes[e.Code]
		if _, ok := errorTable[code]; !ok || !known || f.status < 400 || e.Message == "" || e.Code == InternalError {
			t.Errorf("code %d: %+v", code, e)
		}
		if f.status == 503 && e.retry == 0 {
			t.Errorf("code %d says not when to come again", code)
		}
	}
	for _, err := range []error{state.Errorf(9999, "from a newer node"), errors.New("open /var/lib/holdfast: input/output error")} {
		if e := s.answer(err); e.Code != InternalError || strings.Contains(e.Message, "newer") || strings.Contains(e.Message, "lib") {
			t.Errorf("%v: %+v", err, e)
		}
	}
}

// Each error of the use case gets its status, code and Retry-After, in reads, writes, lists and deletions alike.
func TestErrorsOfTheClusterAreAnswered(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
		code   Code
		retry  string
	}{
		{state.ErrUnavailable, 503, ServiceUnavailable, "1"},
		{state.ErrLimited, 503, SlowDown, "10"},
		{state.ErrNoSpace, 507, InsufficientStorage, "60"},
		{state.ErrQuota, 403, AccountProblem, ""},
		{state.ErrConflict, 409, OperationAborted, ""},
		{errTorn, 500, InternalError, ""},
	} {
		w := newWorld(t)
		w.scene(t)
		w.fake.err = fmt.Errorf("fake: %w", tc.err)
		for _, c := range []call{{method: "PUT", path: "/photos/x", body: "x"}, {method: "GET", path: "/photos/cat.jpg"}, {method: "GET", path: "/photos?list-type=2"}, {method: "DELETE", path: "/photos/cat.jpg"}} {
			rec := w.do(t, c)
			if rec.Code != tc.status || rec.Header().Get("Retry-After") != tc.retry || !strings.Contains(rec.Body.String(), "<Code>"+string(tc.code)+"</Code>") {
				t.Errorf("%v: %s %s: %d %v %s", tc.err, c.method, c.path, rec.Code, rec.Header(), rec.Body)
			}
		}
	}
}
