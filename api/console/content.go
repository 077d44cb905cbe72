package console

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Content that accounts have stored must not become a part of the console's origin, because a
// script in it could do everything that the person may do. So content is either a download, or
// shown only if its type has no scripts. In both cases the answer has a sandbox policy: an
// opaque origin without scripts.
const sandbox = "sandbox"

// previews has the content types that are shown, and the kind of preview. SVG and HTML may
// contain scripts, so they are not in it.
var previews = map[string]string{
	"image/png": "image", "image/jpeg": "image", "image/gif": "image", "image/webp": "image", "image/avif": "image", "image/bmp": "image",
	"audio/mpeg": "audio", "audio/mp4": "audio", "audio/ogg": "audio", "audio/wav": "audio", "audio/flac": "audio", "audio/webm": "audio",
	"video/mp4": "video", "video/webm": "video", "video/ogg": "video",
	"text/plain": "page", "application/pdf": "page",
}

// previewOf returns how an object is shown; "" is for a download only.
func previewOf(o *state.Object) string {
	kind, _, err := mime.ParseMediaType(typeOf(o))
	if err != nil || o.Headers["Content-Encoding"] != "" || strings.Contains(typeOf(o), ",") {
		return ""
	}
	return previews[kind]
}

// download serves GET /buckets/{bucket}/download.
func (s *surface) download(c *call) error {
	return s.content(c, func(*state.Object) bool { return false })
}

// preview serves GET /buckets/{bucket}/preview. Content of a type that cannot be shown is a
// download.
func (s *surface) preview(c *call) error {
	return s.content(c, func(o *state.Object) bool { return previewOf(o) != "" })
}

// maxReads is the number of versions of an object that are tried if each one is replaced before
// its content is sent.
const maxReads = 3

// content answers with the content of an object. If the content of a version is gone before its
// first byte is sent, the version was replaced, and content sends the new version.
func (s *surface) content(c *call, inline func(*state.Object) bool) error {
	for range maxReads {
		o, err := s.objectOf(c)
		if err != nil {
			return err
		}
		if o.Marker {
			return state.ErrNoKey
		}
		if err := s.sendContent(c, &o, inline(&o)); !errors.Is(err, state.ErrNotFound) {
			return err
		}
	}
	return state.Errorf(state.CodeUnavailable, "the object was replaced each time before its content could be read")
}

// contentBlock is the largest size of a block of an object in bytes. A block is in memory while
// it is sent.
const contentBlock = 1 << 20

// sendContent answers with an object, or with the requested range of it.
func (s *surface) sendContent(c *call, o *state.Object, inline bool) (err error) {
	held := s.Limits.HoldContent(c.who.Account)
	defer held.Release()
	if err := held.Grow(int64(min(o.Size, contentBlock))); err != nil {
		return err //nolint:wrapcheck // a state.Error
	}
	f, err := s.Objects.Open(c.r.Context(), c.who.Account, o)
	if err != nil {
		return fmt.Errorf("open content: %w", err)
	}
	defer func() {
		if closing := f.Close(); closing != nil && err == nil {
			err = fmt.Errorf("close content: %w", closing)
		}
	}()
	header := c.w.Header()
	before := header.Clone()
	header.Set("Content-Security-Policy", sandbox)
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Etag", `"`+o.ETag+`"`)
	header.Set("Content-Type", typeOf(o))
	disposition := "attachment"
	if inline {
		disposition = "inline"
	}
	header.Set("Content-Disposition", disposition+"; filename*=UTF-8''"+escapeName(o.Key[strings.LastIndexByte(o.Key, '/')+1:]))
	in, out := &observed{ReadSeeker: f}, &late{ResponseWriter: c.w, body: web.NewSteady(c.w, web.StallTimeout)}
	http.ServeContent(out, c.r, "", o.Created.Time(), in)
	if in.err != nil {
		if !out.begun { // the answer is the error
			clear(header)
			for name, values := range before {
				header[name] = values
			}
		}
		return fmt.Errorf("send content: %w", in.err)
	}
	if out.err != nil {
		return fmt.Errorf("send content: %w", out.err)
	}
	out.begin()
	return nil
}

// escapeName returns a name as a parameter of a header (RFC 8187, section 3.2). Characters that
// a file system could take for a part of a path, and invisible characters, become "_".
func escapeName(name string) string {
	const upper = "0123456789ABCDEF"
	text := make([]byte, 0, len(name))
	for i := range len(name) {
		switch b := name[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', slices.Contains([]byte("-_.~"), b):
			text = append(text, b)
		case b < ' ' || b == 0x7f || b == '\\':
			text = append(text, '_')
		default:
			text = append(text, '%', upper[b>>4], upper[b&15])
		}
	}
	return string(text)
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
// that cannot be read leads to an error page and not to a broken answer. A write fails if the
// client accepts nothing.
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

// Write implements io.Writer.
func (l *late) Write(p []byte) (int, error) {
	l.begin()
	n, err := l.body.Write(p)
	if err != nil {
		l.err = err
	}
	return n, err //nolint:wrapcheck // a writer
}
