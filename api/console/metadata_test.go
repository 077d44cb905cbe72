package console

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

var hiddenOf = regexp.MustCompile(`<input type="hidden" name="(etag|created)" value="([^"]+)">`)

// metadataIn returns the form for metadata on the page of an object, as it is loaded.
func (b *browser) metadataIn(key string) url.Values {
	b.t.Helper()
	_, body := b.get(objectAddress("photos", key, ""))
	form := url.Values{}
	for _, m := range hiddenOf.FindAllStringSubmatch(body, -1) {
		form.Set(m[1], m[2])
	}
	if len(form) != 2 {
		b.t.Fatalf("the page has the fields %v: %s", form, body)
	}
	return form
}

// current returns the current object of a key.
func (w *world) current(key string) state.Object {
	w.t.Helper()
	o, err := w.objects.Object(w.t.Context(), w.account("alice"), "photos", key, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// storeWith stores an object with attributes.
func (w *world) storeWith(key, content string, a objects.Attributes) {
	w.t.Helper()
	_, err := w.objects.Put(w.t.Context(), w.account("alice"), "photos", objects.PutRequest{Key: key, Attributes: a, Body: objects.Body{Reader: strings.NewReader(content), Size: int64(len(content))}})
	if err != nil {
		w.t.Fatal(err)
	}
}

// change sends a form for metadata with some values.
func (b *browser) change(key string, form url.Values, values ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	form = maps.Clone(form)
	for i := 0; i < len(values); i += 2 {
		form.Set(values[i], values[i+1])
	}
	return b.post(objectAddress("photos", key, ""), addressOf("object/metadata", "photos", key, ""), form)
}

// Headers and metadata of an object change, and its content, its tags and its other headers stay.
func TestMetadataIsChanged(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	w.bucket()
	const location = "X-Amz-Website-Redirect-Location"
	w.storeWith("note", "text", objects.Attributes{
		Headers: map[string]string{"Content-Type": "text/plain", "Cache-Control": "no-store", location: "/elsewhere"}, Meta: map[string]string{"a": "1", "b": "2"},
		Tags: []state.Tag{{Key: "draft", Value: "yes"}}, StorageClass: "STANDARD_IA",
	})
	if _, body := b.get(objectAddress("photos", "note", "")); !strings.Contains(body, "<dt>Cache-Control</dt><dd>no-store</dd>") || !strings.Contains(body, "a=1\nb=2\n</textarea>") {
		t.Errorf("the page is %s", body)
	}
	answer := b.change("note", b.metadataIn("note"), "Content-Type", "text/html", "Content-Language", " en ", "meta", "A = one\r\nc=Zoë\r\n")
	if answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != objectAddress("photos", "note", "") {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	o := w.current("note")
	if want := map[string]string{"Content-Type": "text/html", "Content-Language": "en", location: "/elsewhere"}; !maps.Equal(o.Headers, want) {
		t.Errorf("the headers are %v", o.Headers)
	}
	if want := map[string]string{"a": "one", "c": "Zoë"}; !maps.Equal(o.Meta, want) {
		t.Errorf("the metadata is %v", o.Meta)
	}
	if len(o.Tags) != 1 || o.StorageClass != "STANDARD_IA" || b.download("photos", "note") != "text" {
		t.Errorf("the object is %+v", o)
	}
	form := b.metadataIn("note")
	for _, bad := range [][]string{
		{"meta", "novalue"}, {"meta", "a b=1"}, {"meta", "ä=1"}, {"meta", "a=1\nA=2"}, {"meta", "a=1\x00"}, {"meta", "encrypted=true"}, {"meta", "=1"},
		{"Cache-Control", "max-age=1\r\nSet-Cookie: a=b"}, {"meta", "a=" + strings.Repeat("v", state.MaxHeaderBytes)}, {"created", "soon"}, {"etag", ""},
	} {
		if answer := b.change("note", form, append([]string{"meta", "x=y"}, bad...)...); answer.Code != http.StatusBadRequest {
			t.Errorf("%q: %d", bad, answer.Code)
		}
	}
	if answer := b.change("note", form, "meta", "novalue", "Cache-Control", "max-age=7"); !strings.Contains(answer.Body.String(), "novalue</textarea>") || !strings.Contains(answer.Body.String(), `value="max-age=7"`) {
		t.Errorf("after the error the form is not as it was: %s", answer.Body)
	}
	if !maps.Equal(w.current("note").Meta, o.Meta) || w.current("note").ETag != o.ETag {
		t.Errorf("refused changes made %+v", w.current("note"))
	}
}

// A form that was made of another version changes nothing: neither if the content has changed since, nor
// if only the metadata has.
func TestMetadataOfAReplacedObjectStays(t *testing.T) {
	for name, replace := range map[string]func(w *world, b *browser){
		"content":  func(w *world, _ *browser) { w.store("note", "text/plain", "second") },
		"metadata": func(_ *world, b *browser) { b.change("note", b.metadataIn("note"), "meta", "by=another") },
	} {
		w := newWorld(t)
		b := w.browser()
		b.signIn("alice")
		w.bucket()
		w.store("note", "text/plain", "first")
		form := b.metadataIn("note")
		replace(w, b)
		o := w.current("note")
		answer := b.change("note", form, "meta", "mine=yes")
		if answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "The object has changed since you opened this page") || !strings.Contains(answer.Body.String(), "mine=yes</textarea>") {
			t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
		}
		if now := w.current("note"); now.ID != o.ID || !maps.Equal(now.Meta, o.Meta) {
			t.Errorf("%s: the object is %+v, not %+v", name, now, o)
		}
		if answer := b.change("note", b.metadataIn("note"), "meta", "mine=yes"); answer.Code != http.StatusSeeOther || w.current("note").Meta["mine"] != "yes" {
			t.Errorf("%s: the form of the present version: %d", name, answer.Code)
		}
	}
}

// In a bucket that keeps versions the change makes a version, and the page says so. An older version is
// not changed.
func TestChangedMetadataIsANewVersion(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	w.bucket()
	w.store("note", "text/plain", "text")
	if _, body := b.get(objectAddress("photos", "note", "")); !strings.Contains(body, "takes the place of this one") {
		t.Errorf("the page is %s", body)
	}
	if err := w.objects.SetVersioning(t.Context(), w.account("alice"), "photos", state.Versioned); err != nil {
		t.Fatal(err)
	}
	if _, body := b.get(objectAddress("photos", "note", "")); !strings.Contains(body, "becomes a new version") {
		t.Errorf("the page is %s", body)
	}
	form := b.metadataIn("note")
	if answer := b.change("note", form, "meta", "a=1"); answer.Code != http.StatusSeeOther {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	versions, err := w.objects.Versions(t.Context(), w.account("alice"), "photos", state.VersionsQuery{Limit: 10})
	if err != nil || len(versions.Versions) != 2 || versions.Versions[0].ETag != versions.Versions[1].ETag {
		t.Fatalf("%+v, %v", versions, err)
	}
	old := addressOf("object/metadata", "photos", "note", state.NullVersion)
	if answer := b.post(objectAddress("photos", "note", ""), old, form); answer.Code != http.StatusBadRequest {
		t.Errorf("an older version: %d", answer.Code)
	}
}

// The form neither shows nor loses the metadata by which an encrypted object is decrypted, and keeps
// metadata that is no text of lines.
func TestMetadataOfProgramsStays(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	w.bucket()
	w.storeWith("sealed", "ciphertext", objects.Attributes{Meta: map[string]string{"encrypted": "true", "encryption": `{"version":4}`, "a": "1"}})
	_, body := b.get(objectAddress("photos", "sealed", ""))
	if _, form, _ := strings.Cut(body, `id="metadata"`); strings.Contains(form, "encryption=") || !strings.Contains(form, "needs to be decrypted stays") {
		t.Errorf("the form is %s", form)
	}
	if answer := b.change("sealed", b.metadataIn("sealed"), "meta", "b=2"); answer.Code != http.StatusSeeOther {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	if got, want := w.current("sealed").Meta, map[string]string{"encrypted": "true", "encryption": `{"version":4}`, "b": "2"}; !maps.Equal(got, want) {
		t.Errorf("the metadata is %v", got)
	}
	spaced := map[string]string{"a": " x ", "b": "two"}
	w.storeWith("odd", "text", objects.Attributes{Meta: spaced})
	if _, body := b.get(objectAddress("photos", "odd", "")); strings.Contains(body, `name="meta"`) || !strings.Contains(body, "metadata that this form cannot show") {
		t.Errorf("the page is %s", body)
	}
	if answer := b.change("odd", b.metadataIn("odd"), "Cache-Control", "no-store"); answer.Code != http.StatusSeeOther {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	if o := w.current("odd"); !maps.Equal(o.Meta, spaced) || o.Headers["Cache-Control"] != "no-store" {
		t.Errorf("the object is %+v", o)
	}
}
