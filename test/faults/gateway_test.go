//go:build faults

package faults

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// bucket is a bucket of one account without a limit on a cluster.
type bucket struct {
	*harness.Cluster
	token, email string
	path         string
}

func newBucket(t *testing.T, c *harness.Cluster) *bucket {
	t.Helper()
	const email = "bucket@example.org"
	b := &bucket{Cluster: c, token: c.Nodes[0].UserKey(email).Token, email: email, path: "/bucket"}
	c.Nodes[0].CLI("user", "quota", email, "unlimited")
	b.ok(t, 0, http.MethodPut, "", nil)
	return b
}

// ask sends a request for a key, or for the bucket itself; a reader without a
// length is sent in chunks. Pairs are names of headers and values.
func (b *bucket) ask(ctx context.Context, n *harness.Node, method, key string, body io.Reader, length int64, pairs ...string) (harness.Response, error) {
	path := b.path
	if key != "" && key[0] != '?' {
		path += "/"
	}
	return n.S3(ctx, b.token, method, path+key, body, length, pairs...)
}

// ok sends a request to the node of a number, which has to succeed.
func (b *bucket) ok(t *testing.T, node int, method, key string, body []byte, pairs ...string) harness.Response {
	t.Helper()
	a, err := b.ask(t.Context(), b.Nodes[node%len(b.Nodes)], method, key, bytes.NewReader(body), int64(len(body)), pairs...)
	if err != nil || a.Status/100 != 2 {
		t.Fatalf("%s %q through %s: %d %s, %v", method, key, b.Nodes[node%len(b.Nodes)].Name, a.Status, a.Body, err)
	}
	return a
}

// noRoom wants an answer that says that there is no room.
func noRoom(t *testing.T, what string, a harness.Response, err error) {
	t.Helper()
	var e struct{ Code, Message string }
	if err == nil {
		err = xml.Unmarshal(a.Body, &e)
	}
	if err != nil || a.Status != http.StatusInsufficientStorage || e.Code != "InsufficientStorage" || !strings.Contains(e.Message, "full") || a.Header.Get("Retry-After") != "60" {
		t.Errorf("%s on full disks: %d %v %s, %v", what, a.Status, a.Header, a.Body, err)
	}
}

// begin begins an upload and returns the query that names it.
func (b *bucket) begin(t *testing.T, node int, key string) (query string) {
	t.Helper()
	var up struct {
		UploadID string `xml:"UploadId"`
	}
	if err := xml.Unmarshal(b.ok(t, node, http.MethodPost, key+"?uploads", nil).Body, &up); err != nil {
		t.Fatal(err)
	}
	return "?uploadId=" + up.UploadID
}

// form returns the body of an upload by a form.
func form(key string, data []byte) (kind string, body []byte) {
	const edge = "edge-of-a-part"
	return "multipart/form-data; boundary=" + edge, fmt.Appendf(nil,
		"--%[1]s\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\n%[2]s\r\n--%[1]s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n%[3]s\r\n--%[1]s--\r\n",
		edge, key, data)
}

// reads wants the bytes of a key from every node.
func (b *bucket) reads(t *testing.T, key string, want []byte) {
	t.Helper()
	for i, n := range b.Nodes {
		if got := b.ok(t, i, http.MethodGet, key, nil); !bytes.Equal(got.Body, want) {
			t.Errorf("%s reads %d other bytes of %s", n.Name, len(got.Body), key)
		}
	}
}

// keeps returns what the cluster shows of a bucket and keeps: it does not change by what
// is refused. What is refused is dropped a little later.
func (b *bucket) keeps(ctx context.Context) (string, error) {
	list, err := b.ask(ctx, b.Nodes[0], http.MethodGet, "?list-type=2", nil, -1)
	if err != nil {
		return "", err
	}
	uploads, err := b.ask(ctx, b.Nodes[1], http.MethodGet, "?uploads", nil, -1)
	if err != nil {
		return "", err
	}
	users, err := b.Nodes[2].Operator().Users(ctx)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s %s", list.Body, uploads.Body)
	for _, u := range users {
		if u.Email == b.email {
			text += fmt.Sprintf(" %d bytes charged", u.StoredBytes)
		}
	}
	for _, n := range b.Nodes {
		text += fmt.Sprintf(" %g", n.Metrics()["holdfast_blocks_stored"])
	}
	return text, nil
}

// unchanged waits until the cluster keeps what it kept.
func (b *bucket) unchanged(t *testing.T, before string) {
	t.Helper()
	harness.Eventually(t, healWithin, "nothing is left of what was refused", func() (bool, error) {
		now, err := b.keeps(t.Context())
		return err == nil && now == before, errors.Join(err, fmt.Errorf("%s\nwas\n%s", now, before))
	})
}

func (b *bucket) snapshot(t *testing.T) string {
	t.Helper()
	text, err := b.keeps(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return text
}
