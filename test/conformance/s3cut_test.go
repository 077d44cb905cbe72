//go:build conformance

package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// cutWithin is how soon an upload ends whose key was revoked: at once, and on a busy machine later. An upload that is
// not cut goes on without end.
const cutWithin = time.Minute

// TestUploadsEndWithTheirKey promises that a body under way is answered with AccessDenied and cut, and changes
// nothing, when its key is revoked or its account removed or disabled through another node.
func TestUploadsEndWithTheirKey(t *testing.T) {
	t.Parallel()
	const email, leaving, disabling = "cut@example.org", "leaving@example.org", "disabling@example.org"
	c := harness.Start(t, harness.Options{})
	o := newObjects(t, c, email)
	bucket := "/cut" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	upload := o.begin(bucket + "/up")
	other := newObjects(t, c, leaving)
	theirs := "/theirs" + randomName()
	other.ok(http.StatusOK, http.MethodPut, theirs, nil)
	disabled := newObjects(t, c, disabling)
	off := "/off" + randomName()
	disabled.ok(http.StatusOK, http.MethodPut, off, nil)
	key := func() (token string, revoke func()) {
		k := c.Leader().Key(email)
		return k.Token, func() { c.Nodes[1].CLI("key", "revoke", k.ID) }
	}
	first, revokeFirst := key()
	second, revokeSecond := key()
	for name, tc := range map[string]struct {
		path, token string
		end         func()
	}{
		"an object":          {bucket + "/new", first, revokeFirst},
		"a part":             {bucket + "/up?partNumber=1&uploadId=" + upload, second, revokeSecond},
		"an account":         {theirs + "/new", other.token, func() { c.Nodes[1].CLI("user", "rm", leaving, "--yes") }},
		"a disabled account": {off + "/new", disabled.token, func() { c.Nodes[1].CLI("user", "disable", disabling, "--yes") }},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.Nodes[0].S3URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		began, sent := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := io.WriteString(conn, "PUT "+tc.path+" HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer "+tc.token+"\r\nTransfer-Encoding: chunked\r\n\r\n")
			piece := "10000\r\n" + strings.Repeat("x", 0x10000) + "\r\n"
			for n := 0; err == nil; n++ {
				if n == 32 {
					close(began)
				}
				_, err = io.WriteString(conn, piece)
			}
			sent <- err
		}()
		<-began
		tc.end()
		_ = conn.SetDeadline(time.Now().Add(cutWithin))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusForbidden || !strings.Contains(string(text), "<Code>AccessDenied</Code>") || !resp.Close {
			t.Errorf("%s: %d %s, closed: %v, %v", name, resp.StatusCode, text, resp.Close, err)
		}
		var late net.Error
		if err := <-sent; errors.As(err, &late) && late.Timeout() {
			t.Errorf("%s: the rest of the body is still taken", name)
		}
		_ = conn.Close()
	}
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/new", nil)
	if r := o.ok(http.StatusOK, http.MethodGet, bucket+"/up?uploadId="+upload, nil); strings.Contains(string(r.Body), "<Part>") {
		t.Errorf("a part is there: %s", r.Body)
	}
}

// TestALengthAndChunksEndTheConnection promises that a node answers a request with both a length and chunks and then
// closes its connection, on both listeners (RFC 9112, section 6.1). What is behind such a request may be its body for
// a proxy before the node.
func TestALengthAndChunksEndTheConnection(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, harness.Options{Nodes: 1})
	o := newObjects(t, c, "chunks@example.org")
	bucket := "/chunks" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	const chunks = "5\r\nhello\r\n0\r\n\r\n"
	pin := `{"cid":"bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"}`
	for _, tc := range []struct{ url, line, body, next string }{
		{c.Nodes[0].S3URL(), "PUT " + bucket + "/k", chunks, "GET " + bucket + "/k"},
		{c.Nodes[0].URL(), "POST /pins", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(pin), pin), "GET /pins"},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(tc.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		head := " HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer " + o.token + "\r\n"
		in := bufio.NewReader(conn)
		for _, step := range []struct {
			lengths string
			closed  bool
		}{{"Transfer-Encoding: chunked\r\n", false}, {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", true}} {
			if _, err := io.WriteString(conn, tc.line+head+step.lengths+"\r\n"+tc.body); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode/100 != 2 || resp.Close != step.closed {
				t.Errorf("%s with %q: %d %s, closed: %v, %v", tc.line, step.lengths, resp.StatusCode, text, resp.Close, err)
			}
		}
		_, _ = io.WriteString(conn, tc.next+head+"\r\n") // what a proxy took for a body, maybe
		if resp, err := http.ReadResponse(in, nil); err == nil {
			t.Errorf("%s: the next request was answered: %d", tc.line, resp.StatusCode)
			_ = resp.Body.Close()
		}
		_ = conn.Close()
	}
}
