package sigv4

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scheme is the way in which a request sends its credentials.
type Scheme uint8

// Values of Scheme.
const (
	SchemeNone     Scheme = iota // no credentials
	SchemeBearer                 // Authorization: Bearer
	SchemeHeader                 // Authorization: AWS4-HMAC-SHA256
	SchemeQuery                  // a presigned request
	SchemeVersion2               // a presigned request of signature version 2
)

// SchemeOf returns the way in which r sends its credentials. Credentials in more than one place,
// such as in a header and in the query, are an error with CodeSeveral.
func SchemeOf(r *http.Request) (Scheme, error) {
	q, err := read(r)
	if err != nil {
		return SchemeNone, err
	}
	return q.scheme, nil
}

// parameter is a parameter of a query.
type parameter struct {
	name, value string // decoded
}

// request has the parts of a request that contain its credentials.
type request struct {
	scheme Scheme
	path   string // as sent, neither cleaned nor decoded
	query  []parameter
	header string // value of Authorization
}

// maxAuthorization is the maximum length of the Authorization header in bytes. The longest token
// has 4 KiB.
const maxAuthorization = 16 << 10

// read finds the credentials of r. Any signature parameter in the query counts as credentials, so
// that a malformed query is an error and not an anonymous request.
func read(r *http.Request) (*request, error) {
	path, raw := target(r)
	query, err := parseQuery(raw)
	if err != nil {
		return nil, err
	}
	q := &request{path: path, query: query}
	version2 := false
	for i := range query {
		switch name := query[i].name; {
		case strings.EqualFold(name, "X-Amz-Algorithm"), strings.EqualFold(name, "X-Amz-Credential"), strings.EqualFold(name, "X-Amz-Signature"):
			q.scheme = SchemeQuery
		case name == version2Key, name == version2Signature:
			version2 = true
		}
	}
	values := r.Header["Authorization"]
	if len(values) == 0 && version2 && q.scheme == SchemeNone {
		q.scheme = SchemeVersion2
		return q, nil
	}
	if len(values) == 0 && !version2 {
		return q, nil
	}
	if len(values) != 1 || version2 || q.scheme != SchemeNone {
		return nil, errorf(CodeSeveral, "only one way of authentication is allowed: one Authorization header, or the parameters of a presigned request")
	}
	q.header = values[0]
	word, _, _ := strings.Cut(q.header, " ")
	switch {
	case strings.EqualFold(word, "Bearer"):
		q.scheme = SchemeBearer
	case word == algorithm:
		q.scheme = SchemeHeader
	case word == "AWS":
		return nil, errorf(CodeRequest, "the authorization mechanism you have provided is not supported: use Bearer or %s", algorithm)
	case strings.HasPrefix(word, "AWS"):
		return nil, errorf(CodeArgument, "unsupported authorization type: use Bearer or %s", algorithm)
	default:
		return nil, errorf(CodeScheme, "the authorization mechanism is not supported: use Bearer or %s", algorithm)
	}
	return q, nil
}

// target returns the escaped path and the query of r exactly as the client sent them. The fields
// of r.URL are not enough: net/http decodes the path, and encodes it again in another way than
// the client did.
func target(r *http.Request) (path, query string) {
	uri := r.RequestURI
	if uri == "" { // the request is not from a server
		uri = r.URL.EscapedPath()
		if r.URL.RawQuery != "" {
			uri += "?" + r.URL.RawQuery
		}
	}
	path, query, _ = strings.Cut(uri, "?")
	if scheme := strings.Index(path, "://"); scheme > 0 && path[0] != '/' {
		path = path[scheme+len("://"):] // the absolute form, as through a proxy
		if slash := strings.IndexByte(path, '/'); slash >= 0 {
			path = path[slash:]
		} else {
			path = ""
		}
	}
	if path == "" {
		path = "/"
	}
	return path, query
}

// MaxParameters is the maximum number of parameters of a query, empty ones included. The limit is
// needed because the head of a request has space for many more, and parsed parameters use 30
// times their bytes until the request ends.
const MaxParameters = 1000

// parseQuery parses a raw query. It splits only at &, and decodes a plus as a space, as S3 does.
// It omits empty parts. A part without = has an empty value.
func parseQuery(raw string) ([]parameter, error) {
	if raw == "" {
		return nil, nil
	}
	most := strings.Count(raw, "&") + 1
	if most > MaxParameters {
		return nil, errorf(CodeURI, "the query has more than %d parameters", MaxParameters)
	}
	query := make([]parameter, 0, most)
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		var p parameter
		var ok bool
		if p.name, ok = Unescape(name, true); ok {
			p.value, ok = Unescape(value, true)
		}
		if !ok {
			return nil, errorf(CodeURI, "the query is not percent-encoded")
		}
		query = append(query, p)
	}
	return query, nil
}

// single returns the value of the parameter name. given is false if it is absent. A repeated
// parameter is an error.
func (q *request) single(name string) (value string, given bool, err error) {
	for i := range q.query {
		if !strings.EqualFold(q.query[i].name, name) {
			continue
		}
		if given || q.query[i].name != name {
			return "", false, errorf(CodeQuery, "%s has to be given once, and written so", name)
		}
		value, given = q.query[i].value, true
	}
	return value, given, nil
}

// credential has the parsed parameters of a signature of version 4.
type credential struct {
	presigned bool // the parameters are in the query
	form      bool // the parameters are fields of an upload form

	accessKey                        string
	day, region, service, terminator string

	names     string   // SignedHeaders as sent
	signed    []string // names as a list: lower case, sorted, unique
	signature string

	when    time.Time
	stamp   string        // when in the form stampForm
	expires time.Duration // validity of a presigned request
}

