package accounts

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// shareScope is the scope in the token of a share. It is not one of state.Scopes, because the
// limits are in the record of the share.
const shareScope = "share"

// ShareRequest describes a share to create.
type ShareRequest struct {
	ID       state.ShareID
	Bucket   string
	Prefixes []string
	Read     bool
	Write    bool
	Delete   bool
	Name     string
	Expires  time.Time // rounded up to whole seconds; zero means never
}

// Share is a share with all that is shown of it. In lists, Token and SecretAccessKey are empty.
// Logs and formatted text never contain the two.
type Share struct {
	state.Share
	Token           string // Bearer value at the object gateway
	AccessKeyID     string // id for S3 signatures; it is no secret
	SecretAccessKey string
	Used            time.Time // time of last use with one-minute resolution; zero if no node has reported a use
}

// String returns a text with the id of the share, and without its secrets.
func (s Share) String() string { return "share " + string(s.ID) }

// GoString returns the same as String, so that %#v reveals no secret either.
func (s Share) GoString() string { return s.String() }

// LogValue returns the id of the share, so that log lines contain no secret.
func (s Share) LogValue() slog.Value { return slog.StringValue(string(s.ID)) }

// MayRead returns whether a principal may read the object with a key in a bucket of its account:
// a share must cover the key, and any other principal must have the scope to read.
func (p *Principal) MayRead(bucket, objectKey string) bool {
	if p.Share != nil {
		return p.Share.Read && p.Share.Bucket == bucket && p.Share.Covers(objectKey)
	}
	return p.May(state.ScopeRead)
}

// MayList returns whether a principal may list all keys with a prefix in a bucket of its account:
// a share must cover all of them, and any other principal must have the scope to read.
func (p *Principal) MayList(bucket, prefix string) bool {
	if p.Share != nil {
		return p.Share.Read && p.Share.Bucket == bucket && p.Share.CoversList(prefix)
	}
	return p.May(state.ScopeRead)
}

// MayShareUntil returns whether a principal may create a share that ends at the time end; the
// zero time means never. A share must not outlive the API key with which it is created.
func (p *Principal) MayShareUntil(end time.Time) bool {
	return p.Expires == 0 || !end.IsZero() && endOfShare(end) <= p.Expires
}

// endOfShare rounds the end of a share up to whole seconds.
func endOfShare(end time.Time) state.Millis {
	return state.Millis(end.Add(time.Second-1).Unix() * 1000)
}

// NewShareID returns a random id for a share.
func NewShareID() state.ShareID {
	random := make([]byte, state.ShareIDLen/2)
	_, _ = rand.Read(random) // never fails, see crypto/rand
	return state.ShareID(hex.EncodeToString(random))
}

// CreateShare adds a share to a bucket of an account and returns it with its secrets. If an equal
// share with the id exists, it returns that share, after it has recorded in the audit log that
// the share is shown.
//
// Errors: state.ErrInvalid; state.ErrNoBucket; state.ErrExists if the id belongs to a different
// share; state.ErrTooLarge if the account has state.MaxShares shares that have not expired;
// state.ErrUnavailable without a majority, and below state.ShareLevel.
func (a *Accounts) CreateShare(ctx context.Context, account state.AccountID, r ShareRequest) (Share, error) {
	now := a.now()
	s := state.Share{
		ID: r.ID, Account: account, Bucket: r.Bucket, Key: state.KeyID(a.newID()), Name: r.Name, Prefixes: slices.Clone(r.Prefixes),
		Read: r.Read, Write: r.Write, Delete: r.Delete, Created: state.MillisOf(now),
	}
	slices.Sort(s.Prefixes)
	s.Prefixes = slices.Compact(s.Prefixes)
	if !r.Expires.IsZero() {
		if !r.Expires.After(now) || r.Expires.Sub(now) > maxTTL {
			return Share{}, state.Errorf(state.CodeInvalid, "the share expires in the past or more than %s from now", maxTTL)
		}
		s.Expires = endOfShare(r.Expires)
	}
	if err := s.Check(); err != nil {
		return Share{}, err
	}
	shown, err := a.createShare(ctx, &s)
	if err != nil {
		return Share{}, fmt.Errorf("create share: %w", err)
	}
	return shown, nil
}

