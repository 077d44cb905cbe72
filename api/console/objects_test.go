package console

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// oddKeys are keys that a path, a page or a header may break.
var oddKeys = []string{
	"cat.txt", "a//b", "../x", "./.", "/", "//", "<script>alert(1)</script>", "%2F", `"`, "'", "a&b=c#d?e+f", "😀", "a b", "new\nline", "\x01\x7f",
	"javascript:alert(1)", strings.Repeat("k", state.MaxKeyBytes),
}

// objectRoute is a route below a bucket, with values for its names.
type objectRoute struct {
	page
	path string
}

// objectRoutes returns the routes of the table below /buckets/{bucket}, for a bucket, a key and an
// upload.
func objectRoutes(bucket, key string, upload state.UploadID) (all []objectRoute) {
	for _, row := range (&surface{}).table() {
		if !strings.HasPrefix(row.path, "/buckets/") {
			continue
		}
		path := strings.NewReplacer("{bucket}", bucket, "{upload}", string(upload), "{id}", "0123456789abcdef0123456789abcdef").Replace(row.path)
		all = append(all, objectRoute{row, path + "?" + url.Values{"key": {key}, "part": {"1"}, "size": {"5"}}.Encode()})
	}
	return all
}

// photos makes a bucket of Alice with an object and an upload that has a part.
func (w *world) photos(key string) state.UploadID { return w.Photos(key) }

// store puts an object into Alice's bucket.
func (w *world) store(key, kind, text string) { w.Store(key, kind, text) }

// token returns a form token of a browser that has signed in.
func (b *browser) token() string {
	b.t.Helper()
	_, body := b.get("/buckets")
	return tokenOf.FindStringSubmatch(body)[1]
}

// request returns one to a route as the console's own pages send it, with a form token.
func (b *browser) request(route objectRoute, token string) *http.Request {
	b.t.Helper()
	switch route.access {
	case byScript:
		r := httptest.NewRequest(route.method, route.path, strings.NewReader("purr."))
		r.Header.Set(formHeader, token)
		return r
	case withFiles:
		return filesRequest(b.t, route.path, token, file{"dog.txt", "wuff"})
	}
	if route.method == http.MethodPost {
		return formRequest(route.path, url.Values{tokenField: {token}, "visibility": {"private"}, "expiry": {"1h"}})
	}
	return httptest.NewRequest(route.method, route.path, nil)
}

// file is one of a form.
type file struct{ name, text string }

// filesRequest returns a form with files, as a browser sends it.
func filesRequest(t testing.TB, path, token string, files ...file) *http.Request {
	t.Helper()
	return multipartRequest(t, path, [][2]string{{tokenField, token}}, files...)
}

// multipartRequest returns a form with fields and files.
func multipartRequest(t testing.TB, path string, fields [][2]string, files ...file) *http.Request {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	var err error
	for _, f := range fields {
		err = errors.Join(err, form.WriteField(f[0], f[1]))
	}
	for _, f := range files {
		part, creating := form.CreateFormFile("file", f.name)
		if creating != nil {
			t.Fatal(creating)
		}
		_, writing := part.Write([]byte(f.text))
		err = errors.Join(err, writing)
	}
	if err := errors.Join(err, form.Close()); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, path, &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	return r
}

// untouched fails the test unless Alice's bucket has what photos left.
func (w *world) untouched(key string, upload state.UploadID) {
	w.t.Helper()
	page, err := w.objects.List(w.t.Context(), w.account("alice"), "photos", state.ObjectsQuery{Limit: 10})
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Key != key || page.Objects[0].Size != 5 {
		w.t.Errorf("the bucket has %v, %v", page.Objects, err)
	}
	if _, err := w.objects.Upload(w.t.Context(), w.account("alice"), "photos", key, upload); err != nil {
		w.t.Errorf("the upload: %v", err)
	}
	if b, err := w.objects.Bucket(w.t.Context(), w.account("alice"), "photos"); err != nil || b.Public {
		w.t.Errorf("the bucket: %+v, %v", b, err)
	}
}

