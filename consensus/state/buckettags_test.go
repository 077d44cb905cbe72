package state

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// wantBucketTags writes the tags of an account's buckets, and checks whose they are.
func (m *machine) wantBucketTags(want *memory, a AccountID, open map[Incarnation]string) {
	m.t.Helper()
	of, all, err := rowsIn[BucketTags](m, tableBucketTags, a, part(table(tableBucketTags), a), 1<<20)
	if err != nil {
		m.t.Fatal(err)
	}
	closing, err := has(m, closingKey(a))
	if err != nil {
		m.t.Fatal(err)
	}
	for i, tags := range all {
		if open[of[i].Born] == "" && !closing || len(tags.Tags) == 0 {
			m.t.Errorf("%d tags of bucket %q", len(tags.Tags), open[of[i].Born])
		}
		if err := put(want, of[i].in(tableBucketTags), tags); err != nil {
			m.t.Fatal(err)
		}
	}
}

// Tags belong to one bucket and go with it or with its account, and a later bucket of the same name has none.
func TestTagsGoWithTheirBucket(t *testing.T) {
	s := shelved(t, Unlimited)
	set := func(tags ...Tag) *SetBucketTags {
		return &SetBucketTags{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Tags: BucketTags{tags}}
	}
	has := func(want ...Tag) {
		t.Helper()
		got, err := s.view().BucketTags(&s.b)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("tags %q, want %q, %v", got, want, err)
		}
		s.check()
	}
	has()
	s.must(set())
	has()
	s.must(set(Tag{"b", "1"}, Tag{"a", ""}))
	has(Tag{"b", "1"}, Tag{"a", ""})
	s.must(set(Tag{"a", "2"}))
	has(Tag{"a", "2"})
	alices := set(Tag{"c", ""})
	alices.Account = alice
	if _, err := s.apply(alices); !errors.Is(err, ErrNoBucket) {
		t.Errorf("another account's: %v", err)
	}
	s.must(&DeleteBucket{Account: bob, Name: s.b.Name, Born: s.b.Born})
	if n := len(s.rows(tableBucketTags)); n != 0 {
		t.Errorf("%d rows are left of a bucket that is gone", n)
	}
	if _, err := s.apply(set(Tag{"a", ""})); !errors.Is(err, ErrNoBucket) {
		t.Errorf("a bucket that is gone: %v", err)
	}
	s.b = s.bucket(bob, s.b.Name)
	has()
	s.must(set(Tag{"a", ""}))
	s.must(&CloseAccount{Account: bob})
	s.must(&ClearAccounts{Accounts: []AccountID{bob}})
	if n := len(s.rows(tableBucketTags)); n != 0 {
		t.Errorf("%d rows are left of an account that is closed", n)
	}
}

// SetBucketTags rejects too many tags, a key or a value that is too long, an empty key and a key that comes twice.
func TestTagsOfBucketsHaveBounds(t *testing.T) {
	s := shelved(t, Unlimited)
	many := make([]Tag, MaxBucketTags+1)
	for i := range many {
		many[i].Key = fmt.Sprint(i)
	}
	long := strings.Repeat("\U0001F4CC", MaxTagValueRunes+1)
	for _, tc := range []struct {
		name string
		tags []Tag
		want error
	}{
		{"the most tags", many[1:], nil},
		{"one more", many, ErrInvalid},
		{"the longest", []Tag{{long[:4*MaxTagKeyRunes], long[:4*MaxTagValueRunes]}}, nil},
		{"a longer key", []Tag{{long[:4*MaxTagKeyRunes+4], ""}}, ErrInvalid},
		{"a longer value", []Tag{{"a", long}}, ErrInvalid},
		{"no key", []Tag{{"", "a"}}, ErrInvalid},
		{"a key twice", []Tag{{"a", "1"}, {"a", "2"}}, ErrInvalid},
	} {
		_, err := s.apply(&SetBucketTags{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Tags: BucketTags{tc.tags}})
		if !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// SetObjectSums gives a version the checksum that it wants and its BLAKE3 hash, once. Values that do not fit the
// version are rejected.
func TestAWantedChecksumIsTold(t *testing.T) {
	s := shelved(t, Unlimited)
	hash := bytes.Repeat([]byte{7}, Blake3Bytes)
	sum := Checksum{Algorithm: "SHA512", Value: bytes.Repeat([]byte{5}, MaxSumBytes)}
	source := s.putOf("source", "v0", contents[1])
	source.Object.Checksums = []Checksum{{"CRC32", []byte{1, 2, 3, 4}, true}}
	s.must(source)
	wanting := func(k string, id VersionID, from string, fromID VersionID) *CopyObject {
		o := source.Object
		o.Key, o.ID, o.Checksums, o.Wanted = k, id, nil, "SHA512"
		return &CopyObject{
			Account: bob, Bucket: s.b.Name, Born: s.b.Born, Object: o, SourceBucket: s.b.Name, SourceBorn: s.b.Born, SourceKey: from, SourceID: fromID,
		}
	}
	s.must(wanting("copy", "v1", "source", "v0"))
	s.left("v1", "v0")
	tell := SetObjectSums{Account: bob, Born: s.b.Born, Key: "copy", ID: "v1", Root: source.Object.Root, Blake3: hash, Checksum: sum}
	for name, change := range map[string]func(*SetObjectSums){
		"a short hash":      func(v *SetObjectSums) { v.Blake3 = hash[1:] },
		"a composed sum":    func(v *SetObjectSums) { v.Checksum.Composite = true },
		"a short sum":       func(v *SetObjectSums) { v.Checksum.Value = hash },
		"another algorithm": func(v *SetObjectSums) { v.Checksum = Checksum{"CRC32", []byte{1, 2, 3, 4}, false} },
		"other content":     func(v *SetObjectSums) { v.Root = rootOf(t, contents[2]) },
		"no wish":           func(v *SetObjectSums) { v.Key, v.ID = "source", "v0" },
	} {
		wrong := tell
		change(&wrong)
		t.Run(name, func(t *testing.T) { s.refused(&wrong, ErrInvalid) })
	}
	of := func(k string) Object {
		t.Helper()
		o, err := s.view().Object(&s.b, k)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	// Its BLAKE3 hash may be told alone, by a node that knows nothing of wishes.
	s.must(s.tell("copy", "v1", hash))
	s.left("v1", "v0")
	s.must(&tell)
	s.left("v0")
	if o := of("copy"); o.Wanted != "" || o.WholeSum("SHA512") == nil || !bytes.Equal(o.Checksums[0].Value, sum.Value) || !bytes.Equal(o.Blake3, hash) {
		t.Errorf("%+v", o)
	}
	late := tell
	late.Checksum.Value = make([]byte, MaxSumBytes)
	s.must(&late) // another node has been at it too
	if o := of("copy"); !bytes.Equal(o.Checksums[0].Value, sum.Value) {
		t.Errorf("told twice: %+v", o)
	}
	// A copy whose proposer did not see the checksum yet has it all the same.
	s.must(wanting("again", "v2", "copy", "v1"))
	s.left("v0")
	if o := of("again"); o.WholeSum("SHA512") == nil || o.Wanted != "" {
		t.Errorf("%+v", o)
	}
	s.must(wanting("gone", "v3", "source", "v0"))
	s.left("v3", "v0")
	s.must(&DeleteObjects{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Keys: []string{"gone"}})
	s.left("v0")
	if o := of("source"); o.WholeSum("CRC32") != nil {
		t.Errorf("a checksum of parts is taken for one of the whole: %v", o)
	}
}
