package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// anyCredential draws a command about who may do what, or a change that a key or a session
// asks for, out of a small world.
func anyCredential(t *rapid.T, m *machine) Command {
	account := rapid.SampledFrom([]AccountID{alice, bob, bob, bob}).Draw(t, "account")
	pick := func(label, name string, n int) string { return fmt.Sprint(name, rapid.IntRange(0, n).Draw(t, label)) }
	at := func(label string) Millis { return Millis(rapid.IntRange(0, 40).Draw(t, label)) }
	key, session := KeyID(pick("key", "k", 5)), SessionID(pick("session", "s", 5))
	change := func() Command {
		pin := Pin{ID: RequestID(pick("pin", "p", 5)), Account: account, CID: rapid.SampledFrom(contents).Draw(t, "cid"), Created: 1}
		switch rapid.IntRange(0, 2).Draw(t, "change") {
		case 0:
			return &DeletePin{Account: account, ID: pin.ID}
		case 1:
			return &ReplacePin{Old: RequestID(pick("old", "p", 5)), Pin: pin, Nodes: []NodeID{"n1"}}
		}
		return &CreatePin{Pin: pin, Nodes: []NodeID{"n1", "n2"}}
	}
	switch rapid.IntRange(0, 20).Draw(t, "kind") {
	case 0, 1, 2:
		scope := rapid.SampledFrom([][]string{{ScopeRead}, {ScopeWrite}, {ScopeWrite}, nil, {"all"}}).Draw(t, "scope")
		return &CreateKey{Key: APIKey{ID: key, Account: account, Scope: scope, Created: at("created"), Expires: at("expires")}, Expired: at("expired")}
	case 3:
		return &RevokeKey{Account: rapid.SampledFrom([]AccountID{"", account}).Draw(t, "of"), ID: key}
	case 4, 5:
		return &RotateSigningKey{Sealed: []byte(rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "sealed"))}
	case 6, 7, 8:
		s := Session{ID: session, Account: account, Created: at("created"), Idle: at("idle")}
		s.Expires = s.Created + at("life")
		proof := PasswordProof(rapid.SampledFrom([]string{"", "h1", "h1", "h2"}).Draw(t, "proof"))
		return &CreateSession{Session: s, Password: proof, Over: at("over")}
	case 9:
		return &EndSession{ID: session}
	case 10:
		return &SetPassword{Account: account, Hash: rapid.SampledFrom([]string{"", "h1", "h1", "h2"}).Draw(t, "hash")}
	case 11:
		return &NoteUses{Items: []Use{{Key: key, At: at("used")}, {Session: session, At: at("used too")}}}
	case 12:
		return &ByKey{Key: key, Change: change()}
	case 13:
		return &BySession{Session: session, Change: change()}
	case 15, 16, 17, 18, 19, 20:
		return anyShare(t, m, account, key)
	}
	if rapid.IntRange(0, 9).Draw(t, "close") == 0 {
		return &CloseAccount{Account: bob}
	}
	name := Hash{byte(rapid.IntRange(0, 3).Draw(t, "request"))}
	pin := Pin{ID: RequestID(fmt.Sprint("once", m.op)), Account: account, CID: rapid.SampledFrom(contents[:2]).Draw(t, "cid"), Created: 1}
	return &CreateOnce{Key: name, Change: &CreatePin{Pin: pin, Nodes: []NodeID{"n1"}}, By: at("by") * OnceFor / 20, At: at("at") * OnceFor / 20}
}

// anyShare draws a command about shares, their buckets and what the key of a share asks for.
func anyShare(t *rapid.T, m *machine, account AccountID, key KeyID) Command {
	born := Incarnation(0)
	if b, err := findBucket(m, account, "one"); err == nil && b != nil {
		born = b.Born
	}
	id := ShareID(fmt.Sprintf("%032x", rapid.IntRange(0, 3).Draw(t, "share")))
	switch rapid.IntRange(0, 6).Draw(t, "of shares") {
	case 0:
		return &CreateBucket{Bucket{Account: account, Name: "one", Created: 1}}
	case 1:
		return &DeleteBucket{Account: account, Name: "one", Born: born}
	case 2:
		return &RevokeShare{Account: account, Bucket: "one", Born: born, ID: id}
	case 3:
		return &ByKey{Key: key, Change: &SetBucketTags{Account: account, Bucket: "one", Born: born}}
	}
	s := testShare("e/")
	s.ID, s.Account, s.Born, s.Key, s.Write = id, account, born, key, rapid.Bool().Draw(t, "write")
	return &CreateShare{Share: s}
}

