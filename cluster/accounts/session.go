package accounts

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Default limits of a session: the longest time without use, and the longest lifetime.
const (
	DefaultSessionIdle = 24 * time.Hour
	DefaultSessionLife = 30 * 24 * time.Hour
)

// A session token is
//
//	"hfs_" | base64url of: 32 random bytes | the first 16 of HMAC-SHA256 over them
//
// under the key HKDF-SHA256(account secret, no salt, info "holdfast session v1"). The HMAC lets a
// node reject an invented token without asking the cluster. The state has only
// base64url(SHA-256(32 random bytes)).
const (
	sessionPrefix = "hfs_"
	sessionInfo   = "holdfast session v1"
	sessionRandom = 32
	sessionMAC    = 16
)

// sessions creates and checks session tokens.
type sessions struct {
	key        func() []byte
	idle, life time.Duration
}

func newSessions(key func() []byte, idle, life time.Duration) sessions {
	if idle <= 0 {
		idle = DefaultSessionIdle
	}
	if life <= 0 {
		life = DefaultSessionLife
	}
	return sessions{key: key, idle: idle, life: life}
}

// derivedKey returns the key for one purpose, derived from the cluster secret: HKDF-SHA256
// without a salt.
func derivedKey(secret []byte, info string) []byte {
	key, err := hkdf.Key(sha256.New, secret, nil, info, sha256.Size)
	if err != nil {
		panic(err) // only for keys longer than a hash function can give
	}
	return key
}

// mac returns the first sessionMAC bytes of HMAC-SHA256.
func mac(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)[:sessionMAC]
}

// token returns the token for the given random bytes, and the id of its session.
func (s sessions) token(random []byte) (token string, id state.SessionID) {
	text := base64.RawURLEncoding.EncodeToString(append(random[:sessionRandom:sessionRandom], mac(s.key(), random)...))
	return sessionPrefix + text, sessionID(random)
}

func sessionID(random []byte) state.SessionID {
	hash := sha256.Sum256(random)
	return state.SessionID(base64.RawURLEncoding.EncodeToString(hash[:]))
}

