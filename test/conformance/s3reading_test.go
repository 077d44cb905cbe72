//go:build conformance

package conformance

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const readBytes = 48 << 20

// TestWhatIsBeingReadIsSentToItsEnd promises that a download of an object that is replaced or deleted meanwhile gets
// all of its bytes, although the other nodes have dropped the content.
func TestWhatIsBeingReadIsSentToItsEnd(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	o := newObjects(t, c, "reading@example.org")
	o.ok(http.StatusOK, http.MethodPut, "/reading", nil)
	reader := c.Followers()[0]
	for _, change := range []string{http.MethodPut, http.MethodDelete} {
		want := o.putToRead()
		o.keep(reader, readBytes, true)
		o.readDuring(reader, change, want, func() {
			for _, n := range c.Nodes {
				if n != reader {
					o.keep(n, readBytes, false)
				}
			}
		})
		o.keep(reader, readBytes, false)
	}
}

// TestWhatIsReadFromAnotherNodeIsSentToItsEnd promises that a download through a node without a copy gets all bytes
// of an object that is replaced or deleted meanwhile.
func TestWhatIsReadFromAnotherNodeIsSentToItsEnd(t *testing.T) {
	longForm(t)
	t.Parallel()
	c := harness.Start(t, harness.Options{Replication: 2})
	o := newObjects(t, c, "elsewhere@example.org")
	o.ok(http.StatusOK, http.MethodPut, "/reading", nil)
	for _, change := range []string{http.MethodPut, http.MethodDelete} {
		want := o.putToRead()
		var reader *harness.Node
		harness.Eventually(t, time.Minute, "two nodes have a copy", func() (bool, error) {
			have, lacks, err := copies(c, readBytes)
			if len(lacks) > 0 {
				reader = lacks[0]
			}
			return have == 2, err
		})
		o.readDuring(reader, change, want, func() {
			harness.Eventually(t, time.Minute, "the copy that nobody reads is dropped", func() (bool, error) {
				have, _, err := copies(c, readBytes)
				return err == nil && have <= 1, err
			})
		})
		for _, n := range c.Nodes {
			o.keep(n, readBytes, false)
		}
	}
}

// copies tells how many nodes store so many bytes, and which do not.
func copies(c *harness.Cluster, bytes int64) (have int, lacks []*harness.Node, err error) {
	for _, n := range c.Nodes {
		keeps, err := keeps(n, bytes)
		if err != nil {
			return 0, nil, err
		}
		if keeps {
			have++
		} else {
			lacks = append(lacks, n)
		}
	}
	return have, lacks, nil
}

// putToRead puts the object that is read.
func (o *objects) putToRead() []byte {
	o.t.Helper()
	want := make([]byte, readBytes)
	rand.NewChaCha8([32]byte{1}).Read(want)
	o.ok(http.StatusOK, http.MethodPut, "/reading/file", want)
	return want
}

// readDuring has a client take 1 MiB of the object through a node, changes the object, and
// has the client take the rest when the cluster has dealt with that.
func (o *objects) readDuring(reader *harness.Node, change string, want []byte, dealt func()) {
	o.t.Helper()
	req, err := http.NewRequestWithContext(o.t.Context(), http.MethodGet, reader.S3URL()+"/reading/file", nil)
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+o.token)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	got := make([]byte, 1<<20)
	if _, err := io.ReadFull(resp.Body, got); err != nil {
		o.t.Fatal(err)
	}
	if r := o.call(change, "/reading/file", nil); r.Status/100 != 2 {
		o.t.Fatalf("%s: %d %s", change, r.Status, r.Body)
	}
	dealt()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(append(got, rest...), want) {
		o.t.Fatalf("%s while it was read: %d bytes more and %v, want all %d", change, len(rest), err, len(want))
	}
}

// keep waits until a node stores so many bytes, or less.
func (o *objects) keep(n *harness.Node, bytes int64, want bool) {
	o.t.Helper()
	harness.Eventually(o.t, time.Minute, fmt.Sprintf("%s keeps %d bytes: %t", n.Name, bytes, want), func() (bool, error) {
		keeps, err := keeps(n, bytes)
		return err == nil && keeps == want, err
	})
}

// keeps tells whether a node stores so many bytes.
func keeps(n *harness.Node, bytes int64) (bool, error) {
	s, err := n.StatusNow()
	if err != nil {
		return false, err
	}
	self, _ := s.Member(s.Node.ID)
	return self.UsedBytes >= bytes, nil
}
