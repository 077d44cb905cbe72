//go:build conformance

package conformance

import (
	"bytes"
	"fmt"
	"io/fs"
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

// TestNodesStoreCiphertextAlone promises that no node has the bytes, names or types of encrypted files in its data
// folder (acceptance row 258). The search covers the logs and Raft snapshots. It finds those of a plain upload, in a
// snapshot too.
func TestNodesStoreCiphertextAlone(t *testing.T) {
	t.Parallel() // a cluster of its own
	cluster := harness.Start(t, harness.Options{})
	c := newClient(t, cluster, "searched")
	words := func(mark string) []string {
		return []string{"plaintext-of-" + mark, "folder-of-" + mark, "file-of-" + mark, "application/x-" + mark}
	}
	upload := func(mark string, flags ...string) {
		dir := t.TempDir()
		path := filepath.Join(dir, "folder-of-"+mark, "file-of-"+mark)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		overwrite(t, path, []byte(strings.Repeat("plaintext-of-"+mark+"\n", 100_000)))
		c.run(append([]string{"sync", dir, "s3://searched/" + mark}, flags...)...)
		c.run(append([]string{"put", path, "s3://searched/folder-of-" + mark + "/typed", "--content-type", "application/x-" + mark}, flags...)...)
		c.run(append([]string{"get", "--verify", "s3://searched/folder-of-" + mark + "/typed", filepath.Join(dir, "back")}, flags...)...)
	}
	upload("quetzalcoatl", "--encrypt")
	upload("tezcatlipoca")
	c.takeSnapshot()
	for _, n := range cluster.Nodes {
		n.Stop() // everything is on disk
	}
	for _, word := range words("quetzalcoatl") {
		if places := placesOf(t, cluster, word); len(places) > 0 {
			t.Errorf("%q of an encrypted upload is in %q", word, places)
		}
	}
	for _, word := range words("tezcatlipoca") {
		places := placesOf(t, cluster, word)
		if len(places) == 0 {
			t.Errorf("the search does not find %q of a plain upload", word)
		}
		inSnapshot := slices.ContainsFunc(places, func(path string) bool { return strings.Contains(path, "/raft/") && !strings.Contains(path, ".db") })
		if !inSnapshot && !strings.HasPrefix(word, "plaintext") { // content is not replicated by Raft
			t.Errorf("%q of a plain upload is in %q, and in no Raft snapshot", word, places)
		}
	}
}

// takeSnapshot makes the log of the leader so long that it takes a snapshot of the state for a
// fourth member.
func (c *clientOf) takeSnapshot() {
	c.t.Helper()
	const (
		clients = 16
		length  = 3 << 20 // of entries: a leader renews its snapshot for a newcomer from 2 MiB on
	)
	pad := strings.Repeat("x", 1900) // of the 2 KiB that user metadata may have
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for i := range length / len(pad) / clients {
				key := fmt.Sprintf("/searched/filler-%d-%d", client, i)
				r, err := c.tryOn(c.cluster.Nodes[client%3], http.MethodPut, key, nil, "x-amz-meta-pad", pad)
				if err != nil || r.Status != http.StatusOK {
					c.t.Errorf("PUT %s: %d, %v", key, r.Status, err)
					return
				}
			}
		})
	}
	all.Wait()
	c.cluster.Add(c.cluster.JoinArgs(true)...)
	c.cluster.Settle()
	harness.Eventually(c.t, time.Minute, "the leader has a Raft snapshot", func() (bool, error) {
		snapshots, err := filepath.Glob(filepath.Join(c.cluster.Leader().Dir, "raft", "*-*-*"))
		whole := func(name string) bool { return filepath.Ext(name) == "" }
		return err == nil && slices.ContainsFunc(snapshots, whole), err
	})
}

// placesOf returns the files of all nodes that contain a word, and the names of the nodes whose
// output contains it.
func placesOf(t *testing.T, cluster *harness.Cluster, word string) (places []string) {
	t.Helper()
	for _, n := range cluster.Nodes {
		err := filepath.WalkDir(n.Dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if err == nil && (bytes.Contains(data, []byte(word)) || strings.Contains(path, word)) {
				places = append(places, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(n.Log(), word) {
			places = append(places, "the output of "+n.Name)
		}
	}
	return places
}