// createShare adds a checked share and returns it with its secrets.
func (a *Accounts) createShare(ctx context.Context, s *state.Share) (Share, error) {
	if err := a.Fits(); err != nil { // else there would be a share that nobody can be shown
		return Share{}, err
	}
	b, err := a.sharedBucket(ctx, s.Account, s.Bucket)
	if err != nil {
		return Share{}, err
	}
	s.Born = b.Born
	expired, _, _ := a.agreed() // 0 while nobody knows
	if _, err := a.state.Propose(ctx, state.ByAsker(ctx, &state.CreateShare{Share: *s, Expired: expired})); err != nil {
		return Share{}, err
	}
	shown, err := a.shownShare(ctx, &b, s.ID)
	if err != nil {
		return Share{}, err
	}
	if shown.Key != s.Key { // it was there before
		_, err = a.state.Propose(ctx, &state.NoteKeyShown{ID: shown.Key})
		return shown, err
	}
	a.log.InfoContext(ctx, "share created", "account", s.Account, "bucket", s.Bucket, "share", s.ID, "key", s.Key,
		"read", s.Read, "write", s.Write, "delete", s.Delete, "expires", expiry(s.Expires))
	return shown, nil
}

// sharedBucket returns a bucket, or state.ErrNoBucket. Below state.ShareLevel it returns
// state.ErrUnavailable.
func (a *Accounts) sharedBucket(ctx context.Context, account state.AccountID, name string) (state.Bucket, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return state.Bucket{}, err
	}
	defer release()
	level, err := view.FeatureLevel()
	if err != nil {
		return state.Bucket{}, err
	}
	if level < state.ShareLevel {
		return state.Bucket{}, state.Errorf(state.CodeUnavailable,
			"shares need feature level %d and the cluster has %d: not all members run a release that knows shares", state.ShareLevel, level)
	}
	return view.Bucket(account, name)
}

// shownShare returns a share with its secrets, but writes no row of the audit log.
func (a *Accounts) shownShare(ctx context.Context, b *state.Bucket, id state.ShareID) (Share, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return Share{}, err
	}
	defer release()
	s, err := view.Share(b, id)
	if err != nil {
		return Share{}, err
	}
	generation, err := view.SignedBy(s.Key)
	if err != nil {
		return Share{}, err
	}
	sign, err := a.mustSignerIn(view, generation)
	if err != nil {
		return Share{}, err
	}
	shown := Share{Share: s}
	if shown.Token, err = sign.sign(claimsOfShare(&s, generation)); err != nil {
		return Share{}, err
	}
	shown.AccessKeyID, shown.SecretAccessKey = sign.s3Pair(s.Key)
	shown.Used, err = lastUse(view, s.Key)
	return shown, err
}

// claimsOfShare returns the claims of a share's token. Their subject is the share and not the
// owner's e-mail address, because the token is given to other people.
func claimsOfShare(s *state.Share, generation uint64) claims {
	return claims{
		Subject: string(s.ID), Scope: shareScope, ID: string(s.Key),
		Issued: seconds(s.Created), Expires: seconds(s.Expires), generation: generation,
	}
}

// SharePage is a page of shares.
type SharePage struct {
	Shares []Share // without secrets
	More   bool    // there are shares after the last
}

// Shares returns a page of the shares of an account, including expired ones, in the order of
// state.SharesQuery and without their secrets. If bucket is not empty, it returns only shares of
// that bucket.
//
// Errors: state.ErrNoBucket; state.ErrUnavailable without a majority.
func (a *Accounts) Shares(ctx context.Context, account state.AccountID, bucket string, after state.SharePlace, limit int) (SharePage, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return SharePage{}, fmt.Errorf("list shares: %w", err)
	}
	defer release()
	q := state.SharesQuery{Account: account, After: after, Limit: limit}
	if bucket != "" {
		b, err := view.Bucket(account, bucket)
		if err != nil {
			return SharePage{}, fmt.Errorf("list shares: %w", err)
		}
		q.Bucket = &b
	}
	found, more, err := view.Shares(q)
	if err != nil {
		return SharePage{}, fmt.Errorf("list shares: %w", err)
	}
	page := SharePage{Shares: make([]Share, len(found)), More: more}
	for i := range found {
		page.Shares[i].Share = found[i]
		if page.Shares[i].Used, err = lastUse(view, found[i].Key); err != nil {
			return SharePage{}, fmt.Errorf("list shares: %w", err)
		}
	}
	return page, nil
}

// OwnedShare is a share with the e-mail address of its account.
type OwnedShare struct {
	Share
	Email string
}

// AllShares returns the shares of all accounts, including expired ones, without their secrets. It
// returns state.ErrUnavailable without a majority.
func (a *Accounts) AllShares(ctx context.Context) ([]OwnedShare, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return nil, fmt.Errorf("list shares: %w", err)
	}
	defer release()
	found, err := view.AllShares()
	if err != nil {
		return nil, fmt.Errorf("list shares: %w", err)
	}
	emails := map[state.AccountID]string{}
	all := make([]OwnedShare, len(found))
	for i := range found {
		s := &all[i]
		s.Share.Share = found[i]
		if _, known := emails[s.Account]; !known {
			owner, err := view.Account(s.Account)
			if err != nil {
				return nil, fmt.Errorf("list shares: account %s: %w", s.Account, err)
			}
			emails[s.Account] = owner.Email
		}
		s.Email = emails[s.Account]
		if s.Used, err = lastUse(view, s.Key); err != nil {
			return nil, fmt.Errorf("list shares: %w", err)
		}
	}
	return all, nil
}

