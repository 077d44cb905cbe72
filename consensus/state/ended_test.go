package state

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"
)

// cidAt returns a CID of its own for each number.
func cidAt(t reporter, n int) string {
	t.Helper()
	sum, err := mh.Sum([]byte(fmt.Sprint(n)), mh.SHA2_256, -1)
	if err != nil {
		t.Fatal(err)
	}
	return cid.NewCidV1(cid.Raw, sum).String()
}

// uploaded begins an upload with parts of 10 bytes each, each of another content, and
// returns what completes it. The object has the content of all parts.
func (s *shelf) uploaded(k string, u UploadID, parts int) *CompleteUpload {
	s.t.Helper()
	s.must(s.begin(k, u))
	var listed []Part
	for i := range parts {
		p := s.partOf(k, u, uint16(i+1), VersionID(fmt.Sprint(u, "-", i)), cidAt(s.t, i))
		s.must(p)
		listed = append(listed, p.Part)
	}
	c := s.completeOf(k, u, contents[1], listed...)
	c.Content.Bytes = 10 * uint64(parts)
	return c
}

// cleared frees what ended uploads left as the leader does, and says in how many
// entries. On the way nobody uses more, and bob in the end what he was going to.
func (m *machine) cleared() (entries int) {
	m.t.Helper()
	for {
		left, err := m.view().Ended(10)
		if err != nil {
			m.t.Fatal(err)
		}
		if len(left) == 0 {
			return entries
		}
		entries++
		before := m.quota(bob)
		_, end := m.usedInTheEnd(m.t, bob)
		m.must(&ClearUploads{Items: left})
		m.check()
		if now := m.quota(bob); now.Used() > before.Used() || now.Used() < end {
			m.t.Errorf("entry %d brings what is used from %d to %d bytes, and %d were to be used", entries, before.Used(), now.Used(), end)
		}
	}
}

// An upload of many parts is gone at once when it is completed or aborted, and several entries free its parts.
// Until then the parts are charged.
func TestPartsOfALargeUploadAreFreedInSteps(t *testing.T) {
	const parts = 2*MaxFreed + 10
	for _, tc := range []struct {
		name    string
		allowed uint64 // bytes
		end     func(s *shelf, complete *CompleteUpload)
		used    uint64 // in the end
	}{
		{"completed", Unlimited, func(s *shelf, c *CompleteUpload) { s.must(c) }, parts * 10},
		{"completed, and there is no room for object and parts", parts * 10, func(s *shelf, c *CompleteUpload) { s.must(c) }, parts * 10},
		{"aborted", Unlimited, func(s *shelf, _ *CompleteUpload) {
			s.must(&AbortUpload{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "k", ID: "up"})
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := shelved(t, tc.allowed)
			complete := s.uploaded("k", "up", parts)
			tc.end(s, complete)
			s.check()
			if !s.fx.Settling {
				t.Error("nobody is told that parts are left")
			}
			if left := len(s.rows(tablePart)); left != parts {
				t.Errorf("%d parts are left of %d", left, parts)
			}
			if q, used := s.usedInTheEnd(t, bob); q.Used() != parts*10+tc.used || used != tc.used {
				t.Errorf("%d bytes are used, %d in the end, want %d", q.Used(), used, tc.used)
			}
			// To everybody the upload is gone.
			if _, err := s.view().Upload(&s.b, "k", "up"); !errors.Is(err, ErrNoUpload) {
				t.Error(err)
			}
			if page, err := s.view().Uploads(&s.b, UploadsQuery{Limit: 10}); err != nil || len(page.Uploads) != 0 {
				t.Errorf("%+v, %v", page, err)
			}
			if stale, err := s.view().UploadsBefore(maxCreated, 10); err != nil || len(stale) != 0 {
				t.Errorf("%+v, %v", stale, err)
			}
			s.refused(s.partOf("k", "up", 1, "late", contents[2]), ErrNoUpload)
			s.refused(&AbortUpload{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "k", ID: "up"}, ErrNoUpload)
			s.refused(s.begin("k", "up"), ErrExists)
			if s.current("k") != "" {
				before := s.fork()
				s.must(complete) // the client asks again
				compare(t, tablePart, s.rows(), before.rows())
			} else {
				s.refused(complete, ErrNoUpload)
			}
			if entries := s.cleared(); entries != 3 {
				t.Errorf("%d parts went in %d entries", parts, entries)
			}
			if left := s.rows(tablePart, tableEnded); len(left) != 0 || s.kept(rootOf(t, cidAt(t, 0))) {
				t.Errorf("%d rows are left", len(left))
			}
			if q := s.quota(bob); q.Stored != tc.used {
				t.Errorf("in the end %+v, want %d bytes", q, tc.used)
			}
			s.must(s.begin("k", "up"))
		})
	}
}

