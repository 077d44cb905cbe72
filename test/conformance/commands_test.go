//go:build conformance

package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// fileOf returns a new file with a text.
func fileOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWhatCommandsCountAndName promises that commands name members, count pins and show accounts right in a cluster
// in which two of three members have one name.
func TestWhatCommandsCountAndName(t *testing.T) {
	t.Parallel() // a cluster of its own
	c := harness.Start(t, harness.Options{Nodes: 1, Args: []string{"--name", "alpha"}})
	for range 2 {
		c.Add(append(c.JoinArgs(true), "--name", "twin")...)
		c.Settle()
	}
	t.Run("names", func(t *testing.T) { testNamesOfMembers(t, c.As(t)) })
	t.Run("pins", func(t *testing.T) { testPinsOfMembers(t, c.As(t)) })
	t.Run("accounts", func(t *testing.T) { testWhatAnAccountHas(t, c.As(t)) })
}

// TestSizesJSONAndKeysOfAShell promises that commands accept sizes with a unit, print JSON, and give a key in the
// form for a shell.
func TestSizesJSONAndKeysOfAShell(t *testing.T) {
	t.Parallel()
	n := harness.Start(t, harness.Options{Nodes: 1, Env: []string{"HOLDFAST_ACCOUNTS_ALLOWANCE=500MB"}}).Nodes[0]
	type user struct {
		Email          string
		AllowanceBytes int64 `json:"allowance_bytes"`
		StoredBytes    int64 `json:"stored_bytes"`
	}
	read := func(into any, args ...string) {
		t.Helper()
		out := n.CLI(append(args, "--json")...)
		if err := json.Unmarshal([]byte(out), into); err != nil {
			t.Errorf("%v: %v in %q", args, err, out)
		}
	}
	var u user
	if read(&u, "user", "add", "ann@example.org"); u.Email != "ann@example.org" || u.AllowanceBytes != 500e6 {
		t.Errorf("with an allowance of 500MB: %+v", u)
	}
	if read(&u, "user", "quota", "ann@example.org", "10GiB"); u.AllowanceBytes != 10<<30 {
		t.Errorf("with 10GiB: %+v", u)
	}
	if out := n.CLI("user", "ls"); !strings.Contains(out, "  10737418240  ") {
		t.Errorf("programs read plain bytes: %s", out)
	}
	if r := n.TryCLI("", "user", "quota", "ann@example.org", "10G"); r.Code != 2 || !oneLine(r.Stderr) || !strings.Contains(r.Stderr, "10GiB") {
		t.Errorf("10G is of neither kind: %+v", r)
	}
	var added struct{ CID, RequestID, Status string }
	if read(&added, "add", fileOf(t, "some bytes")); added.CID == "" || added.RequestID == "" || added.Status != "pinned" {
		t.Errorf("add: %+v", added)
	}
	var some struct {
		Ticket, Version, Go string
		Blocks, Generation  int
	}
	for _, command := range []string{"token", "version", "scrub", "key rotate"} {
		read(&some, strings.Fields(command)...)
	}
	if some.Ticket == "" || some.Version == "" || some.Go == "" || some.Blocks == 0 || some.Generation != 1 {
		t.Errorf("%+v", some)
	}
	testKeyOfAShell(t, n)
}

// testKeyOfAShell has a shell evaluate a key, and uses it there as it is.
func testKeyOfAShell(t *testing.T, n *harness.Node) {
	script := `set -eu
eval "$1"
curl -sf -o /dev/null -H "Authorization: Bearer $HOLDFAST_TOKEN" "$2/pins"
curl -sf -o /dev/null -H "x-amz-content-sha256: UNSIGNED-PAYLOAD" --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" "$AWS_ENDPOINT_URL/"
`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "-", n.CLI("key", "create", "--user", "ann@example.org", "--env"), n.URL())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestCompletionIsLoadedByBash promises that bash loads the completion script and completes a command with it.
func TestCompletionIsLoadedByBash(t *testing.T) {
	script := `set -eu
PATH=$1:$PATH
source <(holdfast completion bash)
COMP_WORDS=(holdfast peers r) COMP_CWORD=2
_holdfast
printf '%s\n' "${COMPREPLY[@]}"
`
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script, "-", filepath.Dir(harness.Binary(t)))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "rm\n" {
		t.Errorf("peers r is completed to %q: %v", out, err)
	}
}

func testNamesOfMembers(t *testing.T, c *harness.Cluster) {
	var twins []string
	for _, p := range c.Nodes[0].Status().Peers {
		if p.Name == "twin" {
			twins = append(twins, p.ID)
		}
	}
	r := c.Nodes[0].TryCLI("", "peers", "rm", "twin")
	if r.Code != 1 || !oneLine(r.Stderr) || len(twins) != 2 || !strings.Contains(r.Stderr, twins[0]) || !strings.Contains(r.Stderr, twins[1]) {
		t.Errorf("two members are called twin, %v: exit code %d, %q", twins, r.Code, r.Stderr)
	}
	if r := c.Nodes[0].TryCLI("", "peers", "rm", "nobody"); r.Code != 1 || !strings.Contains(r.Stderr, `"nobody"`) {
		t.Errorf("nobody has the name: exit code %d, %q", r.Code, r.Stderr)
	}
	if n := len(c.Nodes[0].Status().Peers); n != 3 {
		t.Errorf("%d members are left", n)
	}
}

// testPinsOfMembers has one root with two pins and one that an object alone names.
func testPinsOfMembers(t *testing.T, c *harness.Cluster) {
	path := fileOf(t, "pinned twice")
	c.Nodes[0].CLI("add", path, "--name", "one")
	c.Nodes[1].CLI("add", path, "--name", "two")
	o := newObjects(t, c, "objects@example.org")
	o.ok(http.StatusOK, http.MethodPut, "/bucket", nil)
	o.ok(http.StatusOK, http.MethodPut, "/bucket/key", []byte("an object alone names this"))
	harness.Eventually(t, pinnedWithin, "each member holds two pins", func() (bool, error) {
		var rows []struct{ Pins int }
		out := c.Nodes[2].CLI("peers", "ls", "--json")
		if err := json.Unmarshal([]byte(out), &rows); err != nil {
			return false, err
		}
		for _, r := range rows {
			if r.Pins != 2 {
				return false, fmt.Errorf("%s", out)
			}
		}
		return len(rows) == 3, nil
	})
}

// testWhatAnAccountHas finds an account by the id that logs name, and counts old versions
// among what goes with it.
func testWhatAnAccountHas(t *testing.T, c *harness.Cluster) {
	const email = "leaves@example.org"
	o := newObjects(t, c, email)
	bucket := o.versioned("kept", "Enabled")
	for i := range 3 {
		o.put(bucket+"/key", fmt.Sprint("version ", i))
	}
	var shown struct {
		ID, Email         string
		Objects, Versions int
	}
	if err := json.Unmarshal([]byte(c.Nodes[1].CLI("user", "show", email, "--json")), &shown); err != nil || shown.Objects != 1 || shown.Versions != 2 {
		t.Errorf("%+v, %v", shown, err)
	}
	if out := c.Nodes[2].CLI("user", "show", shown.ID); !strings.Contains(out, email) {
		t.Errorf("user show %s: %s", shown.ID, out)
	}
	if out := c.Nodes[0].CLI("user", "rm", email); !strings.Contains(out, "1 bucket with 1 object and 2 old versions, 1 key, ") {
		t.Errorf("user rm says %q", out)
	}
}
