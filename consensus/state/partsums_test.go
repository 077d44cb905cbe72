package state

import (
	"slices"
	"testing"
)

// summed begins an upload of three parts with a checksum each, and returns what makes
// an object of the first and the last.
func (s *shelf) summed(k string, u UploadID, id VersionID) *CompleteUpload {
	s.t.Helper()
	s.must(s.begin(k, u))
	for n, cid := range []string{contents[1], contents[2], contents[3]} {
		put := s.partOf(k, u, uint16(n+1), VersionID(string(id)+string(rune('a'+n))), cid)
		put.Part.Checksums = []Checksum{{"SHA1", make([]byte, 20), false}, {"CRC32", []byte{1, 2, 3, byte(n)}, false}}
		s.must(put)
	}
	cmd := s.completeOf(k, u, contents[4], Part{Number: 1, ID: id + "a"}, Part{Number: 3, ID: id + "c"})
	cmd.Object.Checksums = []Checksum{{"CRC32", []byte{9, 9, 9, 9}, true}}
	return cmd
}

// The checksums of parts come with the object of an upload and go with it, and a copy of the object has none.
func TestChecksumsOfPartsLiveAsTheirObject(t *testing.T) {
	s := shelved(t, Unlimited)
	sums := func(k string) *PartSums {
		t.Helper()
		s.check()
		o, err := s.view().Object(&s.b, k)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.view().PartSums(&s.b, &o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	s.must(s.summed("k", "u1", "v1"))
	p := sums("k")
	if p == nil || p.Algorithm != "CRC32" || !slices.Equal(p.Of(1), []byte{1, 2, 3, 0}) || !slices.Equal(p.Of(2), []byte{1, 2, 3, 2}) || p.Of(0) != nil || p.Of(3) != nil {
		t.Fatalf("%+v", p)
	}
	o, err := s.view().Object(&s.b, "k")
	if err != nil {
		t.Fatal(err)
	}
	copied := &CopyObject{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Object: o, SourceBucket: s.b.Name, SourceBorn: s.b.Born, SourceKey: "k", SourceID: "u1"}
	copied.Object.Key, copied.Object.ID, copied.Object.Upload = "copy", "v2", ""
	s.must(copied)
	if p := sums("copy"); p != nil {
		t.Errorf("a copy has %+v", p)
	}
	s.must(s.summed("k", "u2", "v3"))
	if n := len(s.rows(tablePartSums)); n != 1 || sums("k") == nil {
		t.Errorf("%d rows after the object was replaced", n)
	}
	s.must(s.putOf("k", "v4", contents[1]))
	if n := len(s.rows(tablePartSums)); n != 0 || sums("k") != nil {
		t.Errorf("%d rows after an object in one piece", n)
	}
	s.must(s.summed("k", "u5", "v5"))
	s.must(&DeleteObjects{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Keys: []string{"k"}})
	if n := len(s.rows(tablePartSums)); n != 0 {
		t.Errorf("%d rows after the deletion", n)
	}
	without := s.summed("k", "u6", "v6")
	without.Object.Checksums[0].Algorithm, without.Object.Checksums[0].Value = "CRC64NVME", make([]byte, 8)
	s.refused(without, ErrInvalid)
	s.must(s.summed("other", "u7", "v7"))
	s.must(&CloseAccount{Account: bob})
	s.must(&ClearAccounts{Accounts: []AccountID{bob}})
	if n := len(s.rows(tablePartSums)); n != 0 {
		t.Errorf("%d rows of a closed account", n)
	}
}

// The SHA-256 checksums of MaxPartNumber parts fit into one record.
func TestChecksumsOfTheMostPartsAreKept(t *testing.T) {
	m := newMemory()
	p := &PartSums{"SHA256", make([]byte, 32*MaxPartNumber)}
	if err := put(m, key("k"), p); err != nil {
		t.Fatal(err)
	}
	back, err := get[PartSums](m, key("k"))
	if err != nil || back.Of(MaxPartNumber) == nil || back.Of(MaxPartNumber+1) != nil {
		t.Errorf("%v", err)
	}
}
