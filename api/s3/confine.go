package s3

import (
	"net/http"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// All objects of all accounts share one origin in a browser: /photos/ is the bucket of any
// account with that name. A stored page that is opened by a link must not act in that
// origin. It could register a service worker, which would read links to buckets of other
// accounts opened later, or set cookies, which would make later requests too large.

// sandbox gives a page its own opaque origin without storage and cookies. Scripts and other
// features of pages still work. Relative links of the page are not signed, so it could not
// load other objects anyway.
const sandbox = "sandbox allow-downloads allow-forms allow-modals allow-orientation-lock allow-pointer-lock" +
	" allow-popups allow-popups-to-escape-sandbox allow-presentation allow-scripts"

// confine sets the content security policy of an answer with an object of this type. PDF
// gets none: Chrome shows no PDF in a sandbox, and scripts in a PDF reach no origin.
func confine(h http.Header, contentType string) {
	const policy = "Content-Security-Policy"
	kind, _, _ := strings.Cut(contentType, ";")
	several := strings.Contains(contentType, ",") // a browser uses the last
	if strings.EqualFold(strings.TrimSpace(kind), "application/pdf") && !several {
		h.Del(policy)
		return
	}
	h.Set(policy, sandbox)
}

// typeOf returns the content type of the answer. An object that the client has encrypted
// has none.
func typeOf(q query, o *state.Object) string {
	switch asked := q.get("response-content-type"); {
	case sealed(o):
		return defaultType
	case asked != "":
		return asked
	case o.Headers["Content-Type"] != "":
		return o.Headers["Content-Type"]
	}
	return defaultType
}

// refuseWorker refuses the request with which a browser loads the script of a service
// worker. It has a header for that (Service Workers, "Service-Worker").
func refuseWorker(h http.Header) error {
	if len(h["Service-Worker"]) > 0 {
		return errorf(AccessDenied, "no object is the script of a service worker: all buckets are one origin")
	}
	return nil
}
