package state

import (
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// ByKey is a change of an account's pins that an API key asks for. That the key
// lives is judged where the change is made: so a revoked key changes nothing
// from the entry on that revoked it, and a request need not ask the cluster for
// its key before it asks for the change.
type ByKey struct {
	Key    KeyID
	Change Command // *CreatePin, *ReplacePin or *DeletePin
}

// Forms of the change. The numbers are stored: never renumber.
const (
	byKeyCreate  = 1
	byKeyReplace = 2
	byKeyDelete  = 3
)

// Code implements Command.
func (v *ByKey) Code(c *codec.Coder) {
	codec.String(c, &v.Key, MaxIDLen)
	var form uint8
	switch v.Change.(type) {
	case *CreatePin:
		form = byKeyCreate
	case *ReplacePin:
		form = byKeyReplace
	case *DeletePin:
		form = byKeyDelete
	}
	codec.Uint(c, &form)
	if c.Decoding() {
		switch form {
		case byKeyCreate:
			v.Change = new(CreatePin)
		case byKeyReplace:
			v.Change = new(ReplacePin)
		case byKeyDelete:
			v.Change = new(DeletePin)
		}
	}
	if v.Change == nil || form == 0 {
		c.Fail("no change that a key may ask for")
		return
	}
	v.Change.Code(c)
}

// account is whose pins are to be changed.
func (v *ByKey) account() AccountID {
	switch change := v.Change.(type) {
	case *CreatePin:
		return change.Pin.Account
	case *ReplacePin:
		return change.Pin.Account
	case *DeletePin:
		return change.Account
	}
	return ""
}

func (v *ByKey) apply(tx Tx, e *entry) (Result, error) {
	if err := v.judge(tx); err != nil {
		return Result{}, err
	}
	return v.Change.apply(tx, e)
}

// judge tells whether the key may ask for the change. Whether it has expired is
// its proposer's to tell: the state has no clock.
func (v *ByKey) judge(r Reader) error {
	k, err := get[APIKey](r, apiKeyKey(v.Key))
	if err != nil {
		return err
	}
	if k == nil || k.Account != v.account() || !slices.Contains(k.Scope, ScopeWrite) {
		return ErrUnauthorized
	}
	return nil
}

// Judge is what Apply would say of the key of a change: nil or ErrUnauthorized.
func (v View) Judge(change *ByKey) error { return change.judge(v.r) }
