package s3

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const formHeader = "Content-Type: multipart/form-data; boundary=edge"

// field is one of a form as it is sent; a file has a filename.
type field struct{ name, value string }

// formOf writes a form. Of the field file the value is the content, and filename
// the name of the file.
func formOf(filename string, fields ...field) string {
	var b strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&b, "--edge\r\nContent-Disposition: form-data; name=%q", f.name)
		if f.name == "file" {
			fmt.Fprintf(&b, "; filename=\"%s\"\r\nContent-Type: text/html", filename)
		}
		fmt.Fprintf(&b, "\r\n\r\n%s\r\n", f.value)
	}
	return b.String() + "--edge--\r\n"
}

// signedFields returns those of a policy that a key signed.
func (w *world) signedFields(k *accounts.Key, policy string) []field {
	at := w.now().UTC()
	scope := []string{at.Format("20060102"), "eu-north-1", "s3", "aws4_request"}
	key := []byte("AWS4" + k.SecretAccessKey)
	sum := func(text string) []byte {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	for _, part := range scope {
		key = sum(part)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(policy))
	return []field{
		{"policy", encoded},
		{"x-amz-algorithm", "AWS4-HMAC-SHA256"},
		{"x-amz-credential", k.AccessKeyID + "/" + strings.Join(scope, "/")},
		{"x-amz-date", at.Format("20060102T150405Z")},
		{"x-amz-signature", hex.EncodeToString(sum(encoded))},
	}
}

// policyOf returns a policy with the conditions of every signed form, and others.
func policyOf(conditions ...string) string {
	all := append([]string{
		`{"bucket": "photos"}`, `["eq", "$x-amz-algorithm", "AWS4-HMAC-SHA256"]`,
		`["starts-with", "$x-amz-credential", ""]`, `["starts-with", "$X-Amz-Date", ""]`,
	}, conditions...)
	return `{"expiration": "2026-01-02T04:00:00.000Z", "conditions": [` + strings.Join(all, ",") + `]}`
}

// post sends a form without any other credentials than those in it.
func (w *world) post(t *testing.T, fields ...field) *httptest.ResponseRecorder {
	t.Helper()
	return w.do(t, call{method: "POST", path: "/photos", token: "-", body: formOf("C:\\pictures/a b.txt", fields...), header: []string{formHeader}})
}

// A signed form that its policy allows stores its file under its key with headers, metadata, tags and checksum.
func TestASignedFormStoresItsFile(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	fields := append([]field{
		{"kEy", "user/${filename}"},
		{"Content-type", "text/x, text/y"},
		{"X-Amz-Meta-Colour", "blue"},
		{"Cache-Control", "no-cache"},
		{"acl", "private"},
		{"tagging", "<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>"},
		{"x-ignore-this", "1"},
		{"x-ignore-this", "2"},
		{"x-amz-checksum-crc32", crcOfHello},
		{"submit", ""},
	}, w.signedFields(&w.writer, policyOf(
		`["StArTs-WiTh", "$KeY", "user/a b"]`, `["starts-with", "$Content-Type", "text/"]`, `{"x-amz-meta-colour": "blue"}`, `["eq", "$cache-control", "no-cache"]`,
		`{"acl": "private"}`, `["starts-with", "$tagging", ""]`, `{"x-amz-checksum-crc32": "`+crcOfHello+`"}`, `["content-length-range", 5, "5"]`, `{"submit": ""}`))...)
	rec := w.post(t, append(fields, field{"file", "hello"}, field{"button", "Upload"})...)
	if rec.Code != 204 || rec.Header().Get("Etag") != `"`+sumOfHello+`"` || rec.Header().Get("Location") != "http://example.com/photos/user/a%20b.txt" || rec.Body.Len() != 0 {
		t.Fatalf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	o, err := w.fake.Object(t.Context(), w.who.Account, "photos", "user/a b.txt", "")
	if err != nil || o.ETag != sumOfHello || o.Size != 5 {
		t.Fatalf("%+v, %v", o, err)
	}
	if !maps.Equal(o.Headers, map[string]string{"Content-Type": "text/x, text/y", "Cache-Control": "no-cache"}) || !maps.Equal(o.Meta, map[string]string{"colour": "blue"}) ||
		!slices.Equal(o.Tags, []state.Tag{{Key: "k", Value: "v"}}) || len(o.Checksums) != 1 {
		t.Errorf("%+v", o)
	}
}

// A form that its signature, key or policy does not allow is refused with its code and stores nothing.
func TestFormsOfPoliciesAreJudged(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	before := w.fake.everything()
	key, file := field{"key", "k"}, field{"file", "hello"}
	const any = `["starts-with", "$key", ""]`
	sign := func(policy string) []field { return w.signedFields(&w.writer, policy) }
	without := func(name string, fields []field) []field {
		return slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return f.name == name })
	}
	changed := func(name, value string, fields []field) []field {
		return append(without(name, fields), field{name, value})
	}
	good := sign(policyOf(any))
	for name, tc := range map[string]struct {
		fields  []field
		status  int
		code    string
		message string
	}{
		"no credentials":             {[]field{key}, 403, "AccessDenied", "named &quot;policy&quot;"},
		"no signature":               {append(without("x-amz-signature", good), key), 400, "InvalidArgument", "named &quot;x-amz-signature&quot;"},
		"no algorithm":               {append(without("x-amz-algorithm", good), key), 400, "InvalidArgument", "x-amz-algorithm"},
		"a wrong signature":          {append(changed("x-amz-signature", strings.Repeat("0", 64), good), key), 403, "SignatureDoesNotMatch", "signature"},
		"another policy":             {append(changed("policy", sign(policyOf(any, any))[0].value, good), key), 403, "SignatureDoesNotMatch", "signature"},
		"an unknown key":             {append(changed("x-amz-credential", "HFx/20260102/eu-north-1/s3/aws4_request", good), key), 403, "InvalidAccessKeyId", "does not exist"},
		"another service":            {append(changed("x-amz-credential", "HFx/20260102/eu-north-1/ec2/aws4_request", good), key), 400, "InvalidArgument", "s3/aws4_request"},
		"a token":                    {append(changed("x-amz-credential", "JWT:x/20260102/eu-north-1/s3/aws4_request", good), key), 403, "AccessDenied", "token is not accepted in a form"},
		"a key that may only read":   {append(w.signedFields(&w.reader, policyOf(any)), key), 403, "AccessDenied", "does not permit PostObject"},
		"a key that was revoked":     {append(w.signedFields(&w.revoked, policyOf(any)), key), 403, "InvalidAccessKeyId", ""},
		"another account's":          {append(w.signedFields(&w.bob, policyOf(any)), key), 404, "NoSuchBucket", ""},
		"a security token":           {append(sign(policyOf(any, `{"x-amz-security-token":"x"}`)), key, field{"x-amz-security-token", "x"}), 400, "InvalidToken", ""},
		"over":                       {append(sign(strings.Replace(policyOf(any), "T04:00:00", "T03:04:05", 1)), key), 403, "AccessDenied", "Invalid according to Policy: Policy expired."},
		"another key":                {append(sign(policyOf(`["eq", "$key", "other"]`)), key), 403, "AccessDenied", `Policy Condition failed: [&quot;eq&quot;,&quot;$key&quot;,&quot;other&quot;]`},
		"another prefix":             {append(sign(policyOf(`["starts-with", "$key", "x"]`)), key), 403, "AccessDenied", "Policy Condition failed"},
		"a prefix of the value":      {append(sign(policyOf(`["starts-with", "$key", "kk"]`)), key), 403, "AccessDenied", "Policy Condition failed"},
		"another bucket":             {append(sign(strings.Replace(policyOf(any), `"photos"`, `"empty"`, 1)), key), 403, "AccessDenied", "$bucket"},
		"no condition of the bucket": {append(sign(strings.Replace(policyOf(any), `{"bucket": "photos"},`, "", 1)), key), 403, "AccessDenied", "Extra input fields: bucket"},
		"a field that says another":  {append(good, key, field{"bucket", "empty"}), 400, "InvalidArgument", "bucket"},
		"no condition of the key":    {append(sign(policyOf()), key), 403, "AccessDenied", "Extra input fields: key"},
		"fields without conditions":  {append(good, key, field{"acl", "private"}, field{"submit", "x"}), 403, "AccessDenied", "Extra input fields: acl, submit"},
		"a field that is missing":    {append(sign(policyOf(any, `["starts-with", "$x-amz-meta-a", ""]`)), key), 403, "AccessDenied", "x-amz-meta-a"},
		"one type of a list":         {append(sign(policyOf(any, `["starts-with", "$Content-Type", "image/"]`)), key, field{"Content-Type", "image/png,text/html"}), 403, "AccessDenied", "content-type"},
		"another case of a value":    {append(sign(policyOf(`{"key": "K"}`)), key), 403, "AccessDenied", "Policy Condition failed"},
		"too large":                  {append(sign(policyOf(any, `["content-length-range", 0, 4]`)), key), 400, "EntityTooLarge", "4 bytes"},
		"too small":                  {append(sign(policyOf(any, `["content-length-range", 6, 10]`)), key), 400, "EntityTooSmall", "6 bytes"},
		"two ranges":                 {append(sign(policyOf(any, `["content-length-range", 0, 4]`, `["content-length-range", 0, 10]`)), key), 400, "EntityTooLarge", ""},
		"no key":                     {good, 400, "InvalidArgument", "named 'key'"},
	} {
		rec := w.post(t, append(slices.Clone(tc.fields), file)...)
		if rec.Code != tc.status || !strings.Contains(rec.Body.String(), "<Code>"+tc.code+"</Code>") || !strings.Contains(rec.Body.String(), tc.message) {
			t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
		}
		checkErrorBody(t, name, "POST", rec)
	}
	if after := w.fake.everything(); after != before {
		t.Fatalf("it stored %s", after)
	}
	if rec := w.post(t, append(good, key, file)...); rec.Code != 204 {
		t.Errorf("what they were changed from: %d %s", rec.Code, rec.Body)
	}
}

