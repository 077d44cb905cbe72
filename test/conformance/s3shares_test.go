//go:build conformance

package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// share is what the gateway answers to the creation of a share.
type share struct {
	ID        string   `json:"share_id"`
	Bucket    string   `json:"bucket"`
	Prefixes  []string `json:"prefixes"`
	Read      bool     `json:"read"`
	Write     bool     `json:"write"`
	Delete    bool     `json:"delete"`
	Expires   string   `json:"expires_at"`
	Name      string   `json:"name"`
	Created   string   `json:"created_at"`
	AccessKey string   `json:"access_key"`
	SecretKey string   `json:"secret_key"`
	Token     string   `json:"token"`
}

// shareIDOf returns an id of a share with a number in it.
func shareIDOf(n int) string { return fmt.Sprintf("%032x", n) }

// share creates a share through one node.
func (o *objects) share(n *harness.Node, path, body string) (s share) {
	o.t.Helper()
	r := o.callOn(n, http.MethodPut, path, []byte(body))
	if err := json.Unmarshal(r.Body, &s); err != nil || r.Status != http.StatusOK || s.Token == "" || s.AccessKey == "" || s.SecretKey == "" {
		o.t.Fatalf("PUT %s: %d %s", path, r.Status, r.Body)
	}
	return s
}

// everywhere asks every node and wants one status from each.
func (o *objects) everywhere(status int, method, path string, body []byte, pairs ...string) {
	o.t.Helper()
	for _, n := range o.cluster.Nodes {
		if r := o.callOn(n, method, path, body, pairs...); r.Status != status {
			o.t.Errorf("%s: %s %s: %d %s, want %d", n.Name, method, path, r.Status, r.Body, status)
		}
	}
}

// keysOf returns the keys that a share lists under a prefix by minio-go, or the error.
func keysOf(t *testing.T, c *minio.Client, bucket, prefix string) (keys []string, err error) {
	t.Helper()
	for o := range c.ListObjects(t.Context(), bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return keys, o.Err
		}
		keys = append(keys, o.Key)
	}
	return keys, nil
}

