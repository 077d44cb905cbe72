//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// gc runs the command on a node.
func gc(t *testing.T, n *harness.Node) (freed client.Collected) {
	t.Helper()
	if err := json.Unmarshal([]byte(n.CLI("gc", "--json")), &freed); err != nil {
		t.Fatal(err)
	}
	return freed
}

// arrives returns whether one upload, and nothing else, had to be kept.
func arrives(c client.Collected) bool {
	return len(c.Kept) == 1 && c.Kept[0].Reason == "uploads" && c.Kept[0].Count == 1 && c.Kept[0].Bytes > 0
}

// TestGcFreesDeletedContentAtOnce promises that when `holdfast gc` returns on a node, the disk space of deleted
// objects is free there, and that an upload whose body is still arriving is kept and counted, and can be completed.
func TestGcFreesDeletedContentAtOnce(t *testing.T) {
	t.Parallel()
	const size, each = 6, 8 << 20
	c := harness.Start(t, harness.Options{Replication: 3})
	o := newObjects(t, c, "gc@example.org")
	o.ok(http.StatusOK, http.MethodPut, "/gc-bucket", nil)
	for i := range size {
		o.ok(http.StatusOK, http.MethodPut, fmt.Sprint("/gc-bucket/", i), harness.BytesOf(uint64(i), each))
	}
	kept := harness.BytesOf(100, 1<<20)
	o.ok(http.StatusOK, http.MethodPut, "/gc-bucket/kept", kept)
	harness.Eventually(t, 30*time.Second, "every node holds everything", func() (bool, error) {
		for _, n := range c.Nodes {
			if live := n.Metrics()["holdfast_blocks_live_bytes"]; live < size*each {
				return false, fmt.Errorf("%s has %v bytes of blocks", n.Name, live)
			}
		}
		return true, nil
	})

	late := harness.BytesOf(101, each)
	body, more := io.Pipe()
	done := make(chan error, 1)
	go func() {
		r, err := c.Nodes[0].S3(context.Background(), o.token, http.MethodPut, "/gc-bucket/late", body, each)
		if err == nil && r.Status != http.StatusOK {
			err = fmt.Errorf("%d: %s", r.Status, r.Body)
		}
		done <- err
	}()
	if _, err := more.Write(late[:each/2]); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 30*time.Second, "the upload arrives on some node", func() (bool, error) {
		for _, n := range c.Nodes {
			if arrives(gc(t, n)) {
				return true, nil
			}
		}
		return false, errors.New("no node keeps it")
	})
	for i := range size {
		o.ok(http.StatusNoContent, http.MethodDelete, fmt.Sprint("/gc-bucket/", i), nil)
	}
	arriving := 0
	for _, n := range c.Nodes {
		before, err := n.DiskUse()
		if err != nil {
			t.Fatal(err)
		}
		freed := gc(t, n)
		after, err := n.DiskUse()
		if err != nil {
			t.Fatal(err)
		}
		// A new segment file takes some space in advance.
		if before-after < (size-2)*each || freed.FileBytes < size*each || freed.LiveBytes > 2*each || freed.DiskBytes > 3*each || freed.Files == 0 {
			t.Errorf("%s: from %d to %d bytes, %+v", n.Name, before, after, freed)
		}
		if arrives(freed) {
			arriving++
		} else if len(freed.Kept) > 0 {
			t.Errorf("%s: kept %+v", n.Name, freed.Kept)
		}
	}
	if arriving == 0 {
		t.Error("no node keeps the upload")
	}
	if _, err := more.Write(late[each/2:]); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		gc(t, n)
		for path, want := range map[string][]byte{"/gc-bucket/late": late, "/gc-bucket/kept": kept} {
			if r := o.callOn(n, http.MethodGet, path, nil); r.Status != http.StatusOK || !bytes.Equal(r.Body, want) {
				t.Errorf("%s: %s: %d, %d bytes", n.Name, path, r.Status, len(r.Body))
			}
		}
		if found := fsck(t, n); len(found.Differences) > 0 {
			t.Errorf("%s: %+v", n.Name, found)
		}
	}
}