// A form with a malformed policy gets InvalidPolicyDocument and stores nothing.
func TestBadPoliciesAreRefused(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	before := w.fake.everything()
	const expires = `"expiration": "2026-01-02T04:00:00Z"`
	for _, policy := range []string{
		"", "x", "null", "[]", "{}", `"x"`, `{` + expires + `}`, `{"conditions": []}`, `{` + expires + `, "conditions": null}`,
		`{` + expires + `, "conditions": {}}`, `{` + expires + `, "conditions": []} x`, `{"EXPIRATION": "2026-01-02T04:00:00Z", "conditions": []}`,
		`{` + expires + `, "Conditions": []}`, `{` + expires + `, "conditions": [], "more": 1}`, `{"expiration": 1, "conditions": []}`, `{"expiration": null, "conditions": []}`,
		`{"expiration": "tomorrow", "conditions": []}`, `{"expiration": "2026-01-02 04:00:00", "conditions": []}`,
		policyOf(`{}`), policyOf(`{"a":"1","b":"2"}`), policyOf(`{"a":1}`), policyOf(`{"a":null}`), policyOf(`null`), policyOf(`"x"`), policyOf(`[]`), policyOf(`["eq","$key"]`),
		policyOf(`["eq","key","x"]`), policyOf(`["eq","$","x"]`), policyOf(`["eq","$key",1]`), policyOf(`["eq","$key",null]`), policyOf(`["eq","$key","x","y"]`), policyOf(`[1,"$key","x"]`),
		policyOf(`["ends-with","$key","x"]`), policyOf(`["content-length-range",0]`), policyOf(`["content-length-range",-1,0]`), policyOf(`["content-length-range",2,1]`),
		policyOf(`["content-length-range","a","b"]`), policyOf(`["content-length-range",1.5,2]`), policyOf(`["content-length-range",null,2]`),
	} {
		fields := w.signedFields(&w.writer, policy)
		want := "InvalidPolicyDocument"
		if policy == "" {
			want = "InvalidArgument" // as if there was none
		}
		rec := w.post(t, append(fields, field{"key", "k"}, field{"file", "hello"})...)
		if !strings.Contains(rec.Body.String(), "<Code>"+want+"</Code>") {
			t.Errorf("%s: %d %s", policy, rec.Code, rec.Body)
		}
		checkErrorBody(t, policy, "POST", rec)
	}
	if after := w.fake.everything(); after != before {
		t.Errorf("it stored %s", after)
	}
}

