//go:build conformance

package conformance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// usedBy returns what an account is charged for, in bytes.
func usedBy(t *testing.T, n *harness.Node, email string) (used int64) {
	t.Helper()
	users, err := n.Operator().Users(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range users {
		if u.Email == email {
			return int64(u.StoredBytes)
		}
	}
	t.Fatalf("no account %s", email)
	return 0
}

// rawPut sends a request as it is written, and returns the status; 0 is no answer.
func rawPut(t *testing.T, n *harness.Node, text string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.S3URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(90 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(text)); err != nil {
		return 0
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestLimitsOfTheObjectGateway promises the limits of the object gateway on three nodes: A21, A25, A31, A33 to A36,
// A47, A53 and row 191.
func TestLimitsOfTheObjectGateway(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, harness.Options{})
	o := newObjects(t, c, "limits@example.org")
	c.Leader().CLI("user", "quota", "limits@example.org", "unlimited")
	bucket := "/limits" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	for _, sub := range []struct {
		name string
		test func(*testing.T, *objects, string)
	}{
		{"forms of authorization A47", testS3Authorization},
		{"keys A31", testS3Keys},
		{"heads A35 A36", testS3Heads},
		{"numbers of parts A33 A34", testS3PartNumbers},
		{"bodies that break off A21", testS3BrokenBodies},
		{"lists during changes A25", testS3ListsDuringChanges},
		{"parts are charged A53", testS3PartsAreCharged},
		{"the largest object is a setting, row 191", testS3LargestObject},
	} {
		t.Run(sub.name, func(t *testing.T) { sub.test(t, o.as(t), bucket) })
	}
}

func testS3Authorization(t *testing.T, o *objects, bucket string) {
	o.ok(http.StatusOK, http.MethodPut, bucket+"/auth", []byte("x"))
	none := o.with("")
	for value, want := range map[string]int{
		"bearer " + o.token: 200, "BEARER " + o.token: 200, "Bearer  " + o.token: 403, "Bearer\t" + o.token: 403, o.token: 403,
		"Bearer": 403, "Basic " + o.token: 403, "Bearer " + o.token + "x": 403, "AWS4-HMAC-SHA256 Credential=x": 400,
	} {
		r := none.call(http.MethodGet, bucket+"/auth", nil, "Authorization", value)
		if r.Status != want || want == 403 && !bytes.Contains(r.Body, []byte("<Code>AccessDenied</Code>")) {
			t.Errorf("%.24q: %d %s, want %d", value, r.Status, r.Body, want)
		}
	}
	none.refused(http.StatusForbidden, "AccessDenied", http.MethodGet, bucket+"/auth?token="+o.token, nil)
	host := strings.TrimPrefix(o.cluster.Leader().S3URL(), "http://")
	twice := "GET " + bucket + "/auth HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + o.token + "\r\nAuthorization: Bearer " + o.token + "\r\n\r\n"
	if got := rawPut(t, o.cluster.Leader(), twice); got != http.StatusForbidden && got != http.StatusBadRequest {
		t.Errorf("two Authorization headers: %d", got)
	}
}

func testS3Keys(t *testing.T, o *objects, bucket string) {
	nfc, nfd := "\u00e5", "a\u030a" // two keys
	for _, k := range []string{"a//b", "../x", "%2e%2e/", "./", "\U0001F600", nfc, nfd, "\x01", strings.Repeat("é", 512)} {
		path := bucket + "/" + escapeKey(k)
		o.ok(http.StatusOK, http.MethodPut, path, []byte(k), "x-amz-tagging", "a=1")
		if got := o.ok(http.StatusOK, http.MethodGet, path, nil); string(got.Body) != k {
			t.Errorf("%q holds %q", k, got.Body)
		}
		o.ok(http.StatusOK, http.MethodHead, path, nil)
		if r := o.ok(http.StatusOK, http.MethodGet, path+"?tagging", nil); !bytes.Contains(r.Body, []byte("<Key>a</Key>")) {
			t.Errorf("%q: %s", k, r.Body)
		}
		o.ok(http.StatusOK, http.MethodPut, bucket+"/copy", nil, "x-amz-copy-source", path)
		if got := o.ok(http.StatusOK, http.MethodGet, bucket+"/copy", nil); string(got.Body) != k {
			t.Errorf("a copy of %q holds %q", k, got.Body)
		}
		l := into[listResult](t, o.ok(http.StatusOK, http.MethodGet, bucket+"?list-type=2&encoding-type=url&prefix="+escapeKey(k), nil))
		if len(l.Contents) != 1 || l.Contents[0].Key != escapeKey(k) {
			t.Errorf("%q is listed as %v", k, l.keys())
		}
	}
	for _, k := range []string{"%00", "%FF", "%C3", "%ED%A0%80"} {
		o.refused(http.StatusBadRequest, "InvalidURI", http.MethodPut, bucket+"/"+k, []byte("x"))
	}
}

func testS3Heads(t *testing.T, o *objects, bucket string) {
	o.refused(http.StatusBadRequest, "MetadataTooLarge", http.MethodPut, bucket+"/meta", []byte("x"),
		"x-amz-meta-a", strings.Repeat("a", 16<<10), "x-amz-meta-b", strings.Repeat("b", 11<<10), "x-amz-meta-c", strings.Repeat("c", 6<<10))
	n := o.cluster.Leader()
	begin := "PUT " + bucket + "/head HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer " + o.token + "\r\n"
	for what, q := range map[string]struct {
		text string
		want int
	}{
		"a large header":      {begin + "X-Large: " + strings.Repeat("x", 40<<10) + "\r\n\r\n", 431},
		"many headers":        {begin + strings.Repeat("X-Tiny: 1\r\n", 10_000) + "\r\n", 431},
		"more than the most":  {begin + "Content-Length: 5368709121\r\n\r\n", 400},
		"a negative length":   {begin + "Content-Length: -1\r\n\r\n", 400},
		"two lengths":         {begin + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400},
		"neither of the two":  {begin + "\r\n", 411},
		"a length and chunks": {begin + "Content-Length: 5\r\nTransfer-Encoding: gzip\r\n\r\nhello", 501},
	} {
		if got := rawPut(t, n, q.text); got != q.want {
			t.Errorf("%s: %d, want %d", what, got, q.want)
		}
	}
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/head", nil)
}

// testS3LargestObject has one node take less than the others.
func testS3LargestObject(t *testing.T, o *objects, bucket string) {
	const most = 1 << 20
	n := o.cluster.Followers()[0]
	n.SetEnv("HOLDFAST_S3_MAX_OBJECT_SIZE=1MiB")
	n.Stop()
	n.Restart()
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]int{most: http.StatusOK, most + 1: http.StatusBadRequest} {
		path := fmt.Sprint(bucket, "/of-", size)
		r := o.callOn(n, http.MethodPut, path, make([]byte, size))
		if r.Status != want || want != http.StatusOK && !bytes.Contains(r.Body, []byte("<Code>EntityTooLarge</Code>")) {
			t.Errorf("%d bytes: %d %s, want %d", size, r.Status, r.Body, want)
		}
		if r := o.call(http.MethodHead, path, nil); (r.Status == http.StatusOK) != (want == http.StatusOK) {
			t.Errorf("%d bytes: HEAD says %d", size, r.Status)
		}
	}
}

func testS3PartNumbers(t *testing.T, o *objects, bucket string) {
	u := &uploads{o, bucket}
	id := u.begin("numbers")
	for _, n := range []string{"0", "-1", "10001", "1e3", "0x1", "2147483648", "99999999999999999999", ""} {
		o.refused(http.StatusBadRequest, "InvalidArgument", http.MethodPut, bucket+"/numbers?uploadId="+id+"&partNumber="+n, []byte("x"))
	}
	if r := o.ok(http.StatusOK, http.MethodGet, bucket+"/numbers?uploadId="+id, nil); bytes.Contains(r.Body, []byte("<Part>")) {
		t.Errorf("a refused part is there: %s", r.Body)
	}
	etag := u.part("numbers", id, 1, []byte("x"))
	path := bucket + "/numbers?uploadId=" + id
	good := string(harness.Completion(1, etag))
	deep := strings.Repeat("<a>", 10_000)
	var many []any
	for i := range 10_001 {
		many = append(many, i+1, etag)
	}
	for what, body := range map[string]string{
		"a document type": `<!DOCTYPE x [<!ENTITY y "z">]>` + good, "deep": deep, "trailing": good + "<x/>", "5 MiB": good + strings.Repeat(" ", 5<<20),
		"10,001 parts": string(harness.Completion(many...)), "an entity": strings.Replace(good, "<PartNumber>1", "<PartNumber>&y;", 1),
	} {
		if r := o.call(http.MethodPost, path, []byte(body)); r.Status != http.StatusBadRequest {
			t.Errorf("%s: %d %.200s", what, r.Status, r.Body)
		}
	}
	o.refused(http.StatusBadRequest, "InvalidPartOrder", http.MethodPost, path, harness.Completion(1, etag, 1, etag))
	o.ok(http.StatusOK, http.MethodPost, path, []byte(good)) // the upload is still good
}

// blocksStored returns how many blocks each node has.
func blocksStored(c *harness.Cluster) (counts []float64) {
	for _, n := range c.Nodes {
		counts = append(counts, n.Metrics()["holdfast_blocks_stored"])
	}
	return counts
}

func testS3BrokenBodies(t *testing.T, o *objects, bucket string) {
	old := []byte("the old object")
	o.ok(http.StatusOK, http.MethodPut, bucket+"/broken", old)
	before := usedBy(t, o.cluster.Leader(), "limits@example.org")
	blocks := blocksStored(o.cluster)
	const size = 6 << 20
	body := harness.RandomBytes(size)
	for i := range 10 {
		n := o.cluster.Nodes[i%3]
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.S3URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "PUT %s/broken HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", bucket, o.token, size)
		if _, err := conn.Write(body[:i*size/10]); err != nil {
			t.Fatal(err)
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset
		}
		conn.Close()
	}
	harness.Eventually(t, time.Minute, "nothing is left of bodies that broke off", func() (bool, error) {
		now := blocksStored(o.cluster)
		return fmt.Sprint(now) == fmt.Sprint(blocks), fmt.Errorf("%v blocks are stored, before %v", now, blocks)
	})
	if got := o.ok(http.StatusOK, http.MethodGet, bucket+"/broken", nil); !bytes.Equal(got.Body, old) {
		t.Errorf("the old object holds %d other bytes", len(got.Body))
	}
	if after := usedBy(t, o.cluster.Leader(), "limits@example.org"); after != before {
		t.Errorf("the account uses %d bytes, before %d", after, before)
	}
}

