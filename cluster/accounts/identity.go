package accounts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// SignUp is the setting that decides who may open an account.
type SignUp string

// The values of SignUp.
const (
	SignUpOpen    SignUp = "open"    // people with a verified e-mail address at a provider
	SignUpInvited SignUp = "invited" // people with an invitation, or with an e-mail address in a domain for which a provider is configured
	SignUpOff     SignUp = "off"     // nobody: an administrator adds people
)

// Person is a person as an OpenID provider has identified them.
type Person struct {
	Issuer, Subject string
	Email           string // verified by the provider
	// InDomain is true if the provider is configured for the domain of the e-mail address. Admin
	// is true if a setting names the e-mail address as that of an administrator.
	InDomain, Admin bool
}

// identity returns the record with which the person can sign in to an account.
func (p *Person) identity(account state.AccountID, email string, now time.Time) state.Identity {
	return state.Identity{Issuer: p.Issuer, Subject: p.Subject, Account: account, Email: email, Linked: state.MillisOf(now)}
}

// Identity is a person at a provider who can sign in to an account.
type Identity struct {
	ID     state.IdentityID
	Issuer string
	Email  string    // address that the provider had verified when the identity was linked
	Linked time.Time // time at which the identity was linked
}

// Ways lists the ways to sign in to an account.
type Ways struct {
	Password   bool
	Identities []Identity
}

// Ways returns the ways to sign in to an account. Errors: state.ErrNotFound, state.ErrUnavailable.
func (a *Accounts) Ways(ctx context.Context, account state.AccountID) (Ways, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return Ways{}, fmt.Errorf("ways to sign in: %w", err)
	}
	defer release()
	record, err := view.Account(account)
	if err != nil {
		return Ways{}, fmt.Errorf("ways to sign in: %w", err)
	}
	all, err := view.Identities(account)
	if err != nil {
		return Ways{}, fmt.Errorf("ways to sign in: %w", err)
	}
	w := Ways{Password: record.PasswordHash != ""}
	for i := range all {
		w.Identities = append(w.Identities, Identity{all[i].ID(), all[i].Issuer, all[i].Email, all[i].Linked.Time()})
	}
	return w, nil
}

// SignInAs begins a session of the account with which a person is linked, and returns the token
// of the session. A person who is not linked gets a new account, if SignUp allows it or if
// invitation is the token of an invitation for the person's e-mail address. An existing account
// with the same e-mail address is not opened, because the address alone does not prove that the
// account is theirs.
//
// Errors: state.ErrExists if another account has the address; state.ErrForbidden if the person
// may not open an account, or if the invitation is for another address; state.ErrNotFound if the
// invitation has ended; state.ErrUnauthorized if the account is disabled; state.ErrInvalid;
// state.ErrUnavailable.
func (a *Accounts) SignInAs(ctx context.Context, p Person, invitation string) (token string, err error) {
	id := p.identity("", "", time.Time{})
	account, err := a.read(ctx, func(v state.View) (state.Account, error) {
		known, err := v.Identity(id.ID())
		if err != nil {
			return state.Account{}, err
		}
		if err := notDisabled(v, known.Account); err != nil {
			return state.Account{}, err
		}
		return v.Account(known.Account)
	})
	switch {
	case errors.Is(err, state.ErrNotFound):
		if account, err = a.signUpAs(ctx, p, invitation); err != nil {
			return "", err
		}
	case err != nil:
		return "", err
	case p.Admin:
		if err := a.makeAdmin(ctx, account); err != nil {
			return "", err
		}
	}
	token, session, err := a.newSession(ctx, account.ID)
	if err != nil {
		return "", fmt.Errorf("sign in: %w", err)
	}
	over, _, _ := a.agreed() // 0 while nobody knows
	if _, err := a.state.Propose(ctx, &state.BeginSession{Session: session, Identity: id.ID(), Over: over}); err != nil {
		return "", fmt.Errorf("sign in: %w", err)
	}
	a.log.InfoContext(ctx, "session begun", "account", account.ID, "email", account.Email, "issuer", p.Issuer)
	return token, nil
}

