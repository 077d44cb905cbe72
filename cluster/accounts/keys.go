package accounts

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxTTL is the longest life of a key that can be requested.
const maxTTL = 100 * 365 * 24 * time.Hour

// Key is an API key as it is shown. Lists leave out the token and the secret, and logs and
// formatted text never contain them.
type Key struct {
	ID              state.KeyID // the id, which is the jti of the token
	Email           string      // e-mail address of the account
	Name            string
	Scope           string // permissions, separated by one space
	Token           string // Bearer value of both APIs
	AccessKeyID     string // id for S3 signatures; it is no secret
	SecretAccessKey string
	Created         time.Time
	Expires         time.Time // zero means never
	Used            time.Time // time of last use with one-minute resolution; zero if no node has reported a use
}

// String names the key without its secrets.
func (k Key) String() string { return "key " + string(k.ID) }

// GoString does the same as String, so that %#v reveals no secret either.
func (k Key) GoString() string { return k.String() }

// LogValue returns the key as a log line shows it.
func (k Key) LogValue() slog.Value { return slog.StringValue(string(k.ID)) }

// Principal is the account for which a token speaks, and what the token permits.
type Principal struct {
	Account state.AccountID
	Email   string
	KeyID   state.KeyID     // empty if the token is no API key
	Session state.SessionID // empty if the token is no session token
	Began   time.Time       // start of the session
	Expires state.Millis    // end of the API key; zero means never
	Scopes  []string
	Admin   bool // the account is an administrator, and the token is a session token
	// Share has the limits of the key of a share, which has no other permissions; nil: not a share.
	Share *state.Share
	// Index is the log index of the state in which the token is valid. The cluster had that
	// state at some moment after Authenticate was called.
	Index uint64
}

// May returns whether the token gives a permission, which is one of the state.Scope values.
func (p Principal) May(scope string) bool { return slices.Contains(p.Scopes, scope) }

// CreateKey adds an API key to the account with an e-mail address and shows the key. No scopes
// means all scopes. No ttl means that the key does not expire; a ttl is rounded up to whole
// seconds.
//
// Errors: state.ErrInvalid; state.ErrNotFound without such an account; state.ErrTooLarge if the
// account has state.MaxKeysPerUser keys that have not expired; state.ErrUnavailable without a
// majority.
func (a *Accounts) CreateKey(ctx context.Context, email, name string, scopes []string, ttl time.Duration) (Key, error) {
	scopes, err := normalScopes(scopes)
	if err != nil {
		return Key{}, err
	}
	if !utf8.ValidString(name) || utf8.RuneCountInString(name) > state.MaxNameRunes {
		return Key{}, state.Errorf(state.CodeInvalid, "the name of the key is longer than %d characters", state.MaxNameRunes)
	}
	if ttl < 0 || ttl > maxTTL {
		return Key{}, state.Errorf(state.CodeInvalid, "the life of the key is not between 0 and %s", maxTTL)
	}
	account, err := a.ByEmail(ctx, email)
	if err == nil {
		err = a.Fits() // else there would be a key that nobody can be shown
	}
	if err != nil {
		return Key{}, fmt.Errorf("create key: %w", err)
	}
	now := a.now()
	key := state.APIKey{ID: state.KeyID(a.newID()), Account: account.ID, Name: name, Scope: scopes, Created: state.MillisOf(now)}
	if ttl > 0 {
		key.Expires = state.Millis(now.Add(ttl+time.Second-1).Unix() * 1000)
	}
	expired, _, _ := a.agreed() // 0 while nobody knows
	if _, err := a.state.Propose(ctx, &state.CreateKey{Key: key, Expired: expired}); err != nil {
		return Key{}, fmt.Errorf("create key: %w", err)
	}
	a.log.InfoContext(ctx, "API key created", "account", account.ID, "email", account.Email, "key", key.ID,
		"name", key.Name, "scope", strings.Join(key.Scope, " "), "expires", expiry(key.Expires))
	return a.shown(ctx, key.ID) // the state says which key of the cluster signs it
}

// expiry returns the expiry of a key as log lines show it.
func expiry(end state.Millis) string {
	if end == 0 {
		return "never"
	}
	return end.Time().UTC().Format(time.RFC3339)
}

