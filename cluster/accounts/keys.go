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

// maxTTL is the longest life that can be asked for.
const maxTTL = 100 * 365 * 24 * time.Hour

// Key is an API key as it is shown. The token and the secret are left out of
// lists, and of logs and formatted text always.
type Key struct {
	ID              state.KeyID // jti
	Email           string      // of the account
	Name            string
	Scope           string // permissions, separated by one space
	Token           string // Bearer value of both APIs
	AccessKeyID     string // of S3 signatures: an identifier, no secret
	SecretAccessKey string
	Created         time.Time
	Expires         time.Time // zero: never
}

// String names the key without its secrets.
func (k Key) String() string { return "key " + string(k.ID) }

// GoString is String, so that %#v tells no secret either.
func (k Key) GoString() string { return k.String() }

// LogValue is what a log shows of the key.
func (k Key) LogValue() slog.Value { return slog.StringValue(string(k.ID)) }

// Principal is who a token speaks for, and what it may do.
type Principal struct {
	Account state.AccountID
	Email   string
	KeyID   state.KeyID
	Scopes  []string
	// Index is that of the state which says so. It was the cluster's at some
	// moment after Authenticate was called.
	Index uint64
}

// May tells whether the token gives a permission, one of the state.Scope values.
func (p Principal) May(scope string) bool { return slices.Contains(p.Scopes, scope) }

// CreateKey adds an API key to the account of an e-mail and shows it. No scopes
// means all of them; no ttl means that it does not expire. A ttl is rounded up
// to whole seconds.
//
// Errors: state.ErrInvalid, state.ErrNotFound without such an account,
// state.ErrTooLarge when it has state.MaxKeysPerUser keys,
// state.ErrUnavailable without a majority.
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
	account, s, err := a.owner(ctx, email)
	if err != nil {
		return Key{}, fmt.Errorf("create key: %w", err)
	}
	now := a.now()
	key := state.APIKey{ID: state.KeyID(a.newID()), Account: account.ID, Name: name, Scope: scopes, Created: state.MillisOf(now)}
	if ttl > 0 {
		key.Expires = state.Millis(now.Add(ttl+time.Second-1).Unix() * 1000)
	}
	if _, err := a.state.Propose(ctx, &state.CreateKey{Key: key}); err != nil {
		return Key{}, fmt.Errorf("create key: %w", err)
	}
	a.log.InfoContext(ctx, "API key created", "account", account.ID, "key", key.ID)
	return s.show(&key, account.Email)
}

// normalScopes returns scopes in one order, each once.
func normalScopes(scopes []string) ([]string, error) {
	known := []string{state.ScopeRead, state.ScopeWrite}
	if len(scopes) == 0 {
		return known, nil
	}
	for _, s := range scopes {
		if !slices.Contains(known, s) {
			return nil, state.Errorf(state.CodeInvalid, "unknown scope %q: %s and %s are known", s, state.ScopeRead, state.ScopeWrite)
		}
	}
	return slices.DeleteFunc(known, func(s string) bool { return !slices.Contains(scopes, s) }), nil
}

// owner reads the account of an e-mail, and the cluster's key.
func (a *Accounts) owner(ctx context.Context, email string) (state.Account, *signer, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return state.Account{}, nil, err
	}
	defer release()
	account, err := byEmail(view, email)
	if err != nil {
		return state.Account{}, nil, err
	}
	s, err := a.open(view)
	return account, s, err
}

// show returns a key with its secrets.
func (s *signer) show(key *state.APIKey, email string) (Key, error) {
	k := summary(key, email)
	var err error
	if k.Token, err = s.sign(claimsOf(key, email)); err != nil {
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

// Keys returns the keys of the account of an e-mail, or of all with an empty
// one, those that have expired too, without tokens and key pairs.
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
	}
	return keys, nil
}

// Show returns a key with its token and key pair, or state.ErrNotFound.
func (a *Accounts) Show(ctx context.Context, jti state.KeyID) (Key, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return Key{}, fmt.Errorf("show key: %w", err)
	}
	defer release()
	key, err := view.Key(jti)
	if err != nil {
		return Key{}, fmt.Errorf("show key: %w", err)
	}
	account, err := view.Account(key.Account)
	if err != nil {
		return Key{}, fmt.Errorf("show key: account %s: %w", key.Account, err)
	}
	s, err := a.open(view)
	if err != nil {
		return Key{}, fmt.Errorf("show key: %w", err)
	}
	return s.show(&key, account.Email)
}

