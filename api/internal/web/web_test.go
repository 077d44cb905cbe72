package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// plain answers every error that is not an Error with 500.
func plain(err error) Answer {
	var own *Error
	if errors.As(err, &own) {
		return own.Answer
	}
	return Answer{Status: http.StatusInternalServerError, Reason: "INTERNAL_SERVER_ERROR", Detail: "internal error"}
}

// wrapped is h with a log that the test reads.
func wrapped(h Handler) (http.Handler, *bytes.Buffer) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return Wrap(Options{Name: "test", Server: "holdfast/0", Answer: plain, Logger: logger}, h), &log
}

func serve(h http.Handler, method, path string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Each error is answered with its status, JSON form and headers, and logged in one line of its level with the
// request id.
func TestErrorsAreAnsweredInTheirForm(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		status int
		body   string
		header map[string]string
		level  string
	}{
		{"nested", BadRequest("no"), 400, `{"error":{"reason":"BAD_REQUEST","details":"no"}}`, nil, "DEBUG"},
		{"wrapped", fmt.Errorf("more: %w", BadRequest("no")), 400, `{"error":{"reason":"BAD_REQUEST","details":"no"}}`, nil, "DEBUG"},
		{"401", Errorf(401, "UNAUTHORIZED", "who?"), 401, `{"error":{"reason":"UNAUTHORIZED","details":"who?"}}`, map[string]string{"WWW-Authenticate": "Bearer"}, "DEBUG"},
		{"405", MethodNotAllowed("GET", "HEAD"), 405, `{"error":{"reason":"METHOD_NOT_ALLOWED","details":"this path allows GET, HEAD"}}`, map[string]string{"Allow": "GET, HEAD"}, "DEBUG"},
		{"413 flat", tooLarge(MaxJSONBody), 413, `{"error":"PAYLOAD_TOO_LARGE","message":"the body is larger than 1048576 bytes"}`, map[string]string{"Connection": "close"}, "DEBUG"},
		{"429 flat", &Error{Answer{Status: 429, Reason: "RATE_LIMITED", Detail: "x", RetryAfter: 59_001_000_000}}, 429, `{"error":"RATE_LIMITED","retry_after":60}`, map[string]string{"Retry-After": "60"}, "DEBUG"},
		{"503", &Error{Answer{Status: 503, Reason: "SERVICE_UNAVAILABLE", Detail: "x", RetryAfter: 1}}, 503, `{"error":{"reason":"SERVICE_UNAVAILABLE","details":"x"}}`, map[string]string{"Retry-After": "1"}, "WARN"},
		{"not ready", unready{Errorf(503, "SERVICE_UNAVAILABLE", "starting")}, 503, `{"error":{"reason":"SERVICE_UNAVAILABLE","details":"starting"}}`, nil, "DEBUG"},
		{"501", Errorf(501, "NOT_IMPLEMENTED", "x"), 501, `{"error":{"reason":"NOT_IMPLEMENTED","details":"x"}}`, nil, "DEBUG"},
		{"504", Errorf(504, "GATEWAY_TIMEOUT", "x"), 504, `{"error":{"reason":"GATEWAY_TIMEOUT","details":"x"}}`, nil, "WARN"},
		{"of content", OfContent(Errorf(500, "FAILED", "x")), 500, `{"error":{"reason":"FAILED","details":"x"}}`, nil, "DEBUG"},
		{"ours", errors.New("disk at /secret"), 500, `{"error":{"reason":"INTERNAL_SERVER_ERROR","details":"internal error"}}`, nil, "ERROR"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, log := wrapped(func(http.ResponseWriter, *http.Request) error { return tc.err })
			w := serve(h, "GET", "/x", nil)
			if w.Code != tc.status || w.Body.String() != tc.body {
				t.Errorf("%d %s, want %d %s", w.Code, w.Body, tc.status, tc.body)
			}
			want := map[string]string{
				"Content-Type": "application/json", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
				"Server": "holdfast/0", "Content-Length": fmt.Sprint(len(tc.body)),
			}
			for name, value := range tc.header {
				want[name] = value
			}
			for name, value := range want {
				if got := w.Header().Get(name); got != value {
					t.Errorf("%s: %q, want %q", name, got, value)
				}
			}
			if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "level="+tc.level) || !strings.Contains(log.String(), w.Header().Get(RequestIDHeader)) {
				t.Errorf("log, want one line of %s: %s", tc.level, log)
			}
		})
	}
}

