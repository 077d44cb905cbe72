package s3

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/nettest"
)

// hasty returns the world with clients that are not waited for, and a channel that has
// a token for each request that ended.
func hasty(t *testing.T, stall time.Duration) (*world, <-chan struct{}) {
	t.Helper()
	w := newWorld(t)
	w.scene(t)
	h, err := build(w.options, stall)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}, 10)
	w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		h.ServeHTTP(rw, r)
	})
	return w, ended
}

// piped is dial over a connection within the process, so that it can be in virtual time: in real time a node that
// gets no processor for the stall timeout of hasty cuts an answer off.
func (w *world) piped(t *testing.T, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	listener, server, ended := nettest.NewPipes(), &http.Server{Handler: w.handler}, make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	conn, err := listener.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = server.Close()
		<-ended
		<-time.After(time.Second) // net/http waits 0.5 s before it lets a connection go
	})
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	w.send(t, conn, text)
	return conn, bufio.NewReader(conn)
}

// A client that stops in the middle of a body is answered after the stall timeout, and its connection ends.
func TestAClientThatStopsSendingIsCut(t *testing.T) {
	for _, tc := range []struct {
		name, request, code string
		want                int
	}{
		{"in a body", "PUT /photos/k HTTP/1.1\nHost: x\nAuthorization: Bearer {alice}\nContent-Length: 10\n\nhello", "RequestTimeout", 400},
		{"in chunks", "PUT /photos/k HTTP/1.1\nHost: x\nAuthorization: Bearer {alice}\nContent-Length: 100\nContent-Encoding: aws-chunked\n\na\nhello", "RequestTimeout", 400},
		{"in a small body", "PUT /photos/cat.jpg?tagging HTTP/1.1\nHost: x\nAuthorization: Bearer {alice}\nContent-Length: 10\n\nhello", "RequestTimeout", 400},
		// What a handler does not read net/http does, before it answers.
		{"and may not send at all", "PUT /photos/k HTTP/1.1\nHost: x\nContent-Length: 10\n\nhello", "AccessDenied", 403},
		{"of what nobody reads", "DELETE /photos/cat.jpg HTTP/1.1\nHost: x\nAuthorization: Bearer {alice}\nContent-Length: 10\n\nhello", "", 204},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, ended := hasty(t, 100*time.Millisecond)
			_, in := w.piped(t, tc.request)
			if got, body := readAnswer(t, in, "PUT"); got.StatusCode != tc.want || !strings.Contains(body, tc.code) {
				t.Errorf("%s: %d %s", tc.name, got.StatusCode, body)
			}
			<-ended
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("%s: the connection lives on: %q, %v", tc.name, rest, err)
			}
		})
	}
}

// A client that sends 100 bytes a second of a body gets RequestTimeout although it never stops.
func TestAClientThatHardlySendsIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ended := hasty(t, 400*time.Millisecond)
		out, in := w.piped(t, "PUT /photos/k HTTP/1.1\nHost: x\nAuthorization: Bearer {alice}\nContent-Length: 1000000\n\n")
		stop, sent := make(chan struct{}), make(chan struct{})
		go func() { // it never stops for as long as it may
			defer close(sent)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					_, _ = out.Write([]byte("x"))
				case <-stop:
					return
				}
			}
		}()
		if got, body := readAnswer(t, in, "PUT"); got.StatusCode != 400 || !strings.Contains(body, "RequestTimeout") {
			t.Errorf("%d %s", got.StatusCode, body)
		}
		<-ended
		close(stop)
		<-sent
	})
}

// impatient is a fake that ends the reading of a body when some of it is there.
type impatient struct{ *fake }

func (f impatient) Put(_ context.Context, _ state.AccountID, _ string, r objects.PutRequest) (state.Object, error) {
	if _, err := io.ReadFull(r.Body.Reader, make([]byte, 5)); err != nil {
		return state.Object{}, err
	}
	read := make(chan error, 1)
	go func() {
		_, err := r.Body.Reader.Read(make([]byte, 1))
		read <- err
	}()
	r.Body.Reader.(interface{ Interrupt() }).Interrupt()
	if err := <-read; err == nil {
		return state.Object{}, errors.New("a body is read on")
	}
	if _, err := r.Body.Reader.Read(make([]byte, 1)); err == nil {
		return state.Object{}, errors.New("a body is read again")
	}
	return state.Object{}, state.ErrLimited
}

// A body that the use case gives up is answered with SlowDown while its client still has to send, and its
// connection ends.
func TestABodyThatIsInterruptedIsAnsweredAtOnce(t *testing.T) {
	for _, chunked := range []string{"Content-Length: 1000000\n\nhello", "Content-Length: 1000\nContent-Encoding: aws-chunked\n\na\nhello"} {
		w := newWorld(t)
		w.scene(t)
		w.options.Objects = impatient{w.fake}
		h, err := build(w.options, web.StallTimeout)
		if err != nil {
			t.Fatal(err)
		}
		w.handler = h
		_, in := w.dial(t, "PUT /photos/k HTTP/1.1\nHost: x\nAuthorization: Bearer {alice}\n"+chunked)
		got, body := readAnswer(t, in, "PUT")
		if got.StatusCode != 503 || !strings.Contains(body, "SlowDown") || got.Header.Get("Retry-After") == "" {
			t.Errorf("%d %v %s", got.StatusCode, got.Header, body)
		}
		if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
			t.Errorf("the connection lives on: %q, %v", rest, err)
		}
	}
}

