package state

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// shelf is a machine with a bucket of bob's.
type shelf struct {
	*machine
	b Bucket
}

// shelved returns a machine at the newest level where bob may store so many bytes
// and has a bucket.
func shelved(t reporter, allowance uint64) *shelf {
	t.Helper()
	m := rich(t, allowance)
	return &shelf{m, m.bucket(bob, "bucket")}
}

func (m *machine) bucket(a AccountID, name string) Bucket {
	m.t.Helper()
	m.must(&CreateBucket{Bucket: Bucket{Account: a, Name: name, Created: 1}})
	b, err := m.view().Bucket(a, name)
	if err != nil {
		m.t.Fatal(err)
	}
	return b
}

// stored is content of 10 bytes that two nodes hold and a third is to.
func stored(k RootKey) Content {
	return Content{
		Root: k, Bytes: 10, Blocks: 1, Nodes: []NodeID{"n1", "n2", "n3"}, Held: []Holding{{"n1", 0}, {"n2", 0}},
	}
}

// putOf returns the put of an object whose content is named by a CID.
func (s *shelf) putOf(k string, id VersionID, cid string) *PutObject {
	s.t.Helper()
	root := rootOf(s.t, cid)
	return &PutObject{
		Account: s.b.Account, Bucket: s.b.Name, Born: s.b.Born, Content: stored(root),
		Object: Object{ID: id, Key: k, Root: root, Size: 9, Created: 5, ETag: "e-" + string(id)},
	}
}

func (s *shelf) begin(k string, id UploadID) *CreateUpload {
	return &CreateUpload{Account: s.b.Account, Bucket: s.b.Name, Born: s.b.Born, Upload: Upload{ID: id, Key: k, Created: 3}}
}

func (s *shelf) partOf(k string, u UploadID, n uint16, id VersionID, cid string) *PutPart {
	s.t.Helper()
	root := rootOf(s.t, cid)
	return &PutPart{
		Account: s.b.Account, Bucket: s.b.Name, Born: s.b.Born, Key: k, Upload: u, Content: stored(root),
		Part: Part{Number: n, ID: id, Root: root, Size: 9, Created: 4, ETag: "e-" + string(id)},
	}
}

// completeOf makes an object of parts of 9 bytes each.
func (s *shelf) completeOf(k string, u UploadID, cid string, parts ...Part) *CompleteUpload {
	s.t.Helper()
	put := s.putOf(k, VersionOf(u), cid)
	put.Object.Upload, put.Object.Listed, put.Object.Size = u, HashList(parts), 9*uint64(len(parts))
	put.Object.Parts = []PartRun{{Size: 9, Count: uint64(len(parts))}}
	return &CompleteUpload{
		Account: s.b.Account, Bucket: s.b.Name, Born: s.b.Born, Object: put.Object, Content: put.Content, Parts: ListParts(parts),
	}
}

// refused applies a command that has to be refused and to change nothing.
func (m *machine) refused(cmd Command, want error) {
	m.t.Helper()
	before := m.fork()
	if _, err := m.apply(cmd); !errors.Is(err, want) {
		m.t.Errorf("%T: %v, want %v", cmd, err, want)
	}
	if !slices.Equal(m.rows(), before.rows()) {
		m.t.Errorf("%T was refused and changed something", cmd)
	}
}

// current returns the id of the version under a key, or "".
func (s *shelf) current(k string) VersionID {
	s.t.Helper()
	o, err := s.view().Object(&s.b, k)
	if err != nil && !errors.Is(err, ErrNoKey) {
		s.t.Fatal(err)
	}
	return o.ID
}

func (s *shelf) usage() string {
	s.t.Helper()
	keys, bytes, uploads, err := s.view().BucketUsage(&s.b)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("%d keys, %d bytes, %d uploads", keys, bytes, uploads)
}

