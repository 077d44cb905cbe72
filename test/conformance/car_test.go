//go:build conformance

package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// goldenCARs is the folder of CARs that other programs made.
const goldenCARs = "../../peer/dag/testdata/car"

// carFileBytes is the size of the file that goes into a CAR.
const carFileBytes = 7_200_000

// TestCARs promises that a CAR goes into a cluster through one node and comes out of another with the same bytes, that
// the import of it by another cluster pins the content, and that a CAR that is not whole pins nothing.
func TestCARs(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Replication: 1})
	first, last := c.Nodes[0], c.Nodes[2]
	data := bytes.Repeat([]byte("content of a file of several blocks\n"), carFileBytes/36) // 7 blocks and a root
	root := strings.TrimSpace(first.CLI("add", fileOf(t, string(data))))
	path := filepath.Join(t.TempDir(), "file.car")
	var whole []byte
	for i, n := range c.Nodes { // at least one of them has no block
		n.CLI("car", "export", root, "-o", path)
		got, err := os.ReadFile(path)
		if err != nil || len(got) < len(data) || whole != nil && !bytes.Equal(got, whole) {
			t.Fatalf("node %d exports %d bytes, the first one %d: %v", i, len(got), len(whole), err)
		}
		whole = got
	}
	if out := last.CLI("car", "export", "/ipfs/"+root, "--user", "operator@localhost"); out != string(whole) {
		t.Errorf("%d bytes to standard output, want %d", len(out), len(whole))
	}

	other := harness.Start(t, harness.Options{})
	t.Run("broken", func(t *testing.T) { testBrokenCARs(t, other.As(t), whole) })
	t.Run("whole", func(t *testing.T) {
		other := other.As(t)
		if out := other.Nodes[0].CLI("car", "import", path); out != root+"\n" {
			t.Errorf("import prints %q, want %s", out, root)
		}
		for i, n := range other.Nodes {
			if out := n.CLI("get", root); out != string(data) {
				t.Errorf("node %d: %d bytes, want %d", i, len(out), len(data))
			}
		}
		if out := other.Nodes[1].CLI("pin", "ls", "--json", "--cid", root, "--status", "pinned"); !strings.Contains(out, `"file.car"`) {
			t.Errorf("pins: %s", out)
		}
	})
	t.Run("of go-car", func(t *testing.T) { testCARsOfGoCar(t, other.As(t)) })
}

// testBrokenCARs imports CARs that are not whole into a cluster without pins.
func testBrokenCARs(t *testing.T, c *harness.Cluster, whole []byte) {
	wrong := bytes.Clone(whole)
	wrong[len(wrong)/2] ^= 1
	leaf := carFileBytes%(1<<20) + 36 // bytes of the last block and its CID
	leaf += len(binary.AppendUvarint(nil, uint64(leaf)))
	for name, tc := range map[string]struct {
		data []byte
		says string
	}{
		"cut off":           {whole[:len(whole)-1], "the file ends in a block"},
		"a wrong byte":      {wrong, "do not hash to"},
		"no CAR":            {[]byte(strings.Repeat("no CAR ", 1000)), "not valid: at byte 0"},
		"large, and no CAR": {bytes.Repeat([]byte("no CAR "), 3_000_000), "not valid: at byte 0"}, // refused long before its end
		"empty":             {nil, "the file ends"},
		"without a leaf":    {whole[:len(whole)-leaf], "not complete, and no member has the rest"},
	} {
		r := c.Nodes[0].TryCLI(string(tc.data), "car", "import", "-")
		if r.Code != 1 || r.Stdout != "" || !oneLine(r.Stderr) || !strings.Contains(r.Stderr, tc.says) {
			t.Errorf("%s: exit code %d, %q, %q", name, r.Code, r.Stdout, r.Stderr)
		}
	}
	if out := strings.TrimSpace(c.Nodes[1].CLI("pin", "ls", "--json")); out != "[]" {
		t.Errorf("pinned: %s", out)
	}
	absent := nowhere().String()
	path := filepath.Join(t.TempDir(), "absent.car")
	if r := c.Nodes[0].TryCLI("", "car", "export", absent, "-o", path); r.Code != 1 || !oneLine(r.Stderr) || !strings.Contains(r.Stderr, absent) {
		t.Errorf("export of what nobody has: exit code %d, %q", r.Code, r.Stderr)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("export of what nobody has leaves a file: %v", err)
	}
}

