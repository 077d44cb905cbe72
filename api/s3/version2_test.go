package s3

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // what signatures of version 2 are made with
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// linked2 returns a link of signature version 2 for an hour, as boto3 makes it, in which also is
// said beside it. Each signed header is a line as it is signed.
func (w *world) linked2(method, path, also string, signed ...string) string {
	end := w.now().Add(time.Hour).Unix()
	text := fmt.Sprintf("%s\n\n\n%d\n%s%s", method, end, strings.Join(append(signed, ""), "\n"), path)
	mac := hmac.New(sha1.New, []byte(w.alice.SecretAccessKey))
	mac.Write([]byte(text))
	link := path + "?"
	if strings.Contains(path, "?") {
		link = path + "&"
	}
	return link + fmt.Sprintf("AWSAccessKeyId=%s&Signature=%s&Expires=%d%s", w.alice.AccessKeyID, url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil))), end, also)
}

// A presigned URL of version 2 serves what it signs, until it ends, and only if the setting allows such URLs.
func TestLinksOfVersion2AreServed(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	get := call{method: "GET", path: w.linked2("GET", "/photos/dir/one", ""), token: "-"}
	if rec := w.must(t, 403, get); !strings.Contains(rec.Body.String(), "not supported") {
		t.Errorf("%s", rec.Body)
	}
	w.options.PresignedV2 = true
	w.rebuild(t)
	if rec := w.must(t, 200, get); rec.Body.String() != "1" {
		t.Errorf("%s", rec.Body)
	}
	w.must(t, 200, call{method: "HEAD", path: w.linked2("HEAD", "/photos/dir/one", ""), token: "-"})
	w.must(t, 403, call{method: "HEAD", path: get.path, token: "-"})
	w.must(t, 200, call{method: "GET", path: w.linked2("GET", "/photos/dir/one?tagging", ""), token: "-"})
	w.must(t, 200, call{method: "PUT", path: w.linked2("PUT", "/photos/new", ""), body: "hello", token: "-"})
	w.must(t, 200, call{
		method: "PUT", path: w.linked2("PUT", "/photos/classed", "&x-amz-storage-class=GLACIER", "x-amz-meta-a:b", "x-amz-storage-class:SNOW"),
		body: "hello", token: "-", header: []string{"x-amz-meta-a: b", "x-amz-storage-class: SNOW"},
	})
	if h := w.must(t, 200, call{method: "HEAD", path: "/photos/classed"}).Header(); h.Get("X-Amz-Storage-Class") != "SNOW" || h.Get("X-Amz-Meta-A") != "b" {
		t.Errorf("%v", h)
	}
	// What the query has beside it is not signed and becomes no header.
	w.must(t, 200, call{method: "PUT", path: w.linked2("PUT", "/photos/new", "&x-amz-meta-a=b&x-amz-copy-source=photos/sealed&x-amz-storage-class=GLACIER"), body: "hello", token: "-"})
	rec := w.must(t, 200, call{method: "GET", path: "/photos/new"})
	if h := rec.Header(); rec.Body.String() != "hello" || h.Get("X-Amz-Meta-A") != "" || h.Get("X-Amz-Storage-Class") != "" {
		t.Errorf("%s %v", rec.Body, h)
	}
	// Nor can it make another change of one.
	w.must(t, 403, call{method: "PUT", path: w.linked2("PUT", "/photos/new", "&tagging"), body: oneTag, token: "-"})
	w.must(t, 403, call{method: "PUT", path: w.linked2("PUT", "/photos/new", "", "x-amz-meta-a:b"), body: "x", token: "-"})
	w.must(t, 403, call{method: "PUT", path: w.linked2("PUT", "/photos/new", ""), body: "x", token: "-", header: []string{"x-amz-copy-source: photos/sealed"}})
	for _, sub := range []string{"ownershipControls", "publicAccessBlock", "encryption", "retention"} {
		w.must(t, 403, call{method: "DELETE", path: w.linked2("DELETE", "/photos", "&"+sub), token: "-"})
	}
	w.must(t, 204, call{method: "DELETE", path: w.linked2("DELETE", "/photos/new", ""), token: "-"})
	w.must(t, 404, call{method: "GET", path: "/photos/new"})
	if h := w.do(t, call{method: "OPTIONS", path: w.linked2("PUT", "/empty/k", ""), token: "-", header: []string{
		"Origin: https://a.example", "Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: content-type",
	}}).Header(); h.Get("Access-Control-Allow-Methods") != "PUT, GET" { // of the rule of that bucket
		t.Errorf("%v", h)
	}
	w.pass(time.Hour + time.Second)
	if rec := w.must(t, 403, get); !strings.Contains(rec.Body.String(), "expired") {
		t.Errorf("%s", rec.Body)
	}
}
