package s3

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"

	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
)

// ours fails unless an error is one that is answered with a code of the table.
func ours(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || codes[e.Code].status < 400 || codes[e.Code].status >= 500 || e.Message == "" || !utf8.ValidString(e.Message) {
		t.Errorf("%T %v", err, err)
	}
}

// FuzzTarget looks for paths and queries that are routed to another bucket or key
// than they name, or to another operation than their method and sub-resource.
func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"/", "//", "/b", "/b/", "/photos/a//../b%2Fc", "/photos/k?acl", "/photos?list-type=2&prefix=%zz", "/photos/k?uploadId=x&partNumber=1", "/photos/%ff?tagging&x-id=1", "/photos/k?new"} {
		for _, method := range []string{"GET", "PUT", "POST", "DELETE", "HEAD"} {
			f.Add(method, seed, "bucket.s3.test:80")
		}
	}
	s := &surface{domain: ".s3.test"}
	var err error
	if s.table, err = tableOf(s.operations()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, uri, host string) {
		u, err := url.ParseRequestURI(uri)
		if err != nil || !strings.HasPrefix(uri, "/") {
			t.Skip()
		}
		plain := &http.Request{Method: method, URL: u, Host: host, Header: http.Header{}}
		r := &request{Request: plain}
		if r.target, err = s.targetOf(plain); err != nil {
			ours(t, err)
			return
		}
		path := u.Path
		if r.hosted {
			path = "/" + r.bucket + path
		}
		if want := strings.TrimPrefix(path, "/"); want != r.bucket && want != r.bucket+"/" && want != r.bucket+"/"+r.key {
			t.Errorf("%q: bucket %q, key %q", uri, r.bucket, r.key)
		}
		if (r.level == levelObject) != (r.key != "") {
			t.Errorf("%q: level %d, key %q", uri, r.level, r.key)
		}
		if r.query, err = parseQuery(u.RawQuery); err != nil {
			ours(t, err)
			return
		}
		op, err := s.find(r)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || codes[e.Code].status < 400 {
				t.Errorf("%v", err)
			}
			return
		}
		if op.method != method || op.level != r.level || op.sub != "" && !r.query.has(op.sub) {
			t.Errorf("%s %q is %s", method, uri, op.name)
		}
		for _, sub := range subResources {
			if sub != op.sub && r.query.has(sub) {
				t.Errorf("%s %q is %s, and has %s", method, uri, op.name, sub)
			}
		}
	})
}

// FuzzRange looks for ranges that are not within the content, and ones that
// net/http reads otherwise.
func FuzzRange(f *testing.F) {
	for _, seed := range []string{"bytes=0-1", "bytes=-5", "bytes=5-", "bytes=-0", "bytes=1-2,3-4", "bytes=2-1", "bytes=99999999999999999999-", "bytes=-9227000000000000000", " bytes=0-1"} {
		f.Add(seed, int64(10))
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 || size > 1<<40 {
			t.Skip()
		}
		s, given, err := rangeOf(header, size)
		if err != nil {
			ours(t, err)
			return
		}
		if given && (s.first < 0 || s.count < 1 || s.first+s.count > size) {
			t.Errorf("%q of %d: %+v", header, size, s)
		}
		if !given || size > 1<<16 || strings.ContainsFunc(header, func(r rune) bool { return r < ' ' || r > '~' }) || !strings.HasPrefix(header, "bytes=") {
			return
		}
		for _, number := range strings.FieldsFunc(header, func(r rune) bool { return r < '0' || r > '9' }) {
			if _, err := strconv.ParseInt(number, 10, 64); err != nil {
				return // a number is of any size here, and up to 63 bits there
			}
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Range", header)
		rec := httptest.NewRecorder()
		http.ServeContent(rec, r, "", start, bytes.NewReader(make([]byte, size)))
		if rec.Code != 206 || int64(rec.Body.Len()) != s.count {
			t.Errorf("%q of %d: %+v, net/http answers %d with %d bytes", header, size, s, rec.Code, rec.Body.Len())
		}
	})
}

