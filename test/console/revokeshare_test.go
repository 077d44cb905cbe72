//go:build conformance

package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestAShareIsRevokedOnThePageOfItsBucket makes a share at the gateway, finds it on the page of the
// bucket, on a small screen too, and revokes it there: another node refuses it.
func TestAShareIsRevokedOnThePageOfItsBucket(t *testing.T) {
	longForm(t)
	const email = "rob@example.org"
	c, p := signedIn(t, email)
	key := c.Leader().Key(email)
	call := func(n *harness.Node, token, method, path, body string) harness.Response {
		t.Helper()
		r, err := n.S3(t.Context(), token, method, path, bytes.NewReader([]byte(body)), int64(len(body)))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := c.Nodes[0], c.Nodes[1]
	call(a, key.Token, http.MethodPut, "/photos", "")
	call(a, key.Token, http.MethodPut, "/photos/holidays/1", "sea")
	var share struct{ Token string }
	r := call(a, key.Token, http.MethodPut, "/photos?share="+strings.Repeat("0a", 16), `{"prefixes":["holidays/","a/rather/long/key/of/one/object.jpeg"],"read":true,"name":"For Ann","expires_at":"2100-01-01T00:00:00Z"}`)
	if err := json.Unmarshal(r.Body, &share); err != nil || r.Status != http.StatusOK {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if r := call(b, share.Token, http.MethodGet, "/photos/holidays/1", ""); r.Status != http.StatusOK {
		t.Fatalf("the share is answered with %d %s", r.Status, r.Body)
	}
	p.visit("/buckets/photos")
	p.shows("For Ann")
	p.picture("bucket-shares")
	p.click(`//summary[normalize-space()="Revoke"]`)
	p.shows("This cannot be undone.")
	p.picture("bucket-share-revoke")
	p.press("Revoke this share")
	p.shows("The share For Ann has been refused on every node")
	if r := call(b, share.Token, http.MethodGet, "/photos/holidays/1", ""); r.Status != http.StatusForbidden {
		t.Errorf("the revoked share is answered with %d %s", r.Status, r.Body)
	}
	p.visit("/buckets/photos")
	if text := p.text("main"); strings.Contains(text, "Shares") {
		t.Errorf("the page still lists %s", text)
	}
}
