package s3

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Values of the CORS headers of answers to which no rule of a bucket applies. See ADR 27.
const (
	corsMethods = "GET, HEAD, PUT, POST, DELETE"
	corsExposed = "ETag, Content-Length, Content-Range, Last-Modified, Accept-Ranges, Content-Disposition, Content-Encoding, Location, Retry-After, " +
		"X-Amz-Request-Id, X-Amz-Version-Id, X-Amz-Delete-Marker, X-Amz-Bucket-Region, X-Amz-Tagging-Count, X-Amz-Mp-Parts-Count, X-Amz-Copy-Source-Version-Id, X-Amz-Storage-Class, X-Amz-Error-Code, " +
		"X-Amz-Checksum-Crc32, X-Amz-Checksum-Crc32c, X-Amz-Checksum-Crc64nvme, X-Amz-Checksum-Sha1, X-Amz-Checksum-Sha256, X-Amz-Checksum-Sha512, " +
		"X-Amz-Checksum-Md5, X-Amz-Checksum-Xxhash64, X-Amz-Checksum-Xxhash3, X-Amz-Checksum-Xxhash128, " +
		"X-Amz-Checksum-Type, X-Holdfast-Cid, X-Holdfast-Blake3"
	corsMaxAge = "600" // seconds

	// maxAskedHeaders bounds the headers that a browser asks for, in bytes. The answer
	// repeats them, because metadata can have any name and "*" does not include
	// Authorization.
	maxAskedHeaders = 4 << 10
)

// CORS headers of requests and answers.
const (
	askedMethod  = "Access-Control-Request-Method"
	askedHeaders = "Access-Control-Request-Headers"

	allowOrigin   = "Access-Control-Allow-Origin"
	allowMethods  = "Access-Control-Allow-Methods"
	allowHeaders  = "Access-Control-Allow-Headers"
	exposeHeaders = "Access-Control-Expose-Headers"
	corsAge       = "Access-Control-Max-Age"

	corsVary = "Origin, Access-Control-Request-Headers, Access-Control-Request-Method"
)

// corsVerbs has the methods that a rule may allow, as in Amazon S3.
var corsVerbs = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodHead}

// admit allows scripts of the configured origins to read any answer. It never allows
// cookies.
func (s *surface) admit(h http.Header, r *http.Request) {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return
	}
	h.Set("Vary", corsVary)
	switch {
	case slices.Contains(s.origins, web.AnyOrigin):
		h.Set(allowOrigin, web.AnyOrigin)
	case slices.Contains(s.origins, origin):
		h.Set(allowOrigin, origin)
	default:
		return
	}
	h.Set(exposeHeaders, corsExposed) // describe adds the metadata of an object
}

// share allows scripts to read the answer according to the rules of the caller's bucket. It
// reads the rules only if the caller is authenticated. If they cannot be read, the request
// itself fails with the same error.
func (s *surface) share(h http.Header, r *request) {
	origin := r.Header.Get("Origin")
	if origin == "" || r.level == levelService || r.who.Share != nil && r.who.Share.Bucket != r.bucket {
		return
	}
	ctx, cancel := r.soon()
	defer cancel()
	rules, err := s.objects.Cors(ctx, r.account(), r.bucket)
	if err != nil {
		return
	}
	if rule, from := ruleFor(rules, origin, r.Method, nil); rule != nil {
		say(h, rule, from, origin)
	}
}

// say sets the headers of a rule for an origin, in addition to those of the configured
// origins.
func say(h http.Header, rule *state.CorsRule, from, origin string) {
	switch {
	case h.Get(allowOrigin) == web.AnyOrigin || from == web.AnyOrigin:
		h.Set(allowOrigin, web.AnyOrigin)
	default:
		h.Set(allowOrigin, origin)
	}
	h.Set(allowMethods, strings.Join(rule.Methods, ", "))
	if len(rule.Expose) > 0 {
		exposed := strings.Join(rule.Expose, ", ")
		if already := h.Get(exposeHeaders); already != "" {
			exposed = already + ", " + exposed
		}
		h.Set(exposeHeaders, exposed)
	}
	if rule.MaxAge >= 0 {
		h.Set(corsAge, strconv.FormatInt(rule.MaxAge, 10))
	}
}

// isPreflight returns whether a request is a CORS preflight.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get(askedMethod) != ""
}

