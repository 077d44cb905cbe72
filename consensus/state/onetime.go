package state

import (
	"errors"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// MaxOneTimeLinks is the largest number of one-time links that a cluster has at once.
const MaxOneTimeLinks = 1000

// LinkID identifies a one-time link. It is a hash of the link's token, so that a copy of
// the state, such as a backup, cannot be used as the link.
type LinkID string

// LinkPurpose is what a one-time link does. The numbers are stored: never renumber.
type LinkPurpose uint8

// Every purpose.
const (
	ForSignUp   LinkPurpose = 1 // opens an account of an e-mail address
	ForPassword LinkPurpose = 2 // sets a new password of an account
	ForSession  LinkPurpose = 3 // starts a session of an account
)

// OneTimeLink is the record of a link that an administrator has created and that works once. The
// node that uses it checks whether it has expired, because the state has no clock.
type OneTimeLink struct {
	ID      LinkID
	Purpose LinkPurpose
	Email   string    // address of the invited person, in lower case, for ForSignUp; otherwise empty
	Account AccountID // account for the other purposes; otherwise empty
	// Proof is the PasswordProof of the account's password at the creation of the link. So the
	// link is void once the password has changed.
	Proof   Hash
	Expires Millis
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *OneTimeLink) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.ID, MaxIDLen)
	codec.Uint(c, &v.Purpose)
	codec.String(c, &v.Email, MaxEmailLen)
	codec.String(c, &v.Account, MaxIDLen)
	codec.Fixed(c, v.Proof[:])
	codec.Int(c, &v.Expires)
}

func (v *OneTimeLink) check() error {
	if v.ID == "" || len(v.ID) > MaxIDLen || v.Purpose < ForSignUp || v.Purpose > ForSession ||
		(v.Purpose == ForSignUp) != (v.Account == "") || (v.Purpose == ForSignUp) != (v.Email != "") || v.Expires <= 0 {
		return Errorf(CodeInvalid, "one-time link out of bounds")
	}
	return nil
}

// errNoLink is returned for a link that was used or replaced, or that never existed.
var errNoLink = Errorf(CodeNotFound, "the link was used already or is not valid any more")

func oneTimeKey(id LinkID) key { return part(table(tableOneTime), id) }

// AddOneTimeLink adds a link. It replaces an existing link with the same purpose for the same
// account or e-mail address, and removes links that have expired by Over. The command needs
// feature level 6.
//
// Errors: ErrInvalid; ErrNotFound without such an account; ErrExists if the e-mail address of an
// invitation has an account already; ErrForbidden for a disabled account; ErrTooLarge if there
// are MaxOneTimeLinks links.
type AddOneTimeLink struct {
	Link OneTimeLink
	Over Millis // time that most members' clocks have reached; 0 means to remove no expired links
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *AddOneTimeLink) Code(c *codec.Coder) {
	v.Link.Code(c)
	codec.Int(c, &v.Over)
}

func (v *AddOneTimeLink) apply(tx Tx, _ *entry) (Result, error) {
	l := v.Link
	if err := l.check(); err != nil {
		return Result{}, err
	}
	if l.Purpose == ForSignUp {
		if taken, err := has(tx, emailKey(l.Email)); err != nil {
			return Result{}, err
		} else if taken {
			return Result{}, Errorf(CodeExists, "an account %s exists already", l.Email)
		}
	} else if _, err := (View{r: tx}).Account(l.Account); err != nil {
		return Result{}, err
	} else if err := forPeople(l.Account); err != nil {
		return Result{}, err
	} else if err := enabled(tx, l.Account); err != nil {
		return Result{}, err
	}
	goes := func(old *OneTimeLink) bool {
		same := old.Purpose == l.Purpose && old.Account == l.Account && old.Email == l.Email
		return same || old.Expires <= v.Over
	}
	all, err := scanAll[OneTimeLink](tx, table(tableOneTime))
	if err != nil {
		return Result{}, err
	}
	stay := 0
	for i := range all {
		if !goes(&all[i]) {
			stay++
		}
	}
	if stay >= MaxOneTimeLinks {
		return Result{}, Errorf(CodeTooLarge, "there are %d one-time links, which is the most", MaxOneTimeLinks)
	}
	if err := removeLinks(tx, goes); err != nil {
		return Result{}, err
	}
	return Result{}, put(tx, oneTimeKey(l.ID), &l)
}

// removeLinks removes the one-time links for which goes returns true.
func removeLinks(tx Tx, goes func(*OneTimeLink) bool) error {
	all, err := scanAll[OneTimeLink](tx, table(tableOneTime))
	if err != nil {
		return err
	}
	for i := range all {
		if !goes(&all[i]) {
			continue
		}
		if err := tx.Delete(oneTimeKey(all[i].ID)); err != nil {
			return err
		}
	}
	return nil
}

// RemoveOneTimeLink removes a link that was not used. The command needs feature level 7.
//
// Errors: ErrNotFound for a link that was used or replaced, or that never existed.
type RemoveOneTimeLink struct{ ID LinkID }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *RemoveOneTimeLink) Code(c *codec.Coder) { codec.String(c, &v.ID, MaxIDLen) }

