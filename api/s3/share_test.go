package s3

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// shareID is the id of a share with a number in it.
func shareID(n int) state.ShareID { return state.ShareID(fmt.Sprintf("%032x", n)) }

// sharedBucket makes the bucket photos in the state and with the scene.
func (w *world) sharedBucket(t testing.TB) {
	t.Helper()
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	w.state.NewBucket(t, w.who.Account, "photos", false)
	w.scene(t)
}

// share makes a share of the bucket photos and returns it as a key.
func (w *world) share(t testing.TB, r accounts.ShareRequest) accounts.Key {
	t.Helper()
	r.Bucket = "photos"
	s, err := w.users.CreateShare(t.Context(), w.who.Account, r)
	if err != nil {
		t.Fatal(err)
	}
	return accounts.Key{ID: s.Key, Token: s.Token, AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey}
}

// ofShares are the operations that the key of a share may use, and what the share must permit. Every
// other operation is refused.
var ofShares = map[string]string{
	"GetObject": "read", "HeadObject": "read", "GetObjectBao": "read", "GetObjectAttributes": "read", "ListObjects": "read", "ListObjectsV2": "read",
	"PutObject": "write", "CreateMultipartUpload": "write", "UploadPart": "write", "CompleteMultipartUpload": "write", "AbortMultipartUpload": "write", "ListParts": "write",
	"CopyObject": "read write", "UploadPartCopy": "read write",
	"DeleteObject": "delete", "DeleteObjects": "delete",
}

// requestOf makes a request to an operation on a bucket and a key. A list has the key as its prefix.
func (w *world) requestOf(t *testing.T, op *operation, bucket, key, source, token string) *http.Request {
	t.Helper()
	path := "/"
	if op.level != levelService {
		path += bucket
	}
	if op.level == levelObject {
		path += "/" + key
	}
	switch op.sub {
	case "":
		path += "?"
	case "list-type":
		path += "?list-type=2"
	case "share":
		path += "?share=" + string(shareID(9))
	case "uploadId":
		path += "?partNumber=1&uploadId=upload-17"
	default:
		path += "?" + op.sub
	}
	if op.method == http.MethodGet && op.level == levelBucket {
		path += "&prefix=" + key
	}
	c := call{method: op.method, path: path, token: token}
	if op.copies {
		c.header = append(c.header, "x-amz-copy-source: "+source)
	}
	if op.method == http.MethodPut || op.method == http.MethodPost {
		c.body = "x"
	}
	if op.name == "DeleteObjects" {
		c.body = "<Delete><Object><Key>" + key + "</Key></Object></Delete>"
	}
	return w.request(t, c)
}

// isRefused returns whether an answer refuses a request for want of permission.
func isRefused(rec *httptest.ResponseRecorder) bool {
	return rec.Code == http.StatusForbidden && (rec.Body.Len() == 0 || strings.Contains(rec.Body.String(), "<Code>AccessDenied</Code>")) ||
		strings.Contains(rec.Body.String(), "<DeleteResult") && strings.Contains(rec.Body.String(), "<Code>AccessDenied</Code>")
}

