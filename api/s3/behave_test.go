package s3

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

type listed struct {
	KeyCount, MaxKeys                                                    int
	IsTruncated                                                          bool
	NextContinuationToken, NextMarker, NextKeyMarker, NextUploadIdMarker string //nolint:revive // as S3 has it
	KeyMarker, NextPartNumberMarker                                      string
	Contents                                                             []struct{ Key string }
	CommonPrefixes                                                       []struct{ Prefix string }
	Upload, Version                                                      []struct{ Key, UploadId string } //nolint:revive // as S3 has it
	Part                                                                 []struct{ PartNumber int }
}

func (w *world) list(t *testing.T, path string) (l listed, names []string) {
	t.Helper()
	rec := w.must(t, 200, call{method: "GET", path: path})
	if err := xml.Unmarshal(rec.Body.Bytes(), &l); err != nil {
		t.Fatalf("%s: %v: %s", path, err, rec.Body)
	}
	for _, c := range l.Contents {
		names = append(names, c.Key)
	}
	for _, c := range l.CommonPrefixes {
		names = append(names, c.Prefix)
	}
	return l, names
}

// The pages of a list have together what one page has, in both versions, with and without a delimiter, for each
// page size.
func TestPagesAreTheWholeListWhateverTheirSize(t *testing.T) {
	w := newWorld(t)
	keys := []string{"a", "a/", "a/b", "a/b/c", "a+b", "a b", "a%b", "å", "b//", "b//c", "foo+1/bar", "foo/bar", "foo/bar/xyzzy", "quux ab/thud", "z"}
	for _, key := range keys {
		w.put(t, "/photos/"+url.PathEscape(key), "x")
	}
	slices.Sort(keys)
	for _, query := range []string{"", "&prefix=a", "&delimiter=/", "&delimiter=%2F&prefix=foo/", "&delimiter=a", "&prefix=nothing"} {
		query += "&encoding-type=url"
		_, all := w.list(t, "/photos?list-type=2"+query)
		if query == "&encoding-type=url" {
			for i, key := range all {
				plain, err := url.PathUnescape(key)
				if err != nil || plain != keys[i] || strings.Contains(key, "+") || strings.Contains(key, "%2F") {
					t.Errorf("%q is listed as %q", keys[i], key)
				}
			}
		}
		for size := 1; size <= 4; size++ {
			var v2, v1 []string
			for token := ""; ; {
				l, names := w.list(t, fmt.Sprintf("/photos?list-type=2%s&max-keys=%d&continuation-token=%s", query, size, token))
				if l.KeyCount != len(names) || l.KeyCount > size || l.IsTruncated != (l.NextContinuationToken != "") || l.MaxKeys != size {
					t.Fatalf("%+v", l)
				}
				v2, token = append(v2, names...), l.NextContinuationToken
				if token == "" {
					break
				}
			}
			for marker := ""; ; {
				l, names := w.list(t, fmt.Sprintf("/photos?%s&max-keys=%d&marker=%s", query, size, marker))
				v1, marker = append(v1, names...), l.NextMarker
				if !l.IsTruncated {
					break
				}
			}
			slices.Sort(all)
			slices.Sort(v1)
			slices.Sort(v2)
			if !slices.Equal(v1, all) || !slices.Equal(v2, all) {
				t.Errorf("%s by %d: %q and %q, want %q", query, size, v1, v2, all)
			}
		}
	}
	if l, names := w.list(t, "/photos?list-type=2&max-keys=5000"); l.MaxKeys != 1000 || len(names) != len(keys) {
		t.Errorf("max-keys of 5000: %+v", l)
	}
	if _, names := w.list(t, "/photos?list-type=2&start-after=foo/bar&continuation-token="+toToken("quux ab/thud")); len(names) != 2 {
		t.Errorf("a token counts more than start-after: %q", names)
	}
}

