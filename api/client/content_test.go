package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// contentNode serves one content at every path. It cuts an answer after some bytes, or refuses it.
type contentNode struct {
	text   string
	kind   string
	cutAt  int // bytes of the body after which the connection is cut; -1: never
	status int // of a refusal; 0: none

	mu   sync.Mutex
	asks []string // path, Range and Accept of each request
}

// ServeHTTP implements http.Handler.
func (n *contentNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	n.asks = append(n.asks, strings.Join([]string{r.URL.EscapedPath(), r.Header.Get("Range"), r.Header.Get("Accept")}, " | "))
	n.mu.Unlock()
	if n.status != 0 {
		w.WriteHeader(n.status)
		fmt.Fprint(w, `{"error":{"reason":"NO","details":"why"}}`)
		return
	}
	w.Header().Set("Content-Type", n.kind)
	body := n.text
	if n.kind == "application/octet-stream" {
		w.Header().Set("ETag", `"e"`)
		if from, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")); err == nil && r.Header.Get("If-Match") == `"e"` {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
			w.Header().Set("Content-Length", strconv.Itoa(len(body)-from))
			w.WriteHeader(http.StatusPartialContent)
			body = body[from:]
		} else {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		}
	}
	if n.cutAt >= 0 {
		_, _ = io.WriteString(w, body[:min(n.cutAt, len(body))])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(w, body) // the test compares what arrives
}

// contentClient returns a client of the web APIs of nodes, which asks them in this order.
func contentClient(t *testing.T, nodes ...*contentNode) *Client {
	t.Helper()
	o := Options{Endpoints: []string{"http://127.0.0.1:1"}, Token: "token", Patience: 300 * time.Millisecond}
	for _, n := range nodes {
		server := httptest.NewServer(n)
		t.Cleanup(server.Close)
		o.Console = append(o.Console, server.URL)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Content that a node does not send to its end is continued by the next node: a file with the next byte, and a stream,
// which has no ranges, after what has come is there again. Other bytes, and content that no node sends to its end, are an error.
func TestContentIsContinuedByTheNextNode(t *testing.T) {
	text := strings.Repeat("0123456789", 10_000)
	const file = "application/octet-stream"
	whole := func(kind string) *contentNode { return &contentNode{text: text, kind: kind, cutAt: -1} }
	cut := func(kind string, at int) *contentNode { return &contentNode{text: text, kind: kind, cutAt: at} }
	down := &contentNode{status: http.StatusServiceUnavailable}
	for name, tc := range map[string]struct {
		nodes []*contentNode
		want  string // part of the error
	}{
		"a file":                       {nodes: []*contentNode{cut(file, 70_001), whole(file)}},
		"a file of a node that cuts":   {nodes: []*contentNode{cut(file, 70_001)}},
		"a file cut at its beginning":  {nodes: []*contentNode{cut(file, 0), whole(file)}},
		"a folder":                     {nodes: []*contentNode{cut(TypeTar, 70_001), down, whole(TypeTar)}},
		"a CAR":                        {nodes: []*contentNode{cut(TypeCAR, 70_001), whole(TypeCAR)}},
		"an empty file":                {nodes: []*contentNode{{kind: file, cutAt: -1}}},
		"a stream that nobody ends":    {nodes: []*contentNode{cut(TypeTar, 70_001), cut(TypeTar, 60_000)}, want: "unexpected EOF"},
		"a CAR with other bytes":       {nodes: []*contentNode{cut(TypeCAR, 70_001), {text: "x" + text[1:], kind: TypeCAR, cutAt: -1}}, want: "the node sent other content"},
		"a folder that becomes a file": {nodes: []*contentNode{cut(TypeTar, 70_001), whole(file)}, want: "the node sent other content"},
		"a file in place of a CAR":     {nodes: []*contentNode{whole(file)}, want: "the node sent other content"},
	} {
		c := contentClient(t, tc.nodes...)
		open := c.OpenContent
		if strings.Contains(name, "CAR") {
			open = c.OpenCAR
		}
		got, err := open(t.Context(), "cid/a b/é")
		var data []byte
		if err == nil {
			data, err = io.ReadAll(got)
			if closed := got.Close(); closed != nil {
				t.Errorf("%s: %v", name, closed)
			}
		}
		if tc.want != "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) || string(data) == text {
				t.Errorf("%s: %v after %d bytes, want %s", name, err, len(data), tc.want)
			}
			continue
		}
		if want := tc.nodes[0].text; err != nil || string(data) != want {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
			continue
		}
		if folder := tc.nodes[0].kind == TypeTar; got.Folder != folder || tc.nodes[0].kind == file && got.Size != int64(len(tc.nodes[0].text)) || tc.nodes[0].kind != file && got.Size != -1 {
			t.Errorf("%s: %+v", name, got)
		}
		if ask := tc.nodes[0].asks[0]; !strings.HasPrefix(ask, "/api/v1/content/cid/a%20b/%C3%A9 |  | ") {
			t.Errorf("%s: asked for %s", name, ask)
		}
	}
}

// A refusal is not repeated and has its reason, and the end of content that is closed early frees the connection.
func TestContentThatIsRefusedOrClosed(t *testing.T) {
	gone := &contentNode{status: http.StatusNotFound}
	_, err := contentClient(t, gone, &contentNode{kind: TypeTar, cutAt: -1}).OpenContent(t.Context(), "cid")
	if want := "read content: NO: why (http"; !errors.Is(err, ErrNotFound) || !strings.HasPrefix(err.Error(), want) || len(gone.asks) != 1 {
		t.Errorf("%v after %d requests, want %s", err, len(gone.asks), want)
	}
	large := &contentNode{text: strings.Repeat("x", 64<<20), kind: TypeTar, cutAt: -1}
	got, err := contentClient(t, large).OpenContent(t.Context(), "cid")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(got, make([]byte, 10)); err != nil {
		t.Error(err)
	}
	if err := got.Close(); err != nil { // returns when nothing reads any more
		t.Error(err)
	}
	if _, err := got.Read(make([]byte, 1)); err == nil {
		t.Error("closed content can be read")
	}
}
