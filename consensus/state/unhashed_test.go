package state

import (
	"bytes"
	"testing"
)

// reread returns the bucket as it is now.
func (s *shelf) reread() Bucket {
	s.t.Helper()
	b, err := s.view().Bucket(s.b.Account, s.b.Name)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// left tells which versions have no hash.
func (s *shelf) left(want ...VersionID) {
	s.t.Helper()
	s.check()
	n, err := s.view().UnhashedCount()
	if err != nil || n != uint64(len(want)) {
		s.t.Errorf("%d versions have no hash, want %d, %v", n, len(want), err)
	}
	var after []byte
	for i := 0; ; i++ { // in pages of one
		page, next, err := s.view().Unhashed(after, 1)
		if err != nil || len(page) > 1 || len(page) == 1 && (i >= len(want) || page[0].Object.ID != want[i]) {
			s.t.Fatalf("%+v, %v, want %q", page, err, want)
		}
		if after = next; after == nil {
			return
		}
	}
}

// tell returns the command that says the hash of the current version of a key.
func (s *shelf) tell(k string, id VersionID, sum []byte) *SetObjectHash {
	s.t.Helper()
	o, err := s.view().Object(&s.b, k)
	if err != nil {
		s.t.Fatal(err)
	}
	return &SetObjectHash{Account: bob, Born: s.b.Born, Key: k, ID: id, Root: o.Root, Blake3: sum}
}

// A version without a BLAKE3 hash is listed until SetObjectHash gives it one, or until the version goes. A hash of
// another length or content is rejected, and a second one changes nothing.
func TestVersionsWithoutAHashAreMarked(t *testing.T) {
	s := shelved(t, Unlimited)
	sum := bytes.Repeat([]byte{7}, Blake3Bytes)
	known := s.putOf("known", "v0", contents[1])
	known.Object.Blake3 = sum
	s.must(known)
	s.left()
	s.must(s.putOf("a", "v1", contents[1]))
	s.must(s.putOf("b", "v2", contents[2]))
	s.left("v1", "v2")

	first := s.tell("a", "v1", sum)
	s.refused(&SetObjectHash{Account: bob, Born: s.b.Born, Key: "a", ID: "v1", Root: first.Root, Blake3: sum[1:]}, ErrInvalid)
	other := *first
	other.Root = s.tell("b", "v2", sum).Root
	s.refused(&other, ErrInvalid)
	for _, nobody := range []SetObjectHash{
		{Account: alice, Born: s.b.Born, Key: "a", ID: "v1"},
		{Account: bob, Born: s.b.Born + 1, Key: "a", ID: "v1"},
		{Account: bob, Born: s.b.Born, Key: "a", ID: "v0"},
		{Account: bob, Born: s.b.Born, Key: "b", ID: "v1"},
	} {
		nobody.Root, nobody.Blake3 = first.Root, bytes.Repeat([]byte{8}, Blake3Bytes)
		s.must(&nobody)
	}
	s.left("v1", "v2")
	before, err := s.view().Object(&s.b, "a")
	if err != nil {
		t.Fatal(err)
	}
	s.must(first)
	late := *first
	late.Blake3 = bytes.Repeat([]byte{8}, Blake3Bytes)
	s.must(&late) // another node has been at it too
	s.left("v2")
	o, err := s.view().Object(&s.b, "a")
	if err != nil || !bytes.Equal(o.Blake3, sum) || o.ID != before.ID || o.Created != before.Created {
		t.Errorf("%+v, %v", o, err)
	}
	// A copy whose proposer did not see the hash yet has it all the same.
	copied := &CopyObject{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Object: before, SourceBucket: s.b.Name, SourceBorn: s.b.Born, SourceKey: "a", SourceID: "v1"}
	copied.Object.Key, copied.Object.ID = "copy", "v3"
	s.must(copied)
	s.left("v2")
	gone := s.tell("b", "v2", sum)
	s.must(s.putOf("b", "v4", contents[3]))
	s.left("v4")
	s.must(gone)
	s.left("v4")
	s.must(&DeleteObjects{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Keys: []string{"b"}})
	s.left()
	// A version that is not current has its hash told too.
	s.must(&SetVersioning{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Versioning: Versioned})
	s.b = s.reread()
	s.must(s.putOf("old", "v6", contents[1]))
	was := s.tell("old", "v6", sum)
	s.must(s.putOf("old", "v7", contents[2]))
	s.left("v6", "v7")
	s.must(was)
	s.left("v7")
	if o, err := s.view().Version(&s.b, "old", "v6"); err != nil || !bytes.Equal(o.Blake3, sum) {
		t.Errorf("%+v, %v", o, err)
	}
	s.must(s.tell("old", "v7", sum))
	s.left()
	s.must(s.putOf("c", "v5", contents[3]))
	s.must(&CloseAccount{Account: bob})
	s.must(&ClearAccounts{Accounts: []AccountID{bob}})
	if n, err := s.view().UnhashedCount(); err != nil || n != 0 || len(s.rows(tableUnhashed)) != 0 {
		t.Errorf("%d versions of a closed account, %v", n, err)
	}
}

// Two versions with the same id under two keys are listed, and get their hashes, one by one.
func TestVersionsOfTwoKeysAreTwo(t *testing.T) {
	s := shelved(t, Unlimited)
	sum := bytes.Repeat([]byte{7}, Blake3Bytes)
	s.must(s.putOf("one", "v1", contents[1]))
	s.must(s.putOf("two", "v1", contents[2]))
	s.left("v1", "v1")
	s.must(s.tell("one", "v1", sum))
	s.left("v1")
	s.must(s.tell("two", "v1", sum))
	s.left()
}
