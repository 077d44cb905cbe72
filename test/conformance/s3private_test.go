//go:build conformance

package conformance

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// dagOf is what a node makes of a file: its root and all of its blocks.
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

// TestStrangersGetNothingOfObjects: an object is private. No node gives a stranger any
// of its blocks, the root, a node below it or a leaf, while nobody pins the content.
func TestStrangersGetNothingOfObjects(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	o := newObjects(t, c, "private@example.org")
	s := newService(t, c, "public@example.org")
	peer := newStranger(t)
	bucket := "/private" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)

	data := randomBytes(3 << 20)
	root, all := dagOf(t, data)
	put := o.ok(http.StatusOK, http.MethodPut, bucket+"/whole", data)
	if got := put.Header.Get("X-Holdfast-Cid"); got != root.String() || len(all) != 4 {
		t.Fatalf("%d blocks, root %s, want %s", len(all), got, root)
	}
	// An upload has nodes between its root and its leaves: the roots of its parts.
	parts := [][]byte{randomBytes(5 << 20), randomBytes(2<<20 + 1)}
	id := into[initiated](t, o.ok(http.StatusOK, http.MethodPost, bucket+"/parts?uploads", nil)).UploadId
	var joined []cid.Cid
	list := "<CompleteMultipartUpload>"
	for i, p := range parts {
		o.ok(http.StatusOK, http.MethodPut, fmt.Sprintf("%s/parts?partNumber=%d&uploadId=%s", bucket, i+1, id), p)
		list += fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", i+1, etagOf(p))
		_, blks := dagOf(t, p)
		joined = append(joined, blks...)
	}
	o.ok(http.StatusOK, http.MethodPost, bucket+"/parts?uploadId="+id, []byte(list+"</CompleteMultipartUpload>"))
	large, err := cid.Decode(o.ok(http.StatusOK, http.MethodHead, bucket+"/parts", nil).Header.Get("X-Holdfast-Cid"))
	if err != nil {
		t.Fatal(err)
	}
	joined = append(joined, large)

	private := append(all, joined...)
	harness.Eventually(t, pinnedWithin, "every node holds every block", func() (bool, error) {
		for _, n := range c.Nodes {
			if n.Metrics()["holdfast_blocks_stored"] < float64(len(private)) {
				return false, fmt.Errorf("%s has %v of %d", n.Name, n.Metrics()["holdfast_blocks_stored"], len(private))
			}
		}
		return true, nil
	})
	// served fails unless every node gives a stranger all of these, or none.
	served := func(t *testing.T, want bool, cids []cid.Cid) {
		t.Helper()
		for _, n := range c.Nodes {
			for _, k := range cids {
				if got := peer.seesAtLast(t, n, k); got != want {
					t.Errorf("%s gives a stranger %s: %v, want %v", n.Name, k, got, want)
				}
			}
		}
	}
	soon := func(t *testing.T, want bool, cids []cid.Cid) {
		t.Helper()
		harness.Eventually(t, pinnedWithin, fmt.Sprintf("strangers are served: %v", want), func() (bool, error) {
			for _, n := range c.Nodes {
				for _, k := range cids {
					if peer.seesAtLast(t, n, k) != want {
						return false, fmt.Errorf("%s, %s", n.Name, k)
					}
				}
			}
			return true, nil
		})
	}
	served(t, false, private)

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