// A panic is answered with 500 without its text, and logged with text and stack.
func TestPanicsAreAnsweredWithoutInternals(t *testing.T) {
	h, log := wrapped(func(http.ResponseWriter, *http.Request) error { panic("secret") })
	w := serve(h, "GET", "/", nil)
	if w.Code != 500 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "panic: secret") || !strings.Contains(log.String(), "stack=") {
		t.Errorf("log: %s", log)
	}
}

// An answer that fails after its first bytes cuts the connection, so that the client sees an error, and the
// failure is logged, at debug if only the content is to blame.
func TestAnAnswerThatBreaksOffCutsTheConnection(t *testing.T) {
	for level, err := range map[string]error{"ERROR": errors.New("block is gone"), "DEBUG": OfContent(errors.New("block is gone"))} {
		t.Run(level, func(t *testing.T) { testCut(t, err, level) })
	}
}

func testCut(t *testing.T, why error, level string) {
	h, log := wrapped(func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Length", "10")
		if _, err := io.WriteString(w, "half"); err != nil {
			return err
		}
		return errors.Join(http.NewResponseController(w).Flush(), why)
	})
	s := httptest.NewServer(h)
	resp, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("read %q to its end", body)
	}
	s.Close() // waits for the handler, which logs
	if !strings.Contains(log.String(), "level="+level) || !strings.Contains(log.String(), "block is gone") {
		t.Errorf("log: %s", log)
	}
}

// A refusal is sent before the body comes, and keeps the connection only if the body has a length of at most
// unreadAtMost and is not held back.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	h, _ := wrapped(func(http.ResponseWriter, *http.Request) error { return BadRequest("no") })
	s := httptest.NewServer(h)
	defer s.Close()
	for name, body := range map[string]struct {
		header, text string
		close        bool
	}{
		"a length":           {"Content-Length: 5", "hello", false},
		"the longest length": {fmt.Sprint("Content-Length: ", unreadAtMost), strings.Repeat("x", unreadAtMost), false},
		"a longer one":       {fmt.Sprint("Content-Length: ", unreadAtMost+1), "", true},
		"no length":          {"Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n", true},
		"a body held back":   {"Content-Length: 5\r\nExpect: 100-continue", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialRaw(t, s)
			answers := bufio.NewReader(conn)
			for range 2 {
				if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", body.header); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Fatal("without a body: ", err)
				}
				_, err = io.Copy(io.Discard, resp.Body)
				if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusBadRequest || resp.Close != body.close {
					t.Fatalf("%s, close %v, %v", resp.Status, resp.Close, err)
				}
				if body.close {
					break
				}
				if _, err := io.WriteString(conn, body.text); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// An answer ends the connection exactly if the rest of the body is long, of unknown length, late or broken.
func TestAnAnswerSaysWhetherTheConnectionGoesOn(t *testing.T) {
	h, _ := wrapped(func(w http.ResponseWriter, r *http.Request) error {
		most, err := strconv.ParseInt(r.URL.Path[1:], 10, 64)
		if err != nil {
			return err
		}
		if n, err := io.CopyN(io.Discard, r.Body, most); err != nil && n == 0 {
			return BadRequest("nothing came")
		}
		return BadRequest("no")
	})
	s := httptest.NewUnstartedServer(h)
	s.Config.ReadTimeout = time.Second
	s.Start()
	defer s.Close()
	for _, tc := range []struct {
		name, request string
		sent          int
		close         bool
	}{
		{"chunks, all read", "POST /6 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 0, false},
		{"chunks, some read", "POST /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 0, true},
		{"much, all read", fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 2*unreadAtMost, 2*unreadAtMost), 2 * unreadAtMost, false},
		{"much, so much read that little is left", fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 3, unreadAtMost+3), 3, false},
		{"one that does not come in time", "POST /6 HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nhello", 0, true},
		{"one whose chunks are broken", "POST /6 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn := dialRaw(t, s)
			if _, err := io.WriteString(conn, tc.request+strings.Repeat("x", tc.sent)); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal("no answer: ", err)
			}
			_, err = io.Copy(io.Discard, resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusBadRequest || resp.Close != tc.close {
				t.Errorf("%s, close %v, %v", resp.Status, resp.Close, err)
			}
		})
	}
}

// A refusal over HTTP/2 ends none of the other requests on its connection; over HTTP/1.1 it ends the connection.
func TestARefusalLeavesASharedConnection(t *testing.T) {
	h, _ := wrapped(func(http.ResponseWriter, *http.Request) error {
		return tooLarge(MaxJSONBody)
	})
	for _, two := range []bool{false, true} {
		s := httptest.NewUnstartedServer(h)
		s.EnableHTTP2 = two
		s.StartTLS()
		reused := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }})
		for n := range 3 {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if cerr := resp.Body.Close(); err != nil || cerr != nil || !strings.Contains(string(body), "PAYLOAD_TOO_LARGE") {
				t.Errorf("%s: %q, %v", resp.Proto, body, err)
			}
			if want := two && n > 0; reused != want || resp.ProtoMajor == 2 != two {
				t.Errorf("%s: request %d on a connection that is there: %t", resp.Proto, n, reused)
			}
		}
		s.Close()
	}
}

