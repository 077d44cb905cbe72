package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxReads is how often SendContent tries to send an object that is replaced before its first
// byte is sent.
const maxReads = 3

// ContentBlock is the usual size of a block of content in bytes. The node has about one block in memory
// while it sends content.
const ContentBlock = 1 << 20

// Content describes the object that SendContent sends.
type Content struct {
	Account state.AccountID // account whose memory limit applies, see HoldContent
	// Find returns the version to send. SendContent calls it again if that version was replaced.
	Find func() (state.Object, error)
	// Open opens the content of the version.
	Open func(ctx context.Context, a state.AccountID, o *state.Object) (io.ReadSeekCloser, error)
	// Header sets further headers of the answer. SendContent itself sets ETag, Last-Modified,
	// Content-Length and Content-Range.
	Header func(h http.Header, o *state.Object)
}

// SendContent answers with the content of an object, or with the range that the request asks for.
// If another request replaces the object before the first byte is sent, the old content may be
// gone; then SendContent sends the new version. If it returns an error before the first byte, it
// has written nothing.
func (l *Limits) SendContent(w http.ResponseWriter, r *http.Request, c Content) error {
	for range maxReads {
		o, err := c.Find()
		if err != nil {
			return err
		}
		if o.Marker {
			return state.ErrNoKey
		}
		if err := l.sendVersion(w, r, &c, &o); !errors.Is(err, state.ErrNotFound) {
			return err
		}
	}
	return state.Errorf(state.CodeUnavailable, "the object was replaced each time before its content could be read")
}

func (l *Limits) sendVersion(w http.ResponseWriter, r *http.Request, c *Content, o *state.Object) (err error) {
	held := l.HoldContent(c.Account)
	defer held.Release()
	if err := held.Grow(int64(min(o.Size, ContentBlock))); err != nil {
		return err
	}
	f, err := c.Open(r.Context(), c.Account, o)
	if err != nil {
		return fmt.Errorf("open content: %w", err)
	}
	defer func() {
		if closing := f.Close(); closing != nil && err == nil {
			err = fmt.Errorf("close content: %w", closing)
		}
	}()
	return SendFile(w, r, f, File{
		ETag: o.ETag, Size: o.Size, Changed: o.Created.Time(),
		Header: func(h http.Header) { c.Header(h, o) },
	})
}

// File describes the content that SendFile sends.
type File struct {
	ETag    string    // without quotes; it names these bytes
	Size    uint64    // in bytes
	Changed time.Time // the zero time and that of the Unix epoch mean that it is not known
	// Header sets further headers of the answer. SendFile itself sets ETag, Last-Modified,
	// Content-Length and Content-Range.
	Header func(h http.Header)
}

// SendFile answers with the content of f, or with the range that the request asks for. If it returns
// an error before the first byte, it has written nothing.
func SendFile(w http.ResponseWriter, r *http.Request, f io.ReadSeeker, as File) error {
	header := w.Header()
	before := header.Clone()
	header.Set("Etag", `"`+as.ETag+`"`)
	as.Header(header)
	in, out := &observed{ReadSeeker: f}, &late{ResponseWriter: w, body: NewSteady(w, StallTimeout)}
	http.ServeContent(out, plainRange(r, int64(min(as.Size, math.MaxInt64))), "", as.Changed, in)
	switch {
	case out.err != nil:
		return fmt.Errorf("send content: %w", out.err)
	case out.begun:
	case in.err != nil || out.status == http.StatusRequestedRangeNotSatisfiable: // the answer is the error
		clear(header)
		for name, values := range before {
			header[name] = values
		}
		if in.err == nil {
			header.Set("Content-Range", fmt.Sprintf("bytes */%d", as.Size))
			return Errorf(http.StatusRequestedRangeNotSatisfiable, "RANGE_NOT_SATISFIABLE", "the range is outside the content of %d bytes", as.Size)
		}
	default:
		out.begin()
	}
	if in.err != nil {
		return fmt.Errorf("send content: %w", in.err)
	}
	return nil
}

// observed records the error of reading content, because http.ServeContent does not return it.
type observed struct {
	io.ReadSeeker
	err error
}

// Read implements io.Reader.
func (o *observed) Read(p []byte) (int, error) {
	n, err := o.ReadSeeker.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		o.err = err
	}
	return n, err //nolint:wrapcheck // a reader
}

// late is the ResponseWriter that SendContent passes to http.ServeContent. It delays the status
// and the header until the first byte of content. So SendContent can still answer with an error
// if the content cannot be read or if the range is invalid. A write fails if the client accepts
// no bytes for StallTimeout.
type late struct {
	http.ResponseWriter
	body   io.Writer
	status int
	begun  bool
	err    error // error of writing
}

// WriteHeader stores the status until the first Write.
func (l *late) WriteHeader(status int) { l.status = status }

func (l *late) begin() {
	if !l.begun {
		l.begun = true
		l.ResponseWriter.WriteHeader(max(l.status, http.StatusOK))
	}
}

// Write implements io.Writer. It discards the text that http.ServeContent writes about an invalid
// range.
func (l *late) Write(p []byte) (int, error) {
	if l.status == http.StatusRequestedRangeNotSatisfiable {
		return len(p), nil
	}
	l.begin()
	n, err := l.body.Write(p)
	if err != nil {
		l.err = err
	}
	return n, err //nolint:wrapcheck // a writer
}
