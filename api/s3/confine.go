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

// sandbox is a Content-Security-Policy that gives a page its own opaque origin, without storage
// and cookies. Scripts and other features of pages still work.
const sandbox = "sandbox allow-downloads allow-forms allow-modals allow-orientation-lock allow-pointer-lock" +
	" allow-popups allow-popups-to-escape-sandbox allow-presentation allow-scripts"

// confine sets the policy sandbox on an answer with an object of the given type. PDF gets none:
// Chrome shows no PDF in a sandbox, and a script in a PDF cannot access the origin.
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

// typeOf returns the Content-Type of an answer: response-content-type of the query, or that of
// the object. For an object that the client has encrypted it is application/octet-stream.
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

// refuseWorker returns an error for the request with which a browser loads the script of a
// service worker. Browsers send the header Service-Worker with it.
func refuseWorker(h http.Header) error {
	if len(h["Service-Worker"]) > 0 {
		return errorf(AccessDenied, "no object is the script of a service worker: all buckets are one origin")
	}
	return nil
}
