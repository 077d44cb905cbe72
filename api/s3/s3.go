// Package s3 serves the S3 gateway over HTTP: buckets, objects, multipart uploads and tags as in
// the Amazon S3 REST API. docs/s3.md lists the operations. This package authenticates the caller,
// selects the operation and writes the answer. cluster/objects executes the operation.
//
// Requests are routed by the path exactly as the client sent it. A key can contain //, .. and
// %2F, which net/http would clean. One table, operations, maps a method, a sub-resource and a
// copy header to an operation and to the permission that it needs. A request without an entry in
// the table is rejected. The key of a share may use only the operations in shareable, within the
// limits of the share.
//
// Imports: std, api/internal/web, api/s3/sigv4, cluster/objects, cluster/accounts,
// consensus/state.
// Never:   other surfaces, consensus, storage, peer, listeners.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Objects is the application logic behind the operations. For resources of another account it
// returns the same errors as for missing ones. Its errors are state.Errors, and wrapped errors of
// request bodies and callbacks.
type Objects interface {
	// Buckets returns the buckets of the account a, ordered by name.
	Buckets(ctx context.Context, a state.AccountID) ([]state.Bucket, error)
	// CreateBucket creates a bucket, or returns state.ErrExists. Everybody can read the objects
	// of a public bucket by their CIDs.
	CreateBucket(ctx context.Context, a state.AccountID, name string, public bool) error
	// SetPublic makes a bucket public or private. Everybody can read the objects of a public
	// bucket by their CIDs.
	SetPublic(ctx context.Context, a state.AccountID, name string, public bool) error
	// Cors returns the CORS rules of a bucket, or state.ErrNoBucket.
	Cors(ctx context.Context, a state.AccountID, bucket string) ([]state.CorsRule, error)
	// SetCors replaces the CORS rules of a bucket. An empty list removes them.
	SetCors(ctx context.Context, a state.AccountID, bucket string, rules []state.CorsRule) error
	// BucketTags returns a bucket's tags, or state.ErrNoBucket.
	BucketTags(ctx context.Context, a state.AccountID, bucket string) ([]state.Tag, error)
	// SetBucketTags replaces the tags of a bucket. An empty list removes them.
	SetBucketTags(ctx context.Context, a state.AccountID, bucket string, tags []state.Tag) error
	// DeleteBucket removes a bucket, or returns state.ErrNotEmpty if the bucket is not empty.
	DeleteBucket(ctx context.Context, a state.AccountID, name string) error
	// Bucket returns a bucket by a linearizable read, or state.ErrNoBucket.
	Bucket(ctx context.Context, a state.AccountID, name string) (state.Bucket, error)
	// List returns a page of the objects of a bucket.
	List(ctx context.Context, a state.AccountID, bucket string, q state.ObjectsQuery) (state.ObjectsPage, error)
	// Put stores an object. When it returns, the object is durable.
	Put(ctx context.Context, a state.AccountID, bucket string, r objects.PutRequest) (state.Object, error)
	// SetVersioning enables or suspends versioning of a bucket.
	SetVersioning(ctx context.Context, a state.AccountID, bucket string, to state.Versioning) error
	// Versions returns a page of the versions and delete markers of a bucket.
	Versions(ctx context.Context, a state.AccountID, bucket string, q state.VersionsQuery) (state.VersionsPage, error)
	// Object returns the version of a key with an id, or the newest version if id is empty, by a
	// linearizable read. The result may be a delete marker. Errors: state.ErrNoBucket,
	// state.ErrNoKey, state.ErrNoVersion.
	Object(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID) (state.Object, error)
	// PartSums returns the checksums of an object's parts, or nil if none are stored.
	PartSums(ctx context.Context, a state.AccountID, bucket string, o *state.Object) (*state.PartSums, error)
	// Open opens the content of an object for reading.
	Open(ctx context.Context, a state.AccountID, o *state.Object) (io.ReadSeekCloser, error)
	// Bao returns a Bao encoding of an object: a slice, or the outboard encoding if slice is nil.
	Bao(ctx context.Context, a state.AccountID, o *state.Object, slice *objects.Slice) (*objects.Encoding, error)
	// Delete deletes an object, or permanently the version with the id id. A missing object is no
	// error, except in two cases: the condition c requires it, or the bucket has no versioning
	// and id is not the id of its only version (state.ErrNoVersion).
	Delete(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID, c state.Condition) (objects.Deleted, error)
	// DeleteMany deletes up to state.MaxDeleteKeys objects and versions in one change.
	DeleteMany(ctx context.Context, a state.AccountID, bucket string, all []objects.Doomed) ([]objects.Deleted, error)
	// Copy creates an object with the content of another object.
	Copy(ctx context.Context, a state.AccountID, bucket string, r objects.CopyRequest) (state.Object, error)
	// SetTags replaces the tags of the version with an id, or of the current version if id is
	// empty.
	SetTags(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID, tags []state.Tag) error
	// CreateUpload starts a multipart upload and returns its id.
	CreateUpload(ctx context.Context, a state.AccountID, bucket string, r objects.UploadRequest) (state.UploadID, error)
	// PutPart stores a part of an upload. It replaces an earlier part with the same number.
	PutPart(ctx context.Context, a state.AccountID, bucket string, r objects.PartRequest) (state.Part, error)
	// CopyPart stores a part with content of an existing object.
	CopyPart(ctx context.Context, a state.AccountID, bucket string, r objects.PartCopyRequest) (state.Part, error)
	// Complete creates an object from the parts of an upload. A repeated request with the same
	// parts returns the same result.
	Complete(ctx context.Context, a state.AccountID, bucket string, r objects.CompleteRequest) (state.Object, error)
	// Abort ends an upload and deletes its parts.
	Abort(ctx context.Context, a state.AccountID, bucket, key string, id state.UploadID) error
	// Upload returns an upload, or state.ErrNoUpload.
	Upload(ctx context.Context, a state.AccountID, bucket, key string, id state.UploadID) (state.Upload, error)
	// Uploads returns a page of the open uploads of a bucket.
	Uploads(ctx context.Context, a state.AccountID, bucket string, q state.UploadsQuery) (state.UploadsPage, error)
	// Parts returns up to limit parts of an upload whose number is above after. more is true if
	// there are further parts.
	Parts(ctx context.Context, a state.AccountID, bucket, key string, id state.UploadID, after, limit int) (parts []state.Part, more bool, err error)
}

