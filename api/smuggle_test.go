package api

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const (
	sizedPut   = "PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
	chunkedPut = "PUT /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-Trailer: Content-Length: 1\r\n\r\n"
	bothPut    = "PUT /c HTTP/1.1\r\nHost: x\r\ncontent-LENGTH : 5\r\nTransfer-Encoding: chunked\r\n\r\n"
)

// The reader of request heads finds each head with two framings or a bad one, and no other, however the bytes
// are cut.
func TestHeadsAreFollowedWhereverTheyAreCut(t *testing.T) {
	hidden := "PUT /d HTTP/1.1\r\nContent-Length: 70\r\n\r\n" + (strings.Repeat("x", 5) + "\r\n\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n" + strings.Repeat("y", 70))[:70]
	for name, tc := range map[string]struct {
		text string
		want bool
	}{
		"a length":                  {sizedPut + sizedPut, false},
		"chunks":                    {chunkedPut + chunkedPut + sizedPut, false},
		"one after the other":       {sizedPut + chunkedPut + sizedPut + chunkedPut, false},
		"no body":                   {"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + chunkedPut, false},
		"a length of nothing":       {"GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + chunkedPut, false},
		"a body like a head":        {hidden + sizedPut, false},
		"lines without CR":          {"PUT / HTTP/1.1\nContent-Length: 1\n\nx" + chunkedPut, false},
		"a long line":               {"GET /" + strings.Repeat("x", 500) + " HTTP/1.1\r\nX: " + strings.Repeat("Content-Length:", 20) + "\r\n\r\n" + chunkedPut, false},
		"both":                      {strings.Replace(bothPut, " :", ":", 1), true},
		"both in another order":     {"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", true},
		"both on folded lines":      {"PUT / HTTP/1.1\r\nTransfer-Encoding:\r\n chunked\r\nContent-Length:\r\n\t3\r\n\r\n", true},
		"both behind a body":        {sizedPut + chunkedPut + strings.Replace(bothPut, " :", ":", 1), true},
		"both behind a folded one":  {"PUT / HTTP/1.1\r\nContent-Length:\r\n 3\r\n\r\nabc" + strings.Replace(bothPut, " :", ":", 1), true},
		"a length that is none":     {"PUT / HTTP/1.1\r\nContent-Length: x\r\n\r\n", true},
		"a length with many zeros":  {"PUT / HTTP/1.1\r\nContent-Length: " + strings.Repeat("0", 80) + "1\r\n\r\n", true},
		"a size that is none":       {"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", true},
		"a chunk longer than it is": {"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\nz\r\n", true},
	} {
		for piece := 1; piece <= len(tc.text); piece++ {
			var h heads
			got := false
			for rest := tc.text; rest != ""; {
				n := min(piece, len(rest))
				got = h.read([]byte(rest[:n])) || got
				rest = rest[n:]
			}
			if got != tc.want {
				t.Fatalf("%s, in pieces of %d bytes: %v, want %v", name, piece, got, tc.want)
			}
		}
	}
}

func FuzzHeads(f *testing.F) {
	for _, seed := range []string{sizedPut, chunkedPut, bothPut, sizedPut + chunkedPut} {
		f.Add(seed, 3)
	}
	f.Fuzz(func(t *testing.T, text string, piece int) {
		var whole, cut heads
		want, got := whole.read([]byte(text)), false
		for rest := text; rest != ""; {
			n := min(max(piece, 1), len(rest))
			got = cut.read([]byte(rest[:n])) || got
			rest = rest[n:]
		}
		if got != want || whole.at != cut.at || whole.left != cut.left {
			t.Errorf("in one piece %v %d %d, cut %v %d %d", want, whole.at, whole.left, got, cut.at, cut.left)
		}
	})
}

// A request with a length and chunks is answered as its chunks say, and no further request on its connection is.
func TestARequestWithALengthAndChunksEndsItsConnection(t *testing.T) {
	s := &Server{flight: newFlight(), logger: slog.New(slog.DiscardHandler)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	svc := s.add("test", l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(append([]byte(r.URL.Path+" "), body...))
	}))
	served := make(chan error, 1)
	go func() { served <- svc.server.Serve(watchedListener{svc.listener}) }()
	defer func() {
		_ = svc.server.Close()
		<-served
	}()
	both := strings.Replace(bothPut, " :", ":", 1) + "3\r\nabc\r\n0\r\n\r\n"
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"a length, then chunks": {sizedPut + chunkedPut + sizedPut, []string{"/a hello", "/b hello", "/a hello"}},
		"both":                  {both + sizedPut, []string{"/c abc"}},
		"both, later":           {sizedPut + chunkedPut + both + sizedPut, []string{"/a hello", "/b hello", "/c abc"}},
	} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		in := bufio.NewReader(c)
		var got []string
		for rest := tc.text; rest != ""; {
			next := strings.Index(rest[1:], "PUT ") + 1
			if next == 0 {
				next = len(rest)
			}
			if _, err := io.WriteString(c, rest[:next]); err != nil {
				break
			}
			rest = rest[next:]
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				break
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if got = append(got, string(body)); resp.Close {
				break
			}
		}
		if strings.Join(got, ",") != strings.Join(tc.want, ",") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		_ = c.Close()
	}
}

// A chunked request over TLS with HTTP/1.1 ends its connection, and other requests do not. The node cannot see
// in the head of such a request whether it has a length too.
func TestChunksOverTLSEndTheirConnection(t *testing.T) {
	for _, tc := range []struct {
		name    string
		tls     bool
		major   int
		chunked bool
		want    string
	}{
		{"chunks over TLS", true, 1, true, "close"},
		{"a length over TLS", true, 1, false, ""},
		{"HTTP/2", true, 2, true, ""},
		{"chunks over plain HTTP, where heads are read", false, 1, true, ""},
	} {
		r := httptest.NewRequest(http.MethodPut, "/a/b", http.NoBody)
		r.ProtoMajor = tc.major
		if tc.tls {
			r.TLS = &tls.ConnectionState{}
		}
		if tc.chunked {
			r.TransferEncoding = []string{"chunked"}
		}
		w := httptest.NewRecorder()
		closing(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if got := w.Header().Get("Connection"); got != tc.want {
			t.Errorf("%s: Connection is %q, want %q", tc.name, got, tc.want)
		}
	}
}