// preflight answers a CORS preflight. It has no credentials, so the account of a bucket is
// unknown: every preflight for a bucket is allowed, and the answer reveals nothing. If the
// preflight is for a signed link, the rules of its bucket decide.
func (s *surface) preflight(w http.ResponseWriter, r *request) error {
	h := w.Header()
	origin, method := r.Header.Get("Origin"), r.Header.Get(askedMethod)
	if !slices.Contains(corsVerbs, method) {
		return errorf(BadRequest, "invalid Access-Control-Request-Method: %.64s", method)
	}
	asked := strings.Join(r.Header[askedHeaders], ", ")
	if h.Get(allowOrigin) == "" {
		linked := false
		var err error
		if r.level == levelService {
			return forbidden("CORS is not enabled for this origin")
		}
		if linked, err = s.linked(r, method); err != nil {
			return err
		}
		if linked {
			return s.preflightOf(w, r, origin, method, asked)
		}
		h.Set(allowOrigin, web.AnyOrigin)
	}
	h.Del(exposeHeaders)
	h.Set(allowMethods, corsMethods)
	if asked != "" && len(asked) <= maxAskedHeaders {
		h.Set(allowHeaders, asked)
	}
	h.Set(corsAge, corsMaxAge)
	return web.Empty(w, http.StatusOK)
}

func forbidden(why string) *Error { return errorf(AccessForbidden, "CORSResponse: %s", why) }

// preflightOf answers the preflight for a link by the rules of its bucket.
func (s *surface) preflightOf(w http.ResponseWriter, r *request, origin, method, asked string) error {
	if err := s.limits.Account(r.account(), nil); err != nil {
		return err
	}
	if len(asked) > maxAskedHeaders { // before they are compared with every rule
		return forbidden("there are too many Access-Control-Request-Headers")
	}
	ctx, cancel := r.soon()
	defer cancel()
	rules, err := s.objects.Cors(ctx, r.account(), r.bucket)
	switch {
	case errors.Is(err, state.ErrNoBucket):
	case err != nil:
		return err
	}
	if len(rules) == 0 {
		return forbidden("CORS is not enabled for this bucket")
	}
	var names []string
	for name := range strings.SplitSeq(strings.ToLower(asked), ",") {
		if name = strings.Trim(name, " \t"); name != "" {
			names = append(names, name)
		}
	}
	rule, from := ruleFor(rules, origin, method, names)
	if rule == nil {
		return forbidden("this CORS request is not allowed: this is usually because the evaluation of Origin, request method / Access-Control-Request-Method or Access-Control-Request-Headers are not in the bucket's CORS rules")
	}
	say(w.Header(), rule, from, origin)
	if len(names) > 0 {
		w.Header().Set(allowHeaders, strings.Join(names, ", "))
	}
	return web.Empty(w, http.StatusOK)
}

// linked returns whether a preflight is for a link that an access key has signed for this
// method, and stores the principal in r. It returns false for a link that signs more
// headers than host, because a preflight has only their names.
func (s *surface) linked(r *request, method string) (bool, error) {
	asked := r.Clone(r.Context())
	asked.Method, asked.Header, asked.Body = method, http.Header{}, http.NoBody
	if scheme, err := sigv4.SchemeOf(asked); err != nil || scheme != sigv4.SchemeQuery && scheme != sigv4.SchemeVersion2 {
		return false, nil //nolint:nilerr // an unknown signer is not an error here
	}
	ctx, cancel := r.soon()
	defer cancel()
	_, err := s.verifier(r).Verify(ctx, asked)
	var refused *sigv4.Error
	if errors.As(err, &refused) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.Request = r.WithContext(objects.Seen(r.Context(), r.who.Index))
	return true, nil
}

// ruleFor returns the first rule that matches a request, and its origin that matches. names
// are the requested headers in lower case.
func ruleFor(rules []state.CorsRule, origin, method string, names []string) (*state.CorsRule, string) {
	for i := range rules {
		rule := &rules[i]
		at := slices.IndexFunc(rule.Origins, func(pattern string) bool { return fits(pattern, origin) })
		if at < 0 || !slices.Contains(rule.Methods, method) {
			continue
		}
		patterns := make([]string, len(rule.Headers))
		for i, pattern := range rule.Headers {
			patterns[i] = strings.ToLower(pattern)
		}
		refused := slices.ContainsFunc(names, func(name string) bool {
			return !slices.ContainsFunc(patterns, func(pattern string) bool { return fits(pattern, name) })
		})
		if !refused {
			return rule, rule.Origins[at]
		}
	}
	return nil, ""
}

// fits returns whether text matches a pattern in which one * stands for any text.
func fits(pattern, text string) bool {
	before, behind, any := strings.Cut(pattern, "*")
	if !any {
		return pattern == text
	}
	return len(text) >= len(before)+len(behind) && strings.HasPrefix(text, before) && strings.HasSuffix(text, behind)
}
