package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// bucket makes Alice's bucket, without an object.
func (w *world) bucket() {
	w.t.Helper()
	if err := w.objects.CreateBucket(w.t.Context(), w.account("alice"), "photos", false); err != nil {
		w.t.Fatal(err)
	}
}

// keys returns the keys of a bucket of alice.
func (w *world) keys(bucket string) (keys []string) {
	w.t.Helper()
	page, err := w.objects.List(w.t.Context(), w.account("alice"), bucket, state.ObjectsQuery{Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range page.Objects {
		keys = append(keys, page.Objects[i].Key)
	}
	return keys
}

// content is what a page answers for the download of a key.
func (b *browser) download(bucket, key string) string {
	b.t.Helper()
	_, body := b.get(addressOf("download", bucket, key, ""))
	return body
}

// An object moves to another key, or is copied there, and nothing that is there already goes.
func TestAnObjectIsMovedAndCopied(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	w.bucket()
	for _, key := range []string{"a/one.txt", "two.txt"} {
		w.store(key, "text/plain", "the content of "+key)
	}
	page := objectAddress("photos", "a/one.txt", "")
	move := func(form url.Values) *httptest.ResponseRecorder {
		t.Helper()
		return b.post(page, addressOf("object/move", "photos", "a/one.txt", ""), form)
	}
	for _, to := range []string{"", "a/one.txt", "two.txt", "a\x00b", "a\xff", strings.Repeat("k", state.MaxKeyBytes+1)} {
		if answer := move(url.Values{"to": {to}}); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), `role="alert"`) {
			t.Errorf("a move to %q: %d", to, answer.Code)
		}
	}
	if keys := w.keys("photos"); !slices.Equal(keys, []string{"a/one.txt", "two.txt"}) || b.download("photos", "two.txt") != "the content of two.txt" {
		t.Fatalf("after refused moves there are %q", keys)
	}
	if answer := move(url.Values{"to": {"copy.txt"}, "copy": {"1"}}); answer.Code != http.StatusSeeOther {
		t.Errorf("copy: %d %s", answer.Code, answer.Body)
	}
	if answer := move(url.Values{"to": {"b/moved.txt"}}); answer.Header().Get("Location") != objectAddress("photos", "b/moved.txt", "") {
		t.Errorf("move: %d to %s", answer.Code, answer.Header().Get("Location"))
	}
	if keys := w.keys("photos"); !slices.Equal(keys, []string{"b/moved.txt", "copy.txt", "two.txt"}) || b.download("photos", "b/moved.txt") != "the content of a/one.txt" {
		t.Errorf("there are %q", keys)
	}
}

// An older version becomes the current object again.
func TestAVersionIsRestored(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	w.bucket()
	if answer := b.post("/buckets/photos", "/buckets/photos/versioning", url.Values{"versioning": {"on"}}); answer.Code != http.StatusSeeOther {
		t.Fatalf("versioning: %d %s", answer.Code, answer.Body)
	}
	w.store("note", "text/plain", "first")
	old, err := w.objects.Object(t.Context(), w.account("alice"), "photos", "note", "")
	if err != nil {
		t.Fatal(err)
	}
	w.store("note", "text/plain", "second")
	if answer := b.post(objectAddress("photos", "note", old.ID), addressOf("object/restore", "photos", "note", old.ID), nil); answer.Code != http.StatusSeeOther {
		t.Fatalf("restore: %d %s", answer.Code, answer.Body)
	}
	if got := b.download("photos", "note"); got != "first" {
		t.Errorf("the current object is %q", got)
	}
	versions, err := w.objects.Versions(t.Context(), w.account("alice"), "photos", state.VersionsQuery{Limit: 10})
	if err != nil || len(versions.Versions) != 3 {
		t.Errorf("%d versions, %v", len(versions.Versions), err)
	}
	if answer := b.post(objectAddress("photos", "note", ""), addressOf("object/restore", "photos", "note", ""), nil); answer.Code != http.StatusBadRequest {
		t.Errorf("the current version is restored: %d", answer.Code)
	}
}

// Tags are replaced as a whole, and what is none changes nothing.
func TestTagsAreReplaced(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	w.bucket()
	w.store("note", "text/plain", "text")
	tags := func() []state.Tag {
		t.Helper()
		o, err := w.objects.Object(t.Context(), w.account("alice"), "photos", "note", "")
		if err != nil {
			t.Fatal(err)
		}
		return o.Tags
	}
	set := func(text string) int {
		t.Helper()
		return b.post(objectAddress("photos", "note", ""), addressOf("object/tags", "photos", "note", ""), url.Values{"tags": {text}}).Code
	}
	if code := set("b=2\r\na = 1\r\n"); code != http.StatusSeeOther || !slices.Equal(tags(), []state.Tag{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}) {
		t.Errorf("%d, %v", code, tags())
	}
	for _, bad := range []string{"novalue", "=1", "a=1\na=2", strings.Repeat("k", state.MaxTagKeyRunes+1) + "=1", "a=" + strings.Repeat("v", state.MaxTagValueRunes+1)} {
		if code := set(bad); code != http.StatusBadRequest || len(tags()) != 2 {
			t.Errorf("%q: %d, %v", bad, code, tags())
		}
	}
	if code := set(""); code != http.StatusSeeOther || len(tags()) > 0 {
		t.Errorf("none: %d, %v", code, tags())
	}
}

// The sites whose scripts may read are one rule, or none.
func TestSitesWhoseScriptsMayRead(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	w.bucket()
	set := func(form url.Values) int {
		t.Helper()
		return b.post("/buckets/photos", "/buckets/photos/cors", form).Code
	}
	rules := func() []state.CorsRule {
		t.Helper()
		rules, err := w.objects.Cors(t.Context(), w.account("alice"), "photos")
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	if code := set(url.Values{"origins": {"https://example.org\r\nhttp://localhost:8080"}, "write": {"1"}}); code != http.StatusSeeOther {
		t.Errorf("%d", code)
	}
	if got := rules(); len(got) != 1 || !slices.Equal(got[0].Origins, []string{"https://example.org", "http://localhost:8080"}) || !slices.Contains(got[0].Methods, http.MethodPut) {
		t.Errorf("%+v", got)
	}
	if f := corsFormOf(rules()); f.Other || !f.Write {
		t.Errorf("the form is %+v", f)
	}
	for _, bad := range []string{"example.org", "https://example.org/", "https://*.*.org", "ftp://example.org", "https://"} {
		if code := set(url.Values{"origins": {bad}}); code != http.StatusBadRequest || len(rules()) != 1 {
			t.Errorf("%q: %d", bad, code)
		}
	}
	if code := set(url.Values{}); code != http.StatusSeeOther || len(rules()) > 0 {
		t.Errorf("none: %d, %v", code, rules())
	}
}