// An object keeps its content pinned and charged until the object is replaced or deleted. A bucket with an object
// cannot be deleted, and a put into a deleted bucket is ErrNoBucket.
func TestAnObjectIsANameOfItsContent(t *testing.T) {
	s := shelved(t, 100)
	put := s.putOf("k", "v1", contents[1])
	s.must(put)
	s.check()
	o, err := s.view().Object(&s.b, "k")
	if err != nil || o.ID != "v1" || o.Created != 5 {
		t.Errorf("%+v, %v", o, err)
	}
	root, err := s.view().Root(put.Content.Root)
	if err != nil || root.Status != Pinned || root.Links != 1 || root.In(Held) != 2 || root.In(Assigned) != 1 || root.Size != 10 || root.Blocks != 1 {
		t.Errorf("%+v, %v", root, err)
	}
	if short, err := s.view().IsShort(root.Key); !short || err != nil {
		t.Errorf("two copies of three are short: %v, %v", short, err)
	}
	if q := s.quota(bob); q.Stored != 10 {
		t.Errorf("%+v", q)
	}
	s.must(put) // once more, as its proposer would
	s.must(s.putOf("k", "v2", contents[2]))
	s.check()
	if o, err = s.view().Object(&s.b, "k"); err != nil || o.ID != "v2" || o.Created != 6 {
		t.Errorf("%+v, %v", o, err)
	}
	if s.kept(root.Key) {
		t.Error("content without a name is kept")
	}
	if got := s.usage(); got != "1 keys, 9 bytes, 0 uploads" {
		t.Error(got)
	}
	s.refused(&DeleteBucket{Account: bob, Name: "bucket", Born: s.b.Born}, ErrNotEmpty)
	s.must(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k", "absent"}})
	s.check()
	if q := s.quota(bob); q.Stored != 0 || s.kept(rootOf(t, contents[2])) {
		t.Errorf("after the deletion %+v", q)
	}
	s.must(&DeleteBucket{Account: bob, Name: "bucket", Born: s.b.Born})
	if _, err := s.view().Bucket(bob, "bucket"); !errors.Is(err, ErrNoBucket) {
		t.Error(err)
	}
	s.refused(put, ErrNoBucket)
}

// CompleteUpload makes an object of the listed parts and frees all parts of the upload. A repeat changes nothing
// until the object is replaced, and a list of other parts is rejected.
func TestAnUploadBecomesAnObject(t *testing.T) {
	s := shelved(t, 100)
	s.must(s.begin("k", "up"))
	s.must(s.partOf("k", "up", 1, "p1", contents[1]))
	s.must(s.partOf("k", "up", 7, "p7", contents[2]))
	s.must(s.partOf("k", "up", 3, "p3", contents[3]))
	s.check()
	parts, more, err := s.view().Parts(&s.b, "up", 1, 1)
	if err != nil || !more || len(parts) != 1 || parts[0].ID != "p3" {
		t.Errorf("%+v, %v, %v", parts, more, err)
	}
	s.refused(s.partOf("other", "up", 1, "p1", contents[1]), ErrNoUpload)
	s.refused(s.completeOf("k", "up", contents[4], Part{Number: 1, ID: "p1"}, Part{Number: 7, ID: "p6"}), ErrInvalidPart)
	s.refused(s.completeOf("k", "up", contents[4], Part{Number: 7, ID: "p7"}, Part{Number: 1, ID: "p1"}), ErrInvalidPart)
	s.refused(s.completeOf("k", "up", contents[4]), ErrInvalid)
	complete := s.completeOf("k", "up", contents[4], Part{Number: 1, ID: "p1"}, Part{Number: 7, ID: "p7"})
	s.must(complete)
	s.check()
	if got := s.usage(); got != "1 keys, 18 bytes, 0 uploads" || s.current("k") != "up" {
		t.Error(got)
	}
	if q := s.quota(bob); q.Stored != 10 {
		t.Errorf("the parts are still charged: %+v", q)
	}
	s.must(complete) // the client asks again
	s.must(s.putOf("k", "v2", contents[1]))
	s.refused(complete, ErrNoUpload)
}

// A put, copy, completion or deletion takes effect if its condition holds, and else changes nothing. A deletion of
// several keys has no condition.
func TestConditionsAreJudgedInApply(t *testing.T) {
	for _, tc := range []struct {
		name           string
		cond           Condition
		fresh, present error // of a key without and with an object, whose ETag is e-v1
	}{
		{"none", Condition{}, nil, nil},
		{"absent", Condition{Absent: true}, nil, ErrPrecondition},
		{"its ETag", Condition{Match: []string{"other", "e-v1"}}, ErrNoKey, nil},
		{"any", Condition{Match: []string{"*"}}, ErrNoKey, nil},
		{"another", Condition{Match: []string{"e-v2", ""}}, ErrNoKey, ErrPrecondition},
		{"both", Condition{Absent: true, Match: []string{"*"}}, ErrNoKey, ErrPrecondition},
		{"not its ETag", Condition{NoneMatch: []string{"other", "e-v1"}}, nil, ErrPrecondition},
		{"not another", Condition{NoneMatch: []string{"other"}}, nil, nil},
		{"its ETag and not another", Condition{Match: []string{"e-v1"}, NoneMatch: []string{"other"}}, ErrNoKey, nil},
		{"its ETag and not", Condition{Match: []string{"e-v1"}, NoneMatch: []string{"e-v1"}}, ErrNoKey, ErrPrecondition},
		{"another size", Condition{Size: 1 << 40, Sized: true}, ErrNoKey, ErrPrecondition},
		{"another time", Condition{Modified: -1}, ErrNoKey, ErrPrecondition},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for key, want := range map[string]error{"fresh": tc.fresh, "k": tc.present} {
				s := shelved(t, Unlimited)
				s.must(s.putOf("k", "v1", contents[1]))
				s.must(s.putOf("source", "v3", contents[1]))
				s.must(s.begin(key, "up"))
				s.must(s.partOf(key, "up", 1, "p1", contents[2]))
				put := s.putOf(key, "v2", contents[2])
				put.If = tc.cond
				source := s.putOf(key, "v2", contents[1]).Object
				complete := s.completeOf(key, "up", contents[2], Part{Number: 1, ID: "p1"})
				complete.If = tc.cond
				for _, cmd := range []Command{
					put,
					&CopyObject{
						Account: bob, Bucket: "bucket", Born: s.b.Born, Object: source, If: tc.cond,
						SourceBucket: "bucket", SourceBorn: s.b.Born, SourceKey: "source", SourceID: "v3",
					},
					complete,
					&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{key}, If: tc.cond},
				} {
					if want != nil {
						s.refused(cmd, want)
						continue
					}
					on := &shelf{&machine{memory: s.fork(), t: t, index: s.index, op: s.op}, s.b}
					on.must(cmd)
					on.check()
					want := VersionID("v2")
					switch cmd.(type) {
					case *DeleteObjects:
						want = ""
					case *CompleteUpload:
						want = "up"
					}
					if got := on.current(key); got != want {
						t.Errorf("after %T of %q it is %q", cmd, key, got)
					}
				}
			}
		})
	}
	s := shelved(t, Unlimited)
	s.refused(&DeleteObjects{
		Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"a", "b"}, If: Condition{Match: []string{"*"}},
	}, ErrInvalid)
}

