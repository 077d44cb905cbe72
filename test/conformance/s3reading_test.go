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

// TestWhatIsBeingReadIsSentToItsEnd replaces and deletes objects of which downloads are
// under way, and waits until the nodes that nobody reads from have dropped the content.
func TestWhatIsBeingReadIsSentToItsEnd(t *testing.T) {
	t.Parallel() // it mostly waits
	const size = 48 << 20
	c := harness.Start(t, harness.Options{})
	o := newObjects(t, c, "reading@example.org")
	o.ok(http.StatusOK, http.MethodPut, "/reading", nil)
	want := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(want)
	reader := c.Followers()[0]

	for _, change := range []string{http.MethodPut, http.MethodDelete} {
		o.ok(http.StatusOK, http.MethodPut, "/reading/file", want)
		o.keep(reader, size, true)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, reader.S3URL()+"/reading/file", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+o.token)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got := make([]byte, 1<<20)
		if _, err := io.ReadFull(resp.Body, got); err != nil {
			t.Fatal(err)
		}
		if r := o.call(change, "/reading/file", nil); r.Status/100 != 2 {
			t.Fatalf("%s: %d %s", change, r.Status, r.Body)
		}
		for _, n := range c.Nodes {
			if n != reader {
				o.keep(n, size, false)
			}
		}
		rest, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(append(got, rest...), want) {
			t.Fatalf("%s while it was read: %d bytes more and %v, want all %d", change, len(rest), err, size)
		}
		o.keep(reader, size, false)
	}
}

// keep waits until a node stores so many bytes, or less.
func (o *objects) keep(n *harness.Node, bytes int64, want bool) {
	o.t.Helper()
	harness.Eventually(o.t, time.Minute, fmt.Sprintf("%s keeps %d bytes: %t", n.Name, bytes, want), func() (bool, error) {
		s, err := n.StatusNow()
		if err != nil {
			return false, err
		}
		for _, p := range s.Peers {
			if p.ID == s.Node.ID {
				return (p.UsedBytes >= bytes) == want, nil
			}
		}
		return false, nil
	})
}