// signUpAs opens an account for a person.
func (a *Accounts) signUpAs(ctx context.Context, p Person, invitation string) (state.Account, error) {
	account, err := a.newAccount(ctx, p.Email, "")
	if err != nil {
		return state.Account{}, fmt.Errorf("sign up: %w", err)
	}
	if _, err := a.ByEmail(ctx, account.Email); err == nil {
		return state.Account{}, state.Errorf(state.CodeExists, "an account with the address %s exists already", account.Email)
	} else if !errors.Is(err, state.ErrNotFound) {
		return state.Account{}, err
	}
	if p.Admin {
		if p.Admin, err = a.mayBeAdmin(ctx, account.Email); err != nil {
			return state.Account{}, err
		}
	}
	var link state.LinkID
	if invitation != "" {
		l, err := a.openLink(ctx, invitation)
		if err != nil {
			return state.Account{}, err
		}
		if l.Purpose != state.ForSignUp || l.Email != account.Email {
			return state.Account{}, state.Errorf(state.CodeForbidden, "the invitation is for another e-mail address than %s", account.Email)
		}
		link = l.ID
	}
	invited := a.signUp == SignUpInvited && (p.InDomain || link != "")
	if !p.Admin && !invited && a.signUp != SignUpOpen {
		return state.Account{}, state.Errorf(state.CodeForbidden, "there is no account with the address %s, and it may not open one", account.Email)
	}
	_, err = a.state.Propose(ctx, &state.SignUp{
		Account: account, Allowance: a.allowance, Identity: p.identity(account.ID, account.Email, a.now()), Link: link, Admin: p.Admin,
	})
	if err != nil {
		return state.Account{}, fmt.Errorf("sign up: %w", err)
	}
	a.log.InfoContext(ctx, "account created", "account", account.ID, "email", account.Email, "issuer", p.Issuer, "admin", p.Admin)
	return account, nil
}

// mayBeAdmin returns whether a setting may make the account with an e-mail address an
// administrator: no operator has withdrawn that role.
func (a *Accounts) mayBeAdmin(ctx context.Context, email string) (bool, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return false, fmt.Errorf("sign up: %w", err)
	}
	defer release()
	taken, err := view.AdminTaken(email)
	if err != nil {
		return false, fmt.Errorf("sign up: %w", err)
	}
	return !taken, nil
}

// makeAdmin makes an account an administrator because a setting names it, unless an operator has
// withdrawn that role.
func (a *Accounts) makeAdmin(ctx context.Context, account state.Account) error {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	there, err := view.Admin(account.ID)
	if err == nil && !there {
		there, err = view.AdminTaken(account.Email)
	}
	release()
	if err != nil || there {
		return err
	}
	return a.change(ctx, "administrator changed", account, a.adminDecision(account.ID, true, true), slog.Bool("admin", true))
}

// LinkIdentity links a person with an account, so that the person can sign in to it. The person
// must have the e-mail address of the account, except if the person is linked with the account
// already.
//
// Errors: state.ErrForbidden for another e-mail address; state.ErrExists if the person is linked
// with another account; state.ErrTooLarge; state.ErrNotFound; state.ErrUnavailable.
func (a *Accounts) LinkIdentity(ctx context.Context, id state.AccountID, p Person) error {
	account, err := a.read(ctx, func(v state.View) (state.Account, error) { return v.Account(id) })
	if err != nil {
		return err
	}
	ways, err := a.Ways(ctx, id)
	if err != nil {
		return err
	}
	known := p.identity(id, account.Email, a.now())
	if slices.ContainsFunc(ways.Identities, func(i Identity) bool { return i.ID == known.ID() }) {
		return nil
	}
	if email, err := NormalEmail(p.Email); err != nil || email != account.Email {
		return state.Errorf(state.CodeForbidden, "the provider says that the address is %s, and this account is of %s", p.Email, account.Email)
	}
	return a.change(ctx, "identity linked", account, &state.LinkIdentity{Identity: known}, slog.String("issuer", p.Issuer))
}

// UnlinkIdentity removes an identity from an account.
//
// Errors: state.ErrNotFound; state.ErrForbidden if the identity is the only way to sign in to
// the account; state.ErrUnavailable.
func (a *Accounts) UnlinkIdentity(ctx context.Context, id state.AccountID, identity state.IdentityID) error {
	account, err := a.read(ctx, func(v state.View) (state.Account, error) { return v.Account(id) })
	if err != nil {
		return err
	}
	return a.change(ctx, "identity unlinked", account, &state.UnlinkIdentity{Account: account.ID, ID: identity}, slog.Any("identity", identity))
}
