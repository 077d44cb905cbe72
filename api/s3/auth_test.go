package s3

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Each operation names the permission that it needs: no scope grants none, reads need read, changes write or
// delete, and copies both.
func TestEveryOperationSaysWhoMayUseIt(t *testing.T) {
	reads, writes := 0, 0
	for _, op := range (&surface{}).operations() {
		grants := func(scopes ...string) bool { return op.need.granted(&accounts.Principal{Scopes: scopes}) }
		changes := op.method != http.MethodGet && op.method != http.MethodHead
		switch {
		case op.need == 0 || op.serve == nil || op.name == "":
			t.Errorf("%s: need %d", op.name, op.need)
		case grants() || grants("", "storage:admin"):
			t.Errorf("%s is granted to everybody", op.name)
		case !grants(state.ScopeRead, state.ScopeWrite):
			t.Errorf("%s is granted to nobody", op.name)
		case changes && grants(state.ScopeRead):
			t.Errorf("%s is granted to who may only read", op.name)
		case !changes && grants(state.ScopeWrite):
			t.Errorf("%s is granted to who may only write", op.name)
		case op.copies && grants(state.ScopeWrite):
			t.Errorf("%s reads a source, and is granted to who may only write", op.name)
		case (op.need == needDelete) != grants(state.ScopeDelete):
			t.Errorf("%s: granted to who may only delete: %v", op.name, grants(state.ScopeDelete))
		}
		if changes {
			writes++
		} else {
			reads++
		}
	}
	if reads < 10 || writes < 10 {
		t.Errorf("%d operations read, %d change", reads, writes)
	}
	if permission(0).granted(&accounts.Principal{Scopes: []string{"", state.ScopeRead, state.ScopeWrite}}) {
		t.Error("no permission is granted")
	}
	if !slices.IsSorted(subResources) || !slices.IsSorted(modifiers) {
		t.Error("the tables of parameters are searched as sorted ones, and are not")
	}
}

// A table of operations in which one has no permission, occurs twice or has an unknown sub-resource is an error,
// and so are empty options.
func TestATableWithAMistakeMakesNoSurface(t *testing.T) {
	good := operation{"One", levelBucket, "GET", "", false, needRead, nil}
	free, other := good, good
	free.need, other.sub = 0, "other"
	for name, rows := range map[string][]operation{"nobody said who may": {free}, "twice": {good, good}, "a sub-resource that is not looked for": {other}} {
		if _, err := tableOf(rows); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a surface of nothing")
	}
}

// sign signs as the SDK's S3 client does.
func sign(t *testing.T, w *world, r *http.Request, id, secret, body string) {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	payload := hex.EncodeToString(sum[:])
	r.Header.Set("X-Amz-Content-Sha256", payload)
	signWith(t, w, r, id, secret, payload)
}

func signWith(t *testing.T, w *world, r *http.Request, id, secret, payload string) {
	t.Helper()
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(t.Context(), aws.Credentials{AccessKeyID: id, SecretAccessKey: secret}, r, payload, "s3", "eu-north-1", w.now()); err != nil {
		t.Fatal(err)
	}
}

func (w *world) serve(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	return server
}