func testS3ListsDuringChanges(t *testing.T, o *objects, bucket string) {
	stable := map[string]bool{}
	for i := range 100 {
		key := fmt.Sprintf("list/%03d/stable", i)
		stable[key] = true
		o.ok(http.StatusOK, http.MethodPut, bucket+"/"+key, nil)
	}
	ctx, stop := context.WithCancel(t.Context())
	var changes atomic.Int64
	var g errgroup.Group
	for w := range 3 {
		g.Go(func() error {
			for i := 0; ctx.Err() == nil; i++ {
				path := fmt.Sprintf("%s/list/%03d/%d", bucket, i%100, w)
				method := []string{http.MethodPut, http.MethodDelete}[i/100%2]
				if r, err := o.tryOn(o.cluster.Nodes[w], method, path, nil); err != nil || r.Status/100 != 2 {
					return fmt.Errorf("%s %s: %d %w", method, path, r.Status, err)
				}
				changes.Add(1)
			}
			return nil
		})
	}
	for rounds := 0; changes.Load() < 1000 || rounds < 5; rounds++ {
		seen := map[string]bool{}
		for token := ""; ; {
			path := bucket + "?list-type=2&prefix=list/&max-keys=17"
			if token != "" {
				path += "&continuation-token=" + escapeKey(token)
			}
			page := into[listResult](t, o.ok(http.StatusOK, http.MethodGet, path, nil))
			for _, k := range page.keys() {
				if seen[k] {
					t.Errorf("%s is listed twice", k)
				}
				seen[k] = true
			}
			if !page.IsTruncated {
				break
			}
			token = page.NextContinuationToken
		}
		for k := range stable {
			if !seen[k] {
				t.Errorf("%s was there all the time, and not listed", k)
			}
		}
	}
	stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func testS3PartsAreCharged(t *testing.T, o *objects, bucket string) {
	leader := o.cluster.Leader()
	before := usedBy(t, leader, "limits@example.org")
	u := &uploads{o, bucket}
	id := u.begin("charged")
	u.part("charged", id, 1, harness.RandomBytes(500_000))
	u.part("charged", id, 2, harness.RandomBytes(300_000))
	if got := usedBy(t, leader, "limits@example.org") - before; got != 800_000 {
		t.Errorf("parts of 800,000 bytes are charged as %d", got)
	}
	u.part("charged", id, 2, harness.RandomBytes(100_000)) // in the place of the other
	if got := usedBy(t, leader, "limits@example.org") - before; got != 600_000 {
		t.Errorf("parts of 600,000 bytes are charged as %d", got)
	}
	o.ok(http.StatusNoContent, http.MethodDelete, bucket+"/charged?uploadId="+id, nil)
	if got := usedBy(t, leader, "limits@example.org") - before; got != 0 {
		t.Errorf("an upload that was aborted is charged %d bytes", got)
	}
}

// TestAPutNeedsItsCopies promises that with two of three nodes stopped no put is acknowledged, seen or charged (A20).
func TestAPutNeedsItsCopies(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	o := newObjects(t, c, "copies@example.org")
	bucket := "/copies" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	left := c.Leader()
	followers := c.Followers()
	for _, n := range followers {
		n.Kill()
	}
	for _, size := range []int{1000, 3 << 20} {
		r := o.callOn(left, http.MethodPut, fmt.Sprintf("%s/%d", bucket, size), harness.RandomBytes(size))
		if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
			t.Errorf("a PUT of %d bytes on one node of three: %d %s", size, r.Status, r.Body)
		}
	}
	for _, n := range followers {
		n.Restart()
	}
	c.Settle()
	for _, n := range c.Nodes {
		if l := into[listResult](t, o.callOn(n, http.MethodGet, bucket+"?list-type=2", nil)); len(l.Contents) != 0 {
			t.Errorf("%s lists %v", n.Name, l.keys())
		}
	}
	if used := usedBy(t, c.Leader(), "copies@example.org"); used != 0 {
		t.Errorf("the account is charged %d bytes", used)
	}
}
