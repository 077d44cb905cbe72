package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// `get -o` leaves the whole content or the file that was there before, and nothing else in the folder. It keeps the
// file's mode.
func TestGetLeavesWholeFilesOnly(t *testing.T) {
	node := &fakeNode{files: map[string]fakeFile{
		"whole": {data: "new content"},
		"empty": {},
		"half":  {data: "new", err: io.ErrUnexpectedEOF},
	}}
	for _, tc := range []struct {
		name, cid, before string // before is the file's content; "" for no file
		code              int
		after             map[string]string
	}{
		{"a new file", "whole", "", exitOK, map[string]string{"f": "new content"}},
		{"an empty file", "empty", "", exitOK, map[string]string{"f": ""}},
		{"another file before", "whole", "old", exitOK, map[string]string{"f": "new content"}},
		{"content that breaks off", "half", "", exitFailure, map[string]string{}},
		{"content that breaks off over another file", "half", "old", exitFailure, map[string]string{"f": "old"}},
		{"no such content", "none", "old", exitFailure, map[string]string{"f": "old"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			if tc.before != "" {
				if err := os.WriteFile(path, []byte(tc.before), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			if got := call(t, node, "", "get", tc.cid, "-o", path); got.code != tc.code || got.out != "" {
				t.Errorf("%+v, want code %d", got, tc.code)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(entries) != len(tc.after) {
				t.Errorf("the folder holds %v", entries)
			}
			for name, want := range tc.after {
				if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
					t.Errorf("%s holds %q, want %q: %v", name, data, want, err)
				}
			}
			if info, err := os.Stat(path); tc.before != "" && (err != nil || info.Mode().Perm() != 0o640) {
				t.Errorf("the mode has changed: %v %v", info.Mode(), err)
			}
		})
	}
}

// `get` writes the bytes of the content unchanged to standard output, and fails with the reason if they break off.
// `get -o` of a device writes to it and does not replace it.
func TestGetToStandardOutput(t *testing.T) {
	data := strings.Repeat("\x00\xff\n", copyBuffer)
	node := &fakeNode{files: map[string]fakeFile{"whole": {data: data}, "half": {data: data, err: errors.New("gone")}}}
	if got := call(t, node, "", "get", "whole"); got.code != exitOK || got.out != data || got.errOut != "" {
		t.Errorf("code %d, %d bytes, %q", got.code, len(got.out), got.errOut)
	}
	if got := call(t, node, "", "get", "half"); got.code != exitFailure || !strings.Contains(got.errOut, "gone") {
		t.Errorf("code %d, %q", got.code, got.errOut)
	}
	if got := call(t, node, "", "get", "whole", "-o", os.DevNull); got.code != exitOK {
		t.Errorf("to %s: %+v", os.DevNull, got.errOut)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%s is a file now", os.DevNull)
	}
}

// `get --user` tells the node whom the content is for; the node alone decides.
func TestGetReadsAsWhoIsNamed(t *testing.T) {
	node := &fakeNode{files: map[string]fakeFile{"whole": {data: "content"}}}
	for _, args := range [][]string{{"get", "whole"}, {"get", "whole", "--user", "ann@example.org"}} {
		if got := call(t, node, "", args...); got.code != exitOK || got.out != "content" {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if !slices.Equal(node.readers, []string{"", "ann@example.org"}) {
		t.Errorf("read as %q", node.readers)
	}
}

// `add` prints the CID alone, and names the pin after --name or the file, and not at all for standard input.
func TestAddPrintsTheCIDAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holiday.jpg")
	if err := os.WriteFile(path, []byte("picture"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args      []string
		stdin     string
		pin, data string
	}{
		{[]string{"add", path}, "", "holiday.jpg", "picture"},
		{[]string{"add", path, "--name", "other"}, "", "other", "picture"},
		{[]string{"add", "-"}, "from a pipe", "", "from a pipe"},
	} {
		node := &fakeNode{files: map[string]fakeFile{}}
		got := call(t, node, tc.stdin, tc.args...)
		if got.code != exitOK || got.out != "bafyadded\n" || got.errOut != "" {
			t.Errorf("%v: %+v", tc.args, got)
		}
		if len(node.pins) != 1 || node.pins[0].Pin.Name != tc.pin || node.files["bafyadded"].data != tc.data {
			t.Errorf("%v: pins %+v of %q", tc.args, node.pins, node.files["bafyadded"].data)
		}
	}
}

// Commands take a CID in a path or URL of ipfs. Only get takes a path below it; other commands refuse one as wrong
// usage with the reason, and all of them IPNS.
func TestACIDIsTakenAsPeopleCopyIt(t *testing.T) {
	const root = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
	for text, want := range map[string][2]string{
		root: {root}, root + "/": {root}, "/ipfs/" + root: {root}, "ipfs://" + root: {root}, "ipfs://" + root + "/": {root}, "ipfs/" + root: {root},
		"notacid": {"notacid"}, "/ipfs/notacid": {"/ipfs/notacid"}, "notacid/path": {"notacid/path"}, "": {},
		root + "/path": {root, "path"}, "/ipfs/" + root + "/a/b.txt/": {root, "a/b.txt"}, "ipfs://" + root + "/a%20b": {root, "a b"}, root + "/a%20b": {root, "a%20b"},
	} {
		if got, path, err := splitCID("get", text); err != nil || got != want[0] || path != want[1] {
			t.Errorf("%q is %q, %q, %v; want %q", text, got, path, err, want)
		}
	}
	for text, says := range map[string]string{
		root + "/path": "give the CID of the file", "/ipfs/" + root + "/a/b.txt": `"a/b.txt"`, "ipfs://" + root + "/index.html": "give the CID of the file",
		"/ipns/example.org": "IPNS", "ipns://example.org/x": "IPNS", "ipfs://" + root + "/%": "not a valid URL",
	} {
		for _, command := range []string{"get", "pin add"} {
			if command == "get" && !strings.Contains(says, "IPNS") && !strings.Contains(says, "URL") {
				continue
			}
			got := call(t, &fakeNode{}, "", append(strings.Fields(command), text)...)
			if got.code != exitUsage || !strings.HasPrefix(got.errOut, "holdfast: "+command+": ") || !strings.Contains(got.errOut, says) {
				t.Errorf("%s %s: %+v", command, text, got)
			}
		}
	}
	node := &fakeNode{files: map[string]fakeFile{root: {data: "the bytes"}, root + "/a b": {data: "in a folder"}}}
	if got := call(t, node, "", "get", "ipfs://"+root+"/a%20b"); got != (outcome{exitOK, "in a folder", ""}) {
		t.Errorf("%+v", got)
	}
	if got := call(t, node, "", "get", "ipfs://"+root); got != (outcome{exitOK, "the bytes", ""}) {
		t.Errorf("%+v", got)
	}
}