// normalScopes returns scopes in one order, each once.
func normalScopes(scopes []string) ([]string, error) {
	if len(scopes) == 0 {
		return []string{state.ScopeRead, state.ScopeWrite}, nil
	}
	known := state.Scopes()
	for _, s := range scopes {
		if !slices.Contains(known, s) {
			return nil, state.Errorf(state.CodeInvalid, "unknown scope %q: %s are known", s, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(known, func(s string) bool { return !slices.Contains(scopes, s) }), nil
}

// show returns a key with its secrets.
func (s *signer) show(key *state.APIKey, email string) (Key, error) {
	k := summary(key, email)
	var err error
	if k.Token, err = s.sign(claimsOf(key, email, s.generation)); err != nil {
		return Key{}, err
	}
	k.AccessKeyID, k.SecretAccessKey = s.s3Pair(key.ID)
	return k, nil
}

func summary(key *state.APIKey, email string) Key {
	k := Key{ID: key.ID, Email: email, Name: key.Name, Scope: strings.Join(key.Scope, " "), Created: key.Created.Time()}
	if key.Expires != 0 {
		k.Expires = key.Expires.Time()
	}
	return k
}

func lastUse(view state.View, id state.KeyID) (time.Time, error) {
	used, err := view.KeyUsed(id)
	if err != nil || used == 0 {
		return time.Time{}, err
	}
	return used.Time(), nil
}

// Keys returns the keys of the account with an e-mail address. If email is empty, it returns the keys of all
// accounts. The result includes expired keys, and has no tokens and key pairs.
func (a *Accounts) Keys(ctx context.Context, email string) ([]Key, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	defer release()
	var of state.AccountID
	emails := map[state.AccountID]string{}
	if email != "" {
		account, err := byEmail(view, email)
		if err != nil {
			return nil, fmt.Errorf("list keys: %w", err)
		}
		of = account.ID
	}
	found, err := view.Keys(of)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	keys := make([]Key, len(found))
	for i := range found {
		id := found[i].Account
		if _, known := emails[id]; !known {
			account, err := view.Account(id)
			if err != nil {
				return nil, fmt.Errorf("list keys: account %s: %w", id, err)
			}
			emails[id] = account.Email
		}
		keys[i] = summary(&found[i], emails[id])
		if keys[i].Used, err = lastUse(view, found[i].ID); err != nil {
			return nil, fmt.Errorf("list keys: %w", err)
		}
	}
	return keys, nil
}

// Key returns a key without its token and key pair, or state.ErrNotFound.
func (a *Accounts) Key(ctx context.Context, jti state.KeyID) (Key, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return Key{}, fmt.Errorf("find key: %w", err)
	}
	defer release()
	key, account, err := ownedKey(view, jti)
	if err != nil {
		return Key{}, fmt.Errorf("find key: %w", err)
	}
	found := summary(&key, account.Email)
	if found.Used, err = lastUse(view, jti); err != nil {
		return Key{}, fmt.Errorf("find key: %w", err)
	}
	return found, nil
}

// Show returns a key with its token and key pair, or state.ErrNotFound. The audit log says so
// before the key is returned.
func (a *Accounts) Show(ctx context.Context, jti state.KeyID) (Key, error) {
	key, err := a.shown(ctx, jti)
	if err != nil {
		return Key{}, err
	}
	view, release := a.state.LocalView()
	level, err := view.FeatureLevel()
	release()
	if err == nil && level >= state.AuditLevel {
		_, err = a.state.Propose(ctx, &state.NoteKeyShown{ID: jti})
	}
	if err != nil {
		return Key{}, fmt.Errorf("show key: %w", err)
	}
	return key, nil
}

// shown does the work of Show, but writes no row of the audit log.
func (a *Accounts) shown(ctx context.Context, jti state.KeyID) (Key, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return Key{}, fmt.Errorf("show key: %w", err)
	}
	defer release()
	key, account, err := ownedKey(view, jti)
	if err != nil {
		return Key{}, fmt.Errorf("show key: %w", err)
	}
	generation, err := view.SignedBy(jti)
	if err != nil {
		return Key{}, fmt.Errorf("show key: %w", err)
	}
	s, err := a.mustSignerIn(view, generation)
	if err != nil {
		return Key{}, fmt.Errorf("show key: %w", err)
	}
	shown, err := s.show(&key, account.Email)
	if err != nil {
		return Key{}, err
	}
	shown.Used, err = lastUse(view, jti)
	return shown, err
}

// Revoke ends a key. After Revoke has returned, no node accepts the key. It returns
// state.ErrNotFound if there is no such key.
func (a *Accounts) Revoke(ctx context.Context, jti state.KeyID) error {
	if jti == "" || len(jti) > state.MaxIDLen {
		return state.Errorf(state.CodeNotFound, "no such key")
	}
	whose := a.ownerHere(jti)
	if _, err := a.state.Propose(ctx, &state.RevokeKey{ID: jti}); err != nil {
		return fmt.Errorf("revoke key: %w", err)
	}
	a.log.InfoContext(ctx, "API key revoked", "account", whose.ID, "email", whose.Email, "key", jti)
	return nil
}

// ownerHere returns the account of a key for the log, from this node's own state. It returns
// the zero account if that state does not have the key yet.
func (a *Accounts) ownerHere(jti state.KeyID) state.Account {
	view, release := a.state.LocalView()
	defer release()
	_, account, err := ownedKey(view, jti)
	if err != nil {
		return state.Account{}
	}
	return account
}

// ownedKey returns a key and its account, or state.ErrNotFound if one of them does not exist.
func ownedKey(view state.View, jti state.KeyID) (state.APIKey, state.Account, error) {
	key, err := view.Key(jti)
	if err != nil {
		return state.APIKey{}, state.Account{}, err
	}
	account, err := view.Account(key.Account)
	if err != nil {
		return state.APIKey{}, state.Account{}, fmt.Errorf("account %s: %w", key.Account, err)
	}
	return key, account, nil
}

// Authenticate returns the principal of a token, which is an API key or a session token. It
// checks the signature first. So forged tokens cost no read of the cluster, except one read
// every askEvery for all tokens that name an unknown signing key. Then it reads the newest
// state of the cluster: the key or session must exist, match the token and not have ended.
//
// Errors: state.ErrUnauthorized with one text for every bad token; state.ErrUnavailable without
// a majority, because an old permission must not count as a present one.
func (a *Accounts) Authenticate(ctx context.Context, token string) (Principal, error) {
	return a.authenticate(ctx, token, a.judge)
}

// judging returns the principal of verified claims in a state.
type judging = func(state.View, claims) (Principal, error)

// authenticate does the work of Authenticate. judge returns the principal of a token that is no
// session token.
func (a *Accounts) authenticate(ctx context.Context, token string, judge judging) (Principal, error) {
	if token == "" || len(token) > MaxToken {
		return Principal{}, state.ErrUnauthorized
	}
	session, isSession := a.sessions.read(token)
	var c claims
	if !isSession {
		var err error
		if c, err = a.verify(ctx, token); err != nil {
			return Principal{}, err
		}
	}
	view, release, err := a.state.View(ctx)
	if err != nil {
		return Principal{}, fmt.Errorf("authenticate: %w", err)
	}
	defer release()
	if isSession {
		return a.noted(a.judgeSession(view, session))
	}
	return a.noted(judge(view, c))
}

// Recognize returns the principal of a token by the state of this node, without asking the
// cluster. The key may have been revoked a moment ago, or be too new to be known here. So
// callers use the result only for changes that are checked again, as state.ByKey is. Errors are
// those of Authenticate.
func (a *Accounts) Recognize(token string) (Principal, error) { return a.recognize(token, a.judge) }

// recognize does the work of Recognize with judge as in authenticate.
func (a *Accounts) recognize(token string, judge judging) (Principal, error) {
	if token == "" || len(token) > MaxToken {
		return Principal{}, state.ErrUnauthorized
	}
	view, release := a.state.LocalView()
	defer release()
	if session, ok := a.sessions.read(token); ok {
		return a.noted(a.judgeSession(view, session))
	}
	c, err := a.verifyIn(view, token)
	if err != nil {
		return Principal{}, err
	}
	return a.noted(judge(view, c))
}

// S3Key returns the secret of an access key id, of an API key or of a share, and its principal,
// from the newest state of the cluster. S3Key itself authenticates nobody: the caller checks
// the signature and then calls Used. Every well-formed id costs a read of the cluster, because
// the key may just have been created on another node. The rate limit of the client's address
// bounds these reads.
//
// Errors: state.ErrUnauthorized for an unknown id and for a revoked or expired key;
// state.ErrUnavailable without a majority.
func (a *Accounts) S3Key(ctx context.Context, accessKeyID string) (secret string, who Principal, err error) {
	id, ok := s3KeyID(accessKeyID)
	if !ok {
		return "", Principal{}, state.ErrUnauthorized
	}
	view, release, err := a.state.View(ctx)
	if err != nil {
		return "", Principal{}, fmt.Errorf("authenticate: %w", err)
	}
	defer release()
	return a.s3KeyIn(view, id)
}

// RecognizeS3Key does the same as S3Key with this node's own state. Like that of Recognize, its
// result must not be used to let a caller in.
func (a *Accounts) RecognizeS3Key(accessKeyID string) (secret string, who Principal, err error) {
	id, ok := s3KeyID(accessKeyID)
	if !ok {
		return "", Principal{}, state.ErrUnauthorized
	}
	view, release := a.state.LocalView()
	defer release()
	return a.s3KeyIn(view, id)
}

// s3KeyIn does the same as S3Key in a given view.
func (a *Accounts) s3KeyIn(view state.View, id state.KeyID) (secret string, who Principal, err error) {
	if who, err = a.liveKey(view, id); err != nil {
		return "", Principal{}, err
	}
	generation, err := view.SignedBy(id)
	if err != nil {
		return "", Principal{}, refused(err)
	}
	s, err := a.mustSignerIn(view, generation)
	if err != nil {
		return "", Principal{}, fmt.Errorf("authenticate: %w", err)
	}
	_, secret = s.s3Pair(id)
	return secret, who, nil
}

// Still returns nil if the principal of an earlier request is still valid, as far as this node
// knows. It checks only the key or the session, because the token or signature was checked
// before. Errors: state.ErrUnauthorized if the key or session was revoked or has ended, or if
// the account is gone or disabled.
func (a *Accounts) Still(who Principal) error {
	view, release := a.state.LocalView()
	defer release()
	if who.Session != "" {
		_, err := a.judgeSession(view, who.Session)
		return err
	}
	if who.KeyID == "" {
		return nil // of the local API
	}
	_, err := a.liveKey(view, who.KeyID)
	return err
}

// Used records that the principal returned by S3Key was let in.
func (a *Accounts) Used(who Principal) {
	a.uses.note(useOf{who.KeyID, who.Session}, state.MillisOf(a.now()))
	a.requests.count(who.Account)
}

// noted records that a principal was let in.
func (a *Accounts) noted(p Principal, err error) (Principal, error) {
	if err == nil {
		a.Used(p)
	}
	return p, err
}

// judge returns the principal of verified claims in a state.
func (a *Accounts) judge(view state.View, c claims) (Principal, error) {
	key, account, err := ownedKey(view, state.KeyID(c.ID))
	if err != nil {
		return Principal{}, refused(err)
	}
	generation, err := view.SignedBy(key.ID)
	if err != nil {
		return Principal{}, refused(err)
	}
	if c != claimsOf(&key, account.Email, generation) || a.over(&key) {
		return Principal{}, state.ErrUnauthorized
	}
	if err := notDisabled(view, account.ID); err != nil {
		return Principal{}, err
	}
	return principalOf(&key, &account, view.Index()), nil
}

// notDisabled returns state.ErrUnauthorized if an account is disabled.
func notDisabled(view state.View, account state.AccountID) error {
	since, err := view.Disabled(account)
	if err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	if since != 0 {
		return state.ErrUnauthorized
	}
	return nil
}

// over returns whether a key has expired.
func (a *Accounts) over(key *state.APIKey) bool { return key.Expired(state.MillisOf(a.now())) }

func principalOf(key *state.APIKey, account *state.Account, index uint64) Principal {
	return Principal{Account: account.ID, Email: account.Email, KeyID: key.ID, Scopes: key.Scope, Expires: key.Expires, Index: index}
}

// askEvery is the shortest interval at which the cluster is asked for unknown signing keys,
// because everybody can make up a token that names any signing key.
const askEvery = time.Second

// verify returns the claims of a token that the cluster signed. For a signing key that this
// node does not know, it asks the cluster, but not more often than every askEvery. Otherwise
// the state that this node has applied decides.
func (a *Accounts) verify(ctx context.Context, token string) (claims, error) {
	hash := sha256.Sum256([]byte(token))
	if c, ok := a.verified.Get(hash); ok {
		return c, nil
	}
	generation, ok := generationOf(token)
	if !ok {
		return claims{}, state.ErrUnauthorized
	}
	known := a.signers.Load()
	switch {
	case known == nil: // nothing was read yet
	case known.by[generation] != nil:
		return a.verifyIn(state.View{}, token)
	case generation < known.newest: // its last key was revoked, and it does not come back
		return claims{}, state.ErrUnauthorized
	default:
		local, release := a.state.LocalView()
		c, err := a.verifyIn(local, token)
		release()
		if !errors.Is(err, state.ErrUnauthorized) || a.signers.Load().by[generation] != nil || !a.mayAsk() {
			return c, err
		}
	}
	view, release, err := a.state.View(ctx)
	if err != nil {
		a.asked.Store(0) // nobody was told anything
		return claims{}, fmt.Errorf("authenticate: %w", err)
	}
	defer release()
	return a.verifyIn(view, token)
}

// mayAsk returns whether the cluster may be asked for signing keys now, and records that it is
// asked.
func (a *Accounts) mayAsk() bool {
	now, last := int64(state.MillisOf(a.now())), a.asked.Load()
	if last <= now && now-last < askEvery.Milliseconds() {
		return false
	}
	return a.asked.CompareAndSwap(last, now)
}

// verifyIn does the same as verify with a view. It reads the signing key from the view if the
// key is not open yet.
func (a *Accounts) verifyIn(view state.View, token string) (claims, error) {
	hash := sha256.Sum256([]byte(token))
	if c, ok := a.verified.Get(hash); ok {
		return c, nil
	}
	generation, ok := generationOf(token)
	if !ok {
		return claims{}, state.ErrUnauthorized
	}
	s, err := a.signerIn(view, generation)
	if err != nil {
		return claims{}, fmt.Errorf("authenticate: %w", err)
	}
	if s == nil {
		return claims{}, state.ErrUnauthorized
	}
	c, err := s.verify(token)
	if err != nil {
		return claims{}, state.ErrUnauthorized
	}
	a.verified.Put(hash, c)
	return c, nil
}

// signerIn returns the signing key of a generation and reads it from a view if it is not
// cached; nil if there is none. The key of a generation never changes.
func (a *Accounts) signerIn(view state.View, generation uint64) (*signer, error) {
	if known := a.signers.Load(); known != nil && known.by[generation] != nil {
		return known.by[generation], nil
	}
	known, err := a.open(view)
	if err != nil {
		return nil, err
	}
	return known.by[generation], nil
}

// mustSignerIn returns the signing key of a generation that has signed a stored key or share, as
// signerIn does. Without such a signing key it returns an error, because the state is damaged.
func (a *Accounts) mustSignerIn(view state.View, generation uint64) (*signer, error) {
	s, err := a.signerIn(view, generation)
	if err == nil && s == nil {
		err = fmt.Errorf("the state has no signing key of generation %d", generation)
	}
	return s, err
}

// Fits returns nil if the cluster's signing keys open with this node's secret. It uses the
// state that this node has applied. Errors: ErrSealed; state.ErrUnavailable if this node has no
// state yet.
func (a *Accounts) Fits() error {
	if a.signers.Load() != nil {
		return nil
	}
	view, release := a.state.LocalView()
	defer release()
	_, err := a.open(view)
	return err
}

// open reads the cluster's signing keys from a view.
func (a *Accounts) open(view state.View) (*signers, error) {
	cluster, err := view.Cluster()
	if err != nil {
		return nil, err
	}
	later, err := view.SigningKeys()
	if err != nil {
		return nil, err
	}
	before := a.signers.Load()
	known := &signers{by: make(map[uint64]*signer, 1+len(later))}
	for _, k := range append([]state.SigningKey{{Sealed: cluster.SealedSigningKey}}, later...) {
		known.newest = k.Generation
		if before != nil && before.by[k.Generation] != nil {
			known.by[k.Generation] = before.by[k.Generation]
			continue
		}
		seed, err := unseal(a.secret, k.Sealed)
		if err != nil {
			return nil, err
		}
		known.by[k.Generation] = newSigner(seed, k.Generation)
	}
	if before == nil || before.newest <= known.newest { // a view may be old
		a.signers.Store(known)
	}
	return known, nil
}

// refused replaces the error for a missing record by the one error for every bad token.
func refused(err error) error {
	if errors.Is(err, state.ErrNotFound) {
		return state.ErrUnauthorized
	}
	return fmt.Errorf("authenticate: %w", err)
}