// Revoke ends a key. From the moment it returns no node accepts the key. It
// returns state.ErrNotFound when there is no such key.
func (a *Accounts) Revoke(ctx context.Context, jti state.KeyID) error {
	if jti == "" || len(jti) > state.MaxIDLen {
		return state.Errorf(state.CodeNotFound, "no such key")
	}
	if _, err := a.state.Propose(ctx, &state.RevokeKey{ID: jti}); err != nil {
		return fmt.Errorf("revoke key: %w", err)
	}
	a.log.InfoContext(ctx, "API key revoked", "key", jti)
	return nil
}

// Authenticate tells who a token speaks for. The signature is checked first, so
// that somebody without a token of this cluster costs it no read; then the key
// must be in the state as it is now anywhere in the cluster, say the same as the
// token, and not have expired.
//
// Errors: state.ErrUnauthorized, with one text, whatever is wrong with the
// token; state.ErrUnavailable without a majority: an old permission is never
// taken for a present one.
func (a *Accounts) Authenticate(ctx context.Context, token string) (Principal, error) {
	if token == "" || len(token) > MaxToken {
		return Principal{}, state.ErrUnauthorized
	}
	c, err := a.verify(ctx, token)
	if err != nil {
		return Principal{}, err
	}
	view, release, err := a.state.View(ctx)
	if err != nil {
		return Principal{}, fmt.Errorf("authenticate: %w", err)
	}
	defer release()
	return a.judge(view, c)
}

// Recognize tells who a token speaks for as far as this node knows, without
// asking the cluster: the key may have been revoked a moment ago, or be too new
// to be known here. So what it says allows only what is judged again, as
// state.ByKey is. Errors are those of Authenticate.
func (a *Accounts) Recognize(token string) (Principal, error) {
	if token == "" || len(token) > MaxToken {
		return Principal{}, state.ErrUnauthorized
	}
	view, release := a.state.LocalView()
	defer release()
	c, err := a.verifyAt(view, token)
	if err != nil {
		return Principal{}, err
	}
	return a.judge(view, c)
}

// judge tells who verified claims speak for in a state.
func (a *Accounts) judge(view state.View, c claims) (Principal, error) {
	key, err := view.Key(state.KeyID(c.ID))
	if err != nil {
		return Principal{}, refused(err)
	}
	account, err := view.Account(key.Account)
	if err != nil {
		return Principal{}, refused(err)
	}
	if c != claimsOf(&key, account.Email) || key.Expires != 0 && key.Expires <= state.MillisOf(a.now()) {
		return Principal{}, state.ErrUnauthorized
	}
	return Principal{Account: account.ID, Email: account.Email, KeyID: key.ID, Scopes: key.Scope, Index: view.Index()}, nil
}

// verify returns the claims of a token that the cluster signed.
func (a *Accounts) verify(ctx context.Context, token string) (claims, error) {
	if a.signer.Load() == nil {
		view, release, err := a.state.View(ctx)
		if err != nil {
			return claims{}, fmt.Errorf("authenticate: %w", err)
		}
		defer release()
		return a.verifyAt(view, token)
	}
	return a.verifyAt(state.View{}, token)
}

// verifyAt is verify with a view to read the cluster's key from, should it not
// be open yet.
func (a *Accounts) verifyAt(view state.View, token string) (claims, error) {
	hash := sha256.Sum256([]byte(token))
	if c, ok := a.verified.get(hash); ok {
		return c, nil
	}
	s, err := a.open(view)
	if err != nil {
		return claims{}, fmt.Errorf("authenticate: %w", err)
	}
	c, err := s.verify(token)
	if err != nil {
		return claims{}, state.ErrUnauthorized
	}
	a.verified.put(hash, c)
	return c, nil
}

// open returns the cluster's signing key, which is made with the cluster and
// stays the same: it is opened once.
func (a *Accounts) open(view state.View) (*signer, error) {
	if s := a.signer.Load(); s != nil {
		return s, nil
	}
	cluster, err := view.Cluster()
	if err != nil {
		return nil, err
	}
	seed, err := unseal(a.secret, cluster.SealedSigningKey)
	if err != nil {
		return nil, err
	}
	s := newSigner(seed)
	a.signer.Store(s)
	return s, nil
}

// refused turns a record that is missing into the one answer to a bad token.
func refused(err error) error {
	if errors.Is(err, state.ErrNotFound) {
		return state.ErrUnauthorized
	}
	return fmt.Errorf("authenticate: %w", err)
}
