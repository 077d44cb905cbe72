package s3

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// dial sends text to the server of the world as it is and returns the connection.
func (w *world) dial(t *testing.T, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	server := w.serve(t)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	w.send(t, conn, text)
	return conn, bufio.NewReader(conn)
}

func (w *world) send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\r\n"), "{alice}", w.alice.Token)
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// heard is an answer that was read.
type heard struct {
	StatusCode int
	Header     http.Header
}

func readAnswer(t *testing.T, in *bufio.Reader, method string) (heard, string) {
	t.Helper()
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return heard{resp.StatusCode, resp.Header}, string(body)
}

// A PUT that is refused gets its answer instead of 100 Continue.
func TestADeniedPutIsNotAskedToGoOn(t *testing.T) {
	for _, tc := range []struct {
		path, token string
		want        int
	}{
		{"/photos/k", "wrong", 403},
		{"/absent/k", "{alice}", 404},
		{"/photos/cat.jpg?acl", "{alice}", 501},
		{"/photos/k?partNumber=1&uploadId=none", "{alice}", 404},
	} {
		w := newWorld(t)
		w.scene(t)
		_, in := w.dial(t, "PUT "+tc.path+" HTTP/1.1\nHost: x\nAuthorization: Bearer "+tc.token+"\nExpect: 100-continue\nContent-Length: 5\n\n")
		if resp, body := readAnswer(t, in, "PUT"); resp.StatusCode != tc.want {
			t.Errorf("%s: %d %s", tc.path, resp.StatusCode, body)
		}
	}
	w := newWorld(t)
	w.scene(t)
	conn, in := w.dial(t, "PUT /photos/k HTTP/1.1\nHost: x\nAuthorization: Bearer {alice}\nExpect: 100-continue\nContent-Length: 5\n\n")
	if resp, _ := readAnswer(t, in, "PUT"); resp.StatusCode != 100 {
		t.Fatalf("%d, want 100", resp.StatusCode)
	}
	w.send(t, conn, "hello")
	if resp, body := readAnswer(t, in, "PUT"); resp.StatusCode != 200 || resp.Header.Get("Etag") != `"`+sumOfHello+`"` {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// One connection of HTTP/1.1 serves requests of every framing one after another, each with its own answer. No
// deadline of one may end the next.
func TestOneConnectionServesMany(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	const auth = "Host: x\nAuthorization: Bearer {alice}\n"
	conn, in := w.dial(t, "")
	for _, step := range []struct {
		request string
		want    int
		body    string
	}{
		{"PUT /photos/x//../%2F/. HTTP/1.1\n" + auth + "Content-Length: 5\n\nhello", 200, ""},
		{"GET /photos/x//../%2F/. HTTP/1.1\n" + auth + "\n", 200, "hello"},
		{"HEAD /photos/x//../%2F/. HTTP/1.1\n" + auth + "\n", 200, ""},
		// What boto3 sends over TLS, with a bearer token: framing in framing.
		{"PUT /photos/boto HTTP/1.1\n" + auth + "Transfer-Encoding: chunked\nContent-Encoding: aws-chunked\nX-Amz-Trailer: x-amz-checksum-crc32\nX-Amz-Decoded-Content-Length: 5\n\n" +
			"2e\n5\nhello\n0\nx-amz-checksum-crc32:" + crcOfHello + "\n\n\n0\n\n", 200, ""},
		{"GET /photos/boto HTTP/1.1\n" + auth + "Range: bytes=1-3\n\n", 206, "ell"},
		// minio-go over plain HTTP says only by its hash that there are chunks.
		{"PUT /photos/minio HTTP/1.1\n" + auth + "X-Amz-Content-Sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\nX-Amz-Decoded-Content-Length: 5\nContent-Length: 15\n\n5\nhello\n0\n\n", 200, ""},
		{"GET /photos/minio HTTP/1.1\n" + auth + "\n", 200, "hello"},
		{"PUT /photos/chunked HTTP/1.1\n" + auth + "Transfer-Encoding: chunked\n\n5\nhello\n0\n\n", 200, ""},
		{"GET /photos/chunked HTTP/1.1\n" + auth + "If-None-Match: \"" + sumOfHello + "\"\n\n", 304, ""},
		{"PUT /photos/nothing HTTP/1.1\n" + auth + "\n", 411, "MissingContentLength"},
		{"PUT /photos/empty HTTP/1.1\n" + auth + "Content-Length: 0\n\n", 200, ""},
		{"DELETE /photos/minio HTTP/1.1\n" + auth + "\n", 204, ""},
	} {
		w.send(t, conn, step.request)
		method, _, _ := strings.Cut(step.request, " ")
		resp, body := readAnswer(t, in, method)
		if resp.StatusCode != step.want || step.want < 300 && body != step.body || !strings.Contains(body, step.body) {
			t.Errorf("%.40s: %d %q", step.request, resp.StatusCode, body)
		}
		if enc := resp.Header.Get("Content-Encoding"); enc != "" {
			t.Errorf("%.40s: Content-Encoding %s", step.request, enc)
		}
	}
	for _, key := range []string{"x//..///.", "boto", "chunked"} {
		if o, err := w.fake.Object(t.Context(), w.who.Account, "photos", key, ""); err != nil || o.ETag != sumOfHello {
			t.Errorf("%q: %+v, %v", key, o, err)
		}
	}
}

// A body that breaks off gets IncompleteBody and stores nothing.
func TestABodyThatBreaksOffStoresNothing(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	before := w.fake.everything()
	conn, in := w.dial(t, "PUT /photos/k HTTP/1.1\nHost: x\nAuthorization: Bearer {alice}\nContent-Length: 10\n\nhello")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if resp, body := readAnswer(t, in, "PUT"); resp.StatusCode != 400 || !strings.Contains(body, "IncompleteBody") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if after := w.fake.everything(); after != before {
		t.Errorf("it stored %s", after)
	}
}

// A body with broken chunks gets 400 IncompleteBody.
func TestABodyWithBrokenChunksIsTheClientsMistake(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	_, in := w.dial(t, "PUT /photos/k HTTP/1.1\nHost: x\nAuthorization: Bearer {alice}\nTransfer-Encoding: chunked\n\nzz\nhello\n0\n\n")
	if resp, body := readAnswer(t, in, "PUT"); resp.StatusCode != 400 || !strings.Contains(body, "IncompleteBody") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// Content that fails before its first byte is answered with 500, and content that fails later ends with an error
// for the client.
func TestContentThatCannotBeReadIsNeverAWholeAnswer(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/large", strings.Repeat("x", 1<<20))
	w.fake.torn = 0
	if rec := w.do(t, call{method: "GET", path: "/photos/large"}); rec.Code != 500 || !strings.Contains(rec.Body.String(), "InternalError") || rec.Header().Get("Etag") != "" {
		t.Errorf("%d %v", rec.Code, rec.Header())
	}
	w.fake.torn = 600_000
	server := w.serve(t)
	r := newRequest(t, "GET", server.URL+"/photos/large", "")
	r.Header.Set("Authorization", "Bearer "+w.alice.Token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || n >= 1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// revokedMeanwhile returns a request whose key is revoked between two pieces of its body, when
// it has been under way for 2 s. Nothing of that is sent before it is asked for.
func (w *world) revokedMeanwhile(t *testing.T, key state.KeyID, method, url, first, rest string) *http.Request {
	t.Helper()
	body, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Expect", "100-continue")
	go func() {
		_, began := io.WriteString(out, first)
		w.pass(2 * time.Second)
		err := w.users.Revoke(t.Context(), key)
		_, ended := io.WriteString(out, rest)
		if err := errors.Join(began, err, ended, out.Close()); err != nil {
			t.Error(err)
		}
	}()
	return r
}

// A PUT whose key is revoked while its body comes gets AccessDenied and stores nothing. A body may take hours.
func TestWhoIsRevokedWhileSendingStoresNothing(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	before := w.fake.everything()
	server := w.serve(t)
	// Nothing of a body is sent before the caller was judged.
	patient := &http.Transport{ExpectContinueTimeout: time.Minute}
	t.Cleanup(patient.CloseIdleConnections)
	for name, authorize := range map[string]func(*http.Request){
		"a token": func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+w.alice.Token) },
		"a signature": func(r *http.Request) {
			r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
			signWith(t, w, r, w.writer.AccessKeyID, w.writer.SecretAccessKey, "UNSIGNED-PAYLOAD")
		},
	} {
		id := w.alice.ID
		if name != "a token" {
			id = w.writer.ID
		}
		r := w.revokedMeanwhile(t, id, "PUT", server.URL+"/photos/k", strings.Repeat("x", 100_000), "x")
		authorize(r)
		if status, body := answerTo(t, &http.Client{Transport: patient}, r); status != 403 || !strings.Contains(body, "AccessDenied") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if after := w.fake.everything(); after != before {
		t.Errorf("it stored %s", after)
	}
}

// A request whose key is revoked while its small body comes gets AccessDenied and changes nothing.
func TestSmallBodiesOfRevokedKeysChangeNothing(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	before := w.fake.everything()
	server := w.serve(t)
	// Nothing of a body is sent before the caller was judged.
	patient := &http.Transport{ExpectContinueTimeout: time.Minute}
	t.Cleanup(patient.CloseIdleConnections)
	for _, c := range []call{
		{method: "PUT", path: "/fresh", body: `<CreateBucketConfiguration><LocationConstraint>EU</LocationConstraint></CreateBucketConfiguration>`},
		{method: "POST", path: "/photos?delete", body: `<Delete><Object><Key>cat.jpg</Key></Object><Object><Key>k</Key></Object></Delete>`},
		{method: "POST", path: "/photos?delete", body: `<Delete><Object><Key>cat.jpg</Key><ETag>"781e5e245d69b566979b86e28d23f2c7"</ETag></Object></Delete>`},
		{method: "PUT", path: "/photos?cors", body: `<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>`},
		{method: "PUT", path: "/photos?acl", body: `<AccessControlPolicy><Owner><ID>` + string(w.who.Account) + `</ID></Owner><AccessControlList><Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"><ID>` + string(w.who.Account) + `</ID></Grantee><Permission>FULL_CONTROL</Permission></Grant><Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group"><URI>` + allUsers + `</URI></Grantee><Permission>READ</Permission></Grant></AccessControlList></AccessControlPolicy>`},
		{method: "PUT", path: "/photos?versioning", body: `<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>`},
		{method: "PUT", path: "/photos/cat.jpg?tagging", body: `<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>`},
		{method: "PUT", path: "/photos/open?partNumber=3&uploadId=upload-14", body: "hello"},
		{method: "POST", path: "/photos/open?uploadId=upload-14", body: complete("", "8b04d5e3775d298e78455efc5ca404d5")},
	} {
		key, err := w.users.CreateKey(t.Context(), "alice@example.org", "test", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		r := w.revokedMeanwhile(t, key.ID, c.method, server.URL+c.path, c.body[:1], c.body[1:])
		r.Header.Set("Authorization", "Bearer "+key.Token)
		if status, body := answerTo(t, &http.Client{Transport: patient}, r); !strings.Contains(body, "<Code>AccessDenied</Code>") {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
	if after := w.fake.everything(); after != before {
		t.Errorf("it changed\n%s\nto\n%s", before, after)
	}
}

// A PUT gets 503 with Retry-After if the cluster does not answer before, during or after its body.
func TestAClusterThatDoesNotAnswerIsNotWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	for name, hang := range map[string]hanging{"before the body": hangsBefore, "in the middle": hangsReading, "at its end": hangsSealing, "after its check": hangsNaming} {
		for _, path := range []string{"/photos/k", "/photos/open?partNumber=1&uploadId=upload-14"} {
			synctest.Test(t, func(t *testing.T) {
				w.options.Objects = hung{w.fake, hang}
				w.rebuild(t)
				slow := slowReader{strings.NewReader("hello")}
				r := w.request(t, call{method: "PUT", path: path})
				r.Body, r.ContentLength = io.NopCloser(&slow), 5
				rec := httptest.NewRecorder()
				w.handler.ServeHTTP(rec, r)
				if rec.Code != 503 || rec.Header().Get("Retry-After") != "1" {
					t.Errorf("%s: %s: %d %s", name, path, rec.Code, rec.Body)
				}
			})
		}
	}
}

// slowReader gives a byte an hour.
type slowReader struct{ r io.Reader }

func (s *slowReader) Read(p []byte) (int, error) {
	<-time.After(time.Hour)
	return s.r.Read(p[:1])
}

type hanging int

const (
	hangsBefore hanging = iota
	hangsReading
	hangsSealing
	hangsNaming
)

// hung is a fake that waits for its context to end at some step of a put.
type hung struct {
	*fake
	at hanging
}

func (h hung) wait(ctx context.Context, body objects.Body) error {
	switch h.at {
	case hangsBefore:
	case hangsReading:
		if _, err := body.Reader.Read(make([]byte, 10)); err != nil {
			return err
		}
	default:
		if _, err := io.ReadAll(body.Reader); err != nil {
			return err
		}
	}
	if h.at == hangsNaming {
		sum := md5Sum("hello")
		if _, err := body.Check(objects.Sums{MD5: sum}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return fmt.Errorf("hung: %w", ctx.Err())
}

func (h hung) Put(ctx context.Context, _ state.AccountID, _ string, r objects.PutRequest) (state.Object, error) {
	return state.Object{}, h.wait(ctx, r.Body)
}

func (h hung) PutPart(ctx context.Context, _ state.AccountID, _ string, r objects.PartRequest) (state.Part, error) {
	return state.Part{}, h.wait(ctx, r.Body)
}