// A request id of the client is kept if it has 1 to 64 safe characters, and replaced otherwise.
func TestRequestIDsAreTakenOverOnlyWhenHarmless(t *testing.T) {
	h, _ := wrapped(func(w http.ResponseWriter, _ *http.Request) error { return Empty(w, http.StatusAccepted) })
	for id, kept := range map[string]bool{
		"abc-DEF_1.2": true, strings.Repeat("a", 64): true,
		"": false, strings.Repeat("a", 65): false, "a b": false, "a\nb": false, "ä": false, `"`: false,
	} {
		got := serve(h, "GET", "/", http.Header{RequestIDHeader: {id}}).Header().Get(RequestIDHeader)
		if (got == id) != kept || !sane(got) {
			t.Errorf("%q is answered as %q", id, got)
		}
	}
}

// Neither the query nor the Authorization header of a request is in the log.
func TestTheLogHoldsNoSecrets(t *testing.T) {
	h, log := wrapped(func(http.ResponseWriter, *http.Request) error { return errors.New("x") })
	serve(h, "GET", "/pins?token=hidden", http.Header{"Authorization": {"Bearer hidden"}})
	if strings.Contains(log.String(), "hidden") {
		t.Errorf("log: %s", log)
	}
}

// A route matches the path as it was sent, without cleaning, an unknown method gets 405 with Allow, and an
// unknown path 404.
func TestRoutesMatchThePathAsItWasSent(t *testing.T) {
	say := func(text string) Handler {
		return func(w http.ResponseWriter, r *http.Request) error {
			return JSON(w, http.StatusOK, text+" "+r.PathValue("id"))
		}
	}
	h, _ := wrapped(Routes([]Route{
		{"GET", "/pins", say("list")},
		{"POST", "/pins", say("create")},
		{"GET", "/pins/{id}", say("get")},
		{"DELETE", "/pins/{id}", say("delete")},
		{"GET", "/content/{bucket}/{id...}", say("content")},
	}))
	for _, tc := range []struct {
		method, path string
		status       int
		body, allow  string
	}{
		{"GET", "/pins", 200, `"list "`, ""},
		{"HEAD", "/pins", 200, `"list "`, ""}, // the server drops the body
		{"POST", "/pins", 200, `"create "`, ""},
		{"GET", "/pins/a", 200, `"get a"`, ""},
		{"GET", "/pins/a%2Fb", 200, `"get a/b"`, ""},
		{"GET", "/pins/..", 200, `"get .."`, ""},
		{"DELETE", "/pins/%E2%82%AC", 200, `"delete €"`, ""},
		{"PUT", "/pins", 405, "", "GET, HEAD, OPTIONS, POST"},
		{"POST", "/pins/a", 405, "", "DELETE, GET, HEAD, OPTIONS"},
		{"OPTIONS", "/pins/a", 204, "", "DELETE, GET, HEAD, OPTIONS"},
		{"BREW", "/pins", 405, "", "GET, HEAD, OPTIONS, POST"},
		{"GET", "/", 404, "", ""},
		{"GET", "/pins/", 404, "", ""},
		{"GET", "//pins", 404, "", ""},
		{"GET", "/pins/a/b", 404, "", ""},
		{"GET", "/v1/pins", 404, "", ""},
		{"OPTIONS", "/other", 404, "", ""},
		{"GET", "/%70ins", 404, "", ""},
		{"GET", "/content/b/a", 200, `"content a"`, ""},
		{"GET", "/content/b/a/b%2Fc//d/", 200, `"content a/b/c//d/"`, ""},
		{"GET", "/content/b//a", 200, `"content /a"`, ""},
		{"POST", "/content/b/a/b", 405, "", "GET, HEAD, OPTIONS"},
		{"GET", "/content/b/", 404, "", ""},
		{"GET", "/content/b", 404, "", ""},
		{"GET", "/content//a", 404, "", ""},
	} {
		w := serve(h, tc.method, tc.path, nil)
		if w.Code != tc.status || w.Header().Get("Allow") != tc.allow || tc.body != "" && w.Body.String() != tc.body {
			t.Errorf("%s %s: %d %s, Allow %q, want %d %s %q", tc.method, tc.path, w.Code, w.Body, w.Header().Get("Allow"), tc.status, tc.body, tc.allow)
		}
	}
}