// A form with maxFormFields fields before its file is stored, and one with more is refused.
func TestFormsHaveSoManyFields(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	fields := append(w.signedFields(&w.writer, policyOf(`{"key":"k"}`)), field{"key", "k"})
	for len(fields) < maxFormFields {
		fields = append(fields, field{"x-ignore-this", "1"})
	}
	file := field{"file", "hello"}
	if rec := w.post(t, append(slices.Clone(fields), field{"x-ignore-this", "1"}, file)...); rec.Code != 400 || !strings.Contains(rec.Body.String(), "MaxPostPreDataLengthExceeded") {
		t.Errorf("%d fields: %d %s", len(fields)+1, rec.Code, rec.Body)
	}
	if rec := w.post(t, append(fields, file)...); rec.Code != 204 {
		t.Errorf("%d fields: %d %s", len(fields), rec.Code, rec.Body)
	}
}

// A form whose headers announce a hash, trailers or chunks that it cannot have gets 400 and stores nothing.
func TestFormsWithWrongFramingAreRefused(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	body := formOf("a", append([]field{{"key", "a"}}, append(w.signedFields(&w.writer, policyOf(`{"key": "a"}`)), field{"file", "hello"})...)...)
	for name, tc := range map[string]struct {
		headers []string
		code    string
	}{
		"no hash":               {[]string{"X-Amz-Content-Sha256: none"}, "InvalidArgument"},
		"two hashes":            {[]string{"X-Amz-Content-Sha256: UNSIGNED-PAYLOAD", "X-Amz-Content-Sha256: UNSIGNED-PAYLOAD"}, "InvalidArgument"},
		"a trailer of no chunk": {[]string{"X-Amz-Trailer: x-amz-checksum-crc32"}, "InvalidRequest"},
		"chunks":                {[]string{"X-Amz-Content-Sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER", "X-Amz-Decoded-Content-Length: 5"}, "InvalidRequest"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := w.do(t, call{method: "POST", path: "/photos", token: "-", body: body, header: append([]string{formHeader}, tc.headers...)})
			if rec.Code != 400 || !strings.Contains(rec.Body.String(), "<Code>"+tc.code+"</Code>") {
				t.Errorf("%d %s", rec.Code, rec.Body)
			}
			if _, err := w.fake.Object(t.Context(), w.who.Account, "photos", "a", ""); err == nil {
				t.Error("the form stored its file")
			}
		})
	}
	if rec := w.do(t, call{method: "POST", path: "/photos", token: "-", body: body, header: []string{formHeader}}); rec.Code != 204 {
		t.Errorf("without those headers: %d %s", rec.Code, rec.Body)
	}
}

