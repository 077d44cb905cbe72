//go:build conformance && linux

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// oddFolder has nested and empty folders, an empty file, a file of several blocks, a link, odd names, and a folder that
// is large enough to be sharded. A value that begins with "-> " is the target of a link.
func oddFolder() map[string]string {
	files := map[string]string{
		"empty/": "", "empty file": "", "a/b/c/": "", "a/b/deep": "deep", "a/big": strings.Repeat("0123456789", 300_000), "link": "-> a/b",
		"ü \"x\"\\\n": "odd", strings.Repeat("l", 255): "long",
	}
	for i := range 2_000 {
		files[fmt.Sprintf("sharded/%0200d", i)] = fmt.Sprint(i)
	}
	return files
}

// rootsOfOddFolder are the CIDs of oddFolder by the flags of add. Kubo 0.42 printed them: the last two by ipfs add -r
// and ipfs add -r --cid-version=1, the first by ipfs add -r --hash=blake3 with its profile unixfs-v1-2025.
var rootsOfOddFolder = map[string]string{
	"":                                "bafyb4ieywjymhdthmjxogriyssz7t4s4q4o5x5fh4kok7geeoyesvohfda",
	"--hash blake3 --cid-version 1":   "bafyb4ieywjymhdthmjxogriyssz7t4s4q4o5x5fh4kok7geeoyesvohfda",
	"--cid-version 0":                 "Qmd6VcD5VxUrqPc5rK3pxQeKRNKsRRjV5MVMnZ5KxqHQdB",
	"--hash sha2-256 --cid-version 1": "bafybeidan2cify5ks5rmdcv7c577zdwfkbxt4ughxy7wubdbeoqebibkg4",
}

// writeFiles writes files below a new folder with a name.
func writeFiles(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		target, link := strings.CutPrefix(content, "-> ")
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// filesIn reads what writeFiles writes. Folders with content are not in the result.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		switch {
		case e.IsDir():
			below, err := os.ReadDir(path)
			if len(below) == 0 {
				found[name+"/"] = ""
			}
			return err
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			found[name] = "-> " + target
			return err
		}
		data, err := os.ReadFile(path)
		found[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestFoldersOnEveryNode promises that a folder that one node adds is the same on another node, byte for byte, as a
// whole and by the paths in it, and that its CIDs are those of Kubo. Another account than the one that pinned it reads
// it too, because content with a pin is public.
func TestFoldersOnEveryNode(t *testing.T) {
	t.Parallel() // a cluster of its own
	c := harness.Start(t, harness.Options{})
	first, last := c.Nodes[0], c.Nodes[2]
	last.CLIWithInput("a password of some length\n", "user", "add", "folder@example.org", "--password-stdin")
	files := oddFolder()
	dir := writeFiles(t, "odd", files)
	for flags, root := range rootsOfOddFolder {
		if out := first.CLI(append([]string{"add", dir}, strings.Fields(flags)...)...); out != root+"\n" {
			t.Fatalf("add %s: %q, want %s", flags, out, root)
		}
		to := filepath.Join(t.TempDir(), "copy")
		if out := last.CLI("get", root, "-o", to, "--user", "folder@example.org"); out != "" {
			t.Errorf("get prints %q", out)
		}
		if found := filesIn(t, to); !maps.Equal(found, files) {
			t.Errorf("get of add %s wrote %d files, want %d", flags, len(found), len(files))
		}
		for _, name := range []string{"a/big", fmt.Sprintf("sharded/%0200d", 1_234), "ü \"x\"\\\n", "empty file"} {
			if out := last.CLI("get", root+"/"+name); out != files[name] {
				t.Errorf("get of %q: %d bytes, want %d", name, len(out), len(files[name]))
			}
		}
		to = filepath.Join(t.TempDir(), "part")
		last.CLI("get", "/ipfs/"+root+"/a", "-o", to)
		if found := filesIn(t, to); len(found) != 3 || found["b/deep"] != "deep" || found["big"] != files["a/big"] {
			t.Errorf("get of a/ wrote %v", slices.Collect(maps.Keys(found)))
		}
		if r := last.TryCLI("", "get", root+"/a/none"); r.Code != 1 || r.Stdout != "" || !oneLine(r.Stderr) || !strings.Contains(r.Stderr, "/a/none") {
			t.Errorf("a path that leads nowhere: %+v", r)
		}
	}
	out := strings.Fields(first.CLI("add", filepath.Join(dir, "a/b/deep"), filepath.Join(dir, "empty"), "--cid-version", "0"))
	if len(out) != 5 || out[1] != "deep" || out[2] != "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn" || out[3] != "empty" {
		t.Fatalf("add of two paths: %q", out)
	}
	if got := last.CLI("get", out[4]+"/deep"); got != "deep" {
		t.Errorf("the folder around two paths has %q", got)
	}
	var pins []struct {
		Status string
		Pin    struct{ CID, Name string }
	}
	if err := json.Unmarshal([]byte(last.CLI("pin", "ls", "--json", "--name", "odd")), &pins); err != nil {
		t.Fatal(err)
	}
	for _, p := range pins {
		if !slices.Contains(slices.Collect(maps.Values(rootsOfOddFolder)), p.Pin.CID) || p.Status != "pinned" {
			t.Errorf("%+v", p)
		}
	}
	if len(pins) != len(rootsOfOddFolder) { // also the second one of the same root
		t.Errorf("%d pins, want one for each add", len(pins))
	}
}

// begun is a command that runs.
type begun struct {
	*exec.Cmd
	out, errs bytes.Buffer
}

func begin(t *testing.T, n *harness.Node, args ...string) *begun {
	t.Helper()
	return beginAs(t, t.TempDir(), append(args, "--data", n.Dir)...)
}

// beginAs begins a command of a user with a home folder.
func beginAs(t *testing.T, home string, args ...string) *begun {
	t.Helper()
	b := &begun{Cmd: exec.Command(harness.Binary(t), args...)}
	b.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	b.Stdout, b.Stderr = &b.out, &b.errs
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Process.Kill() })
	return b
}