// Bearer takes the token of one header "Bearer TOKEN" of at most 4,096 bytes, and no other form.
func TestBearerIsExact(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values []string
		want   string
	}{
		{"good", []string{"Bearer abc.def"}, "abc.def"},
		{"as long as may be", []string{"Bearer " + strings.Repeat("a", 4096)}, strings.Repeat("a", 4096)},
		{"no header", nil, ""},
		{"empty", []string{""}, ""},
		{"only the scheme", []string{"Bearer"}, ""},
		{"no token", []string{"Bearer "}, ""},
		{"no space", []string{"Bearerabc"}, ""},
		{"two spaces", []string{"Bearer  abc"}, ""},
		{"a space before", []string{" Bearer abc"}, ""},
		{"a space behind", []string{"Bearer abc "}, ""},
		{"two tokens", []string{"Bearer abc def"}, ""},
		{"a tab", []string{"Bearer\tabc"}, ""},
		{"a tab inside", []string{"Bearer a\tc"}, ""},
		{"not ASCII", []string{"Bearer abcä"}, ""},
		{"DEL", []string{"Bearer abc\x7f"}, ""},
		{"lower case", []string{"bearer abc"}, ""},
		{"upper case", []string{"BEARER abc"}, ""},
		{"another scheme", []string{"Basic abc"}, ""},
		{"two headers", []string{"Bearer abc", "Bearer abc"}, ""},
		{"too long", []string{"Bearer " + strings.Repeat("a", 4097)}, ""},
	} {
		r := &http.Request{Header: http.Header{"Authorization": tc.values}}
		token, err := Bearer(r)
		if token != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %q, %v", tc.name, token, err)
		}
	}
}

