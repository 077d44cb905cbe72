//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// savedCluster is a cluster with content, an account and a backup, whose nodes have ended.
type savedCluster struct {
	*harness.Cluster
	file         string // path of the backup
	id           string // id of the cluster
	secret       string // path of a copy of the cluster secret
	cid          string // CID of a file with the content data, which the operator has pinned
	data, object []byte // content of the pin and of a large object
	key, revoked harness.Key
	before       []string // names of objects that were acknowledged before the backup
}

// backupLine is the output of backup --json.
type backupLine struct {
	ClusterID string `json:"cluster_id"`
	Index     uint64 `json:"index"`
	StateHash string `json:"state_hash"`
	Bytes     int64  `json:"bytes"`
	File      string
	Deleted   []string
}

// saved makes a cluster, backs it up while objects are put through all nodes, and kills all nodes.
func saved(t *testing.T) *savedCluster {
	t.Helper()
	c := harness.Start(t, harness.Options{})
	s := &savedCluster{Cluster: c, data: harness.BytesOf(7, 3_000_000), object: harness.BytesOf(8, 100_000)}
	first, last := c.Nodes[0], c.Nodes[2]
	s.cid = strings.TrimSpace(first.CLI("add", fileOf(t, string(s.data))))
	s.key, s.revoked = first.UserKey("ann@example.org"), first.Key("ann@example.org")
	first.CLI("key", "revoke", s.revoked.ID)
	put := func(n *harness.Node, path string, body []byte) error {
		r, err := n.S3(t.Context(), s.key.Token, http.MethodPut, path, bytes.NewReader(body), int64(len(body)))
		if err == nil && r.Status != http.StatusOK {
			err = fmt.Errorf("PUT %s: %d %s", path, r.Status, r.Body)
		}
		return err
	}
	if err := errors.Join(put(first, "/saved", nil), put(first, "/saved/large", s.object)); err != nil {
		t.Fatal(err)
	}
	first.CLI("user", "grant", "ann@example.org", "17")
	folder := t.TempDir()
	first.CLI("backup", folder) // an earlier one, which the next one replaces
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var work sync.WaitGroup
	for i, n := range c.Nodes {
		work.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				name := fmt.Sprintf("/saved/%d-%d", i, j)
				if err := put(n, name, []byte(name)); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				s.before = append(s.before, name)
				mu.Unlock()
			}
		})
	}
	harness.Eventually(t, time.Minute, "objects are put", func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return len(s.before) >= 30, nil
	})
	mu.Lock()
	acked := len(s.before)
	mu.Unlock()
	var line backupLine
	if err := json.Unmarshal([]byte(last.CLI("backup", folder, "--keep", "1", "--json")), &line); err != nil {
		t.Fatal(err)
	}
	cancel()
	work.Wait()
	s.before, s.id, s.file = s.before[:acked], line.ClusterID, line.File
	if files, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || !slices.Equal(files, []string{s.file}) || len(line.Deleted) != 1 {
		t.Errorf("files %v, %v: %+v", files, err, line)
	}
	info, err := os.Stat(s.file)
	if err != nil || info.Size() != line.Bytes || info.Mode().Perm() != 0o600 || line.ClusterID != first.Status().ClusterID {
		t.Fatalf("%+v: %+v, %v", line, info, err)
	}
	s.testQuiet(t)
	s.secret = filepath.Join(t.TempDir(), "old.secret")
	secret, err := os.ReadFile(c.SecretFile())
	if err = errors.Join(err, os.WriteFile(s.secret, secret, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		n.Kill()
	}
	return s
}

// testQuiet compares the hash in a backup with that of the nodes at the same index, while nobody writes.
func (s *savedCluster) testQuiet(t *testing.T) {
	t.Helper()
	harness.Eventually(t, time.Minute, "a backup and a node at one index", func() (bool, error) {
		var line backupLine
		if err := json.Unmarshal([]byte(s.Nodes[1].CLI("backup", filepath.Join(t.TempDir(), "b"), "--json")), &line); err != nil {
			return false, err
		}
		h, err := s.Nodes[0].StateHash(t.Context())
		if err != nil || h.Index != line.Index {
			return false, err
		}
		if h.Hash.String() != line.StateHash {
			t.Fatalf("the backup has hash %s at %d, and a node %s", line.StateHash, line.Index, h.Hash)
		}
		return true, nil
	})
}

