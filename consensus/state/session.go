package state

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// SessionID identifies a session. It is a hash of the session's token, so that a copy of
// the state, such as a backup, cannot be used as a session.
type SessionID string

// Session is the record of a signed-in client. It ends by a command, after the time Idle without
// use, or at Expires. It has all permissions of its account.
type Session struct {
	ID      SessionID
	Account AccountID
	Created Millis
	Expires Millis // latest end
	Idle    Millis // longest time without use
	// Addr is the client's address at the sign-in, and Agent a short name of the client's
	// program, such as "Firefox 140 on Linux". Both may be empty; they need feature level
	// SessionClientLevel.
	Addr, Agent string
}

// SessionClientLevel is the lowest feature level with sessions that record the address and the
// agent of their client.
const SessionClientLevel FeatureLevel = 11

// MaxAgentBytes is the largest size of Session.Agent in bytes.
const MaxAgentBytes = 96

// From returns the session with the given address and agent of the client, shortened to the
// limits of the record. Unprintable characters and invalid UTF-8 in agent become spaces.
func (v Session) From(addr, agent string) Session {
	printable := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, clip(agent, 4*MaxAgentBytes))
	v.Addr, v.Agent = clip(addr, maxAuditAddr), clip(strings.Join(strings.Fields(printable), " "), MaxAgentBytes)
	return v
}

// Code encodes or decodes the record. It writes version 2 only if Addr or Agent is set, because
// members below SessionClientLevel know only version 1.
func (v *Session) Code(c *codec.Coder) {
	version := uint64(2)
	if !c.Decoding() && v.Addr == "" && v.Agent == "" {
		version = 1
	}
	version = c.Version(version)
	codec.String(c, &v.ID, MaxIDLen)
	codec.String(c, &v.Account, MaxIDLen)
	codec.Int(c, &v.Created)
	codec.Int(c, &v.Expires)
	codec.Int(c, &v.Idle)
	if version >= 2 {
		codec.String(c, &v.Addr, maxAuditAddr)
		codec.String(c, &v.Agent, MaxAgentBytes)
	}
}

// Ended returns whether the session has ended at the time now. used is the time of its last use,
// or 0.
func (v *Session) Ended(used, now Millis) bool {
	return now >= v.Expires || now >= max(used, v.Created)+v.Idle
}

func sessionKey(id SessionID) key { return part(table(tableSession), id) }

func sessionsOf(a AccountID) key { return part(table(tableSessionsOf), a) }

// CreateSession creates a session after a sign-in with a password. Password is the PasswordProof
// at the sign-in: if the password has changed since, or if the account is disabled, the error is
// ErrUnauthorized. Apply deletes the account's expired sessions, and the least recently used one
// if the account still has MaxSessions.
type CreateSession struct {
	Session  Session
	Password Hash
	// Over is the time by which a session of the account must have ended to be deleted. The
	// proposer chooses a time that most members' clocks have passed, so that a single wrong clock
	// ends no session. 0 means to delete none.
	Over Millis
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CreateSession) Code(c *codec.Coder) {
	v.Session.Code(c)
	codec.Fixed(c, v.Password[:])
	if c.More() {
		codec.Int(c, &v.Over)
	}
}

// PasswordProof returns the value of CreateSession.Password for a password hash.
func PasswordProof(passwordHash string) Hash { return sha256.Sum256([]byte(passwordHash)) }

func (v *CreateSession) apply(tx Tx, _ *entry) (Result, error) {
	s := v.Session
	if err := s.check(); err != nil {
		return Result{}, err
	}
	account, err := get[Account](tx, accountKey(s.Account))
	if err != nil {
		return Result{}, err
	}
	if account == nil || account.PasswordHash == "" || PasswordProof(account.PasswordHash) != v.Password {
		return Result{}, ErrUnauthorized
	}
	if off, err := disabled(tx, s.Account); err != nil {
		return Result{}, err
	} else if off {
		return Result{}, ErrUnauthorized
	}
	return Result{}, addSession(tx, &s, v.Over)
}

