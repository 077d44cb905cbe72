package state

import (
	"bytes"
	"testing"
)

// reread is the bucket as it is now.
func (s *shelf) reread() Bucket {
	s.t.Helper()
	b, err := s.view().Bucket(s.b.Account, s.b.Name)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// TestVersionsWithoutAHashAreMarked until somebody tells it, or they go.
func TestVersionsWithoutAHashAreMarked(t *testing.T) {
	s := shelved(t, Unlimited)
	sum := bytes.Repeat([]byte{7}, Blake3Bytes)
	left := func(want ...VersionID) {
		t.Helper()
		s.check()
		n, err := s.view().UnhashedCount()
		if err != nil || n != uint64(len(want)) {
			t.Errorf("%d versions have no hash, want %d, %v", n, len(want), err)
		}
		var after []byte
		for i := 0; ; i++ { // in pages of one
			page, next, err := s.view().Unhashed(after, 1)
			if err != nil || len(page) > 1 || len(page) == 1 && (i >= len(want) || page[0].Object.ID != want[i]) {
				t.Fatalf("%+v, %v, want %q", page, err, want)
			}
			if after = next; after == nil {
				return
			}
		}
	}
	tell := func(k string, id VersionID) *SetObjectHash {
		t.Helper()
		o, err := s.view().Object(&s.b, k)
		if err != nil {
			t.Fatal(err)
		}
		return &SetObjectHash{Account: bob, Born: s.b.Born, Key: k, ID: id, Root: o.Root, Blake3: sum}
	}
	known := s.putOf("known", "v0", contents[1])
	known.Object.Blake3 = sum
	s.must(known)
	left()
	s.must(s.putOf("a", "v1", contents[1]))
	s.must(s.putOf("b", "v2", contents[2]))
	left("v1", "v2")

	first := tell("a", "v1")
	s.refused(&SetObjectHash{Account: bob, Born: s.b.Born, Key: "a", ID: "v1", Root: first.Root, Blake3: sum[1:]}, ErrInvalid)
	other := *first
	other.Root = tell("b", "v2").Root
	s.refused(&other, ErrInvalid)
	for _, nobody := range []SetObjectHash{
		{Account: alice, Born: s.b.Born, Key: "a", ID: "v1"}, {Account: bob, Born: s.b.Born + 1, Key: "a", ID: "v1"},
		{Account: bob, Born: s.b.Born, Key: "a", ID: "v0"}, {Account: bob, Born: s.b.Born, Key: "b", ID: "v1"},
	} {
		nobody.Root, nobody.Blake3 = first.Root, bytes.Repeat([]byte{8}, Blake3Bytes)
		s.must(&nobody)
	}
	left("v1", "v2")
	before, err := s.view().Object(&s.b, "a")
	if err != nil {
		t.Fatal(err)
	}
	s.must(first)
	late := *first
	late.Blake3 = bytes.Repeat([]byte{8}, Blake3Bytes)
	s.must(&late) // another node has been at it too
	left("v2")
	o, err := s.view().Object(&s.b, "a")
	if err != nil || !bytes.Equal(o.Blake3, sum) || o.ID != before.ID || o.Created != before.Created {
		t.Errorf("%+v, %v", o, err)
	}
	// A copy whose proposer did not see the hash yet has it all the same.
	copied := &CopyObject{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Object: before, SourceBucket: s.b.Name, SourceBorn: s.b.Born, SourceKey: "a", SourceID: "v1"}
	copied.Object.Key, copied.Object.ID = "copy", "v3"
	s.must(copied)
	left("v2")
	gone := tell("b", "v2")
	s.must(s.putOf("b", "v4", contents[3]))
	left("v4")
	s.must(gone)
	left("v4")
	s.must(&DeleteObjects{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Keys: []string{"b"}})
	left()
	// A version that is not current has its hash told too.
	s.must(&SetVersioning{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Versioning: Versioned})
	s.b = s.reread()
	s.must(s.putOf("old", "v6", contents[1]))
	was := tell("old", "v6")
	s.must(s.putOf("old", "v7", contents[2]))
	left("v6", "v7")
	s.must(was)
	left("v7")
	if o, err := s.view().Version(&s.b, "old", "v6"); err != nil || !bytes.Equal(o.Blake3, sum) {
		t.Errorf("%+v, %v", o, err)
	}
	s.must(tell("old", "v7"))
	left()
	// Versions of two keys are two, also if a proposer should call them alike.
	s.must(s.putOf("one", "v8", contents[1]))
	s.must(s.putOf("two", "v8", contents[2]))
	left("v8", "v8")
	s.must(tell("one", "v8"))
	left("v8")
	s.must(tell("two", "v8"))
	left()
	s.must(s.putOf("c", "v5", contents[3]))
	s.must(&CloseAccount{Account: bob})
	s.must(&ClearAccounts{Accounts: []AccountID{bob}})
	if n, err := s.view().UnhashedCount(); err != nil || n != 0 || len(s.rows(tableUnhashed)) != 0 {
		t.Errorf("%d versions of a closed account, %v", n, err)
	}
}
