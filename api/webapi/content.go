package webapi

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// content answers GET /content/{path...}, where the path is a CID, or a CID with a path in its folder:
// a file with its bytes or a range of them, a folder as a tar stream if the client accepts web.TarType, and
// the whole DAG as a CAR if the client accepts web.CARType. The size of a stream is not known before.
// If it cannot be read to its end, the connection is cut, so that no client takes a part for the whole.
func (s *surface) content(c *call) (err error) {
	held := s.Limits.HoldContent(c.who.Account)
	defer held.Release()
	if err := held.Grow(web.ContentBlock); err != nil {
		return err //nolint:wrapcheck // an answer
	}
	text := c.r.PathValue("path")
	if accepts(c.r, web.CARType) {
		out := stream(c, text, web.CARType, ".car")
		return unread(out.Ended(s.Content.ExportCARFor(c.long, out, c.who.Account, text)))
	}
	f, size, err := s.Content.OpenFor(c.long, c.who.Account, text)
	if errors.Is(err, content.ErrFolder) {
		return s.folder(c, text)
	}
	if err != nil {
		return unread(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return web.SendFile(c.w, c.r, f, web.File{ //nolint:wrapcheck // has the operation
		ETag: url.PathEscape(text), Size: size, // what a CID names never changes
		Header: func(h http.Header) { download(h, text, "application/octet-stream", "") },
	})
}

// folder answers with a folder as a tar stream.
func (s *surface) folder(c *call, text string) (err error) {
	if !accepts(c.r, web.TarType) {
		return web.Errorf(http.StatusNotAcceptable, "NOT_ACCEPTABLE", "%s is a folder: with the header Accept: %s it is answered as a tar stream", text, web.TarType)
	}
	f, err := s.Content.OpenFolderFor(c.long, c.who.Account, text)
	if err != nil {
		return unread(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := stream(c, text, web.TarType, ".tar")
	return unread(out.Ended(f.WriteTar(c.long, out)))
}

// unread converts an error of opening content. The text of a 404 is the same for content that no member
// has and for private content of another account.
func unread(err error) error {
	if err == nil {
		return nil
	}
	if coded := (*state.Error)(nil); errors.As(err, &coded) && coded.Code == state.CodeNotFound {
		return web.Errorf(http.StatusNotFound, "NOT_FOUND", "%s", coded.Detail)
	}
	return fmt.Errorf("open content: %w", err)
}

// accepts reports whether the Accept header of a request names a media type. Ranges such as */* do not
// count, because each client sends them.
func accepts(r *http.Request, kind string) bool {
	for _, line := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(line, ",") {
			if named, _, err := mime.ParseMediaType(one); err == nil && named == kind {
				return true
			}
		}
	}
	return false
}

// download sets the headers of content of the given type, which must not become a page of the console's
// origin. The name of the download is the last name of the path text with the extension ext.
func download(h http.Header, text, kind, ext string) {
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(text) + ext}))
}

// stream returns the body of an answer with content that is written as a stream.
func stream(c *call, text, kind, ext string) *web.Stream {
	return web.NewStream(c.w, c.r, func(h http.Header) { download(h, text, kind, ext) })
}