// A copy to an object or a part is rejected if the source is no longer the version that its proposer read. A copy
// adds nothing to what the account uses, and its repeat needs no source.
func TestCopiesNameTheContentOfTheVersionThatWasRead(t *testing.T) {
	s := shelved(t, 10)
	other := s.bucket(bob, "other")
	s.must(s.putOf("k", "v1", contents[1]))
	o := s.putOf("copy", "v2", contents[1]).Object
	o.Meta = map[string]string{"a": "b"}
	cp := CopyObject{
		Account: bob, Bucket: "other", Born: other.Born, Object: o,
		SourceBucket: "bucket", SourceBorn: s.b.Born, SourceKey: "k", SourceID: "v1",
	}
	for name, change := range map[string]func(*CopyObject){
		"another version":  func(c *CopyObject) { c.SourceID = "v0" },
		"another key":      func(c *CopyObject) { c.SourceKey = "l" },
		"no key":           func(c *CopyObject) { c.SourceKey = "" },
		"a bucket of late": func(c *CopyObject) { c.SourceBorn++ },
		"another bucket":   func(c *CopyObject) { c.SourceBucket = "absent" },
	} {
		t.Run(name, func(t *testing.T) {
			cp := cp
			change(&cp)
			s.refused(&cp, ErrConflict)
		})
	}
	wrong := cp
	wrong.Object.Root = rootOf(t, contents[2])
	s.refused(&wrong, ErrInvalid)
	wrong = cp
	wrong.Object.Size++
	s.refused(&wrong, ErrInvalid)
	s.must(&cp) // costs nothing: all of the allowance is used
	s.check()
	s.must(&CopyObject{ // other attributes
		Account: bob, Bucket: "other", Born: other.Born, Object: s.putOf("copy", "v3", contents[1]).Object,
		SourceBucket: "other", SourceBorn: other.Born, SourceKey: "copy", SourceID: "v2",
	})
	s.check()
	if o, err := s.view().Object(&other, "copy"); err != nil || o.ID != "v3" || o.Meta != nil || o.Created != 6 {
		t.Errorf("%+v, %v", o, err)
	}
	if root, err := s.view().Root(o.Root); err != nil || root.Links != 2 {
		t.Errorf("%+v, %v", root, err)
	}
	again := cp
	again.Object.ID = "v3"
	s.must(&again) // though its source has gone since
	s.must(s.begin("k", "up"))
	p := s.partOf("k", "up", 1, "p1", contents[1])
	part := CopyPart{
		Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "k", Upload: "up", Part: p.Part,
		SourceBucket: "other", SourceBorn: other.Born, SourceKey: "copy", SourceID: "v2",
	}
	s.refused(&part, ErrConflict)
	part.SourceID = "v3"
	s.must(&part)
	s.must(&part)
	s.check()
	if q := s.quota(bob); q.Stored != 10 {
		t.Errorf("%+v", q)
	}
}

