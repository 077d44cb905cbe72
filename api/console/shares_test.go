package console

import (
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// share makes a share of Alice's bucket that reads.
func (w *world) share(id state.ShareID, name string) accounts.Share {
	w.t.Helper()
	s, err := w.users.CreateShare(w.t.Context(), w.account("alice"), accounts.ShareRequest{
		ID: id, Bucket: "photos", Prefixes: []string{"<e>/", "x/"}, Read: true, Name: name, Expires: time.Now().Add(time.Hour),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// TestTheBucketListsAndRevokesItsShares promises that the page of a bucket names its shares without
// their secrets, and that a share which it revoked is refused on another node.
func TestTheBucketListsAndRevokesItsShares(t *testing.T) {
	w := newWorld(t)
	w.photos("cat.txt")
	b := w.browser()
	b.signIn("alice")
	if _, body := b.get("/buckets/photos"); strings.Contains(body, "Shares") {
		t.Error("a bucket without shares has a list of them")
	}
	made, kept := w.share("0123456789abcdef0123456789abcdef", "For <Ann>"), w.share("1123456789abcdef0123456789abcdef", "")
	if _, err := w.users.CreateShare(t.Context(), w.account("alice"), accounts.ShareRequest{ID: "2123456789abcdef0123456789abcdef", Bucket: "photos", Prefixes: []string{"e/", "x/"}, Read: true}); err != nil {
		t.Fatal(err)
	}
	_, body := b.get("/buckets/photos")
	for _, want := range []string{"For &lt;Ann&gt;", "&lt;e&gt;/", "x/", "Share 11234567", "encrypted folder", "This cannot be undone", `action="/buckets/photos/shares/` + string(made.ID) + `/revoke"`, `<td class="word" data-label="Access">read</td>`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not have %s", want)
		}
	}
	for _, secret := range []string{made.Token, made.SecretAccessKey, kept.Token} {
		if strings.Contains(body, secret) {
			t.Error("the page has a secret of a share")
		}
	}
	path := "/buckets/photos/shares/" + string(made.ID) + "/revoke"
	if got := b.do(httptest.NewRequest(http.MethodPost, path, nil)); got.Code != http.StatusForbidden {
		t.Errorf("without a form token: %d", got.Code)
	}
	if got := b.post("/buckets/photos", path, nil); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "The share <strong>For &lt;Ann&gt;</strong> has been refused on every node") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if _, err := w.Elsewhere().AuthenticateS3(t.Context(), made.Token); !errors.Is(err, state.ErrUnauthorized) {
		t.Errorf("the revoked share: %v", err)
	}
	if _, err := w.Elsewhere().AuthenticateS3(t.Context(), kept.Token); err != nil {
		t.Errorf("the other share: %v", err)
	}
	if got := b.post("/buckets/photos", path, nil); got.Code != http.StatusNotFound {
		t.Errorf("a share that is gone: %d", got.Code)
	}
}

// TestASharesRowSaysWhatItMay promises the words of the list.
func TestASharesRowSaysWhatItMay(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	s := accounts.Share{Share: state.Share{Read: true, Write: true, Delete: true, Expires: state.MillisOf(now)}}
	if row := shareRowOf(&s, now); row.May != "read, write, delete" || !row.Expired || row.Name != "Share " || row.Of != "" || !row.Expires.Equal(now) {
		t.Errorf("%+v", row)
	}
	for of, prefixes := range map[string][]string{
		"encrypted folder": {"e/", "x/"}, "encrypted file": {"e/c332cba605723bb4881b064484e82c29"}, "": {"e/"},
	} {
		if s.Prefixes = prefixes; shareRowOf(&s, now).Of != of {
			t.Errorf("%q is shown as %q, not %q", prefixes, shareRowOf(&s, now).Of, of)
		}
	}
	s.Expires, s.Read, s.Delete, s.Name = 0, false, false, "For Ann"
	if row := shareRowOf(&s, now); row.May != "write" || row.Expired || row.Name != "For Ann" || !row.Expires.IsZero() {
		t.Errorf("%+v", row)
	}
}

// shareLinkOf returns the parameters of the share link that an answer shows.
func shareLinkOf(t *testing.T, answer *httptest.ResponseRecorder) url.Values {
	t.Helper()
	m := regexp.MustCompile(`<code>(https?://[^#<]+/shared)#([^<]+)</code>`).FindStringSubmatch(answer.Body.String())
	if answer.Code != http.StatusOK || m == nil {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	values, err := url.ParseQuery(html.UnescapeString(m[2]))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// A page makes a share of one object or of a folder, which reads that and nothing else, and shows its link
// once. No log line and no other page has its token.
func TestAPageMakesAShare(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	w.bucket()
	w.store("trip/map.txt", "text/plain", "north")
	w.store("cat.txt", "text/plain", "meow")
	w.storeWith("sealed", "ciphertext", objects.Attributes{Meta: map[string]string{"encrypted": "true"}})
	if _, body := b.get("/buckets/photos"); strings.Contains(body, "Make share link") {
		t.Errorf("a whole bucket is shared: %s", body)
	}
	if _, body := b.get(objectAddress("photos", "sealed", "")); strings.Contains(body, "Make share link") {
		t.Errorf("an encrypted object is shared without its key: %s", body)
	}
	for _, tc := range []struct{ page, place, expiry string }{
		{objectAddress("photos", "cat.txt", ""), "cat.txt", "1d"},
		{bucketAddress("photos", "trip/"), "trip/", "never"},
	} {
		if _, body := b.get(tc.page); !strings.Contains(body, `name="place" value="`+tc.place+`"`) {
			t.Errorf("%s has no form: %s", tc.page, body)
		}
		values := shareLinkOf(t, b.post(tc.page, "/buckets/photos/shares", url.Values{"place": {tc.place}, "expiry": {tc.expiry}, "name": {" For Ann "}}))
		token := values.Get("a")
		if values.Get("v") != "2" || values.Get("b") != "photos" || values.Get("p") != tc.place || !strings.HasSuffix(values.Get("e"), ":9000") {
			t.Errorf("the link has %v", values)
		}
		who, err := w.users.AuthenticateS3(t.Context(), token)
		if err != nil || !who.MayRead("photos", tc.place+strings.Repeat("x", strings.Count(tc.place, "/"))) || who.MayRead("photos", "private.txt") || who.Share.Write || who.Share.Delete || who.Share.Name != "For Ann" || who.Share.Expires == 0 != (tc.expiry == "never") {
			t.Errorf("the share is %+v, %v", who.Share, err)
		}
		if _, body := b.get("/buckets/photos"); !strings.Contains(body, "For Ann") || !strings.Contains(body, "<code>"+tc.place+"</code>") || strings.Contains(body, token) {
			t.Errorf("the list of shares is %s", body)
		}
		if strings.Contains(w.log.String(), token) {
			t.Errorf("the log has the token: %s", firstWith(w.log.String(), token))
		}
	}
	for _, bad := range []url.Values{
		{"place": {""}, "expiry": {"1d"}}, {"place": {"cat.txt"}, "expiry": {"2d"}}, {"place": {"a\x00"}, "expiry": {"1d"}},
		{"place": {"cat.txt"}, "expiry": {"1d"}, "name": {strings.Repeat("n", state.MaxNameRunes+1)}},
	} {
		if answer := b.post("/buckets/photos", "/buckets/photos/shares", bad); answer.Code != http.StatusBadRequest {
			t.Errorf("%v is answered with %d", bad, answer.Code)
		}
	}
	bob := w.browser()
	bob.signIn("bob")
	if answer := bob.post("/", "/buckets/photos/shares", url.Values{"place": {"cat.txt"}, "expiry": {"1d"}}); answer.Code != http.StatusNotFound {
		t.Errorf("Bob shares an object of Alice: %d %s", answer.Code, answer.Body)
	}
}
