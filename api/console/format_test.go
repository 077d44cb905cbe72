package console

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"testing"
	"time"
)

// texts has the texts of values by the kind of value. The browser tests compare the same file with what
// static/format.js writes.
type texts map[string][]struct {
	Of   []uint64 // a time is in seconds since 1970, a duration in seconds
	Text string
}

// The templates write values as testdata/texts.json has them.
func TestTextsOfValues(t *testing.T) {
	file, err := os.ReadFile("testdata/texts.json")
	if err != nil {
		t.Fatal(err)
	}
	var want texts
	if err := json.Unmarshal(file, &want); err != nil {
		t.Fatal(err)
	}
	seconds := func(of []uint64) time.Duration { return time.Duration(of[0]) * time.Second }
	for kind, write := range map[string]func(of []uint64) string{
		"bytes":     func(of []uint64) string { return bytesText(of[0]) },
		"counts":    func(of []uint64) string { return count(of[0]) },
		"percents":  func(of []uint64) string { return fmt.Sprintf("%d %%", percentOf(of[0], of[1])) },
		"spans":     func(of []uint64) string { return span(seconds(of)) },
		"agos":      func(of []uint64) string { return ago(seconds(of)) },
		"untils":    func(of []uint64) string { return ago(-seconds(of)) },
		"times":     func(of []uint64) string { return utcText(time.Unix(0, 0).Add(seconds(of))) },
		"datetimes": func(of []uint64) string { return isoText(time.Unix(0, 0).Add(seconds(of))) },
	} {
		if len(want[kind]) == 0 {
			t.Errorf("there are no %s", kind)
		}
		for _, row := range want[kind] {
			if got := write(row.Of); got != row.Text {
				t.Errorf("%s: %d is %q, not %q", kind, row.Of, got, row.Text)
			}
		}
		delete(want, kind)
	}
	if len(want) > 0 {
		t.Errorf("nothing was compared with %v", want)
	}
}

// Scripts write values for people with format.js and by no rule of their own.
func TestScriptsFormatInOnePlace(t *testing.T) {
	rule := regexp.MustCompile(`toFixed|toLocale|toPrecision|toUTCString|toISOString|Intl\.(Number|DateTime|Relative)|[KMGT]iB|createElement\('time'\)`)
	scripts, err := fs.Glob(files, "static/*.js")
	if err != nil || len(scripts) < 5 {
		t.Fatal(scripts, err)
	}
	for _, name := range scripts {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		if found := rule.FindAllString(string(text), -1); (len(found) > 0) != (name == "static/format.js") {
			t.Errorf("%s has %q", name, found)
		}
	}
}

// The text of an error is a sentence on a page: it begins with a capital letter and ends with a full stop.
func TestErrorsAreSentences(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "the password is empty": "The password is empty.", "Wait a minute.": "Wait a minute.", `"x" is not a size: write 2 TiB`: `"x" is not a size: write 2 TiB.`,
		`cid "x" is not a valid CID`: `The CID "x" is not a valid CID.`, "über 5 €": "Über 5 €.", "0 stored, 1 not stored:": "0 stored, 1 not stored:",
	} {
		if got := sentence(text); got != want {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
}

// Amounts of any length have a separator before each three digits.
func TestDigitsAreGrouped(t *testing.T) {
	for text, want := range map[string]string{"": "", "7": "7", "1000": "1,000", "-1000": "-1,000", "123456789012345678901": "123,456,789,012,345,678,901"} {
		if got := grouped(text); got != want {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
}
