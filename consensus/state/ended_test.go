package state

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"
)

// cidAt is a CID of its own for each number.
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
	c := s.completeOf(k, u, VersionID("of-"+u), contents[1], listed...)
	c.Content.Bytes = 10 * uint64(parts)
	return c
}

// cleared frees what ended uploads left as the leader does, and says in how many
// entries. What accounts use does not rise on the way.
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
		m.must(&ClearUploads{Items: left})
		m.check()
		if now := m.quota(bob); now.Used() > before.Used() {
			m.t.Errorf("entry %d brings what is used from %d to %d bytes", entries, before.Used(), now.Used())
		}
	}
}

func TestPartsOfALargeUploadAreFreedInSteps(t *testing.T) {
	const parts = 2*MaxFreed + 10
	for _, tc := range []struct {
		name    string
		allowed uint64 // bytes
		end     func(s *shelf, complete *CompleteUpload)
		used    uint64 // as soon as the upload has ended
	}{
		{"completed", Unlimited, func(s *shelf, c *CompleteUpload) { s.must(c) }, parts*10 + parts},
		{"completed, and there is no room for object and parts", parts * 10, func(s *shelf, c *CompleteUpload) { s.must(c) }, parts * 10},
		{"aborted", Unlimited, func(s *shelf, _ *CompleteUpload) {
			s.must(&AbortUpload{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "k", ID: "up"})
		}, parts},
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
			if q := s.quota(bob); q.Used() != tc.used {
				t.Errorf("%d bytes are used, want %d", q.Used(), tc.used)
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
			want := uint64(0)
			if s.current("k") != "" {
				want = parts * 10
			}
			if q := s.quota(bob); q.Stored != want || q.Ending != 0 {
				t.Errorf("in the end %+v, want %d bytes", q, want)
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
				if q := s.quota(bob); q.Used() > parts { // what of the blocks is no content
					t.Errorf("without the object %d bytes are used", q.Used())
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

// Content that something else names is owed though it is not freed: in the end the
// account uses what it names.
func TestPartsThatShareContentOweItOnce(t *testing.T) {
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
	s.must(s.completeOf("k", "up", "v2", contents[3], listed...))
	s.check()
	if q := s.quota(bob); q.Stored != 30 || q.Used() != 30-18 {
		t.Errorf("%+v", q)
	}
	for range 2 {
		left, err := s.view().Ended(10)
		if err != nil || len(left) != 1 {
			t.Fatalf("%v, %v", left, err)
		}
		s.must(&ClearUploads{Items: left})
		s.check()
	}
	if q := s.quota(bob); q.Stored != 20 || q.Used() != 20 {
		t.Errorf("%+v", q)
	}
}
