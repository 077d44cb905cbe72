package webapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// storeSealed stores an object with metadata and returns it.
func (w *world) storeSealed(key, text string, meta map[string]string) state.Object {
	w.T.Helper()
	o, err := w.Objects.Put(w.T.Context(), w.Account("alice"), "photos", objects.PutRequest{
		Key: key, Body: objects.Body{Reader: strings.NewReader(text), Size: int64(len(text))},
		Attributes: objects.Attributes{Headers: map[string]string{"Content-Type": "text/html"}, Meta: meta},
	})
	if err != nil {
		w.T.Fatal(err)
	}
	return o
}

// TestSharedContentIsAsItIsStored promises that an object is answered as it is stored, whole and in ranges, with
// the headers that a reader of ciphertext needs, and with no type that a browser shows.
func TestSharedContentIsAsItIsStored(t *testing.T) {
	w := newWorld(t)
	const text = "0123456789"
	meta := map[string]string{"encrypted": "true", "encryption": `{"version":4}`, "x-fula-encrypted": "true", "x-fula-encryption": "{}", "note": "private"}
	o := w.storeSealed("e/a b", text, meta)
	w.storeSealed("/photos/e_1", "slash", nil)
	w.storeSealed("empty", "", nil)
	reader := w.with(w.Key("alice", state.ScopeRead).Token)
	for _, tc := range []struct {
		method, key, asked string
		status             int
		body, span         string
	}{
		{"GET", "e/a%20b", "", 200, text, ""},
		{"GET", "e%2Fa%20b", "bytes=2-4", 206, "234", "bytes 2-4/10"},
		{"GET", "e/a%20b", "bytes=-3", 206, "789", "bytes 7-9/10"},
		{"GET", "e/a%20b", "bytes=10-", 416, "", "bytes */10"},
		{"GET", "e/a%20b", "bytes=-0", 416, "", "bytes */10"},
		{"GET", "e/a%20b", "bytes=8-99", 206, "89", "bytes 8-9/10"},
		{"GET", "e/a%20b", "bytes=-99", 206, text, "bytes 0-9/10"},
		{"GET", "e/a%20b", "lines=1-2", 200, text, ""},
		{"GET", "e/a%20b", "bytes=4-2", 200, text, ""},
		{"GET", "e/a%20b", "bytes=1-2,4-5", 200, text, ""},
		{"HEAD", "e/a%20b", "", 200, "", ""},
		{"GET", "/photos/e_1", "", 200, "slash", ""},
		{"GET", "%2Fphotos%2Fe_1", "", 200, "slash", ""},
		{"GET", "empty", "", 200, "", ""},
		{"GET", "e/nothing", "", 404, "", ""},
		{"GET", strings.Repeat("k", state.MaxKeyBytes+1), "", 400, "", ""},
	} {
		r := reader.request(tc.method, "/shared/photos/"+tc.key, "")
		if tc.asked != "" {
			r.Header.Set("Range", tc.asked)
		}
		got := reader.send(r)
		h := got.Header()
		if got.Code != tc.status || h.Get("Content-Range") != tc.span || tc.status < 300 && got.Body.String() != tc.body {
			t.Errorf("%s %s %s: %d %q %s", tc.method, tc.key, tc.asked, got.Code, h.Get("Content-Range"), got.Body)
		}
		if tc.status >= 300 {
			if h.Get("Content-Type") != "application/json" || h.Get("Etag") != "" || h.Get("Content-Disposition") != "" {
				t.Errorf("the error for %s has %v", tc.key, h)
			}
			continue
		}
		if h.Get("Content-Type") != "application/octet-stream" || h.Get("Content-Disposition") != "attachment" || h.Get("Content-Security-Policy") != "sandbox" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s has %v", tc.method, tc.key, h)
		}
		if !strings.HasPrefix(tc.key, "e") || tc.key == "empty" {
			continue
		}
		for name, value := range meta {
			if name == "note" {
				value = ""
			}
			if h.Get("X-Amz-Meta-"+name) != value {
				t.Errorf("%s %s has %q as %s", tc.method, tc.key, h.Get("X-Amz-Meta-"+name), name)
			}
		}
		if h.Get("Etag") != `"`+o.ETag+`"` {
			t.Errorf("%s %s has the ETag %s", tc.method, tc.key, h.Get("Etag"))
		}
	}
}

