package sigv4

import (
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // signature version 2 uses SHA-1
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"
)

// boto3 makes links of signature version 2 for a custom endpoint by default. Their form is
// described in "Signing and Authenticating REST Requests" of the Amazon S3 documentation.
// Where that is silent, the code follows HmacV1QueryAuth of botocore, from which most of
// these links come. Version 2 in the Authorization header is not supported.

// Query parameters of a presigned URL of version 2.
const (
	version2Key       = "AWSAccessKeyId"
	version2Signature = "Signature"
	version2Expires   = "Expires"
)

// version2Signed are the query parameters that version 2 signs, sorted. Other parameters are not
// part of the signed text.
var version2Signed = []string{
	"accelerate", "acl", "analytics", "cors", "defaultObjectAcl", "delete", "inventory", "lifecycle", "location", "logging", "metrics", "notification",
	"object-lock", "partNumber", "policy", "replication", "requestPayment", "response-cache-control", "response-content-disposition",
	"response-content-encoding", "response-content-language", "response-content-type", "response-expires", "restore", "select", "select-type",
	"storageClass", "tagging", "torrent", "uploadId", "uploads", "versionId", "versioning", "versions", "website",
}

// SignedByVersion2 reports whether signature version 2 signs the query parameter name.
func SignedByVersion2(name string) bool {
	_, signed := slices.BinarySearch(version2Signed, name)
	return signed
}

// Hosted returns the bucket that a host name contains. ok is false if it contains none.
type Hosted func(host string) (bucket string, ok bool)

// WithVersion2 returns a copy of the verifier that also accepts presigned URLs of signature
// version 2. In their signed text the path begins with the bucket, even if the request has the
// bucket in its host name; hosted finds that bucket.
func (v *Verifier) WithVersion2(hosted Hosted) *Verifier {
	with := *v
	with.hosted = hosted
	return &with
}

// verifyVersion2 is Verify for a presigned URL of version 2. It makes all checks that need no
// secret before it looks up the access key.
func (v *Verifier) verifyVersion2(ctx context.Context, r *http.Request, q *request) (*Caller, error) {
	if v.hosted == nil {
		return nil, errorf(CodeScheme, "links of signature version 2 are not supported: use %s", algorithm)
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete:
	default:
		return nil, errorf(CodeScheme, "a link of signature version 2 is for GET, HEAD, PUT or DELETE")
	}
	var accessKey, signature, expires string
	for _, f := range []struct {
		name string
		to   *string
	}{{version2Key, &accessKey}, {version2Signature, &signature}, {version2Expires, &expires}} {
		value, _, err := q.single(f.name)
		if err != nil {
			return nil, err
		}
		if value == "" {
			return nil, errorf(CodeScheme, "query-string authentication requires the %s, %s and %s parameters", version2Signature, version2Expires, version2Key)
		}
		*f.to = value
	}
	if err := v.checkExpires(expires); err != nil {
		return nil, err
	}
	if err := refuseToken(r, q); err != nil {
		return nil, err
	}
	framing, err := FramingOf(r)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(accessKey, tokenPrefix) {
		return nil, errorf(CodeDenied, "a token is not accepted in a link: presign with an access key")
	}
	if err := v.matchVersion2(ctx, r, q, accessKey, signature, expires); err != nil {
		return nil, err
	}
	return &Caller{AccessKey: accessKey, Presigned: true, Version2: true, Framing: framing}, nil
}

// checkExpires checks the expiry of a presigned URL of version 2; text is in seconds since 1970.
// Such a URL has no start time, so its expiry may be at most MaxExpires plus Window in the
// future.
func (v *Verifier) checkExpires(text string) error {
	seconds, ok := digits(text)
	now, end := v.now(), time.Unix(seconds, 0)
	switch {
	case !ok:
		return errorf(CodeExpired, "invalid date (should be seconds since epoch): %.32q", text)
	case now.After(end):
		return errorf(CodeExpired, "request has expired")
	case end.After(now.Add(MaxExpires + Window)):
		return errorf(CodeExpired, "a link of signature version 2 may be valid for %d seconds at the most", int64(MaxExpires/time.Second))
	}
	return nil
}