// Accounts authenticates requests and manages the shares of buckets.
type Accounts interface {
	// AuthenticateS3 returns the principal of a bearer token, which may be that of a share, by a
	// linearizable read, or state.ErrUnauthorized.
	AuthenticateS3(ctx context.Context, token string) (accounts.Principal, error)
	// RecognizeS3 works like AuthenticateS3 with the local state, which may be stale.
	RecognizeS3(token string) (accounts.Principal, error)
	// S3Key returns the secret and the principal of an access key, or state.ErrUnauthorized
	// for an unknown, revoked or expired one.
	S3Key(ctx context.Context, accessKeyID string) (secret string, who accounts.Principal, err error)
	// RecognizeS3Key works like S3Key with the local state, which may be stale.
	RecognizeS3Key(accessKeyID string) (secret string, who accounts.Principal, err error)
	// Still returns nil if the key or session of a principal is still valid in the local state,
	// and state.ErrUnauthorized if it is not.
	Still(who accounts.Principal) error
	// Losses returns a subscription to keys and sessions that are removed from the local state.
	Losses() *accounts.Losses
	// Used records that a request was signed with the secret of an access key. who is the
	// principal that S3Key returned.
	Used(who accounts.Principal)
	// CreateShare adds a share to a bucket and returns it with its secrets. A repeated identical
	// request returns the same share. Errors: state.ErrInvalid, state.ErrNoBucket,
	// state.ErrExists, state.ErrTooLarge.
	CreateShare(ctx context.Context, a state.AccountID, r accounts.ShareRequest) (accounts.Share, error)
	// Shares returns a page of the shares of a bucket without secrets, beginning after the
	// position after.
	Shares(ctx context.Context, a state.AccountID, bucket string, after state.SharePlace, limit int) (accounts.SharePage, error)
	// RevokeShare revokes a share. When it returns, no node accepts the share. Errors:
	// state.ErrNoBucket, state.ErrNotFound.
	RevokeShare(ctx context.Context, a state.AccountID, bucket string, id state.ShareID) error
}