func newRequest(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answer sends a request and returns the status and the body.
func answer(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	return answerTo(t, http.DefaultClient, r)
}

func answerTo(t *testing.T, client *http.Client, r *http.Request) (int, string) {
	t.Helper()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// A request signed with a key, or with a token as a key, is served within its account and scope, and one with a
// wrong or revoked key or another body is refused.
func TestKeysSignRequests(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	server := w.serve(t)
	for _, tc := range []struct {
		name, id, secret, method string
		want                     int
	}{
		{"a key", w.alice.AccessKeyID, w.alice.SecretAccessKey, "PUT", 200},
		{"a key that reads", w.reader.AccessKeyID, w.reader.SecretAccessKey, "GET", 200},
		{"a key that only reads", w.reader.AccessKeyID, w.reader.SecretAccessKey, "PUT", 403},
		{"another account's key", w.bob.AccessKeyID, w.bob.SecretAccessKey, "GET", 404},
		{"a revoked key", w.revoked.AccessKeyID, w.revoked.SecretAccessKey, "GET", 403},
		{"another key's secret", w.alice.AccessKeyID, w.bob.SecretAccessKey, "GET", 403},
		{"the id in lower case", strings.ToLower(w.alice.AccessKeyID), w.alice.SecretAccessKey, "GET", 403},
		{"no key", "HF", w.alice.SecretAccessKey, "GET", 403},
		{"a token as a key", "JWT:" + w.alice.Token, "any secret", "PUT", 200},
		{"a revoked token as a key", "JWT:" + w.revoked.Token, "any secret", "GET", 403},
	} {
		r := newRequest(t, tc.method, server.URL+"/photos/cat.jpg", "hello")
		sign(t, w, r, tc.id, tc.secret, "hello")
		if status, body := answer(t, r); status != tc.want {
			t.Errorf("%s: %d %s", tc.name, status, body)
		}
	}
	r := newRequest(t, "PUT", server.URL+"/photos/cat.jpg", "other")
	sign(t, w, r, w.alice.AccessKeyID, w.alice.SecretAccessKey, "hello")
	if status, body := answer(t, r); status != 400 || !strings.Contains(body, "XAmzContentSHA256Mismatch") {
		t.Errorf("another body than was signed: %d %s", status, body)
	}
	if o, err := w.fake.Object(t.Context(), w.who.Account, "photos", "cat.jpg", ""); err != nil || o.ETag != sumOfHello {
		t.Errorf("%+v, %v", o, err)
	}
}

// A presigned URL serves the request that was signed, with its x-amz parameters as headers, and no other.
func TestLinksAreServed(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	server := w.serve(t)
	link := func(method, path string) string { return w.linked(t, server, method, path) }
	status, body := answer(t, newRequest(t, "GET", link("GET", "/photos/dir/one?X-Amz-Expires=60&x-id=GetObject&x-amz-checksum-mode=ENABLED"), ""))
	if status != 200 || body != "1" {
		t.Errorf("get: %d %s", status, body)
	}
	// What SDKs put in a link counts as if it were a header, but for the checksum of
	// the empty body that the link was made with.
	url := link("PUT", "/photos/linked?X-Amz-Expires=60&x-amz-meta-a=b&x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32")
	if status, body := answer(t, newRequest(t, "PUT", url, "hello")); status != 200 {
		t.Errorf("put: %d %s", status, body)
	}
	o, err := w.fake.Object(t.Context(), w.who.Account, "photos", "linked", "")
	if err != nil || o.ETag != sumOfHello || fmt.Sprint(o.Meta) != "map[a:b]" {
		t.Errorf("%+v, %v", o, err)
	}
	for _, name := range []string{"X-Amz-Meta-a%20b", "x-amz-meta-a%20b", "X-Amz-Meta-a%0Ab", "X-Amz-Meta-%C3%A9"} { // no answer could say it
		if status, body := answer(t, newRequest(t, "PUT", link("PUT", "/photos/named?X-Amz-Expires=60&"+name+"=c"), "hello")); status != 400 || !strings.Contains(body, "InvalidArgument") {
			t.Errorf("metadata %s: %d %s", name, status, body)
		}
	}
	if status, _ := answer(t, newRequest(t, "DELETE", url, "")); status != 403 {
		t.Errorf("a link of another method: %d", status)
	}
	if status, _ := answer(t, newRequest(t, "PUT", strings.Replace(url, "meta-a=b", "meta-a=c", 1), "hello")); status != 403 {
		t.Errorf("a link that was changed: %d", status)
	}
}

// linked returns a link for a request, with the parameters that its path has.
func (w *world) linked(t *testing.T, server *httptest.Server, method, path string) string {
	t.Helper()
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	url, _, err := signer.PresignHTTP(t.Context(), aws.Credentials{AccessKeyID: w.alice.AccessKeyID, SecretAccessKey: w.alice.SecretAccessKey},
		newRequest(t, method, server.URL+path, ""), "UNSIGNED-PAYLOAD", "s3", "us-east-1", w.now())
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// A presigned URL with a checksum takes only the content that has it, except with the checksum of the empty
// body. The presigner of the SDK for JavaScript puts all x-amz headers into the query, a checksum that was given
// to it among them.
func TestALinkWithAChecksumIsForTheContentThatHasIt(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	server := w.serve(t)
	for _, a := range algorithms {
		sum := func(body string) string {
			h := objects.NewHash(a.name)
			h.Write([]byte(body))
			return url.QueryEscape(base64.StdEncoding.EncodeToString(h.Sum(nil)))
		}
		for _, path := range []string{"/photos/bound?", "/photos/open?uploadId=upload-14&partNumber=7&"} {
			path += "X-Amz-Expires=60&" + strings.ToLower(a.header) + "="
			link := w.linked(t, server, "PUT", path+sum("hello"))
			if status, body := answer(t, newRequest(t, "PUT", link, "other")); status != 400 || !strings.Contains(body, "BadDigest") {
				t.Errorf("%s: other content: %d %s", path, status, body)
			}
			if status, body := answer(t, newRequest(t, "PUT", link, "hello")); status != 200 {
				t.Errorf("%s: its content: %d %s", path, status, body)
			}
			free := w.linked(t, server, "PUT", path+sum(""))
			if status, body := answer(t, newRequest(t, "PUT", free, "any")); status != 200 {
				t.Errorf("%s: with the checksum of the empty body: %d %s", path, status, body)
			}
		}
	}
	two := w.linked(t, server, "PUT", "/photos/two?X-Amz-Expires=60&x-amz-checksum-crc32=NhCmhg%3D%3D&x-amz-checksum-crc32c=NhCmhg%3D%3D")
	if status, body := answer(t, newRequest(t, "PUT", two, "hello")); status != 400 || !strings.Contains(body, "InvalidRequest") {
		t.Errorf("two checksums: %d %s", status, body)
	}
}

// A presigned URL begins a multipart upload with the checksum algorithm and type of its query.
func TestALinkBeginsAnUploadWithTheChecksumThatItNames(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	server := w.serve(t)
	link := w.linked(t, server, "POST", "/photos/m?uploads=&X-Amz-Expires=60&x-amz-checksum-algorithm=CRC32&x-amz-checksum-type=FULL_OBJECT")
	status, body := answer(t, newRequest(t, "POST", link, ""))
	_, id, _ := strings.Cut(body, "<UploadId>")
	id, _, _ = strings.Cut(id, "<")
	if status != 200 || id == "" {
		t.Fatalf("%d %s", status, body)
	}
	u, err := w.fake.Upload(t.Context(), w.who.Account, "photos", "m", state.UploadID(id))
	if err != nil || u.Checksum.Algorithm != "CRC32" || u.Checksum.Composite {
		t.Errorf("%+v, %v", u, err)
	}
}

// A Bearer token is accepted whichever case its scheme is written in.
func TestTheSchemeOfATokenIsWrittenInAnyCase(t *testing.T) {
	w := newWorld(t)
	for _, scheme := range []string{"Bearer", "bearer", "BEARER"} {
		w.must(t, 200, call{method: "GET", path: "/", token: "-", header: []string{"Authorization: " + scheme + " " + w.alice.Token}})
	}
}

// A bearer token opens nothing behind another scheme, if it is changed or sent twice, or with anything else in
// its header.
func TestATokenIsBehindItsScheme(t *testing.T) {
	w := newWorld(t)
	token := w.alice.Token
	for _, value := range []string{
		token, " " + token, "Basic " + token, "Token " + token, "Bearer" + token, "Bearer  " + token, "Bearer\t" + token, "Bearer", "Bearer ",
		"Bearer " + token + " ", "Bearer " + token + "\x7f", "Bearer " + token + " x", "Bearer " + token[:len(token)-1], "Bearer " + strings.Repeat("x", accounts.MaxToken+1),
	} {
		rec := w.do(t, call{method: "GET", path: "/", token: "-", header: []string{"Authorization: " + value}})
		if rec.Code != 403 && rec.Code != 400 || strings.Contains(rec.Body.String(), "ListAllMyBuckets") {
			t.Errorf("%.20q and so on: %d %s", value, rec.Code, rec.Body)
		}
	}
	rec := w.do(t, call{method: "GET", path: "/", token: "-", header: []string{"Authorization: Bearer " + token, "Authorization: Bearer " + token}})
	if rec.Code == 200 {
		t.Errorf("two headers: %d", rec.Code)
	}
}

// Without a majority a token and a signature are answered with 503 and ServiceUnavailable.
func TestWithoutAMajorityNobodyIsKnown(t *testing.T) {
	w := newWorld(t)
	server := w.serve(t)
	w.state.Fail(state.ErrUnavailable)
	rec := w.do(t, call{method: "GET", path: "/"})
	if rec.Code != 503 || rec.Header().Get("Retry-After") != "1" {
		t.Errorf("a token: %d %v", rec.Code, rec.Header())
	}
	r := newRequest(t, "GET", server.URL, "")
	sign(t, w, r, w.alice.AccessKeyID, w.alice.SecretAccessKey, "")
	if status, body := answer(t, r); status != 503 || !strings.Contains(body, "ServiceUnavailable") {
		t.Errorf("a signature: %d %s", status, body)
	}
}