// read returns the session id of a token. It returns false if this cluster has not issued the
// token.
func (s sessions) read(token string) (state.SessionID, bool) {
	text, ok := strings.CutPrefix(token, sessionPrefix)
	if !ok || len(text) != base64.RawURLEncoding.EncodedLen(sessionRandom+sessionMAC) {
		return "", false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || !hmac.Equal(raw[sessionRandom:], mac(s.key(), raw[:sessionRandom])) {
		return "", false
	}
	return sessionID(raw[:sessionRandom]), true
}

// SignIn checks a password, begins a session and returns the token of the session. name is an
// e-mail address. from is the client's address, by which wrong passwords are limited; the zero
// address is not limited. Clients that have recently signed in with this name from the same
// network are served before others.
//
// Errors: state.ErrUnauthorized for any wrong name or password, after the same work whether or
// not the account exists; state.ErrLimited after too many wrong passwords for the same name or
// from the same address within a minute; state.ErrUnavailable without a majority, or if too many
// sign-ins are in progress, in total or with one name.
func (a *Accounts) SignIn(ctx context.Context, name, password string, from netip.Addr) (token string, err error) {
	now := a.now()
	account, err := a.tryPassword(ctx, now, name, password, from)
	if err != nil {
		return "", fmt.Errorf("sign in: %w", err)
	}
	return a.begin(ctx, account)
}

// begin begins a session of an account and returns its token. account must have the password hash
// that was just checked or set.
func (a *Accounts) begin(ctx context.Context, account state.Account) (token string, err error) {
	token, session, err := a.newSession(ctx, account.ID)
	if err != nil {
		return "", fmt.Errorf("sign in: %w", err)
	}
	over, _, _ := a.agreed() // 0 while nobody knows
	if _, err := a.state.Propose(ctx, &state.CreateSession{Session: session, Password: state.PasswordProof(account.PasswordHash), Over: over}); err != nil {
		return "", fmt.Errorf("sign in: %w", err)
	}
	a.log.InfoContext(ctx, "session begun", "account", account.ID, "email", account.Email)
	return token, nil
}

// newSession returns the record and the token of a session that begins now. The record includes
// the client's address (of the actor in ctx) and agent if all members support these fields.
func (a *Accounts) newSession(ctx context.Context, account state.AccountID) (token string, s state.Session, err error) {
	now := a.now()
	random := make([]byte, sessionRandom)
	if _, err := rand.Read(random); err != nil {
		return "", state.Session{}, err
	}
	token, id := a.sessions.token(random)
	s = state.Session{
		ID: id, Account: account, Created: state.MillisOf(now), Expires: state.MillisOf(now.Add(a.sessions.life)),
		Idle: state.Millis(a.sessions.idle.Milliseconds()),
	}
	view, release := a.state.LocalView()
	defer release()
	level, err := view.FeatureLevel()
	if err != nil {
		return "", state.Session{}, fmt.Errorf("read level: %w", err)
	}
	if level >= state.SessionClientLevel {
		s = s.From(state.ActorOf(ctx).Addr, agentOf(ctx))
	}
	return token, s, nil
}

// agentKey is the key under which WithAgent stores the agent in a context.
type agentKey struct{}

// WithAgent returns a context in which new sessions record agent as the client's program, for
// example the name of a browser.
func WithAgent(ctx context.Context, agent string) context.Context {
	return context.WithValue(ctx, agentKey{}, agent)
}

func agentOf(ctx context.Context) string {
	agent, _ := ctx.Value(agentKey{}).(string)
	return agent
}

// CheckPassword returns nil if the password is that of the account with a name. It counts as an
// attempt to sign in, and has the errors of SignIn.
func (a *Accounts) CheckPassword(ctx context.Context, name, password string, from netip.Addr) error {
	if _, err := a.tryPassword(ctx, a.now(), name, password, from); err != nil {
		return fmt.Errorf("check password: %w", err)
	}
	return nil
}

// tryPassword counts an attempt to sign in, and calls checkPassword if there were not too many.
func (a *Accounts) tryPassword(ctx context.Context, now time.Time, name, password string, from netip.Addr) (state.Account, error) {
	end, err := a.tries.take(now, name, from)
	if err != nil {
		return state.Account{}, err
	}
	in := unknown
	if a.known.first(now, name, from) {
		in = regulars
	}
	account, err := a.checkPassword(ctx, in, name, password, end)
	if err != nil {
		if errors.Is(err, state.ErrUnauthorized) {
			a.refuse(account.ID, Network(from))
		}
		return state.Account{}, err
	}
	a.known.note(now, name, from)
	return account, nil
}

// checkPassword returns the account with a name if the password is right, and otherwise
// state.ErrUnauthorized. If the account does not exist, is disabled or has no password, it
// nevertheless hashes the password in the same queue, so that the duration reveals nothing. It
// calls end with whether the password was wrong.
func (a *Accounts) checkPassword(ctx context.Context, in line, name, password string, end func(wrong bool)) (account state.Account, err error) {
	defer func() { end(errors.Is(err, state.ErrUnauthorized)) }()
	view, release, err := a.state.View(ctx)
	if err != nil {
		return state.Account{}, err
	}
	account, err = byEmail(view, name)
	var off state.Millis
	if err == nil {
		off, err = view.Disabled(account.ID)
	}
	release()
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return state.Account{}, err
	}
	if off != 0 {
		account.PasswordHash = ""
	}
	good, err := a.matches(ctx, in, account.PasswordHash, password)
	if err != nil {
		return state.Account{}, err
	}
	if !good {
		return state.Account{ID: account.ID}, state.ErrUnauthorized
	}
	return account, nil
}

// SignOut ends the session with a token. After it has returned, no node accepts the token. It
// returns state.ErrUnauthorized if the token is not a session token or the session has ended.
func (a *Accounts) SignOut(ctx context.Context, token string) error {
	id, ok := a.sessions.read(token)
	if !ok {
		return state.ErrUnauthorized
	}
	view, release, err := a.state.View(ctx)
	if err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	p, err := a.judgeSession(view, id)
	release()
	if err != nil {
		return err
	}
	if _, err := a.state.Propose(ctx, &state.EndSession{ID: id}); err != nil {
		return refused(err)
	}
	a.log.InfoContext(ctx, "session ended", "account", p.Account, "email", p.Email)
	return nil
}

// judgeSession returns the principal of a session according to a view.
func (a *Accounts) judgeSession(view state.View, id state.SessionID) (Principal, error) {
	s, used, err := view.Session(id)
	if err != nil {
		return Principal{}, refused(err)
	}
	account, err := view.Account(s.Account)
	if err != nil {
		return Principal{}, refused(err)
	}
	if s.Ended(max(used, a.uses.last(useOf{session: id})), state.MillisOf(a.now())) {
		return Principal{}, state.ErrUnauthorized
	}
	admin, err := view.Admin(account.ID)
	if err != nil {
		return Principal{}, err
	}
	return Principal{
		Account: account.ID, Email: account.Email, Session: id, Began: s.Created.Time(), Scopes: sessionScopes, Admin: admin, Index: view.Index(),
	}, nil
}

// sessionScopes are the permissions of every session. They are all permissions of its account.
var sessionScopes = []string{state.ScopeRead, state.ScopeWrite}