// A share is refused every operation, key, source and version outside of its rights and prefixes. A new
// operation is refused to shares, until it has a line in ofShares and in shareable.
func TestAShareIsRefusedEveryOperationThatIsNotItsOwn(t *testing.T) {
	w := newWorld(t)
	w.sharedBucket(t)
	w.put(t, "/other/dir/one", "1")
	all := w.share(t, accounts.ShareRequest{ID: shareID(1), Prefixes: []string{"dir/", "cat.jpg"}, Read: true, Write: true, Delete: true})
	tokens := map[string]string{
		"read":   w.share(t, accounts.ShareRequest{ID: shareID(2), Prefixes: []string{"dir/"}, Read: true}).Token,
		"write":  w.share(t, accounts.ShareRequest{ID: shareID(3), Prefixes: []string{"dir/"}, Write: true}).Token,
		"delete": w.share(t, accounts.ShareRequest{ID: shareID(4), Prefixes: []string{"dir/"}, Delete: true}).Token,
	}
	seen := map[string]bool{}
	for _, op := range (&surface{}).operations() {
		seen[op.name] = true
		ask := func(bucket, key, source, token string) *httptest.ResponseRecorder {
			return w.answer(w.requestOf(t, &op, bucket, key, source, token))
		}
		needs, may := ofShares[op.name]
		for _, outside := range []struct{ bucket, key, source string }{
			{"photos", "dir", "photos/dir/one"},
			{"photos", "dirs/one", "photos/dir/one"},
			{"photos", "a+b/x", "photos/dir/one"},
			{"photos", "cat.jpg/x", "photos/dir/one"},
			{"photos", "cat.jp", "photos/dir/one"},
			{"photos", "./dir/one", "photos/dir/one"},
			{"other", "dir/one", "photos/dir/one"},
			{"absent", "dir/one", "photos/dir/one"},
		} {
			if rec := ask(outside.bucket, outside.key, outside.source, all.Token); !isRefused(rec) {
				t.Errorf("%s of %s/%s: %d %s", op.name, outside.bucket, outside.key, rec.Code, rec.Body)
			}
		}
		for right, token := range tokens {
			if rec := ask("photos", "dir/one", "photos/dir/one", token); isRefused(rec) == (right == needs) {
				t.Errorf("%s by a share that may %s: %d %s", op.name, right, rec.Code, rec.Body)
			}
		}
		if rec := ask("photos", "dir/one", "photos/dir/one", all.Token); isRefused(rec) == may {
			t.Errorf("%s by a share that may do all: %d %s", op.name, rec.Code, rec.Body)
		}
		if op.copies {
			for _, source := range []string{
				"photos/cat.jpg/x", "photos/a+b/x", "other/dir/one", "photos/dir/one?versionId=null", "/photos/dirs", "photos/./dir/one", "photos%2Fsealed", "photos", "",
			} {
				if rec := ask("photos", "dir/copy", source, all.Token); !isRefused(rec) {
					t.Errorf("%s from %s: %d %s", op.name, source, rec.Code, rec.Body)
				}
			}
		}
		if op.level == levelObject {
			r := w.requestOf(t, &op, "photos", "dir/one", "photos/dir/one", all.Token)
			r.URL.RawQuery += "&versionId=null"
			if rec := w.answer(r); !isRefused(rec) {
				t.Errorf("%s of a version: %d %s", op.name, rec.Code, rec.Body)
			}
		}
	}
	for name := range ofShares {
		if !seen[name] {
			t.Errorf("there is no operation %s", name)
		}
	}
}

// A share is held to its bucket and prefixes as a token, as a signature, as a link and as a form.
func TestAShareIsHeldToItsLimitsInEveryForm(t *testing.T) {
	w := newWorld(t)
	w.options.PresignedV2 = true
	w.rebuild(t)
	w.sharedBucket(t)
	narrow := w.share(t, accounts.ShareRequest{ID: shareID(1), Prefixes: []string{"dir/two/"}, Read: true, Write: true, Delete: true})
	wide := w.share(t, accounts.ShareRequest{ID: shareID(2), Prefixes: []string{"dir/"}, Read: true, Write: true, Delete: true})
	for form, r := range w.ways(t, &narrow) {
		if rec := w.answer(r()); !isRefused(rec) {
			t.Errorf("%s: %d %s", form, rec.Code, rec.Body)
		}
	}
	for form, r := range w.ways(t, &wide) {
		inside := form == "a token" || form == "a link" // the others list the bucket, and store by a form
		if rec := w.answer(r()); isRefused(rec) == inside {
			t.Errorf("%s: %d %s", form, rec.Code, rec.Body)
		}
	}
	server := w.serve(t)
	for path, want := range map[string]int{"/photos/dir/one": 200, "/photos/cat.jpg": 403, "/photos/dir%2F..%2Fcat.jpg": 404, "/photos/dir/../cat.jpg": 404} {
		link := w.link(t, &wide, http.MethodGet, server.URL+path)
		r := httptest.NewRequest(http.MethodGet, link.String(), http.NoBody)
		if rec := w.answer(r); rec.Code != want {
			t.Errorf("a link to %s: %d %s", path, rec.Code, rec.Body)
		}
	}
	hosted := w.must(t, 200, call{method: "GET", path: "/dir/one", header: []string{"Host: photos.s3.test"}, token: wide.Token})
	if hosted.Body.String() != "1" {
		t.Errorf("by the name of the host: %s", hosted.Body)
	}
	w.must(t, 403, call{method: "GET", path: "/photos/dir/one", header: []string{"Host: empty.s3.test"}, token: wide.Token})
	w.must(t, 403, call{method: "GET", path: "/photos?prefix=cat&prefix=dir/", token: wide.Token})
	list := w.must(t, 200, call{method: "GET", path: "/photos?prefix=dir/&prefix=", token: wide.Token})
	if text := list.Body.String(); !strings.Contains(text, "<Key>dir/one</Key>") || strings.Contains(text, "cat.jpg") || strings.Contains(text, "alice@example.org") {
		t.Errorf("a list: %s", text)
	}
	w.must(t, 200, call{method: "GET", path: "/photos?list-type=2&prefix=dir/o&start-after=a", token: wide.Token})
}