// Body takes JSON of at most MaxJSONBody bytes, and answers 413 to more and 400 to another media type or a body
// that breaks off.
func TestBodyIsBounded(t *testing.T) {
	full := strings.Repeat("x", MaxJSONBody)
	unknown := func(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) } // no length known
	for _, tc := range []struct {
		name   string
		body   io.Reader
		types  []string
		status int // 0: accepted
	}{
		{"at the bound", strings.NewReader(full), nil, 0},
		{"at the bound, chunked", unknown(full), nil, 0},
		{"one more", strings.NewReader(full + "x"), nil, 413},
		{"one more, chunked", unknown(full + "x"), nil, 413},
		{"empty", strings.NewReader(""), nil, 0},
		{"breaks off", io.MultiReader(strings.NewReader("{"), brokenReader{}), nil, 400},
		{"JSON", strings.NewReader("1"), []string{"application/json"}, 0},
		{"JSON of a charset", strings.NewReader("1"), []string{"application/json; charset=utf-8"}, 0},
		{"JSON in capitals", strings.NewReader("1"), []string{"Application/JSON"}, 0},
		{"an empty type", strings.NewReader("1"), []string{""}, 0},
		{"text", strings.NewReader("1"), []string{"text/plain"}, 400},
		{"a form", strings.NewReader("1"), []string{"application/x-www-form-urlencoded"}, 400},
		{"JSON of a kind", strings.NewReader("1"), []string{"application/ld+json"}, 0},
		{"JSON of a kind with parameters", strings.NewReader("1"), []string{"Application/Vnd.X+JSON; charset=utf-8"}, 0},
		{"JSON as text", strings.NewReader("1"), []string{"text/json"}, 0},
		{"almost JSON", strings.NewReader("1"), []string{"application/json+ld"}, 400},
		{"JSON without a type", strings.NewReader("1"), []string{"+json"}, 400},
		{"JSON in a parameter", strings.NewReader("1"), []string{"text/plain; a=application/json"}, 400},
		{"sequences of JSON", strings.NewReader("1"), []string{"application/json-seq"}, 400},
		{"no media type", strings.NewReader("1"), []string{"json"}, 400},
		{"two types", strings.NewReader("1"), []string{"application/json", "text/plain"}, 400},
		{"garbage", strings.NewReader("1"), []string{";;;"}, 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/", tc.body)
			if tc.types != nil {
				r.Header["Content-Type"] = tc.types
			}
			_, err := Body(httptest.NewRecorder(), r, MaxJSONBody, nil)
			if status := statusOf(err); status != tc.status {
				t.Errorf("%v, want %d", err, tc.status)
			}
		})
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequest("POST", "/", brokenReader{}).WithContext(gone)
	if _, err := Body(httptest.NewRecorder(), r, MaxJSONBody, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that left: %v", err)
	}
}

// A body whose announced length is too much gets 413 before a byte of it is read, also where there is no room
// for another body.
func TestABodyAnnouncedTooLargeIsNotRead(t *testing.T) {
	m := NewMemory(firstRead, firstRead)
	held := m.Of("who")
	if err := held.Grow(firstRead); err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]*Held{"no room": held, "room": nil} {
		r := httptest.NewRequest("POST", "/", brokenReader{})
		r.ContentLength = MaxJSONBody + 1
		if _, err := Body(httptest.NewRecorder(), r, MaxJSONBody, h); statusOf(err) != 413 {
			t.Errorf("%s: %v, want 413", name, err)
		}
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func statusOf(err error) int {
	var own *Error
	if errors.As(err, &own) {
		return own.Answer.Status
	}
	return 0
}

// Object takes one JSON object in UTF-8 and refuses everything else with 400 and the mistake, also duplicate
// members, deep nesting and half surrogates.
func TestObjectIsStrict(t *testing.T) {
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }
	for _, tc := range []struct{ body, want string }{
		{`{}`, ""},
		{` { "a" : 1 , "b" : [ "c" ] } ` + "\r\n\t", ""},
		{`{"a":"\u00e9\ud83d\ude00\n\\\""}`, ""},
		{`{"a":"\\ud800"}`, ""}, // a backslash and letters
		{`{"A":1,"a":2}`, ""},   // two names
		{deep(MaxJSONDepth - 1), ""},
		{deep(MaxJSONDepth), "nested deeper"},
		{strings.Repeat("[", 10_000), "nested deeper"},
		{`{"a":"[[[[` + strings.Repeat("[", 100) + `"}`, ""},
		{``, "it is empty"},
		{` `, "not valid JSON"},
		{`null`, "must be a JSON object"},
		{`[]`, "must be a JSON object"},
		{`"a"`, "must be a JSON object"},
		{`1`, "must be a JSON object"},
		{`{`, "not valid JSON"},
		{`{"a"}`, "not valid JSON"},
		{`{"a":}`, "not valid JSON"},
		{`{"a":1,}`, "not valid JSON"},
		{`{,}`, "not valid JSON"},
		{`{"a":1 "b":2}`, "not valid JSON"},
		{`{a:1}`, "not valid JSON"},
		{`{'a':1}`, "not valid JSON"},
		{`{"a":01}`, "not valid JSON"},
		{`{"a":NaN}`, "not valid JSON"},
		{`{1:2}`, "not valid JSON"},
		{`{} {}`, "more after the end"},
		{`{}x`, "more after the end"},
		{`{}]`, "more after the end"},
		{"{}\x00", "more after the end"},
		{`{"a":1,"a":1}`, `member "a" twice`},
		{`{"a":1,"\u0061":1}`, `member "a" twice`},
		{"\ufeff{}", "byte order mark"},
		{"{\"a\":\"\xff\"}", "not UTF-8"},
		{"{\"a\":\"\n\"}", "not valid JSON"},
		{`{"a":"\ud800"}`, "surrogate"},
		{`{"a":"\udc00"}`, "surrogate"},
		{`{"a":"\uD83D\uD83D"}`, "surrogate"},
		{`{"a":"\ud83dx"}`, "surrogate"},
		{`{"\ud800":1}`, "surrogate"},
		{`{"a":"\x"}`, "not valid JSON"},
		{"{} // comment", "more after the end"},
	} {
		_, err := Object("it", []byte(tc.body))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || statusOf(err) != 400) {
			t.Errorf("%.60q: %v, want %q", tc.body, err, tc.want)
		}
	}
}