// TestARestoredClusterHasEverything promises that a backup under load, restored into an empty folder that two more
// nodes join, has everything that was acknowledged before it: keys work, a revoked key is refused, all states are
// equal, a node with the old secret is refused, and content without blocks is unavailable and not gone. When the old
// folders of blocks are back, all content is.
func TestARestoredClusterHasEverything(t *testing.T) {
	t.Parallel() // it mostly waits
	old := saved(t)
	dir, err := os.MkdirTemp("", "hf-") // a short path for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	folders := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")}
	r := harness.Run(t, nil, "", "restore", old.file, "--data", folders[0])
	if r.Code != 0 || !strings.Contains(r.Stdout, old.id) || r.Stderr != "" {
		t.Fatalf("restore: %+v", r)
	}
	if again := harness.Run(t, nil, "", "restore", old.file, "--data", folders[0]); again.Code != 1 || !strings.Contains(again.Stderr, "not empty") || !oneLine(again.Stderr) {
		t.Errorf("a second restore: %+v", again)
	}
	c := harness.Start(t, harness.Options{Nodes: 1, Folders: folders, ByTicket: true, Env: shortFetch})
	first := c.Nodes[0]
	if got := first.Status(); got.ClusterID == old.id || len(got.Peers) != 1 {
		t.Errorf("%+v", got)
	}
	old.testAccess(t, first)
	t.Run("without blocks", func(t *testing.T) { old.testWithoutBlocks(t, first.As(t)) })
	if err := os.Mkdir(folders[1], 0o700); err != nil {
		t.Fatal(err)
	}
	stranger := c.Prepare("--join", first.Status().Node.ClusterAddrs[0], "--secret-file", old.secret)
	stranger.Restart()
	harness.Eventually(t, refusedWithin, "the old secret is refused", func() (bool, error) { return !stranger.Running(), nil })
	if code := stranger.ExitCode(); code == 0 || !strings.Contains(stranger.Log(), "the secret may be wrong") {
		t.Errorf("with the old secret: exit code %d, %s", code, stranger.Log())
	}
	c.Nodes = c.Nodes[:1]
	for i, to := range folders[1:] {
		if err := errors.Join(os.RemoveAll(to), os.Mkdir(to, 0o700), os.Rename(filepath.Join(old.Nodes[i].Dir, "blocks"), filepath.Join(to, "blocks"))); err != nil {
			t.Fatal(err)
		}
		c.Add(c.JoinArgs(true)...)
	}
	c.Settle()
	old.testContent(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.SameState(ctx); err != nil {
		t.Error(err)
	}
	for i, n := range c.Nodes {
		old.testAccess(t, n.As(t))
		if _, err := n.Pins(old.key.Token).List(t.Context(), nil); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
	}
	if out := first.CLI("audit", "ls", "--action", "cluster.restore"); strings.Count(out, "cluster.restore") != 1 {
		t.Errorf("audit log: %s", out)
	}
	first.CLI("audit", "verify")
	for _, n := range c.Nodes {
		n.As(t).CLI("fsck")
	}
}

// testAccess promises that the keys of the old cluster are what they were.
func (s *savedCluster) testAccess(t *testing.T, n *harness.Node) {
	t.Helper()
	for token, want := range map[string]int{s.key.Token: http.StatusOK, s.revoked.Token: http.StatusUnauthorized} {
		r, err := n.Pins(token).Do(t.Context(), http.MethodGet, "/pins", nil, nil)
		if err != nil || r.Status != want {
			t.Errorf("%s: %d, want %d, %v", n.Name, r.Status, want, err)
		}
	}
	if out := n.CLI("user", "ledger", "ann@example.org"); !strings.Contains(out, "17") {
		t.Errorf("%s: ledger: %s", n.Name, out)
	}
}

// testWithoutBlocks promises that content without any copy is unavailable, and its pin stays pinned although all
// attempts to fetch it fail.
func (s *savedCluster) testWithoutBlocks(t *testing.T, n *harness.Node) {
	harness.Eventually(t, 2*time.Minute, "a fetch fails", func() (bool, error) { return strings.Contains(n.Log(), "fetch failed"), nil })
	head, err := n.S3(t.Context(), s.key.Token, http.MethodHead, "/saved/large", nil, 0)
	if err != nil || head.Status != http.StatusOK {
		t.Errorf("HEAD: %d, %v", head.Status, err)
	}
	got, err := n.S3(t.Context(), s.key.Token, http.MethodGet, "/saved/large", nil, 0)
	if err != nil || got.Status != http.StatusServiceUnavailable {
		t.Errorf("GET: %d %s, %v", got.Status, got.Body, err)
	}
	if r := n.TryCLI("", "get", s.cid); r.Code != 1 || !oneLine(r.Stderr) {
		t.Errorf("get: %+v", r)
	}
	if out := n.CLI("pin", "ls", "--cid", s.cid, "--status", "pinned", "--json"); !strings.Contains(out, s.cid) {
		t.Errorf("pins: %s", out)
	}
	if got := n.Status().Pins; got.Failed != 0 || got.UnderReplicated == 0 {
		t.Errorf("pins: %+v", got)
	}
}

// testContent promises that every node reads all content, and has it.
func (s *savedCluster) testContent(t *testing.T, c *harness.Cluster) {
	t.Helper()
	harness.Eventually(t, 3*time.Minute, "all copies are there", func() (bool, error) {
		got, err := c.Nodes[0].StatusNow()
		return err == nil && got.Pins.UnderReplicated == 0 && got.Pins.Failed == 0, fmt.Errorf("%+v, %w", got.Pins, err)
	})
	for _, n := range c.Live() {
		if got := n.CLI("get", s.cid); got != string(s.data) {
			t.Errorf("%s: %d bytes of the pin, want %d", n.Name, len(got), len(s.data))
		}
		for _, path := range append([]string{"/saved/large"}, s.before...) {
			want := []byte(path)
			if path == "/saved/large" {
				want = s.object
			}
			r, err := n.S3(t.Context(), s.key.Token, http.MethodGet, path, nil, 0)
			if err != nil || r.Status != http.StatusOK || !bytes.Equal(r.Body, want) {
				t.Fatalf("%s: GET %s: %d, %d bytes, %v", n.Name, path, r.Status, len(r.Body), err)
			}
		}
	}
}

// TestASurvivorContinuesTheCluster promises that after two of three members are lost, the API answers 503 and status
// exits with 1, recover works on the third with the flag only and only while it does not run, and the cluster goes on
// with two new members and all copies; a lost member that comes back is refused, and joins again with a ticket.
func TestASurvivorContinuesTheCluster(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{ByTicket: true})
	survivor, data := c.Nodes[1], harness.BytesOf(9, 2_500_000)
	cid := strings.TrimSpace(c.Nodes[0].CLI("add", fileOf(t, string(data))))
	key := c.Nodes[0].UserKey("ann@example.org")
	harness.Eventually(t, time.Minute, "three copies", func() (bool, error) {
		s, err := survivor.StatusNow()
		if err != nil {
			return false, err
		}
		for _, p := range s.Peers {
			if p.Pins != 1 {
				return false, fmt.Errorf("%s has %d", p.Name, p.Pins)
			}
		}
		return s.Pins.UnderReplicated == 0, nil
	})
	id := survivor.Status().ClusterID
	c.Nodes[0].Kill()
	c.Nodes[2].Kill()
	harness.Eventually(t, time.Minute, "no majority", func() (bool, error) {
		r, err := survivor.Pins(key.Token).Do(t.Context(), http.MethodGet, "/pins", nil, nil)
		return r.Status == http.StatusServiceUnavailable, err
	})
	for _, tc := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"status"}, 1, "cannot write"},
		{[]string{"recover"}, 2, "--i-lost-quorum"},
		{[]string{"recover", "--i-lost-quorum"}, 1, "stop it first"},
		{[]string{"backup", "b"}, 1, ""},
	} {
		if r := survivor.TryCLI("", tc.args...); r.Code != tc.code || !strings.Contains(r.Stderr, tc.says) || !oneLine(r.Stderr) {
			t.Errorf("%v: %+v", tc.args, r)
		}
	}
	survivor.Stop()
	if out := survivor.CLI("recover", "--i-lost-quorum"); !strings.Contains(out, id) || !strings.Contains(out, "removed 2 members") {
		t.Errorf("recover: %s", out)
	}
	survivor.Restart()
	if err := survivor.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := survivor.Status(); s.ClusterID != id || len(s.Peers) != 1 {
		t.Errorf("%+v", s)
	}
	lost := c.Nodes[0]
	lost.Restart()
	ticket := func() []string { return []string{"--join", strings.TrimSpace(survivor.CLI("token"))} }
	c.Add(ticket()...)
	harness.Eventually(t, 2*time.Minute, "the lost member ends", func() (bool, error) { return !lost.Running(), nil })
	if code := lost.ExitCode(); code == 0 || !strings.Contains(lost.Log(), "was removed from the cluster") {
		t.Errorf("a lost member that comes back: exit code %d, %s", code, lost.Log())
	}
	lost.AddArgs(ticket()...)
	lost.Restart()
	c.Settle()
	harness.Eventually(t, 3*time.Minute, "three copies again", func() (bool, error) {
		s, err := survivor.StatusNow()
		return err == nil && len(s.Peers) == 3 && s.Pins.UnderReplicated == 0 && s.Pins.Pinned == 1, fmt.Errorf("%+v, %w", s.Pins, err)
	})
	for _, n := range c.Live() {
		if got := n.CLI("get", cid); got != string(data) {
			t.Errorf("%s: %d bytes, want %d", n.Name, len(got), len(data))
		}
		if _, err := n.Pins(key.Token).List(t.Context(), nil); err != nil {
			t.Errorf("%s: %v", n.Name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.SameState(ctx); err != nil {
		t.Error(err)
	}
	survivor.CLI("fsck")
}

// TestOnlyAWholeBackupIsRestored promises that a backup that is cut off or changed leaves no folder, that - is standard
// input and output, and that an existing file is kept if no backup can be read.
func TestOnlyAWholeBackupIsRestored(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Nodes: 1})
	whole := c.Nodes[0].CLI("backup", "-")
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Nodes[0].Stop()
	if r := c.Nodes[0].TryCLI("", "backup", kept); r.Code != 1 || !oneLine(r.Stderr) {
		t.Errorf("no node runs: %+v", r)
	}
	if got, err := os.ReadFile(kept); err != nil || string(got) != "kept" {
		t.Errorf("%q, %v", got, err)
	}
	changed := []byte(whole)
	changed[len(changed)/2] ^= 1
	for name, tc := range map[string]struct{ data, says string }{
		"cut off": {whole[:len(whole)-1], "cut off or damaged"},
		"changed": {string(changed), "cut off or damaged"},
		"other":   {"no backup at all, but a file with some text", "no backup of Holdfast"},
		"empty":   {"", "no backup of Holdfast"},
	} {
		to, file := filepath.Join(dir, "to"), filepath.Join(dir, "file")
		if err := os.WriteFile(file, []byte(tc.data), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, from := range []string{file, "-"} {
			r := harness.Run(t, nil, tc.data, "restore", from, "--data", to)
			if r.Code != 1 || !strings.Contains(r.Stderr, tc.says) || !oneLine(r.Stderr) {
				t.Errorf("%s, %s: %+v", name, from, r)
			}
			if _, err := os.Stat(to); !os.IsNotExist(err) {
				t.Errorf("%s, %s: the folder is there: %v", name, from, err)
			}
		}
	}
	if r := harness.Run(t, nil, whole, "restore", "-", "--data", filepath.Join(dir, "to"), "--json"); r.Code != 0 || !strings.Contains(r.Stdout, `"former_members": 1`) {
		t.Errorf("a whole one: %+v", r)
	}
}