// A handler ends although its client takes nothing of the answer.
func TestAClientThatStopsTakingIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ended := hasty(t, 100*time.Millisecond)
		w.fake.mu.Lock()
		o := w.fake.buckets[w.who.Account]["photos"].objects["cat.jpg"]
		o.Root = w.fake.keep(make([]byte, 1<<20))
		o.Size = 1 << 20
		w.fake.buckets[w.who.Account]["photos"].objects["cat.jpg"] = o
		w.fake.mu.Unlock()
		w.piped(t, "GET /photos/cat.jpg HTTP/1.1\nHost: x\nAuthorization: Bearer {alice}\n\n")
		<-ended
	})
}

// A connection whose client takes none of its refusals is cut, although refusals are short and are sent before
// the rest of a body is read.
func TestAClientThatTakesNoRefusalIsCut(t *testing.T) {
	for _, method := range []string{"HEAD", "GET"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			h, err := build(w.options, 100*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			w.handler = h
			request := method + " /photos/cat.jpg HTTP/1.1\nHost: x\nContent-Length: 1\n\nx"
			conn, _ := w.piped(t, request)
			many := []byte(strings.Repeat(strings.ReplaceAll(request, "\n", "\r\n"), 1000))
			for err == nil {
				_, err = conn.Write(many)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the connection lives on", method)
			}
		})
	}
}

// deadlines notes what is set.
type deadlines struct {
	*httptest.ResponseRecorder
	mu    sync.Mutex
	read  []time.Time
	write []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.read = append(d.read, t)
	return nil
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.write = append(d.write, t)
	return nil
}

// Each request clears the write deadline of the request before and sets its own, and its read deadline ends with
// its body. Connections are used again, and a deadline that is left would end another request.
func TestDeadlinesAreOfOneRequest(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	for _, c := range []call{{method: "GET", path: "/photos/cat.jpg"}, {method: "PUT", path: "/photos/k", body: "hello"}, {method: "GET", path: "/photos?list-type=2"}} {
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		w.handler.ServeHTTP(d, w.request(t, c))
		if len(d.write) < 2 || !d.write[0].IsZero() || d.write[len(d.write)-1].IsZero() {
			t.Errorf("%s %s: write deadlines %v", c.method, c.path, d.write)
		}
		// A read deadline in a request without a body, or behind its end, would look
		// as if the client had left.
		if c.body == "" && len(d.read) > 0 || c.body != "" && (len(d.read) < 2 || d.read[0].IsZero() || !d.read[len(d.read)-1].IsZero()) {
			t.Errorf("%s %s: read deadlines %v", c.method, c.path, d.read)
		}
	}
}

// never is a node that does not get ready.
type never struct{}

func (never) Ready(context.Context) error { return errors.New("it starts") }

// A node that starts answers 503 and sets a deadline for reading the body, and no deadline is sooner than half
// of StallTimeout.
func TestANodeThatStartsHasDeadlines(t *testing.T) {
	w := newWorld(t)
	for _, method := range []string{"PUT", "HEAD"} {
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		Starting(w.options, never{}).ServeHTTP(d, w.request(t, call{method: method, path: "/photos/k", body: "hello"}))
		soon := time.Now().Add(web.StallTimeout / 2)
		if d.Code != 503 || len(d.read) == 0 || d.read[0].Before(soon) || slices.ContainsFunc(d.write, func(at time.Time) bool { return !at.IsZero() && at.Before(soon) }) {
			t.Errorf("%s: %d, deadlines for reading %v, for writing %v", method, d.Code, d.read, d.write)
		}
	}
}

// A client whose last bytes came slowly, but fast enough, is waited for as long as any
// other when it sends nothing.
func TestASlowClientIsWaitedForAsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		body := readerFunc(func(b []byte) (int, error) {
			<-time.After(900 * time.Millisecond)
			return len(b), nil
		})
		p := &web.Patient{Body: body, Control: http.NewResponseController(d), Stall: web.StallTimeout}
		for i := range web.LeastBytes/1024 + 1 {
			began := time.Now()
			if _, err := p.Read(make([]byte, 1024)); err != nil {
				t.Fatal(err)
			}
			// Of the first web.LeastBytes the first, and of those behind them.
			if left := d.read[len(d.read)-1].Sub(began); i%(web.LeastBytes/1024) == 0 && left < web.StallTimeout*3/4 {
				t.Errorf("read %d: it is waited for %s", i, left)
			}
		}
	})
}

// trickling is a client that takes 2 KiB a second, behind a buffer, of the system, that
// takes room bytes at once.
type trickling struct {
	*deadlines
	room int
}

func (t *trickling) Write(b []byte) (int, error) {
	taken := min(t.room, len(b))
	t.room -= taken
	<-time.After(time.Duration(len(b)-taken) * time.Second / (2 << 10))
	if at := t.write[len(t.write)-1]; time.Now().After(at) {
		return 0, os.ErrDeadlineExceeded
	}
	return len(b), nil
}

// A client that never stops taking an answer gets it, however slow it is and whatever is
// written at once.
func TestASlowClientTakesItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, room := range []int{0, 256 << 10, 4 << 20} {
			out := web.NewSteady(&trickling{&deadlines{ResponseRecorder: httptest.NewRecorder()}, room}, web.StallTimeout)
			for range 6 {
				if n, err := out.Write(make([]byte, contentBlock)); n != contentBlock || err != nil {
					t.Fatalf("behind %d bytes: %d bytes, %v", room, n, err)
				}
			}
		}
	})
}
