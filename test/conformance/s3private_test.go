//go:build conformance

package conformance

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// dagOf returns what a node makes of a file: its root and all of its blocks.
func dagOf(t *testing.T, data []byte) (root cid.Cid, all []cid.Cid) {
	t.Helper()
	root, _, err := dag.Import(t.Context(), bytes.NewReader(data), func(blks []blocks.Block) error {
		for _, b := range blks {
			all = append(all, b.Cid())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return root, all
}

// putParts stores an object by an upload, and returns its root and all of its blocks.
// An upload has nodes between its root and its leaves: the roots of its parts.
func putParts(o *objects, path string, parts [][]byte) (root cid.Cid, all []cid.Cid) {
	o.t.Helper()
	o.upload(path, parts...)
	for _, p := range parts {
		_, blks := dagOf(o.t, p)
		all = append(all, blks...)
	}
	root = toldBy(o.t, o.ok(http.StatusOK, http.MethodHead, path, nil))
	return root, append(all, root)
}

// toldBy returns the root that an answer of an object tells.
func toldBy(t *testing.T, r reply) cid.Cid {
	t.Helper()
	root, err := cid.Decode(r.Header.Get("X-Holdfast-Cid"))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// everywhere waits until every node holds so many blocks, which are all.
func everywhere(t *testing.T, c *harness.Cluster, blocks int) {
	t.Helper()
	harness.Eventually(t, pinnedWithin, "every node holds every block", func() (bool, error) {
		for _, n := range c.Nodes {
			if has := n.Metrics()["holdfast_blocks_stored"]; has < float64(blocks) {
				return false, fmt.Errorf("%s has %v of %d", n.Name, has, blocks)
			}
		}
		return true, nil
	})
}

// TestUnknownPeersGetNothingOfObjects promises that no node gives an unknown peer any block of a private object while
// nobody pins the content. The blocks are the root, a node below it and the leaves. Other accounts cannot read them
// by their CIDs.
func TestUnknownPeersGetNothingOfObjects(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	o := newObjects(t, c, "private@example.org")
	s := newService(t, c, "public@example.org")
	peer := newUnknownPeer(t)
	bucket := "/private" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)

	data := harness.RandomBytes(3 << 20)
	root, all := dagOf(t, data)
	put := o.ok(http.StatusOK, http.MethodPut, bucket+"/whole", data)
	if got := put.Header.Get("X-Holdfast-Cid"); got != root.String() || len(all) != 4 {
		t.Fatalf("%d blocks, root %s, want %s", len(all), got, root)
	}
	parts := [][]byte{harness.RandomBytes(5 << 20), harness.RandomBytes(2<<20 + 1)}
	large, joined := putParts(o, bucket+"/parts", parts)

	private := append(all, joined...)
	everywhere(t, c, len(private))
	served := func(t *testing.T, want bool, cids []cid.Cid) { t.Helper(); peer.served(t, c, want, cids) }
	soon := func(t *testing.T, want bool, cids []cid.Cid) { t.Helper(); peer.soon(t, c, want, cids) }
	served(t, false, private)

	t.Run("read by its CID", func(t *testing.T) {
		for _, n := range c.Nodes {
			for _, args := range [][]string{{"get", root.String()}, {"get", root.String(), "--user", "private@example.org"}} {
				if out := n.CLI(args...); out != string(data) {
					t.Errorf("%s: %v: %d bytes of %d", n.Name, args, len(out), len(data))
				}
			}
			for _, c := range private {
				if r := n.TryCLI("", "get", c.String(), "--user", "public@example.org"); r.Code != 1 || r.Stdout != "" || !strings.Contains(r.Stderr, "holds "+c.String()) {
					t.Errorf("%s: %s for another account: exit code %d, %d bytes, %q", n.Name, c, r.Code, len(r.Stdout), r.Stderr)
				}
			}
		}
	})
	t.Run("pinned by another account", func(t *testing.T) {
		id := s.as(t).post(harness.Pin{CID: large.String()}).RequestID
		s.as(t).pinned(id)
		soon(t, true, joined)
		served(t, false, all) // which nobody has pinned
		s.as(t).delete(id)
		soon(t, false, joined)
	})
	t.Run("a part of it pinned", func(t *testing.T) {
		leaf := all[0]
		id := s.as(t).post(harness.Pin{CID: leaf.String()}).RequestID
		s.as(t).pinned(id)
		soon(t, true, []cid.Cid{leaf})
		served(t, false, append(all[1:], joined...))
		s.as(t).delete(id)
		soon(t, false, []cid.Cid{leaf})
	})
	t.Run("after all that", func(t *testing.T) {
		if got := o.as(t).ok(http.StatusOK, http.MethodGet, bucket+"/whole", nil); !bytes.Equal(got.Body, data) {
			t.Errorf("the object has %d bytes", len(got.Body))
		}
		if got := o.as(t).ok(http.StatusOK, http.MethodGet, bucket+"/parts", nil); !bytes.Equal(got.Body, bytes.Join(parts, nil)) {
			t.Errorf("the upload has %d bytes", len(got.Body))
		}
		served(t, false, private)
	})
}
