// Package web holds the code that the HTTP surfaces share: handlers that return
// errors, the request id, the access log and metrics, recovery from panics, the bearer
// token, strict JSON decoding, and the writing of answers. It knows no route and no
// reason for an error: each surface has its own table of both.
//
// Imports: std, prometheus, consensus/state, cluster/accounts.
// Never:   the surfaces, other use cases, listeners, settings.
package web

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Handler answers a request or returns an error. It writes nothing while it can still
// fail; an error after that cuts the connection, so that no client takes half an answer
// for a whole one.
type Handler func(w http.ResponseWriter, r *http.Request) error

// RequestIDHeader carries the id of a request, from the client or minted here.
const RequestIDHeader = "X-Request-Id"

// maxRequestID is the maximum length of a request id from a client, in characters.
const maxRequestID = 64

// MaxRequests is the maximum number of requests that a surface serves at once. Connections
// have the same limit, but over HTTP/2 one connection carries many requests.
const MaxRequests = 4096

// Options configure a surface. Name, Logger, and Answer or Fail are required.
type Options struct {
	// Name tells the surface apart in the log.
	Name string
	// Server is the value of the Server header; empty sends none.
	Server string
	// Answer is the error table of the surface: it returns the answer to an error. The
	// request id in the header of the answer finds the error in the log.
	Answer func(error) Answer
	// Fail answers an error in place of Answer; nil means that Answer is used.
	Fail func(w http.ResponseWriter, r *http.Request, err error) error
	// Path returns the part of a request's path that the log shows; nil: all of it.
	Path func(*http.Request) string
	// Spell changes the spelling of header names right before an answer is sent; nil keeps
	// the spelling of net/http.
	Spell  func(http.Header)
	Logger *slog.Logger
	// Metrics count the requests; nil means no metrics.
	Metrics *Metrics
}

// Wrap makes an http.Handler of h: it mints the request id, sets the common headers of
// answers, answers errors and panics, and logs. It logs success, mistakes of clients, 429
// and probes of a node that is not ready at debug, so that a flood does not fill the log;
// a full disk or a missing leader at warn; other errors of the node at error. It never
// logs tokens, queries and bodies.
func Wrap(o Options, h Handler) http.Handler {
	var underway atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		defer underway.Add(-1)
		busy := underway.Add(1) > MaxRequests
		id := r.Header.Get(RequestIDHeader)
		if !sane(id) {
			id = rand.Text()
		}
		header := w.Header()
		header.Set(RequestIDHeader, id)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if o.Server != "" {
			header.Set("Server", o.Server)
		}
		if r.TLS != nil {
			header.Set("Strict-Transport-Security", "max-age=31536000")
		}
		rec := &recorder{ResponseWriter: w, spell: o.Spell, shared: r.ProtoMajor > 1, started: started}
		o.Metrics.began(o.Name)
		r = rec.noted(r)
		err := error(nil)
		if busy {
			err = state.Errorf(state.CodeLimited, "more than %d requests at once", MaxRequests)
		} else {
			err = call(h, rec, r)
		}
		if err != nil {
			err = o.fail(rec, r, err)
		}
		o.log(r, rec, id, time.Since(started), err)
		cut := err != nil && rec.begun && !rec.failed
		o.Metrics.ended(o.Name, rec, cut || err != nil && r.Context().Err() != nil) // nobody waits for it any more
		rec.readRest()
		rec.leaveHeldBack(r)
		if cut {
			panic(http.ErrAbortHandler) // the answer is half out: the client must notice
		}
	})
}

// fail answers err if no byte of the answer is written yet, and returns the error to log.
func (o Options) fail(w *recorder, r *http.Request, err error) error {
	if errors.Is(err, http.ErrAbortHandler) || w.begun {
		return err
	}
	w.failed = true
	w.answerEarly(r)
	var writing error
	if o.Fail != nil {
		writing = o.Fail(w, r, err)
	} else {
		writing = o.Answer(err).write(w)
	}
	if writing != nil {
		return errors.Join(err, writing)
	}
	return err
}

func (o Options) log(r *http.Request, w *recorder, id string, took time.Duration, err error) {
	level := slog.LevelDebug
	switch {
	case r.Context().Err() != nil: // the client has gone, or the server stops
	case tooMany(err), errors.As(err, new(unready)), w.status == http.StatusNotImplemented: // part of normal use
	case w.status == http.StatusServiceUnavailable:
		level = slog.LevelWarn
	case w.status >= http.StatusInternalServerError, err != nil && w.begun && !w.failed:
		level = slog.LevelError
	}
	if !o.Logger.Enabled(r.Context(), level) {
		return
	}
	path := r.URL.EscapedPath()
	if o.Path != nil {
		path = o.Path(r)
	}
	attrs := []slog.Attr{
		slog.String("api", o.Name), slog.String("request", id), slog.String("method", r.Method),
		slog.String("path", path), slog.String("remote", r.RemoteAddr),
		slog.Int("status", w.status), slog.Int64("bytes", w.bytes), slog.Duration("took", took),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	var p *panicked
	if errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	o.Logger.LogAttrs(r.Context(), level, "request", attrs...)
}

// tooMany returns whether an error is a refusal by the rate limit, of any surface.
func tooMany(err error) bool {
	var own *Error
	return errors.As(err, &own) && own.Answer.Status == http.StatusTooManyRequests || errors.Is(err, state.ErrLimited)
}

// panicked is the error for a handler that panicked.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// call runs h and returns a panic as an error.
func call(h Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			err = http.ErrAbortHandler
		default:
			err = &panicked{v, debug.Stack()}
		}
	}()
	return h(w, r)
}