// Defaults of Options.
const (
	DefaultRegion    = "us-east-1"
	DefaultMaxObject = 5 << 30   // in bytes, as in Amazon S3
	DefaultMinPart   = 5_000_000 // in bytes; both 5 MB and 5 MiB are enough
)

// Options configure the gateway. Objects, Accounts and Logger are required.
type Options struct {
	Objects  Objects
	Accounts Accounts
	// Region is the region that the gateway reports for all buckets. Requests may be signed for any
	// region. Empty means DefaultRegion.
	Region string
	// Domain is the host name whose subdomains are buckets: for s3.example.org,
	// photos.s3.example.org is the bucket photos. Empty means that only the path names a bucket.
	Domain string
	// MaxObject is the maximum size of a body, and MinPart the minimum size of a part except the
	// last, in bytes. 0 means the defaults. Objects enforces MinPart; here it is only for the text of
	// the error.
	MaxObject, MinPart int64
	// PresignedV2 enables presigned URLs of signature version 2.
	PresignedV2 bool
	// Limits has the rates of accounts and addresses. nil means no limits.
	Limits *web.Limits
	// Origins are the web origins whose scripts may use the gateway.
	Origins []string
	// Health answers GET /healthz and /readyz without credentials; nil: no such paths.
	Health web.Health
	// Addresses returns the URLs of the other APIs of this node, which the gateway tells at
	// web.AddressesPath without credentials; nil: no such path.
	Addresses func(host, scheme string) web.Addresses
	Now       func() time.Time // nil: time.Now
	Version   string
	Logger    *slog.Logger
	Metrics   *web.Metrics // nil: no metrics
}

// caseTimeout bounds each call of Objects and Accounts that transfers no content, so that a node
// without a majority answers 503 before the client gives up.
const caseTimeout = 7 * time.Second

// piecesTimeout bounds UploadPartCopy, which copies up to Options.MaxObject bytes.
const piecesTimeout = 15 * time.Minute

type surface struct {
	objects   Objects
	accounts  Accounts
	region    string
	domain    string // lower case with a leading dot; empty: none
	maxObject int64
	minPart   int64
	limits    *web.Limits
	origins   []string // Options.Origins
	version2  bool     // presigned URLs of signature version 2 are accepted
	now       func() time.Time
	table     map[rowKey]*operation
	subs      map[string]bool // sub-resources of table
	stall     time.Duration
	probes    web.Handler // health checks; nil: none
	addresses web.Handler // of the other APIs; nil: none
	running   *running
}

// New returns the handler of the gateway. It returns an error if a required option is missing.
func New(o Options) (http.Handler, error) { return build(o, web.StallTimeout) }

func build(o Options, stall time.Duration) (http.Handler, error) {
	if o.Objects == nil || o.Accounts == nil || o.Logger == nil {
		return nil, errors.New("s3: Objects, Accounts and Logger are required")
	}
	s := &surface{
		objects: o.Objects, accounts: o.Accounts, region: o.Region, maxObject: o.MaxObject, minPart: o.MinPart,
		limits: o.Limits, origins: o.Origins, now: o.Now, stall: stall, probes: probes(o.Health, o.Version), version2: o.PresignedV2,
		running: &running{accounts: o.Accounts},
	}
	if s.region == "" {
		s.region = DefaultRegion
	}
	if o.Domain != "" {
		s.domain = "." + strings.ToLower(strings.Trim(o.Domain, "."))
	}
	if s.maxObject <= 0 {
		s.maxObject = DefaultMaxObject
	}
	if s.minPart <= 0 {
		s.minPart = DefaultMinPart
	}
	if s.now == nil {
		s.now = time.Now
	}
	if o.Addresses != nil {
		s.addresses = web.TellAddresses(o.Addresses, o.Limits)
	}
	var err error
	if s.table, err = tableOf(s.operations()); err != nil {
		return nil, err
	}
	s.subs = map[string]bool{}
	for key := range s.table {
		s.subs[key.sub] = true
	}
	server := "holdfast"
	if o.Version != "" {
		server += "/" + o.Version
	}
	wrapped := web.Wrap(web.Options{Name: "s3", Server: server, Fail: s.fail, Path: s.logged, Spell: spell, Logger: o.Logger, Metrics: o.Metrics}, s.serve)
	return web.Attended(stall, wrapped), nil
}