// SetObjectTags replaces all tags of an object and leaves its id and time. A version that is not there is
// ErrNoVersion, an absent key ErrNoKey.
func TestTagsAreReplacedTogether(t *testing.T) {
	s := shelved(t, Unlimited)
	s.must(s.putOf("k", "v1", contents[1]))
	set := SetObjectTags{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "k", ID: "v1", Tags: []Tag{{"b", "ä"}, {"a", ""}}}
	s.must(&set)
	if o, err := s.view().Object(&s.b, "k"); err != nil || !slices.Equal(o.Tags, set.Tags) || o.Created != 5 || o.ID != "v1" {
		t.Errorf("%+v, %v", o, err)
	}
	late, absent := set, set
	late.ID = "v0"
	s.refused(&late, ErrNoVersion)
	absent.Key, absent.ID = "absent", ""
	s.refused(&absent, ErrNoKey)
	set.ID, set.Tags = "", nil
	s.must(&set)
	if o, err := s.view().Object(&s.b, "k"); err != nil || o.Tags != nil {
		t.Errorf("%+v, %v", o, err)
	}
	s.check()
}

// A bucket has nothing of an earlier bucket of its name or of another account's, and changes for the earlier one
// are rejected.
func TestBucketsOfOneNameShareNothing(t *testing.T) {
	s := shelved(t, Unlimited)
	old := s.b
	s.must(s.begin("k", "up"))
	s.must(s.partOf("k", "up", 1, "p1", contents[1]))
	put, part := s.putOf("k", "v1", contents[1]), s.partOf("k", "up", 2, "p2", contents[1])
	s.must(&DeleteBucket{Account: bob, Name: "bucket", Born: old.Born})
	if s.kept(put.Content.Root) || len(s.rows(tableEmptying)) != 0 {
		t.Error("the upload of a deleted bucket is kept")
	}
	s.refused(&DeleteBucket{Account: bob, Name: "bucket", Born: old.Born}, ErrNoBucket)
	s.b = s.bucket(bob, "bucket")
	if s.b.Born == old.Born {
		t.Fatal("it is the same bucket")
	}
	s.refused(put, ErrNoBucket)
	s.refused(part, ErrNoBucket)
	s.refused(&CreateBucket{Bucket: Bucket{Account: bob, Name: "bucket", Created: 1}}, ErrExists)
	theirs := s.bucket(alice, "bucket")
	s.must(s.putOf("k", "v1", contents[1]))
	if _, err := s.view().Object(&theirs, "k"); !errors.Is(err, ErrNoKey) {
		t.Errorf("in the bucket of somebody else: %v", err)
	}
	index := s.index // what comes in one entry has one index
	s.index--
	if b := s.bucket(bob, "bucket-2"); s.index != index || b.Born == s.b.Born {
		t.Errorf("two buckets of one entry: %+v, %+v", s.b, b)
	}
	s.check()
	if all, err := s.view().Buckets(bob); err != nil || len(all) != 2 || all[0].Name != "bucket" {
		t.Errorf("%+v, %v", all, err)
	}
}

