//go:build conformance

package conformance

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// ciphertexts returns the ETags of the encrypted files of a bucket by their storage keys. An ETag is
// that of the stored bytes.
func (c *clientOf) ciphertexts(bucket string) map[string]string {
	c.t.Helper()
	var rows []struct{ Key, ETag string }
	if err := json.Unmarshal([]byte(c.run("ls", "-r", "s3://"+bucket+"/e/", "--json")), &rows); err != nil {
		c.t.Fatal(err)
	}
	all := map[string]string{}
	for _, row := range rows {
		all[row.Key] = row.ETag
	}
	return all
}

// TestRewrapByCommand promises that holdfast rewrap, killed at random moments and run again, gives all files to a new
// identity and moves no content. The old identity and old shares open nothing afterwards. The cluster has three
// processes.
func TestRewrapByCommand(t *testing.T) {
	longForm(t)
	t.Parallel() // a cluster of its own
	cluster := harness.Start(t, harness.Options{})
	c := newClient(t, cluster, "rewrapped")
	from, to := t.TempDir(), t.TempDir()
	files := someFiles(t, from, 150, 17<<20)
	c.run("sync", "--encrypt", from, "s3://rewrapped/papers")
	link := c.shares("s3://rewrapped/papers", "--link")[0].Link
	before := c.ciphertexts("rewrapped")
	next := filepath.Join(c.home, "next")
	c.run("keygen", next, "--rotate", filepath.Join(c.home, "identity"), "--passphrase-file", filepath.Join(c.home, "passphrase"))
	rewrap := []string{"rewrap", "s3://rewrapped", "--to", next, "--to-passphrase-file", filepath.Join(c.home, "passphrase")}
	for range 3 {
		cmd, _ := c.start(rewrap...)
		timer := time.AfterFunc(rand.N(2*time.Second), func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // killed, or just done
		timer.Stop()
	}
	if out := c.run(rewrap...); !strings.HasPrefix(out, "rewrapped ") || !strings.HasSuffix(out, "failed 0\n") {
		t.Errorf("%q", out)
	}
	if out := c.run(rewrap...); out != "rewrapped 0 files, done before 0, failed 0\n" {
		t.Errorf("again: %q", out)
	}
	if after := c.ciphertexts("rewrapped"); !maps.Equal(after, before) || len(before) != len(files) {
		t.Errorf("%d objects, before %d, or other bytes", len(after), len(before))
	}
	if r := c.try("", "ls", "--encrypt", "s3://rewrapped"); r.Code != 1 || r.Stdout != "" || !strings.Contains(r.Stderr, "100 or more objects in s3://rewrapped are encrypted for other keys") {
		t.Errorf("the old identity lists %+v", r)
	}
	name := slices.Sorted(maps.Keys(files))[0]
	old := c.try("", "get", "--encrypt", "s3://rewrapped/papers/"+name, "-")
	if old.Code != 1 || old.Stdout != "" || !strings.Contains(old.Stderr, "cannot be opened with this key") {
		t.Errorf("the old identity: %+v", old)
	}
	newGuest(t, "").lists(link, nil)
	c.run("sync", "--encrypt", "--identity", next, "s3://rewrapped/papers", to)
	if got := filesOf(t, to); !maps.Equal(got, files) {
		t.Errorf("the new identity reads %d files of %d, or other bytes", len(got), len(files))
	}
}
