package console

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Files that a form sends are stored and pinned: one alone, a folder under its name, several as a folder without a name,
// and the roots of a CAR. The browser is sent to the pin, or to the list of several.
func TestFilesAreUploadedAndPinned(t *testing.T) {
	for _, tc := range []struct {
		what, kind, name string
		files            []file
		want             map[string]string
		pins             []string // names
	}{
		{"a file", "files", "", []file{{"notes.txt", "hello"}}, map[string]string{"notes.txt": "hello"}, []string{"notes.txt"}},
		{"a folder", "files", "", []file{{"trip/a", "1"}, {"trip/b/c", "2"}}, map[string]string{"trip/a": "1", "trip/b/c": "2"}, []string{"trip"}},
		{"several", "files", "", []file{{"a", "1"}, {"b", "2"}}, map[string]string{"a": "1", "b": "2"}, []string{""}},
		{"a name", "files", "mine", []file{{"a", "1"}}, map[string]string{"a": "1"}, []string{"mine"}},
		{"a CAR", "car", "site", []file{{"site.car", "car"}}, map[string]string{"": "car"}, []string{"site"}},
		{"two roots", "car", "", []file{{"two.car", "two"}}, map[string]string{"": "two"}, []string{"", ""}},
	} {
		w := newWorld(t)
		b := w.browser()
		b.signIn("alice")
		_, before, err := w.pins.List(t.Context(), w.account("alice"), state.PinQuery{Statuses: statuses, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		answer := b.do(multipartRequest(t, "/pins/upload", [][2]string{{tokenField, b.token()}, {"kind", tc.kind}, {"name", tc.name}}, tc.files...))
		_, rows, err := w.pins.List(t.Context(), w.account("alice"), state.PinQuery{Statuses: statuses, Limit: 10})
		if err != nil || len(rows) != len(before)+len(tc.pins) {
			t.Fatalf("%s: %d pins, %v; answered %d %s", tc.what, len(rows), err, answer.Code, answer.Body)
		}
		for i, name := range tc.pins {
			if rows[i].Name != name {
				t.Errorf("%s: a pin has the name %q", tc.what, rows[i].Name)
			}
		}
		to := pathOf(rows[0])
		if len(tc.pins) > 1 {
			to = "/pins"
		}
		if answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != to {
			t.Errorf("%s: answered %d, to %q", tc.what, answer.Code, answer.Header().Get("Location"))
		}
		if got, _ := w.Sent.Files(); !maps.Equal(got, tc.want) {
			t.Errorf("%s: stored %q", tc.what, got)
		}
	}
}

// A form that cannot be stored is shown again with the reason and what was entered, and pins nothing. So is one without
// the token, or one that is cut.
func TestAnUploadThatFailsPinsNothing(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	fields := func(kind, name string) [][2]string {
		return [][2]string{{tokenField, b.token()}, {"kind", kind}, {"name", name}}
	}
	for _, tc := range []struct {
		what   string
		r      *http.Request
		status int
		says   string
	}{
		{"no file", multipartRequest(t, "/pins/upload", fields("files", "mine")), http.StatusBadRequest, "The upload has no file."},
		{"no CAR", multipartRequest(t, "/pins/upload", fields("car", "mine")), http.StatusBadRequest, "The upload has no file."},
		{"a bad CAR", multipartRequest(t, "/pins/upload", fields("car", "mine"), file{"bad.car", "bad"}), http.StatusBadRequest, "This is no CAR."},
		{"another session", multipartRequest(t, "/pins/upload", [][2]string{{tokenField, "x"}, {"kind", "files"}, {"name", ""}}, file{"a", "1"}), http.StatusForbidden, ""},
		{"other fields", multipartRequest(t, "/pins/upload", [][2]string{{tokenField, b.token()}, {"name", ""}}, file{"a", "1"}), http.StatusBadRequest, "could not be read"},
	} {
		unchanged := w.Unchanged(tc.what)
		got := b.do(tc.r)
		unchanged()
		page := got.Body.String()
		if got.Code != tc.status || !strings.Contains(page, tc.says) {
			t.Errorf("%s: answered %d: %s", tc.what, got.Code, page)
		}
		if tc.says != "" && strings.HasSuffix(tc.says, ".") && !strings.Contains(page, `value="mine"`) {
			t.Errorf("%s: the name is not there any more", tc.what)
		}
	}
	cut := multipartRequest(t, "/pins/upload", fields("files", ""), file{"a", strings.Repeat("x", 1<<16)})
	cut.Body = http.MaxBytesReader(nil, cut.Body, 1<<15)
	unchanged := w.Unchanged("a form that is cut")
	if got := b.do(cut); got.Code < 400 {
		t.Errorf("a form that is cut: answered %d", got.Code)
	}
	unchanged()
}
