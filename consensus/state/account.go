package state

import (
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Account is the record of an account. An account owns pins, buckets and API keys.
type Account struct {
	ID           AccountID
	Email        string
	PasswordHash string // argon2id in PHC string form; empty if the account has no password
	Created      Millis
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Account) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.ID, MaxIDLen)
	codec.String(c, &v.Email, MaxEmailLen)
	codec.String(c, &v.PasswordHash, MaxAddrLen)
	codec.Int(c, &v.Created)
}

func (v *Account) check() error {
	if v.ID == "" || len(v.ID) > MaxIDLen || len(v.PasswordHash) > MaxAddrLen {
		return Errorf(CodeInvalid, "account record out of bounds")
	}
	if at := strings.IndexByte(v.Email, '@'); at < 1 || at == len(v.Email)-1 || len(v.Email) > MaxEmailLen ||
		strings.ContainsFunc(v.Email, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return Errorf(CodeInvalid, "%q is not an e-mail address", v.Email)
	}
	return nil
}

func accountKey(id AccountID) key { return part(table(tableAccount), id) }

func emailKey(email string) key { return part(table(tableEmail), strings.ToLower(email)) }

func putAccount(tx Tx, v *Account) error {
	if err := tx.Set(emailKey(v.Email), []byte(v.ID)); err != nil {
		return err
	}
	return put(tx, accountKey(v.ID), v)
}

// CreateAccount adds an account. The e-mail address must be unique among accounts, regardless of
// letter case.
type CreateAccount struct{ Account Account }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CreateAccount) Code(c *codec.Coder) { v.Account.Code(c) }

func (v *CreateAccount) apply(tx Tx, _ *entry) (Result, error) {
	return Result{}, open(tx, &v.Account, DefaultAllowance)
}

// Account returns an account by its id, or ErrNotFound.
func (v View) Account(id AccountID) (Account, error) {
	a, err := get[Account](v.r, accountKey(id))
	if err != nil {
		return Account{}, err
	}
	if a == nil {
		return Account{}, Errorf(CodeNotFound, "no such account")
	}
	return *a, nil
}

// AccountByEmail returns the account with an e-mail address, regardless of letter case, or
// ErrNotFound.
func (v View) AccountByEmail(email string) (Account, error) {
	if len(email) <= MaxEmailLen {
		id, ok, err := v.r.Get(emailKey(email))
		if err != nil {
			return Account{}, err
		}
		if ok {
			return v.Account(AccountID(id))
		}
	}
	return Account{}, Errorf(CodeNotFound, "no account %s", email)
}

// Accounts returns all accounts in the order of their ids.
func (v View) Accounts() ([]Account, error) { return scanAll[Account](v.r, table(tableAccount)) }

// Scopes of API keys.
const (
	// ScopeRead permits reading and listing pins, buckets and objects.
	ScopeRead = "storage:read"
	// ScopeWrite permits creating, changing and deleting pins, buckets and objects.
	ScopeWrite = "storage:write"
	// ScopeDelete permits deleting objects and buckets. ScopeWrite includes it.
	ScopeDelete = "storage:delete"
)

// checkScope returns an ErrInvalid for a scope that is not one of Scopes.
func checkScope(scope []string) error {
	for _, s := range scope {
		if !slices.Contains(Scopes(), s) {
			return Errorf(CodeInvalid, "unknown scope %q: %s are known", s, strings.Join(Scopes(), ", "))
		}
	}
	return nil
}

// Scopes returns the scopes that a key may have, in their order in tokens.
func Scopes() []string { return []string{ScopeRead, ScopeWrite, ScopeDelete} }

// APIKey is the record of an existing API key. The token itself is not stored; to show it, a
// node signs it again from these fields.
type APIKey struct {
	ID      KeyID
	Account AccountID
	Name    string
	Scope   []string
	Created Millis
	Expires Millis // zero means never
}

// Expired returns whether the key has expired at the time now.
func (v *APIKey) Expired(now Millis) bool { return v.Expires != 0 && v.Expires <= now }

// Code encodes the record, or decodes it if c is a decoder.
func (v *APIKey) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.ID, MaxIDLen)
	codec.String(c, &v.Account, MaxIDLen)
	codec.String(c, &v.Name, maxNameBytes)
	codec.Strings(c, &v.Scope, 8, MaxIDLen)
	codec.Int(c, &v.Created)
	codec.Int(c, &v.Expires)
}

func apiKeyKey(id KeyID) key { return part(table(tableKey), id) }

func keysOf(a AccountID) key { return part(table(tableKeysOf), a) }

// CreateKey adds an API key to an account. If the account already has MaxKeysPerUser keys, Apply
// first removes expired keys. Errors: ErrForbidden for a disabled account; ErrTooLarge if no key
// can be removed.
type CreateKey struct {
	Key APIKey
	// Expired is the time by which a key must have expired to be removed. The proposer chooses a
	// time that most members' clocks have passed, so that a single wrong clock removes no key. 0
	// means that no key may be removed.
	Expired Millis
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CreateKey) Code(c *codec.Coder) {
	v.Key.Code(c)
	if c.More() {
		codec.Int(c, &v.Expired)
	}
}