// hasRead waits until a command has read this many bytes.
func (b *begun) hasRead(t *testing.T, bytes int64) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the command reads", func() (bool, error) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", b.Process.Pid))
		if err != nil {
			return false, err
		}
		var n int64
		if _, err := fmt.Sscanf(string(text), "rchar: %d", &n); err != nil {
			return false, err
		}
		return n >= bytes, fmt.Errorf("%d bytes", n)
	})
}

// TestFoldersThatAreInterrupted promises that nothing is pinned after an add of a folder whose command or node ends in
// the middle, and that a get that is interrupted leaves nothing.
func TestFoldersThatAreInterrupted(t *testing.T) {
	t.Parallel() // a node of its own
	c := harness.Start(t, harness.Options{Nodes: 1})
	n := c.Nodes[0]
	folder := func(size int64) string {
		dir := writeFiles(t, "large", map[string]string{"first": "first", "large": ""})
		if err := os.Truncate(filepath.Join(dir, "large"), size); err != nil { // takes no space
			t.Fatal(err)
		}
		return dir
	}
	endless := folder(1 << 40)
	failed := func(b *begun, says string) {
		t.Helper()
		if code := ended(t, b.Cmd); code != 1 || b.out.Len() > 0 || !oneLine(b.errs.String()) || !strings.Contains(b.errs.String(), says) {
			t.Errorf("exit code %d, %q, %q", code, &b.out, &b.errs)
		}
		if out := strings.TrimSpace(n.CLI("pin", "ls", "--json")); out != "[]" {
			t.Errorf("pins: %s", out)
		}
	}
	add := begin(t, n, "add", endless)
	add.hasRead(t, 64<<20)
	if err := add.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	failed(add, "interrupted")
	add = begin(t, n, "add", endless)
	add.hasRead(t, 64<<20)
	n.Kill()
	code := ended(t, add.Cmd)
	n.Restart()
	c.Settle()
	if code != 1 || !oneLine(add.errs.String()) {
		t.Errorf("after the end of the node: exit code %d, %q", code, &add.errs)
	}
	if out := strings.TrimSpace(n.CLI("pin", "ls", "--json")); out != "[]" {
		t.Errorf("pins: %s", out)
	}

	root := strings.TrimSpace(n.CLI("add", folder(1<<30)))
	around := t.TempDir()
	get := begin(t, n, "get", root, "-o", filepath.Join(around, "copy"))
	harness.Eventually(t, time.Minute, "the command writes", func() (bool, error) {
		found, err := filepath.Glob(filepath.Join(around, ".copy.partial-*", "large"))
		return len(found) > 0, err
	})
	if err := get.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := ended(t, get.Cmd); code != 1 || !oneLine(get.errs.String()) || !strings.Contains(get.errs.String(), "interrupted") {
		t.Errorf("get: exit code %d, %q", code, &get.errs)
	}
	if left, err := os.ReadDir(around); err != nil || len(left) > 0 {
		t.Errorf("get left %v, %v", left, err)
	}
}

// TestFoldersAreThoseOfKubo promises that a folder of a user has the same CIDs in Kubo, and that Kubo reads it.
func TestFoldersAreThoseOfKubo(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	n := harness.Start(t, harness.Options{Nodes: 1}).Nodes[0]
	files := oddFolder()
	dir := writeFiles(t, "odd", files)
	kubo, other := harness.StartKubo(t), harness.StartKubo(t)
	for flags, ours := range map[string]string{
		"--cid-version=0": "--cid-version 0", "--cid-version=1": "--hash sha2-256",
		"--cid-version=1 --hash=blake3 --chunker=size-1048576 --max-file-links=1024": "",
	} {
		want := kubo.Do(append([]string{"add", "--recursive", "--quieter", "--only-hash", dir}, strings.Fields(flags)...)...)
		if root := strings.TrimSpace(n.CLI(append([]string{"add", dir}, strings.Fields(ours)...)...)); root != want {
			t.Errorf("add %s is %s, want %s", ours, root, want)
		}
		to, err := other.Get(want, n.Status().Node.Addrs)
		if err != nil {
			t.Fatal(err)
		}
		if found := filesIn(t, to); !maps.Equal(found, files) {
			t.Errorf("Kubo gets %d files, want %d", len(found), len(files))
		}
	}
}
