//go:build conformance

package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// pinClient runs commands on a machine without a node, with a profile of a cluster.
type pinClient struct {
	t    *testing.T
	home string
}

// newPinClient has a profile with the gateways of the nodes and a token.
func newPinClient(t *testing.T, nodes []*harness.Node, token string) *pinClient {
	t.Helper()
	c := &pinClient{t, t.TempDir()}
	args := []string{"profile", "add", "work"}
	for _, n := range nodes {
		args = append(args, "--endpoint", n.S3URL())
	}
	if r := c.try(token+"\n", args...); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	return c
}

func (c *pinClient) try(stdin string, args ...string) harness.Result {
	c.t.Helper()
	return harness.Run(c.t, []string{"HOME=" + c.home}, stdin, args...)
}

// run wants exit code 0 and returns the last line of the output.
func (c *pinClient) run(args ...string) string {
	c.t.Helper()
	r := c.try("", args...)
	if r.Code != 0 {
		c.t.Fatalf("holdfast %q: exit code %d, %s", args, r.Code, r.Stderr)
	}
	return lastLine(r.Stdout)
}

// refused wants exit code 1 and one line that contains a reason.
func (c *pinClient) refused(reason string, args ...string) {
	c.t.Helper()
	if r := c.try("", args...); r.Code != 1 || r.Stdout != "" || !oneLine(r.Stderr) || !strings.Contains(r.Stderr, reason+": ") {
		c.t.Errorf("holdfast %q: %+v, want %s", args, r, reason)
	}
}