// TestAShareReadsNoRulesOfOtherBuckets promises that the answer to a share says nothing about a bucket
// that is not its own, not even to a script.
func TestAShareReadsNoRulesOfOtherBuckets(t *testing.T) {
	w := newWorld(t)
	w.sharedBucket(t) // the bucket empty has rules
	guest := w.share(t, accounts.ShareRequest{ID: shareID(1), Prefixes: []string{"dir/"}, Read: true})
	origin := "Origin: https://a.example"
	if rec := w.must(t, 404, call{method: "GET", path: "/empty/k", header: []string{origin}}); rec.Header().Get(allowOrigin) == "" {
		t.Fatalf("the owner's request is not ruled: %v", rec.Header())
	}
	other := w.must(t, 403, call{method: "GET", path: "/empty/k", header: []string{origin}, token: guest.Token})
	absent := w.must(t, 403, call{method: "GET", path: "/wrong/k", header: []string{origin}, token: guest.Token})
	if a, b := fmt.Sprint(other.Header()), fmt.Sprint(absent.Header()); a != b {
		t.Errorf("a bucket that is there answers with %s, another with %s", a, b)
	}
}

// DeleteObjects by a share deletes keys within its prefixes and refuses each key outside and each version.
func TestDeleteObjectsOfAShareChecksEachKey(t *testing.T) {
	w := newWorld(t)
	w.sharedBucket(t)
	guest := w.share(t, accounts.ShareRequest{ID: shareID(1), Prefixes: []string{"dir/"}, Delete: true})
	before := w.fake.everything()
	rec := w.must(t, 200, call{method: "POST", path: "/photos?delete", token: guest.Token, body: `<Delete><Object><Key>cat.jpg</Key></Object>` +
		`<Object><Key>sealed</Key><ETag>*</ETag></Object><Object><Key>dir/one</Key><VersionId>null</VersionId></Object></Delete>`})
	if n := strings.Count(rec.Body.String(), "<Code>AccessDenied</Code>"); n != 3 {
		t.Errorf("%d of 3 are refused: %s", n, rec.Body)
	}
	if w.fake.everything() != before {
		t.Error("a refused deletion changed something")
	}
	rec = w.must(t, 200, call{method: "POST", path: "/photos?delete", token: guest.Token, body: `<Delete><Object><Key>dir/one</Key></Object><Object><Key>dir/</Key></Object></Delete>`})
	if n := strings.Count(rec.Body.String(), "<Deleted>"); n != 2 {
		t.Errorf("%d of 2 are deleted: %s", n, rec.Body)
	}
}

// decoded reads the share in an answer.
func decoded(t *testing.T, rec *httptest.ResponseRecorder) (s web.Share) {
	t.Helper()
	if err := json.Unmarshal(rec.Body.Bytes(), &s); err != nil || rec.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%v: %s", err, rec.Body)
	}
	return s
}