// An account has at most MaxBucketsPerUser buckets with valid names, and a bucket at most MaxUploads open uploads.
// The uploads of a deleted bucket are removed in bounded steps.
func TestBoundsOfBucketsAndUploads(t *testing.T) {
	m := rich(t, Unlimited)
	for i := range MaxBucketsPerUser {
		m.must(&CreateBucket{Bucket: Bucket{Account: bob, Name: fmt.Sprintf("b-%d", i), Created: 1}})
	}
	m.refused(&CreateBucket{Bucket: Bucket{Account: bob, Name: "more", Created: 1}}, ErrTooLarge)
	m.must(&CreateBucket{Bucket: Bucket{Account: alice, Name: "more", Created: 1}})
	m.refused(&CreateBucket{Bucket: Bucket{Account: "nobody", Name: "more", Created: 1}}, ErrUnauthorized)
	m.refused(&CreateBucket{Bucket: Bucket{Account: alice, Name: "more", Created: 0}}, ErrInvalid)
	for name, valid := range map[string]bool{
		"ab": false, "abc": true, "a.b-c": true, "0-9": true, "Abc": false, "a_b": false, "a b": false, "äbc": false, "-ab": false, "ab.": false, "": false,
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa":  true,
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": false,
	} {
		if ValidBucketName(name) != valid {
			t.Errorf("%q is a name: %v", name, !valid)
		}
		if !valid {
			m.refused(&CreateBucket{Bucket: Bucket{Account: alice, Name: name, Created: 1}}, ErrInvalid)
		}
	}
	b, err := m.view().Bucket(bob, "b-7")
	if err != nil {
		t.Fatal(err)
	}
	s := &shelf{m, b}
	for i := range MaxUploads {
		s.must(s.begin("k", UploadID(fmt.Sprint(i))))
	}
	s.refused(s.begin("k", "more"), ErrTooLarge)
	s.must(s.begin("k", "77")) // once more
	s.refused(s.begin("l", "77"), ErrExists)
	if got := s.usage(); got != "0 keys, 0 bytes, 10000 uploads" {
		t.Error(got)
	}
	s.must(&DeleteBucket{Account: bob, Name: "b-7", Born: b.Born})
	if !s.fx.Settling {
		t.Error("nobody is told that uploads are left")
	}
	if stale, err := s.view().UploadsBefore(100, 10); err != nil || len(stale) != 0 {
		t.Errorf("uploads of a deleted bucket are to be aborted: %+v, %v", stale, err)
	}
	entries := s.emptied()
	if want := (MaxUploads - 1) / MaxSettle; entries < want {
		t.Errorf("%d uploads went in %d more entries", MaxUploads, entries)
	}
	if left := s.rows(tableUpload, tablePart, tableStored, tableBegun); len(left) != 0 {
		t.Errorf("%d rows are left", len(left))
	}
}

// emptied clears deleted buckets as the leader does, and says in how many entries.
func (m *machine) emptied() (entries int) {
	m.t.Helper()
	for {
		left, err := m.view().Emptying(10)
		if err != nil {
			m.t.Fatal(err)
		}
		if len(left) == 0 {
			return entries
		}
		entries++
		m.must(&ClearBuckets{Items: left})
		m.check()
	}
}