// FuzzXML looks for documents that the readers do not refuse with an error of
// ours, that bring more than they may, and that encoding/xml reads otherwise.
func FuzzXML(f *testing.F) {
	for _, seed := range []string{
		`<Delete><Quiet>true</Quiet><Object><Key>a&amp;&#x1;&#10;</Key><VersionId>v</VersionId></Object></Delete>`,
		complete("x", "a", "b"), `<Tagging><TagSet><Tag><Key>k</Key><Value/></Tag></TagSet></Tagging>`,
		`<?xml version="1.0" encoding="utf-8"?><!-- c --><a:Delete xmlns:a="x"><a:Object a='b'><a:Key><![CDATA[<&>]]></a:Key></a:Object></a:Delete>`,
		`<CreateBucketConfiguration><LocationConstraint>EU</LocationConstraint></CreateBucketConfiguration>`, "<Delete><Object><Key>\r\n</Key></Object></Delete>", "<", "<a", "</", "<Delete/>", "<Delete><Object/></Delete><x>",
		`<CORSConfiguration><CORSRule><ID>a</ID><AllowedOrigin>https://*.example</AllowedOrigin><AllowedMethod>GET</AllowedMethod><AllowedHeader>*</AllowedHeader><ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>0</MaxAgeSeconds></CORSRule></CORSConfiguration>`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if parts, err := readParts(body, 10); err != nil {
			ours(t, err)
		} else if len(parts) > 10 {
			t.Errorf("%d parts", len(parts))
		}
		if tags, err := readTagging(body, state.MaxTags); err != nil {
			ours(t, err)
		} else if len(tags) > state.MaxTags {
			t.Errorf("%d tags", len(tags))
		}
		if rules, err := readCors(body); err != nil {
			ours(t, err)
		} else if len(rules) == 0 || len(rules) > state.MaxCorsRules {
			t.Errorf("%d CORS rules", len(rules))
		} else if rule, _ := ruleFor(rules, rules[0].Origins[0], rules[0].Methods[0], nil); rule == nil {
			t.Errorf("%+v does not match its own origin", rules[0])
		}
		if err := checkConfiguration(body); err != nil {
			ours(t, err)
		}
		keys, quiet, err := readDelete(body, 10)
		if err != nil {
			ours(t, err)
			return
		}
		if len(keys) > 10 {
			t.Errorf("%d keys", len(keys))
		}
		var want struct {
			XMLName xml.Name `xml:"Delete"`
			Quiet   []string
			Object  []struct{ Key []string }
		}
		d := xml.NewDecoder(bytes.NewReader(body))
		d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
		if err := d.Decode(&want); err != nil {
			return // it refuses more: control characters, for one
		}
		if len(want.Object) != len(keys) || quiet && len(want.Quiet) == 0 {
			t.Fatalf("%+v, encoding/xml %+v", keys, want)
		}
		for i, o := range want.Object {
			if len(o.Key) != 1 || keys[i].key != o.Key[0] {
				t.Errorf("key %q, encoding/xml %q", keys[i].key, o.Key)
			}
		}
	})
}

// FuzzVersioning looks for configurations that are taken for what encoding/xml does
// not read in them, and for ids of versions that could not be said again.
func FuzzVersioning(f *testing.F) {
	for _, seed := range []string{
		versioningOf(versioningEnabled), versioningOf(versioningSuspended), versioningOf(""), "<VersioningConfiguration/>",
		"<VersioningConfiguration><MfaDelete>Disabled</MfaDelete><Status><![CDATA[Enabled]]></Status></VersioningConfiguration>",
		"<a:VersioningConfiguration xmlns:a='x'><a:Status>Sus&#112;ended</a:Status></a:VersioningConfiguration>", "null", "a b", "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if id, err := versionID(string(body)); err != nil {
			ours(t, err)
		} else if id == "" || len(id) > state.MaxIDLen || escapeKey(string(id)) != string(id) {
			t.Errorf("the version %q", id)
		}
		to, err := readVersioning(body)
		if err != nil {
			ours(t, err)
			return
		}
		var want struct {
			XMLName xml.Name `xml:"VersioningConfiguration"`
			Status  string
		}
		d := xml.NewDecoder(bytes.NewReader(body))
		d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
		if err := d.Decode(&want); err != nil {
			return // it refuses more: control characters, for one
		}
		if status := map[state.Versioning]string{state.Versioned: versioningEnabled, state.Suspended: versioningSuspended}[to]; status == "" || status != want.Status {
			t.Errorf("%d, encoding/xml reads %q", to, want.Status)
		}
	})
}

// FuzzACL looks for access lists that are taken and that are not one of the two that a
// bucket can have, and for those that are refused in other words than ours.
func FuzzACL(f *testing.F) {
	const id = "owner"
	own := `<Owner><ID>owner</ID></Owner>`
	line := func(who, may string) string {
		return "<Grant><Grantee>" + who + "</Grantee><Permission>" + may + "</Permission></Grant>"
	}
	for _, grants := range []string{
		line("<ID>owner</ID>", fullControl), line("<ID>owner</ID>", fullControl) + line("<URI>"+allUsers+"</URI>", "READ"),
		line("<ID>other</ID>", "WRITE"), line("<EmailAddress>a@b</EmailAddress>", "READ_ACP"), "<Grant/>",
	} {
		f.Add("<AccessControlPolicy>"+own+"<AccessControlList>"+grants+"</AccessControlList></AccessControlPolicy>", "id=owner", `uri="`+allUsers+`"`)
	}
	f.Add("<AccessControlPolicy/>", "id=owner,uri=x", "emailAddress=a@b, ,")
	f.Fuzz(func(t *testing.T, body, control, read string) {
		public, err := readACL([]byte(body), id)
		var e *Error
		switch {
		case err != nil && (!errors.As(err, &e) || codes[e.Code].status < 400 || e.Code == MalformedXML || e.Message == ""):
			t.Errorf("%v", err)
		case err == nil:
			var want struct {
				Owner struct{ ID string }
				Grant []struct {
					Grantee    struct{ ID, URI string }
					Permission string
				} `xml:"AccessControlList>Grant"`
			}
			if xml.Unmarshal([]byte(body), &want) != nil {
				break // it refuses more
			}
			owns, all := false, false
			for _, g := range want.Grant {
				owns = owns || strings.TrimSpace(g.Grantee.ID) == id && g.Permission == fullControl
				all = all || strings.TrimSpace(g.Grantee.URI) == allUsers && g.Permission == "READ"
			}
			if strings.TrimSpace(want.Owner.ID) != id || !owns || all != public {
				t.Errorf("public %v of %q, encoding/xml reads %+v", public, body, want)
			}
		}
		h := http.Header{"X-Amz-Grant-Full-Control": {control}, "X-Amz-Grant-Read": {read}}
		public, given, err := bucketACL(h, id)
		if err != nil {
			if !errors.As(err, &e) || codes[e.Code].status < 400 || e.Message == "" {
				t.Errorf("%v", err)
			}
			return
		}
		if !given || !strings.Contains(control, id) || public && !strings.Contains(read, allUsers) {
			t.Errorf("%q and %q: public %v, given %v", control, read, public, given)
		}
	})
}

