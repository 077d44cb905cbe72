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
	codeChange(c, &v.Change)
}

// codeChange codes a change of pins that somebody asks for.
func codeChange(c *codec.Coder, change *Command) {
	var form uint8
	switch (*change).(type) {
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
			*change = new(CreatePin)
		case byKeyReplace:
			*change = new(ReplacePin)
		case byKeyDelete:
			*change = new(DeletePin)
		}
	}
	if *change == nil || form == 0 {
		c.Fail("no change that a key may ask for")
		return
	}
	(*change).Code(c)
}

// accountOf is whose pins are to be changed.
func accountOf(change Command) AccountID {
	switch change := change.(type) {
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
	if k == nil || k.Account != accountOf(v.Change) || !slices.Contains(k.Scope, ScopeWrite) {
		return ErrUnauthorized
	}
	return nil
}

// Judge is what Apply would say of the key of a change: nil or ErrUnauthorized.
func (v View) Judge(change *ByKey) error { return change.judge(v.r) }