// ${filename} stands for the name of the file in every field of a form, and conditions compare the result.
func TestFieldsOfFormsHaveTheNameOfTheFile(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	fields := append([]field{
		{"key", "k"},
		{"x-amz-meta-name", "${filename}"},
		{"Content-Disposition", `attachment; filename="${filename}"`},
		{"success_action_redirect", "https://a.example/?was=${filename}"},
	}, w.signedFields(&w.writer, policyOf(`{"key": "k"}`, `["eq", "$x-amz-meta-name", "a b.txt"]`, `["starts-with", "$Content-Disposition", "attachment; filename="]`,
		`["starts-with", "$success_action_redirect", "https://a.example/"]`))...)
	rec := w.post(t, append(fields, field{"file", "hello"})...)
	if to := rec.Header().Get("Location"); rec.Code != 303 || !strings.HasPrefix(to, "https://a.example/?was=a%20b.txt&bucket=photos&") {
		t.Fatalf("%d %s %s", rec.Code, to, rec.Body)
	}
	o, err := w.fake.Object(t.Context(), w.who.Account, "photos", "k", "")
	if err != nil || o.Meta["name"] != "a b.txt" || o.Headers["Content-Disposition"] != `attachment; filename="a b.txt"` {
		t.Errorf("%+v, %v", o, err)
	}
}

// A form whose fields grow too large by the name of the file is refused without memory for them: 20 KB of
// variables with a name of 40 KB would be 80 MB.
func TestANameOfAFileIsBoundedWithTheFields(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	form := formOf(strings.Repeat("n", 40<<10), field{"key", strings.Repeat("${filename}", 1800)}, field{"file", "hello"})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rec := w.do(t, call{method: "POST", path: "/photos", body: form, header: []string{formHeader}})
	runtime.ReadMemStats(&after)
	if rec.Code != 400 || !strings.Contains(rec.Body.String(), "MaxPostPreDataLengthExceeded") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("it took %d bytes of memory", took)
	}
}