func (v *Session) check() error {
	if v.ID == "" || len(v.ID) > MaxIDLen || v.Idle <= 0 || v.Expires <= v.Created || len(v.Addr) > maxAuditAddr || len(v.Agent) > MaxAgentBytes {
		return Errorf(CodeInvalid, "session record out of bounds")
	}
	return nil
}

// addSession writes a session of an existing account. If the same session exists already, nothing
// changes.
func addSession(tx Tx, s *Session, over Millis) error {
	old, err := get[Session](tx, sessionKey(s.ID))
	if err != nil {
		return err
	}
	if old != nil {
		if *old == *s {
			return nil
		}
		return Errorf(CodeExists, "a session with this id exists already")
	}
	if err := makeRoom(tx, s.Account, over); err != nil {
		return err
	}
	if err := tx.Set(part(sessionsOf(s.Account), s.ID), nil); err != nil {
		return err
	}
	return put(tx, sessionKey(s.ID), s)
}

// makeRoom removes the sessions of an account that have ended at the time by, and the least
// recently used one if MaxSessions remain.
func makeRoom(tx Tx, account AccountID, by Millis) error {
	all, err := sessionsIn(tx, account)
	if err != nil {
		return err
	}
	var oldest *Session
	var oldestUse Millis
	left := 0
	for i := range all {
		s := &all[i]
		used, err := lastUse(tx, useOfSession, string(s.ID))
		if err != nil {
			return err
		}
		used = max(used, s.Created)
		if s.Ended(used, by) {
			if err := removeSession(tx, s); err != nil {
				return err
			}
			continue
		}
		left++
		if oldest == nil || used < oldestUse {
			oldest, oldestUse = s, used
		}
	}
	if left < MaxSessions {
		return nil
	}
	return removeSession(tx, oldest)
}