// FuzzEscape looks for text that an XML reader reads back as other text.
func FuzzEscape(f *testing.F) {
	for _, seed := range []string{"", "a&b<c>d\"e'f", "\x00\x01\t\n\r", "\ufffe\uffff\ufffd", "\xff", "å雪🦀", "]]>"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x := newXML()
		x.text("Key", text)
		in, err := readXML(x.b, "Key")
		if err != nil {
			t.Fatal(err)
		}
		got, err := in.text()
		if want := strings.ToValidUTF8(text, "\ufffd"); err != nil || !utf8.ValidString(text) && got == text || utf8.ValidString(text) && got != want {
			t.Errorf("%q comes back as %q, %v", text, got, err)
		}
		if back, ok := sigv4.Unescape(escapeKey(text), false); !ok || back != text {
			t.Errorf("%q is encoded %q", text, escapeKey(text))
		}
		if back, ok := sigv4.Unescape(escapeKey(text), true); !ok || back != text {
			t.Errorf("%q is encoded %q", text, escapeKey(text))
		}
		if text != "" && len(text) <= state.MaxKeyBytes {
			if after, err := fromToken(toToken(text)); err != nil || after != text {
				t.Errorf("token of %q: %q, %v", text, after, err)
			}
		}
	})
}

// FuzzHeaders looks for headers of tags, conditions and copies that end in
// anything but what they may.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{"a=1&b=%20", "=", "a=1&a=1", "%zz", `"x", W/"y", *`, "/photos/k?versionId=x", "photos%2Fk", "bytes=0-1", "ETag,ObjectParts", "17", "Fri, 02 Jan 2026 03:04:07 GMT", "AAAAAA==", ",,,"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if tags, err := parseTags(text); err != nil {
			ours(t, err)
		} else if checkTags(tags, state.MaxTags) != nil {
			t.Errorf("tags %q", tags)
		}
		h := http.Header{}
		for _, name := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", copySource, "Content-Md5", "X-Amz-Checksum-Crc32", "X-Amz-Metadata-Directive", "X-Amz-Tagging", "Content-Encoding"} {
			h.Set(name, text)
		}
		c := conditionsOf(h)
		if v := c.judge("x", 1); v > verdictFailed {
			t.Errorf("verdict %d", v)
		}
		if src, err := sourceOf(h); err != nil {
			ours(t, err)
		} else if !web.ValidBucket(src.bucket) || src.key == "" || len(src.key) > state.MaxKeyBytes {
			t.Errorf("source %+v", src)
		}
		if sum, err := contentMD5(h); err != nil {
			ours(t, err)
		} else if len(sum) != 16 {
			t.Errorf("MD5 %x", sum)
		}
		if a, sum, err := checksumHeader(h); err != nil {
			ours(t, err)
		} else if len(sum) != a.size {
			t.Errorf("checksum %x", sum)
		}
		if wanted, err := wantedOf(http.Header{"X-Amz-Object-Attributes": {text}}); err != nil {
			ours(t, err)
		} else if len(wanted) == 0 || len(wanted) > len(objectAttributes) {
			t.Errorf("attributes %v", wanted)
		}
		if p, err := partsPageOf(http.Header{"X-Amz-Max-Parts": {text}, "X-Amz-Part-Number-Marker": {text}}); err != nil {
			ours(t, err)
		} else if p.limit > state.MaxListLimit || p.after > state.MaxPartNumber {
			t.Errorf("page %+v", p)
		}
		if _, err := sourceRange(text, 10); err != nil {
			ours(t, err)
		}
		if strings.Contains(strings.ToLower(withoutChunks(text)), ",aws-chunked,") {
			t.Errorf("%q keeps the framing", text)
		}
	})
}
