package state

import (
	"errors"
	"fmt"
	"slices"
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

// putOf is the put of an object whose content is named by a CID.
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
func (s *shelf) completeOf(k string, u UploadID, id VersionID, cid string, parts ...PartRef) *CompleteUpload {
	s.t.Helper()
	put := s.putOf(k, id, cid)
	put.Object.Upload, put.Object.Size = u, 9*uint64(len(parts))
	put.Object.Parts = []PartRun{{Size: 9, Count: uint64(len(parts))}}
	return &CompleteUpload{
		Account: s.b.Account, Bucket: s.b.Name, Born: s.b.Born, Object: put.Object, Content: put.Content, Parts: parts,
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

// current is the id of the version under a key, or "".
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
	s.refused(s.completeOf("k", "up", "v1", contents[4], PartRef{1, "p1"}, PartRef{7, "p6"}), ErrInvalidPart)
	s.refused(s.completeOf("k", "up", "v1", contents[4], PartRef{7, "p7"}, PartRef{1, "p1"}), ErrInvalid)
	complete := s.completeOf("k", "up", "v1", contents[4], PartRef{1, "p1"}, PartRef{7, "p7"})
	s.must(complete)
	s.check()
	if got := s.usage(); got != "1 keys, 18 bytes, 0 uploads" || s.current("k") != "v1" {
		t.Error(got)
	}
	if q := s.quota(bob); q.Stored != 10 {
		t.Errorf("the parts are still charged: %+v", q)
	}
	s.must(complete) // the client asks again
	s.must(s.putOf("k", "v2", contents[1]))
	s.refused(complete, ErrNoUpload)
}
