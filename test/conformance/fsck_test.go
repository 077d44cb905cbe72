//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// fsck runs the command on a node and returns what it found. It fails the test if the exit code and the
// result do not agree.
func fsck(t *testing.T, n *harness.Node) client.Checked {
	t.Helper()
	r := n.TryCLI("", "fsck", "--json")
	var found client.Checked
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil {
		t.Fatalf("%s: %v: %+v", n.Name, err, r)
	}
	if sound := len(found.Differences) == 0 && found.More == 0; sound != (r.Code == 0) || !sound && (r.Code != 1 || !strings.Contains(r.Stderr, "difference")) {
		t.Errorf("%s: exit code %d, %s, with %+v", n.Name, r.Code, r.Stderr, found)
	}
	return found
}

// workAll leaves pins and objects of all kinds in a cluster, and changes and deletes some of them.
func workAll(t *testing.T, c *harness.Cluster) {
	t.Helper()
	s := newService(t, c, "fsck@example.org")
	source := harness.StartBoxo(t)
	files := source.AddRandom(6, 200_000)
	var ids []string
	for i, f := range files {
		meta := map[string]string{"app": "fsck", "n": fmt.Sprint(i)}
		ids = append(ids, s.post(harness.Pin{CID: f.CID, Origins: source.Addrs, Name: fmt.Sprint("file ", i), Meta: meta}).RequestID)
	}
	for _, id := range ids {
		s.pinned(id)
	}
	s.delete(ids[0])
	s.pinned(s.replace(ids[1], harness.Pin{CID: files[2].CID, Name: "replaced", Meta: map[string]string{"app": "other"}}).RequestID)
	s.post(harness.Pin{CID: nowhere().String(), Name: "that nobody has"})

	o := newObjects(t, c, "fsckobjects@example.org")
	for _, bucket := range []string{"/fsck", "/fsck-public"} {
		o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	}
	o.setPublic("/fsck-public", true)
	versions := o.versioned("fsck-versions", "Enabled")
	for i := range 6 {
		for _, bucket := range []string{"/fsck", "/fsck-public", versions} {
			o.ok(http.StatusOK, http.MethodPut, fmt.Sprint(bucket, "/", i), harness.BytesOf(uint64(i), 100_000), "x-amz-meta-n", fmt.Sprint(i), "x-amz-tagging", "a=b")
		}
	}
	for i := range 3 {
		o.ok(http.StatusNoContent, http.MethodDelete, fmt.Sprint("/fsck/", i), nil)
		o.ok(http.StatusNoContent, http.MethodDelete, fmt.Sprint(versions, "/", i), nil)
		o.ok(http.StatusOK, http.MethodPut, fmt.Sprint(versions, "/5"), harness.BytesOf(uint64(100+i), 50_000))
	}
	o.upload("/fsck/parts", harness.RandomBytes(5<<20), harness.RandomBytes(1000))
	o.part("/fsck/open", o.begin("/fsck/open"), 1, harness.RandomBytes(300_000))
	aborted := o.begin("/fsck/aborted")
	o.part("/fsck/aborted", aborted, 1, harness.RandomBytes(300_000))
	o.ok(http.StatusNoContent, http.MethodDelete, "/fsck/aborted?uploadId="+aborted, nil)
	o.setPublic("/fsck-public", false)

	c.Nodes[0].CLI("user", "quota", "fsck@example.org", "1GiB")
	c.Nodes[0].CLI("user", "grant", "fsck@example.org", "50")
	c.Nodes[0].CLI("key", "create", "--user", "fsck@example.org", "--name", "another")
	gone := newObjects(t, c, "fsckgone@example.org")
	gone.ok(http.StatusOK, http.MethodPut, "/fsck-gone", nil)
	gone.ok(http.StatusOK, http.MethodPut, "/fsck-gone/x", []byte("x"))
	c.Nodes[0].CLI("user", "rm", "--yes", "fsckgone@example.org")
}

// TestFsckFindsWhatDiffersAndNothingElse promises that `holdfast fsck` finds no difference on any node of a
// cluster that has worked and still works, and that it names a reference count that is wrong in the block store
// of one node, with exit code 1.
func TestFsckFindsWhatDiffersAndNothingElse(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, harness.Options{Replication: 2, Env: shortFetch})
	workAll(t, c)
	o := newObjects(t, c, "fsckmeanwhile@example.org")
	o.ok(http.StatusOK, http.MethodPut, "/fsck-meanwhile", nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		var err error
		for i := 0; ctx.Err() == nil && err == nil; i++ {
			path := fmt.Sprint("/fsck-meanwhile/", i%10)
			for _, method := range []string{http.MethodPut, http.MethodDelete} {
				var r reply
				if r, err = o.tryFor(context.Background(), c.Nodes[i%3], method, path, harness.BytesOf(uint64(i), 20_000)); err == nil && r.Status >= 300 {
					err = fmt.Errorf("%s %s: %d %s", method, path, r.Status, r.Body)
				}
			}
		}
		ended <- err
	}()
	for _, n := range c.Nodes {
		if found := fsck(t, n); len(found.Differences) > 0 || found.Rows < 300 || found.Copies < 5 || found.Blocks < 30 {
			t.Errorf("%s: %+v", n.Name, found)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if out := c.Nodes[0].CLI("fsck"); !strings.HasPrefix(out, "no differences\n") || !strings.Contains(out, " rows of the state at log entry ") {
		t.Errorf("%q", out)
	}

	broken := c.Nodes[1]
	broken.Stop()
	miscount(t, broken)
	broken.Restart()
	if err := broken.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := broken.TryCLI("", "fsck")
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	if r.Code != 1 || len(lines) != 2 || !strings.HasPrefix(lines[0], "references of block ") || !strings.Contains(lines[0], ": stored 8, of which 0 are hidden, computed 1, ") || !strings.Contains(r.Stderr, "1 difference") {
		t.Errorf("%+v", r)
	}
	if found := fsck(t, c.Nodes[0]); len(found.Differences) > 0 {
		t.Errorf("another node: %+v", found)
	}
}

// miscount adds 7 to the reference count of a block that one visible reference of a stopped node includes.
func miscount(t *testing.T, n *harness.Node) {
	t.Helper()
	index, err := kv.Open(filepath.Join(n.Dir, "blocks", "index"), kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx := index.Begin()
	var key, value []byte
	err = tx.Scan([]byte("b"), []byte("c"), false, func(k, v []byte) (bool, error) { // see storage/blocks/index.go
		if len(v) == 16 && binary.BigEndian.Uint32(v[12:]) == 1 {
			key, value = bytes.Clone(k), bytes.Clone(v)
		}
		return key == nil, nil
	})
	if err != nil || key == nil {
		t.Fatalf("no block with one reference: %v", err)
	}
	binary.BigEndian.PutUint32(value[12:], 8)
	if err := errors.Join(tx.Set(key, value), tx.Commit(true), index.Close()); err != nil {
		t.Fatal(err)
	}
}
