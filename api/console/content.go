package console

import (
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

// content answers with the content of an object.
func (s *surface) content(c *call, inline func(*state.Object) bool) error {
	return s.Limits.SendContent(c.w, c.r, web.Content{ //nolint:wrapcheck // has the operation
		Account: c.who.Account, Find: func() (state.Object, error) { return s.objectOf(c) }, Open: s.Objects.Open,
		Header: func(header http.Header, o *state.Object) {
			header.Set("Content-Security-Policy", sandbox)
			header.Set("Cross-Origin-Resource-Policy", "same-origin")
			header.Set("Content-Type", typeOf(o))
			disposition := "attachment"
			if inline(o) {
				disposition = "inline"
			}
			header.Set("Content-Disposition", disposition+"; filename*=UTF-8''"+escapeName(o.Key[strings.LastIndexByte(o.Key, '/')+1:]))
		},
	})
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
