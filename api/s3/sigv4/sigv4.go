// Package sigv4 verifies requests to S3 that are signed with AWS Signature Version 4, and
// presigned URLs of version 2. It also decodes and verifies the bodies of such requests. Its
// caller provides a function that looks up the secret of an access key. The package knows nothing
// of accounts, buckets or answers.
//
// It implements "Authenticating Requests (AWS Signature Version 4)" of the Amazon S3 API
// Reference: the Authorization header, presigned URLs, the policy of an upload form, and chunked
// bodies with and without signatures and trailers. Where that text is silent, a comment states
// the choice and its reason.
//
// Imports: std.
// Never:   accounts, state, use cases, listeners, settings, goroutines, a clock
// of its own.
package sigv4

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	algorithm  = "AWS4-HMAC-SHA256"
	service    = "s3"
	terminator = "aws4_request"

	// stampForm is the format of X-Amz-Date and of the time in the string to sign.
	stampForm = "20060102T150405Z"
	dayLength = len("20060102")

	// tokenPrefix is the prefix of an access key that contains a bearer token, see Caller.Token.
	tokenPrefix = "JWT:"
)

// Window is the maximum difference between the time in a request and the time of the verifier.
const Window = 15 * time.Minute

// MaxExpires is the maximum validity of a presigned URL.
const MaxExpires = 7 * 24 * time.Hour

// ErrUnknownKey is the error that a Lookup returns for an unknown, revoked or expired access key.
var ErrUnknownKey = errors.New("unknown access key")

// Lookup returns the secret of an access key, or ErrUnknownKey. Any other error ends the
// verification, which returns it. A Lookup should take the same time for known and unknown keys,
// so that its duration does not reveal which keys exist.
type Lookup func(ctx context.Context, accessKey string) (secret string, err error)

// Verifier verifies requests. It is safe for concurrent use.
type Verifier struct {
	lookup Lookup
	region string
	now    func() time.Time
	hosted Hosted // nil: presigned URLs of signature version 2 are rejected
}

// New returns a verifier. lookup returns the secrets, and now the current time. If region is not
// empty, the verifier rejects requests that are signed for another region. An empty region
// accepts all: the region is part of the signed text anyway, and clients are configured with any.
func New(lookup Lookup, region string, now func() time.Time) *Verifier {
	return &Verifier{lookup: lookup, region: region, now: now}
}

// Caller is the result of a verification: the credential that signed the request, and the framing
// of its body. Exactly one of AccessKey and Token is set.
type Caller struct {
	// AccessKey is the access key that signed the request.
	AccessKey string
	// Token is the bearer token of a client that sent "JWT:<token>" as its access key. Such clients
	// sign with any secret, so the signature proves nothing. The caller of Verify must authenticate
	// the token.
	Token string
	// Presigned is true if the credentials were in the query.
	Presigned bool
	// Version2 is true for signature version 2, which signs only some query parameters, see
	// SignedByVersion2.
	Version2 bool
	// Framing is the framing of the body.
	Framing Framing

	chain *chain
}

// String describes the caller without the token.
func (c *Caller) String() string {
	if c.Token != "" {
		return "a token"
	}
	return "access key " + c.AccessKey
}

// GoString returns the same as String, so that %#v does not show the token either.
func (c *Caller) GoString() string { return c.String() }

// Body returns a reader of the object's bytes in src, the body of the request. It verifies the
// hash of the body, or the signatures of the chunks and trailers. See the type Body for what the
// caller may do before io.EOF.
func (c *Caller) Body(src io.Reader) *Body {
	return newBody(c.Framing, c.chain, src)
}

// Verify verifies the signature of r and returns its signer. It does not read the body. The error
// is an *Error or that of the Lookup.
//
// Verify makes all checks that need only the request before it looks up the access key. From then
// on it does the same work for an unknown key as for a wrong signature.
func (v *Verifier) Verify(ctx context.Context, r *http.Request) (*Caller, error) {
	q, err := read(r)
	if err != nil {
		return nil, err
	}
	switch q.scheme {
	case SchemeHeader, SchemeQuery:
	case SchemeVersion2:
		return v.verifyVersion2(ctx, r, q)
	default:
		return nil, errorf(CodeNone, "the request is not signed")
	}
	c, err := q.credential(r)
	if err != nil {
		return nil, err
	}
	if err := v.checkScope(c); err != nil {
		return nil, err
	}
	if err := v.checkTime(c); err != nil {
		return nil, err
	}
	if err := checkHeaders(r, c); err != nil {
		return nil, err
	}
	if err := refuseToken(r, q); err != nil {
		return nil, err
	}
	payload, err := payloadOf(r, q)
	if err != nil {
		return nil, err
	}
	framing, err := framingOf(r, payload)
	if err != nil {
		return nil, err
	}
	caller := &Caller{AccessKey: c.accessKey, Presigned: c.presigned, Framing: framing}
	if token, ok := strings.CutPrefix(c.accessKey, tokenPrefix); ok {
		// A link is passed to others, and a token in it would give them all rights of its
		// account.
		if c.presigned {
			return nil, errorf(CodeDenied, "a token is not accepted in a link: presign with an access key")
		}
		if token == "" {
			return nil, errorf(CodeDenied, "access token is missing or invalid")
		}
		caller.AccessKey, caller.Token = "", token
		return caller, nil
	}
	if caller.chain, err = v.match(ctx, r, q, c, payload); err != nil {
		return nil, err
	}
	return caller, nil
}

