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

// maxTTL is the longest lifetime that can be requested for an API key.
const maxTTL = 100 * 365 * 24 * time.Hour

// Key is an API key with all that is shown of it. In lists, Token and SecretAccessKey are empty.
// Logs and formatted text never contain the two.
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

// String returns a text with the id of the key, and without its secrets.
func (k Key) String() string { return "key " + string(k.ID) }

// GoString returns the same as String, so that %#v reveals no secret either.
func (k Key) GoString() string { return k.String() }

// LogValue returns the id of the key, so that log lines contain no secret.
func (k Key) LogValue() slog.Value { return slog.StringValue(string(k.ID)) }

// Principal is an authenticated caller: the account to which the token belongs, and what the
// token permits.
type Principal struct {
	Account state.AccountID
	Email   string
	KeyID   state.KeyID     // empty if the token is no API key
	Session state.SessionID // empty if the token is no session token
	Began   time.Time       // start of the session
	Expires state.Millis    // end of the API key; zero means never
	Scopes  []string
	Admin   bool // the account is an administrator, and the token is a session token
	// Share is the share if the token is that of a share, whose limits apply instead of Scopes;
	// otherwise nil.
	Share *state.Share
	// Index is the log index of the state by which the token was checked. Authenticate checks it
	// by a state that is at least as new as the call.
	Index uint64
}

// May returns whether the token has a permission, which is one of the state.Scope values.
func (p Principal) May(scope string) bool { return slices.Contains(p.Scopes, scope) }

// CreateKey adds an API key to the account with an e-mail address, and returns it with its
// secrets. Without scopes, the key gets state.ScopeRead and state.ScopeWrite, which permit
// everything. If ttl is 0, the key does not expire. A ttl is rounded up to whole seconds.
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

// expiry returns the text for the expiry of a key in log lines.
func expiry(end state.Millis) string {
	if end == 0 {
		return "never"
	}
	return end.Time().UTC().Format(time.RFC3339)
}

// normalScopes returns scopes in a fixed order and without duplicates. Without scopes it returns
// ScopeRead and ScopeWrite. It returns state.ErrInvalid for an unknown scope.
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

// Keys returns the keys of the account with an e-mail address, or of all accounts if email is
// empty, including expired keys. The keys have no Token and no S3 key pair.
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

// Key returns a key without its Token and its S3 key pair, or state.ErrNotFound.
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

// Show returns a key with its Token and its S3 key pair, or state.ErrNotFound. It first records
// in the audit log that the key is shown.
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

// shown is Show without the row of the audit log.
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

// Revoke revokes a key. After it has returned, no node accepts the key. It returns
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
// checks the signature first, so that forged tokens cause no read of the cluster; the exception
// is one read per askEvery for tokens that name an unknown signing key. Then it reads the newest
// state of the cluster: the key or session must exist, match the token and not have ended.
//
// Errors: state.ErrUnauthorized with the same text for every bad token; state.ErrUnavailable
// without a majority, because then a permission may have been revoked.
func (a *Accounts) Authenticate(ctx context.Context, token string) (Principal, error) {
	return a.authenticate(ctx, token, a.judge)
}

// judging is the type of functions that return the principal for verified claims according to a
// state.
type judging = func(state.View, claims) (Principal, error)

// authenticate is Authenticate with a choice of judge, which returns the principal of a token
// that is not a session token.
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

// Recognize returns the principal of a token according to this node's own state, without asking
// the cluster. The key may have been revoked a moment ago, or may be too new to be known here. So
// callers must use the result only for changes that Apply checks again, as with state.ByKey.
// Errors: as for Authenticate.
func (a *Accounts) Recognize(token string) (Principal, error) { return a.recognize(token, a.judge) }

// recognize is Recognize with a choice of judge, as in authenticate.
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

// S3Key returns the secret and the principal of an access key id, which is that of an API key or
// of a share, from the newest state of the cluster. It authenticates nobody: the caller must
// check the request's signature with the secret and then call Used. Every well-formed id causes a
// read of the cluster, because the key may just have been created through another node. The rate
// limit of the client's address limits these reads.
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

// RecognizeS3Key is S3Key with this node's own state. As with Recognize, its result must be used
// only for changes that Apply checks again.
func (a *Accounts) RecognizeS3Key(accessKeyID string) (secret string, who Principal, err error) {
	id, ok := s3KeyID(accessKeyID)
	if !ok {
		return "", Principal{}, state.ErrUnauthorized
	}
	view, release := a.state.LocalView()
	defer release()
	return a.s3KeyIn(view, id)
}

// s3KeyIn is S3Key with the given view.
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

// Used records a use of the key with which the principal from S3Key was authenticated.
func (a *Accounts) Used(who Principal) {
	a.uses.note(useOf{who.KeyID, who.Session}, state.MillisOf(a.now()))
	a.requests.count(who.Account)
}

// noted records a use of the key or session if err is nil, and returns its arguments.
func (a *Accounts) noted(p Principal, err error) (Principal, error) {
	if err == nil {
		a.Used(p)
	}
	return p, err
}

// judge returns the principal of an API key with verified claims, according to a view.
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

// over returns whether a key has expired by this node's clock.
func (a *Accounts) over(key *state.APIKey) bool { return key.Expired(state.MillisOf(a.now())) }

func principalOf(key *state.APIKey, account *state.Account, index uint64) Principal {
	return Principal{Account: account.ID, Email: account.Email, KeyID: key.ID, Scopes: key.Scope, Expires: key.Expires, Index: index}
}

// askEvery is the shortest interval between two reads of the cluster for unknown signing keys. It
// is needed because anybody can invent a token that names any signing key.
const askEvery = time.Second

// verify returns the claims of a token if the cluster has signed it. If this node does not know
// the signing key, verify reads the newest state of the cluster, at most once per askEvery.
// Otherwise it uses the state that this node has applied.
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

// mayAsk returns whether askEvery has passed since the last read of the cluster for signing keys,
// and if so records the present read.
func (a *Accounts) mayAsk() bool {
	now, last := int64(state.MillisOf(a.now())), a.asked.Load()
	if last <= now && now-last < askEvery.Milliseconds() {
		return false
	}
	return a.asked.CompareAndSwap(last, now)
}

// verifyIn is verify with a view, from which it reads the signing key if that is not cached.
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

// signerIn returns the signing key of a generation, or nil if there is none. It reads it from the
// view if it is not cached; the key of a generation never changes.
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

// mustSignerIn returns the signing key of a generation that has signed a stored key or share. It
// returns an error if there is none, because the state is then damaged.
func (a *Accounts) mustSignerIn(view state.View, generation uint64) (*signer, error) {
	s, err := a.signerIn(view, generation)
	if err == nil && s == nil {
		err = fmt.Errorf("the state has no signing key of generation %d", generation)
	}
	return s, err
}

// Fits returns nil if this node's cluster secret decrypts the cluster's signing keys. It uses the
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

// open reads and decrypts the cluster's signing keys from a view, and caches them.
func (a *Accounts) open(view state.View) (*signers, error) {
	cluster, err := view.Cluster()
	if err != nil {
		return nil, err
	}
	later, err := view.SigningKeys()
	if err != nil {
		return nil, err
	}
	own, err := a.keysIn(view)
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
		seed, err := unseal(own.secret, k.Sealed)
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

// refused replaces state.ErrNotFound by state.ErrUnauthorized, the one error for every bad token.
func refused(err error) error {
	if errors.Is(err, state.ErrNotFound) {
		return state.ErrUnauthorized
	}
	return fmt.Errorf("authenticate: %w", err)
}