// ShareOf returns a share of a bucket without its secrets.
//
// Errors: state.ErrNoBucket; state.ErrNotFound; state.ErrUnavailable without a majority.
func (a *Accounts) ShareOf(ctx context.Context, account state.AccountID, bucket string, id state.ShareID) (Share, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return Share{}, fmt.Errorf("find share: %w", err)
	}
	defer release()
	b, err := view.Bucket(account, bucket)
	if err != nil {
		return Share{}, fmt.Errorf("find share: %w", err)
	}
	if !state.ValidShareID(id) {
		return Share{}, state.Errorf(state.CodeNotFound, "no such share")
	}
	s, err := view.Share(&b, id)
	if err != nil {
		return Share{}, fmt.Errorf("find share: %w", err)
	}
	return Share{Share: s}, nil
}

// RevokeShare removes a share of an account. After it has returned, no node accepts the share's
// key.
//
// Errors: state.ErrNoBucket; state.ErrNotFound; state.ErrUnavailable without a majority.
func (a *Accounts) RevokeShare(ctx context.Context, account state.AccountID, bucket string, id state.ShareID) error {
	b, err := a.sharedBucket(ctx, account, bucket)
	if err == nil && !state.ValidShareID(id) {
		err = state.Errorf(state.CodeNotFound, "no such share")
	}
	if err == nil {
		_, err = a.state.Propose(ctx, state.ByAsker(ctx, &state.RevokeShare{Account: account, Bucket: b.Name, Born: b.Born, ID: id}))
	}
	if err != nil {
		return fmt.Errorf("revoke share: %w", err)
	}
	a.log.InfoContext(ctx, "share revoked", "account", account, "bucket", bucket, "share", id)
	return nil
}

// AuthenticateS3 is Authenticate for the object gateway, which also accepts the tokens of shares.
// For such a token, Principal.Share has the limits and Scopes is empty.
func (a *Accounts) AuthenticateS3(ctx context.Context, token string) (Principal, error) {
	return a.authenticate(ctx, token, a.judgeS3)
}

// RecognizeS3 is Recognize for the tokens that AuthenticateS3 accepts.
func (a *Accounts) RecognizeS3(token string) (Principal, error) { return a.recognize(token, a.judgeS3) }

// judgeS3 returns the principal of an API key or of a share with verified claims, according to a
// view.
func (a *Accounts) judgeS3(view state.View, c claims) (Principal, error) {
	if c.Scope != shareScope {
		return a.judge(view, c)
	}
	s, err := a.liveShare(view, state.KeyID(c.ID))
	if err != nil {
		return Principal{}, err
	}
	generation, err := view.SignedBy(s.Key)
	if err != nil {
		return Principal{}, refused(err)
	}
	if c != claimsOfShare(&s, generation) {
		return Principal{}, state.ErrUnauthorized
	}
	return principalOfShare(&s, view.Index()), nil
}

// liveShare returns the share with a key, if it has not expired and its owner exists and is not
// disabled; otherwise state.ErrUnauthorized.
func (a *Accounts) liveShare(view state.View, id state.KeyID) (state.Share, error) {
	s, err := view.ShareByKey(id)
	if err == nil {
		_, err = view.Account(s.Account)
	}
	if err != nil {
		return state.Share{}, refused(err)
	}
	if s.Expired(state.MillisOf(a.now())) {
		return state.Share{}, state.ErrUnauthorized
	}
	if err := notDisabled(view, s.Account); err != nil {
		return state.Share{}, err
	}
	return s, nil
}

// principalOfShare returns the principal of a share. It has no scopes, so that code that does not
// know shares permits nothing. It has no e-mail address, because answers may contain the address
// of the principal.
func principalOfShare(s *state.Share, index uint64) Principal {
	return Principal{Account: s.Account, KeyID: s.Key, Share: s, Index: index}
}

// liveKey returns the principal of the API key or the share with an id, if it has not expired and
// its account is not disabled; otherwise state.ErrUnauthorized.
func (a *Accounts) liveKey(view state.View, id state.KeyID) (Principal, error) {
	key, account, err := ownedKey(view, id)
	if errors.Is(err, state.ErrNotFound) {
		s, err := a.liveShare(view, id)
		if err != nil {
			return Principal{}, err
		}
		return principalOfShare(&s, view.Index()), nil
	}
	if err != nil {
		return Principal{}, refused(err)
	}
	if a.over(&key) {
		return Principal{}, state.ErrUnauthorized
	}
	if err := notDisabled(view, account.ID); err != nil {
		return Principal{}, err
	}
	return principalOf(&key, &account, view.Index()), nil
}