// checkScope returns an error if the signature is for another service, day or region.
func (v *Verifier) checkScope(c *credential) error {
	switch {
	case c.service != service || c.terminator != terminator:
		return c.malformed("the credential has to end in /%s/%s", service, terminator)
	case c.day != c.stamp[:dayLength]:
		return c.malformed("the date of the credential is not that of the request")
	case c.region == "":
		return c.malformed("the credential names no region")
	case v.region != "" && c.region != v.region:
		return c.malformed("the region %q is wrong; expecting %q", c.region, v.region)
	}
	return nil
}

// checkTime returns an error if the time of a request differs too much from now. A presigned
// request is valid from Window before its time until its expiry.
func (v *Verifier) checkTime(c *credential) error {
	now := v.now()
	switch {
	case !c.presigned:
		if d := now.Sub(c.when); d > Window || d < -Window {
			return errorf(CodeSkewed, "the difference between the request time and the current time is too large")
		}
	case now.Before(c.when.Add(-Window)):
		return errorf(CodeExpired, "request is not valid yet")
	case now.After(c.when.Add(c.expires)):
		return errorf(CodeExpired, "request has expired")
	}
	return nil
}

// refuseToken returns an error for a request with temporary credentials, which this server does
// not have. S3 also rejects a security token that does not belong to the access key.
func refuseToken(r *http.Request, q *request) error {
	const name = "X-Amz-Security-Token"
	if _, given := r.Header[name]; given {
		return errorf(CodeToken, "there are no security tokens here")
	}
	for i := range q.query {
		if strings.EqualFold(q.query[i].name, name) {
			return errorf(CodeToken, "there are no security tokens here")
		}
	}
	return nil
}

// payloadOf returns the text that stands for the body in the string to sign: the value of
// x-amz-content-sha256. A presigned request has it in the query or in a header; without it the
// text is UNSIGNED-PAYLOAD.
func payloadOf(r *http.Request, q *request) (string, error) {
	values := r.Header[contentSHA256]
	if len(values) > 1 {
		return "", errorf(CodeArgument, "x-amz-content-sha256 is given %d times", len(values))
	}
	if q.scheme == SchemeHeader {
		if len(values) == 0 || values[0] == "" {
			return "", errorf(CodeRequest, "missing required header for this request: x-amz-content-sha256")
		}
		return values[0], nil
	}
	inQuery, given, err := q.single(contentSHA256Parameter)
	switch {
	case err != nil:
		return "", err
	case given && len(values) == 1 && values[0] != inQuery:
		return "", errorf(CodeArgument, "x-amz-content-sha256 is not the same in the header and in the query")
	case given && inQuery == "":
		return "", errorf(CodeArgument, "X-Amz-Content-Sha256 is empty")
	case given:
		return inQuery, nil
	case len(values) == 1 && values[0] != "":
		return values[0], nil
	}
	return unsignedPayload, nil
}

// noSecret is used instead of the secret of an unknown access key, so that the verification takes
// the same time. It has the length of a secret.
const noSecret = "----------------------------------------"

// match verifies the signature of a request, and returns the chain for the signatures of its
// chunks. An unknown access key costs the same work as a wrong signature. Both are errors of
// mismatch.
func (v *Verifier) match(ctx context.Context, r *http.Request, q *request, c *credential, payload string) (*chain, error) {
	secret, unknown, err := v.secret(ctx, c.accessKey)
	if err != nil {
		return nil, err
	}
	scope := c.day + "/" + c.region + "/" + c.service + "/" + c.terminator
	links := newChain(signingKey(secret, c), c.stamp, scope)

	text := make([]byte, 0, 1024)
	matches := 0
	for _, path := range q.paths() {
		text = canonical(text[:0], r, q, c, path, payload)
		links.seed(sha256.Sum256(text))
		matches = subtle.ConstantTimeCompare(links.previous[:], []byte(c.signature)) &^ unknown
		if matches == 1 {
			break
		}
	}
	if matches != 1 {
		return nil, mismatch(unknown, "the request")
	}
	return links, nil
}

// secret looks up the secret of an access key. For an unknown key it returns noSecret, and
// unknown is 1 instead of 0.
func (v *Verifier) secret(ctx context.Context, accessKey string) (secret string, unknown int, err error) {
	secret, err = v.lookup(ctx, accessKey)
	switch {
	case errors.Is(err, ErrUnknownKey):
		return noSecret, 1, nil
	case err != nil:
		return "", 0, fmt.Errorf("look up access key: %w", err)
	}
	return secret, 0, nil
}

// mismatch returns the error for a wrong signature, or for an unknown access key if unknown is 1.
// what names the signed thing in the text.
func mismatch(unknown int, what string) error {
	if unknown == 1 {
		return errorf(CodeUnknownKey, "the access key id you provided does not exist in our records")
	}
	return errorf(CodeSignature, "the signature we calculated does not match the one you provided: check the secret and how %s is signed", what)
}

// signingKey derives the signing key for the day, region and service of c from a secret.
func signingKey(secret string, c *credential) []byte {
	key := []byte("AWS4" + secret)
	for _, part := range []string{c.day, c.region, c.service, c.terminator} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return key
}

// signatureLength is the length of a signature in hexadecimal digits.
const signatureLength = 2 * sha256.Size

// emptySHA256 is the SHA-256 of empty input. The string to sign of a chunk contains it in the
// place of the hash of the headers.
const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