// TestShareKeysReadWhatTheyWereMadeFor promises that a share reads on all nodes what it was made for and nothing
// else, and that no node accepts it once it is revoked or has expired. It is made on one node, used on all as a
// Bearer token and as a key pair, and revoked on another.
func TestShareKeysReadWhatTheyWereMadeFor(t *testing.T) {
	t.Parallel() // a cluster of its own
	g := newGateway(t, harness.Options{})
	c := g.cluster
	a, b, third := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	owner := &objects{t: t, cluster: c, token: g.key.Token, turn: newObjects(t, c, "other@example.org").turn}
	bucket, other := "shared"+randomName(), "unshared"+randomName()
	for _, name := range []string{bucket, other} {
		owner.ok(http.StatusOK, http.MethodPut, "/"+name, nil)
		for _, key := range []string{"photos/a", "photos/b", "photos-private/x", "e", "e/one"} {
			owner.ok(http.StatusOK, http.MethodPut, "/"+name+"/"+key, []byte(name+key))
		}
	}

	path := "/" + bucket + "?share=" + shareIDOf(1)
	const body = `{"prefixes":["photos/","e"],"read":true,"name":"For Ann"}`
	made := owner.share(a, path, body)
	if made.Bucket != bucket || !slices.Equal(made.Prefixes, []string{"e", "photos/"}) || !made.Read || made.Write || made.Delete || made.Name != "For Ann" || made.Expires != "" || made.Created == "" {
		t.Errorf("%+v", made)
	}
	if again := owner.share(b, path, body); again.Token != made.Token || again.SecretKey != made.SecretKey {
		t.Error("the same request made another share")
	}
	if r := owner.callOn(third, http.MethodPut, path, []byte(`{"prefixes":["photos/"],"read":true}`)); r.Status != http.StatusConflict {
		t.Errorf("another body under the same id: %d %s", r.Status, r.Body)
	}

	guest := owner.with(made.Token)
	in := "/" + bucket + "/"
	for _, key := range []string{"photos/a", "e"} {
		guest.everywhere(http.StatusOK, http.MethodGet, in+key, nil)
		guest.everywhere(http.StatusOK, http.MethodHead, in+key, nil)
	}
	guest.everywhere(http.StatusPartialContent, http.MethodGet, in+"photos/a", nil, "Range", "bytes=0-3")
	guest.everywhere(http.StatusNotFound, http.MethodGet, in+"photos/absent", nil)
	guest.everywhere(http.StatusOK, http.MethodGet, "/"+bucket+"?list-type=2&prefix=photos/", nil)
	for _, no := range []string{
		in + "photos-private/x", in + "e/one", in + "photos/../e/one", in + "photos%2F..%2Fe/one", "/" + other + "/photos/a",
		"/" + bucket, "/" + bucket + "?list-type=2", "/" + bucket + "?list-type=2&prefix=photos", "/" + bucket + "?list-type=2&prefix=e",
		"/" + bucket + "?versions&prefix=photos/", "/" + bucket + "?uploads&prefix=photos/", "/" + bucket + "?shares", "/" + bucket + "?cors", "/",
		"/" + other + "?list-type=2&prefix=photos/",
	} {
		want := http.StatusForbidden
		if strings.Contains(no, "..") {
			want = http.StatusNotFound // a key is bytes: this one begins with photos/, and nobody made it
		}
		guest.everywhere(want, http.MethodGet, no, nil)
	}
	guest.everywhere(http.StatusForbidden, http.MethodPut, in+"photos/new", []byte("new"))
	guest.everywhere(http.StatusForbidden, http.MethodDelete, in+"photos/a", nil)
	guest.everywhere(http.StatusForbidden, http.MethodDelete, path, nil)
	guest.everywhere(http.StatusForbidden, http.MethodPut, "/"+bucket+"?share="+shareIDOf(2), []byte(body))
	for _, n := range c.Nodes {
		if r := do(t, n, made.Token, http.MethodGet, "/pins", "", nil); r.Status != http.StatusUnauthorized {
			t.Errorf("%s: the pinning API accepts a share: %d %s", n.Name, r.Status, r.Body)
		}
	}

	signed := gateway{cluster: c, node: b, key: harness.Key{AccessKeyID: made.AccessKey, SecretAccessKey: made.SecretKey}}.minio(t, false)
	readsSigned(t, signed, bucket)

	shownByTheConsole(t, c, g.key.Token, made)

	// Revoked on the third node, it is refused by all.
	if r := owner.callOn(third, http.MethodDelete, path, nil); r.Status != http.StatusNoContent {
		t.Fatalf("DELETE %s: %d %s", path, r.Status, r.Body)
	}
	guest.everywhere(http.StatusForbidden, http.MethodGet, in+"photos/a", nil)
	for _, n := range c.Nodes {
		if r := webCall(t, n, made.Token, "/api/v1/shared/"+bucket+"/photos/a"); r.Status != http.StatusUnauthorized {
			t.Errorf("%s: the web API accepts a revoked share: %d %s", n.Name, r.Status, r.Body)
		}
	}
	if _, err := signed.StatObject(t.Context(), bucket, "photos/a", minio.StatObjectOptions{}); minio.ToErrorResponse(err).StatusCode != http.StatusForbidden {
		t.Errorf("the key pair of a revoked share: %v", err)
	}
	if r := owner.callOn(third, http.MethodDelete, path, nil); r.Status != http.StatusNotFound {
		t.Errorf("a second DELETE: %d %s", r.Status, r.Body)
	}
	writersShare(t, owner, bucket, other)
	expiringShare(t, owner, bucket)
	sharesEndWithTheirBucket(t, owner)
}

