package console

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// choose returns a form with the session's token and ticked rows, as the list of a bucket sends it.
func (b *browser) choose(path string, objects, folders []string) *http.Request {
	b.t.Helper()
	form := url.Values{tokenField: {b.token()}}
	for _, o := range objects {
		form.Add("object", url.QueryEscape(o))
	}
	for _, f := range folders {
		form.Add("folder", url.QueryEscape(f))
	}
	return formRequest(path, form)
}

// keysOf returns the keys of Alice's bucket.
func (w *world) keysOf() (all []string) {
	w.t.Helper()
	page, err := w.objects.List(w.t.Context(), w.account("alice"), "photos", state.ObjectsQuery{Limit: state.MaxListLimit})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range page.Objects {
		all = append(all, page.Objects[i].Key)
	}
	return all
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// hiddenFields returns the hidden fields of the form in a page.
func hiddenFields(body string) url.Values {
	_, body, _ = strings.Cut(body, "<h1>")
	form := url.Values{}
	for _, m := range hiddenField.FindAllStringSubmatch(body, -1) {
		form.Add(m[1], html.UnescapeString(m[2]))
	}
	return form
}

// Chosen objects and folders are deleted after a page has said how many they are, also those with odd keys, and
// nothing else.
func TestChosenObjectsAndFoldersAreDeleted(t *testing.T) {
	w := newWorld(t)
	w.photos("trip/a")
	for _, key := range append([]string{"trip/sub/b", "trip/", "trip2/c", "trip", "d"}, oddKeys...) {
		w.store(key, "text/plain", "purr.")
	}
	b := w.browser()
	b.signIn("alice")
	before := w.keysOf()
	answer := b.do(b.choose("/buckets/photos/delete-many?prefix=", append([]string{"d", "gone"}, oddKeys...), []string{"trip/"}))
	body := answer.Body.String()
	if want := fmt.Sprintf("Delete %d objects?", len(oddKeys)+4); answer.Code != http.StatusOK || !strings.Contains(body, want) || !strings.Contains(body, "cannot be undone") {
		t.Errorf("%d, without %q: %s", answer.Code, want, body)
	}
	if now := w.keysOf(); !slices.Equal(now, before) {
		t.Errorf("before the confirmation: %q", now)
	}
	if answer := b.do(formRequest("/buckets/photos/delete-many?prefix=", hiddenFields(body))); answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != "/buckets/photos" {
		t.Errorf("%d to %q: %s", answer.Code, answer.Header().Get("Location"), answer.Body)
	}
	if now := w.keysOf(); !slices.Equal(now, []string{"trip", "trip2/c"}) {
		t.Errorf("left: %q", now)
	}
}

// The values of the list choose just the rows that they are in, and a browser sends them back unchanged: none has a
// line end.
func TestTheListOffersEachRowToChoose(t *testing.T) {
	w := newWorld(t)
	w.photos("trip/a")
	for _, key := range oddKeys {
		w.store(key, "text/plain", "purr.")
	}
	b := w.browser()
	b.signIn("alice")
	_, body := b.get("/buckets/photos")
	var objects, folders []string
	for _, m := range regexp.MustCompile(`<input type="checkbox" name="(object|folder)" value="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		value := html.UnescapeString(m[2])
		key, err := url.QueryUnescape(value)
		if err != nil || strings.ContainsAny(value, "\r\n") {
			t.Errorf("%q: %v", value, err)
		}
		if m[1] == "object" {
			objects = append(objects, key)
		} else {
			folders = append(folders, key)
		}
	}
	if want := []string{"../", "./", "/", "<script>alert(1)</", "a/", "trip/"}; !slices.Equal(slices.Sorted(slices.Values(folders)), want) {
		t.Errorf("folders %q, want %q", folders, want)
	}
	var want []string
	for _, key := range oddKeys {
		if !strings.Contains(key, "/") {
			want = append(want, key)
		}
	}
	if slices.Sort(objects); !slices.Equal(objects, slices.Sorted(slices.Values(want))) {
		t.Errorf("objects %q, want %q", objects, want)
	}
}

// A versioned bucket keeps what is deleted as older versions, and the page says so.
func TestChosenObjectsOfABucketWithVersionsStayAsVersions(t *testing.T) {
	w := newWorld(t)
	w.photos("cat")
	if err := w.objects.SetVersioning(t.Context(), w.account("alice"), "photos", state.Versioned); err != nil {
		t.Fatal(err)
	}
	b := w.browser()
	b.signIn("alice")
	body := b.do(b.choose("/buckets/photos/delete-many", []string{"cat"}, nil)).Body.String()
	if !strings.Contains(body, "Delete 1 object?") || !strings.Contains(body, "stays as an older version") {
		t.Error(body)
	}
	b.do(formRequest("/buckets/photos/delete-many", hiddenFields(body)))
	page, err := w.objects.Versions(t.Context(), w.account("alice"), "photos", state.VersionsQuery{Limit: 10})
	if err != nil || len(page.Versions) != 2 || len(w.keysOf()) != 0 {
		t.Errorf("%+v, %v", page.Versions, err)
	}
}

// More objects than one request deletes are deleted in steps, each after a confirmation.
func TestAFolderWithManyObjectsIsDeletedInSteps(t *testing.T) {
	w := newWorld(t)
	w.photos("d")
	many := &manyObjects{Objects: w.objects, left: maxDoomed + 5}
	w.options.Objects = many
	w.renew()
	b := w.browser()
	b.signIn("alice")
	body := b.do(b.choose("/buckets/photos/delete-many", nil, []string{"trip/"})).Body.String()
	if !strings.Contains(body, "Delete more than 10,000 objects?") {
		t.Error(body)
	}
	body = b.do(formRequest("/buckets/photos/delete-many", hiddenFields(body))).Body.String()
	if !strings.Contains(body, "10,000 objects were deleted") || !strings.Contains(body, "Delete 5 objects?") || many.left != 5 {
		t.Errorf("%d left: %s", many.left, body)
	}
	if answer := b.do(formRequest("/buckets/photos/delete-many", hiddenFields(body))); answer.Code != http.StatusSeeOther || many.left != 0 || many.largest > state.MaxDeleteKeys {
		t.Errorf("%d, %d left, %d at once", answer.Code, many.left, many.largest)
	}
}

// manyObjects has left objects in the folder trip/.
type manyObjects struct {
	Objects

	left, largest int
}

func (m *manyObjects) List(_ context.Context, _ state.AccountID, _ string, q state.ObjectsQuery) (page state.ObjectsPage, err error) {
	from := 0
	if q.After != "" {
		if _, err := fmt.Sscanf(q.After, "trip/%d", &from); err != nil {
			return page, err
		}
		from++
	}
	for n := from; n < from+m.left && len(page.Objects) < q.Limit && n < maxDoomed+5; n++ {
		page.Next = fmt.Sprintf("trip/%06d", n)
		page.Objects = append(page.Objects, state.Object{Key: page.Next, Size: 1})
	}
	page.Truncated = len(page.Objects) == q.Limit
	return page, nil
}

func (m *manyObjects) DeleteMany(_ context.Context, _ state.AccountID, _ string, all []objects.Doomed) ([]objects.Deleted, error) {
	m.left -= len(all)
	m.largest = max(m.largest, len(all))
	return nil, nil
}

// Chosen objects and folders arrive as one ZIP file with their content, names below the folder that is shown, and no
// name that leads out of the folder that it is unpacked into.
func TestChosenObjectsAndFoldersAreDownloadedAsAZIPFile(t *testing.T) {
	w := newWorld(t)
	w.photos("trip/a")
	for _, key := range append([]string{"trip/sub/b", "trip/empty/", "other"}, oddKeys...) {
		w.store(key, "text/plain", map[bool]string{false: "the text of " + key}[strings.HasPrefix(key, "trip/empty")])
	}
	b := w.browser()
	b.signIn("alice")
	unzip := func(answer *httptest.ResponseRecorder) map[string]string {
		t.Helper()
		body := answer.Body.Bytes()
		in, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
		if err != nil {
			t.Fatalf("%d: %v", answer.Code, err)
		}
		files := map[string]string{}
		for _, f := range in.File {
			if !filepath.IsLocal(f.Name) || strings.Contains(f.Name, "//") || strings.ContainsAny(f.Name, "\\:\n") {
				t.Errorf("the name %q", f.Name)
			}
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
			files[f.Name] = string(text)
		}
		return files
	}
	answer := b.do(b.choose("/buckets/photos/zip?prefix=trip/", []string{"trip/a", "trip/gone"}, []string{"trip/sub/", "trip/empty/"}))
	if got := answer.Header().Get("Content-Disposition"); !strings.HasSuffix(got, "''trip.zip") || answer.Header().Get("Content-Security-Policy") != sandbox {
		t.Errorf("%v", answer.Header())
	}
	if got, want := unzip(answer), (map[string]string{"a": "meow!", "sub/b": "the text of trip/sub/b", "empty/": ""}); !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	answer = b.do(b.choose("/buckets/photos/zip?prefix=", oddKeys, []string{"trip/sub/"}))
	if got := unzip(answer); len(got) != len(oddKeys)+1 || got["trip/sub/b"] == "" || got["_../x"] != "the text of ../x" || got["😀"] == "" {
		t.Errorf("%d files: %q", len(got), slices.Sorted(maps.Keys(got)))
	}
	answer = b.do(b.choose("/buckets/photos/zip", nil, []string{"trip/"}))
	if got := answer.Header().Get("Content-Disposition"); !strings.HasSuffix(got, "''trip.zip") {
		t.Errorf("%q", got)
	}
}

// A bad choice, and content that cannot be read, are answered with an error and not with a part of a ZIP file. Nothing
// of another account can be chosen.
func TestABadChoiceIsRefused(t *testing.T) {
	w := newWorld(t)
	w.photos("cat")
	b := w.browser()
	b.signIn("alice")
	mallory := w.browser()
	mallory.signIn("bob")
	for _, tc := range []struct {
		who              *browser
		what             string
		objects, folders []string
		want             int
	}{
		{b, "delete-many", nil, nil, http.StatusBadRequest},
		{b, "zip", nil, nil, http.StatusBadRequest},
		{b, "delete-many", nil, []string{"ca"}, http.StatusBadRequest},
		{b, "zip", nil, []string{""}, http.StatusBadRequest},
		{b, "delete-many", slices.Repeat([]string{"cat"}, maxChosen+1), nil, http.StatusBadRequest},
		{b, "zip", []string{"gone"}, []string{"empty/"}, http.StatusNotFound},
		{mallory, "zip", []string{"cat"}, nil, http.StatusNotFound},
		{mallory, "delete-many", []string{"cat"}, nil, http.StatusNotFound},
	} {
		if answer := tc.who.do(tc.who.choose("/buckets/photos/"+tc.what, tc.objects, tc.folders)); answer.Code != tc.want || !strings.HasPrefix(answer.Header().Get("Content-Type"), "text/html") {
			t.Errorf("%s of %.20q and %q: %d, want %d: %v", tc.what, tc.objects, tc.folders, answer.Code, tc.want, answer.Header())
		}
	}
	w.store("long", "text/plain", strings.Repeat("purr.", 40_000))
	w.options.Objects = &unreadable{w.objects}
	w.renew()
	answer := b.do(b.choose("/buckets/photos/zip", []string{"cat"}, nil))
	if answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Content-Disposition") != "" || !strings.Contains(answer.Body.String(), "<h1>") {
		t.Errorf("the first content cannot be read: %d, %v", answer.Code, answer.Header())
	}
	if status, err := b.read(b.choose("/buckets/photos/zip", []string{"long", "cat"}, nil)); status != http.StatusOK || err == nil {
		t.Errorf("a later content cannot be read: %d, %v", status, err)
	}
}

// read sends a request to a server and returns the status of the answer, and the error of reading its body.
func (b *browser) read(r *http.Request) (status int, err error) {
	b.t.Helper()
	server := httptest.NewServer(b.handler)
	defer server.Close()
	to, err := url.Parse(server.URL)
	if err != nil {
		b.t.Fatal(err)
	}
	r.RequestURI, r.Host, r.URL.Scheme, r.URL.Host = "", host, to.Scheme, to.Host
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	answer, err := server.Client().Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // read to its end
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// unreadable has objects whose content no member can read, but for the key long.
type unreadable struct{ Objects }

func (u *unreadable) Open(ctx context.Context, a state.AccountID, o *state.Object) (io.ReadSeekCloser, error) {
	if o.Key != "long" {
		return nil, state.ErrUnavailable
	}
	return u.Objects.Open(ctx, a, o)
}
