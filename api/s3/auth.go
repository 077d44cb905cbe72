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

	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// caller is how a request was authenticated, and how its body is read.
type caller struct {
	framing sigv4.Framing
	body    func(io.Reader) *sigv4.Body
	// again judges the same credentials by the state as it is now.
	again func(context.Context) error
}

// authenticatedFor is how old the judgement of who asks may be when a change is proposed.
const authenticatedFor = time.Second

// judgeAgain judges who asks once more, if that was long ago.
func (s *surface) judgeAgain(ctx context.Context, r *request) error {
	if s.now().Sub(r.began) < authenticatedFor {
		return nil
	}
	return r.caller.again(ctx)
}

// authenticate tells who sent a request: by a bearer token, or by a signature of
// version 4 in the header or the query, or of version 2 in the query, of which it reads nothing of the body, or
// in the fields of a form.
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

// ahead takes a request from the rate of the account that this node takes it for:
// while somebody asks too often, so that the cluster is not asked about what is
// refused. Who is let in is not decided by that. A refusal that a script can only
// read by a rule of a bucket comes later, for the rules are told to nobody whose
// credentials the cluster has not judged.
func (s *surface) ahead(r *request, recognize func() (accounts.Principal, error)) error {
	if r.ruled || !s.limits.Pressed() {
		return nil
	}
	if err := s.limits.Told(r.Request); err != nil {
		return err
	}
	who, err := recognize()
	if err != nil || who.Account == "" {
		return nil //nolint:nilerr // it may be known elsewhere
	}
	r.spent = who.Account
	return s.limits.Account(who.Account, r.Request)
}

// judge takes a token.
func (s *surface) judge(ctx context.Context, r *request, token string) (err error) {
	if err := s.ahead(r, func() (accounts.Principal, error) { return s.accounts.Recognize(token) }); err != nil {
		return err
	}
	if r.who, err = s.accounts.Authenticate(ctx, token); err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	r.caller.again = func(ctx context.Context) error {
		_, err := s.accounts.Authenticate(ctx, token)
		return err
	}
	return nil
}

// verify takes a signature. The secret of an access key is looked up once for a
// request, with who it speaks for.
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

// covered refuses a change by a link of signature version 2 with a sub-resource that such a
// link does not sign: whoever has it could have put that there.
func (r *request) covered() error {
	for _, p := range r.query {
		if _, known := slices.BinarySearch(subResources, p.name); known && changes(r.Method) && !sigv4.SignedByVersion2(p.name) {
			return errorf(AccessDenied, "a link of signature version 2 does not sign the sub-resource %s", p.name)
		}
	}
	return nil
}

// verifier looks access keys up in the state of the cluster, and notes in r who they
// speak for.
func (s *surface) verifier(r *request) *sigv4.Verifier { return s.verifierBy(s.accounts.S3Key, &r.who) }

// recognizer is verifier by the state of this node.
func (s *surface) recognizer(who *accounts.Principal) *sigv4.Verifier {
	return s.verifierBy(func(_ context.Context, accessKey string) (string, accounts.Principal, error) {
		return s.accounts.RecognizeS3Key(accessKey)
	}, who)
}

// verifierBy notes in who whom find has told of, also when the signature is wrong.
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

// signed takes an access key whose signature was right.
func (s *surface) signed(r *request, accessKey string) {
	s.accounts.Used(r.who)
	r.caller.again = func(ctx context.Context) error {
		_, _, err := s.accounts.S3Key(ctx, accessKey)
		return err
	}
}

// verifyForm takes the signature of a form's policy, for which it reads the form up
// to its file. From then on the account holds it, see postObject.
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

// hoisted makes headers of the x-amz- parameters of a link: SDKs put there what
// they would send as headers. What is sent as a header counts more. A checksum of the
// empty body is left out: SDKs make links for any body with one. Another one says which
// body the link is for.
func hoisted(r *request) error {
	if !r.query.has("X-Amz-Signature") {
		return nil
	}
	const prefix = "X-Amz-"
	for _, p := range r.query {
		if len(p.name) < len(prefix) || !strings.EqualFold(p.name[:len(prefix)], prefix) {
			continue
		}
		if !isToken(p.name) { // metadata of such a name would be stored, and no answer could have it
			return errorf(InvalidArgument, "%.64q cannot be the name of a header", p.name)
		}
		name := textproto.CanonicalMIMEHeaderKey(p.name)
		if slices.Contains(linkParameters, name) || len(r.Header[name]) > 0 || isOfNothing(name, p.value) {
			continue
		}
		if !isHeaderValue(p.value) {
			return errorf(InvalidArgument, "%.64s cannot be the value of a header", p.name)
		}
		r.Header[name] = []string{p.value}
	}
	return nil
}

// isOfNothing tells whether a header is the checksum of the empty body.
func isOfNothing(name, value string) bool {
	a := algorithmOf(name)
	return a != nil && value == base64.StdEncoding.EncodeToString(objects.NewHash(a.name).Sum(nil))
}

// linkParameters are those of a link itself, and what says of a body that was not
// there yet.
var linkParameters = []string{
	"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Signedheaders", "X-Amz-Signature",
	"X-Amz-Content-Sha256", "X-Amz-Security-Token", "X-Amz-Sdk-Checksum-Algorithm", "X-Amz-Decoded-Content-Length", "X-Amz-Trailer",
}

// bearer returns the token of a request. The scheme is written in any case (RFC
// 9110, section 11.1); behind it are one space and a token of visible ASCII.
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

// check refuses names that nothing can have, and what every operation refuses.
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