// malformed returns the error for a malformed parameter, with the code for its place: header,
// query or form.
func (c *credential) malformed(format string, args ...any) *Error {
	switch {
	case c.presigned:
		return errorf(CodeQuery, format, args...)
	case c.form:
		return errorf(CodeArgument, format, args...)
	}
	return errorf(CodeHeader, format, args...)
}

// credential parses the parameters of the signature of r.
func (q *request) credential(r *http.Request) (*credential, error) {
	if q.scheme == SchemeQuery {
		return q.fromQuery()
	}
	c := &credential{}
	if len(q.header) > maxAuthorization {
		return nil, c.malformed("the Authorization header is longer than %d bytes", maxAuthorization)
	}
	var scope string
	fields := []struct {
		name string
		to   *string
	}{{"Credential", &scope}, {"SignedHeaders", &c.names}, {"Signature", &c.signature}}
	for part := range strings.SplitSeq(strings.TrimPrefix(q.header, algorithm), ",") {
		name, value, _ := strings.Cut(strings.Trim(part, " \t"), "=")
		i := slices.IndexFunc(fields, func(f struct {
			name string
			to   *string
		},
		) bool {
			return f.name == name
		})
		if i < 0 || *fields[i].to != "" || value == "" {
			return nil, c.malformed("the Authorization header is not %s Credential=..., SignedHeaders=..., Signature=...", algorithm)
		}
		*fields[i].to = value
	}
	for _, f := range fields {
		if *f.to == "" {
			return nil, c.malformed("the Authorization header lacks %s", f.name)
		}
	}
	if err := c.setScope(scope); err != nil {
		return nil, err
	}
	if err := c.setSigned(); err != nil {
		return nil, err
	}
	return c, c.setDate(r)
}

// fromQuery parses the parameters of the signature of a presigned request.
func (q *request) fromQuery() (*credential, error) {
	c := &credential{presigned: true}
	var scope, named, stamp, expires string
	for _, f := range []struct {
		name string
		to   *string
	}{
		{"X-Amz-Algorithm", &named},
		{"X-Amz-Credential", &scope},
		{"X-Amz-Date", &stamp},
		{"X-Amz-Expires", &expires},
		{"X-Amz-SignedHeaders", &c.names},
		{"X-Amz-Signature", &c.signature},
	} {
		value, _, err := q.single(f.name)
		if err != nil {
			return nil, err
		}
		if value == "" {
			return nil, c.malformed("a presigned request needs the parameter %s", f.name)
		}
		*f.to = value
	}
	if named != algorithm {
		return nil, c.malformed("X-Amz-Algorithm only supports %s", algorithm)
	}
	if err := c.setScope(scope); err != nil {
		return nil, err
	}
	if err := c.setSigned(); err != nil {
		return nil, err
	}
	when, ok := parseStamp(stamp)
	if !ok {
		return nil, c.malformed("X-Amz-Date must be in the form %s", stampForm)
	}
	c.when, c.stamp = when, stamp
	seconds, ok := digits(expires)
	if limit := int64(MaxExpires / time.Second); !ok || seconds < 1 || seconds > limit {
		return nil, c.malformed("X-Amz-Expires must be 1 to %d seconds", limit)
	}
	c.expires = time.Duration(seconds) * time.Second
	return c, nil
}

// setScope parses ACCESSKEY/DATE/REGION/SERVICE/aws4_request. An access key may contain slashes;
// the other four parts may not.
func (c *credential) setScope(text string) error {
	parts := []*string{&c.terminator, &c.service, &c.region, &c.day}
	for _, part := range parts {
		slash := strings.LastIndexByte(text, '/')
		if slash < 0 {
			return c.malformed("the credential is not <access key>/<date>/<region>/%s/%s", service, terminator)
		}
		text, *part = text[:slash], text[slash+1:]
	}
	if text == "" {
		return c.malformed("the credential names no access key")
	}
	c.accessKey = text
	return nil
}

// setSigned parses the names of the signed headers. They must be in lower case and sorted,
// because the string to sign requires that.
func (c *credential) setSigned() error {
	c.signed = strings.Split(c.names, ";")
	for i, name := range c.signed {
		if !isToken(name) || strings.ToLower(name) != name || (i > 0 && c.signed[i-1] >= name) {
			return c.malformed("the signed headers are not names in lower case, sorted, none twice, with ; between them")
		}
	}
	return nil
}

// setDate parses the time of a request from X-Amz-Date, or from Date if that is absent.
func (c *credential) setDate(r *http.Request) error {
	values, name := r.Header["X-Amz-Date"], "x-amz-date"
	if len(values) == 0 {
		values, name = r.Header["Date"], "date"
	}
	if len(values) != 1 {
		return errorf(CodeDate, "authentication requires one valid date or x-amz-date header")
	}
	when, ok := parseStamp(values[0])
	if !ok && name == "date" {
		var err error
		when, err = http.ParseTime(values[0])
		ok = err == nil
	}
	if !ok {
		return errorf(CodeDate, "authentication requires a valid date or x-amz-date header: %s cannot be read", name)
	}
	// The signed text has the time of a Date header in the same form.
	c.when, c.stamp = when, when.UTC().Format(stampForm)
	return nil
}

// parseStamp parses a time in exactly the form stampForm. time.Parse alone would also accept
// fractions of a second.
func parseStamp(text string) (time.Time, bool) {
	when, err := time.Parse(stampForm, text)
	return when, err == nil && len(text) == len(stampForm)
}

// digits parses a number of at most 18 decimal digits. It returns false for any other text.
func digits(text string) (int64, bool) {
	if text == "" || len(text) > 18 {
		return 0, false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// isToken reports whether text is a valid header name (RFC 9110, section 5.6.2).
func isToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return text != ""
}