// sane reports whether the request id of a client is safe for logs and headers.
func sane(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

// recorder records the status and size of an answer. ResponseController reaches the writer below
// through Unwrap.
type recorder struct {
	http.ResponseWriter
	spell  func(http.Header)
	status int
	bytes  int64
	// started is when the request arrived, waited how long it took until the answer began.
	started   time.Time
	waited    time.Duration
	operation string // the operation label, once it is known
	begun     bool   // the header was sent
	shared    bool   // other requests use the connection, as over HTTP/2
	failed    bool   // the answer is that of an error, and complete
	early     bool   // the answer is sent before the rest of the body is read
	body      *body  // of the request; nil if the answer waits for no body
}

// unreadAtMost is the number of unread bytes of a body that the server reads after the answer,
// so that the connection can be used again. net/http has the same limit.
const unreadAtMost = 256 << 10

// answerEarly makes net/http send the answer before the rest of the request's body arrives. It
// does nothing if the whole body was read, or if the client holds the body back; in the latter
// case net/http closes the connection. answerEarly closes the connection itself if the rest is
// large, of unknown size or unreadable.
func (w *recorder) answerEarly(r *http.Request) {
	if w.body == nil || r.Header.Get("Expect") != "" || w.body.ended.Load() {
		return
	}
	switch left := r.ContentLength - w.body.read.Load(); {
	case left == 0:
	case r.ContentLength < 0, left > unreadAtMost, w.body.broken.Load():
		w.Header().Set("Connection", "close")
	default:
		w.early = http.NewResponseController(w).EnableFullDuplex() == nil
	}
}

// readRest reads the rest of a body after the answer. It must read all of it before the handler
// returns, because net/http would take the rest for another request.
func (w *recorder) readRest() {
	if !w.early || w.Header().Get("Connection") == "close" {
		return
	}
	err := http.NewResponseController(w).Flush()
	if err == nil {
		_, err = io.Copy(io.Discard, w.body)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// heldBackFor is how long the server reads a body after the answer if the client waited for a
// "100 Continue" that it did not get.
const heldBackFor = 5 * time.Second

// leaveHeldBack bounds the wait for a body that the client holds back. net/http reads the rest of
// a body before it closes the connection, and would wait until the read deadline for a body that
// never arrives. The connection stays open for heldBackFor, so that a client that sends the body
// anyway does not lose the answer.
func (w *recorder) leaveHeldBack(r *http.Request) {
	if w.body != nil && r.Header.Get("Expect") != "" && !w.body.asked.Load() {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(heldBackFor))
	}
}

// body records how far the body of a request was read. A reader of the handler may still run
// after the handler has returned.
type body struct {
	io.ReadCloser
	asked  atomic.Bool  // a read has begun
	read   atomic.Int64 // bytes
	ended  atomic.Bool  // there are no more bytes
	broken atomic.Bool  // the rest cannot be read
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.asked.Store(true)
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	if errors.Is(err, io.EOF) {
		b.ended.Store(true)
	} else if err != nil {
		b.broken.Store(true)
	}
	return n, err
}

// noted returns r with a body that records its reads in w. It wraps the body, which
// net/http still tracks. Over HTTP/2 it does nothing, because answers there wait for no
// body.
func (w *recorder) noted(r *http.Request) *http.Request {
	if r.ProtoMajor != 1 || r.ContentLength == 0 || r.Body == nil {
		return r
	}
	w.body = &body{ReadCloser: r.Body}
	own := *r
	own.Body = w.body
	return &own
}

// Unwrap returns the writer below.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) begin(status int) {
	w.status, w.begun, w.waited = status, true, time.Since(w.started)
	if w.shared { // otherwise net/http would close the connection, and some clients would lose this answer
		w.Header().Del("Connection")
	}
	if w.spell != nil {
		w.spell(w.Header())
	}
}

// WriteHeader records the status.
func (w *recorder) WriteHeader(status int) {
	if status >= http.StatusOK && !w.begun {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write counts bytes.
func (w *recorder) Write(p []byte) (int, error) {
	if !w.begun {
		w.begin(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}
