package main

import (
	"bytes"
	"testing"
)

// `car export` does not write the bytes of a CAR to a terminal: it is wrong usage, and the message names -o.
func TestCarExportRefusesATerminal(t *testing.T) {
	for _, args := range [][]string{{"car", "export", "whole"}, {"car", "export", "whole", "-o", "-"}} {
		node := &fakeNode{files: map[string]fakeFile{"whole": {data: "bytes"}}}
		_, terminal := newTerminal(t)
		a, _ := testApp(t, node, "")
		var errs bytes.Buffer
		a.stdout, a.stderr = terminal, &errs
		want := "holdfast: car export: standard output is a terminal: name a file with -o\n"
		if code := a.execute(t.Context(), args); code != exitUsage || errs.String() != want || len(node.readers) > 0 {
			t.Errorf("%v: code %d, %q, read as %q", args, code, errs.String(), node.readers)
		}
	}
}
