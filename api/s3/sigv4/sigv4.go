// Package sigv4 verifies requests signed with AWS Signature Version 4 for S3, and
// links signed with version 2, and removes the framing of their bodies. It returns the
// signer, by the secret that its caller looks up. It knows nothing of accounts,
// buckets or answers.
//
// It implements "Authenticating Requests (AWS Signature Version 4)" of the Amazon S3
// API Reference: the Authorization header, the presigned query, the policy of an
// upload form, and chunked bodies with and without signatures and trailers. Where that
// text is silent, a comment states the choice and its reason.
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

	// stampForm is the form of X-Amz-Date and of the signed time.
	stampForm = "20060102T150405Z"
	dayLength = len("20060102")

	// tokenPrefix is the prefix of an access key that is a bearer token.
	tokenPrefix = "JWT:"
)

// Window is the maximum difference between the time of a request and the clock of this
// node.
const Window = 15 * time.Minute

// MaxExpires is the longest life of a presigned request.
const MaxExpires = 7 * 24 * time.Hour

// ErrUnknownKey is the error of Lookup for an unknown, revoked or expired access key.
var ErrUnknownKey = errors.New("unknown access key")

// Lookup returns the secret of an access key, or ErrUnknownKey. The verification ends with
// any other error and returns it. Lookup should take the same time for known and unknown
// keys, so that the time does not reveal them.
type Lookup func(ctx context.Context, accessKey string) (secret string, err error)

// Verifier verifies requests. It is safe for concurrent use.
type Verifier struct {
	lookup Lookup
	region string
	now    func() time.Time
	hosted Hosted // nil: links of signature version 2 are refused
}

// New returns a verifier. If region is not empty, the verifier refuses a request that is signed for
// another region. An empty region accepts all: the region is part of the signed text, and clients
// are set up with any.
func New(lookup Lookup, region string, now func() time.Time) *Verifier {
	return &Verifier{lookup: lookup, region: region, now: now}
}

// Caller is the result of a verification: the credential that signed a request, and how the body of
// the request is encoded. Exactly one of AccessKey and Token is set.
type Caller struct {
	// AccessKey is the access key that made the signature.
	AccessKey string
	// Token is the bearer token of a client that sent "JWT:<token>" as its access key. The
	// signature of such a request proves nothing, since such clients sign with any secret. The
	// caller of this package has to check the token.
	Token string
	// Presigned reports that the credentials were in the query.
	Presigned bool
	// Version2 reports a request of signature version 2. Of the query, this version signs only the
	// parameters of SignedByVersion2.
	Version2 bool
	// Framing is the framing of the body.
	Framing Framing

	chain *chain
}

// String returns the caller without the token.
func (c *Caller) String() string {
	if c.Token != "" {
		return "a token"
	}
	return "access key " + c.AccessKey
}

// GoString does the same as String, so that %#v does not show the token either.
func (c *Caller) GoString() string { return c.String() }

// Body returns a reader of the object's bytes. src is the body of the request. The reader verifies
// what is signed: the hash of the body, or each chunk and the trailers. The type Body says what its
// reader must not do before io.EOF.
func (c *Caller) Body(src io.Reader) *Body {
	return newBody(c.Framing, c.chain, src)
}

// Verify returns the signer of r, and does not read the body. The error is an *Error or that of the
// lookup.
//
// Verify makes all checks that need only the request before it looks up the access key. From there
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

// checkScope returns an error for another service, day or region.
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

// checkTime returns an error if the time of a request is too far away. A presigned request
// is valid from its time minus Window to its expiry.
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

// refuseToken refuses temporary credentials, which do not exist here. S3 also refuses a
// security token that does not belong to the key.
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

// payloadOf returns the text that represents the body in the signed text. A presigned
// request has it in the query, in a header, or not at all.
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

// noSecret is used in place of the secret of an unknown key. It has the same length.
const noSecret = "----------------------------------------"

// match returns the chain for the signatures of chunks. The errors for a wrong signature
// and an unknown key are alike.
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

// secret looks up the secret of an access key. If the key is unknown, it returns noSecret
// and unknown is 1.
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

// mismatch returns the error for a signature that is not that of its access key; what names
// the signed object.
func mismatch(unknown int, what string) error {
	if unknown == 1 {
		return errorf(CodeUnknownKey, "the access key id you provided does not exist in our records")
	}
	return errorf(CodeSignature, "the signature we calculated does not match the one you provided: check the secret and how %s is signed", what)
}

// signingKey derives the key for a day, region and service from a secret.
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

// emptySHA256 is the SHA-256 of no bytes. In the string to sign of a chunk it is in the
// place of the headers.
const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