// webCall sends a GET to the web API of a node.
func webCall(t *testing.T, n *harness.Node, token, path string) harness.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.ConsoleURL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	r, err := harness.Answer(http.DefaultTransport, req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shownByTheConsole reads the content of a share of photos/ and e by the web API of every node, and
// lists it there.
func shownByTheConsole(t *testing.T, c *harness.Cluster, owner string, made share) {
	t.Helper()
	for _, n := range c.Nodes {
		for path, want := range map[string]int{
			"/api/v1/shared/" + made.Bucket + "/photos/a": http.StatusOK, "/api/v1/shared/" + made.Bucket + "/photos-private/x": http.StatusForbidden,
			"/api/v1/buckets": http.StatusUnauthorized, "/api/v1/shares": http.StatusUnauthorized,
		} {
			if r := webCall(t, n, made.Token, path); r.Status != want {
				t.Errorf("%s: GET %s by a share: %d %s", n.Name, path, r.Status, r.Body)
			}
		}
		r := webCall(t, n, owner, "/api/v1/shares?bucket="+made.Bucket)
		if text := string(r.Body); r.Status != http.StatusOK || !strings.Contains(text, made.ID) || strings.Contains(text, made.SecretKey) {
			t.Errorf("%s: the list of the web API: %d %s", n.Name, r.Status, text)
		}
	}
}

// readsSigned uses the key pair of a share of photos/ and e by minio-go.
func readsSigned(t *testing.T, signed *minio.Client, bucket string) {
	t.Helper()
	got, err := signed.GetObject(t.Context(), bucket, "photos/a", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(got); err != nil || string(content) != bucket+"photos/a" {
		t.Errorf("%q, %v", content, err)
	}
	if keys, err := keysOf(t, signed, bucket, "photos/"); err != nil || !slices.Equal(keys, []string{"photos/a", "photos/b"}) {
		t.Errorf("%v, %v", keys, err)
	}
	if keys, err := keysOf(t, signed, bucket, ""); minio.ToErrorResponse(err).Code != "AccessDenied" {
		t.Errorf("a list of the whole bucket: %v, %v", keys, err)
	}
	link, err := signed.PresignedGetObject(t.Context(), bucket, "photos-private/x", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := harness.Answer(http.DefaultTransport, req); err != nil || r.Status != http.StatusForbidden {
		t.Errorf("a link by a share: %d %s, %v", r.Status, r.Body, err)
	}
}

// writersShare uses a share that may do everything with objects.
func writersShare(t *testing.T, owner *objects, bucket, other string) {
	t.Helper()
	made := owner.share(owner.cluster.Nodes[1], "/"+bucket+"?share="+shareIDOf(3), `{"prefixes":["photos/"],"read":true,"write":true,"delete":true}`)
	guest, in := owner.with(made.Token), "/"+bucket+"/"
	guest.ok(http.StatusOK, http.MethodPut, in+"photos/new", []byte("new"))
	guest.refused(http.StatusPreconditionFailed, "PreconditionFailed", http.MethodPut, in+"photos/new", []byte("newer"), "If-None-Match", "*")
	guest.upload(in+"photos/big", []byte("a part"))
	guest.ok(http.StatusOK, http.MethodPut, in+"photos/copy", nil, "x-amz-copy-source", bucket+"/photos/new")
	for _, source := range []string{bucket + "/e", bucket + "/photos-private/x", other + "/photos/a", bucket + "/%65", "/" + bucket + "/e/one"} {
		guest.refused(http.StatusForbidden, "AccessDenied", http.MethodPut, in+"photos/stolen", nil, "x-amz-copy-source", source)
	}
	guest.refused(http.StatusForbidden, "AccessDenied", http.MethodPut, in+"e", []byte("no"))
	guest.refused(http.StatusForbidden, "AccessDenied", http.MethodPost, in+"e?uploads", nil)
	guest.refused(http.StatusForbidden, "AccessDenied", http.MethodPut, in+"photos/a?tagging", []byte("<Tagging><TagSet></TagSet></Tagging>"))
	const both = `<Delete><Object><Key>photos/copy</Key></Object><Object><Key>e</Key></Object></Delete>`
	r := guest.ok(http.StatusOK, http.MethodPost, "/"+bucket+"?delete", []byte(both))
	if text := string(r.Body); !strings.Contains(text, "<Deleted><Key>photos/copy</Key></Deleted>") || !strings.Contains(text, "<Key>e</Key><Code>AccessDenied</Code>") {
		t.Errorf("DeleteObjects: %s", text)
	}
	owner.ok(http.StatusOK, http.MethodGet, in+"e", nil)
	guest.ok(http.StatusNoContent, http.MethodDelete, in+"photos/big", nil)
	guest.refused(http.StatusForbidden, "AccessDenied", http.MethodDelete, "/"+bucket, nil)
	guest.refused(http.StatusForbidden, "AccessDenied", http.MethodPut, "/"+bucket+"?versioning", []byte(`<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>`))
}

// expiringShare uses a share until every node refuses it.
func expiringShare(t *testing.T, owner *objects, bucket string) {
	t.Helper()
	const lives = 15 * time.Second // of which the first answers of all nodes need some on a busy machine
	ends := time.Now().Add(lives).UTC().Format(time.RFC3339)
	made := owner.share(owner.cluster.Nodes[2], "/"+bucket+"?share="+shareIDOf(4), `{"prefixes":["photos/"],"read":true,"expires_at":"`+ends+`"}`)
	if made.Expires != ends {
		t.Errorf("expires at %s, want %s", made.Expires, ends)
	}
	guest := owner.with(made.Token)
	guest.everywhere(http.StatusOK, http.MethodGet, "/"+bucket+"/photos/a", nil)
	for _, n := range owner.cluster.Nodes {
		harness.Eventually(t, lives+time.Minute, n.Name+" refuses a share that has expired", func() (bool, error) {
			r, err := guest.tryOn(n, http.MethodGet, "/"+bucket+"/photos/a", nil)
			return err == nil && r.Status == http.StatusForbidden, err
		})
	}
	owner.refused(http.StatusBadRequest, "InvalidArgument", http.MethodPut, "/"+bucket+"?share="+shareIDOf(5), []byte(`{"prefixes":["photos/"],"read":true,"expires_at":"2001-01-01T00:00:00Z"}`))
	var list struct{ Shares []share }
	if r := owner.ok(http.StatusOK, http.MethodGet, "/"+bucket+"?shares", nil); json.Unmarshal(r.Body, &list) != nil || len(list.Shares) != 2 || strings.Contains(string(r.Body), made.SecretKey) || list.Shares[0].Token != "" {
		t.Errorf("the list of shares: %s", r.Body)
	}
}

// sharesEndWithTheirBucket deletes a bucket and creates it again.
func sharesEndWithTheirBucket(t *testing.T, owner *objects) {
	t.Helper()
	bucket := "/ending" + randomName()
	owner.ok(http.StatusOK, http.MethodPut, bucket, nil)
	guest := owner.with(owner.share(owner.cluster.Nodes[0], bucket+"?share="+shareIDOf(1), `{"prefixes":["k"],"read":true,"write":true}`).Token)
	guest.everywhere(http.StatusOK, http.MethodPut, bucket+"/k", []byte("k"))
	owner.ok(http.StatusNoContent, http.MethodDelete, bucket+"/k", nil)
	owner.ok(http.StatusNoContent, http.MethodDelete, bucket, nil)
	owner.ok(http.StatusOK, http.MethodPut, bucket, nil)
	owner.ok(http.StatusOK, http.MethodPut, bucket+"/k", []byte("k"))
	guest.everywhere(http.StatusForbidden, http.MethodGet, bucket+"/k", nil)
	guest.everywhere(http.StatusForbidden, http.MethodPut, bucket+"/k", []byte("k"))
}

// TestSharesWaitForTheLastMemberToBeUpgraded promises that no share is made, with an error that says so, until all
// members run a release that knows shares. After the last upgrade the same request makes the share.
func TestSharesWaitForTheLastMemberToBeUpgraded(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Program: buildOlder(t)})
	o := newObjects(t, c, "early@example.org")
	bucket := "/early" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/k", []byte("k"))
	path, body := bucket+"?share="+shareIDOf(1), []byte(`{"prefixes":["k"],"read":true}`)
	for _, n := range c.Nodes {
		for _, asked := range c.Nodes {
			r := o.callOn(asked, http.MethodPut, path, body)
			if r.Status != http.StatusServiceUnavailable || !strings.Contains(string(r.Body), "shares need feature level 8 and the cluster has 7: not all members run a release that knows shares") {
				t.Errorf("%s, before %s is upgraded: %d %s", asked.Name, n.Name, r.Status, r.Body)
			}
		}
		n.Stop()
		n.Upgrade()
		n.Restart()
		if err := n.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var made reply
	harness.Eventually(t, time.Minute, "the feature level is raised", func() (bool, error) {
		var err error
		made, err = o.tryOn(c.Nodes[0], http.MethodPut, path, body)
		return err == nil && made.Status == http.StatusOK, err
	})
	var s share
	if err := json.Unmarshal(made.Body, &s); err != nil {
		t.Fatal(err)
	}
	o.with(s.Token).everywhere(http.StatusOK, http.MethodGet, bucket+"/k", nil)
}