// After any commands about keys, shares, sessions, passwords and signing keys, every index and counter agrees with
// the records. No key, share or session of a closed account is left.
func TestAnyHistoryOfCredentialsKeepsEveryIndexAndCounter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := rich(rt, Unlimited)
		m.must(&SetPassword{Account: bob, Hash: "h1"})
		history(rt, m, func() Command {
			m.checkCredentials()
			m.checkOnce()
			return anyCredential(rt, m)
		})
		m.checkCredentials()
		m.checkOnce()
	})
}

// wantSigned counts the keys of each generation that signs some, as part of what check wants.
func (m *machine) wantSigned(want *memory) {
	m.t.Helper()
	for _, r := range m.rows(tableMadeBy) {
		bump(m.t, want, generationKey(binary.BigEndian.Uint64([]byte(r.value))), 1)
	}
}

// checkCredentials compares the rows of keys and sessions with their records.
func (m *machine) checkCredentials() {
	m.t.Helper()
	want := newMemory()
	keys, keysErr := m.view().Keys("")
	sessions, sessionsErr := scanAll[Session](m, table(tableSession))
	signing, signingErr := m.view().SigningKeys()
	if err := errors.Join(keysErr, sessionsErr, signingErr); err != nil {
		m.t.Fatal(err)
	}
	live := func(a AccountID) {
		m.t.Helper()
		if err := liveAccount(m, a); err != nil {
			m.t.Errorf("a key or session of %s: %v", a, err)
		}
	}
	// What may be there or not is taken as it is, if the record is there.
	maybe := func(k key) {
		if v, ok, _ := m.Get(k); ok {
			set(m.t, want, k, v)
		}
	}
	for _, k := range keys {
		live(k.Account)
		set(m.t, want, part(keysOf(k.Account), k.ID), nil)
		maybe(useKey(useOfKey, string(k.ID)))
		maybe(madeByKey(k.ID))
		g, err := m.view().SignedBy(k.ID)
		if err != nil || g != 0 && !slices.ContainsFunc(signing, func(s SigningKey) bool { return s.Generation == g }) {
			m.t.Errorf("key %s is signed by %d of %v, %v", k.ID, g, signing, err)
		}
	}
	shares, err := m.view().AllShares()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, s := range shares {
		live(s.Account)
		if b, err := findBucket(m, s.Account, s.Bucket); err != nil || b == nil || b.Born != s.Born {
			m.t.Errorf("a share of the bucket %+v, %v", b, err)
		}
		if _, err := m.view().Key(s.Key); !errors.Is(err, ErrNotFound) {
			m.t.Errorf("the key of a share is an API key: %v", err)
		}
		maybe(s.key())
		set(m.t, want, shareByKey(s.Key), s.key())
		maybe(useKey(useOfKey, string(s.Key)))
		maybe(madeByKey(s.Key))
	}
	for _, s := range sessions {
		live(s.Account)
		set(m.t, want, part(sessionsOf(s.Account), s.ID), nil)
		maybe(useKey(useOfSession, string(s.ID)))
	}
	for _, t := range []byte{tableKeysOf, tableSessionsOf, tableUse, tableMadeBy, tableShare, tableShareKey} {
		compare(m.t, t, m.rows(t), want.rows(t))
	}
}

// checkOnce compares what is remembered of requests: by name, by time, and their number.
func (m *machine) checkOnce() {
	m.t.Helper()
	want := newMemory()
	for _, a := range []AccountID{alice, bob} {
		prefix := part(table(tableOnce), a).byte('k')
		err := m.Scan(prefix, prefix.end(), false, func(k, value []byte) (bool, error) {
			o, err := decode[once](value)
			if err != nil {
				return false, err
			}
			set(m.t, want, k, value)
			set(m.t, want, onceByTime(a).u64(uint64(o.Created)), k[len(prefix):])
			bump(m.t, want, onceCount(a), 1)
			return true, nil
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	compare(m.t, tableOnce, m.rows(tableOnce), want.rows(tableOnce))
}
