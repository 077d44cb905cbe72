package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxReads is the number of versions of an object that are tried if each one is replaced before
// its content is sent.
const maxReads = 3

// contentBlock is the largest size of a block of an object in bytes. A block is in memory while
// it is sent.
const contentBlock = 1 << 20

// Content is a request for the content of an object.
type Content struct {
	Account state.AccountID // holds the memory
	// Find returns the version to send. It is called again if the version was replaced.
	Find func() (state.Object, error)
	// Open opens the content of the version.
	Open func(ctx context.Context, a state.AccountID, o *state.Object) (io.ReadSeekCloser, error)
	// Header sets headers of the answer. SendContent sets ETag, Last-Modified, length and range itself.
	Header func(h http.Header, o *state.Object)
}

// SendContent answers with the content of an object, or with the range that the request asks for.
// If the content of a version is gone before its first byte is sent, the version was replaced, and
// SendContent sends the new version. An error from before the first byte leaves the answer empty.
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
	if err := held.Grow(int64(min(o.Size, contentBlock))); err != nil {
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
	header := w.Header()
	before := header.Clone()
	header.Set("Etag", `"`+o.ETag+`"`)
	c.Header(header, o)
	in, out := &observed{ReadSeeker: f}, &late{ResponseWriter: w, body: NewSteady(w, StallTimeout)}
	http.ServeContent(out, plainRange(r, int64(min(o.Size, math.MaxInt64))), "", o.Created.Time(), in)
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
			header.Set("Content-Range", fmt.Sprintf("bytes */%d", o.Size))
			return Errorf(http.StatusRequestedRangeNotSatisfiable, "RANGE_NOT_SATISFIABLE", "the range is outside the content of %d bytes", o.Size)
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

// late sends the header of the answer together with the first bytes of the content. So content
// that cannot be read, and a range outside the content, lead to an error answer. A write fails if
// the client accepts nothing.
type late struct {
	http.ResponseWriter
	body   io.Writer
	status int
	begun  bool
	err    error // error of writing
}

// WriteHeader records the status.
func (l *late) WriteHeader(status int) { l.status = status }

func (l *late) begin() {
	if !l.begun {
		l.begun = true
		l.ResponseWriter.WriteHeader(max(l.status, http.StatusOK))
	}
}

// Write implements io.Writer. The text of http.ServeContent about a range is left out.
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