// Conditions of a read give the status that Amazon S3 gives, also together and with ranges, and each answer has
// ETag and Last-Modified.
func TestConditionsOfReadsAreWeighedAsAmazonDoes(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/k", "hello", "Expires: Wed, 21 Oct 2037 07:28:00 GMT") // at 03:04:07.678
	const (
		tag    = `"` + sumOfHello + `"`
		before = "Fri, 02 Jan 2026 03:04:06 GMT"
		at     = "Fri, 02 Jan 2026 03:04:07 GMT"
		future = "Fri, 02 Jan 2099 03:04:07 GMT"
	)
	for _, asked := range []string{"no-cache", "max-age=5"} {
		rec := w.must(t, 304, call{method: "GET", path: "/photos/k?response-expires=0&response-cache-control=" + asked, header: []string{"If-None-Match: *"}})
		if rec.Header().Get("Cache-Control") != asked || rec.Header().Get("Expires") != "0" {
			t.Errorf("%s: 304 with %v", asked, rec.Header())
		}
	}
	for _, tc := range []struct {
		header []string
		want   int
	}{
		{[]string{"If-Match: " + tag}, 200},
		{[]string{"If-Match: " + sumOfHello}, 200},
		{[]string{`If-Match: "x", ` + tag}, 200},
		{[]string{`If-Match: "x"`, "If-Match: " + tag}, 200},
		{[]string{"If-Match: *"}, 200},
		{[]string{`If-Match: "x"`}, 412},
		{[]string{"If-Match: W/" + tag}, 412},
		{[]string{"If-Match: " + tag, "If-Unmodified-Since: " + before}, 200},
		{[]string{`If-Match: "x"`, "If-Unmodified-Since: " + future}, 412},
		{[]string{"If-Unmodified-Since: " + before}, 412},
		{[]string{"If-Unmodified-Since: " + at}, 200},
		{[]string{"If-Unmodified-Since: yesterday"}, 200},
		{[]string{"If-None-Match: " + tag}, 304},
		{[]string{"If-None-Match: W/" + tag}, 304},
		{[]string{"If-None-Match: *"}, 304},
		{[]string{`If-None-Match: "x"`}, 200},
		{[]string{`If-None-Match: "x"`, "If-Modified-Since: " + future}, 200},
		{[]string{"If-None-Match: " + tag, "If-Modified-Since: " + before}, 304},
		{[]string{"If-Modified-Since: " + before}, 200},
		{[]string{"If-Modified-Since: " + at}, 304},
		{[]string{"If-Modified-Since: " + future}, 304},
		{[]string{"If-Modified-Since: Friday, 02-Jan-26 03:04:07 GMT"}, 304},
		{[]string{"If-Modified-Since: never"}, 200},
		{[]string{"If-Match: " + tag, "If-None-Match: " + tag}, 304},
		{[]string{"If-Match: " + tag, "If-Modified-Since: " + future}, 304},
		{[]string{"Range: bytes=0-1", `If-Match: "x"`}, 412},
		{[]string{"Range: bytes=9-", `If-Match: "x"`}, 412},
		{[]string{"Range: bytes=9-", "If-None-Match: " + tag}, 304},
		{[]string{"Range: bytes=0-1", "If-Range: " + tag}, 206},
		{[]string{"Range: bytes=0-1", `If-Range: "x"`}, 200},
		{[]string{"Range: bytes=0-1", "If-Range: W/" + tag}, 200},
		{[]string{"Range: bytes=0-1", "If-Range: " + at}, 206},
		{[]string{"Range: bytes=0-1", "If-Range: " + before}, 200},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			rec := w.do(t, call{method: method, path: "/photos/k", header: tc.header})
			if rec.Code != tc.want || rec.Header().Get("Etag") != tag || rec.Header().Get("Last-Modified") != at {
				t.Errorf("%s %q: %d, want %d: %v", method, tc.header, rec.Code, tc.want, rec.Header())
			}
			if got := rec.Header().Get("Expires"); rec.Code < 400 && got != "Wed, 21 Oct 2037 07:28:00 GMT" {
				t.Errorf("%s %q: %d expires %q", method, tc.header, rec.Code, got)
			}
			if (rec.Code == 304 || method == "HEAD") && rec.Body.Len() > 0 {
				t.Errorf("%s %q: a body", method, tc.header)
			}
		}
	}
}

// A Range header with one valid range selects its bytes, one behind the end is unsatisfiable, and each other
// form is ignored.
func TestRanges(t *testing.T) {
	for _, tc := range []struct {
		header string
		size   int64
		want   string // first+count; "all", "none"
	}{
		{"bytes=0-4", 10, "0+5"},
		{"bytes=5-", 10, "5+5"},
		{"bytes=-3", 10, "7+3"},
		{"bytes=-30", 10, "0+10"},
		{"bytes=9-9", 10, "9+1"},
		{"bytes=0-99", 10, "0+10"},
		{"Bytes=1-1", 10, "1+1"},
		{"bytes=0-99999999999999999999", 10, "0+10"},
		{"bytes=0-0", 1, "0+1"},
		{"bytes=10-", 10, "none"},
		{"bytes=10-20", 10, "none"},
		{"bytes=-0", 10, "none"},
		{"bytes=0-", 0, "none"},
		{"bytes=-0", 0, "none"},
		{"bytes=-1", 0, "all"},
		{"bytes=-99999999999999999999", 0, "all"},
		{"", 10, "all"},
		{"bytes=", 10, "all"},
		{"bytes=-", 10, "all"},
		{"bytes=a-b", 10, "all"},
		{"bytes=4-2", 10, "all"},
		{"bytes=1-2,4-5", 10, "all"},
		{"bytes=1", 10, "all"},
		{"lines=1-2", 10, "all"},
		{"bytes 1-2", 10, "all"},
		{"bytes=+1-2", 10, "all"},
		{"bytes=1--2", 10, "all"},
		{"bytes=0x1-2", 10, "all"},
		{"bytes= -1", 10, "all"},
		{"bytes= 0-1", 10, "all"},
		{"bytes=0 -1", 10, "all"},
	} {
		s, given, err := rangeOf(tc.header, tc.size)
		got := fmt.Sprintf("%d+%d", s.first, s.count)
		if err != nil {
			got = "none"
		} else if !given {
			got = "all"
		}
		if got != tc.want {
			t.Errorf("%q of %d: %s, want %s", tc.header, tc.size, got, tc.want)
		}
	}
}

// A range behind the end gets 416 with the size of the object, and the last bytes of an empty object are an
// empty 200.
func TestARangeBehindTheEndNamesTheSize(t *testing.T) {
	w := newWorld(t)
	w.must(t, 200, call{method: "PUT", path: "/photos"})
	w.must(t, 200, call{method: "PUT", path: "/photos/empty"})
	rec := w.must(t, 416, call{method: "GET", path: "/photos/empty", header: []string{"Range: bytes=0-"}})
	if !strings.Contains(rec.Body.String(), "<RangeRequested>bytes=0-</RangeRequested><ActualObjectSize>0</ActualObjectSize>") {
		t.Errorf("%s", rec.Body)
	}
	// Readers that begin at the end, as of Parquet, ask so whatever the size is.
	for _, method := range []string{"GET", "HEAD"} {
		rec := w.must(t, 200, call{method: method, path: "/photos/empty", header: []string{"Range: bytes=-8"}})
		if h := rec.Header(); h.Get("Content-Range") != "" || h.Get("Content-Length") != "0" {
			t.Errorf("%s: %v", method, h)
		}
	}
}

