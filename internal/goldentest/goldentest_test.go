package goldentest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// failing is a test that may fail.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Errorf(format string, args ...any) { f.said += fmt.Sprintf(format, args...) }

// Any difference from the golden file is a failure that names its first line, and -update writes the file.
func TestADifferentFileFailsTheTest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "testdata", "file")
	*update = true
	File(t, path, []byte("one\ntwo\n"))
	*update = false
	File(t, path, []byte("one\ntwo\n"))
	for got, line := range map[string]string{"": "line 1", "one\n2\n": "line 2", "one\ntwo": "line 2", "one\ntwo\nthree": "line 3", "one\ntwo\n\n": "line 3"} {
		f := &failing{TB: t}
		File(f, path, []byte(got))
		if !strings.Contains(f.said, line+" on") || !strings.Contains(f.said, path) {
			t.Errorf("%q: %q, want %s", got, f.said, line)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("without -update the file is %q, %v", text, err)
	}
	if Updating() {
		t.Error("files are written without being asked to")
	}
}
