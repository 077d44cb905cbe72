package accounts

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Lifetimes of one-time links: of a link that is sent to a person, and of a link that an operator
// uses at once.
const (
	InvitationLife  = 24 * time.Hour
	SessionLinkLife = 10 * time.Minute
)

// The token of a one-time link is
//
//	"hfo_" | base64url of: 32 random bytes | the first 16 of HMAC-SHA256 over them
//
// under the key HKDF-SHA256(account secret, no salt, info "holdfast link v1"), as for a session
// token. The state has only base64url(SHA-256(32 random bytes)).
const (
	linkPrefix = "hfo_"
	linkInfo   = "holdfast link v1"
)

// Link is a new one-time link.
type Link struct {
	Token   string
	Purpose state.LinkPurpose
	Email   string // e-mail address of the account, or of the invited person
	Expires time.Time
}

// CreateLink creates a one-time link for an e-mail address, which an administrator sends to the
// person. If the address has an account, the link sets a new password of the account; otherwise
// it is an invitation. The link replaces an earlier link for the address.
//
// Errors: state.ErrForbidden for an invitation if SignUp is off; state.ErrInvalid;
// state.ErrTooLarge; state.ErrUnavailable.
func (a *Accounts) CreateLink(ctx context.Context, email string) (Link, error) {
	email, err := NormalEmail(email)
	if err != nil {
		return Link{}, err
	}
	account, err := a.withHash(ctx, func(v state.View) (state.Account, error) { return byEmail(v, email) })
	switch {
	case err == nil:
		return a.addLink(ctx, email, InvitationLife, state.OneTimeLink{
			Purpose: state.ForPassword, Account: account.ID, Proof: state.PasswordProof(account.PasswordHash),
		})
	case !errors.Is(err, state.ErrNotFound):
		return Link{}, err
	case a.signUp == SignUpOff:
		return Link{}, state.Errorf(state.CodeForbidden, "%s has no account, and console.sign_up is off: add the account first, or set console.sign_up to invited", email)
	}
	return a.addLink(ctx, email, InvitationLife, state.OneTimeLink{Purpose: state.ForSignUp, Email: email})
}

// CreateOperatorLink creates a one-time link that begins a session of the operator account.
//
// Errors: state.ErrTooLarge, state.ErrUnavailable.
func (a *Accounts) CreateOperatorLink(ctx context.Context) (Link, error) {
	account, err := a.withHash(ctx, func(v state.View) (state.Account, error) {
		c, err := v.Cluster()
		if err != nil {
			return state.Account{}, err
		}
		return v.Account(c.Operator)
	})
	if err != nil {
		return Link{}, err
	}
	return a.addLink(ctx, account.Email, SessionLinkLife, state.OneTimeLink{
		Purpose: state.ForSession, Account: account.ID, Proof: state.PasswordProof(account.PasswordHash),
	})
}

// withHash returns the account that find returns, including its password hash, which read omits.
func (a *Accounts) withHash(ctx context.Context, find func(state.View) (state.Account, error)) (state.Account, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return state.Account{}, fmt.Errorf("read account: %w", err)
	}
	defer release()
	account, err := find(view)
	if err != nil {
		return state.Account{}, fmt.Errorf("read account: %w", err)
	}
	return account, nil
}

// addLink stores a link that is valid for life, and returns it with its token.
func (a *Accounts) addLink(ctx context.Context, email string, life time.Duration, l state.OneTimeLink) (Link, error) {
	random := make([]byte, sessionRandom)
	if _, err := rand.Read(random); err != nil {
		return Link{}, fmt.Errorf("one-time link: %w", err)
	}
	expires := a.now().Add(life)
	l.ID, l.Expires = state.LinkID(sessionID(random)), state.MillisOf(expires)
	over, _, _ := a.agreed() // 0 while nobody knows
	if _, err := a.state.Propose(ctx, &state.AddOneTimeLink{Link: l, Over: over}); err != nil {
		return Link{}, fmt.Errorf("one-time link: %w", err)
	}
	a.log.InfoContext(ctx, "one-time link made", "email", email, "purpose", l.Purpose)
	token := linkPrefix + base64.RawURLEncoding.EncodeToString(append(random[:sessionRandom:sessionRandom], mac(a.keys().link, random)...))
	return Link{token, l.Purpose, email, expires}, nil
}

// LinkOf returns the one-time link with a token, or state.ErrNotFound if it was used, has expired
// or never existed.
func (a *Accounts) LinkOf(ctx context.Context, token string) (Link, error) {
	l, err := a.openLink(ctx, token)
	if err != nil {
		return Link{}, err
	}
	email := l.Email
	if l.Account != "" {
		account, err := a.read(ctx, func(v state.View) (state.Account, error) { return v.Account(l.Account) })
		if err != nil {
			return Link{}, err
		}
		email = account.Email
	}
	return Link{token, l.Purpose, email, l.Expires.Time()}, nil
}