// Parts of an upload that has ended are freed whatever becomes of the object, the
// bucket and the account meanwhile.
func TestWhatAnEndedUploadLeftGoesWithoutItsObject(t *testing.T) {
	const parts = 2*MaxFreed + 10
	for name, then := range map[string]func(s *shelf){
		"object deleted": func(s *shelf) {
			s.must(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k"}})
		},
		"bucket deleted": func(s *shelf) {
			s.must(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k"}})
			s.must(&DeleteBucket{Account: bob, Name: "bucket", Born: s.b.Born})
		},
		"account closed": func(s *shelf) {
			s.must(&CloseAccount{Account: bob})
			for {
				closing, err := s.view().Closing(10)
				if err != nil {
					s.t.Fatal(err)
				}
				if len(closing) == 0 {
					return
				}
				s.must(&ClearAccounts{Accounts: closing})
				s.check()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := shelved(t, Unlimited)
			s.must(s.uploaded("k", "up", parts))
			left, err := s.view().Ended(10)
			if err != nil {
				t.Fatal(err)
			}
			s.must(&ClearUploads{Items: left})
			then(s)
			s.check()
			if name != "account closed" {
				if _, used := s.usedInTheEnd(t, bob); used != 0 {
					t.Errorf("without the object %d bytes are used in the end", used)
				}
				s.cleared()
			}
			s.must(&ClearUploads{Items: left}) // late
			if rows := s.rows(tablePart, tableEnded, tableLink, tableCharge, tableRoot); len(rows) != 0 {
				t.Errorf("%d rows are left: %.200q", len(rows), rows)
			}
			s.check()
		})
	}
}

// Content that parts of an ended upload share is freed once, and stays if an object links it.
func TestPartsThatShareContentFreeItOnce(t *testing.T) {
	s := shelved(t, Unlimited)
	const parts = MaxFreed + 10
	s.must(s.begin("k", "up"))
	var listed []Part
	for i := range parts {
		p := s.partOf("k", "up", uint16(i+1), VersionID(fmt.Sprint(i)), contents[1+i%2])
		s.must(p)
		listed = append(listed, p.Part)
	}
	s.must(s.putOf("other", "v1", contents[1]))
	s.must(s.completeOf("k", "up", contents[3], listed...))
	s.check()
	if q, used := s.usedInTheEnd(t, bob); q.Used() != 30 || used != 20 {
		t.Errorf("%d bytes are used, %d in the end", q.Used(), used)
	}
	if entries := s.cleared(); entries != 2 {
		t.Errorf("%d parts went in %d entries", parts, entries)
	}
	if q := s.quota(bob); q.Stored != 20 || q.Used() != 20 {
		t.Errorf("%+v", q)
	}
}

// copied begins an upload of more parts than one entry frees, all of them copies of
// objects that are there.
func (s *shelf) copied(k string, u UploadID, sources ...*PutObject) {
	s.t.Helper()
	s.must(s.begin(k, u))
	for i := range MaxFreed + 1 {
		o := sources[i%len(sources)].Object
		s.must(&CopyPart{
			Account: bob, Bucket: "bucket", Born: s.b.Born, Key: k, Upload: u,
			Part:         Part{Number: uint16(i + 1), ID: VersionID(fmt.Sprint(u, "-", i)), Root: o.Root, Size: o.Size, Created: 5, ETag: "e"},
			SourceBucket: "bucket", SourceBorn: s.b.Born, SourceKey: o.Key, SourceID: o.ID,
		})
	}
}

// A full account gets ErrLimited for new content while the parts of its aborted upload are not freed, round after
// round. The parts are copies of content that the account keeps, so nothing becomes free in the end.
func TestAnUploadThatEndsFreesNothingBeforeItsPartsGo(t *testing.T) {
	s := shelved(t, 20)
	held := []*PutObject{s.putOf("k0", "v0", cidAt(t, 0)), s.putOf("k1", "v1", cidAt(t, 1))}
	s.must(held[0])
	s.must(held[1])
	more := s.putOf("more", "m", cidAt(t, 2))
	pin := &CreatePin{Pin: Pin{ID: "p", Account: bob, CID: contents[2], Created: 1}, Nodes: []NodeID{"n1"}}
	for round := range 3 {
		u := UploadID(fmt.Sprint("u", round))
		s.copied("up", u, held...)
		s.refused(more, ErrQuota)
		s.must(&AbortUpload{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "up", ID: u})
		if q := s.quota(bob); q.Used() != 20 {
			t.Errorf("%d bytes are used when the upload is aborted", q.Used())
		}
		s.refused(more, ErrLimited) // nobody knows yet what will be free
		s.refused(pin, ErrLimited)
		s.cleared()
		s.refused(more, ErrQuota)
		s.refused(pin, ErrQuota)
	}
	s.must(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k0"}})
	s.must(more)
}

// A full account cannot link the content of parts that wait to be freed: put and part get ErrLimited. Otherwise it
// would keep both object and parts. Copies of the object and puts in the place of one still work.
func TestPartsThatAreGoingGetNoNameForNothing(t *testing.T) {
	const parts = MaxFreed + 10
	s := shelved(t, 10*parts)
	s.must(s.uploaded("k", "up", parts))
	s.must(s.begin("k", "next"))
	for i := range 3 {
		s.refused(s.putOf(fmt.Sprint("again", i), VersionID(fmt.Sprint("again", i)), cidAt(t, i)), ErrLimited)
		s.refused(s.partOf("k", "next", 1, VersionID(fmt.Sprint("again", i)), cidAt(t, i)), ErrLimited)
	}
	// What is there goes on being copied, and put again in its own place.
	o, err := s.view().Object(&s.b, "k")
	if err != nil {
		t.Fatal(err)
	}
	s.must(&CopyObject{
		Account: bob, Bucket: "bucket", Born: s.b.Born, Object: Object{ID: "copy", Key: "copy", Root: o.Root, Size: o.Size, Created: 9, ETag: "e"},
		SourceBucket: "bucket", SourceBorn: s.b.Born, SourceKey: "k", SourceID: o.ID,
	})
	again := s.putOf("copy", "in its place", contents[1])
	again.Content.Bytes = 10 * parts
	s.must(again)
	s.must(&AbortUpload{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "k", ID: "next"})
	s.check()
	s.cleared()
	s.refused(s.putOf("again", "again", cidAt(t, 0)), ErrQuota)
	if q := s.quota(bob); q.Used() != 10*parts {
		t.Errorf("%+v", q)
	}
}

// An account with room for one object replaces the object by an upload whose parts are copies of it.
func TestUploadsAreCompletedOnTopOfEachOther(t *testing.T) {
	const parts = MaxFreed + 10
	s := shelved(t, 10*parts)
	first := s.uploaded("k", "up", parts)
	s.must(first)
	s.cleared()
	s.copied("k", "copies", &PutObject{Object: first.Object})
	list, _, err := s.view().Parts(&s.b, "copies", 0, MaxPartNumber)
	if err != nil {
		t.Fatal(err)
	}
	second := s.completeOf("k", "copies", contents[1], list...)
	second.Content, second.Object.Size = first.Content, uint64(len(list))*first.Object.Size
	second.Object.Parts = []PartRun{{Size: first.Object.Size, Count: uint64(len(list))}}
	s.must(second)
	s.check()
	s.cleared()
	if q := s.quota(bob); q.Used() != 10*parts {
		t.Errorf("%+v", q)
	}
}
