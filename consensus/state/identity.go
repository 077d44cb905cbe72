package state

import (
	"crypto/sha256"
	"encoding/base64"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Limits of identities.
const (
	MaxIdentities = 16  // of an account
	maxIssuer     = 512 // bytes
	maxSubject    = 255 // bytes, OpenID Connect Core 1.0, section 2
)

// IdentityID identifies an Identity. It is a hash of the issuer and the subject.
type IdentityID string

// Identity is a person at an OpenID provider who may sign in to an account.
type Identity struct {
	Issuer, Subject string // claims iss and sub of the provider's ID tokens; the pair is unique
	Account         AccountID
	Email           string // address that the provider had verified when the identity was linked
	Linked          Millis
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Identity) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.Issuer, maxIssuer)
	codec.String(c, &v.Subject, maxSubject)
	codec.String(c, &v.Account, MaxIDLen)
	codec.String(c, &v.Email, MaxEmailLen)
	codec.Int(c, &v.Linked)
}

// ID returns the id of the identity.
func (v *Identity) ID() IdentityID {
	sum := sha256.Sum256([]byte(v.Issuer + "\x00" + v.Subject))
	return IdentityID(base64.RawURLEncoding.EncodeToString(sum[:]))
}

func (v *Identity) check() error {
	for _, s := range []struct {
		text string
		max  int
	}{{v.Issuer, maxIssuer}, {v.Subject, maxSubject}, {v.Email, MaxEmailLen}} {
		if s.text == "" || len(s.text) > s.max || !utf8.ValidString(s.text) {
			return Errorf(CodeInvalid, "identity record out of bounds")
		}
	}
	return nil
}

func identityKey(id IdentityID) key { return part(table(tableIdentity), id) }

func identitiesOf(a AccountID) key { return part(table(tableIdentityOf), a) }

// LinkIdentity adds an identity to an account, so that its owner can sign in with it. The command
// needs feature level 6.
//
// Errors: ErrInvalid; ErrNotFound without such an account; ErrExists if the identity belongs to
// another account; ErrTooLarge if the account has MaxIdentities identities.
type LinkIdentity struct{ Identity Identity }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *LinkIdentity) Code(c *codec.Coder) { v.Identity.Code(c) }

func (v *LinkIdentity) apply(tx Tx, _ *entry) (Result, error) {
	if there, err := has(tx, accountKey(v.Identity.Account)); err != nil {
		return Result{}, err
	} else if !there {
		return Result{}, Errorf(CodeNotFound, "no such account")
	}
	if err := forPeople(v.Identity.Account); err != nil {
		return Result{}, err
	}
	old, err := linkable(tx, &v.Identity)
	if err != nil {
		return Result{}, err
	}
	if old != nil && old.Account == v.Identity.Account {
		return Result{}, nil
	}
	return Result{}, putIdentity(tx, &v.Identity)
}

// linkable returns an error if an identity cannot be linked to its account. If the account has
// the identity already, linkable returns the stored record and no error.
func linkable(r Reader, v *Identity) (*Identity, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	old, err := get[Identity](r, identityKey(v.ID()))
	switch {
	case err != nil:
		return nil, err
	case old != nil && old.Account == v.Account:
		return old, nil
	case old != nil:
		return nil, Errorf(CodeExists, "this identity signs in to another account")
	}
	all, err := parts[IdentityID](r, identitiesOf(v.Account), MaxIdentities)
	if err != nil {
		return nil, err
	}
	if len(all) == MaxIdentities {
		return nil, Errorf(CodeTooLarge, "the account has %d linked identities, which is the most", MaxIdentities)
	}
	return nil, nil
}

func putIdentity(tx Tx, v *Identity) error {
	if err := tx.Set(part(identitiesOf(v.Account), v.ID()), nil); err != nil {
		return err
	}
	return put(tx, identityKey(v.ID()), v)
}

// UnlinkIdentity removes an identity from an account. Existing sessions continue. The command
// needs feature level 6.
//
// Errors: ErrNotFound; ErrForbidden if the account could no longer sign in, because it has no
// password and no other identity.
type UnlinkIdentity struct {
	Account AccountID
	ID      IdentityID
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *UnlinkIdentity) Code(c *codec.Coder) {
	codec.String(c, &v.Account, MaxIDLen)
	codec.String(c, &v.ID, MaxIDLen)
}