func (v *CreateKey) apply(tx Tx, _ *entry) (Result, error) {
	k := v.Key
	if k.ID == "" || len(k.ID) > MaxIDLen || len(k.Name) > maxNameBytes || len(k.Scope) == 0 {
		return Result{}, Errorf(CodeInvalid, "key record out of bounds")
	}
	if err := checkScope(k.Scope); err != nil {
		return Result{}, err
	}
	if known, err := has(tx, accountKey(k.Account)); err != nil {
		return Result{}, err
	} else if !known {
		return Result{}, Errorf(CodeNotFound, "no such account")
	}
	if err := forPeople(k.Account); err != nil {
		return Result{}, err
	}
	if err := enabled(tx, k.Account); err != nil {
		return Result{}, err
	}
	if old, err := get[APIKey](tx, apiKeyKey(k.ID)); err != nil {
		return Result{}, err
	} else if old != nil {
		if old.Account == k.Account && old.Created == k.Created && slices.Equal(old.Scope, k.Scope) {
			return Result{}, nil
		}
		return Result{}, Errorf(CodeExists, "a key %s exists already", k.ID)
	}
	if shared, err := has(tx, shareByKey(k.ID)); err != nil {
		return Result{}, err
	} else if shared {
		return Result{}, Errorf(CodeExists, "a key %s exists already", k.ID)
	}
	if err := roomForKey(tx, k.Account, v.Expired); err != nil {
		return Result{}, err
	}
	if err := tx.Set(part(keysOf(k.Account), k.ID), nil); err != nil {
		return Result{}, err
	}
	if err := signWith(tx, k.ID); err != nil {
		return Result{}, err
	}
	return Result{}, put(tx, apiKeyKey(k.ID), &k)
}

// maxClearedKeys is the largest number of expired keys that one command removes, so that the
// cost of an entry does not depend on the number of expired keys.
const maxClearedKeys = 64

// roomForKey ensures that an account has fewer than MaxKeysPerUser keys. If necessary, it removes
// keys that had expired at the time by; if none had, it returns ErrTooLarge.
func roomForKey(tx Tx, account AccountID, by Millis) error {
	n := 0
	prefix := keysOf(account)
	err := tx.Scan(prefix, prefix.end(), false, func(_, _ []byte) (bool, error) { n++; return n < MaxKeysPerUser, nil })
	if err != nil || n < MaxKeysPerUser {
		return err
	}
	keys, err := View{r: tx}.Keys(account)
	if err != nil {
		return err
	}
	cleared := 0
	for i := range keys {
		if cleared == maxClearedKeys {
			break
		}
		if !keys[i].Expired(by) {
			continue
		}
		if err := removeKey(tx, &keys[i]); err != nil {
			return err
		}
		cleared++
	}
	if cleared == 0 {
		return Errorf(CodeTooLarge, "the account has its most API keys, %d", MaxKeysPerUser)
	}
	return nil
}

// removeKey removes an API key and all records about it.
func removeKey(tx Tx, k *APIKey) error {
	if err := signedNoMore(tx, k.ID); err != nil {
		return err
	}
	for _, gone := range []key{part(keysOf(k.Account), k.ID), useKey(useOfKey, string(k.ID)), apiKeyKey(k.ID)} {
		if err := tx.Delete(gone); err != nil {
			return err
		}
	}
	return nil
}

// RevokeKey revokes an API key, or the share whose key has the ID. If Account is set, the key
// must belong to that account. An empty Account is for the operator, who may revoke any key.
type RevokeKey struct {
	Account AccountID
	ID      KeyID
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *RevokeKey) Code(c *codec.Coder) {
	codec.String(c, &v.Account, MaxIDLen)
	codec.String(c, &v.ID, MaxIDLen)
}

var errNoKey = Errorf(CodeNotFound, "no such key")

func (v *RevokeKey) apply(tx Tx, e *entry) (Result, error) {
	k, err := get[APIKey](tx, apiKeyKey(v.ID))
	if err != nil {
		return Result{}, err
	}
	if k == nil {
		s, err := findShare(tx, v.ID)
		if err == nil && (s == nil || v.Account != "" && s.Account != v.Account) {
			err = errNoKey
		}
		if err != nil {
			return Result{}, err
		}
		return Result{}, removeShare(tx, s, e)
	}
	if v.Account != "" && k.Account != v.Account {
		return Result{}, errNoKey
	}
	e.fx.Keys = true
	return Result{}, removeKey(tx, k)
}

// Key returns an API key that was not revoked, or ErrNotFound. The caller must check whether the
// key has expired, because the state has no clock.
func (v View) Key(id KeyID) (APIKey, error) {
	if len(id) <= MaxIDLen {
		k, err := get[APIKey](v.r, apiKeyKey(id))
		if err != nil {
			return APIKey{}, err
		}
		if k != nil {
			return *k, nil
		}
	}
	return APIKey{}, errNoKey
}

// Keys returns the existing keys of an account, or of all accounts if the id is empty.
func (v View) Keys(account AccountID) ([]APIKey, error) {
	if account == "" {
		return scanAll[APIKey](v.r, table(tableKey))
	}
	var keys []APIKey
	prefix := keysOf(account)
	err := v.r.Scan(prefix, prefix.end(), false, func(k, _ []byte) (bool, error) {
		id, _, err := readPart[KeyID](k[len(prefix):])
		if err != nil {
			return false, err
		}
		found, err := v.Key(id)
		keys = append(keys, found)
		return err == nil, err
	})
	return keys, err
}
