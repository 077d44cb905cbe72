package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// tree describes files by path. A value that begins with "-> " is the target of a symbolic link, and a path that ends
// with a slash is that of a folder.
type tree map[string]string

func (w tree) write(t *testing.T, dir string) string {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(w)) {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		target, link := strings.CutPrefix(w[name], "-> ")
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, []byte(w[name]), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// treeIn reads a folder. Folders with content are not in the result.
func treeIn(t *testing.T, dir string) tree {
	t.Helper()
	found := tree{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		switch {
		case e.IsDir():
			if below, err := os.ReadDir(path); err != nil || len(below) > 0 {
				return err
			}
			found[name+"/"] = ""
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			found[name] = "-> " + target
			return err
		default:
			data, err := os.ReadFile(path)
			found[name] = string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// headers writes a tar stream.
func headers(t *testing.T, all ...*tar.Header) string {
	t.Helper()
	out := new(bytes.Buffer)
	w := tar.NewWriter(out)
	for _, h := range all {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, strings.Repeat("x", int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

var odd = tree{
	"a/b/deep": "deep", "a/big": strings.Repeat("0123456789", copyBuffer/5), "empty/": "", "empty file": "", "ü \"x\"\\\n": "odd",
	strings.Repeat("long", 60): "long", "link": "-> a/b", "out": "-> ../../etc/passwd", "a/dead": "-> nowhere",
}

// A folder that add sends is the one that get writes, with its empty files and folders, odd names and links. Hidden
// files are sent with --hidden only, and otherwise counted. get leaves out links that lead out of the folder.
func TestAddSendsTheFolderThatGetWrites(t *testing.T) {
	dir := odd.write(t, filepath.Join(t.TempDir(), "photos"))
	hidden := tree{".git/config": "secret", "a/.env": "secret"}
	hidden.write(t, dir)
	for _, tc := range []struct {
		args   []string
		note   string
		hidden tree
	}{
		{nil, "holdfast: add: 2 hidden files and folders were left out; --hidden adds them\n", nil},
		{[]string{"--hidden"}, "", hidden},
	} {
		node := &fakeNode{files: map[string]fakeFile{}}
		got := call(t, node, "", append([]string{"add", dir}, tc.args...)...)
		if got != (outcome{exitOK, "bafyadded\n", tc.note}) {
			t.Fatalf("%+v", got)
		}
		if len(node.pins) != 1 || node.pins[0].Pin.Name != "photos" || len(node.imports) != 1 || node.imports[0] != (client.Import{Folder: true}) {
			t.Errorf("pins %+v of %+v", node.pins, node.imports)
		}
		node.files["bafyadded"] = fakeFile{data: node.files["bafyadded"].data, folder: true}
		to := filepath.Join(t.TempDir(), "copy")
		got = call(t, node, "", "get", "bafyadded", "-o", to)
		note := "holdfast: get: the link \"out\" is left out: it leads out of the folder, to \"../../etc/passwd\"\n"
		if got != (outcome{exitOK, "", note}) {
			t.Fatalf("%+v", got)
		}
		want := maps.Clone(odd)
		maps.Copy(want, tc.hidden)
		delete(want, "out")
		if found := treeIn(t, to); !maps.Equal(found, want) {
			t.Errorf("get wrote %v", slices.Sorted(maps.Keys(found)))
		}
		if info, err := os.Stat(to); err != nil || info.Mode().Perm() != newFolderMode {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
}

// Several paths become one folder, and the last line is its CID. --hash and --cid-version reach the node.
func TestAddWrapsSeveralPaths(t *testing.T) {
	dir := tree{"one/a/x": "x", "one/b": "b", "two/b": "b"}.write(t, t.TempDir())
	if err := os.Symlink("one/b", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	a, b := filepath.Join(dir, "one/a"), filepath.Join(dir, "one/b")
	node := &fakeNode{files: map[string]fakeFile{}}
	got := call(t, node, "", "add", a, b, filepath.Join(dir, "link"), "--hash", "sha2-256", "--cid-version", "0")
	if got != (outcome{exitOK, "bafya  a\nbafyb  b\nbafyadded\n", ""}) {
		t.Errorf("%+v", got)
	}
	if len(node.imports) != 1 || node.imports[0] != (client.Import{Folder: true, Entries: true, Hash: "sha2-256", CIDVersion: "0"}) || node.pins[0].Pin.Name != "" {
		t.Errorf("%+v", node.imports)
	}
	to := filepath.Join(dir, "copy")
	if err := writeFolder(to, strings.NewReader(node.files["bafyadded"].data), nil); err != nil {
		t.Fatal(err)
	}
	if found := treeIn(t, to); !maps.Equal(found, tree{"a/x": "x", "b": "b", "link": "b"}) {
		t.Errorf("the folder has %v", found)
	}
	if got := call(t, node, "", "add", a, b, "--json"); got.code != exitOK || !strings.Contains(got.out, `"entries"`) {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{a, "-"}, {b, filepath.Join(dir, "two/b")}, {a, "/"}} {
		if got := call(t, node, "", append([]string{"add"}, args...)...); got.code != exitUsage || got.out != "" || !strings.HasPrefix(got.errOut, "holdfast: add: ") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// Flags that do not fit are wrong usage, and the node is not asked.
func TestAddRefusesLayoutsThatDoNotExist(t *testing.T) {
	for _, args := range [][]string{
		{"--hash", "md5"}, {"--cid-version", "2"}, {"--cid-version", "0", "--hash", "blake3"}, {"--hash", ""}, {"--cid-version", ""},
	} {
		node := &fakeNode{files: map[string]fakeFile{}}
		got := call(t, node, "x", append([]string{"add", "-"}, args...)...)
		if got.code != exitUsage || strings.Count(got.errOut, "\n") != 1 || len(node.imports) > 0 {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// add ends with the reason at a file that has no place in a folder, and pins nothing.
func TestAddRefusesWhatHasNoPlaceInAFolder(t *testing.T) {
	socket := func(path string) error {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
		if err == nil {
			l.SetUnlinkOnClose(false)
			err = l.Close()
		}
		return err
	}
	for _, tc := range []struct {
		name string
		make func(path string) error
		says string
	}{
		{"pipe", func(path string) error { return unix.Mkfifo(path, 0o600) }, "pipe is a named pipe"},
		{"socket", socket, "socket is a socket"},
		{"not \xff UTF-8", func(path string) error { return os.WriteFile(path, nil, 0o600) }, `not \xff UTF-8" is not UTF-8`},
		{"folder \xff", func(path string) error { return os.Mkdir(path, 0o700) }, `folder \xff" is not UTF-8`},
		{"link", func(path string) error { return os.Symlink("\xff", path) }, "target of the link"},
		{"deep", func(path string) error { return os.MkdirAll(path+strings.Repeat("/d", maxFolderDepth), 0o700) }, "more than 256"},
	} {
		folder, err := os.MkdirTemp("", "hf") // the path of a socket is short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(folder) })
		tree{"a": "a", "sub/z": "z"}.write(t, folder)
		if err := tc.make(filepath.Join(folder, "sub", tc.name)); err != nil {
			t.Fatal(err)
		}
		node := &fakeNode{files: map[string]fakeFile{}}
		got := call(t, node, "", "add", folder)
		if got.code != exitFailure || got.out != "" || strings.Count(got.errOut, "\n") != 1 || !strings.Contains(got.errOut, tc.says) || !strings.Contains(got.errOut, "sub/") {
			t.Errorf("%s: %+v", tc.name, got)
		}
		if len(node.pins) > 0 || len(node.files) > 0 {
			t.Errorf("%s: %d pins of %d imports", tc.name, len(node.pins), len(node.files))
		}
	}
}

// act is a writer that calls do before the first write.
type act struct{ do func() }

func (a *act) Write(b []byte) (int, error) {
	if a.do != nil {
		a.do()
		a.do = nil
	}
	return len(b), nil
}

// A file that becomes longer or shorter while it is read ends the command with its name.
func TestAddNoticesAFileThatChanges(t *testing.T) {
	for name, size := range map[string]int64{"shorter": 1, "empty": 0, "longer": 2_000_000} {
		dir := tree{"file": strings.Repeat("x", 1_000_000)}.write(t, t.TempDir())
		path := filepath.Join(dir, "file")
		p := &packer{ctx: t.Context(), to: tar.NewWriter(&act{func() {
			if err := os.Truncate(path, size); err != nil {
				t.Error(err)
			}
		}})}
		if err := p.pack([]string{dir}, []string{""}); err == nil || !strings.Contains(err.Error(), path+" changed while it was read") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// get writes nothing outside of the folder and leaves nothing behind if the folder cannot be written completely.
func TestGetLeavesWholeFoldersOnly(t *testing.T) {
	file := func(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 3} }
	link := func(name, target string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	dir := func(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }
	for name, stream := range map[string]io.Reader{
		"parent":            strings.NewReader(headers(t, file("ok"), file("../evil"))),
		"parent inside":     strings.NewReader(headers(t, dir("a/"), file("a/../../evil"))),
		"absolute":          strings.NewReader(headers(t, file("/tmp/evil"))),
		"dot":               strings.NewReader(headers(t, file("./evil"))),
		"the folder itself": strings.NewReader(headers(t, dir("./"))),
		"twice":             strings.NewReader(headers(t, file("a"), file("a"))),
		"through a link":    strings.NewReader(headers(t, dir("d/"), link("l", "d"), dir("l/"))),
		"device":            strings.NewReader(headers(t, &tar.Header{Typeflag: tar.TypeChar, Name: "null"})),
		"hard link":         strings.NewReader(headers(t, file("a"), &tar.Header{Typeflag: tar.TypeLink, Name: "b", Linkname: "a"})),
		"no tar":            strings.NewReader(strings.Repeat("no tar ", 1000)),
		"cut":               strings.NewReader(headers(t, file("a"), file("b"))[:1030]),
		"broken":            io.MultiReader(strings.NewReader(headers(t, file("a"))[:1024]), broken{errors.New("gone")}),
		"broken at the end": io.MultiReader(strings.NewReader(headers(t, file("a"))), broken{errors.New("gone")}),
	} {
		around := t.TempDir()
		if err := writeFolder(filepath.Join(around, "to"), stream, func(string, string) {}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if left := treeIn(t, around); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
	around := tree{"file": "mine", "folder/x": "mine"}.write(t, t.TempDir())
	if err := os.Symlink("nowhere", filepath.Join(around, "link")); err != nil {
		t.Fatal(err)
	}
	before := treeIn(t, around)
	node := &fakeNode{files: map[string]fakeFile{"tree": {data: headers(t, file("a")), folder: true}}}
	for _, name := range []string{"file", "folder", "folder/", "link"} {
		got := call(t, node, "", "get", "tree", "-o", filepath.Join(around, name)+strings.Repeat("/", strings.Count(name, "/")))
		if got.code != exitFailure || !strings.Contains(got.errOut, "exists already") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := call(t, node, "", "get", "tree", "-o", "-"); got.code != exitFailure || got.out != "" || !strings.Contains(got.errOut, "-o names a place") {
		t.Errorf("to standard output: %+v", got)
	}
	if after := treeIn(t, around); !maps.Equal(before, after) {
		t.Errorf("left %v", after)
	}
}

// Without -o a folder gets the name of its CID or the last name of its path, in the current folder.
func TestGetNamesAFolderAfterItsCID(t *testing.T) {
	const root = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
	long := strings.Repeat("ü", 127)
	stream := headers(t, &tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 1})
	node := &fakeNode{files: map[string]fakeFile{root: {data: stream, folder: true}, root + "/a/b": {data: stream, folder: true}, root + "/" + long: {data: stream, folder: true}}}
	t.Chdir(t.TempDir())
	for _, text := range []string{root, "/ipfs/" + root + "/a/b/", root + "/" + long} {
		if got := call(t, node, "", "get", text); got != (outcome{code: exitOK}) {
			t.Errorf("%+v", got)
		}
	}
	if found := treeIn(t, "."); !maps.Equal(found, tree{root + "/x": "x", "b/x": "x", long + "/x": "x"}) {
		t.Errorf("get wrote %v", found)
	}
}

// Only links that cannot lead out of the folder stay, also through other links.
func TestLinksThatStayInside(t *testing.T) {
	for link, inside := range map[[2]string]bool{
		{"l", "a"}: true, {"l", "./a/b"}: true, {"d/l", "../a"}: true, {"d/e/l", "../../a"}: true, {"l", "."}: true, {"l", "a/"}: true,
		{"l", ".."}: false, {"l", "../x"}: false, {"d/l", "../../x"}: false, {"l", "/etc"}: false, {"l", ""}: false,
		{"d/l", "a/../../x"}: false, {"d/l", "a/.."}: false, {"d/l", ".././../x"}: false,
	} {
		if got := staysInside(link[0], link[1]); got != inside {
			t.Errorf("%q to %q: %t", link[0], link[1], got)
		}
	}
}