func removeSession(tx Tx, s *Session) error {
	for _, k := range []key{sessionKey(s.ID), part(sessionsOf(s.Account), s.ID), useKey(useOfSession, string(s.ID))} {
		if err := tx.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// sessionsIn reads the sessions of an account in the order of their ids.
func sessionsIn(r Reader, account AccountID) (all []Session, err error) {
	var ids []SessionID
	prefix := sessionsOf(account)
	err = r.Scan(prefix, prefix.end(), false, func(k, _ []byte) (bool, error) {
		id, _, err := readPart[SessionID](k[len(prefix):])
		ids = append(ids, id)
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		s, err := get[Session](r, sessionKey(id))
		if err != nil {
			return nil, err
		}
		if s == nil {
			return nil, fmt.Errorf("state: a session of account %s is not on record", account)
		}
		all = append(all, *s)
	}
	return all, nil
}

// EndSession deletes a session. Errors: ErrNotFound.
type EndSession struct{ ID SessionID }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *EndSession) Code(c *codec.Coder) { codec.String(c, &v.ID, MaxIDLen) }

func (v *EndSession) apply(tx Tx, e *entry) (Result, error) {
	s, err := get[Session](tx, sessionKey(v.ID))
	if err != nil {
		return Result{}, err
	}
	if s == nil {
		return Result{}, Errorf(CodeNotFound, "no such session")
	}
	e.fx.Keys = true
	return Result{}, removeSession(tx, s)
}

// Session returns a session and the time of its last use, or ErrNotFound. The caller must check
// whether the session has ended, because the state has no clock.
func (v View) Session(id SessionID) (s Session, used Millis, err error) {
	if len(id) > MaxIDLen {
		return s, 0, Errorf(CodeNotFound, "no such session")
	}
	found, err := get[Session](v.r, sessionKey(id))
	if err != nil {
		return s, 0, err
	}
	if found == nil {
		return s, 0, Errorf(CodeNotFound, "no such session")
	}
	if used, err = lastUse(v.r, useOfSession, string(id)); err != nil {
		return s, 0, err
	}
	return *found, max(used, found.Created), nil
}

// Sessions returns the sessions of an account, including ended ones that were not deleted yet, in
// the order of their ids.
func (v View) Sessions(account AccountID) ([]Session, error) { return sessionsIn(v.r, account) }

// Kinds of used credentials. The numbers are stored: never renumber.
const (
	useOfKey     = 1
	useOfSession = 2
)

func useKey(kind byte, id string) key { return part(table(tableUse).byte(kind), id) }

func lastUse(r Reader, kind byte, id string) (Millis, error) {
	n, err := counter(r, useKey(kind, id))
	return Millis(n), err
}

// Use is the time at which a key or a session was used; exactly one of the two is set.
type Use struct {
	Key     KeyID
	Session SessionID
	At      Millis
}

// NoteUses records when keys and sessions were last used. Nodes collect uses and propose them in
// batches, so that a request causes no write. Apply ignores keys and sessions that no longer
// exist or have a later use.
type NoteUses struct{ Items []Use }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *NoteUses) Code(c *codec.Coder) {
	codec.List(c, &v.Items, MaxUses, func(c *codec.Coder, u *Use) {
		codec.String(c, &u.Key, MaxIDLen)
		codec.String(c, &u.Session, MaxIDLen)
		codec.Int(c, &u.At)
	})
}

func (v *NoteUses) apply(tx Tx, _ *entry) (Result, error) {
	for _, u := range v.Items {
		record, k := apiKeyKey(u.Key), useKey(useOfKey, string(u.Key))
		if u.Session != "" {
			record, k = sessionKey(u.Session), useKey(useOfSession, string(u.Session))
		}
		there, err := has(tx, record)
		if err == nil && !there && u.Session == "" {
			there, err = has(tx, shareByKey(u.Key))
		}
		if err != nil {
			return Result{}, err
		}
		if !there {
			continue
		}
		before, err := counter(tx, k)
		if err != nil {
			return Result{}, err
		}
		if u.At <= Millis(before) {
			continue
		}
		if err := tx.Set(k, key(nil).u64(uint64(u.At))); err != nil {
			return Result{}, err
		}
	}
	return Result{}, nil
}

// KeyUsed returns when a key was last used, with one-minute resolution. 0 means never, or before
// uses were recorded.
func (v View) KeyUsed(id KeyID) (Millis, error) { return lastUse(v.r, useOfKey, string(id)) }

// BySession wraps a change that a signed-in client has requested, as ByKey does for an API key.
type BySession struct {
	Session SessionID
	Change  Command // a change that Asked accepts
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *BySession) Code(c *codec.Coder) {
	codec.String(c, &v.Session, MaxIDLen)
	codeChange(c, &v.Change)
}

func (v *BySession) apply(tx Tx, e *entry) (Result, error) {
	if err := v.judge(tx); err != nil {
		return Result{}, err
	}
	return v.Change.apply(tx, e)
}

// judge returns ErrUnauthorized if the session does not exist or belongs to another account. The
// proposing node checks whether the session has ended.
func (v *BySession) judge(r Reader) error {
	s, err := get[Session](r, sessionKey(v.Session))
	if err != nil {
		return err
	}
	if _, account := asked(v.Change); s == nil || s.Account != account {
		return ErrUnauthorized
	}
	return nil
}

// MaxSigningKeys is the largest number of signing keys that a cluster has at once: the first, the
// newest, and those that have signed an existing API key or share.
const MaxSigningKeys = 16

// SigningKey is a key that signs API keys, encrypted like Cluster.SealedSigningKey. The key in
// Cluster is generation 0; each rotation adds the next generation.
type SigningKey struct {
	Generation uint64
	Sealed     []byte
}

// signingKeys has the signing keys of generations above 0, oldest first.
type signingKeys struct{ Items []SigningKey }

// Code encodes the record, or decodes it if c is a decoder.
func (v *signingKeys) Code(c *codec.Coder) {
	c.Version(1)
	codec.List(c, &v.Items, MaxSigningKeys, func(c *codec.Coder, k *SigningKey) {
		codec.Uint(c, &k.Generation)
		codec.Bytes(c, &k.Sealed, MaxAddrLen)
	})
}

var signingKey = metaKey("signing")

// generationKey returns the key of the counter of existing API keys that generation g has signed.
// madeByKey returns the key of the row with the generation that has signed an API key. Neither
// row exists for generation 0.
func generationKey(g uint64) key { return metaKey("signed").u64(g) }

func madeByKey(id KeyID) key { return part(table(tableMadeBy), id) }

func readSigningKeys(r Reader) (*signingKeys, error) {
	found, err := get[signingKeys](r, signingKey)
	if err != nil || found != nil {
		return found, err
	}
	return new(signingKeys), nil
}

// RotateSigningKey adds a new key with which the cluster signs later API keys. Existing API keys
// remain valid with the signing key that has signed them. Signing keys of generations above 0
// that have no existing API key or share are removed.
//
// Errors: ErrInvalid; ErrTooLarge if there are MaxSigningKeys signing keys that must be kept.
type RotateSigningKey struct{ Sealed []byte }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *RotateSigningKey) Code(c *codec.Coder) { codec.Bytes(c, &v.Sealed, MaxAddrLen) }

