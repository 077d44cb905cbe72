package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// signedIn returns a machine whose account alice has a password.
func signedIn(t *testing.T) *machine {
	t.Helper()
	m := &machine{memory: newMemory(), t: t}
	m.must(&InitCluster{
		Cluster:  Cluster{ID: "c", Replication: 3, WriteCopies: 1, Operator: alice},
		Node:     Node{ID: "n1", FeatureLevel: NewestFeatureLevel},
		Operator: Account{ID: alice, Email: "alice@example.org", PasswordHash: "hash"},
	})
	m.must(&CreateAccount{Account: Account{ID: bob, Email: "bob@example.org"}})
	return m
}

func session(id SessionID, created Millis) *CreateSession {
	return &CreateSession{
		Session:  Session{ID: id, Account: alice, Created: created, Expires: created + 1000, Idle: 100},
		Password: PasswordProof("hash"),
	}
}

func (m *machine) sessions() (ids []SessionID) {
	m.t.Helper()
	all, err := m.view().Sessions(alice)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

// A session begins only with the present password of its account, and leaves no row when it has ended.
func TestSessionsBeginByThePasswordAndEndForGood(t *testing.T) {
	m := signedIn(t)
	m.must(session("s1", 10))
	m.must(session("s1", 10)) // the same again
	m.must(session("s2", 11))
	other := session("s1", 10)
	other.Session.Idle++
	bobs := session("s3", 10)
	bobs.Session.Account = bob // who has no password
	changed := session("s3", 10)
	changed.Password = PasswordProof("another")
	endless := session("s3", 10)
	endless.Session.Expires = 10
	before := m.rows()
	for name, tc := range map[string]struct {
		cmd  Command
		want error
	}{
		"the id of another":      {other, ErrExists},
		"no password":            {bobs, ErrUnauthorized},
		"a password changed":     {changed, ErrUnauthorized},
		"over as it begins":      {endless, ErrInvalid},
		"no id":                  {session("", 10), ErrInvalid},
		"the end of what is not": {&EndSession{ID: "s9"}, ErrNotFound},
	} {
		if _, err := m.apply(tc.cmd); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !slices.Equal(m.rows(), before) {
		t.Error("what was refused has changed something")
	}
	m.must(&NoteUses{Items: []Use{{Session: "s1", At: 50}, {Session: "s9", At: 50}, {Key: "no key", At: 50}}})
	m.must(&NoteUses{Items: []Use{{Session: "s1", At: 40}}})
	if s, used, err := m.view().Session("s1"); err != nil || used != 50 || s.Ended(used, 149) || !s.Ended(used, 150) || !s.Ended(1000, 1010) {
		t.Errorf("%+v, used %d, %v", s, used, err)
	}
	if _, used, err := m.view().Session("s2"); err != nil || used != 11 {
		t.Errorf("never used: %d, %v", used, err)
	}
	m.must(&EndSession{ID: "s1"})
	if _, err := m.apply(&EndSession{ID: "s1"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("the second end: %v", err)
	}
	m.must(&EndSession{ID: "s2"})
	if left := m.rows(tableSession, tableSessionsOf, tableUse); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A session above MaxSessions takes the place of the one that was used least recently, and sessions that are over
// go.
func TestSessionsOfAnAccountAreBounded(t *testing.T) {
	m := signedIn(t)
	for i := range MaxSessions {
		m.must(session(SessionID(fmt.Sprintf("s%03d", i)), Millis(10+i/50)))
	}
	m.must(&NoteUses{Items: []Use{{Session: "s000", At: 60}}})
	m.must(session("new", 62))
	got := m.sessions()
	if len(got) != MaxSessions || !slices.Contains(got, "s000") || slices.Contains(got, "s001") || !slices.Contains(got, "new") {
		t.Errorf("%d sessions: %v", len(got), got)
	}
	late := session("late", 115) // all that began at 10 and 11 and were not used are over
	late.Over = 115
	m.must(late)
	if got := m.sessions(); !slices.Equal(got, []SessionID{"new", "late", "s000"}) {
		t.Errorf("left: %v", got)
	}
}

// A session that begins through a node with a wrong clock ends none that is good by most clocks. While nobody
// knows what most clocks say, it ends none at all.
func TestOneWrongClockEndsNoSession(t *testing.T) {
	m := signedIn(t)
	m.must(session("old", 10))
	m.must(session("young", 60))
	ahead := session("ahead", 1<<42)
	m.must(ahead)
	if got := m.sessions(); len(got) != 3 {
		t.Errorf("left while nobody knows: %v", got)
	}
	for _, tc := range []struct {
		id   SessionID
		by   Millis
		left []SessionID
	}{
		{"a", 109, []SessionID{"a", "ahead", "old", "young"}},
		{"b", 110, []SessionID{"a", "ahead", "b", "young"}},
		{"c", 160, []SessionID{"a", "ahead", "b", "c"}},
	} {
		s := session(tc.id, 1<<42)
		s.Over = tc.by
		m.must(s)
		got := m.sessions()
		if slices.Sort(got); !slices.Equal(got, tc.left) {
			t.Errorf("left by %d: %v", tc.by, got)
		}
	}
}

// Only a session of the account that has not ended changes its pins; any other gets ErrUnauthorized.
func TestOnlyALivingSessionOfTheAccountChangesItsPins(t *testing.T) {
	m := signedIn(t)
	m.must(session("s1", 10))
	pin := create(alice, "p1", contentA)
	pin.Nodes = []NodeID{"n1"}
	foreign := create(bob, "p2", contentA)
	foreign.Nodes = []NodeID{"n1"}
	for name, by := range map[string]*BySession{
		"another's pins": {Session: "s1", Change: foreign},
		"unknown":        {Session: "s2", Change: pin},
		"none":           {Change: pin},
	} {
		if _, err := m.apply(by); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.must(&BySession{Session: "s1", Change: pin})
	m.must(&EndSession{ID: "s1"})
	if _, err := m.apply(&BySession{Session: "s1", Change: &DeletePin{Account: alice, ID: "p1"}}); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("after its end: %v", err)
	}
	if m.status(alice, "p1") != "queued" {
		t.Error("a session that has ended deleted a pin")
	}
}

// A rotation removes the old signing keys of which no API key is left, and is ErrTooLarge above MaxSigningKeys.
func TestSigningKeysStayWhileTheirKeysLive(t *testing.T) {
	m := signedIn(t)
	key := func(id KeyID) {
		m.must(&CreateKey{Key: APIKey{ID: id, Account: alice, Scope: []string{ScopeRead}, Created: 1}})
	}
	want := func(generations ...uint64) {
		t.Helper()
		keys, err := m.view().SigningKeys()
		var got []uint64
		for _, k := range keys {
			got = append(got, k.Generation)
		}
		if err != nil || !slices.Equal(got, generations) {
			t.Errorf("generations %v, %v, want %v", got, err, generations)
		}
	}
	signed := func(id KeyID, want uint64) {
		t.Helper()
		if g, err := m.view().SignedBy(id); g != want || err != nil {
			t.Errorf("%s is signed by %d, %v, want %d", id, g, err, want)
		}
	}
	key("k0")
	m.must(&RotateSigningKey{Sealed: []byte("one")})
	m.must(&RotateSigningKey{Sealed: []byte("one")}) // the same again
	key("k1")
	m.must(&RotateSigningKey{Sealed: []byte("two")})
	key("k2")
	want(1, 2)
	signed("k0", 0)
	signed("k1", 1)
	signed("k2", 2)
	m.must(&RevokeKey{ID: "k1"})
	m.must(&RotateSigningKey{Sealed: []byte("three")}) // the first has no key any more
	want(2, 3)
	signed("k1", 0)
	for i := range MaxSigningKeys {
		key(KeyID(fmt.Sprintf("more%d", i)))
		_, err := m.apply(&RotateSigningKey{Sealed: []byte(fmt.Sprint(i))})
		if full := i >= MaxSigningKeys-3; full != errors.Is(err, ErrTooLarge) || !full && err != nil {
			t.Errorf("rotation %d: %v", i, err)
		}
	}
	if _, err := m.apply(&RotateSigningKey{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no key: %v", err)
	}
	keys, err := m.view().Keys(alice)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		m.must(&RevokeKey{ID: k.ID})
	}
	m.must(&RotateSigningKey{Sealed: []byte("last")})
	if keys, err := m.view().SigningKeys(); err != nil || len(keys) != 1 || len(m.rows(tableMadeBy)) != 0 {
		t.Errorf("without keys: %v, %v", keys, err)
	}
}

// expiringKey makes a key through a node whose clock is years ahead of everybody's.
func expiringKey(id KeyID, by, expires Millis) *CreateKey {
	return &CreateKey{Key: APIKey{ID: id, Account: alice, Scope: []string{ScopeRead}, Created: 1 << 42, Expires: expires}, Expired: by}
}

// A new key of a full account takes the place of keys that have expired by most clocks, and of no other key. One
// entry removes at most maxClearedKeys of them, with all that is kept of them.
func TestExpiredKeysMakeRoom(t *testing.T) {
	m := signedIn(t)
	const gone = maxClearedKeys + 10 // keys that expire at 100
	for i := range MaxKeysPerUser {
		expires := Millis(0)
		switch {
		case i < gone:
			expires = 100
		case i == gone:
			expires = 101
		}
		if m.must(expiringKey(KeyID(fmt.Sprintf("k%03d", i)), 1, expires)); i == 3 {
			m.must(&RotateSigningKey{Sealed: []byte("sealed")})
		}
	}
	m.must(&NoteUses{Items: []Use{{Key: "k000", At: 50}, {Key: "k999", At: 50}}})
	left := func() int {
		t.Helper()
		keys, err := m.view().Keys(alice)
		if err != nil {
			t.Fatal(err)
		}
		return len(keys)
	}
	m.refused(expiringKey("early", 99, 0), ErrTooLarge)
	m.refused(expiringKey("nobody knows", 0, 0), ErrTooLarge)
	m.must(expiringKey("n0", 100, 0))
	if got := left(); got != MaxKeysPerUser-maxClearedKeys+1 {
		t.Fatalf("%d keys are left", got)
	}
	if _, err := m.view().Key("k000"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the first that expired: %v", err)
	}
	m.must(expiringKey("n0", 100, 0)) // the same again
	for i := range maxClearedKeys - 1 {
		m.must(expiringKey(KeyID(fmt.Sprintf("m%d", i)), 100, 0))
	}
	m.must(expiringKey("n1", 100, 0))
	if got := left(); got != MaxKeysPerUser-10+1 {
		t.Fatalf("%d keys are left", got)
	}
	for i := range 9 {
		m.must(expiringKey(KeyID(fmt.Sprintf("o%d", i)), 100, 0))
	}
	m.refused(expiringKey("last", 100, 0), ErrTooLarge)
	m.must(expiringKey("last", 101, 0))
	m.refused(expiringKey("one more", 1<<40, 0), ErrTooLarge)
	for name, table := range map[string]byte{"of accounts": tableKeysOf, "records": tableKey} {
		if got := len(m.rows(table)); got != MaxKeysPerUser {
			t.Errorf("%d keys %s", got, name)
		}
	}
	if uses := m.rows(tableUse); len(uses) != 1 {
		t.Errorf("%d uses are left", len(uses))
	}
	if signed, err := counter(m.view().r, generationKey(1)); err != nil || int(signed) != len(m.rows(tableMadeBy)) {
		t.Errorf("%d keys signed by the second signing key, %d on record: %v", signed, len(m.rows(tableMadeBy)), err)
	}
}

// A session keeps the client's address and agent as printable text within their bounds, cut between characters.
func TestASessionSaysFromWhereItBegan(t *testing.T) {
	m := signedIn(t)
	for given, want := range map[string]string{
		"Firefox 140 on Linux":                  "Firefox 140 on Linux",
		"":                                      "",
		" a\r\n\tb\x00\x1b[31m c ":              "a b [31m c",
		"a\xffb\u202ec":                         "a b c",
		strings.Repeat("ä", MaxAgentBytes):      strings.Repeat("ä", MaxAgentBytes/2),
		strings.Repeat("\x01", 5*MaxAgentBytes): "",
	} {
		begin := session("s", 10)
		begin.Session = begin.Session.From(strings.Repeat("1", 100), given)
		if got := begin.Session; got.Agent != want || len(got.Addr) != maxAuditAddr {
			t.Errorf("%q became %q from %q", given, got.Agent, got.Addr)
		}
		m.must(begin)
		if got, _, err := m.view().Session("s"); err != nil || got != begin.Session {
			t.Errorf("%+v, %v", got, err)
		}
		m.must(&EndSession{ID: "s"})
	}
	long := session("s", 10)
	long.Session.Agent = strings.Repeat("a", MaxAgentBytes+1)
	m.refused(long, ErrInvalid)
}
