package webapi

import (
	"fmt"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// sharedContent answers GET /shared/{bucket}/{key...} with the content of an object. The console
// page /shared reads the ciphertext of a share here, with the bearer token of the share link.
// Cookies are ignored, so the answer does not depend on who is signed in.
func (s *surface) sharedContent(c *call) error {
	key := c.r.PathValue("key")
	if len(key) > state.MaxKeyBytes {
		return web.BadRequest("a key has %d bytes at most", state.MaxKeyBytes)
	}
	return s.Limits.SendContent(c.w, c.r, web.Content{ //nolint:wrapcheck // has the operation
		Account: c.who.Account,
		Find: func() (state.Object, error) {
			o, err := s.Objects.Object(c.ctx, c.who.Account, c.bucket(), key, "")
			if err != nil {
				return o, fmt.Errorf("find object: %w", err)
			}
			return o, nil
		},
		Open: s.Objects.Open,
		Header: func(h http.Header, o *state.Object) {
			// Bytes of an account must not become a page of the console's origin.
			h.Set("Content-Security-Policy", "sandbox")
			h.Set("Content-Type", "application/octet-stream")
			h.Set("Content-Disposition", "attachment")
			for _, name := range web.EncryptionMeta() {
				if value, ok := o.Meta[name]; ok {
					h.Set("X-Amz-Meta-"+name, value)
				}
			}
		},
	})
}