// A form that is denied is answered before its file is read, and with a token before anything of it is.
func TestADeniedFormIsNotReadToItsFile(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	form := formOf("x", append(w.signedFields(&w.reader, policyOf()), field{"file", ""})...)
	head, _, _ := strings.Cut(form, "\r\n--edge--")
	for name, request := range map[string]string{
		"a token":  "Authorization: Bearer " + w.reader.Token + "\nExpect: 100-continue\nContent-Length: 500000\n\n",
		"a policy": "Content-Length: 500000\n\n" + strings.ReplaceAll(head, "\r\n", "\n"),
	} {
		_, in := w.dial(t, "POST /photos HTTP/1.1\nHost: x\n"+formHeader+"\n"+request)
		if resp, body := readAnswer(t, in, "POST"); resp.StatusCode != 403 || !strings.Contains(body, "does not permit PostObject") {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
}

// A form that breaks off gets MalformedPOSTRequest and stores nothing, wherever it is cut. A preamble, an
// epilogue or a missing last line end do no harm.
func TestAFormThatBreaksOffStoresNothing(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	whole := formOf("x", append(w.signedFields(&w.writer, policyOf(`{"key":"k"}`)), field{"key", "k"}, field{"file", strings.Repeat("hello\r\n--edg", 10_000)}, field{"button", "x"})...)
	before := w.fake.everything()
	for _, cut := range []int{0, 1, 10, 500, 5000, len(whole) / 2, len(whole) - 100, len(whole) - 20, len(whole) - 5} {
		rec := w.do(t, call{method: "POST", path: "/photos", token: "-", body: whole[:cut], header: []string{formHeader}})
		if rec.Code != 400 || !strings.Contains(rec.Body.String(), "MalformedPOSTRequest") {
			t.Errorf("at %d: %d %s", cut, rec.Code, rec.Body)
		}
	}
	if after := w.fake.everything(); after != before {
		t.Fatalf("it stored %s", after)
	}
	if rec := w.do(t, call{method: "POST", path: "/photos/", token: "-", body: "a preamble\r\n" + whole + "an epilogue", header: []string{formHeader}}); rec.Code != 204 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if rec := w.do(t, call{method: "POST", path: "/photos/", token: "-", body: strings.TrimSuffix(whole, "\r\n"), header: []string{formHeader}}); rec.Code != 204 {
		t.Errorf("without the last line end: %d %s", rec.Code, rec.Body)
	}
	o, err := w.fake.Object(t.Context(), w.who.Account, "photos", "k", "")
	if err != nil || o.ETag != md5Of(strings.Repeat("hello\r\n--edg", 10_000)) {
		t.Errorf("%+v, %v", o, err)
	}
}

// A form whose key is revoked while its file comes gets AccessDenied and stores nothing.
func TestWhoIsRevokedWhileAFormIsSentStoresNothing(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	before := w.fake.everything()
	form := formOf("x", append(w.signedFields(&w.writer, policyOf(`{"key":"k"}`)), field{"key", "k"}, field{"file", strings.Repeat("x", 300_000)})...)
	revoked := false
	last := readerFunc(func([]byte) (int, error) { // asked for when most of the file was read
		w.pass(2 * time.Second)
		revoked = true
		if err := w.users.Revoke(t.Context(), w.writer.ID); err != nil {
			t.Error(err)
		}
		return 0, io.EOF
	})
	r := w.request(t, call{method: "POST", path: "/photos", token: "-", header: []string{formHeader}})
	r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(form), last)), -1
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, r)
	if rec.Code != 403 || !strings.Contains(rec.Body.String(), "AccessDenied") || !revoked {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if after := w.fake.everything(); after != before {
		t.Errorf("it stored %s", after)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// FuzzForm looks for bodies that are no forms and are not refused, and for forms
// whose fields are more than they may be or whose file is not what was sent.
func FuzzForm(f *testing.F) {
	f.Add([]byte(formOf("a/b\\c.txt", field{"key", "k/${filename}"}, field{"x-amz-meta-a", "1"}, field{"file", "hello"}, field{"more", "x"})))
	f.Add([]byte(formOf("x", field{"file", ""})))
	f.Add([]byte(formOf("x", field{"key", "k"})))
	f.Add([]byte("--edge\r\n\r\n--edge--"))
	f.Add([]byte("--edge\nContent-Disposition: form-data; name=file\n\nx\n--edge--"))
	s := &surface{stall: time.Minute, maxObject: 1000}
	f.Fuzz(func(t *testing.T, body []byte) {
		plain := httptest.NewRequest("POST", "/photos", bytes.NewReader(body))
		plain.Header.Set("Content-Type", strings.TrimPrefix(formHeader, "Content-Type: "))
		r := &request{Request: plain, target: target{level: levelBucket, bucket: "photos"}}
		form, err := s.readForm(httptest.NewRecorder(), r)
		if err != nil {
			ours(t, err)
			return
		}
		size := 0
		for name, value := range form.fields {
			size += len(name) + len(value)
		}
		if len(form.names) > maxFormFields || size > maxFieldBytes || strings.ContainsAny(form.filename, `/\`) {
			t.Errorf("%d fields of %d bytes, %q", len(form.names), size, form.filename)
		}
		if h, err := form.header(); err != nil {
			ours(t, err)
		} else if len(h) > len(form.names) {
			t.Errorf("%v", h)
		}
		data, err := io.ReadAll(&formFile{form: form, least: 2, most: 1000})
		if err != nil {
			ours(t, err)
			return
		}
		if len(data) < 2 || len(data) > 1000 || !bytes.Contains(body, data) || bytes.Contains(data, []byte("\r\n--edge\r\n")) {
			t.Errorf("%q of %q", data, body)
		}
	})
}

// FuzzPolicy looks for policies that are not refused with an error of ours, and that
// let in what they do not name, or after their time.
func FuzzPolicy(f *testing.F) {
	f.Add(policyOf(`["starts-with", "$key", ""]`, `["content-length-range", 1, 10]`), "x-amz-meta-a", "v")
	f.Add(policyOf(`{"key": "k"}`, `{"x-amz-meta-a": "v"}`), "x-amz-meta-a", "v")
	f.Add(`{"expiration": "2026-01-02T04:00:00Z", "conditions": [["eq", "$bucket", "b"], ["eq", "$key", "k"]]}`, "submit", "")
	f.Fuzz(func(t *testing.T, text, name, value string) {
		p, err := readPolicy(base64.StdEncoding.EncodeToString([]byte(text)))
		if err != nil {
			ours(t, err)
			return
		}
		if p.least < 0 || p.most < 0 {
			t.Errorf("%d to %d bytes", p.least, p.most)
		}
		name = strings.ToLower(name)
		form := &form{fields: map[string]string{name: value}, names: []string{"key", name}}
		form.fields["key"] = "k"
		if err := p.judge(form, "b", "k", p.expires.Add(-1)); err != nil {
			ours(t, err)
			return
		}
		if err := p.judge(form, "b", "k", p.expires); err == nil {
			t.Error("it is valid when it is over")
		}
		// A field that it has not heard of.
		form.fields["unheard of"] = ""
		form.names = append(form.names, "unheard of")
		if err := p.judge(form, "b", "k", p.expires.Add(-1)); err == nil && !strings.Contains(strings.ToLower(text), "unheard of") && !strings.Contains(text, `\u`) {
			t.Errorf("%s lets any field in", text)
		}
	})
}

// A Location has the scheme by which the client reached a trusted proxy, for forms and for completed uploads.
func TestLocationsBehindAProxyWithTLS(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	w.options.Limits = web.NewLimits(web.Rate{}, web.Rate{}, []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}, w.now)
	w.rebuild(t)
	for _, scheme := range []string{"http", "https"} {
		said := "X-Forwarded-Proto: " + scheme
		form := w.do(t, call{method: "POST", path: "/photos", body: formOf("a", field{"key", "form"}, field{"file", "hello"}), header: []string{formHeader, said}})
		if got := form.Header().Get("Location"); form.Code != 204 || got != scheme+"://example.com/photos/form" {
			t.Errorf("form: %d %q", form.Code, got)
		}
		_, id, _ := strings.Cut(w.must(t, 200, call{method: "POST", path: "/photos/up?uploads"}).Body.String(), "<UploadId>")
		id, _, _ = strings.Cut(id, "</UploadId>")
		etag := w.must(t, 200, call{method: "PUT", path: "/photos/up?partNumber=1&uploadId=" + id, body: "hello"}).Header().Get("Etag")
		upload := w.must(t, 200, call{
			method: "POST", path: "/photos/up?uploadId=" + id, header: []string{said},
			body: complete("", etag),
		}).Body.String()
		if !strings.Contains(upload, "<Location>"+scheme+"://example.com/photos/up</Location>") {
			t.Errorf("upload: %s", upload)
		}
	}
}
