package state

import (
	"errors"
	"testing"
)

// Fixed rows of a state have the fixed hash below. Members of two releases compare their hashes.
func TestHashOfAStateKeepsItsForm(t *testing.T) {
	m := newMemory()
	for _, r := range []row{{"\x00applied", "local"}, {"a", "1"}, {"b", ""}, {"ba", "\x00\x01"}} {
		if err := m.Set([]byte(r.key), []byte(r.value)); err != nil {
			t.Fatal(err)
		}
	}
	const want = "61efb6ba9fb1d8f7eb5551145f00085855568a9e5da7e7f34b0d9e24a389113d"
	if got := hashOf(t, m); got.String() != want {
		t.Errorf("hash %s, want %s", got, want)
	}
}

func hashOf(t reporter, m *memory) Hash {
	t.Helper()
	h, err := HashOf(m, func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Every difference of keys, values or rows changes the hash of a state, except in rows that are a node's own.
func TestAnyDifferenceOfStatesShowsInTheHash(t *testing.T) {
	base := func() *memory {
		m := newMemory()
		_ = m.Set([]byte("ab"), []byte("cd"))
		_ = m.Set([]byte("x"), []byte("y"))
		return m
	}
	first := hashOf(t, base())
	for name, change := range map[string]func(m *memory) error{
		"value":                  func(m *memory) error { return m.Set([]byte("ab"), []byte("ce")) },
		"key":                    func(m *memory) error { return errors.Join(m.Delete([]byte("x")), m.Set([]byte("z"), []byte("y"))) },
		"one more":               func(m *memory) error { return m.Set([]byte("zz"), nil) },
		"one less":               func(m *memory) error { return m.Delete([]byte("x")) },
		"byte from value to key": func(m *memory) error { return errors.Join(m.Delete([]byte("ab")), m.Set([]byte("abc"), []byte("d"))) },
	} {
		m := base()
		if err := change(m); err != nil {
			t.Fatal(err)
		}
		if hashOf(t, m) == first {
			t.Errorf("%s: the same hash", name)
		}
	}
	local := base()
	_ = local.Set([]byte{0x00}, []byte("another index"))
	if hashOf(t, local) != first {
		t.Error("what is a node's own shows in the hash")
	}
}

// HashOf reports at least the bytes of all values to its callback, and ends with the first error of the callback.
func TestHashingIsPacedAndCanBeStopped(t *testing.T) {
	m := newMemory()
	value := make([]byte, hashBuffer/2)
	for i := range 9 {
		_ = m.Set([]byte{'k', byte(i)}, value)
	}
	var told int
	if _, err := HashOf(m, func(n int) error { told += n; return nil }); err != nil || told < 9*len(value) {
		t.Errorf("told of %d bytes, %v", told, err)
	}
	stop, calls := errors.New("stop"), 0
	_, err := HashOf(m, func(int) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// UnmarshalText reads the hash that MarshalText wrote, and rejects a text of another length or with another
// character.
func TestHashIsReadBackFromItsText(t *testing.T) {
	want := hashOf(t, newMemory())
	text, err := want.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var got Hash
	if err := got.UnmarshalText(text); err != nil || got != want {
		t.Errorf("%s came back as %s, %v", want, got, err)
	}
	for _, bad := range []string{"", "ab", string(text[:63]) + "x", string(text) + "00"} {
		if got.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q is taken for a hash", bad)
		}
	}
}
