package console

import "net/http"

// sharedPolicy is the Content-Security-Policy of the page of share links, which decrypts content of
// strangers in the console's origin. A script comes from this origin only, blob: has pictures and
// PDF files and no script, and no text can become markup (Trusted Types).
const sharedPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// sharedMemory is the largest file in bytes that the page decrypts in memory. The browser holds the
// file twice at the end, and a tab on a phone may have about 1 GiB. Larger files need a browser that
// lets a page write to a file.
const sharedMemory = 256 << 20

// sharedPage serves GET /shared, which opens share links in the browser. The node sees neither the
// link, whose secrets are in the fragment, nor a session: the page is the same for everybody.
func (s *surface) sharedPage(c *call) error {
	c.w.Header().Set("Content-Security-Policy", sharedPolicy)
	return s.render(c.w, http.StatusOK, "shared", view{Title: "Shared with you", Data: struct{ Memory uint64 }{sharedMemory}})
}
