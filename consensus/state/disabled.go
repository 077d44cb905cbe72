package state

import "github.com/holdfast-ipfs/holdfast/consensus/codec"

// DisableLevel is the lowest feature level at which accounts can be disabled.
const DisableLevel FeatureLevel = 11

func disabledKey(a AccountID) key { return part(table(tableDisabled), a) }

// SetDisabled disables an account or enables it again. The sessions of a disabled account end,
// its API keys and shares are rejected, and nobody can sign in to it; its content and its
// settings remain. Once the account is enabled again, its keys and shares are valid again. If the
// account has the requested status already, nothing changes. The command needs feature level
// DisableLevel.
//
// Errors: ErrNotFound without such an account; ErrForbidden for the operator account, for the
// account of the caller, and for the last administrator who is not disabled.
type SetDisabled struct {
	Account AccountID
	On      bool
	At      Millis // time by the clock of the proposer, above 0
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SetDisabled) Code(c *codec.Coder) {
	codec.String(c, &v.Account, MaxIDLen)
	codec.Bool(c, &v.On)
	codec.Int(c, &v.At)
}

func (v *SetDisabled) apply(tx Tx, e *entry) (Result, error) {
	if err := needsLevel(tx, DisableLevel, "to disable an account needs feature level %d"); err != nil {
		return Result{}, err
	}
	a, err := NewView(tx, e.index).Account(v.Account)
	if err != nil {
		return Result{}, err
	}
	if err := forPeople(a.ID); err != nil {
		return Result{}, err
	}
	if v.At <= 0 {
		return Result{}, Errorf(CodeInvalid, "no time at which the account is disabled or enabled")
	}
	if off, err := disabled(tx, a.ID); err != nil || off == v.On {
		return Result{}, err
	}
	if !v.On {
		return Result{}, tx.Delete(disabledKey(a.ID))
	}
	if err := mayDisable(tx, &a, e.by.Account); err != nil {
		return Result{}, err
	}
	e.fx.Keys = true // also without a session: keys and shares are refused from now on
	if err := endSessions(tx, a.ID, e); err != nil {
		return Result{}, err
	}
	return Result{}, tx.Set(disabledKey(a.ID), key(nil).u64(uint64(v.At)))
}

// mayDisable returns ErrForbidden if the account a cannot be disabled. by is the account of the
// caller, or "".
func mayDisable(r Reader, a *Account, by AccountID) error {
	cl, err := cluster(r)
	if err != nil {
		return err
	}
	if a.ID == cl.Operator {
		return errOperator(a)
	}
	if a.ID == by {
		return Errorf(CodeForbidden, "another administrator can disable your account")
	}
	is, err := has(r, adminKey(a.ID))
	if err != nil || !is {
		return err
	}
	others, err := otherAdmin(r, a.ID)
	if err == nil && !others {
		err = Errorf(CodeForbidden, "%s is the only administrator who is not disabled: make another one first", a.Email)
	}
	return err
}

// otherAdmin returns whether there is another administrator who is not disabled, besides the
// account than and the operator account.
func otherAdmin(r Reader, than AccountID) (there bool, err error) {
	prefix := table(tableAdmin)
	err = r.Scan(prefix, prefix.end(), false, func(k, _ []byte) (bool, error) {
		id, _, err := readPart[AccountID](k[len(prefix):])
		if err != nil || id == than {
			return err == nil, err
		}
		off, err := disabled(r, id)
		there = !off
		return off, err
	})
	return there, err
}

// disabled returns whether an account is disabled.
func disabled(r Reader, a AccountID) (bool, error) { return has(r, disabledKey(a)) }

// enabled returns ErrForbidden if an account is disabled. It is for changes that would give
// access to the account.
func enabled(r Reader, a AccountID) error {
	off, err := disabled(r, a)
	if err == nil && off {
		err = Errorf(CodeForbidden, "the account is disabled: enable it first")
	}
	return err
}

// Disabled returns when an account was disabled, by the clock of the proposer, or 0 if the
// account is not disabled.
func (v View) Disabled(a AccountID) (Millis, error) {
	since, err := counter(v.r, disabledKey(a))
	return Millis(since), err
}