// A bucket, an object and an upload of another account are answered as those that nobody has.
func TestBucketsOfAnotherAccountAreAbsent(t *testing.T) {
	w := newWorld(t)
	upload := w.photos("cat.txt")
	b := w.browser()
	b.signIn("bob")
	token := b.token()
	absent := objectRoutes("nothing", "cat.txt", upload)
	for i, route := range objectRoutes("photos", "cat.txt", upload) {
		got, want := b.do(b.request(route, token)), b.do(b.request(absent[i], token))
		if got.Code != http.StatusNotFound || want.Code != got.Code || got.Body.String() != want.Body.String() {
			t.Errorf("%s %s is answered with %d, an absent one with %d", route.method, route.path, got.Code, want.Code)
		}
	}
	w.untouched("cat.txt", upload)
}

// Nobody without a session sees content or makes a change.
func TestWithoutASessionThereAreNoBuckets(t *testing.T) {
	w := newWorld(t)
	upload := w.photos("cat.txt")
	for _, route := range objectRoutes("photos", "cat.txt", upload) {
		b := w.browser()
		want, to := http.StatusSeeOther, "/sign-in"
		switch {
		case route.access == byScript:
			want, to = http.StatusUnauthorized, ""
		case route.method == http.MethodGet:
			to += "?to=" + url.QueryEscape(route.path)
		}
		if got := b.do(b.request(route, "x")); got.Code != want || got.Header().Get("Location") != to {
			t.Errorf("%s %s is answered with %d and %q", route.method, route.path, got.Code, got.Header().Get("Location"))
		}
	}
	w.untouched("cat.txt", upload)
}

// Whatever a key is, its object is found on its page, downloaded and deleted, and nothing of it
// is a part of the page.
func TestOddKeys(t *testing.T) {
	w := newWorld(t)
	w.photos("usual")
	b := w.browser()
	b.signIn("alice")
	token := b.token()
	for _, key := range oddKeys {
		w.store(key, "text/plain", "meow!")
	}
	for _, key := range oddKeys {
		_, body := b.get(bucketAddress("photos", key[:strings.LastIndexByte(key, '/')+1]))
		address := html.EscapeString(objectAddress("photos", key, ""))
		if !strings.Contains(strings.ReplaceAll(body, "&#43;", "+"), `href="`+address+`"`) || strings.Contains(body, "<script>alert") {
			t.Errorf("%q: the list has no link %s", key, address)
		}
		status, body := b.get(objectAddress("photos", key, ""))
		if status != http.StatusOK || strings.Contains(body, "<script>alert") {
			t.Errorf("%q: the page is answered with %d", key, status)
		}
		got := b.do(httptest.NewRequest(http.MethodGet, addressOf("download", "photos", key, ""), nil))
		if got.Code != http.StatusOK || got.Body.String() != "meow!" || !strings.HasPrefix(got.Header().Get("Content-Disposition"), "attachment;") ||
			strings.ContainsAny(got.Header().Get("Content-Disposition"), "\r\n\"") {
			t.Errorf("%q: the download is %d %q %v", key, got.Code, got.Body, got.Header())
		}
		if got := b.do(b.request(objectRoute{page{http.MethodPost, "", signedIn, nil}, addressOf("object/delete", "photos", key, "")}, token)); got.Code != http.StatusSeeOther {
			t.Errorf("%q: delete is answered with %d", key, got.Code)
		}
		if _, err := w.objects.Object(t.Context(), w.account("alice"), "photos", key, ""); !errors.Is(err, state.ErrNoKey) {
			t.Errorf("%q: after it is deleted: %v", key, err)
		}
	}
}