func (v *RotateSigningKey) apply(tx Tx, _ *entry) (Result, error) {
	if len(v.Sealed) == 0 {
		return Result{}, Errorf(CodeInvalid, "no signing key")
	}
	keys, err := readSigningKeys(tx)
	if err != nil {
		return Result{}, err
	}
	var next uint64 = 1
	if n := len(keys.Items); n > 0 {
		next = keys.Items[n-1].Generation + 1
		if slices.Equal(keys.Items[n-1].Sealed, v.Sealed) {
			return Result{}, nil
		}
	}
	var kept []SigningKey
	for _, k := range keys.Items {
		live, err := counter(tx, generationKey(k.Generation))
		if err != nil {
			return Result{}, err
		}
		if live > 0 {
			kept = append(kept, k)
		}
	}
	if len(kept)+2 > MaxSigningKeys {
		return Result{}, Errorf(CodeTooLarge, "the cluster has its most signing keys, %d, and each one from a rotation has signed API keys or shares that still exist: "+
			"revoke all API keys and shares that were created between two successive rotations, and rotate again", MaxSigningKeys)
	}
	keys.Items = append(kept, SigningKey{Generation: next, Sealed: v.Sealed})
	return Result{}, put(tx, signingKey, keys)
}

// signWith records that the newest signing key signs a new API key.
func signWith(tx Tx, id KeyID) error {
	keys, err := readSigningKeys(tx)
	if err != nil || len(keys.Items) == 0 {
		return err
	}
	g := keys.Items[len(keys.Items)-1].Generation
	if err := tx.Set(madeByKey(id), key(nil).u64(g)); err != nil {
		return err
	}
	return count(tx, generationKey(g), 1)
}

// signedNoMore removes the record of which generation has signed an API key, because the key is
// being revoked.
func signedNoMore(tx Tx, id KeyID) error {
	g, err := counter(tx, madeByKey(id))
	if err != nil || g == 0 {
		return err
	}
	if err := tx.Delete(madeByKey(id)); err != nil {
		return err
	}
	return count(tx, generationKey(g), -1)
}

// SigningKeys returns the signing keys of generations above 0, oldest first.
func (v View) SigningKeys() ([]SigningKey, error) {
	keys, err := readSigningKeys(v.r)
	if err != nil {
		return nil, err
	}
	return keys.Items, nil
}

// SignedBy returns the generation of the signing key that signs an API key or the key of a share.
func (v View) SignedBy(id KeyID) (uint64, error) { return counter(v.r, madeByKey(id)) }
