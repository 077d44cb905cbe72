package s3

import (
	"encoding/xml"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A bucket may have a name of digits and dots that is no IP address.
func TestNamesThatAreNoAddressAreTaken(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"1.2.3", "1.2.3.4.5", "1.2.3.a", "1-2.3.4.5", "1234"} {
		w.must(t, 200, call{method: "PUT", path: "/" + name})
	}
}

// The list of buckets has each bucket once, by pages, chosen by prefix and region.
func TestBucketsArePagedAndChosen(t *testing.T) {
	w := newWorld(t)
	w.options.Region = "eu-north-1"
	w.rebuild(t)
	for _, name := range []string{"photos-1", "a.photos", "photos-2", "other", "photos-3", "zebra"} {
		w.must(t, 200, call{method: "PUT", path: "/" + name})
	}
	type page struct {
		Buckets struct {
			Bucket []struct{ Name, BucketRegion string }
		}
		Prefix            string
		ContinuationToken string
	}
	walk := func(query string) (names []string) {
		t.Helper()
		for token := ""; ; {
			var p page
			rec := w.must(t, 200, call{method: "GET", path: "/?" + query + "&continuation-token=" + url.QueryEscape(token)})
			if err := xml.Unmarshal(rec.Body.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			for _, b := range p.Buckets.Bucket {
				if names = append(names, b.Name); b.BucketRegion != "eu-north-1" {
					t.Errorf("%s: %s is in %q", query, b.Name, b.BucketRegion)
				}
			}
			if token = p.ContinuationToken; token == "" {
				return names
			}
		}
	}
	all := []string{"a.photos", "other", "photos-1", "photos-2", "photos-3", "zebra"}
	for _, size := range []string{"1", "2", "3", "6", "10000", "10000", ""} {
		for query, want := range map[string][]string{
			"":                                 all,
			"prefix=photos-":                   all[2:5],
			"prefix=photos-2":                  all[3:4],
			"prefix=q":                         nil,
			"bucket-region=":                   all,
			"bucket-region=eu-north-1":         all,
			"bucket-region=mars":               nil,
			"bucket-region=eu-north":           nil,
			"bucket-region=mars&prefix=photos": nil,
		} {
			if got := walk("max-buckets=" + size + "&" + query); !slices.Equal(got, want) {
				t.Errorf("%s by %s: %q, want %q", query, size, got, want)
			}
		}
	}
	if rec := w.must(t, 200, call{method: "GET", path: "/"}); strings.Contains(rec.Body.String(), "BucketRegion") {
		t.Errorf("%s", rec.Body)
	}
}

// A bucket is created although its request has settings without effect here, such as an ownership or empty tags.
func TestBucketsAreMadeWithWhatChangesNothing(t *testing.T) {
	w := newWorld(t)
	for i, c := range []call{
		{header: []string{"x-amz-object-ownership: BucketOwnerEnforced"}},
		{header: []string{"x-amz-object-ownership: BucketOwnerPreferred"}},
		{header: []string{"x-amz-object-ownership: ObjectWriter"}},
		{header: []string{"x-amz-object-ownership: "}},
		{body: "<CreateBucketConfiguration><Tags/></CreateBucketConfiguration>"},
		{body: "<CreateBucketConfiguration><Tags></Tags><Location><Name>a</Name></Location></CreateBucketConfiguration>"},
		{body: "<CreateBucketConfiguration><Location><Tags>a</Tags></Location></CreateBucketConfiguration>"},
		{body: "<CreateBucketConfiguration><Bucket/><Type>Directory</Type></CreateBucketConfiguration>"},
		{body: "<CreateBucketConfiguration><Bucket><Type>General</Type></Bucket></CreateBucketConfiguration>"},
	} {
		c.method, c.path = "PUT", fmt.Sprintf("/made-%d", i)
		w.must(t, 200, c)
	}
}

// A request for a bucket with tags or for a directory bucket gets 501 and creates nothing.
func TestBucketsThatAreNoneHereAreNotMade(t *testing.T) {
	w := newWorld(t)
	for _, body := range []string{
		"<CreateBucketConfiguration><Tags><Tag><Key>a</Key><Value>b</Value></Tag></Tags></CreateBucketConfiguration>",
		"<CreateBucketConfiguration><Tags><Tag/></Tags><Bucket/></CreateBucketConfiguration>",
		"<CreateBucketConfiguration><Location><Name>a</Name><Type>AvailabilityZone</Type></Location>" +
			"<Bucket><DataRedundancy>SingleAvailabilityZone</DataRedundancy><Type>Directory</Type></Bucket></CreateBucketConfiguration>",
	} {
		w.must(t, 501, call{method: "PUT", path: "/none", body: body})
		w.must(t, 404, call{method: "HEAD", path: "/none"})
	}
}

// A HEAD of a bucket without valid credentials is answered with 403 and the region, alike for every name. SDKs
// ask so where a bucket is, and the answer does not tell which buckets exist.
func TestWhereABucketIsIsToldToEverybody(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	for _, tc := range []struct {
		path, token string
		want        int
		region      string
	}{
		{"/photos", "-", 403, "us-east-1"},
		{"/photos", "nonsense", 403, "us-east-1"},
		{"/absent", "-", 403, "us-east-1"},
		{"/absent", "", 404, ""},
		{"/photos/cat.jpg", "-", 403, ""},
		{"/photos/cat.jpg", "", 200, ""},
	} {
		rec := w.must(t, tc.want, call{method: "HEAD", path: tc.path, token: tc.token})
		if got := rec.Header().Get("X-Amz-Bucket-Region"); got != tc.region {
			t.Errorf("%s as %q: region %q, want %q", tc.path, tc.token, got, tc.region)
		}
	}
}

// The deletion of a configuration that no bucket has here is 204 for a caller who may write, and changes
// nothing.
func TestDeletionsOfWhatNoBucketHasChangeNothing(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	before := w.fake.everything()
	for _, sub := range []string{"lifecycle", "policy", "encryption", "ownershipControls", "publicAccessBlock", "website", "replication", "metadataConfiguration", "metadataTable"} {
		if rec := w.must(t, 204, call{method: "DELETE", path: "/photos?" + sub}); rec.Body.Len() > 0 {
			t.Errorf("%s: %s", sub, rec.Body)
		}
		w.must(t, 403, call{method: "DELETE", path: "/photos?" + sub, token: w.reader.Token})
		w.must(t, 404, call{method: "DELETE", path: "/photos?" + sub, token: w.bob.Token})
	}
	if after := w.fake.everything(); after != before {
		t.Errorf("%s\n%s", before, after)
	}
}

// Each answer with a checksum has its type, FULL_OBJECT or COMPOSITE, in a header, also where the body has it.
func TestAnswersWithAChecksumSayWhatItIsOf(t *testing.T) {
	const mode = "x-amz-checksum-mode: ENABLED"
	w := newWorld(t)
	w.scene(t)
	upload := ""
	one := []string{"x-amz-checksum-crc32: " + crcOfHello}
	for _, tc := range []struct {
		want string
		call
	}{
		{"FULL_OBJECT", call{method: "PUT", path: "/photos/k", body: "hello", header: one}},
		{"FULL_OBJECT", call{method: "GET", path: "/photos/k", header: []string{mode}}},
		{"FULL_OBJECT", call{method: "HEAD", path: "/photos/k", header: []string{mode}}},
		{"FULL_OBJECT", call{method: "GET", path: "/photos/k?attributes", header: []string{"x-amz-object-attributes: Checksum"}}},
		{"FULL_OBJECT", call{method: "PUT", path: "/photos/copy", header: []string{"x-amz-copy-source: photos/k"}}},
		{"FULL_OBJECT", call{method: "PUT", path: "/photos/open?uploadId=upload-14&partNumber=3", body: "hello", header: one}},
		{"FULL_OBJECT", call{method: "GET", path: "/photos/open?uploadId=upload-14"}},
		{"FULL_OBJECT", call{method: "POST", path: "/photos", body: formOf("f", field{"key", "f"}, field{"x-amz-checksum-crc32", crcOfHello}, field{"file", "hello"}), header: []string{formHeader}}},
		{"COMPOSITE", call{method: "POST", path: "/photos/composed?uploads", header: []string{"x-amz-checksum-algorithm: CRC32"}}},
		{"COMPOSITE", call{method: "PUT", path: "/photos/composed?uploadId={upload}&partNumber=1", body: "hello", header: one}},
		{"COMPOSITE", call{method: "PUT", path: "/photos/composed?uploadId={upload}&partNumber=2", header: []string{"x-amz-copy-source: photos/k"}}},
		{"COMPOSITE", call{method: "GET", path: "/photos/composed?uploadId={upload}"}},
		{"COMPOSITE", call{method: "POST", path: "/photos/composed?uploadId={upload}", body: complete("4", sumOfHello, sumOfHello)}},
		{"COMPOSITE", call{method: "GET", path: "/photos/composed", header: []string{mode}}},
		{"COMPOSITE", call{method: "GET", path: "/photos/composed?partNumber=1", header: []string{mode}}},
		{"", call{method: "GET", path: "/photos/composed"}},
		{"FULL_OBJECT", call{method: "PUT", path: "/photos/none", body: "hello"}},
		{"FULL_OBJECT", call{method: "GET", path: "/photos/none", header: []string{mode}}},
		{"", call{method: "PUT", path: "/photos/open?uploadId=upload-14&partNumber=4", body: "hello"}},
	} {
		tc.path = strings.ReplaceAll(tc.path, "{upload}", upload)
		rec := w.do(t, tc.call)
		if got := rec.Header().Get("X-Amz-Checksum-Type"); rec.Code >= 300 || got != tc.want {
			t.Errorf("%s %s: %d, %q, want %q\n%s", tc.method, tc.path, rec.Code, got, tc.want, rec.Body)
		}
		if _, id, found := strings.Cut(rec.Body.String(), "<UploadId>"); found && tc.method == "POST" {
			id, _, _ = strings.Cut(id, "<")
			upload = id
		}
	}
}

// No answer about an upload without an algorithm names the CRC64NVME of its parts, which each part that is sent
// has for the object.
func TestAnUploadWithoutAnAlgorithmTellsOfNoChecksum(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	w.do(t, call{method: "PUT", path: "/photos/source", body: "hello world"})
	begun := w.do(t, call{method: "POST", path: "/photos/default?uploads"})
	_, id, _ := strings.Cut(begun.Body.String(), "<UploadId>")
	id, _, _ = strings.Cut(id, "<")
	for _, quiet := range []struct {
		call
		others bool // a checksum that was sent is answered
	}{
		{call{method: "PUT", path: "?uploadId=" + id + "&partNumber=1", body: "hello"}, false},
		{call{method: "PUT", path: "?uploadId=" + id + "&partNumber=2", header: []string{"x-amz-copy-source: photos/source"}}, false},
		{call{method: "PUT", path: "?uploadId=" + id + "&partNumber=3", header: []string{"x-amz-copy-source: photos/source", "x-amz-copy-source-range: bytes=0-4"}}, false},
		{call{method: "GET", path: "?uploadId=" + id}, false},
		{call{method: "PUT", path: "?uploadId=" + id + "&partNumber=4", body: "hello", header: []string{"x-amz-checksum-crc32: " + crcOfHello}}, true},
	} {
		quiet.path = "/photos/default" + quiet.path
		rec := w.do(t, quiet.call)
		told := rec.Header().Get("X-Amz-Checksum-Crc64nvme") + rec.Header().Get("X-Amz-Checksum-Algorithm")
		if rec.Code != 200 || told != "" || strings.Contains(rec.Body.String(), "CRC64NVME") {
			t.Errorf("%s %s: %d, %q\n%s", quiet.method, quiet.path, rec.Code, told, rec.Body)
		}
		if got := rec.Header().Get("X-Amz-Checksum-Crc32"); (got == crcOfHello) != quiet.others {
			t.Errorf("%s %s: the CRC32 is %q", quiet.method, quiet.path, got)
		}
	}
	parts, _, err := w.fake.Parts(t.Context(), w.who.Account, "photos", "default", state.UploadID(id), 0, 10)
	if err != nil || len(parts) != 4 {
		t.Fatal(len(parts), err)
	}
	for _, p := range parts {
		if !slices.ContainsFunc(p.Checksums, func(c state.Checksum) bool { return c.Algorithm == objects.CRC64NVME }) && p.Number != 2 && p.Number != 3 {
			t.Errorf("part %d has %+v", p.Number, p.Checksums)
		}
	}
}
