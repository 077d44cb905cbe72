package s3

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// caller is the result of the authentication of a request, besides the principal.
type caller struct {
	framing sigv4.Framing
	body    func(io.Reader) *sigv4.Body // decodes and verifies the body of the request
	// again authenticates the same credentials again, by a linearizable read.
	again func(context.Context) error
}

// authenticatedFor is the maximum age of an authentication when a change is proposed.
const authenticatedFor = time.Second

// judgeAgain authenticates a request again if its authentication is older than authenticatedFor.
func (s *surface) judgeAgain(ctx context.Context, r *request) error {
	if s.now().Sub(r.began) < authenticatedFor {
		return nil
	}
	return r.caller.again(ctx)
}

// authenticate sets r.who and r.caller by the credentials of the request: a bearer token, a
// signature of version 4 in the header or the query, one of version 2 in the query, or the signed
// policy of a form. Of the body it reads only the fields of a form.
func (s *surface) authenticate(w http.ResponseWriter, r *request) error {
	scheme, err := sigv4.SchemeOf(r.Request)
	if err != nil {
		return err
	}
	if scheme != sigv4.SchemeBearer && s.isForm(r) {
		if scheme != sigv4.SchemeNone {
			return errorf(NotImplemented, "a form is signed by its policy, or sent with a bearer token")
		}
		return s.verifyForm(w, r)
	}
	ctx, cancel := r.soon()
	defer cancel()
	if scheme == sigv4.SchemeHeader || scheme == sigv4.SchemeQuery || scheme == sigv4.SchemeVersion2 {
		return s.verify(ctx, r)
	}
	token, err := bearer(r.Request)
	if err != nil {
		return err
	}
	if err := s.judge(ctx, r, token); err != nil {
		return err
	}
	if r.caller.framing, err = sigv4.FramingOf(r.Request); err != nil {
		return err
	}
	r.caller.body = r.caller.framing.Body
	return nil
}

// ahead identifies the account of a request with recognize, which uses the local state, and
// counts the request against its rate. It does so only after some account has exceeded its rate
// within the last second. A refused request then needs no linearizable read. The request is not
// authenticated by this. If only a CORS rule of the bucket lets a script read the answer
// (r.ruled), ahead does nothing: the rules apply only to authenticated callers.
func (s *surface) ahead(r *request, recognize func() (accounts.Principal, error)) error {
	if r.ruled || !s.limits.Pressed() {
		return nil
	}
	if err := s.limits.Refusal(r.Request); err != nil {
		return err
	}
	who, err := recognize()
	if err != nil || who.Account == "" {
		return nil //nolint:nilerr // another node may know the credentials
	}
	r.spent = who.Account
	return s.limits.Account(who.Account, r.Request)
}

// judge authenticates a request by its bearer token.
func (s *surface) judge(ctx context.Context, r *request, token string) (err error) {
	if err := s.ahead(r, func() (accounts.Principal, error) { return s.accounts.RecognizeS3(token) }); err != nil {
		return err
	}
	if r.who, err = s.accounts.AuthenticateS3(ctx, token); err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	r.caller.again = func(ctx context.Context) error {
		_, err := s.accounts.AuthenticateS3(ctx, token)
		return err
	}
	return nil
}

// verify authenticates a request by its signature. It looks up the access key once.
func (s *surface) verify(ctx context.Context, r *request) error {
	err := s.ahead(r, func() (who accounts.Principal, err error) {
		_, err = s.recognizer(&who).Verify(ctx, r.Request)
		return who, err
	})
	if err != nil {
		return err
	}
	caller, err := s.verifier(r).Verify(ctx, r.Request)
	if err != nil {
		r.who = accounts.Principal{}
		return err
	}
	r.caller.framing, r.caller.body = caller.Framing, caller.Body
	if caller.Version2 {
		if err := r.covered(); err != nil {
			return err
		}
	}
	if err := hoisted(r); err != nil {
		return err
	}
	if caller.Token != "" {
		return s.judge(ctx, r, caller.Token)
	}
	s.signed(r, caller.AccessKey)
	return nil
}

// covered returns an error for a change by a presigned URL of signature version 2 that has an
// unsigned sub-resource, because everybody with the URL could have added it.
func (r *request) covered() error {
	for _, p := range r.query {
		if _, known := slices.BinarySearch(subResources, p.name); known && changes(r.Method) && !sigv4.SignedByVersion2(p.name) {
			return errorf(AccessDenied, "a link of signature version 2 does not sign the sub-resource %s", p.name)
		}
	}
	return nil
}

// verifier returns a verifier that looks up access keys by a linearizable read and stores the
// principal in r.who.
func (s *surface) verifier(r *request) *sigv4.Verifier { return s.verifierBy(s.accounts.S3Key, &r.who) }

// recognizer returns a verifier that looks up access keys in the local state, which may be stale,
// and stores the principal in who.
func (s *surface) recognizer(who *accounts.Principal) *sigv4.Verifier {
	return s.verifierBy(func(_ context.Context, accessKey string) (string, accounts.Principal, error) {
		return s.accounts.RecognizeS3Key(accessKey)
	}, who)
}