// matchVersion2 verifies the signature of a presigned URL of version 2. It accepts the signature
// of any form of the path that the client may have signed.
func (v *Verifier) matchVersion2(ctx context.Context, r *http.Request, q *request, accessKey, signature, expires string) error {
	secret, unknown, err := v.secret(ctx, accessKey)
	if err != nil {
		return err
	}
	// A client may send the plus of base64 unencoded, and it then arrives as a space.
	given := []byte(strings.ReplaceAll(signature, " ", "+"))
	query, ok := version2Query(r)
	if !ok {
		return mismatch(unknown, "the request")
	}
	head := version2Head(r, expires)
	matches := 0
	for _, path := range v.version2Paths(r, q) {
		mac := hmac.New(sha1.New, []byte(secret))
		mac.Write(head)
		mac.Write([]byte(path + query))
		made := base64.StdEncoding.AppendEncode(nil, mac.Sum(nil))
		if matches = subtle.ConstantTimeCompare(made, given) &^ unknown; matches == 1 {
			return nil
		}
	}
	return mismatch(unknown, "the request")
}

// version2Head returns the part of the string to sign before the path: the method, Content-MD5,
// Content-Type, the expiry in place of the time, and all x-amz- headers.
func version2Head(r *http.Request, expires string) []byte {
	text := make([]byte, 0, 256)
	text = append(text, r.Method...)
	for _, name := range []string{"Content-Md5", "Content-Type"} {
		text = append(text, '\n')
		text = append(text, joined(r.Header[name])...)
	}
	text = append(text, '\n')
	text = append(text, expires...)
	text = append(text, '\n')
	var lines []string
	for name, values := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-amz-") {
			lines = append(lines, lower+":"+joined(values)+"\n")
		}
	}
	slices.SortFunc(lines, func(a, b string) int {
		return strings.Compare(a[:strings.IndexByte(a, ':')], b[:strings.IndexByte(b, ':')])
	})
	for _, line := range lines {
		text = append(text, line...)
	}
	return text
}

func joined(values []string) string {
	trimmed := make([]string, len(values))
	for i, value := range values {
		trimmed[i] = strings.Trim(value, " \t")
	}
	return strings.Join(trimmed, ",")
}

// version2Paths returns the forms of the path that the client may have signed: those of paths,
// preceded by the bucket if it is in the host name. botocore signs a slash after the bucket even
// if the path has none.
func (v *Verifier) version2Paths(r *http.Request, q *request) []string {
	paths := q.paths()
	bucket, ok := v.hosted(r.Host)
	switch {
	case ok:
		for i := range paths {
			paths[i] = "/" + bucket + paths[i]
		}
	case strings.LastIndexByte(q.path, '/') == 0 && q.path != "/":
		for _, path := range paths {
			paths = append(paths, path+"/")
		}
	}
	return paths
}

// version2Query returns the signed part of the query with its question mark, or "" if no
// parameter is signed. Values are decoded, and a parameter without = stays without it. ok is
// false if a value contains text that looks like another signed parameter, because such a query
// would have the same signature as another one.
func version2Query(r *http.Request) (query string, ok bool) {
	_, raw := target(r)
	var signed []string
	for part := range strings.SplitSeq(raw, "&") {
		name, value, has := strings.Cut(part, "=")
		name, _ = Unescape(name, true) // parseQuery has checked the encoding
		if !SignedByVersion2(name) {
			continue
		}
		if has {
			value, _ = Unescape(value, true)
			for i, piece := range strings.Split(value, "&") {
				if inside, _, _ := strings.Cut(piece, "="); i > 0 && SignedByVersion2(inside) {
					return "", false
				}
			}
			name += "=" + value
		}
		signed = append(signed, name)
	}
	if len(signed) == 0 {
		return "", true
	}
	slices.SortStableFunc(signed, func(a, b string) int {
		a, _, _ = strings.Cut(a, "=")
		b, _, _ = strings.Cut(b, "=")
		return strings.Compare(a, b)
	})
	return "?" + strings.Join(signed, "&"), true
}
