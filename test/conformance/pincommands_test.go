//go:build conformance

package conformance

import (
	"encoding/json"
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

// TestPinsByCommand promises that a user with an API key and a profile, on a machine without a node, adds files and folders,
// imports a CAR, pins, lists, reads and removes pins; that the CIDs are those of holdfast add on a node; that the commands
// go on while a node is down, and when one dies in the middle of an upload, which then has one pin; and that a key
// that may only read, and another account, are refused.
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
	user := newPinClient(t, nodes, node.UserKey("ann@example.org").Token)
	other := newPinClient(t, nodes, node.UserKey("bob@example.org").Token)
	reader := newPinClient(t, nodes, node.Key("ann@example.org", "--scope", "storage:read").Token)

	files := oddFolder()
	dir, file := writeFiles(t, "odd", files), filepath.Join(t.TempDir(), "notes.txt")
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
}
