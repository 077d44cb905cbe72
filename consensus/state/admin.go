package state

import "github.com/holdfast-ipfs/holdfast/consensus/codec"

// OpenFirstAdmin opens an account with the role of an administrator, in a cluster that has no
// administrator. The command needs feature level 6.
//
// Errors: ErrExists if there is an administrator, or an account with the same e-mail address.
type OpenFirstAdmin struct {
	Account   Account
	Allowance uint64 // bytes; Unlimited: no limit
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *OpenFirstAdmin) Code(c *codec.Coder) {
	v.Account.Code(c)
	codec.Uint(c, &v.Allowance)
}

func (v *OpenFirstAdmin) apply(tx Tx, _ *entry) (Result, error) {
	if there, err := anyAdmin(tx); err != nil {
		return Result{}, err
	} else if there {
		return Result{}, Errorf(CodeExists, "the cluster has an administrator already")
	}
	if err := open(tx, &v.Account, v.Allowance); err != nil {
		return Result{}, err
	}
	return Result{}, tx.Set(adminKey(v.Account.ID), nil)
}

// SetAdmin makes an account an administrator, or a normal account again. The command needs
// feature level 6. From feature level 7 on, members propose DecideAdmin instead.
//
// Errors: ErrNotFound without such an account; ErrForbidden for the account of the paid gateway.
type SetAdmin struct {
	Account AccountID
	Admin   bool
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SetAdmin) Code(c *codec.Coder) {
	codec.String(c, &v.Account, MaxIDLen)
	codec.Bool(c, &v.Admin)
}

func (v *SetAdmin) apply(tx Tx, _ *entry) (Result, error) {
	if there, err := has(tx, accountKey(v.Account)); err != nil {
		return Result{}, err
	} else if !there {
		return Result{}, Errorf(CodeNotFound, "no such account")
	}
	if err := forPeople(v.Account); err != nil {
		return Result{}, err
	}
	if !v.Admin {
		return Result{}, tx.Delete(adminKey(v.Account))
	}
	return Result{}, tx.Set(adminKey(v.Account), nil)
}

// DecideAdmin makes an account an administrator, or withdraws that role. The command needs
// feature level 7.
//
// The role is granted by an operator, or by a setting that lists e-mail addresses. After an
// operator has withdrawn the role, the setting cannot grant it to the account, or to a later
// account with the same address, until an operator grants it again. A setting never withdraws the
// role.
//
// Errors: ErrInvalid for a setting that withdraws the role; ErrNotFound without such an account;
// ErrForbidden for the account of the paid gateway.
type DecideAdmin struct {
	Account   AccountID
	Admin     bool
	BySetting bool // a setting grants the role, not an operator; Admin is true then
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *DecideAdmin) Code(c *codec.Coder) {
	codec.String(c, &v.Account, MaxIDLen)
	codec.Bool(c, &v.Admin)
	codec.Bool(c, &v.BySetting)
}

func (v *DecideAdmin) apply(tx Tx, _ *entry) (Result, error) {
	if v.BySetting && !v.Admin {
		return Result{}, Errorf(CodeInvalid, "a setting takes nothing away")
	}
	a, err := NewView(tx, 0).Account(v.Account)
	if err != nil {
		return Result{}, err
	}
	if err := forPeople(a.ID); err != nil {
		return Result{}, err
	}
	taken, err := has(tx, noAdminKey(a.Email))
	switch {
	case err != nil, taken && v.BySetting:
		return Result{}, err
	case !v.Admin:
		if err := tx.Delete(adminKey(v.Account)); err != nil {
			return Result{}, err
		}
		return Result{}, tx.Set(noAdminKey(a.Email), nil)
	case taken:
		if err := tx.Delete(noAdminKey(a.Email)); err != nil {
			return Result{}, err
		}
	}
	return Result{}, tx.Set(adminKey(v.Account), nil)
}

// AdminTaken returns whether an operator has withdrawn the role of administrator from the account
// with an e-mail address, and has not granted it again since.
func (v View) AdminTaken(email string) (bool, error) { return has(v.r, noAdminKey(email)) }

func noAdminKey(email string) key { return part(table(tableNoAdmin), email) }

// Admin returns whether an account is an administrator, who sees the cluster and all accounts in
// the web console. The operator account, with which local commands act, always is one.
func (v View) Admin(id AccountID) (bool, error) {
	cl, err := cluster(v.r)
	if err != nil {
		return false, err
	}
	if id == cl.Operator {
		return true, nil
	}
	return has(v.r, adminKey(id))
}

// AnyAdmin returns whether the cluster has an administrator other than the operator account.
func (v View) AnyAdmin() (bool, error) { return anyAdmin(v.r) }

func anyAdmin(r Reader) (there bool, err error) {
	all := table(tableAdmin)
	err = r.Scan(all, all.end(), false, func(_, _ []byte) (bool, error) {
		there = true
		return false, nil
	})
	return there, err
}

func adminKey(id AccountID) key { return part(table(tableAdmin), id) }
