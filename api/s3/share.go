package s3

import (
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// shareable maps the operations that the key of a share may use to their conditions. All other
// operations are rejected, so a new operation must be added here before shares can use it. Apply
// of the state machine checks the limits of changes again.
var shareable = map[string]func(r *request, s *state.Share) bool{
	"GetObject":           readsKey,
	"HeadObject":          readsKey,
	"GetObjectBao":        readsKey,
	"GetObjectAttributes": readsKey,
	"ListObjects":         listsPrefix,
	"ListObjectsV2":       listsPrefix,

	"PutObject":               writesKey,
	"CopyObject":              copiesKey,
	"CreateMultipartUpload":   writesKey,
	"UploadPart":              writesKey,
	"UploadPartCopy":          copiesKey,
	"CompleteMultipartUpload": writesKey,
	"AbortMultipartUpload":    writesKey,
	"ListParts":               writesKey,

	"DeleteObject":  func(r *request, s *state.Share) bool { return s.Delete && onKey(r, s) },
	"DeleteObjects": func(r *request, s *state.Share) bool { return s.Delete && r.bucket == s.Bucket }, // mayDelete checks each key
}

// permitted reports whether the caller of a request may use the operation.
func (o *operation) permitted(r *request) bool {
	share := r.who.Share
	if share == nil {
		return o.need.granted(&r.who)
	}
	allows := shareable[o.name]
	return allows != nil && allows(r, share)
}

// onKey reports whether a share covers the key of a request. It does not cover a request for a
// specific version, because old versions may be from before the share.
func onKey(r *request, s *state.Share) bool {
	return r.level == levelObject && r.bucket == s.Bucket && s.Covers(r.key) && !r.query.has("versionId")
}

func readsKey(r *request, s *state.Share) bool { return s.Read && onKey(r, s) }

func writesKey(r *request, s *state.Share) bool { return s.Write && onKey(r, s) }

// copiesKey reports whether a share permits a copy: it must cover the source and the target. The
// source is parsed by the same function as in the operation.
func copiesKey(r *request, s *state.Share) bool {
	src, err := sourceOf(r.Header)
	return err == nil && s.Read && src.bucket == s.Bucket && src.version == "" && s.Covers(src.key) && writesKey(r, s)
}

func listsPrefix(r *request, s *state.Share) bool {
	return s.Read && r.bucket == s.Bucket && s.CoversList(r.query.get("prefix"))
}

// mayDelete reports whether a caller who may use DeleteObjects may delete this key or version.
func (r *request) mayDelete(key, version string) bool {
	return r.who.Share == nil || version == "" && r.who.Share.Covers(key)
}

// maxShare is the maximum size of the body of CreateShare in bytes. It is enough for all prefixes
// of 1,024 bytes even if JSON escapes each byte.
const maxShare = 64 << 10

// sharesBody is a page of the shares of a bucket, in JSON.
type sharesBody struct {
	Shares []web.Share `json:"shares"`
	Next   string      `json:"next,omitempty"` // value of the parameter after for the next page
}

// createShare answers PUT /{bucket}?share={id} with the new share and its secrets.
func (s *surface) createShare(w http.ResponseWriter, r *request) error {
	body, err := s.readSmall(w, r, maxShare)
	if err != nil {
		return err
	}
	asked, err := readShare(body)
	if err != nil {
		return errorf(InvalidRequest, "%s", err)
	}
	if asked.Read && !r.who.May(state.ScopeRead) {
		return errorf(AccessDenied, "the token does not permit to read, so it makes no share that reads")
	}
	if !r.who.MayShareUntil(asked.Expires) {
		return errorf(AccessDenied, "the API key ends at %s, so a share that it makes needs an expires_at that is not later", r.who.Expires.Time().UTC().Format(time.RFC3339))
	}
	asked.ID, asked.Bucket = state.ShareID(r.query.get("share")), r.bucket
	ctx, cancel := r.soon()
	defer cancel()
	share, err := s.accounts.CreateShare(ctx, r.account(), asked)
	if errors.Is(err, state.ErrExists) {
		return errorf(ShareAlreadyExists, "the bucket has a share of this id that grants something else")
	}
	if err != nil {
		return tooMany(err, TooManyShares, "you have attempted to create more shares than allowed: %d", state.MaxShares)
	}
	return web.JSON(w, http.StatusOK, web.ShareOf(&share, time.RFC3339))
}

// readShare parses the JSON body of createShare.
func readShare(body []byte) (asked accounts.ShareRequest, err error) {
	f, err := web.Object("the body", body)
	if err == nil {
		err = f.Only(web.ShareFields...)
	}
	if err != nil {
		return asked, err //nolint:wrapcheck // for people
	}
	return web.ReadShare(f) //nolint:wrapcheck // for people
}

// deleteShare answers DELETE /{bucket}?share={id}. When it has answered, no node accepts the
// share.
func (s *surface) deleteShare(w http.ResponseWriter, r *request) error {
	ctx, cancel := r.soon()
	defer cancel()
	err := s.accounts.RevokeShare(ctx, r.account(), r.bucket, state.ShareID(r.query.get("share")))
	if errors.Is(err, state.ErrNotFound) {
		return errorf(NoSuchShare, "the bucket has no share of this id")
	}
	if err != nil {
		return err
	}
	return web.Empty(w, http.StatusNoContent)
}

// listShares answers GET /{bucket}?shares with a page of shares without secrets, ordered by id.
func (s *surface) listShares(w http.ResponseWriter, r *request) error {
	after := state.ShareID(r.query.get("after"))
	if after != "" && !state.ValidShareID(after) {
		return errorf(InvalidArgument, "after is not the next of an earlier page")
	}
	ctx, cancel := r.soon()
	defer cancel()
	page, err := s.accounts.Shares(ctx, r.account(), r.bucket, state.SharePlace{ID: after}, state.MaxListLimit)
	if err != nil {
		return err
	}
	body := sharesBody{Shares: []web.Share{}}
	for i := range page.Shares {
		body.Shares = append(body.Shares, web.ShareOf(&page.Shares[i], time.RFC3339))
	}
	if page.More {
		body.Next = string(body.Shares[len(body.Shares)-1].ID)
	}
	return web.JSON(w, http.StatusOK, body)
}