// Tags of an object come back in their order and as they were written, with their count, until they are deleted.
func TestTagsAreKeptInTheirOrder(t *testing.T) {
	w := newWorld(t)
	long, value := strings.Repeat("🦀", 128), strings.Repeat("🦀", 256)
	body := "<Tagging><TagSet><Tag><Key>z</Key><Value></Value></Tag><Tag><Value>" + value + "</Value><Key>" + long + "</Key></Tag><Tag><Key>a &amp; b</Key><Value>&#60;</Value></Tag></TagSet></Tagging>"
	w.put(t, "/photos/k", "x", "x-amz-tagging: old=1")
	w.must(t, 200, call{method: "PUT", path: "/photos/k?tagging", body: body})
	o, err := w.fake.Object(t.Context(), w.who.Account, "photos", "k", "")
	want := []state.Tag{{Key: "z"}, {Key: long, Value: value}, {Key: "a & b", Value: "<"}}
	if err != nil || !slices.Equal(o.Tags, want) {
		t.Errorf("%+v, %v", o.Tags, err)
	}
	var got struct{ TagSet struct{ Tag []state.Tag } }
	if err := xml.Unmarshal(w.must(t, 200, call{method: "GET", path: "/photos/k?tagging"}).Body.Bytes(), &got); err != nil || !slices.Equal(got.TagSet.Tag, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if n := w.must(t, 200, call{method: "HEAD", path: "/photos/k"}).Header().Get("X-Amz-Tagging-Count"); n != "3" {
		t.Errorf("count %s", n)
	}
	w.must(t, 204, call{method: "DELETE", path: "/photos/k?tagging"})
	if rec := w.must(t, 200, call{method: "HEAD", path: "/photos/k"}); rec.Header().Get("X-Amz-Tagging-Count") != "" {
		t.Errorf("%v", rec.Header())
	}
}

// A copy has the metadata and tags of its source, or those of its request where its directives say REPLACE.
func TestCopiesCarryWhatIsAskedFor(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/a%20b+c%2F.txt", "hello", "Content-Type: text/a", "x-amz-meta-m: 1", "x-amz-tagging: t=1")
	o, err := w.fake.Object(t.Context(), w.who.Account, "photos", "a b+c/.txt", "")
	if err != nil {
		t.Fatal(err)
	}
	const now = `"` + sumOfHello + `"`
	for _, tc := range []struct {
		name                string
		header              []string
		contentType, m, tag string
	}{
		{"as it is", []string{"x-amz-copy-source: /photos/a%20b%2Bc/.txt"}, "text/a", "1", "1"},
		{"without the first slash, all encoded", []string{"x-amz-copy-source: photos%2Fa%20b%2Bc%2F.txt"}, "text/a", "1", "1"},
		{"its version", []string{"x-amz-copy-source: photos/a+b%2Bc/.txt?versionId=" + string(o.ID)}, "text/a", "1", "1"},
		{"no version", []string{"x-amz-copy-source: photos/a+b%2Bc/.txt?versionId=null", "Content-Type: text/b"}, "text/a", "1", "1"},
		{"other metadata", []string{"x-amz-copy-source: photos/a+b%2Bc/.txt", "x-amz-metadata-directive: REPLACE", "Content-Type: text/b", "x-amz-meta-m: 2", "x-amz-tagging: t=2"}, "text/b", "2", "1"},
		{"other tags", []string{"x-amz-copy-source: photos/a+b%2Bc/.txt", "x-amz-tagging-directive: REPLACE", "Content-Type: text/b", "x-amz-meta-m: 2", "x-amz-tagging: t=2"}, "text/a", "1", "2"},
		{"all other", []string{"x-amz-copy-source: photos/a+b%2Bc/.txt", "x-amz-metadata-directive: REPLACE", "x-amz-tagging-directive: REPLACE", "x-amz-tagging: t=3"}, "", "", "3"},
		{"conditions that hold", []string{"x-amz-copy-source: photos/a+b%2Bc/.txt", "x-amz-copy-source-if-match: " + now, `x-amz-copy-source-if-none-match: "x"`, "x-amz-copy-source-if-modified-since: Fri, 02 Jan 2026 03:04:06 GMT"}, "text/a", "1", "1"},
	} {
		w.must(t, 200, call{method: "PUT", path: "/photos/copy", header: tc.header})
		o, err := w.fake.Object(t.Context(), w.who.Account, "photos", "copy", "")
		if err != nil || o.Headers["Content-Type"] != tc.contentType || o.Meta["m"] != tc.m || o.Tags[0].Value != tc.tag || o.ETag != sumOfHello {
			t.Errorf("%s: %+v, %v", tc.name, o, err)
		}
	}
	w.must(t, 200, call{method: "PUT", path: "/photos/copy", header: []string{"x-amz-copy-source: photos/copy", "x-amz-metadata-directive: REPLACE", "x-amz-meta-mtime: 1"}})
	if rec := w.must(t, 200, call{method: "HEAD", path: "/photos/copy"}); rec.Header().Get("X-Amz-Meta-Mtime") != "1" || rec.Header().Get("Etag") != now {
		t.Errorf("%v", rec.Header())
	}
	// As aws s3 cp --storage-class does it: all but the time stays.
	w.must(t, 200, call{method: "PUT", path: "/photos/copy", header: []string{"x-amz-copy-source: photos/copy", "x-amz-storage-class: STANDARD", "x-amz-meta-mtime: 2", "x-amz-tagging: t=9"}})
	if o, err := w.fake.Object(t.Context(), w.who.Account, "photos", "copy", ""); err != nil || o.Meta["mtime"] != "1" || len(o.Tags) == 0 || o.Tags[0].Value != "1" {
		t.Errorf("%+v, %v", o, err)
	}
}

// The only part of an upload reports the checksum of its bytes, the whole object the checksum of checksums, and
// a copy none for the part.
func TestTheOnlyPartHasItsOwnChecksum(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	rec := w.must(t, 200, call{method: "POST", path: "/photos/one?uploads", header: []string{"x-amz-checksum-algorithm: SHA256"}})
	var ids struct{ UploadId string } //nolint:revive // as S3 has it
	if err := xml.Unmarshal(rec.Body.Bytes(), &ids); err != nil {
		t.Fatal(err)
	}
	w.must(t, 200, call{method: "PUT", path: "/photos/one?partNumber=1&uploadId=" + ids.UploadId, body: "hello"})
	w.must(t, 200, call{method: "POST", path: "/photos/one?uploadId=" + ids.UploadId, body: complete("", sumOfHello)})
	w.must(t, 200, call{method: "PUT", path: "/photos/copy", header: []string{"x-amz-copy-source: photos/one"}})
	sum := sha256.Sum256([]byte("hello"))
	for path, want := range map[string]string{
		"/photos/one?partNumber=1":  base64.StdEncoding.EncodeToString(sum[:]),
		"/photos/copy?partNumber=1": "", // copies do not have those of the parts
	} {
		h := w.must(t, 206, call{method: "HEAD", path: path, header: []string{"x-amz-checksum-mode: ENABLED"}}).Header()
		if got := h.Get("X-Amz-Checksum-Sha256"); got != want || (want == "") != (h.Get("X-Amz-Checksum-Type") == "") {
			t.Errorf("%s: %q of type %q, want %q", path, got, h.Get("X-Amz-Checksum-Type"), want)
		}
	}
	if got := w.must(t, 200, call{method: "HEAD", path: "/photos/copy", header: []string{"x-amz-checksum-mode: ENABLED"}}).Header().Get("X-Amz-Checksum-Sha256"); !strings.HasSuffix(got, "-1") {
		t.Errorf("the whole has %q", got)
	}
}

// An upload is completed whether its ETags come quoted, escaped or bare, and only with the right size and
// checksum; a repeated request succeeds.
func TestPartsAreJoinedHoweverAClientWritesThem(t *testing.T) {
	one, two := "11111", "2"
	for i, body := range []string{
		`<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"%s"</ETag></Part><Part><PartNumber>7</PartNumber><ETag>"%s"</ETag></Part></CompleteMultipartUpload>`,
		`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Part><ETag>&quot;%s&quot;</ETag><PartNumber>1</PartNumber></Part><Part><ETag>&#34;%s&#34;</ETag><PartNumber>7</PartNumber></Part></CompleteMultipartUpload>`,
		"\ufeff<s3:CompleteMultipartUpload xmlns:s3='x'>\n <s3:Part><!-- one --><s3:ETag> %s </s3:ETag>\n<s3:PartNumber> 1 </s3:PartNumber></s3:Part><s3:Part><s3:ETag><![CDATA[%s]]></s3:ETag><s3:PartNumber>7</s3:PartNumber><Other><x/></Other></s3:Part></s3:CompleteMultipartUpload>\n",
	} {
		if i == 2 {
			body = strings.Replace(body, "<Other><x/></Other>", "<Other>x</Other>", 1)
		}
		w := newWorld(t)
		w.must(t, 200, call{method: "PUT", path: "/photos"})
		var made struct{ UploadId string } //nolint:revive // as S3 has it
		rec := w.must(t, 200, call{method: "POST", path: "/photos/k?uploads=&x-id=Create", header: []string{"x-amz-checksum-algorithm: SHA256", "x-amz-meta-a: b", "x-amz-tagging: t=1"}})
		if err := xml.Unmarshal(rec.Body.Bytes(), &made); err != nil {
			t.Fatal(err)
		}
		id := "uploadId=" + made.UploadId
		w.must(t, 400, call{method: "PUT", path: "/photos/k?partNumber=7&" + id, body: two, header: []string{"x-amz-checksum-crc32: AAAAAA=="}})
		w.must(t, 200, call{method: "PUT", path: "/photos/k?partNumber=7&" + id, body: "overwritten"})
		w.must(t, 200, call{method: "PUT", path: "/photos/k?partNumber=7&" + id, body: two})
		w.must(t, 200, call{method: "PUT", path: "/photos/k?" + id + "&partNumber=1", body: one})
		w.must(t, 404, call{method: "GET", path: "/photos/k"})
		done := call{method: "POST", path: "/photos/k?" + id, body: fmt.Sprintf(body, md5Of(one), md5Of(two))}
		wrong := done
		wrong.header = []string{"x-amz-mp-object-size: 7"}
		w.must(t, 400, wrong)
		sum := base64.StdEncoding.EncodeToString(digest("SHA256", append(digest("SHA256", []byte(one)), digest("SHA256", []byte(two))...)))
		wrong.header = []string{"x-amz-checksum-sha256: " + sum}
		w.must(t, 400, wrong) // it is composed, and says so by its type or the parts behind it
		for _, count := range []string{"-0", "-1", "-3", "-99", "-99999999999999999999"} {
			wrong.header = []string{"x-amz-checksum-sha256: " + sum + count}
			if rec := w.must(t, 400, wrong); !strings.Contains(rec.Body.String(), "<Code>BadDigest</Code>") {
				t.Errorf("%s parts: %s", count, rec.Body)
			}
		}
		w.must(t, 404, call{method: "GET", path: "/photos/k"})
		done.header = []string{"x-amz-mp-object-size: 6", "x-amz-checksum-sha256: " + sum + "-2", "x-amz-checksum-type: COMPOSITE"}
		if rec := w.must(t, 200, done); !strings.Contains(rec.Body.String(), "<ChecksumSHA256>"+sum+"-2</ChecksumSHA256>") {
			t.Errorf("%s", rec.Body)
		}
		w.must(t, 200, done) // a client that did not hear the answer
		got := w.must(t, 200, call{method: "GET", path: "/photos/k"})
		done.header = []string{"x-amz-checksum-sha256: " + sum, "x-amz-checksum-type: COMPOSITE"}
		w.must(t, 200, done)
		if got.Body.String() != one+two || got.Header().Get("X-Amz-Meta-A") != "b" || got.Header().Get("X-Amz-Tagging-Count") != "1" {
			t.Errorf("%v %s", got.Header(), got.Body)
		}
	}
}

// Uploads and parts are listed once each, in order, by pages, and an aborted upload is gone.
func TestPartsAndUploadsArePaged(t *testing.T) {
	w := newWorld(t)
	w.must(t, 200, call{method: "PUT", path: "/photos"})
	for _, key := range []string{"b", "a", "a", "c/d", "c/e"} {
		w.must(t, 200, call{method: "POST", path: "/photos/" + key + "?uploads"})
	}
	var id string // of the last upload
	var got []string
	for marker := ""; ; {
		l, _ := w.list(t, "/photos?uploads&max-uploads=1"+marker)
		for _, u := range l.Upload {
			got, id = append(got, u.Key), u.UploadId
		}
		if !l.IsTruncated {
			break
		}
		marker = "&key-marker=" + url.QueryEscape(l.NextKeyMarker) + "&upload-id-marker=" + l.NextUploadIdMarker
	}
	if want := []string{"a", "a", "b", "c/d", "c/e"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if l, _ := w.list(t, "/photos?uploads&delimiter=/&prefix=c"); len(l.Upload) != 0 || len(l.CommonPrefixes) != 1 {
		t.Errorf("%+v", l)
	}
	for n := 1; n <= 5; n++ {
		w.must(t, 200, call{method: "PUT", path: fmt.Sprintf("/photos/c/e?uploadId=%s&partNumber=%d", id, 11-n), body: "x"})
	}
	var parts []int
	for marker := ""; ; {
		l, _ := w.list(t, "/photos/c/e?max-parts=2&uploadId="+id+"&part-number-marker="+marker)
		for _, p := range l.Part {
			parts = append(parts, p.PartNumber)
		}
		marker = l.NextPartNumberMarker
		if !l.IsTruncated {
			break
		}
	}
	if fmt.Sprint(parts) != "[6 7 8 9 10]" {
		t.Errorf("%v", parts)
	}
	w.must(t, 204, call{method: "DELETE", path: "/photos/c/e?uploadId=" + id})
	w.must(t, 404, call{method: "GET", path: "/photos/c/e?uploadId=" + id})
}

// An upload with a part that is too small gets EntityTooSmall with the least size of a part.
func TestASmallPartIsNamedByItsLeastSize(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	w.fake.minPart = 6
	rec := w.must(t, 400, call{method: "POST", path: "/photos/open?uploadId=upload-14", body: complete("", md5Of("first"), md5Of("second"))})
	if !strings.Contains(rec.Body.String(), "EntityTooSmall") || !strings.Contains(rec.Body.String(), "at least 5 bytes") {
		t.Errorf("%s", rec.Body)
	}
}

// A bucket is found in the name of the host below the domain of the settings, else in the path.
func TestABucketCanBeInTheNameOfTheHost(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/my.photos/k", "hello")
	for host, path := range map[string]string{
		"my.photos.s3.test": "/k", "MY.Photos.S3.TEST:9000": "/k", "my.photos.s3.test.": "/k", "s3.test": "/my.photos/k", "127.0.0.1:9000": "/my.photos/k", "other.example": "/my.photos/k",
	} {
		if rec := w.must(t, 200, call{method: "GET", path: path, header: []string{"Host: " + host}}); rec.Body.String() != "hello" {
			t.Errorf("%s%s: %s", host, path, rec.Body)
		}
	}
	w.must(t, 200, call{method: "GET", path: "/?list-type=2", header: []string{"Host: my.photos.s3.test"}})
	w.must(t, 200, call{method: "PUT", path: "//k", body: "x", header: []string{"Host: my.photos.s3.test"}})
	if _, err := w.fake.Object(t.Context(), w.who.Account, "my.photos", "/k", ""); err != nil {
		t.Error(err)
	}
	w.options.Domain = ""
	w.rebuild(t)
	w.must(t, 404, call{method: "GET", path: "/photos", header: []string{"Host: my.photos.s3.test"}})
}

// A key is stored and read exactly as it was sent, without cleaning.
func TestKeysAreKeptAsTheyAre(t *testing.T) {
	w := newWorld(t)
	w.must(t, 200, call{method: "PUT", path: "/photos"})
	for _, key := range []string{"%01%1f", "%C3%A5", "..", ".", "a/../b", "a//b/", "//", "%2F", "%2E%2E/%2e", "a%3Fb%23c", "+", "%2B", "%20", "~!*'()", ";:@&=$,", strings.Repeat("k", 1024)} {
		w.must(t, 200, call{method: "PUT", path: "/photos/" + key, body: key})
		plain, err := url.PathUnescape(key)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := w.fake.Object(t.Context(), w.who.Account, "photos", plain, ""); err != nil || o.Key != plain {
			t.Errorf("%q: %v", key, err)
		}
		if rec := w.must(t, 200, call{method: "GET", path: "/photos/" + escapeKey(plain)}); rec.Header().Get("Content-Length") == "" {
			t.Errorf("%q: %v", key, rec.Header())
		}
	}
}

// An object whose metadata says that its client encrypted it is served with the default content type.
func TestWhatAClientEncryptedHasNoTypeOfItsOwn(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/k", "x", "Content-Type: text/html", sealedMeta)
	w.put(t, "/photos/l", "x", "Content-Type: text/html", "x-amz-meta-encrypted: TRUE")
	w.put(t, "/photos/m", "x", "Content-Type: text/html", "x-amz-meta-encrypted: false")
	for path, want := range map[string]string{"/photos/k": defaultType, "/photos/l": defaultType, "/photos/m": "text/html"} {
		for _, method := range []string{"GET", "HEAD"} {
			if got := w.must(t, 200, call{method: method, path: path}).Header().Get("Content-Type"); got != want {
				t.Errorf("%s %s: %s", method, path, got)
			}
		}
	}
	w.must(t, 200, call{method: "PUT", path: "/photos/copy", header: []string{"x-amz-copy-source: photos/k"}})
	_, want, _ := strings.Cut(sealedMeta, ": ")
	if got := w.must(t, 200, call{method: "HEAD", path: "/photos/copy"}).Header().Get("X-Amz-Meta-Encryption"); got != want {
		t.Errorf("%s", got)
	}
}

// An object returns the checksum that its PUT sent or asked for, of each algorithm, to a whole read that asks
// for it and to no other.
func TestChecksumsAreVerifiedAndKept(t *testing.T) {
	w := newWorld(t)
	for _, a := range algorithms {
		sum := base64.StdEncoding.EncodeToString(digest(a.name, []byte("hello")))
		for _, header := range [][]string{{a.header + ": " + sum}, {"x-amz-sdk-checksum-algorithm: " + a.name}} {
			w.put(t, "/photos/k", "hello", header...)
			rec := w.must(t, 200, call{method: "GET", path: "/photos/k", header: []string{"x-amz-checksum-mode: enabled"}})
			if rec.Header().Get(a.header) != sum || rec.Header().Get("X-Amz-Checksum-Type") != "FULL_OBJECT" {
				t.Errorf("%s: %v", a.name, rec.Header())
			}
		}
		for _, header := range [][]string{nil, {"x-amz-checksum-mode: ENABLED", "Range: bytes=0-1"}} {
			if rec := w.do(t, call{method: "GET", path: "/photos/k", header: header}); rec.Header().Get(a.header) != "" {
				t.Errorf("%s: %v: %v", a.name, header, rec.Header())
			}
		}
	}
	// The value that the catalogue of CRC algorithms has for CRC-64/NVME of "123456789".
	if got := fmt.Sprintf("%x", digest("CRC64NVME", []byte("123456789"))); got != "ae8b14860a799888" {
		t.Errorf("CRC64NVME %s", got)
	}
}

// A PUT or DELETE with If-Match or If-None-Match changes the object only if its ETag allows it, else 412 or 404.
func TestWritesHaveConditions(t *testing.T) {
	w := newWorld(t)
	w.must(t, 200, call{method: "PUT", path: "/photos"})
	put := func(body, condition string) int {
		return w.do(t, call{method: "PUT", path: "/photos/k", body: body, header: []string{condition}}).Code
	}
	for i, step := range []struct {
		body, condition string
		want            int
	}{
		{"one", `If-Match: "x"`, 404},
		{"one", "If-None-Match: *", 200},
		{"two", "If-None-Match: *", 412},
		{"two", `If-Match: "` + md5Of("one") + `"`, 200},
		{"three", "If-Match: " + md5Of("one"), 412},
		{"three", "If-Match: " + md5Of("one") + `, "` + md5Of("two") + `"`, 200},
		{"four", "If-Match: *", 200},
		{"five", `If-None-Match: "` + md5Of("four") + `"`, 412},
		{"five", `If-None-Match: "x", W/"` + md5Of("four") + `"`, 412},
		{"five", `If-None-Match: "` + md5Of("one") + `"`, 200},
		{"four", "If-None-Match: " + md5Of("four"), 200},
	} {
		if got := put(step.body, step.condition); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
	w.must(t, 412, call{method: "DELETE", path: "/photos/k", header: []string{"If-Match: x"}})
	w.must(t, 204, call{method: "DELETE", path: "/photos/k", header: []string{"If-Match: " + md5Of("four")}})
}

// Without versioning the id of the current version and null name the object, and the id of a replaced one names
// nothing.
func TestVersionsThatAreNamed(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/k", "old")
	old := w.must(t, 200, call{method: "HEAD", path: "/photos/k"}).Header().Get("X-Amz-Version-Id")
	w.must(t, 200, call{method: "GET", path: "/photos/k?versionId=" + old})
	w.must(t, 200, call{method: "GET", path: "/photos/k?versionId=null"})
	w.put(t, "/photos/k", "new")
	w.must(t, 404, call{method: "GET", path: "/photos/k?versionId=" + old})
	w.must(t, 404, call{method: "DELETE", path: "/photos/k?versionId=" + old})
	w.must(t, 204, call{method: "DELETE", path: "/photos/absent?versionId=" + old})
	now := w.must(t, 200, call{method: "HEAD", path: "/photos/k"}).Header().Get("X-Amz-Version-Id")
	w.must(t, 204, call{method: "DELETE", path: "/photos/k?versionId=" + now})
	w.must(t, 404, call{method: "HEAD", path: "/photos/k"})
}

// An account and an address above their rate get 503 SlowDown with Retry-After, without a line in the log at
// INFO.
func TestAddressesAndAccountsAreHeldToTheirRates(t *testing.T) {
	w := newWorld(t)
	w.must(t, 200, call{method: "PUT", path: "/photos"})
	for name, limits := range map[string]*web.Limits{
		"account": web.NewLimits(web.Rate{PerSecond: 1, Burst: 2}, web.Rate{}, nil, w.now),
		"address": web.NewLimits(web.Rate{}, web.Rate{PerSecond: 1, Burst: 2}, nil, w.now),
	} {
		var log bytes.Buffer
		w.options.Limits, w.options.Logger = limits, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
		w.rebuild(t)
		for range 2 {
			w.must(t, 200, call{method: "GET", path: "/photos"})
		}
		rec := w.must(t, 503, call{method: "GET", path: "/photos"})
		if rec.Header().Get("Retry-After") != "1" || !strings.Contains(rec.Body.String(), "<Code>SlowDown</Code>") {
			t.Errorf("%s: %v %s", name, rec.Header(), rec.Body)
		}
		if log.Len() > 0 {
			t.Errorf("%s: a flood of requests is a flood of the log: %s", name, &log)
		}
	}
}

// Neither keys of objects nor tokens are in the log, also where a policy with a key refuses a form.
func TestTheLogHasNoKeysOfObjects(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	var log bytes.Buffer
	w.options.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.rebuild(t)
	for _, c := range []call{{method: "GET", path: "/photos/cat.jpg"}, {method: "GET", path: "/photos/absent-cat"}, {method: "PUT", path: "/photos/secret-cat?acl"}, {method: "GET", path: "/photos?prefix=secret"}} {
		w.do(t, c)
	}
	form := formOf("cat", append(w.signedFields(&w.alice, policyOf(`["eq", "$key", "secret-cat"]`)), field{"key", "other"}, field{"file", "x"})...)
	rec := w.must(t, 403, call{method: "POST", path: "/photos", token: "-", body: form, header: []string{formHeader}})
	if !strings.Contains(rec.Body.String(), "Policy Condition failed: [&quot;eq&quot;,&quot;$key&quot;,&quot;secret-cat&quot;]") {
		t.Errorf("%s", rec.Body)
	}
	if text := log.String(); strings.Contains(text, "cat") || strings.Contains(text, "secret") || strings.Contains(text, w.alice.Token) || !strings.Contains(text, "path=/photos/…") {
		t.Errorf("%s", text)
	}
}

// A preflight is allowed for the origins of the settings and refused for others, and allowed scripts may read
// the ETag.
func TestScriptsOfAllowedOriginsMayUseIt(t *testing.T) {
	w := newWorld(t)
	preflight := call{method: "OPTIONS", path: "/", token: "-", header: []string{"Origin: https://a.example", "Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: authorization,x-amz-meta-x"}}
	if rec := w.must(t, 403, preflight); rec.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("without origins: %v", rec.Header())
	}
	for origins, want := range map[string]string{"*": "*", "https://a.example": "https://a.example", "https://b.example": ""} {
		w.options.Origins = []string{origins}
		w.rebuild(t)
		rec := w.do(t, preflight)
		h := rec.Header()
		if h.Get("Access-Control-Allow-Origin") != want || (want != "") != (rec.Code == http.StatusOK) || (want != "") != strings.Contains(h.Get("Access-Control-Allow-Methods"), "PUT") {
			t.Errorf("%s: %d %v", origins, rec.Code, h)
		}
		if want != "" && h.Get("Access-Control-Allow-Headers") != "authorization,x-amz-meta-x" {
			t.Errorf("%s: %v", origins, h)
		}
		rec = w.must(t, 200, call{method: "GET", path: "/", header: []string{"Origin: https://a.example"}})
		if (want != "") != strings.Contains(rec.Header().Get("Access-Control-Expose-Headers"), "ETag") || rec.Header().Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %v", origins, rec.Header())
		}
	}
}

// An account lists MaxBucketsPerUser buckets, and one more is refused with TooManyBuckets.
func TestAnAccountHasSoManyBuckets(t *testing.T) {
	w := newWorld(t)
	for n := range state.MaxBucketsPerUser {
		if err := w.fake.CreateBucket(t.Context(), w.who.Account, fmt.Sprintf("bucket-%d", n), false); err != nil {
			t.Fatal(err)
		}
	}
	if rec := w.must(t, 400, call{method: "PUT", path: "/photos"}); !strings.Contains(rec.Body.String(), "TooManyBuckets") {
		t.Errorf("%s", rec.Body)
	}
	var all struct {
		Buckets struct{ Bucket []struct{ Name string } }
	}
	if err := xml.Unmarshal(w.must(t, 200, call{method: "GET", path: "/"}).Body.Bytes(), &all); err != nil || len(all.Buckets.Bucket) != state.MaxBucketsPerUser {
		t.Errorf("%d, %v", len(all.Buckets.Bucket), err)
	}
}

// An upload beyond the bound of its bucket gets InvalidRequest with the reason, not the code of a large body.
func TestMoreUploadsThanABucketMayHaveAreNoLargeBody(t *testing.T) {
	w := newWorld(t)
	w.fake.err = state.Errorf(state.CodeTooLarge, "the bucket has its most open uploads, 10000")
	rec := w.must(t, 400, call{method: "POST", path: "/photos/k?uploads"})
	if body := rec.Body.String(); !strings.Contains(body, "InvalidRequest") || !strings.Contains(body, "open uploads") {
		t.Errorf("%s", body)
	}
}

// A DeleteObjects request with the most keys deletes all valid ones, reports the key that is too long, and
// leaves the rest.
func TestALargeDeleteIsOneChange(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/keep", "x")
	var body strings.Builder
	body.WriteString("<Delete>")
	for n := range state.MaxDeleteKeys - 1 {
		key := fmt.Sprintf("k%d&#x1;&amp;", n)
		w.put(t, "/photos/"+url.PathEscape(fmt.Sprintf("k%d\x01&", n)), "x")
		fmt.Fprintf(&body, "<Object><Key>%s</Key></Object>", key)
	}
	body.WriteString("<Object><Key>" + strings.Repeat("x", 1025) + "</Key></Object></Delete>")
	rec := w.must(t, 200, call{method: "POST", path: "/photos?delete", body: body.String()})
	if n := strings.Count(rec.Body.String(), "<Deleted>"); n != state.MaxDeleteKeys-1 || !strings.Contains(rec.Body.String(), "KeyTooLongError") {
		t.Errorf("%d deleted", n)
	}
	if _, names := w.list(t, "/photos?list-type=2"); !slices.Equal(names, []string{"keep"}) {
		t.Errorf("%q", names)
	}
}

// Each deletion by ETag has its own time, so a long request deletes all of its keys, and if the cluster does not
// answer the rest is refused without further attempts.
func TestDeletionsByETagHaveTheirOwnTime(t *testing.T) {
	for slow, deleted := range map[time.Duration]int{100 * time.Millisecond: state.MaxDeleteKeys, 2 * caseTimeout: 0} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var body strings.Builder
			body.WriteString("<Delete>")
			for n := range state.MaxDeleteKeys {
				w.put(t, fmt.Sprintf("/photos/k%d", n), "hello")
				fmt.Fprintf(&body, "<Object><Key>k%d</Key><ETag>%s</ETag></Object>", n, sumOfHello)
			}
			body.WriteString("</Delete>")
			w.fake.slow = slow
			began := time.Now()
			answer := w.must(t, 200, call{method: "POST", path: "/photos?delete", body: body.String()}).Body.String()
			if n, refused := strings.Count(answer, "<Deleted>"), strings.Count(answer, "ServiceUnavailable"); n != deleted || n+refused != state.MaxDeleteKeys {
				t.Errorf("%s each: %d deleted, %d unavailable", slow, n, refused)
			}
			if took := time.Since(began); took > caseTimeout {
				t.Errorf("%s each: answered after %s", slow, took)
			}
		})
	}
}