// pins lists the pins of the account.
func (c *pinClient) pins(args ...string) (rows []struct {
	RequestID, Status string
	Pin               struct{ CID, Name string }
}) {
	c.t.Helper()
	out := c.try("", append([]string{"pin", "ls", "--json", "--profile", "work"}, args...)...)
	if err := json.Unmarshal([]byte(out.Stdout), &rows); err != nil || out.Code != 0 {
		c.t.Fatalf("%+v, %v", out, err)
	}
	return rows
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

// readsBack wants that a user gets what a folder and a file have, by the CID of a folder with both, as the node has it: whole,
// by a path in it, and as a CAR, which is in the file car.
func (c *pinClient) readsBack(root string, files map[string]string, file, car string) {
	c.t.Helper()
	to := filepath.Join(c.t.TempDir(), "back")
	if out := c.run("get", root, "-o", to); out != "" {
		c.t.Errorf("get of a folder prints %q", out)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	found := filesIn(c.t, to)
	if found[filepath.Base(file)] != string(want) {
		c.t.Errorf("get of two paths wrote a file of %d bytes, want %d", len(found[filepath.Base(file)]), len(want))
	}
	if got := c.try("", "get", root+"/"+filepath.Base(file), "--profile", "work"); got.Code != 0 || got.Stdout != string(want) {
		c.t.Errorf("get of a file by its path: exit code %d, %d bytes, %s", got.Code, len(got.Stdout), got.Stderr)
	}
	part := filepath.Join(c.t.TempDir(), "part")
	c.run("get", "ipfs://"+root+"/odd", "-o", part)
	if found := filesIn(c.t, part); !maps.Equal(found, files) {
		c.t.Errorf("get of a folder wrote %d files, want %d", len(found), len(files))
	}
	exported := filepath.Join(c.t.TempDir(), "back.car")
	c.run("car", "export", root, "-o", exported)
	if got, want := fileSum(c.t, exported), fileSum(c.t, car); got != want {
		c.t.Error("car export writes another CAR than on the node")
	}
}

// fileSum returns the SHA-256 hash of a file.
func fileSum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// keepsSecret wants that a user reads an object by its CID, and that another account does not.
func (c *pinClient) keepsSecret(n *harness.Node, token string, other *pinClient) {
	c.t.Helper()
	var root string
	for _, path := range []string{"/private", "/private/secret.txt"} {
		body := strings.TrimPrefix(path, "/private")
		r, err := n.S3(c.t.Context(), token, http.MethodPut, path, strings.NewReader(body), int64(len(body)))
		if err != nil || r.Status != http.StatusOK {
			c.t.Fatalf("%+v, %v", r, err)
		}
		root = r.Header.Get("X-Holdfast-Cid")
	}
	if got := c.run("get", root); got != "/secret.txt" {
		c.t.Errorf("get of an object by its CID prints %q", got)
	}
	c.run("car", "export", root, "-o", filepath.Join(c.t.TempDir(), "secret.car"))
	other.refused("NOT_FOUND", "get", root)
	other.refused("NOT_FOUND", "car", "export", root)
}

// outlives wants that a get ends well although the node that it asks dies in the middle.
func (c *pinClient) outlives(n *harness.Node, root, want string) {
	c.t.Helper()
	back := filepath.Join(c.t.TempDir(), "back")
	get := beginAs(c.t, c.home, "get", root, "-o", back, "--profile", "work")
	get.hasRead(c.t, 24<<20)
	n.Kill()
	if code := ended(c.t, get.Cmd); code != 0 {
		c.t.Fatalf("the get during which a node died: exit code %d, %s", code, &get.errs)
	}
	if fileSum(c.t, back) != fileSum(c.t, want) {
		c.t.Error("after that get the file has other bytes")
	}
}

// TestPinsByCommand promises that a user with an API key and a profile, on a machine without a node, adds files and folders,
// imports a CAR, pins, lists, reads and removes pins; that the CIDs are those of holdfast add on a node; that get and car
// export give back the same bytes; that the commands go on while a node is down, and when one dies in the middle of an
// upload, which then has one pin, or of a get; and that a key that may only read, and another account, are refused.
func TestPinsByCommand(t *testing.T) {
	t.Parallel() // a cluster of its own
	c := harness.Start(t, harness.Options{})
	victim := c.Followers()[0]
	nodes := slices.Clone(c.Nodes)
	slices.SortStableFunc(nodes, func(a, b *harness.Node) int { // a command asks the victim first
		switch victim {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	})
	node := nodes[1]
	key := node.UserKey("ann@example.org").Token
	user := newPinClient(t, nodes, key)
	other := newPinClient(t, nodes, node.UserKey("bob@example.org").Token)
	reader := newPinClient(t, nodes, node.Key("ann@example.org", "--scope", "storage:read").Token)

	files := map[string]string{
		"empty/": "", "empty file": "", "a/b/deep": "deep", "a/big": strings.Repeat("0123456789", 300_000), "link": "-> a/b", "ü \"x\"\\\n": "odd",
	}
	dir, file := writeFiles(t, "odd", files), filepath.Join(t.TempDir(), "notes.txt")
	overwrite(t, filepath.Join(dir, ".hidden"), []byte("only with --hidden"))
	overwrite(t, file, harness.RandomBytes(3<<20))
	if got, want := user.run("add", file), lastLine(node.CLI("add", file)); got != want {
		t.Errorf("add of a file gives %s, and %s on the node", got, want)
	}

	large := filepath.Join(t.TempDir(), "large") // takes no space, and one block
	overwrite(t, large, nil)
	if err := os.Truncate(large, 256<<20); err != nil {
		t.Fatal(err)
	}
	upload := beginAs(t, user.home, "add", large, "--profile", "work")
	upload.hasRead(t, 24<<20)
	victim.Kill()
	if code := ended(t, upload.Cmd); code != 0 {
		t.Fatalf("the upload during which a node died: exit code %d, %s", code, &upload.errs)
	}
	if rows := user.pins("--name", "large"); len(rows) != 1 || rows[0].Status != "pinned" || rows[0].Pin.CID != lastLine(upload.out.String()) {
		t.Errorf("after that upload there are the pins %+v", rows)
	}

	add := []string{"add", dir, "--hidden", "--hash", "sha2-256", "--cid-version", "0"}
	if got, want := user.run(add...), lastLine(node.CLI(add...)); got != want {
		t.Errorf("add of a folder gives %s, and %s on the node", got, want)
	}
	got, want := user.try("", "add", dir, file), node.CLI("add", dir, file)
	if got.Stdout != want {
		t.Errorf("add of two paths prints %q, and %q on the node", got.Stdout, want)
	}
	root := lastLine(want)
	car := filepath.Join(t.TempDir(), "both.car")
	node.CLI("car", "export", root, "-o", car)
	if got := user.run("car", "import", car, "--name", "car"); got != root {
		t.Errorf("car import prints %s, want %s", got, root)
	}
	id := user.run("pin", "add", root, "--name", "by CID", "--meta", "app=test", "--wait")
	if rows := user.pins("--meta", "app=test", "--status", "pinned"); len(rows) != 1 || rows[0].RequestID != id || rows[0].Pin.CID != root {
		t.Errorf("listed %+v", rows)
	}
	if out := user.try("", "pin", "get", id, "--profile", "work").Stdout; !strings.Contains(out, root) || !strings.Contains(out, "by CID") {
		t.Errorf("pin get prints %q", out)
	}

	reader.readsBack(root, files, file, car)
	if got := other.run("get", root+"/odd/a/b/deep"); got != "deep" {
		t.Errorf("another account reads %q of what is pinned", got)
	}
	user.keepsSecret(node, key, other)

	all := user.pins()
	reader.refused("FORBIDDEN", "add", file)
	reader.refused("FORBIDDEN", "pin", "add", root)
	reader.refused("FORBIDDEN", "pin", "rm", id)
	if rows := other.pins(); len(rows) != 0 {
		t.Errorf("another account sees %+v", rows)
	}
	other.refused("NOT_FOUND", "pin", "get", id)
	other.refused("NOT_FOUND", "pin", "rm", id)
	newPinClient(t, nodes, "no.such.token").refused("UNAUTHORIZED", "pin", "ls")
	if rows := reader.pins(); len(rows) != len(all) {
		t.Errorf("there are %d pins, and there were %d", len(rows), len(all))
	}
	user.run("pin", "rm", id)
	user.refused("NOT_FOUND", "pin", "get", id)
	victim.Restart()
	c.Settle()
	if rows := newPinClient(t, nodes[:1], node.Key("ann@example.org").Token).pins(); len(rows) != len(all)-1 {
		t.Errorf("the node that is back lists %d pins, want %d", len(rows), len(all)-1)
	}
	harness.Eventually(t, time.Minute, "the removed pin is gone on the node", func() (bool, error) {
		return !strings.Contains(node.CLI("pin", "ls", "--user", "ann@example.org"), id), nil
	})
	user.outlives(victim, lastLine(upload.out.String()), large)
}
