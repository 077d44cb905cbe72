package s3

import (
	"net/http"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// The objects of all accounts are one origin for a browser, and /photos/ is a bucket of
// whoever has one of that name. So a page that somebody stored, opened by their link,
// must not become a part of that origin: it could leave a service worker there, which
// reads the links to buckets of others that are opened later, or cookies, which make
// every later request too large.

// sandbox makes the page that an object is an origin of its own, without storage and
// cookies, that may do what a page does: scripts run. Relative links of it are not
// signed, so it could not have used its own origin for much.
const sandbox = "sandbox allow-downloads allow-forms allow-modals allow-orientation-lock allow-pointer-lock" +
	" allow-popups allow-popups-to-escape-sandbox allow-presentation allow-scripts"

// confine sets the policy of an answer with an object of a type. PDF has none: Chrome
// shows no PDF in a sandbox, and its scripts reach no origin.
func confine(h http.Header, contentType string) {
	const policy = "Content-Security-Policy"
	kind, _, _ := strings.Cut(contentType, ";")
	several := strings.Contains(contentType, ",") // a browser takes the last
	if strings.EqualFold(strings.TrimSpace(kind), "application/pdf") && !several {
		h.Del(policy)
		return
	}
	h.Set(policy, sandbox)
}

// typeOf is the type that an object is answered with. What a client has encrypted has
// none of its own.
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

// refuseWorker refuses the request by which a browser fetches the script of a service
// worker, which says so by a header (Service Workers, "Service-Worker").
func refuseWorker(h http.Header) error {
	if len(h["Service-Worker"]) > 0 {
		return errorf(AccessDenied, "no object is the script of a service worker: all buckets are one origin")
	}
	return nil
}