// testCARsOfGoCar imports a CAR of either version for an account, and exports it through another node.
func testCARsOfGoCar(t *testing.T, c *harness.Cluster) {
	folder, err := filepath.Abs(goldenCARs)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(folder, "v1.car"))
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes[0].UserKey("car@example.org")
	for i, name := range []string{"v1.car", "v2.car"} {
		root := strings.TrimSpace(c.Nodes[i].CLI("car", "import", filepath.Join(folder, name), "--user", "car@example.org", "--name", name))
		if out := c.Nodes[2].CLI("car", "export", root, "--user", "car@example.org"); out != string(want) {
			t.Errorf("%s: %d bytes, want %d", name, len(out), len(want))
		}
	}
	if out := c.Nodes[2].CLI("pin", "ls", "--user", "car@example.org"); strings.Count(out, "pinned") != 2 {
		t.Errorf("pins of the account: %s", out)
	}
	c.Nodes[0].UserKey("poor@example.org")
	c.Nodes[0].CLI("user", "quota", "poor@example.org", "10")
	if r := c.Nodes[0].TryCLI("", "car", "import", filepath.Join(folder, "v1.car"), "--user", "poor@example.org"); r.Code != 1 || r.Stdout != "" || !oneLine(r.Stderr) {
		t.Errorf("above the quota: exit code %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	if r := c.Nodes[0].TryCLI("", "car", "import", filepath.Join(folder, "v1.car"), "--user", "nobody@example.org"); r.Code != 1 || !oneLine(r.Stderr) {
		t.Errorf("for an account that does not exist: exit code %d, %q", r.Code, r.Stderr)
	}
}

// TestCARsOfKubo promises that a cluster pins what `ipfs dag export` of a stock Kubo writes, and writes the same bytes
// again, and that Kubo pins a CAR of the cluster.
func TestCARsOfKubo(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c, kubo := harness.Start(t, harness.Options{}), harness.StartKubo(t)
	dir := t.TempDir()
	for i := range 40 {
		path := filepath.Join(dir, strings.Repeat("d", i%3+1), fmt.Sprint("file ", i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, bytes.Repeat([]byte{byte(i)}, i*40_000), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, flags := range [][]string{{"--cid-version=1"}, {"--cid-version=0"}, {"--cid-version=1", "--inline", "--max-directory-links=4"}} {
		root := kubo.Do(append(append([]string{"add", "--recursive", "--quieter"}, flags...), dir)...)
		want, err := kubo.Try("", "dag", "export", "--progress=false", root)
		if err != nil {
			t.Fatal(err)
		}
		if out := c.Nodes[0].CLIWithInput(want, "car", "import", "-"); out != root+"\n" {
			t.Errorf("%v: import prints %q, want %s", flags, out, root)
		}
		if got := c.Nodes[1].CLI("car", "export", root); got != want {
			t.Errorf("%v: %d other bytes than the %d of Kubo", flags, len(got), len(want))
		}
	}
	data := strings.Repeat("a file of the cluster\n", 200_000)
	added := strings.TrimSpace(c.Nodes[2].CLI("add", fileOf(t, data)))
	out, err := kubo.Try(c.Nodes[0].CLI("car", "export", added), "dag", "import")
	if err != nil || !strings.Contains(out, added) || !strings.Contains(out, "success") {
		t.Errorf("Kubo imports %q: %v", out, err)
	}
	if got, err := kubo.Try("", "--offline", "cat", added); err != nil || got != data {
		t.Errorf("Kubo has %d bytes, want %d: %v", len(got), len(data), err)
	}
}
