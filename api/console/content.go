package console

import (
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// sandbox is the Content-Security-Policy of answers with stored content: an opaque origin without
// scripts. A script in the origin of the console could do everything that the user may do. So the
// console either offers content as a download, or shows it only if its type has no scripts.
const sandbox = "sandbox"

// previews maps the content types that the console shows to the kind of preview. SVG and HTML are
// missing because they may contain scripts.
var previews = map[string]string{
	"image/png": "image", "image/jpeg": "image", "image/gif": "image", "image/webp": "image", "image/avif": "image", "image/bmp": "image",
	"audio/mpeg": "audio", "audio/mp4": "audio", "audio/ogg": "audio", "audio/wav": "audio", "audio/flac": "audio", "audio/webm": "audio",
	"video/mp4": "video", "video/webm": "video", "video/ogg": "video",
	"text/plain": "page", "application/pdf": "page",
}

// previewOf returns the kind of preview of an object, or "" if it can only be downloaded.
func previewOf(o *state.Object) string {
	kind, _, err := mime.ParseMediaType(typeOf(o))
	if err != nil || o.Headers["Content-Encoding"] != "" || strings.Contains(typeOf(o), ",") {
		return ""
	}
	return previews[kind]
}

// download serves GET /buckets/{bucket}/download: the content of an object as a file that the
// browser saves.
func (s *surface) download(c *call) error {
	return s.content(c, func(*state.Object) bool { return false })
}

// preview serves GET /buckets/{bucket}/preview. Content of a type without a preview is sent as a
// download.
func (s *surface) preview(c *call) error {
	return s.content(c, func(o *state.Object) bool { return previewOf(o) != "" })
}

// content answers with the content of an object. inline decides whether the browser shows or
// downloads it.
func (s *surface) content(c *call, inline func(*state.Object) bool) error {
	return s.Limits.SendContent(c.w, c.r, web.Content{ //nolint:wrapcheck // has the operation
		Account: c.who.Account, Find: func() (state.Object, error) { return s.objectOf(c) }, Open: s.Objects.Open,
		Header: func(header http.Header, o *state.Object) {
			disposition := "attachment"
			if inline(o) {
				disposition = "inline"
			}
			storedContent(header, disposition, typeOf(o), o.Key[strings.LastIndexByte(o.Key, '/')+1:])
		},
	})
}

// storedContent sets the header of an answer with stored content of the type kind. The browser shows or saves it,
// by disposition, and saves it as name.
func storedContent(header http.Header, disposition, kind, name string) {
	header.Set("Content-Security-Policy", sandbox)
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Content-Type", kind)
	header.Set("Content-Disposition", disposition+"; filename*=UTF-8''"+escapeName(name))
}

// escapeName encodes a file name for Content-Disposition (RFC 8187, section 3.2). It replaces
// invisible characters, and those that a file system could interpret as part of a path, by "_".
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
