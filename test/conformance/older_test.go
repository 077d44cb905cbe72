//go:build conformance

package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestAnOlderReleaseIsRefusedByANewerCluster promises that a program that does not know the feature level of the
// cluster ends with a sentence that says so, and becomes no member. The program is this one, built with another
// constant. The ticket and the folder are good for the release that is new enough.
func TestAnOlderReleaseIsRefusedByANewerCluster(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits for the compiler
	older := buildOlder(t)
	c := harness.Start(t, harness.Options{Nodes: 1})
	n := c.Nodes[0]
	ticket := strings.TrimSpace(n.CLI("token"))
	members := idsOf(n)
	joiner := c.Prepare("--join", ticket)
	args := []string{
		"run", "--data", joiner.Dir, "--routing", "off", "--listen", "/ip4/127.0.0.1/tcp/0", "--cluster-listen", "/ip4/127.0.0.1/tcp/0",
		"--pinning-listen", "127.0.0.1:0", "--s3-listen", "127.0.0.1:0", "--console-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
	}
	for _, way := range [][]string{
		{"--join", ticket},
		{"--join", n.Status().Node.ClusterAddrs[0], "--secret-file", c.SecretFile()},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), clientTimeout) // a node that is not refused runs on
		cmd := exec.CommandContext(ctx, older, append(args, way...)...)
		cmd.Env = []string{"HOME=" + t.TempDir()}
		out, err := cmd.CombinedOutput()
		cancel()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		last := lines[len(lines)-1]
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.HasPrefix(last, "holdfast: ") ||
			!strings.Contains(last, "the cluster is at level ") || !strings.HasSuffix(last, ": upgrade the node") {
			t.Errorf("%v: %v, it says\n%s", way[0], err, out)
		}
		if now := idsOf(n); !slices.Equal(now, members) {
			t.Errorf("the members are %v and were %v", now, members)
		}
	}
	joiner.Restart()
	if err := joiner.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if peers := n.Status().Peers; len(peers) != 2 {
		t.Errorf("%d members with the one that was upgraded", len(peers))
	}
}

// idsOf returns the ids of the members of a node's cluster.
func idsOf(n *harness.Node) (ids []string) {
	for _, p := range n.Status().Peers {
		ids = append(ids, p.ID)
	}
	return ids
}

// buildOlder builds the program as a release that has no feature level from that of shares on.
func buildOlder(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.FromSlash("../.."))
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, "consensus", "state", "featurelevel.go")
	newest := regexp.MustCompile(`(?m)^(const NewestFeatureLevel FeatureLevel = )\d+$`)
	text := read(t, source)
	if len(newest.FindAll(text, -1)) != 1 {
		t.Fatalf("%s does not declare the newest feature level once", source)
	}
	dir := t.TempDir()
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		source: overwrite(t, filepath.Join(dir, "featurelevel.go"), newest.ReplaceAll(text, []byte("${1}ShareLevel - 1"))),
	}})
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "holdfast")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overwrite(t, filepath.Join(dir, "overlay.json"), overlay), "-o", program, "./cmd/holdfast")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the older release: %v\n%s", err, out)
	}
	return program
}