// A download has what a player or a resumed download asks for, and tells an error before it
// begins.
func TestDownloads(t *testing.T) {
	w := newWorld(t)
	w.photos("cat.txt")
	b := w.browser()
	b.signIn("alice")
	path := addressOf("download", "photos", "cat.txt", "")
	etag := b.do(httptest.NewRequest(http.MethodHead, path, nil)).Header().Get("Etag")
	for _, tc := range []struct {
		header, value string
		status        int
		text, of      string // Content-Range
	}{
		{"", "", 200, "meow!", ""},
		{"Range", "bytes=1-2", 206, "eo", "bytes 1-2/5"},
		{"Range", "bytes=-1", 206, "!", "bytes 4-4/5"},
		{"Range", "bytes=9-", 416, "", "bytes */5"},
		{"If-None-Match", etag, 304, "", ""},
	} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if tc.header != "" {
			r.Header.Set(tc.header, tc.value)
		}
		got := b.do(r)
		if got.Code != tc.status || got.Header().Get("Content-Range") != tc.of || tc.status < 300 && got.Body.String() != tc.text {
			t.Errorf("%s %s: %d %v %q", tc.header, tc.value, got.Code, got.Header(), got.Body)
		}
	}
	w.Content.Tear()
	got := b.do(httptest.NewRequest(http.MethodGet, path, nil))
	if got.Code != http.StatusServiceUnavailable || got.Header().Get("Content-Disposition") != "" || got.Header().Get("Etag") != "" ||
		got.Header().Get("Content-Security-Policy") != policy || !strings.Contains(got.Body.String(), "The cluster does not answer") {
		t.Errorf("content that cannot be read: %d %v", got.Code, got.Header())
	}
}

// Content is never a page of the console's origin: it is in a sandbox, its type is what its
// record says, and what has scripts is a download.
func TestContentIsNoPageOfTheConsole(t *testing.T) {
	w := newWorld(t)
	w.photos("cat.txt")
	b := w.browser()
	b.signIn("alice")
	for kind, disposition := range map[string]string{
		"text/plain": "inline", "text/plain; charset=utf-8": "inline", "image/png": "inline", "application/pdf": "inline", "video/mp4": "inline", "audio/mpeg": "inline",
		"text/html": "attachment", "TEXT/HTML": "attachment", "image/svg+xml": "attachment", "application/xhtml+xml": "attachment", "text/xml": "attachment",
		"text/javascript": "attachment", "text/plain, text/html": "attachment", "nonsense": "attachment", "text/plain;": "inline", "multipart/mixed": "attachment",
	} {
		w.store("page", kind, "<script>alert(1)</script>")
		for what, want := range map[string]string{"preview": disposition, "download": "attachment"} {
			got := b.do(httptest.NewRequest(http.MethodGet, addressOf(what, "photos", "page", ""), nil)).Header()
			if !strings.HasPrefix(got.Get("Content-Disposition"), want+";") || got.Get("Content-Type") != kind ||
				got.Get("Content-Security-Policy") != "sandbox" || got.Get("X-Content-Type-Options") != "nosniff" || got.Get("Cross-Origin-Resource-Policy") != "same-origin" {
				t.Errorf("%s of %q has %v", what, kind, got)
			}
		}
	}
}

// A form stores its files with the folders that they are in, and tells which it did not.
func TestFilesOfAForm(t *testing.T) {
	w := newWorld(t)
	w.photos("cat.txt")
	b := w.browser()
	b.signIn("alice")
	files := []file{{"dog.txt", "wuff"}, {"trip/day 1/😀.txt", "sun"}, {`%22.txt`, "quote"}, {"", ""}}
	got := b.do(filesRequest(t, "/buckets/photos/files?prefix=new%2F", b.token(), files...))
	if got.Code != http.StatusSeeOther || got.Header().Get("Location") != "/buckets/photos?prefix=new%2F" {
		t.Fatalf("it is answered with %d: %s", got.Code, got.Body)
	}
	for key, size := range map[string]uint64{"new/dog.txt": 4, "new/trip/day 1/😀.txt": 3, `new/".txt`: 5} {
		o, err := w.objects.Object(t.Context(), w.account("alice"), "photos", key, "")
		if err != nil || o.Size != size || o.Headers["Content-Type"] != "application/octet-stream" || len(o.Checksums) != 1 {
			t.Errorf("%s: %+v, %v", key, o, err)
		}
	}
	long := strings.Repeat("k", state.MaxKeyBytes+1)
	got = b.do(filesRequest(t, "/buckets/photos/files", b.token(), file{"big", strings.Repeat("x", 1<<20+1)}, file{long, "x"}, file{"small", "x"}))
	if got.Code != http.StatusRequestEntityTooLarge || !strings.Contains(got.Body.String(), "1 file stored, 2 not stored") ||
		!strings.Contains(got.Body.String(), "the key has 1025 bytes") {
		t.Errorf("it is answered with %d: %s", got.Code, got.Body)
	}
	if _, err := w.objects.Object(t.Context(), w.account("alice"), "photos", "small", ""); err != nil {
		t.Errorf("the file behind those that failed: %v", err)
	}
	// What is cut off is told: what follows is not stored.
	r := filesRequest(t, "/buckets/photos/files", b.token(), file{"first", "1"}, file{"second", strings.Repeat("2", 1000)})
	r.Body = io.NopCloser(io.LimitReader(r.Body, r.ContentLength-500))
	if got = b.do(r); got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), "all files after it") || !strings.Contains(got.Body.String(), "1 file stored, 1 not stored") {
		t.Errorf("a form that is cut off is answered with %d: %s", got.Code, got.Body)
	}
	// A head of a file that does not end.
	r = filesRequest(t, "/buckets/photos/files", b.token(), file{strings.Repeat("k", 200<<10), "x"})
	if got := b.do(r); got.Code != http.StatusBadRequest {
		t.Errorf("a head of 200 KiB is answered with %d", got.Code)
	}
}

