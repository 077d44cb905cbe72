package state

import (
	"errors"
	"fmt"
	"testing"
)

// A CreateOnce with a name of the last OnceFor returns the pin of the first one and creates none. Another pin
// under the name is ErrExists. Names are the account's own, and a rejected request is not remembered.
func TestARepeatedRequestIsAnsweredAsTheFirstTime(t *testing.T) {
	m := found(t)
	m.must(&CreateKey{Key: APIKey{ID: "k", Account: alice, Scope: []string{ScopeWrite}, Created: 1}})
	ask := func(name byte, id RequestID, content string, at Millis) *CreateOnce {
		c := create(alice, id, content)
		c.Pin.Created, c.Pin.Meta = at, map[string]string{"a": "b"}
		return &CreateOnce{Key: Hash{name}, Change: c, By: at, At: at}
	}
	first, err := m.apply(ask(1, "p1", contentA, 100))
	if err != nil || first.Pin.ID != "p1" {
		t.Fatalf("%+v, %v", first.Pin, err)
	}
	again := func(why string, cmd *CreateOnce) {
		t.Helper()
		got, err := m.apply(cmd)
		if err != nil || fmt.Sprint(*got.Pin) != fmt.Sprint(*first.Pin) {
			t.Errorf("%s: %+v, %v, want %+v", why, got.Pin, err, first.Pin)
		}
	}
	again("at once", ask(1, "p2", contentA, 101))
	again("just in time", ask(1, "p2", contentA, 99+OnceFor))
	by := ask(1, "p2", contentA, 102)
	by.Change = &ByKey{Key: "k", Change: by.Change}
	again("by a key", by)
	m.must(&DeletePin{Account: alice, ID: "p1"})
	again("when it was deleted", ask(1, "p2", contentA, 103))
	if m.status(alice, "p1") != "gone" || m.status(alice, "p2") != "gone" {
		t.Error("a repeat has made a pin")
	}

	if _, err := m.apply(ask(1, "p2", contentB, 104)); !errors.Is(err, ErrExists) {
		t.Errorf("another pin under the same name: %v", err)
	}
	by.Change.(*ByKey).Key = "revoked"
	if _, err := m.apply(by); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("a repeat by nobody: %v", err)
	}
	bobs := ask(1, "p3", contentB, 105)
	bobs.Change.(*CreatePin).Pin.Account = bob
	if got, err := m.apply(bobs); err != nil || got.Pin.ID != "p3" {
		t.Errorf("the name of another account: %+v, %v", got.Pin, err)
	}
	// What was refused is not remembered.
	bad := ask(2, "p4", contentB, 106)
	bad.Change.(*CreatePin).Pin.CID = "no cid"
	if _, err := m.apply(bad); !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
	if got, err := m.apply(ask(2, "p4", contentB, 107)); err != nil || got.Pin.ID != "p4" {
		t.Errorf("after a refusal: %+v, %v", got.Pin, err)
	}
	// A day later the name is free.
	if got, err := m.apply(ask(1, "p5", contentB, 100+OnceFor)); err != nil || got.Pin.ID != "p5" {
		t.Errorf("a day later: %+v, %v", got.Pin, err)
	}
	m.check()
}

// The state remembers at most MaxOnce requests of an account, and one command forgets at most maxOnceForget old
// ones.
func TestRememberedRequestsAreBounded(t *testing.T) {
	m := found(t)
	const more = 20
	for i := range MaxOnce + more {
		c := create(alice, RequestID(fmt.Sprint("p", i)), contentA)
		c.Pin.Created = 1
		m.must(&CreateOnce{Key: Hash{byte(i), byte(i >> 8)}, Change: c})
		m.must(&DeletePin{Account: alice, ID: c.Pin.ID})
	}
	count := func() uint64 {
		n, err := counter(m, onceCount(alice))
		if err != nil || uint64(len(m.rows(tableOnce))) != 2*n+1 {
			t.Fatalf("%d counted, %v, %d rows", n, err, len(m.rows(tableOnce)))
		}
		return n
	}
	if n := count(); n != MaxOnce {
		t.Errorf("%d remembered", n)
	}
	late := create(alice, "late", contentA)
	m.must(&CreateOnce{Key: Hash{0xff, 0xff}, Change: late, By: 1 << 40, At: 1 << 40})
	if n := count(); n != MaxOnce-maxOnceForget+1 {
		t.Errorf("%d remembered a day later", n)
	}
}

// A request through a node with a wrong clock is remembered for a day by the clocks of most members. It has no
// younger request forgotten.
func TestOneWrongClockForgetsNoRequest(t *testing.T) {
	const now = 1 << 40
	m := found(t)
	ask := func(name byte, id RequestID, own, by, at Millis) (RequestID, error) {
		c := create(alice, id, contentA)
		c.Pin.Created = own
		got, err := m.apply(&CreateOnce{Key: Hash{name}, Change: c, By: by, At: at})
		if err != nil {
			return "", err
		}
		return got.Pin.ID, nil
	}
	for _, tc := range []struct {
		what        string
		name        byte
		id          RequestID
		own, by, at Millis // the node's clock, and what most say
		want        RequestID
	}{
		{"by a clock that is right", 1, "p1", now, now, now, "p1"},
		{"by one that is behind", 2, "p2", 1, now + 1, now + 1, "p2"},
		{"by one that is ahead", 3, "p3", now + 5*OnceFor, now + 2, now + 2, "p3"},
		{"again, by one that is ahead", 1, "x", now + 5*OnceFor, now + 3, now + 3, "p1"},
		{"again, from one that was behind", 2, "x", now + 4, now + 4, now + 4, "p2"},
		{"again, while nobody knows", 1, "x", now + 5*OnceFor, 0, 0, "p1"},
		{"another one, while nobody knows", 4, "p4", now + 5*OnceFor, 0, 0, "p4"},
		{"again, one that came while nobody knew", 4, "x", now, now + 4, now + 4, "p4"},
		{"just in time", 1, "x", now, now + OnceFor - 1, now + OnceFor - 1, "p1"},
		{"a day later", 1, "p5", now, now + OnceFor, now + OnceFor, "p5"},
		{"while one is silent and another behind", 5, "p7", 1, 1, now + OnceFor, "p7"},
		{"once all are heard again", 5, "x", now + OnceFor, now + OnceFor, now + OnceFor, "p7"},
		{"a day after it came by one that is ahead", 3, "p6", now, now + 2 + OnceFor, now + 2 + OnceFor, "p6"},
	} {
		if got, err := ask(tc.name, tc.id, tc.own, tc.by, tc.at); err != nil || got != tc.want {
			t.Errorf("%s: %s, %v, want %s", tc.what, got, err, tc.want)
		}
	}
	m.check()
}