func (v *RemoveOneTimeLink) apply(tx Tx, _ *entry) (Result, error) {
	if there, err := has(tx, oneTimeKey(v.ID)); err != nil {
		return Result{}, err
	} else if !there {
		return Result{}, errNoLink
	}
	return Result{}, tx.Delete(oneTimeKey(v.ID))
}

// linkOf returns the account if the link is valid for the purpose and the account, and otherwise
// errNoLink. A link of a disabled account is not valid until the account is enabled again.
func linkOf(r Reader, id LinkID, purpose LinkPurpose, account AccountID) (*Account, error) {
	l, err := get[OneTimeLink](r, oneTimeKey(id))
	if err != nil {
		return nil, err
	}
	a, err := get[Account](r, accountKey(account))
	if err != nil {
		return nil, err
	}
	if l == nil || a == nil || l.Purpose != purpose || l.Account != account || l.Proof != PasswordProof(a.PasswordHash) {
		return nil, errNoLink
	}
	if off, err := disabled(r, account); err != nil {
		return nil, err
	} else if off {
		return nil, errNoLink
	}
	return a, nil
}

// ResetPassword sets a new password for the holder of a one-time link, and removes the link. The
// command needs feature level 6.
//
// Errors: ErrNotFound if the link is not valid for that.
type ResetPassword struct {
	Link    LinkID
	Account AccountID
	Hash    string // as in Account
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *ResetPassword) Code(c *codec.Coder) {
	codec.String(c, &v.Link, MaxIDLen)
	codec.String(c, &v.Account, MaxIDLen)
	codec.String(c, &v.Hash, MaxAddrLen)
}

func (v *ResetPassword) apply(tx Tx, e *entry) (Result, error) {
	if _, err := linkOf(tx, v.Link, ForPassword, v.Account); err != nil {
		return Result{}, err
	}
	if v.Hash == "" {
		return Result{}, Errorf(CodeInvalid, "no password")
	}
	if _, err := (&SetPassword{Account: v.Account, Hash: v.Hash}).apply(tx, e); err != nil {
		return Result{}, err
	}
	return Result{}, tx.Delete(oneTimeKey(v.Link))
}

// BeginSession creates a session like CreateSession, but without a password: for a person with an
// identity of the account, or for the holder of a one-time link, which it removes. The command
// needs feature level 6.
//
// Errors: those of CreateSession; ErrUnauthorized if the identity is not one of the account, or
// if the account is disabled; ErrNotFound if the link is not valid for the account.
type BeginSession struct {
	Session  Session
	Identity IdentityID // empty: none
	Link     LinkID     // empty: none
	Over     Millis     // as in CreateSession
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *BeginSession) Code(c *codec.Coder) {
	v.Session.Code(c)
	codec.String(c, &v.Identity, MaxIDLen)
	codec.String(c, &v.Link, MaxIDLen)
	codec.Int(c, &v.Over)
}

func (v *BeginSession) apply(tx Tx, _ *entry) (Result, error) {
	if err := v.Session.check(); err != nil {
		return Result{}, err
	}
	if v.Identity != "" {
		known, err := get[Identity](tx, identityKey(v.Identity))
		if err != nil {
			return Result{}, err
		}
		if known == nil || known.Account != v.Session.Account {
			return Result{}, ErrUnauthorized
		}
		if off, err := disabled(tx, known.Account); err != nil {
			return Result{}, err
		} else if off {
			return Result{}, ErrUnauthorized
		}
		return Result{}, addSession(tx, &v.Session, v.Over)
	}
	if _, err := linkOf(tx, v.Link, ForSession, v.Session.Account); err != nil {
		return Result{}, err
	}
	if err := addSession(tx, &v.Session, v.Over); err != nil {
		return Result{}, err
	}
	return Result{}, tx.Delete(oneTimeKey(v.Link))
}

// OneTimeLink returns a link by its id. It returns ErrNotFound if the link was used or never
// existed, or if it is void because the password of its account has changed or the account is
// disabled.
func (v View) OneTimeLink(id LinkID) (OneTimeLink, error) {
	if id == "" || len(id) > MaxIDLen {
		return OneTimeLink{}, errNoLink
	}
	l, err := get[OneTimeLink](v.r, oneTimeKey(id))
	if err != nil {
		return OneTimeLink{}, err
	}
	if l == nil {
		return OneTimeLink{}, errNoLink
	}
	if l.Account != "" {
		if _, err := linkOf(v.r, id, l.Purpose, l.Account); err != nil {
			return OneTimeLink{}, err
		}
	}
	return *l, nil
}

// OneTimeLinks returns all links for which OneTimeLink returns no error, in the order of their
// ids. Some may have expired.
func (v View) OneTimeLinks() (open []OneTimeLink, err error) {
	all, err := scanAll[OneTimeLink](v.r, table(tableOneTime))
	if err != nil {
		return nil, err
	}
	for i := range all {
		l, err := v.OneTimeLink(all[i].ID)
		switch {
		case err == nil:
			open = append(open, l)
		case !errors.Is(err, ErrNotFound):
			return nil, err
		}
	}
	return open, nil
}