// deadlines is a network connection that notes what is set.
type deadlines struct {
	*httptest.ResponseRecorder
	read, write []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read = append(d.read, t)
	return nil
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.write = append(d.write, t)
	return nil
}

// No request waits for its client without a deadline, and none is left for the next request:
// content takes as long as it takes, and pages do not.
func TestRequestsHaveDeadlines(t *testing.T) {
	w := newWorld(t)
	upload := w.photos("cat.txt")
	b := w.browser()
	b.signIn("alice")
	token := b.token()
	for _, route := range objectRoutes("photos", "cat.txt", upload) {
		r := b.request(route, token)
		for name, value := range b.cookies {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		r.Host = host
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		w.handler.ServeHTTP(d, r)
		if n := len(d.write); n == 0 || d.write[n-1].IsZero() {
			t.Errorf("%s %s: deadlines for writing %v", route.method, route.path, d.write)
		}
		if body := r.Body != http.NoBody && r.ContentLength != 0; body != (len(d.read) > 0) || body && d.read[0].IsZero() {
			t.Errorf("%s %s: deadlines for reading %v", route.method, route.path, d.read)
		}
	}
}

// A script sends a file whole or in parts; the object has the file's type. A repeated complete
// is answered as the first.
func TestUploadsOfAScript(t *testing.T) {
	w := newWorld(t)
	w.photos("cat.txt")
	b := w.browser()
	b.signIn("alice")
	token := b.token()
	send := func(method, path, body string, want int) string {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set(formHeader, token)
		r.Header.Set("Content-Type", "image/png")
		got := b.do(r)
		if got.Code != want {
			t.Errorf("%s %s is answered with %d: %s", method, path, got.Code, got.Body)
		}
		return got.Body.String()
	}
	has := func(key string, size uint64) {
		t.Helper()
		o, err := w.objects.Object(t.Context(), w.account("alice"), "photos", key, "")
		if err != nil || o.Size != size || o.Headers["Content-Type"] != "image/png" {
			t.Errorf("%s: %+v, %v", key, o, err)
		}
	}
	send(http.MethodPut, "/buckets/photos/object?key=a", "12345678", http.StatusNoContent)
	has("a", 8)
	id := send(http.MethodPost, "/buckets/photos/uploads?key=b", "", http.StatusOK)
	upload := "/buckets/photos/uploads/" + id
	for i, body := range []string{"12345", "67890", "!"} {
		send(http.MethodPut, fmt.Sprintf("%s?key=b&part=%d", upload, i+1), body, http.StatusNoContent)
	}
	send(http.MethodPost, upload+"/complete?key=b&size=10", "", http.StatusConflict)
	for range 2 {
		send(http.MethodPost, upload+"/complete?key=b&size=11", "", http.StatusNoContent)
		has("b", 11)
	}
	id = send(http.MethodPost, "/buckets/photos/uploads?key=c", "", http.StatusOK)
	send(http.MethodDelete, "/buckets/photos/uploads/"+id+"?key=c", "", http.StatusNoContent)
	send(http.MethodPut, "/buckets/photos/uploads/"+id+"?key=c&part=1", "x", http.StatusNotFound)
	for _, path := range []string{"/buckets/photos/object?key=", "/buckets/photos/object?key=%ff", "/buckets/photos/object?key=%00"} {
		if text := send(http.MethodPut, path, "x", http.StatusBadRequest); strings.Contains(text, "<") {
			t.Errorf("a script is told %s", text)
		}
	}
	send(http.MethodPut, "/buckets/photos/object?key=big", strings.Repeat("x", 1<<20+1), http.StatusRequestEntityTooLarge)
}

// A page of a bucket has its folders first, and the next page begins behind it.
func TestABucketIsBrowsed(t *testing.T) {
	w := newWorld(t)
	w.photos("cat.txt")
	for i := range objectRows {
		w.store(fmt.Sprintf("many/%03d", i), "text/plain", "x")
	}
	w.store("zoo", "text/plain", "x")
	w.store("many/last", "text/plain", "x")
	b := w.browser()
	b.signIn("alice")
	_, body := b.get("/buckets/photos")
	if folder, object := strings.Index(body, "<bdi>many/</bdi>"), strings.Index(body, "<bdi>cat.txt</bdi>"); folder < 0 || object < folder {
		t.Errorf("the folder is at %d, the object at %d", folder, object)
	}
	_, body = b.get("/buckets/photos?prefix=many%2F")
	if !strings.Contains(body, "<h1><bdi>many/</bdi>") || !strings.Contains(body, `<a href="/buckets/photos"><bdi>photos</bdi></a></nav>`) {
		t.Errorf("the page of a folder is not headed by its name, below the folders above it: %s", body)
	}
	if !strings.Contains(body, "<bdi>099</bdi>") || strings.Contains(body, "<bdi>last</bdi>") {
		t.Error("the first page has not the first keys")
	}
	next := html.UnescapeString(textBetween(body, `<a href="`, `" rel="next"`))
	if _, body = b.get(next); !strings.Contains(body, "<bdi>last</bdi>") || strings.Contains(body, "<bdi>099</bdi>") {
		t.Errorf("%s has not the rest", next)
	}
	if _, body = b.get("/buckets/photos?prefix=z"); !strings.Contains(body, "<bdi>zoo</bdi>") || strings.Contains(body, "<bdi>cat.txt</bdi>") {
		t.Error("the search by a prefix shows something else")
	}
}

// textBetween returns the last text that begins behind one and ends before another.
func textBetween(text, begin, end string) string {
	before, _, _ := strings.Cut(text, end)
	return before[strings.LastIndex(before, begin)+len(begin):]
}

// A bucket is made, made public and deleted; one with an object is not deleted, and one that
// cannot be made leaves the form as it was.
func TestBucketsAreMadeAndDeleted(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	for _, name := range []string{"", "ab", "Photos", "a_b", "192.168.5.4", "-ab", "a..b", strings.Repeat("a", 64)} {
		if got := b.post("/buckets", "/buckets", url.Values{"name": {name}, "visibility": {"public"}}); got.Code != http.StatusBadRequest ||
			!strings.Contains(got.Body.String(), `value="public" checked`) {
			t.Errorf("the name %q is answered with %d", name, got.Code)
		}
	}
	w.photos("cat.txt")
	if got := b.post("/buckets", "/buckets", url.Values{"name": {"photos"}}); got.Code != http.StatusConflict {
		t.Errorf("a bucket that exists is answered with %d", got.Code)
	}
	if got := b.post("/buckets", "/buckets/photos/delete", nil); got.Code != http.StatusConflict || !strings.Contains(got.Body.String(), "The bucket is not empty") {
		t.Errorf("a bucket with an object is answered with %d", got.Code)
	}
	if got := b.post("/buckets", "/buckets", url.Values{"name": {"holidays"}, "visibility": {"public"}}); got.Header().Get("Location") != "/buckets/holidays" {
		t.Errorf("a new bucket is answered with %d %v", got.Code, got.Header())
	}
	for _, public := range []bool{true, false} {
		if bucket, err := w.objects.Bucket(t.Context(), w.account("alice"), "holidays"); err != nil || bucket.Public != public {
			t.Errorf("the bucket is %+v, %v", bucket, err)
		}
		b.post("/buckets", "/buckets/holidays/visibility", url.Values{"visibility": {"private"}})
	}
	if got := b.post("/buckets", "/buckets/holidays/delete", nil); got.Header().Get("Location") != "/buckets" {
		t.Errorf("delete is answered with %d", got.Code)
	}
	if _, err := w.objects.Bucket(t.Context(), w.account("alice"), "holidays"); !errors.Is(err, state.ErrNoBucket) {
		t.Errorf("after it is deleted: %v", err)
	}
}

// Older versions are listed on the page of an object, downloaded and deleted for good.
func TestVersions(t *testing.T) {
	w := newWorld(t)
	w.photos("cat.txt")
	if err := w.objects.SetVersioning(t.Context(), w.account("alice"), "photos", state.Versioned); err != nil {
		t.Fatal(err)
	}
	w.store("cat.txt", "text/plain", "purr")
	w.store("cat.txt2", "text/plain", "another key")
	b := w.browser()
	b.signIn("alice")
	b.post("/buckets", addressOf("object/delete", "photos", "cat.txt", ""), nil)
	_, body := b.get(objectAddress("photos", "cat.txt", ""))
	if !strings.Contains(body, "The object was deleted") || strings.Count(body, "version=") != 3 {
		t.Errorf("the page is %s", body)
	}
	old := addressOf("download", "photos", "cat.txt", state.NullVersion)
	if status, text := b.get(old); status != http.StatusOK || text != "meow!" {
		t.Errorf("the older version is %d %q", status, text)
	}
	b.post("/buckets", addressOf("object/delete", "photos", "cat.txt", state.NullVersion), nil)
	if status, _ := b.get(old); status != http.StatusNotFound {
		t.Errorf("a deleted version is answered with %d", status)
	}
}

// The page of an object leads to all of its versions, in pages.
func TestManyVersionsAreOnSeveralPages(t *testing.T) {
	w := newWorld(t)
	w.photos("cat.txt")
	if err := w.objects.SetVersioning(t.Context(), w.account("alice"), "photos", state.Versioned); err != nil {
		t.Fatal(err)
	}
	const many = 2*versionRows + 1 // with the first one, which has no id
	for range many - 1 {
		w.store("cat.txt", "text/plain", "purr")
	}
	w.store("cat.txt2", "text/plain", "another key")
	b := w.browser()
	b.signIn("alice")
	seen, row := map[string]int{}, regexp.MustCompile(`<td[^>]*><a href="[^"]*version=([^"&]+)"`)
	pages := 0
	for next := objectAddress("photos", "cat.txt", ""); next != ""; pages++ {
		_, body := b.get(next)
		for _, m := range row.FindAllStringSubmatch(body, -1) {
			seen[m[1]]++
		}
		if next = ""; strings.Contains(body, "Older versions") && pages < many {
			next = html.UnescapeString(textBetween(body, `<p><a href="`, `" rel="next">Older versions`))
			next, _, _ = strings.Cut(next, "#")
		}
	}
	if len(seen) != many || pages != 3 {
		t.Errorf("%d pages have %d of %d versions", pages, len(seen), many)
	}
}

// A link is signed with a key of the account that may read, and by no other.
func TestLinksAreSignedWithOwnKeys(t *testing.T) {
	w := newWorld(t)
	w.photos("cat.txt")
	b := w.browser()
	b.signIn("alice")
	share := addressOf("object/share", "photos", "cat.txt", "")
	for _, tc := range []struct {
		email  string
		scopes []string
		want   int
	}{
		{"alice@example.org", []string{state.ScopeRead}, http.StatusOK},
		{"alice@example.org", []string{state.ScopeWrite}, http.StatusNotFound},
		{"bob@example.org", nil, http.StatusNotFound},
	} {
		key, err := w.users.CreateKey(t.Context(), tc.email, "test", tc.scopes, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := b.post("/buckets", share, url.Values{"signer": {string(key.ID)}, "expiry": {"7d"}})
		link := "http://console.test:9000/photos/cat.txt?signed-by=" + key.AccessKeyID
		if got.Code != tc.want || strings.Contains(got.Body.String(), link) != (tc.want == http.StatusOK) || strings.Contains(got.Body.String(), key.SecretAccessKey) {
			t.Errorf("a key of %s with %v is answered with %d", tc.email, tc.scopes, got.Code)
		}
	}
}
