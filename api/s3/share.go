package s3

import (
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// shareable has the operations that the key of a share may use, and the condition of each. A share
// is refused every operation without an entry, so a new operation is refused until it is added here.
// Apply checks the limits of changes again.
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

// permitted returns whether the caller of a request may use the operation.
func (o *operation) permitted(r *request) bool {
	share := r.who.Share
	if share == nil {
		return o.need.granted(&r.who)
	}
	allows := shareable[o.name]
	return allows != nil && allows(r, share)
}

// onKey returns whether a share covers the key of a request. A share covers no version that a
// request names, because old versions may be from before the share.
func onKey(r *request, s *state.Share) bool {
	return r.level == levelObject && r.bucket == s.Bucket && s.Covers(r.key) && !r.query.has("versionId")
}

func readsKey(r *request, s *state.Share) bool { return s.Read && onKey(r, s) }

func writesKey(r *request, s *state.Share) bool { return s.Write && onKey(r, s) }

// copiesKey checks the source too. The operation parses the same header by the same function.
func copiesKey(r *request, s *state.Share) bool {
	src, err := sourceOf(r.Header)
	return err == nil && s.Read && src.bucket == s.Bucket && src.version == "" && s.Covers(src.key) && writesKey(r, s)
}

func listsPrefix(r *request, s *state.Share) bool {
	return s.Read && r.bucket == s.Bucket && s.CoversList(r.query.get("prefix"))
}

// mayDelete returns whether the caller, who may use DeleteObjects, may delete a key or its version.
func (r *request) mayDelete(key, version string) bool {
	return r.who.Share == nil || version == "" && r.who.Share.Covers(key)
}

// maxShare is the maximum size of the body of CreateShare in bytes. Its prefixes of 1,024 bytes fit
// even if JSON escapes each byte.
const maxShare = 64 << 10

// sharesBody is a page of the shares of a bucket.
type sharesBody struct {
	Shares []web.Share `json:"shares"`
	Next   string      `json:"next,omitempty"`
}

// createShare answers PUT /{bucket}?share={id} with the share and its secrets.
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

// readShare parses the body of createShare.
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

// deleteShare answers DELETE /{bucket}?share={id}. After the answer, no node accepts the share.
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

// listShares answers GET /{bucket}?shares with a page of shares by their ids, without secrets.
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