// TestSharedContentTakesNoCookie promises that a session in a cookie opens no content, that the cookie
// beside a token changes nothing, and that only a token that may read opens the content.
func TestSharedContentTakesNoCookie(t *testing.T) {
	w := newWorld(t)
	w.Store("cat.txt", "text/plain", "purr")
	const path = "/shared/photos/cat.txt"
	signedIn := w.signIn("alice")
	w.refused("a cookie", signedIn.do("GET", path, ""), http.StatusUnauthorized)
	w.refused("nothing", w.with("").do("GET", path, ""), http.StatusUnauthorized)
	w.refused("a wrong token", w.with("wrong").do("GET", path, ""), http.StatusUnauthorized)
	both := signedIn
	both.bearer = w.Key("bob").Token
	w.refused("the token of another beside the cookie", both.do("GET", path, ""), http.StatusNotFound)
	w.refused("a token that may write", w.with(w.Key("alice", state.ScopeWrite).Token).do("GET", path, ""), http.StatusForbidden)
	key := w.Key("alice", state.ScopeRead)
	if got := w.with(key.Token).do("GET", path, ""); got.Body.String() != "purr" || len(got.Header()["Set-Cookie"]) > 0 {
		t.Errorf("a token that may read is answered with %d %s", got.Code, got.Body)
	}
	elsewhere := w.with(key.Token)
	elsewhere.handler = w.node(w.Elsewhere())
	if err := w.Users.Revoke(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	w.refused("a revoked token", elsewhere.do("GET", path, ""), http.StatusUnauthorized)
	if _, err := w.Objects.Delete(t.Context(), w.Account("alice"), "photos", "cat.txt", "", state.Condition{}); err != nil {
		t.Fatal(err)
	}
	w.refused("a deleted object", w.with(w.Key("alice").Token).do("GET", path, ""), http.StatusNotFound)
}

// TestASharedFolderIsListed promises that the token of a share lists the keys that the share covers, and
// no others, and that neither a cookie nor a token that may not read lists any.
func TestASharedFolderIsListed(t *testing.T) {
	w := newWorld(t)
	for _, key := range []string{"trip/a.txt", "trip/day 1/b.txt", "tripod.txt", "private.txt"} {
		w.Store(key, "text/plain", "text")
	}
	share := func(id string, read bool, prefix string) string {
		t.Helper()
		s, err := w.Users.CreateShare(t.Context(), w.Account("alice"), accounts.ShareRequest{ID: state.ShareID(strings.Repeat(id, state.ShareIDLen)), Bucket: "photos", Prefixes: []string{prefix}, Read: read, Write: true})
		if err != nil {
			t.Fatal(err)
		}
		return s.Token
	}
	folder := w.with(share("1", true, "trip/"))
	got := folder.do("GET", "/shared/photos?prefix=trip/&delimiter=/", "")
	if body := got.Body.String(); got.Code != http.StatusOK || !strings.Contains(body, `"trip/a.txt"`) || !strings.Contains(body, `"prefixes":["trip/day 1/"]`) || strings.Contains(body, "tripod") {
		t.Errorf("the folder is listed with %d %s", got.Code, body)
	}
	if got := folder.do("GET", "/shared/photos?prefix=trip/day%201/", ""); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), `"trip/day 1/b.txt"`) {
		t.Errorf("a folder below is listed with %d %s", got.Code, got.Body)
	}
	for _, query := range []string{"", "?prefix=", "?prefix=trip", "?prefix=private"} {
		w.refused("a share of trip/ with "+query, folder.do("GET", "/shared/photos"+query, ""), http.StatusForbidden)
	}
	w.refused("another bucket", folder.do("GET", "/shared/others?prefix=trip/", ""), http.StatusForbidden)
	if got := folder.do("GET", "/shared/photos?prefix=trip/&prefix=private", ""); got.Code != http.StatusBadRequest {
		t.Errorf("two prefixes are answered with %d %s", got.Code, got.Body)
	}
	const path = "/shared/photos?prefix=trip/"
	w.refused("a share of one object", w.with(share("2", true, "trip/a.txt")).do("GET", path, ""), http.StatusForbidden)
	w.refused("a share that may write", w.with(share("3", false, "trip/")).do("GET", path, ""), http.StatusForbidden)
	w.refused("a cookie", w.signIn("alice").do("GET", path, ""), http.StatusUnauthorized)
	w.refused("a key that may write", w.with(w.Key("alice", state.ScopeWrite).Token).do("GET", path, ""), http.StatusForbidden)
	w.refused("a key of another", w.with(w.Key("bob").Token).do("GET", path, ""), http.StatusNotFound)
	if err := w.Users.RevokeShare(t.Context(), w.Account("alice"), "photos", state.ShareID(strings.Repeat("1", state.ShareIDLen))); err != nil {
		t.Fatal(err)
	}
	w.refused("a revoked share", folder.do("GET", path, ""), http.StatusUnauthorized)
}
