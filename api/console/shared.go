package console

import "net/http"

// sharedPolicy is the Content-Security-Policy of the page of share links, which decrypts content
// of unknown people in the origin of the console. Scripts come from this origin only, blob: URLs
// are allowed only for images and PDF files, and no text can become markup (Trusted Types).
const sharedPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// sharedMemory is the largest file in bytes that the page of share links decrypts in memory. At
// the end the browser has the file in memory twice, and a tab on a phone may use about 1 GiB. For
// larger files the browser must support writing to a local file.
const sharedMemory = 256 << 20

// sharedPage serves GET /shared, which opens share links in the browser. The node does not see
// the link, whose secrets are in the fragment of the URL. The page needs no session and is the
// same for everybody.
func (s *surface) sharedPage(c *call) error {
	c.w.Header().Set("Content-Security-Policy", sharedPolicy)
	return s.render(c.w, http.StatusOK, "shared", view{Title: "Shared with you", Data: struct{ Memory uint64 }{sharedMemory}})
}
