package state

import (
	"fmt"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// OpenAccount adds an account like CreateAccount, with the given allowance.
type OpenAccount struct {
	Account   Account
	Allowance uint64 // bytes; Unlimited: no limit
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *OpenAccount) Code(c *codec.Coder) {
	v.Account.Code(c)
	codec.Uint(c, &v.Allowance)
}

func (v *OpenAccount) apply(tx Tx, _ *entry) (Result, error) {
	return Result{}, open(tx, &v.Account, v.Allowance)
}

// open adds an account and its quota. Below feature level 2 there are no quotas.
func open(tx Tx, a *Account, allowance uint64) error {
	if err := a.check(); err != nil {
		return err
	}
	for _, k := range []key{emailKey(a.Email), accountKey(a.ID), closingKey(a.ID)} {
		if taken, err := has(tx, k); err != nil {
			return err
		} else if taken {
			return Errorf(CodeExists, "an account %s exists already", a.Email)
		}
	}
	if level, err := levelOf(tx); err != nil {
		return err
	} else if level >= 2 {
		if err := put(tx, quotaKey(a.ID), &Quota{Allowance: allowance}); err != nil {
			return err
		}
	}
	return putAccount(tx, a)
}

// SetPassword changes the password of an account and ends its sessions.
type SetPassword struct {
	Account AccountID
	Hash    string // as in Account; empty if nobody can sign in with a password
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SetPassword) Code(c *codec.Coder) {
	codec.String(c, &v.Account, MaxIDLen)
	codec.String(c, &v.Hash, MaxAddrLen)
}

func (v *SetPassword) apply(tx Tx, e *entry) (Result, error) {
	a, err := get[Account](tx, accountKey(v.Account))
	if err != nil {
		return Result{}, err
	}
	if a == nil {
		return Result{}, Errorf(CodeNotFound, "no such account")
	}
	if err := forPeople(a.ID); err != nil {
		return Result{}, err
	}
	a.PasswordHash = v.Hash
	if err := a.check(); err != nil {
		return Result{}, err
	}
	if err := endSessions(tx, a.ID, e); err != nil {
		return Result{}, err
	}
	return Result{}, put(tx, accountKey(a.ID), a)
}

// endSessions ends all sessions of an account.
func endSessions(tx Tx, a AccountID, e *entry) error {
	all, err := sessionsIn(tx, a)
	if err != nil {
		return err
	}
	for i := range all {
		e.fx.Keys = true
		if err := removeSession(tx, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

func closingKey(a AccountID) key { return part(table(tableClosing), a) }

// CloseAccount deletes an account: from this entry on, the account, its keys, its shares and its
// sessions do not exist. Later ClearAccounts commands remove its content.
type CloseAccount struct{ Account AccountID }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CloseAccount) Code(c *codec.Coder) { codec.String(c, &v.Account, MaxIDLen) }

func (v *CloseAccount) apply(tx Tx, e *entry) (Result, error) {
	a, err := get[Account](tx, accountKey(v.Account))
	if err != nil {
		return Result{}, err
	}
	if a == nil {
		return Result{}, Errorf(CodeNotFound, "no such account")
	}
	if err := forPeople(a.ID); err != nil {
		return Result{}, err
	}
	cl, err := cluster(tx)
	if err != nil {
		return Result{}, err
	}
	if a.ID == cl.Operator {
		return Result{}, errOperator(a)
	}
	keys, err := NewView(tx, e.index).Keys(a.ID)
	if err != nil {
		return Result{}, err
	}
	for _, k := range keys {
		if _, err := (&RevokeKey{Account: a.ID, ID: k.ID}).apply(tx, e); err != nil {
			return Result{}, fmt.Errorf("key of an account that is closed: %w", err)
		}
	}
	if err := removeShares(tx, sharesOf(a.ID), e); err != nil {
		return Result{}, err
	}
	if err := endSessions(tx, a.ID, e); err != nil {
		return Result{}, err
	}
	if err := removeSignIns(tx, a.ID); err != nil {
		return Result{}, err
	}
	if err := removeUsage(tx, a.ID, maxDay+UsageDays); err != nil {
		return Result{}, err
	}
	e.fx.Settling = true
	for _, k := range []key{accountKey(a.ID), emailKey(a.Email), adminKey(a.ID), disabledKey(a.ID)} {
		if err := tx.Delete(k); err != nil {
			return Result{}, err
		}
	}
	return Result{}, tx.Set(closingKey(a.ID), nil)
}

// errOperator returns the error for an attempt to close or disable the operator account.
func errOperator(a *Account) error {
	return Errorf(CodeForbidden, "local commands act as %s: it stays", a.Email)
}

// CloseOwnAccount is CloseAccount for people who close their own account. It needs feature level
// 6.
//
// Errors: those of MayClose.
type CloseOwnAccount struct{ Account AccountID }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CloseOwnAccount) Code(c *codec.Coder) { codec.String(c, &v.Account, MaxIDLen) }

func (v *CloseOwnAccount) apply(tx Tx, e *entry) (Result, error) {
	if err := NewView(tx, e.index).MayClose(v.Account); err != nil {
		return Result{}, err
	}
	return (&CloseAccount{Account: v.Account}).apply(tx, e)
}

// MayClose returns nil if the owner of an account may close it. Errors: ErrNotFound without such
// an account; ErrForbidden for the operator account, and for the only other administrator who is
// not disabled.
func (v View) MayClose(id AccountID) error {
	a, err := v.Account(id)
	if err != nil {
		return err
	}
	cl, err := cluster(v.r)
	if err != nil {
		return err
	}
	if id == cl.Operator {
		return errOperator(&a)
	}
	is, err := has(v.r, adminKey(id))
	if err != nil || !is {
		return err
	}
	others, err := otherAdmin(v.r, id)
	if err == nil && !others {
		err = Errorf(CodeForbidden, "%s is the only administrator: make another one first", a.Email)
	}
	return err
}

// ClearAccounts removes pins, objects and other records of closed accounts, at most MaxSettle
// records in one command.
type ClearAccounts struct{ Accounts []AccountID }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *ClearAccounts) Code(c *codec.Coder) { codec.Strings(c, &v.Accounts, MaxReports, MaxIDLen) }

func (v *ClearAccounts) apply(tx Tx, e *entry) (Result, error) {
	for _, a := range v.Accounts {
		if closing, err := has(tx, closingKey(a)); err != nil {
			return Result{}, err
		} else if !closing {
			continue
		}
		if err := clearAccount(tx, a, e); err != nil {
			return Result{}, err
		}
	}
	return Result{}, nil
}

func clearAccount(tx Tx, a AccountID, e *entry) error {
	ids, err := parts[RequestID](tx, pinKey(a, pinByID), e.settle)
	if err != nil {
		return err
	}
	for _, id := range ids {
		p, err := findPin(tx, a, id)
		if err != nil {
			return err
		}
		if p == nil {
			return fmt.Errorf("state: pin %s of a closed account has no row", id)
		}
		if err := dropPin(tx, p, nil, e); err != nil {
			return err
		}
	}
	e.settle -= len(ids)
	if err := clearNames(tx, a, e); err != nil {
		return err
	}
	for _, prefix := range []key{ledgerOf(a), postingsOf(a), part(table(tableOnce), a)} {
		if err := clearRows(tx, prefix, e); err != nil {
			return err
		}
	}
	if e.settle == 0 {
		e.fx.Settling = true
		return nil
	}
	for _, k := range []key{quotaKey(a), owedKey(a), requestsKey(a), dryKey(a), pinKey(a, pinLast), packedToKey(a), bornKey(a), closingKey(a)} {
		if err := tx.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// clearRows deletes the rows whose keys begin with a prefix, up to the entry's limit of changed
// records.
func clearRows(tx Tx, prefix key, e *entry) error {
	if e.settle == 0 {
		return nil
	}
	var keys []key
	err := tx.Scan(prefix, prefix.end(), false, func(k, _ []byte) (bool, error) {
		keys = append(keys, slices.Clone(k))
		return len(keys) < e.settle, nil
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := tx.Delete(k); err != nil {
			return err
		}
	}
	e.settle -= len(keys)
	return nil
}

// parts returns the key parts that follow a prefix, from up to limit keys.
func parts[S ~string](r Reader, prefix key, limit int) (all []S, err error) {
	if limit == 0 {
		return nil, nil
	}
	err = r.Scan(prefix, prefix.end(), false, func(k, _ []byte) (bool, error) {
		s, _, err := readPart[S](k[len(prefix):])
		all = append(all, s)
		return err == nil && len(all) < limit, err
	})
	return all, err
}

// Closing returns up to limit closed accounts that still have records.
func (v View) Closing(limit int) ([]AccountID, error) {
	return parts[AccountID](v.r, table(tableClosing), limit)
}