func (v *UnlinkIdentity) apply(tx Tx, _ *entry) (Result, error) {
	account, err := get[Account](tx, accountKey(v.Account))
	if err != nil {
		return Result{}, err
	}
	known, err := get[Identity](tx, identityKey(v.ID))
	if err != nil {
		return Result{}, err
	}
	if account == nil || known == nil || known.Account != v.Account {
		return Result{}, Errorf(CodeNotFound, "no such identity")
	}
	all, err := parts[IdentityID](tx, identitiesOf(v.Account), 2)
	if err != nil {
		return Result{}, err
	}
	if account.PasswordHash == "" && len(all) == 1 {
		return Result{}, Errorf(CodeForbidden, "the account has no password, so this is the only way to sign in to it")
	}
	return Result{}, removeIdentity(tx, v.Account, v.ID)
}

func removeIdentity(tx Tx, account AccountID, id IdentityID) error {
	if err := tx.Delete(part(identitiesOf(account), id)); err != nil {
		return err
	}
	return tx.Delete(identityKey(id))
}

// removeSignIns removes the identities and the one-time links of an account that is being closed.
func removeSignIns(tx Tx, account AccountID) error {
	all, err := parts[IdentityID](tx, identitiesOf(account), MaxIdentities)
	if err != nil {
		return err
	}
	for _, id := range all {
		if err := removeIdentity(tx, account, id); err != nil {
			return err
		}
	}
	return removeLinks(tx, func(l *OneTimeLink) bool { return l.Account == account })
}

// Identity returns an identity by its id, or ErrNotFound.
func (v View) Identity(id IdentityID) (Identity, error) {
	if len(id) <= MaxIDLen {
		found, err := get[Identity](v.r, identityKey(id))
		if err != nil {
			return Identity{}, err
		}
		if found != nil {
			return *found, nil
		}
	}
	return Identity{}, Errorf(CodeNotFound, "no such identity")
}

// Identities returns the identities of an account in the order of their ids.
func (v View) Identities(account AccountID) ([]Identity, error) {
	ids, err := parts[IdentityID](v.r, identitiesOf(account), MaxIdentities)
	if err != nil {
		return nil, err
	}
	all := make([]Identity, len(ids))
	for i, id := range ids {
		if all[i], err = v.Identity(id); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// SignUp opens an account for a person who has an identity at an OpenID provider, an invitation
// link, or both. The command needs feature level 6.
//
// Errors: those of OpenAccount and LinkIdentity; ErrNotFound if the link is not an unused
// invitation for the account's e-mail address.
type SignUp struct {
	Account   Account
	Allowance uint64   // bytes; Unlimited: no limit
	Identity  Identity // identity to link to the account; the zero value means none
	Link      LinkID   // invitation link, which is used up; empty means none
	Admin     bool     // make the account an administrator, unless an operator has withdrawn that role
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SignUp) Code(c *codec.Coder) {
	v.Account.Code(c)
	codec.Uint(c, &v.Allowance)
	v.Identity.Code(c)
	codec.String(c, &v.Link, MaxIDLen)
	codec.Bool(c, &v.Admin)
}

func (v *SignUp) apply(tx Tx, _ *entry) (Result, error) {
	linked := v.Identity != Identity{}
	if !linked && v.Link == "" || linked && v.Identity.Account != v.Account.ID {
		return Result{}, Errorf(CodeInvalid, "nobody vouches for the account")
	}
	if v.Link != "" {
		if l, err := get[OneTimeLink](tx, oneTimeKey(v.Link)); err != nil {
			return Result{}, err
		} else if l == nil || l.Purpose != ForSignUp || l.Email != v.Account.Email {
			return Result{}, errNoLink
		}
	}
	if linked {
		if _, err := linkable(tx, &v.Identity); err != nil {
			return Result{}, err
		}
	}
	if err := open(tx, &v.Account, v.Allowance); err != nil {
		return Result{}, err
	}
	if linked {
		if err := putIdentity(tx, &v.Identity); err != nil {
			return Result{}, err
		}
	}
	taken, err := has(tx, noAdminKey(v.Account.Email))
	if err != nil {
		return Result{}, err
	}
	if v.Admin && !taken {
		if err := tx.Set(adminKey(v.Account.ID), nil); err != nil {
			return Result{}, err
		}
	}
	return Result{}, removeLinks(tx, func(l *OneTimeLink) bool { return l.Email == v.Account.Email })
}