// request is the state of one request while it is served.
type request struct {
	*http.Request
	target
	began  time.Time // when the request began, before its authentication
	query  query
	caller caller
	who    accounts.Principal
	ruled  bool            // a script can read the answer only if a CORS rule of the bucket allows it
	spent  state.AccountID // account whose rate was charged before authentication; empty: none
	form   *form           // upload form; nil: the request is no form
	held   *web.Held       // memory of the account; nil before authentication
	run    *run            // entry in running; nil before the body is read
	part   *state.PartSums // checksums of the object's parts, if the answer needs that of one part; else nil
}

// account returns the account of the caller.
func (r *request) account() state.AccountID { return r.who.Account }

// soon returns a context of the request that ends after caseTimeout.
func (r *request) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), caseTimeout)
}

// serve checks the rate of the address, the credentials, the rate of the account, the operation
// and the permission, in this order, and calls the operation. It reads no body before, so a
// caller without permission gets 403 instead of 100 Continue. The exception is a form that
// contains its own credentials, which is read up to its file.
func (s *surface) serve(w http.ResponseWriter, plain *http.Request) error {
	w.Header().Set(requestIDHeader, w.Header().Get(web.RequestIDHeader))
	if s.probes != nil && s.isProbe(plain) {
		return s.probes(w, plain)
	}
	s.admit(w.Header(), plain)
	if err := s.limits.Address(plain); err != nil {
		return err
	}
	if s.asksAddresses(plain) {
		return s.addresses(w, plain)
	}
	r := &request{Request: plain, began: s.now()}
	var err error
	if r.target, err = s.targetOf(plain); err != nil {
		return err
	}
	if r.query, err = parseQuery(plain.URL.RawQuery); err != nil {
		return err
	}
	if isPreflight(plain) {
		return s.preflight(w, r)
	}
	if err := refuseWorker(plain.Header); err != nil {
		return err
	}
	r.ruled = plain.Header.Get("Origin") != "" && r.level != levelService && w.Header().Get(allowOrigin) == ""
	if err := s.authenticate(w, r); err != nil {
		return err
	}
	// Authentication has read a linearizable view. Reads of this request need no newer one.
	ctx := objects.WithAuthCheck(objects.Seen(plain.Context(), r.who.Index), func(ctx context.Context) error {
		return s.judgeAgain(ctx, r)
	})
	ctx = state.WithActor(ctx, s.limits.Actor(plain, &r.who))
	switch {
	case r.who.KeyID != "":
		ctx = state.As(ctx, r.who.KeyID)
	case r.who.Session != "":
		ctx = state.AsSession(ctx, r.who.Session)
	}
	r.Request = plain.WithContext(ctx)
	s.share(w.Header(), r)
	if r.spent == "" || r.spent != r.account() {
		if err := s.limits.Account(r.account(), nil); err != nil {
			return err
		}
	}
	leave, err := s.limits.Enter(r.Context(), r.account())
	if err != nil {
		return fmt.Errorf("wait for other requests of the account: %w", err)
	}
	defer leave()
	r.held = s.limits.Hold(r.account())
	defer r.held.Release()
	defer func() {
		s.running.leave(r.run)
		r.run.part(w.Header())
	}()
	op, err := s.find(r)
	if err != nil {
		return err
	}
	web.Operation(w, op.name)
	if !op.permitted(r) {
		return errorf(AccessDenied, "the token does not permit %s", op.name)
	}
	if err := r.check(s); err != nil {
		return err
	}
	if err := op.serve(w, r); err != nil {
		if why := r.run.refused(); why != nil {
			err = why // the refusal explains any later error
		}
		return fmt.Errorf("%s: %w", op.name, err)
	}
	return nil
}

// requestIDHeader is the answer header with the id of the request, which is also the element
// RequestId of an error.
const requestIDHeader = "X-Amz-Request-Id"

// logged returns the part of a path that may be logged. It omits keys, because they are data of
// the users.
func (s *surface) logged(r *http.Request) string {
	t, err := s.targetOf(r)
	switch {
	case err != nil:
		return "?"
	case t.level == levelObject:
		return "/" + t.bucket + "/…"
	}
	return "/" + t.bucket
}