// An owner creates a share, gets the same one for the same request, lists it without secrets and revokes it, and
// then it opens nothing.
func TestSharesAreMadeListedAndRevoked(t *testing.T) {
	w := newWorld(t)
	w.sharedBucket(t)
	const path = "/photos?share=0123456789abcdef0123456789abcdef"
	body := `{"prefixes":["x/","e/","x/"],"read":true,"write":false,"delete":true,"expires_at":"2027-01-01T01:00:00.5+01:00","name":"für Ann"}`
	first := w.must(t, 200, call{method: "PUT", path: path, body: body})
	made := decoded(t, first)
	want := web.Share{
		ID: "0123456789abcdef0123456789abcdef", Bucket: "photos", Prefixes: []string{"e/", "x/"}, Read: true, Delete: true, Name: "für Ann",
		Expires: "2027-01-01T00:00:01Z", Created: "2026-01-02T03:04:05Z", AccessKey: made.AccessKey, SecretKey: made.SecretKey, Token: made.Token,
	}
	if !reflect.DeepEqual(made, want) || made.Token == "" || len(made.SecretKey) != 40 || first.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%+v", made)
	}
	w.pass(time.Minute)
	again := w.must(t, 200, call{method: "PUT", path: path, body: body})
	if again.Body.String() != first.Body.String() {
		t.Errorf("the same request again: %s", again.Body)
	}
	for _, other := range []string{`{"prefixes":["e/"],"read":true}`, strings.Replace(body, "für Ann", "", 1), strings.Replace(body, `"write":false`, `"write":true`, 1)} {
		if rec := w.must(t, 409, call{method: "PUT", path: path, body: other}); !strings.Contains(rec.Body.String(), "<Code>ShareAlreadyExists</Code>") {
			t.Errorf("%s", rec.Body)
		}
	}
	for i := range 3 {
		w.share(t, accounts.ShareRequest{ID: shareID(i + 1), Prefixes: []string{"k"}, Read: true})
	}
	list := w.must(t, 200, call{method: "GET", path: "/photos?shares", token: w.reader.Token})
	var page sharesBody
	if err := json.Unmarshal(list.Body.Bytes(), &page); err != nil || len(page.Shares) != 4 || page.Next != "" || page.Shares[3].Name != "für Ann" {
		t.Errorf("%v: %s", err, list.Body)
	}
	for _, s := range page.Shares {
		if s.Token != "" || s.SecretKey != "" || strings.Contains(list.Body.String(), made.SecretKey) {
			t.Errorf("a list has the secrets of %+v", s)
		}
	}
	if rec := w.must(t, 200, call{method: "GET", path: "/photos?shares&after=" + string(shareID(3))}); strings.Count(rec.Body.String(), "share_id") != 1 {
		t.Errorf("after the third: %s", rec.Body)
	}
	if rec := w.must(t, 200, call{method: "GET", path: "/photos?shares&after=" + string(made.ID)}); rec.Body.String() != `{"shares":[]}`+"\n" && rec.Body.String() != `{"shares":[]}` {
		t.Errorf("after the last: %q", rec.Body)
	}
	w.must(t, 403, call{method: "DELETE", path: path, token: w.reader.Token})
	w.must(t, 404, call{method: "DELETE", path: path, token: w.bob.Token})
	w.must(t, 204, call{method: "DELETE", path: path})
	w.must(t, 403, call{method: "GET", path: "/photos/e/1", token: made.Token})
	if rec := w.must(t, 404, call{method: "DELETE", path: path}); !strings.Contains(rec.Body.String(), "<Code>NoSuchShare</Code>") {
		t.Errorf("%s", rec.Body)
	}
}

