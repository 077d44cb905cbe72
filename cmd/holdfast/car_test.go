package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// ImportCAR takes the words of a CAR as its roots.
func (f *fakeNode) ImportCAR(_ context.Context, user string, r io.Reader) (client.CAR, error) {
	f.readers = append(f.readers, user)
	data, err := io.ReadAll(r)
	if err == nil && len(data) == 0 {
		err = errors.New("the CAR is not valid")
	}
	return client.CAR{Roots: strings.Fields(string(data)), Blocks: 7, Bytes: uint64(len(data))}, err
}

func (f *fakeNode) ExportCAR(ctx context.Context, user, cid string) (io.ReadCloser, error) {
	body, _, err := f.OpenContent(ctx, user, cid)
	return body, err
}

func (r refusing) ExportCAR(context.Context, string, string) (io.ReadCloser, error) {
	return nil, r.err
}

// `car import` prints the CID of each root that is pinned, in order. The pins belong to --user, and have the name of --name
// or of the file. A root that fails does not keep the others from being printed, and the exit code is 1. A bad CAR pins
// nothing.
func TestCarImportPinsEachRoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.car")
	if err := os.WriteFile(path, []byte("bafyone bafytwo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args  []string
		stdin string
		name  string // of the pins
		want  outcome
	}{
		{[]string{path}, "", "site.car", outcome{exitOK, "bafyone\nbafytwo\n", ""}},
		{[]string{path, "--name", "other", "--user", "ann@example.org"}, "", "other", outcome{exitOK, "bafyone\nbafytwo\n", ""}},
		{[]string{"-"}, "bafytwo", "", outcome{exitOK, "bafytwo\n", ""}},
		{[]string{"-"}, "bafyone bafynobody bafytwo", "", outcome{exitFailure, "bafyone\nbafytwo\n", "holdfast: bafynobody: pin rbafynobody failed: nobody has it\n"}},
		{[]string{"-"}, "", "", outcome{exitFailure, "", "holdfast: the CAR is not valid\n"}},
		{[]string{filepath.Dir(path)}, "", "", outcome{exitFailure, "", "holdfast: " + filepath.Dir(path) + " is a folder: a CAR is a file\n"}},
	} {
		node := &fakeNode{files: map[string]fakeFile{"bafyone": {data: "1"}, "bafytwo": {data: "2"}}}
		if got := call(t, node, tc.stdin, append([]string{"car", "import"}, tc.args...)...); got != tc.want {
			t.Errorf("%v: %+v, want %+v", tc.args, got, tc.want)
		}
		if bad := tc.want.out == ""; bad != (len(node.pins) == 0) {
			t.Errorf("%v: pins %+v", tc.args, node.pins)
		}
		for _, p := range node.pins {
			if p.Pin.Name != tc.name {
				t.Errorf("%v: %+v", tc.args, p)
			}
		}
		if len(tc.args) > 4 && !slices.Equal(node.readers, []string{"ann@example.org"}) {
			t.Errorf("%v: imported for %q", tc.args, node.readers)
		}
	}
	node := &fakeNode{files: map[string]fakeFile{"bafyone": {data: "1"}}}
	got := call(t, node, "bafyone", "car", "import", "-", "--json")
	if words := strings.Join(strings.Fields(got.out), ""); got.code != exitOK || words != `{"roots":[{"cid":"bafyone","requestid":"rbafyone","status":"pinned"}],"blocks":7,"bytes":7}` {
		t.Errorf("--json: %+v", got)
	}
}

// `car export` writes the bytes unchanged to standard output, or to the file of -o only when they are complete, and reads
// as --user.
func TestCarExportLeavesWholeFilesOnly(t *testing.T) {
	node := &fakeNode{files: map[string]fakeFile{"whole": {data: "\x00bytes\xff\n"}, "half": {data: "half", err: client.ErrIncompleteCAR}}}
	if got := call(t, node, "", "car", "export", "whole", "--user", "ann@example.org"); got != (outcome{exitOK, "\x00bytes\xff\n", ""}) {
		t.Errorf("%+v", got)
	}
	if got := call(t, node, "", "car", "export", "half", "-o", "-"); got != (outcome{exitFailure, "half", "holdfast: export half: the CAR is not complete\n"}) {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(node.readers, []string{"ann@example.org", ""}) {
		t.Errorf("read as %q", node.readers)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "f.car")
	if got := call(t, node, "", "car", "export", "half", "-o", path); got.code != exitFailure {
		t.Errorf("%+v", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("an export that broke off leaves %v: %v", left, err)
	}
	if got := call(t, node, "", "car", "export", "whole", "-o", path); got != (outcome{exitOK, "", ""}) {
		t.Errorf("%+v", got)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "\x00bytes\xff\n" {
		t.Errorf("%q, %v", data, err)
	}
}

// Wrong usage of `car` exits with code 2 and one line that names what is wrong.
func TestWrongUsageOfCarIsNamed(t *testing.T) {
	for _, tc := range []struct{ args, names string }{
		{"car", "export, import"},
		{"car import", "FILE"},
		{"car export", "CID"},
		{"car export a b", `"b"`},
		{"car export a -o", "-o"},
		{"car export /ipns/example.org", "IPNS"},
	} {
		isWrongUsage(t, tc.args, tc.names)
	}
}