// One entry frees at most MaxSettle parts of a deleted bucket, and in the end none is left or charged.
func TestPartsOfADeletedBucketGoInSteps(t *testing.T) {
	s := shelved(t, Unlimited)
	s.must(s.begin("k", "up"))
	const parts = 2*MaxSettle + 10
	for i := range parts {
		s.must(s.partOf("k", "up", uint16(i+1), VersionID(fmt.Sprint(i)), contents[1+i%2]))
	}
	s.must(&DeleteBucket{Account: bob, Name: "bucket", Born: s.b.Born})
	s.check()
	if left := len(s.rows(tableLink)); left != parts-MaxSettle {
		t.Errorf("%d parts of %d are left after the first entry", left, parts)
	}
	if entries := s.emptied(); entries != 2 {
		t.Errorf("%d more entries", entries)
	}
	if q := s.quota(bob); q.Stored != 0 || s.kept(rootOf(t, contents[1])) {
		t.Errorf("%+v", q)
	}
}

// UploadsBefore returns at most limit open uploads that began before a time, the oldest first.
func TestUploadsAreFoundByAge(t *testing.T) {
	s := shelved(t, Unlimited)
	for i, since := range []Millis{50, 10, 30, 20, 40} {
		u := s.begin("k\x00", UploadID(fmt.Sprint(i)))
		u.Upload.Since = since
		s.must(u)
	}
	stale, err := s.view().UploadsBefore(40, 2)
	if err != nil || len(stale) != 2 || stale[0].Since != 10 || stale[1].Since != 20 {
		t.Fatalf("%+v, %v", stale, err)
	}
	if stale, err = s.view().UploadsBefore(40, 9); err != nil || len(stale) != 3 {
		t.Fatalf("%+v, %v", stale, err)
	}
	for _, u := range stale {
		s.must(&AbortUpload{Account: u.Account, Bucket: u.Bucket, Born: u.Born, Key: u.Key, ID: u.ID})
		s.refused(&AbortUpload{Account: u.Account, Bucket: u.Bucket, Born: u.Born, Key: u.Key, ID: u.ID}, ErrNoUpload)
	}
	s.check()
	if stale, err = s.view().UploadsBefore(maxCreated, 9); err != nil || len(stale) != 2 {
		t.Fatalf("%+v, %v", stale, err)
	}
	s.must(&CloseAccount{Account: bob})
	if stale, err = s.view().UploadsBefore(maxCreated, 9); err != nil || len(stale) != 0 {
		t.Errorf("uploads of a closed account are to be aborted: %+v, %v", stale, err)
	}
}

// An upload has the earliest time that CreateUpload or DateUpload gives it, and UploadsBefore omits an upload
// without a time.
func TestUploadsAreDated(t *testing.T) {
	s := shelved(t, Unlimited)
	for i, since := range []Millis{0, 50, 30, math.MaxInt64} {
		u := s.begin("k", UploadID(fmt.Sprint(i)))
		u.Upload.Since = since
		s.must(u)
	}
	want := func(what string, got []OpenUpload, err error, want string) {
		t.Helper()
		var ids string
		for _, u := range got {
			ids += string(u.ID)
		}
		if err != nil || ids != want {
			t.Errorf("%s: %s, %v, want %s", what, ids, err, want)
		}
	}
	undated := func(at Millis, limit int) ([]OpenUpload, error) { return s.view().UploadsUndated(at, limit) }
	stale := func() ([]OpenUpload, error) { return s.view().UploadsBefore(maxCreated, 9) }
	got, err := undated(30, 9)
	want("undated", got, err, "013")
	got, err = undated(30, 2)
	want("two undated", got, err, "01")
	got, err = stale()
	want("dated", got, err, "21")
	date := func(id UploadID, since Millis) *DateUpload {
		return &DateUpload{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "k", ID: id, Since: since}
	}
	for _, d := range []*DateUpload{date("0", 40), date("3", 45), date("3", 60), date("2", 40), date("1", 50), date("1", math.MaxInt64)} {
		s.must(d)
		s.check()
	}
	got, err = stale()
	want("when all are dated", got, err, "2031")
	got, err = undated(50, 9)
	want("undated then", got, err, "")
	s.refused(date("1", 0), ErrInvalid)
	s.refused(date("9", 40), ErrNoUpload)
	s.must(&AbortUpload{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "k", ID: "3"})
	got, err = stale()
	want("when one is aborted", got, err, "201")
	s.must(&DeleteBucket{Account: bob, Name: "bucket", Born: s.b.Born})
	got, err = undated(1, 9)
	want("in no bucket", got, err, "")
	s.emptied()
}

