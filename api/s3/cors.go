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

// Values of the CORS headers for the configured origins, and of preflight answers to which no CORS rule
// of a bucket applies. See ADR 27.
const (
	corsMethods = "GET, HEAD, PUT, POST, DELETE"
	corsExposed = "ETag, Content-Length, Content-Range, Last-Modified, Accept-Ranges, Content-Disposition, Content-Encoding, Location, Retry-After, " +
		"X-Amz-Request-Id, X-Amz-Version-Id, X-Amz-Delete-Marker, X-Amz-Bucket-Region, X-Amz-Tagging-Count, X-Amz-Mp-Parts-Count, X-Amz-Copy-Source-Version-Id, X-Amz-Storage-Class, X-Amz-Error-Code, " +
		"X-Amz-Checksum-Crc32, X-Amz-Checksum-Crc32c, X-Amz-Checksum-Crc64nvme, X-Amz-Checksum-Sha1, X-Amz-Checksum-Sha256, X-Amz-Checksum-Sha512, " +
		"X-Amz-Checksum-Md5, X-Amz-Checksum-Xxhash64, X-Amz-Checksum-Xxhash3, X-Amz-Checksum-Xxhash128, " +
		"X-Amz-Checksum-Type, X-Holdfast-Cid, X-Holdfast-Blake3"
	corsMaxAge = "600" // seconds

	// maxAskedHeaders is the maximum length of Access-Control-Request-Headers, in bytes, that a
	// preflight answer repeats. It repeats the list because metadata headers can have any name,
	// and "*" does not include Authorization.
	maxAskedHeaders = 4 << 10
)

// Names of CORS headers in requests and answers, and the value of Vary.
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

// corsVerbs are the methods that a CORS rule may allow, as in Amazon S3.
var corsVerbs = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodHead}

// admit sets the CORS headers that allow scripts of the configured origins to read every answer.
// It never allows cookies.
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

// share sets the CORS headers that allow a script to read the answer by the CORS rules of the
// caller's bucket. The caller must be authenticated. If the rules cannot be read, share does
// nothing, because the request itself will fail with the same error.
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

// say sets the CORS headers of an answer by a CORS rule, in addition to those of admit. from is
// the pattern of the rule that matched origin.
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

// isPreflight reports whether a request is a CORS preflight.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get(askedMethod) != ""
}

// preflight answers a CORS preflight. Preflights have no credentials, so the owner of the bucket
// is unknown. If the URL is presigned, the CORS rules of the signer's bucket decide. Otherwise
// every preflight for a bucket is allowed, which reveals nothing about the bucket.
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

// preflightOf answers the preflight for a presigned URL by the CORS rules of its bucket. asked is
// the value of Access-Control-Request-Headers.
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

// linked reports whether a preflight is for a URL that is presigned for this method. It stores
// the principal of the signer in r. It returns false for a URL with signed headers other than
// host, because a preflight has only their names and not their values.
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

// ruleFor returns the first CORS rule that matches a request, and the origin pattern of the rule
// that matched. names are the requested header names in lower case. It returns nil if no rule
// matches.
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

// fits reports whether text matches a pattern, in which the first * stands for any text.
func fits(pattern, text string) bool {
	before, behind, any := strings.Cut(pattern, "*")
	if !any {
		return pattern == text
	}
	return len(text) >= len(before)+len(behind) && strings.HasPrefix(text, before) && strings.HasSuffix(text, behind)
}
