package s3

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// sendForEver sends a request with a body that does not end, calls then once some of the body is
// sent, and returns the answer.
func sendForEver(t *testing.T, server *httptest.Server, head, begin string, then func()) (status int, body string, closed bool) {
	t.Helper()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	chunk := func(text string) error {
		_, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(text), text)
		return err
	}
	go func() {
		_, err := io.WriteString(c, head+"Host: x\r\nTransfer-Encoding: chunked\r\n\r\n")
		if begin != "" {
			err = errors.Join(err, chunk(begin))
		}
		for n := 0; err == nil; n++ {
			if n == 100 {
				then()
			}
			err = chunk(strings.Repeat("x", 1000))
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text), resp.Close
}

// A request whose key is revoked or ends while its body comes gets 403, its connection is closed, and nothing is
// stored, whatever the body is for.
func TestABodyOfWhoIsNotLetInAnyMoreIsCut(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	w.options.MaxObject = 1 << 40
	w.rebuild(t)
	server := httptest.NewServer(w.handler)
	defer server.Close()
	key := func(ttl time.Duration) accounts.Key {
		k, err := w.users.CreateKey(t.Context(), "alice@example.org", "test", nil, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	revoke := func(k accounts.Key, told bool) func() {
		return func() {
			if err := w.users.Revoke(t.Context(), k.ID); err != nil {
				t.Error(err)
			}
			if told {
				w.watch.Publish(1, &state.Effects{Keys: true})
			}
		}
	}
	before := w.fake.everything()
	first, second, third, fourth, short := key(0), key(0), key(0), key(0), key(time.Hour)
	boundary, formHead := "edge", new(bytes.Buffer)
	fields := multipart.NewWriter(formHead)
	if err := errors.Join(fields.SetBoundary(boundary), fields.WriteField("key", "form")); err != nil {
		t.Fatal(err)
	}
	if _, err := fields.CreateFormFile("file", "x"); err != nil {
		t.Fatal(err)
	}
	all := map[string]struct {
		method, path, kind string
		begin              string
		key                accounts.Key
		end                func()
	}{
		"an object":       {"PUT", "/photos/new", "", "", first, revoke(first, true)},
		"nobody is told":  {"PUT", "/photos/new", "", "", second, revoke(second, false)},
		"a part":          {"PUT", "/photos/open?uploadId=upload-14&partNumber=1", "", "", third, revoke(third, true)},
		"a form":          {"POST", "/photos", "multipart/form-data; boundary=" + boundary, formHead.String(), fourth, revoke(fourth, true)},
		"the key is over": {"PUT", "/photos/new", "", "", short, func() { w.pass(2 * time.Hour) }},
	}
	t.Run("all", func(t *testing.T) {
		for name, tc := range all {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				head := tc.method + " " + tc.path + " HTTP/1.1\r\nAuthorization: Bearer " + tc.key.Token + "\r\n"
				if tc.kind != "" {
					head += "Content-Type: " + tc.kind + "\r\n"
				}
				status, text, closed := sendForEver(t, server, head, tc.begin, tc.end)
				if status != 403 || !strings.Contains(text, "<Code>AccessDenied</Code>") || !closed {
					t.Errorf("%d %s, closed: %v", status, text, closed)
				}
			})
		}
	})
	if after := w.fake.everything(); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
}

// One goroutine watches all running requests, and none runs when there are none.
func TestNobodyLooksWhenNoBodyComes(t *testing.T) {
	w := newWorld(t)
	s := &running{accounts: w.users}
	one, two := &run{who: w.who}, &run{who: w.who}
	s.enter(one)
	done := s.done
	s.enter(two)
	s.leave(one)
	if s.done != done || len(s.all) != 1 {
		t.Errorf("%d requests", len(s.all))
	}
	s.leave(two)
	s.leave(two)
	s.leave(nil)
	<-done
	if s.stop != nil {
		t.Error("it goes on")
	}
}
