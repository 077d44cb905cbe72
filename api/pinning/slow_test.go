package pinning

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A body that does not come in time gets 408, and 401 or 403 if its token may not create pins.
func TestABodyThatComesTooSlowlyIsTheClientsFault(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewUnstartedServer(w.handler)
	server.Config.ReadTimeout = 100 * time.Millisecond
	server.Start()
	defer server.Close()
	id := w.created(t, `{"cid":"`+cidOne+`"}`)
	for _, path := range []string{"/pins", "/pins/" + id} {
		for token, want := range map[string]string{
			w.alice: "408 REQUEST_TIMEOUT", w.revoked: "401 UNAUTHORIZED", "nobody's": "401 UNAUTHORIZED", w.reader: "403 FORBIDDEN",
		} {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"cid\"", path, token)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body := make([]byte, 1<<10)
			n, _ := answer.Body.Read(body) // what there is of it is compared
			status, reason, _ := strings.Cut(want, " ")
			if fmt.Sprint(answer.StatusCode) != status || !strings.Contains(string(body[:n]), `"`+reason+`"`) {
				t.Errorf("%s: %d %s, want %s", path, answer.StatusCode, body[:n], want)
			}
			if err := errors.Join(answer.Body.Close(), conn.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}
