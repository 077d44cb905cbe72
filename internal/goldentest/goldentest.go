// Package goldentest compares what a test makes with a golden file, which the test flag -update
// writes anew. A golden file that changes is a change of a format or of an API.
//
// Imports: std.
// Never:   anything that is not a test.
package goldentest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew: a changed one is a change of a format or of an API")

// Updating returns whether the test writes the golden files again.
func Updating() bool { return *update }

// File fails the test unless the golden file at path, from the folder of the test, has exactly
// these bytes. The failure names the first line that differs.
func File(tb testing.TB, path string, got []byte) {
	tb.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if string(got) == string(want) {
		return
	}
	is, was := strings.SplitAfter(string(got), "\n"), strings.SplitAfter(string(want), "\n")
	for i := range max(len(is), len(was)) {
		if a, b := line(is, i), line(was, i); a != b {
			tb.Errorf("%s differs from line %d on, which is\n%s\nand was\n%s\n-update writes it anew. All of it:\n%s", path, i+1, a, b, got)
			return
		}
	}
}

// line returns the i-th line, or "" behind the last.
func line(lines []string, i int) string {
	if i >= len(lines) {
		return ""
	}
	return lines[i]
}