// openLink returns the record of the link with a token, or state.ErrNotFound.
func (a *Accounts) openLink(ctx context.Context, token string) (state.OneTimeLink, error) {
	text, ok := strings.CutPrefix(token, linkPrefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(raw) != sessionRandom+sessionMAC || !hmac.Equal(raw[sessionRandom:], mac(a.keys().link, raw[:sessionRandom])) {
		return state.OneTimeLink{}, state.ErrNotFound
	}
	view, release, err := a.state.View(ctx)
	if err != nil {
		return state.OneTimeLink{}, fmt.Errorf("one-time link: %w", err)
	}
	defer release()
	l, err := view.OneTimeLink(state.LinkID(sessionID(raw[:sessionRandom])))
	if err != nil {
		return state.OneTimeLink{}, fmt.Errorf("one-time link: %w", err)
	}
	if state.MillisOf(a.now()) >= l.Expires {
		return state.OneTimeLink{}, state.ErrNotFound
	}
	return l, nil
}

// UseLink uses a one-time link and returns the token of a new session. For an invitation, it
// opens an account with the given password; for a link to reset a password, it sets the given
// password; for an operator's link, password is ignored. After UseLink has returned, no node
// accepts the link.
//
// Errors: state.ErrNotFound for a link that LinkOf does not know; state.ErrInvalid for an
// unacceptable password, after which the link remains valid; state.ErrExists if an invited
// address has an account by now; state.ErrForbidden for an invitation if SignUp is off;
// state.ErrUnavailable.
func (a *Accounts) UseLink(ctx context.Context, token, password string) (session string, err error) {
	l, err := a.openLink(ctx, token)
	if err != nil {
		return "", err
	}
	if l.Purpose == state.ForSession {
		return a.sessionByLink(ctx, l)
	}
	if l.Purpose == state.ForSignUp {
		return a.signUpByLink(ctx, l, password)
	}
	hash, err := a.hashPassword(ctx, password)
	if err != nil {
		return "", err
	}
	account, err := a.read(ctx, func(v state.View) (state.Account, error) { return v.Account(l.Account) })
	if err != nil {
		return "", err
	}
	if err := a.change(ctx, "password changed by a one-time link", account, &state.ResetPassword{Link: l.ID, Account: account.ID, Hash: hash}); err != nil {
		return "", err
	}
	account.PasswordHash = hash
	return a.begin(ctx, account)
}

// signUpByLink opens the account of an invitation with a password.
func (a *Accounts) signUpByLink(ctx context.Context, l state.OneTimeLink, password string) (session string, err error) {
	if a.signUp == SignUpOff {
		return "", state.Errorf(state.CodeForbidden, "nobody can open an account here any more")
	}
	if password == "" {
		return "", state.Errorf(state.CodeInvalid, "the password is empty")
	}
	account, err := a.newAccount(ctx, l.Email, password)
	if err != nil {
		return "", err
	}
	if _, err := a.state.Propose(ctx, &state.SignUp{Account: account, Allowance: a.allowance, Link: l.ID}); err != nil {
		return "", fmt.Errorf("sign up: %w", err)
	}
	a.log.InfoContext(ctx, "account created", "account", account.ID, "email", account.Email)
	return a.begin(ctx, account)
}

// sessionByLink begins a session of the account that a link names.
func (a *Accounts) sessionByLink(ctx context.Context, l state.OneTimeLink) (token string, err error) {
	token, session, err := a.newSession(ctx, l.Account)
	if err != nil {
		return "", fmt.Errorf("sign in: %w", err)
	}
	over, _, _ := a.agreed() // 0 while nobody knows
	if _, err := a.state.Propose(ctx, &state.BeginSession{Session: session, Link: l.ID, Over: over}); err != nil {
		return "", fmt.Errorf("sign in: %w", err)
	}
	a.log.InfoContext(ctx, "session begun", "account", l.Account, "by", "one-time link")
	return token, nil
}

// OpenLink is a one-time link that is still valid, without its token.
type OpenLink struct {
	ID      state.LinkID
	Purpose state.LinkPurpose
	Email   string // e-mail address of the account, or of the invited person
	Expires time.Time
}

// Links returns the one-time links that are still valid, sorted by expiry. It does not include
// the links of SetupToken, which are not stored. Errors: state.ErrUnavailable.
func (a *Accounts) Links(ctx context.Context) ([]OpenLink, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return nil, fmt.Errorf("list one-time links: %w", err)
	}
	defer release()
	all, err := view.OneTimeLinks()
	if err != nil {
		return nil, fmt.Errorf("list one-time links: %w", err)
	}
	now := state.MillisOf(a.now())
	var open []OpenLink
	for i := range all {
		l := &all[i]
		if now >= l.Expires {
			continue
		}
		email := l.Email
		if l.Account != "" {
			account, err := view.Account(l.Account)
			if err != nil {
				return nil, fmt.Errorf("list one-time links: %w", err)
			}
			email = account.Email
		}
		open = append(open, OpenLink{l.ID, l.Purpose, email, l.Expires.Time()})
	}
	slices.SortFunc(open, func(a, b OpenLink) int {
		return cmp.Or(a.Expires.Compare(b.Expires), strings.Compare(a.Email, b.Email))
	})
	return open, nil
}

// RevokeLink removes a one-time link. After it has returned, no node accepts the link. Errors:
// state.ErrNotFound if the link was used or never existed; state.ErrUnavailable.
func (a *Accounts) RevokeLink(ctx context.Context, id state.LinkID) error {
	if id == "" || len(id) > state.MaxIDLen {
		return state.ErrNotFound
	}
	if _, err := a.state.Propose(ctx, &state.RemoveOneTimeLink{ID: id}); err != nil {
		return fmt.Errorf("revoke one-time link: %w", err)
	}
	a.log.InfoContext(ctx, "one-time link revoked", "id", id)
	return nil
}