// Text, Texts and Strings return members of their type, tell absent from empty, and refuse members of another
// type with 400.
func TestMembersHaveTheirTypes(t *testing.T) {
	body := `{"text": "a\u0000b", "texts": [ "x" , "" ], "none": [], "pairs": {"a": "b", "": ""}, "empty": {},
		"null": null, "number": 1, "mixed": ["a", 1], "nulls": [null], "values": {"a": 1}, "deep": {"a": {"b": "c"}}, "gone": {"a": null}}`
	f, err := Object("it", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if s, given, err := f.Text("text"); s != "a\x00b" || !given || err != nil {
		t.Errorf("%q %v %v", s, given, err)
	}
	if s, given, err := f.Texts("texts"); len(s) != 2 || s[0] != "x" || !given || err != nil {
		t.Errorf("%q %v %v", s, given, err)
	}
	if s, given, err := f.Texts("none"); s == nil || len(s) != 0 || !given || err != nil {
		t.Errorf("%q %v %v", s, given, err)
	}
	if m, given, err := f.Strings("pairs"); len(m) != 2 || m["a"] != "b" || !given || err != nil {
		t.Errorf("%q %v %v", m, given, err)
	}
	if m, given, err := f.Strings("empty"); m == nil || !given || err != nil {
		t.Errorf("%q %v %v", m, given, err)
	}
	for name := range f {
		_, _, text := f.Text(name)
		_, _, texts := f.Texts(name)
		_, _, pairs := f.Strings(name)
		for what, err := range map[string]error{"text": text, "texts": texts, "pairs": pairs} {
			right := name == what || name == "none" && what == "texts" || name == "empty" && what == "pairs"
			if right == (err != nil) || err != nil && statusOf(err) != 400 {
				t.Errorf("%s as %s: %v", name, what, err)
			}
		}
	}
	_, text, err1 := f.Text("absent")
	_, texts, err2 := f.Texts("absent")
	_, pairs, err3 := f.Strings("absent")
	if text || texts || pairs || err1 != nil || err2 != nil || err3 != nil {
		t.Error("what is absent is given")
	}
}

// An array of more than MaxJSONMembers texts gets 400 without memory for its texts. Each text takes many times
// the bytes that it has in a body.
func TestAnArrayHasABound(t *testing.T) {
	body := `{"texts":[` + strings.Repeat(`"",`, MaxJSONBody/3-8) + `""]}`
	f, err := Object("it", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	texts, _, err := f.Texts("texts")
	runtime.ReadMemStats(&after)
	if statusOf(err) != 400 || !strings.Contains(err.Error(), "texts must have at most") {
		t.Errorf("%d texts: %v", len(texts), err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 4*MaxJSONBody {
		t.Errorf("a body of %d bytes took %d bytes", len(body), took)
	}
	f["texts"] = json.RawMessage("[" + strings.Repeat(`"",`, MaxJSONMembers-1) + `""]`)
	if texts, _, err := f.Texts("texts"); err != nil || len(texts) != MaxJSONMembers {
		t.Errorf("%d texts: %v", len(texts), err)
	}
}

// Of several mistakes the answer always names the same one, and it repeats at most 200 bytes.
func TestOneMistakeHasOneAnswer(t *testing.T) {
	for range 100 { // maps have another order each time
		_, err := Strings("it", []byte(`{"d":1,"b":null,"a":"fine","c":[],"e":{}}`))
		if err == nil || err.Error() != `it must have strings as values, but "b" has another type` {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("a", 100_000)
	for _, body := range []string{`{"` + long + `":1,"` + long + `":1}`, `{"` + long + `":1}`} {
		if _, err := Strings("it", []byte(body)); err == nil || len(err.Error()) > 200 {
			t.Errorf("an answer repeats %d bytes", len(err.Error()))
		}
	}
}

// FuzzObject holds that what Object takes is JSON without surprises, and that
// encoding/json reads the same members.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{
		`{"cid":"bafkqaaa","name":"n","origins":["/ip4/1.2.3.4/tcp/1"],"meta":{"a":"b"}}`, `{"a":1,"a":2}`, `{"a":"\ud83d\ude00"}`,
		`{"a":"\ud800"}`, `{}{}`, `[{}]`, `{"a":[[[]]],"b":{}}`, "{\"\xff\":1}", `{"a":1,}`, ` {"\u0061":null} `, `{"a":"\\\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, err := Object("it", data)
		if err != nil {
			if statusOf(err) != 400 {
				t.Fatalf("%v is no client's mistake", err)
			}
			return
		}
		var same map[string]json.RawMessage
		if err := json.Unmarshal(data, &same); err != nil {
			t.Fatalf("encoding/json refuses it: %v", err)
		}
		if len(same) != len(fields) {
			t.Fatalf("%d members, encoding/json has %d", len(fields), len(same))
		}
		for name, raw := range fields {
			if !json.Valid(raw) || !bytes.Equal(bytes.TrimSpace(same[name]), raw) {
				t.Fatalf("member %q: %q, encoding/json has %q", name, raw, same[name])
			}
			if strings.ContainsRune(name, '\ufffd') && !bytes.Contains(data, []byte("\ufffd")) && !bytes.Contains(bytes.ToLower(data), []byte(`\ufffd`)) {
				t.Fatalf("member %q was changed on the way", name)
			}
			if text, _, err := fields.Text(name); err == nil && raw[0] != '"' {
				t.Fatalf("%q is no text, but read as %q", raw, text)
			}
		}
	})
}

// An API with a Fail function writes its own error answers, and the log has the path that the API allows and the
// error of Fail.
func TestASurfaceMayAnswerErrorsItself(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	broken := errors.New("the writer is broken")
	h := Wrap(Options{
		Name: "test", Logger: logger, Path: func(*http.Request) string { return "/hidden" },
		Fail: func(w http.ResponseWriter, r *http.Request, err error) error {
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, r.Method, " ", err)
			return broken
		},
	}, func(http.ResponseWriter, *http.Request) error { return errors.New("why") })
	w := serve(h, "GET", "/secret/key", nil)
	if w.Code != http.StatusTeapot || w.Body.String() != "GET why" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if text := log.String(); strings.Contains(text, "secret") || !strings.Contains(text, "path=/hidden") || !strings.Contains(text, broken.Error()) {
		t.Errorf("%s", text)
	}
}

// dialRaw opens a connection to write requests to as they are.
func dialRaw(t *testing.T, s *httptest.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}
