package console

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
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
	for _, want := range []string{"For &lt;Ann&gt;", "&lt;e&gt;/", "x/", "Share 11234567", "encrypted folder", "This cannot be undone", `action="/buckets/photos/shares/` + string(made.ID) + `/revoke"`, `<td data-label="May">read</td>`} {
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
	if got := b.post("/buckets/photos", path, nil); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "The share <strong>For &lt;Ann&gt;</strong> is refused on every node") {
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