// TestAShareEndsNoLaterThanTheKeyThatMakesIt promises that a key with an end makes no share without an end,
// none with a later one, and one that ends with it, and that a key without an end makes each of them.
func TestAShareEndsNoLaterThanTheKeyThatMakesIt(t *testing.T) {
	w := newWorld(t)
	w.sharedBucket(t)
	short, err := w.users.CreateKey(t.Context(), w.who.Email, "", nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for i, tc := range []struct {
		token  string
		end    time.Duration // from the end of the key; 0 is no end
		status int
	}{
		{short.Token, 0, 403}, {short.Token, time.Millisecond, 403}, {short.Token, time.Hour, 403}, {short.Token, -time.Second, 200}, {w.alice.Token, 0, 200}, {w.alice.Token, time.Hour, 200},
	} {
		body := `{"prefixes":["e/"],"read":true}`
		if tc.end != 0 {
			body = fmt.Sprintf(`{"prefixes":["e/"],"read":true,"expires_at":%q}`, short.Expires.Add(tc.end).Format(time.RFC3339Nano))
		}
		rec := w.must(t, tc.status, call{method: "PUT", path: "/photos?share=" + string(shareID(i)), body: body, token: tc.token})
		if says := "the API key ends at " + short.Expires.UTC().Format(time.RFC3339); tc.status == 403 && !strings.Contains(rec.Body.String(), says) {
			t.Errorf("%s: %s", body, rec.Body)
		}
	}
}

// A request for a share with a bad id, body, bucket or caller gets its 4xx code and creates none.
func TestABadShareIsRefused(t *testing.T) {
	w := newWorld(t)
	w.sharedBucket(t)
	good := "/photos?share=" + string(shareID(1))
	long := strings.Repeat("p", state.MaxKeyBytes+1)
	for _, tc := range []struct {
		path, body, token string
		status            int
		code              string
	}{
		{good, ``, "", 400, "InvalidRequest"},
		{good, `[]`, "", 400, "InvalidRequest"},
		{good, `{"prefixes":["e/"],"read":true}{}`, "", 400, "InvalidRequest"},
		{good, `{"prefixes":["e/"],"read":true,"admin":true}`, "", 400, "InvalidRequest"},
		{good, `{"prefixes":"e/","read":true}`, "", 400, "InvalidRequest"},
		{good, `{"prefixes":["e/"],"read":1}`, "", 400, "InvalidRequest"},
		{good, `{"prefixes":["e/"],"read":true,"expires_at":"tomorrow"}`, "", 400, "InvalidRequest"},
		{good, `{"prefixes":["e/"],"read":true,"expires_at":"2026-01-02T03:04:05Z"}`, "", 400, "InvalidArgument"},
		{good, `{"prefixes":["e/"],"read":true,"expires_at":"2926-01-02T03:04:05Z"}`, "", 400, "InvalidArgument"},
		{good, `{"prefixes":["e/"]}`, "", 400, "InvalidArgument"},
		{good, `{"read":true}`, "", 400, "InvalidArgument"},
		{good, `{"prefixes":[],"read":true}`, "", 400, "InvalidArgument"},
		{good, `{"prefixes":[""],"read":true}`, "", 400, "InvalidArgument"},
		{good, `{"prefixes":["a\u0000"],"read":true}`, "", 400, "InvalidArgument"},
		{good, `{"prefixes":["` + long + `"],"read":true}`, "", 400, "InvalidArgument"},
		{good, `{"prefixes":["1","2","3","4","5","6","7","8","9"],"read":true}`, "", 400, "InvalidArgument"},
		{good, `{"prefixes":["e/"],"read":true,"name":"` + strings.Repeat("n", state.MaxNameRunes+1) + `"}`, "", 400, "InvalidArgument"},
		{"/photos?share=", `{"prefixes":["e/"],"read":true}`, "", 400, "InvalidArgument"},
		{"/photos?share=" + strings.ToUpper(string(shareID(10))), `{"prefixes":["e/"],"read":true}`, "", 400, "InvalidArgument"},
		{"/photos?share=" + string(shareID(1)) + "0", `{"prefixes":["e/"],"read":true}`, "", 400, "InvalidArgument"},
		{"/absent?share=" + string(shareID(1)), `{"prefixes":["e/"],"read":true}`, "", 404, "NoSuchBucket"},
		{good, `{"prefixes":["e/"],"read":true}`, w.bob.Token, 404, "NoSuchBucket"},
		{good, `{"prefixes":["e/"],"read":true}`, w.reader.Token, 403, "AccessDenied"},
		{good, `{"prefixes":["e/"],"read":true}`, w.writer.Token, 403, "AccessDenied"},
		{good, strings.Repeat(" ", maxShare+1), "", 400, "MaxMessageLengthExceeded"},
	} {
		rec := w.do(t, call{method: "PUT", path: tc.path, body: tc.body, token: tc.token})
		if rec.Code != tc.status || !strings.Contains(rec.Body.String(), "<Code>"+tc.code+"</Code>") {
			t.Errorf("%.60s %.100s: %d %s, want %d %s", tc.path, tc.body, rec.Code, rec.Body, tc.status, tc.code)
		}
	}
	if page, err := w.users.Shares(t.Context(), w.who.Account, "", state.SharePlace{}, 10); err != nil || len(page.Shares) > 0 {
		t.Errorf("%v, %v", page, err)
	}
	w.must(t, 200, call{method: "PUT", path: good, body: `{"prefixes":["e/"],"write":true}`, token: w.writer.Token})
	for _, path := range []string{"/photos?shares&after=x", "/absent?shares"} {
		if rec := w.do(t, call{method: "GET", path: path}); rec.Code < 400 || rec.Code >= 500 {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
}

// An account has at most MaxShares shares, and those that have expired make room.
func TestAnAccountHasSoManyShares(t *testing.T) {
	w := newWorld(t)
	w.sharedBucket(t)
	bucket := w.state.NewBucket(t, w.who.Account, "more", false)
	for i := range state.MaxShares {
		s := state.Share{
			ID: shareID(i), Account: w.who.Account, Bucket: "more", Born: bucket.Born, Key: state.KeyID(fmt.Sprint("key", i)), Prefixes: []string{"k"}, Read: true,
			Created: state.MillisOf(w.now()), Expires: state.MillisOf(w.now().Add(time.Hour)),
		}
		w.state.Apply(t, &state.CreateShare{Share: s})
	}
	c := call{method: "PUT", path: "/photos?share=" + string(shareID(1)), body: `{"prefixes":["k"],"read":true}`}
	if rec := w.must(t, 400, c); !strings.Contains(rec.Body.String(), "<Code>TooManyShares</Code>") {
		t.Errorf("%s", rec.Body)
	}
	w.pass(2 * time.Hour)
	w.must(t, 200, c)
	page, err := w.users.Shares(t.Context(), w.who.Account, "", state.SharePlace{}, state.MaxListLimit)
	if err != nil || len(page.Shares) >= state.MaxShares || !slices.ContainsFunc(page.Shares, func(s accounts.Share) bool { return s.Bucket == "photos" }) {
		t.Errorf("%d shares, %v", len(page.Shares), err)
	}
}

// TestTheRateOfAShareIsThatOfItsOwner promises that requests of shares use up the rate of the account.
func TestTheRateOfAShareIsThatOfItsOwner(t *testing.T) {
	w := newWorld(t)
	w.sharedBucket(t)
	one := w.share(t, accounts.ShareRequest{ID: shareID(1), Prefixes: []string{"dir/"}, Read: true})
	two := w.share(t, accounts.ShareRequest{ID: shareID(2), Prefixes: []string{"dir/"}, Read: true})
	w.options.Limits = web.NewLimits(web.Rate{PerSecond: 1, Burst: 2}, web.Rate{}, nil, w.now)
	w.rebuild(t)
	w.must(t, 200, call{method: "GET", path: "/photos/dir/one", token: one.Token})
	w.must(t, 200, call{method: "GET", path: "/photos/dir/one", token: two.Token})
	for _, token := range []string{one.Token, two.Token, w.alice.Token} {
		if rec := w.must(t, 503, call{method: "GET", path: "/photos/dir/one", token: token}); !strings.Contains(rec.Body.String(), "<Code>SlowDown</Code>") {
			t.Errorf("%s", rec.Body)
		}
	}
	w.must(t, 404, call{method: "GET", path: "/photos/dir/one", token: w.bob.Token})
}
