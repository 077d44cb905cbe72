package s3

import (
	"testing"
)

// A character reference of XML resolves to its character, and a malformed or unknown one to none. A hexadecimal
// digit is one in either case, and its neighbours in ASCII are none.
func TestNumericReferencesOfXML(t *testing.T) {
	for text, want := range map[string]rune{
		"#x61": 'a', "#x3a": ':', "#x3A": ':', "#xaf": '\u00af', "#xAF": '\u00af', "#xFa": '\u00fa', "#x1F3d4": '\U0001f3d4',
		"#97": 'a', "#0": 0, "#09": '\t', "#x0": 0, "#x10FFFF": '\U0010ffff', "#1114111": '\U0010ffff', "#x0000000000061": 'a',
		"lt": '<', "gt": '>', "amp": '&', "quot": '"', "apos": '\'',
	} {
		if got, ok := resolve(text); got != want || !ok {
			t.Errorf("&%s; is %q, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "#", "#x", "x61", "#X61", "#a", "#9f", "#x/", "#x:", "#x@", "#xG", "#x`", "#xg", "#-1", "#x110000", "#1114112", "#xd800", "#x00000000000000061", "LT", "nbsp",
	} {
		if got, ok := resolve(text); ok {
			t.Errorf("&%s; is taken for %q", text, got)
		}
	}
}

// A percent escape means the same in either case, in the path and in the query.
func TestPercentEscapesInLowerCase(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/j%C3%B6:/k~%2b", "here")
	for _, path := range []string{"j%C3%B6%3A/k%7E%2B", "j%c3%b6%3a/k%7e%2b", "j%c3%B6:%2fk~+"} {
		if rec := w.must(t, 200, call{method: "GET", path: "/photos/" + path}); rec.Body.String() != "here" {
			t.Errorf("%s: %q", path, rec.Body)
		}
	}
	for _, prefix := range []string{"j%C3%B6%3A", "j%c3%b6%3a"} {
		if _, names := w.list(t, "/photos?list-type=2&prefix="+prefix); len(names) != 1 || names[0] != "jö:/k~+" {
			t.Errorf("prefix %s: %q", prefix, names)
		}
	}
}
