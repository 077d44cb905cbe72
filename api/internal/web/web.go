// Package web has the code that all HTTP APIs share: handlers that return errors, request ids,
// the access log, metrics, recovery from panics, bearer tokens, strict JSON decoding, rate limits
// and the writing of answers. It knows no routes. Each API passes its own table of routes and its
// own table of error answers.
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

// Handler answers a request or returns an error, which Wrap answers. It should write nothing
// while it can still fail. If it returns an error after it has begun to write, Wrap closes the
// connection, so that the client does not take a part of an answer for the whole.
type Handler func(w http.ResponseWriter, r *http.Request) error

// RequestIDHeader is the header with the id of a request. The client may choose the id; otherwise
// the node does.
const RequestIDHeader = "X-Request-Id"

// maxRequestID is the maximum length of a request id from a client, in characters.
const maxRequestID = 64

// MaxRequests is the maximum number of requests that one API serves at the same time. A limit on
// connections is not enough, because one HTTP/2 connection carries many requests.
const MaxRequests = 4096

// Options configure an API. Name, Logger, and one of Answer and Fail are required.
type Options struct {
	// Name identifies the API in the log and in the metrics.
	Name string
	// Server is the value of the Server header; empty sends none.
	Server string
	// Answer converts an error of a Handler to the answer.
	Answer func(error) Answer
	// Fail writes the answer to an error, instead of Answer. If it is nil, Answer is used.
	Fail func(w http.ResponseWriter, r *http.Request, err error) error
	// Path returns the part of a request's path that the log shows. nil means the whole path.
	Path func(*http.Request) string
	// Spell changes the letter case of header names right before an answer is sent. nil keeps the
	// case of net/http.
	Spell  func(http.Header)
	Logger *slog.Logger
	// Metrics count the requests; nil means no metrics.
	Metrics *Metrics
}

// Wrap converts h to an http.Handler. It sets the request id and the common headers, limits the
// number of concurrent requests, answers errors and panics, counts the request in the metrics and
// logs it. Answers with status 503 and 504 are logged at warn, other failures of the node at error, and
// all other requests at debug, so that a flood of bad requests does not fill the log. Health
// checks of a node that is not ready are also at debug. Wrap never logs tokens, queries or
// bodies.
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

// fail writes the answer to err, unless the answer has already begun or the handler has aborted
// the request. It returns the error to log, which includes a failure to write the answer.
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
	case tooMany(err), errors.As(err, new(unready)), errors.As(err, new(ofContent)), w.status == http.StatusNotImplemented: // part of normal use
	case w.status == http.StatusServiceUnavailable, w.status == http.StatusGatewayTimeout:
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

// ofContent is the error of OfContent.
type ofContent struct{ error }

func (o ofContent) Unwrap() error { return o.error }

// OfContent returns err as an error of the content that a client has asked for, which is not complete or
// cannot be read. The node works, so Wrap logs the request at debug, also if its status is 500 or if its
// answer is cut.
func OfContent(err error) error { return ofContent{err} }

// tooMany reports whether an error means that the client exceeded a rate or memory limit.
func tooMany(err error) bool {
	var own *Error
	return errors.As(err, &own) && own.Answer.Status == http.StatusTooManyRequests || errors.Is(err, state.ErrLimited)
}

// panicked is the error of a handler that panicked.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// call calls h and converts a panic to an error.
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

// sane reports whether a request id of a client is safe in logs and headers: 1 to maxRequestID
// letters, digits, dots, hyphens and underscores.
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

// recorder is a ResponseWriter that records the status and the size of an answer, for the log and
// the metrics. http.ResponseController reaches the underlying writer through Unwrap.
type recorder struct {
	http.ResponseWriter
	spell  func(http.Header)
	status int
	bytes  int64
	// started is when the request arrived. waited is the time from then to the start of the answer.
	started   time.Time
	waited    time.Duration
	operation string // the operation label, once it is known
	begun     bool   // the header was sent
	shared    bool   // other requests use the same connection, as over HTTP/2
	failed    bool   // the answer is the complete answer to an error
	early     bool   // the answer is sent before the rest of the request body is read
	body      *body  // body of an HTTP/1 request; nil: no body, or HTTP/2
}

// unreadAtMost is the maximum number of bytes of a request body that the server reads after the
// answer, so that it can use the connection again. net/http has the same limit.
const unreadAtMost = 256 << 10

// answerEarly makes net/http send an error answer before the rest of the request body arrives. If
// the rest is larger than unreadAtMost, of unknown size or unreadable, it closes the connection
// after the answer. It does nothing if the body was read completely, or if the client waits for
// "100 Continue".
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

// readRest reads and discards the rest of the request body after an early answer. It must finish
// before the handler returns, because net/http would take the unread rest for the next request.
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
// "100 Continue" that the server did not send.
const heldBackFor = 5 * time.Second

// leaveHeldBack limits how long net/http waits for a body after the answer, if the client sent
// Expect and the handler did not read the body. Without it net/http would wait until the read
// deadline. The connection stays open for heldBackFor, because a client that sends the body
// anyway would otherwise lose the answer.
func (w *recorder) leaveHeldBack(r *http.Request) {
	if w.body != nil && r.Header.Get("Expect") != "" && !w.body.asked.Load() {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(heldBackFor))
	}
}

// body records how much of a request body was read. Its fields are atomic because a goroutine
// that reads the body may outlive the handler.
type body struct {
	io.ReadCloser
	asked  atomic.Bool  // Read was called
	read   atomic.Int64 // number of bytes read
	ended  atomic.Bool  // Read returned io.EOF
	broken atomic.Bool  // Read returned another error
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

// noted returns r with a body that records its reads, and stores that body in w. It returns r
// unchanged for a request without a body, and over HTTP/2, where an answer need not wait for the
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

// Unwrap returns the underlying writer, for http.ResponseController.
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

// WriteHeader implements http.ResponseWriter and records the status.
func (w *recorder) WriteHeader(status int) {
	if status >= http.StatusOK && !w.begun {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter and counts the bytes.
func (w *recorder) Write(p []byte) (int, error) {
	if !w.begun {
		w.begin(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}