// A part replaces the part with the same number in its upload, and may use the room of that part.
func TestAPartIsReplacedByTheNextOfItsNumber(t *testing.T) {
	s := shelved(t, 10)
	s.must(s.begin("k", "up"))
	first := s.partOf("k", "up", 5, "p1", contents[1])
	s.must(first)
	s.must(first)
	s.must(s.partOf("k", "up", 5, "p2", contents[2])) // in the place of the first it is affordable
	s.check()
	s.refused(s.partOf("k", "up", 6, "p3", contents[3]), ErrQuota)
	parts, more, err := s.view().Parts(&s.b, "up", 0, 10)
	if err != nil || more || len(parts) != 1 || parts[0].ID != "p2" || parts[0].Created != 5 || s.kept(first.Content.Root) {
		t.Errorf("%+v, %v, %v", parts, more, err)
	}
	if _, err := s.view().Upload(&s.b, "k", "up"); err != nil {
		t.Error(err)
	}
	if _, err := s.view().Upload(&s.b, "l", "up"); !errors.Is(err, ErrNoUpload) {
		t.Errorf("under another key: %v", err)
	}
}

// Puts, parts, uploads and deletions with a field out of bounds are rejected and change nothing.
func TestWhatIsOutOfBoundsIsRefused(t *testing.T) {
	s := shelved(t, Unlimited)
	s.must(s.begin("k", "up"))
	s.must(s.putOf("k", "v0", contents[1]))
	long := strings.Repeat("x", MaxHeaderBytes)
	sum := func(n int, algorithms ...string) (sums []Checksum) {
		for _, a := range algorithms {
			sums = append(sums, Checksum{Algorithm: a, Value: make([]byte, n)})
		}
		return sums
	}
	for name, tc := range map[string]struct {
		change func(*Object, *Content)
		want   error
	}{
		"no key":          {func(o *Object, _ *Content) { o.Key = "" }, ErrInvalid},
		"a long key":      {func(o *Object, _ *Content) { o.Key = long[:MaxKeyBytes+1] }, ErrInvalid},
		"no id":           {func(o *Object, _ *Content) { o.ID = "" }, ErrInvalid},
		"a long id":       {func(o *Object, _ *Content) { o.ID = VersionID(long[:MaxIDLen+1]) }, ErrInvalid},
		"no time":         {func(o *Object, _ *Content) { o.Created = 0 }, ErrInvalid},
		"the end of time": {func(o *Object, _ *Content) { o.Created = maxCreated + 1 }, ErrInvalid},
		"no ETag":         {func(o *Object, _ *Content) { o.ETag = "" }, ErrInvalid},
		"large headers":   {func(o *Object, _ *Content) { o.Headers = map[string]string{"A": long} }, ErrTooLarge},
		"headers and metadata": {func(o *Object, _ *Content) {
			o.Headers, o.Meta = map[string]string{"A": long[2:]}, map[string]string{"a": "b"}
		}, ErrTooLarge},
		"many tags":             {func(o *Object, _ *Content) { o.Tags = make([]Tag, MaxTags+1) }, ErrInvalid},
		"an empty tag":          {func(o *Object, _ *Content) { o.Tags = []Tag{{"", "a"}} }, ErrInvalid},
		"a long tag":            {func(o *Object, _ *Content) { o.Tags = []Tag{{"a", strings.Repeat("ä", MaxTagValueRunes+1)}} }, ErrInvalid},
		"a tag that is no text": {func(o *Object, _ *Content) { o.Tags = []Tag{{"\xff", ""}} }, ErrInvalid},
		"a tag twice":           {func(o *Object, _ *Content) { o.Tags = []Tag{{"a", "1"}, {"a", "2"}} }, ErrInvalid},
		"another algorithm":     {func(o *Object, _ *Content) { o.Checksums = sum(4, "MD4") }, ErrInvalid},
		"a short new checksum":  {func(o *Object, _ *Content) { o.Checksums = sum(32, "SHA512") }, ErrInvalid},
		"an unknown wish":       {func(o *Object, _ *Content) { o.Wanted = "MD4" }, ErrInvalid},
		"a wish that is there":  {func(o *Object, _ *Content) { o.Checksums, o.Wanted = sum(4, "CRC32"), "CRC32" }, ErrInvalid},
		"a long storage class":  {func(o *Object, _ *Content) { o.StorageClass = long[:MaxClassBytes+1] }, ErrInvalid},
		"a short checksum":      {func(o *Object, _ *Content) { o.Checksums = sum(4, "SHA1") }, ErrInvalid},
		"a checksum twice":      {func(o *Object, _ *Content) { o.Checksums = sum(4, "CRC32", "CRC32") }, ErrInvalid},
		"a large object":        {func(o *Object, _ *Content) { o.Size = MaxContentBytes + 1 }, ErrTooLarge},
		"other parts":           {func(o *Object, _ *Content) { o.Parts = []PartRun{{4, 2}} }, ErrInvalid},
		"too many parts":        {func(o *Object, _ *Content) { o.Size, o.Parts = 0, []PartRun{{0, MaxPartNumber}, {0, 1}} }, ErrInvalid},
		"other content":         {func(_ *Object, c *Content) { c.Root = rootOf(t, contents[3]) }, ErrInvalid},
		"content without a CID": {func(o *Object, c *Content) { o.Root, c.Root = "x", "x" }, ErrInvalid},
		"large content":         {func(_ *Object, c *Content) { c.Bytes = MaxContentBytes + 1 }, ErrTooLarge},
		"content of no blocks":  {func(_ *Object, c *Content) { c.Blocks = 0 }, ErrInvalid},
		"many nodes":            {func(_ *Object, c *Content) { c.Nodes = make([]NodeID, MaxCopies+1) }, ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			put := s.putOf("k", "v1", contents[2])
			tc.change(&put.Object, &put.Content)
			s.refused(put, tc.want)
		})
	}
	for name, change := range map[string]func(*Part){
		"number 0":         func(p *Part) { p.Number = 0 },
		"number 10,001":    func(p *Part) { p.Number = MaxPartNumber + 1 },
		"no id":            func(p *Part) { p.ID = "" },
		"no ETag":          func(p *Part) { p.ETag = "" },
		"a short checksum": func(p *Part) { p.Checksums = sum(3, "CRC32") },
	} {
		t.Run(name, func(t *testing.T) {
			part := s.partOf("k", "up", 1, "p1", contents[2])
			change(&part.Part)
			s.refused(part, ErrInvalid)
		})
	}
	for name, change := range map[string]func(*Upload){
		"no id":                func(u *Upload) { u.ID = "" },
		"no key":               func(u *Upload) { u.Key = "" },
		"no time":              func(u *Upload) { u.Created = 0 },
		"another algorithm":    func(u *Upload) { u.Checksum.Algorithm = "MD4" },
		"a long storage class": func(u *Upload) { u.StorageClass = long[:MaxClassBytes+1] },
		"a checksum":           func(u *Upload) { u.Checksum = sum(4, "CRC32")[0] },
		"a tag twice":          func(u *Upload) { u.Tags = []Tag{{"a", "1"}, {"a", "2"}} },
	} {
		t.Run(name, func(t *testing.T) {
			upload := s.begin("k", "up2")
			change(&upload.Upload)
			s.refused(upload, ErrInvalid)
		})
	}
	s.refused(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born}, ErrInvalid)
	s.refused(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: make([]string, MaxDeleteKeys+1)}, ErrInvalid)
	s.refused(s.completeOf("k", "up", contents[2]), ErrInvalid)
	taken := s.putOf("l", "v0", contents[1])
	s.refused(taken, ErrExists)
	huge := s.putOf("huge", "v1", contents[2])
	huge.Object.Size = MaxContentBytes
	for i := range uint64(1<<63) / MaxContentBytes {
		huge.Object.Key, huge.Object.ID = fmt.Sprint(i), VersionID(fmt.Sprint(i))
		if _, err := s.apply(huge); err != nil {
			if !errors.Is(err, ErrTooLarge) {
				t.Error(err)
			}
			return
		}
	}
	t.Error("a bucket counts more bytes than it can")
}