// A read accepts the state in which its caller was authenticated, so it need not ask the cluster again.
func TestAReadNeedNotBeNewerThanItsAuthentication(t *testing.T) {
	w := newWorld(t)
	w.must(t, 200, call{method: "PUT", path: "/photos"})
	w.must(t, 200, call{method: "HEAD", path: "/photos"})
	view, release := w.state.LocalView()
	defer release()
	if w.fake.seen == 0 || w.fake.seen != view.Index() {
		t.Errorf("seen %d, the state is at %d", w.fake.seen, view.Index())
	}
}

// Metadata of MaxMetaPairs pairs or MaxHeaderBytes bytes is taken, and one pair or byte more is refused.
func TestMetadataHasBounds(t *testing.T) {
	h := http.Header{}
	for n := range state.MaxMetaPairs {
		h.Set(fmt.Sprintf("X-Amz-Meta-%d", n), "v")
	}
	if a, err := attributesOf(h); err != nil || len(a.Meta) != state.MaxMetaPairs {
		t.Errorf("%d, %v", len(a.Meta), err)
	}
	h.Set("X-Amz-Meta-More", "v")
	if _, err := attributesOf(h); err == nil {
		t.Error("one pair more was taken")
	}
	h = http.Header{"X-Amz-Meta-A": {strings.Repeat("x", state.MaxHeaderBytes-1)}, "X-Amz-Meta-": {"no name"}}
	if _, err := attributesOf(h); err != nil {
		t.Error(err)
	}
	h.Set("Cache-Control", "x")
	if _, err := attributesOf(h); err == nil {
		t.Error("a byte more was taken")
	}
}

func BenchmarkGet(b *testing.B) {
	w := newWorld(b)
	w.put(b, "/photos/k", strings.Repeat("x", 4096), "x-amz-meta-a: b")
	bench(b, w, func() call { return call{method: "GET", path: "/photos/k"} })
}

func BenchmarkPut(b *testing.B) {
	w := newWorld(b)
	w.put(b, "/photos/k", "x")
	body := strings.Repeat("x", 4096)
	bench(b, w, func() call {
		return call{method: "PUT", path: "/photos/k", body: body, header: []string{"Content-Type: text/x"}}
	})
}

func BenchmarkList1000(b *testing.B) {
	w := newWorld(b)
	for n := range 1000 {
		w.put(b, fmt.Sprintf("/photos/folder/an-object-%d", n), "x")
	}
	bench(b, w, func() call { return call{method: "GET", path: "/photos?list-type=2&encoding-type=url"} })
}

func bench(b *testing.B, w *world, c func() call) {
	b.ReportAllocs()
	for b.Loop() {
		w.must(b, 200, c())
	}
}
