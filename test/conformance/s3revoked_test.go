//go:build conformance

package conformance

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// sentFor is how long a request has been under way when its key is revoked, longer
// than what the gateway takes for quick (docs/s3.md, "Authentication").
const sentFor = 1500 * time.Millisecond

// TestWhoIsRevokedWhileSendingChangesNothing promises that a request under way on one node changes nothing if its key
// or session ends through another node before it was sent whole (A43, A44).
func TestWhoIsRevokedWhileSendingChangesNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	const email = "hasty@example.org"
	c := harness.Start(t, harness.Options{})
	o := newObjects(t, c, email)
	bucket := "/hasty" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	for _, key := range []string{"/a", "/b", "/c"} {
		o.ok(http.StatusOK, http.MethodPut, bucket+key, []byte("mine"))
	}
	upload := into[struct{ UploadId string }](t, o.ok(http.StatusOK, http.MethodPost, bucket+"/film?uploads", nil)).UploadId //nolint:revive,staticcheck // as Amazon has it
	part := o.ok(http.StatusOK, http.MethodPut, bucket+"/film?partNumber=1&uploadId="+upload, []byte("part")).Header.Get("Etag")
	const public = `<AccessControlPolicy xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><Owner><ID>ME</ID></Owner><AccessControlList>` +
		`<Grant><Grantee xsi:type="CanonicalUser"><ID>ME</ID></Grantee><Permission>FULL_CONTROL</Permission></Grant>` +
		`<Grant><Grantee xsi:type="Group"><URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee><Permission>READ</Permission></Grant>` +
		`</AccessControlList></AccessControlPolicy>`
	me := into[struct{ Owner struct{ ID string } }](t, o.ok(http.StatusOK, http.MethodGet, "/", nil)).Owner.ID

	var all sync.WaitGroup
	var cut atomic.Int32
	operators := operatorsOf(c)
	for i, q := range []struct{ method, path, body string }{
		{http.MethodPut, "/hasty" + randomName(), `<CreateBucketConfiguration/>`},
		{http.MethodPut, bucket + "/d", strings.Repeat("x", 100_000)},
		{http.MethodPost, bucket + "?delete", `<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>`},
		{http.MethodPut, bucket + "?cors", `<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>`},
		{http.MethodPut, bucket + "?acl", strings.ReplaceAll(public, "ME", me)},
		{http.MethodPut, bucket + "?versioning", `<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>`},
		{http.MethodPut, bucket + "/c?tagging", `<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>`},
		{http.MethodPut, bucket + "/film?partNumber=2&uploadId=" + upload, "two"},
		{http.MethodPost, bucket + "/film?uploadId=" + upload, string(harness.Completion(1, part))},
	} {
		end := func(token string) func() {
			return func() {
				if r := do(t, c.Nodes[(i+1)%3], token, http.MethodDelete, "/auth/token", "", nil); r.Status/100 != 2 {
					t.Errorf("sign out: %d %s", r.Status, r.Body)
				}
			}
		}
		var token string
		var revoke func()
		if i%3 == 0 {
			token = signIn(t, c.Nodes[i%3], email)
			revoke = end(token)
		} else {
			key := c.Leader().Key(email)
			by := operators[c.Nodes[(i+1)%3]] // at once, where a command takes a while to start
			token, revoke = key.Token, func() {
				if err := by.RevokeKey(t.Context(), key.ID); err != nil {
					t.Error(err)
				}
			}
		}
		all.Go(func() {
			got, err := sendSlowly(o.with(token), c.Nodes[i%3], q.method, q.path, q.body, revoke)
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) { // where the revocation took long, the node has cut the slow body
				cut.Add(1)
				return
			}
			if err != nil || !strings.Contains(string(got.Body), "<Code>AccessDenied</Code>") {
				t.Errorf("%s %s: %d %s, %v", q.method, q.path, got.Status, got.Body, err)
			}
		})
	}
	all.Wait()
	if n := cut.Load(); n > 6 { // none or one, and more on a busy machine
		t.Errorf("%d of the requests were cut and not answered", n)
	}

	for _, key := range []string{"/a", "/b", "/c"} {
		if got := o.ok(http.StatusOK, http.MethodGet, bucket+key, nil); string(got.Body) != "mine" {
			t.Errorf("%s is %q", key, got.Body)
		}
	}
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/d", nil)
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/film", nil)
	o.refused(http.StatusNotFound, "NoSuchCORSConfiguration", http.MethodGet, bucket+"?cors", nil)
	for path, never := range map[string]string{
		bucket + "?acl":                     "AllUsers",
		bucket + "?versioning":              "Enabled",
		bucket + "/c?tagging":               "<Tag>",
		bucket + "/film?uploadId=" + upload: "<PartNumber>2<",
	} {
		if got := o.ok(http.StatusOK, http.MethodGet, path, nil); strings.Contains(string(got.Body), never) {
			t.Errorf("%s: %s", path, got.Body)
		}
	}
	if got := o.ok(http.StatusOK, http.MethodGet, "/", nil); strings.Count(string(got.Body), "<Bucket>") != 1 {
		t.Errorf("buckets: %s", got.Body)
	}
}

// sendSlowly sends the first byte of a body once it is asked for, calls then after
// sentFor, and sends the rest.
func sendSlowly(o *objects, n *harness.Node, method, path, body string, then func()) (reply, error) {
	patient := &http.Transport{ExpectContinueTimeout: time.Minute}
	defer patient.CloseIdleConnections()
	in, out := io.Pipe()
	req, err := http.NewRequestWithContext(o.t.Context(), method, n.S3URL()+path, in)
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Authorization", "Bearer "+o.token)
	req.Header.Set("Expect", "100-continue")
	sent := make(chan error, 1)
	go func() {
		_, first := io.WriteString(out, body[:1])
		harness.Pause(o.t.Context(), sentFor)
		then()
		_, rest := io.WriteString(out, body[1:])
		sent <- errors.Join(first, rest, out.Close())
	}()
	r, err := harness.Answer(patient, req)
	if err != nil {
		return r, err
	}
	return r, <-sent
}