// verifierBy returns a verifier that looks up access keys with find. It stores the principal that
// find returned in who, even if the signature is wrong.
func (s *surface) verifierBy(find func(context.Context, string) (string, accounts.Principal, error), who *accounts.Principal) *sigv4.Verifier {
	lookup := func(ctx context.Context, accessKey string) (secret string, err error) {
		secret, *who, err = find(ctx, accessKey)
		if errors.Is(err, state.ErrUnauthorized) {
			return "", sigv4.ErrUnknownKey
		}
		return secret, err
	}
	v := sigv4.New(lookup, "", s.now)
	if s.version2 {
		v = v.WithVersion2(s.bucketOfHost)
	}
	return v
}

// signed records that r has a valid signature by an access key.
func (s *surface) signed(r *request, accessKey string) {
	s.accounts.Used(r.who)
	r.caller.again = func(ctx context.Context) error {
		_, _, err := s.accounts.S3Key(ctx, accessKey)
		return err
	}
}

// verifyForm authenticates an upload form by the signature of its policy. For that it reads the
// form up to its file. The memory of the fields counts for the unknown client until the end of
// verifyForm; postObject then reserves it for the account.
func (s *surface) verifyForm(w http.ResponseWriter, r *request) (err error) {
	held := s.limits.HoldUnknown(r.Request)
	defer held.Release()
	if err = held.Grow(formMemory); err != nil {
		return err
	}
	if r.form, err = s.readForm(w, r); err != nil {
		return err
	}
	ctx, cancel := r.soon()
	defer cancel()
	err = s.ahead(r, func() (who accounts.Principal, err error) {
		_, err = s.recognizer(&who).VerifyForm(ctx, r.form.signature())
		return who, err
	})
	if err != nil {
		return err
	}
	accessKey, err := s.verifier(r).VerifyForm(ctx, r.form.signature())
	if err != nil {
		r.who = accounts.Principal{}
		return err
	}
	s.signed(r, accessKey)
	return nil
}

// hoisted copies the x-amz- parameters of a presigned URL to the headers, because SDKs move
// headers to the query when they presign. A header of the request has precedence. It ignores a
// checksum of the empty body, because SDKs add one to URLs for any body. Any other checksum fixes
// the body for which the URL is valid.
func hoisted(r *request) error {
	if !r.query.has("X-Amz-Signature") {
		return nil
	}
	const prefix = "X-Amz-"
	for _, p := range r.query {
		if len(p.name) < len(prefix) || !strings.EqualFold(p.name[:len(prefix)], prefix) {
			continue
		}
		if !isToken(p.name) { // metadata with such a name could never be returned
			return errorf(InvalidArgument, "%.64q cannot be the name of a header", p.name)
		}
		name := textproto.CanonicalMIMEHeaderKey(p.name)
		if slices.Contains(linkParameters, name) || len(r.Header[name]) > 0 || isOfNothing(name, p.value) {
			continue
		}
		if !web.IsHeaderValue(p.value) {
			return errorf(InvalidArgument, "%.64s cannot be the value of a header", p.name)
		}
		r.Header[name] = []string{p.value}
	}
	return nil
}

// isOfNothing reports whether a header is a checksum header with the checksum of the empty body.
func isOfNothing(name, value string) bool {
	a := algorithmOf(name)
	return a != nil && value == base64.StdEncoding.EncodeToString(objects.NewHash(a.name).Sum(nil))
}

// linkParameters are the parameters that hoisted ignores: those of the signature, and those about
// a body that did not exist when the URL was signed.
var linkParameters = []string{
	"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Signedheaders", "X-Amz-Signature",
	"X-Amz-Content-Sha256", "X-Amz-Security-Token", "X-Amz-Sdk-Checksum-Algorithm", "X-Amz-Decoded-Content-Length", "X-Amz-Trailer",
}

// bearer returns the bearer token of a request, or state.ErrUnauthorized. The scheme may have any
// letter case (RFC 9110, section 11.1), followed by one space and a token of visible ASCII.
func bearer(r *http.Request) (string, error) {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return "", state.ErrUnauthorized
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > accounts.MaxToken {
		return "", state.ErrUnauthorized
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return "", state.ErrUnauthorized
		}
	}
	return token, nil
}

// check returns an error for an invalid bucket or key, and for headers that no operation
// supports.
func (r *request) check(s *surface) error {
	if err := r.target.check(); err != nil {
		return err
	}
	for _, name := range []string{"X-Amz-Expected-Bucket-Owner", "X-Amz-Source-Expected-Bucket-Owner"} {
		if owner := r.Header.Get(name); owner != "" && owner != string(r.account()) {
			return errorf(AccessDenied, "the bucket has another owner than %s says", strings.ToLower(name))
		}
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-Server-Side-Encryption") || strings.HasPrefix(name, "X-Amz-Copy-Source-Server-Side-Encryption") {
			return errorf(NotImplemented, "a header you provided implies functionality that is not implemented: %s; encrypt on the client's side", strings.ToLower(name))
		}
	}
	return nil
}
