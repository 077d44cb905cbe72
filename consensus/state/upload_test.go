package state

import (
	"fmt"
	"strings"
	"testing"
)

// A repeated CompleteUpload has the first result and makes no second object, while that object is there. A list of
// other parts is rejected, and so is a repeat after the object has gone.
func TestAnUploadBecomesOneObject(t *testing.T) {
	for _, to := range []Versioning{Unversioned, Versioned, Suspended} {
		t.Run(fmt.Sprint("versioning ", to), func(t *testing.T) {
			s := shelved(t, Unlimited)
			if to != Unversioned {
				s.versioning(to)
			}
			s.must(s.begin("k", "up"))
			s.must(s.partOf("k", "up", 1, "p1", contents[1]))
			s.must(s.partOf("k", "up", 2, "p2", contents[2]))
			of := func(cid string, created Millis, parts ...Part) *CompleteUpload {
				c := s.completeOf("k", "up", cid, parts...)
				c.Object.Created = created
				return c
			}
			one, two := Part{Number: 1, ID: "p1", ETag: "e-p1"}, Part{Number: 2, ID: "p2", ETag: "e-p2"}
			s.must(s.putOf("k", "later", contents[1])) // its time is 5
			first := s.must(of(contents[3], 5, one, two))
			if first.Created != 6 {
				t.Errorf("made at %d, behind the one of 5", first.Created)
			}
			judge := func() {
				t.Helper()
				again := two
				again.ID = "p3" // the same bytes were put again between two looks
				before := s.fork()
				for _, parts := range [][]Part{{one, two}, {one, again}} {
					if r := s.must(of(contents[3], 99, parts...)); fmt.Sprint(r) != fmt.Sprint(first) {
						t.Errorf("told %+v, and then %+v", first, r)
					}
				}
				compare(t, tableObject, s.rows(), before.rows())
				s.refused(of(contents[3], 9, one), ErrInvalidPart)
				s.refused(of(contents[3], 9, one, Part{Number: 3, ID: "p2", ETag: "e-p2"}), ErrInvalidPart)
				s.refused(of(contents[4], 9, one, two), ErrInvalidPart)
				wrong := of(contents[3], 9, one, two)
				wrong.Object.ID = "another"
				s.refused(wrong, ErrInvalid)
			}
			judge()
			s.check()
			if to == Versioned {
				s.must(s.putOf("k", "newest", contents[2]))
				judge()
				s.drop("marker", "k")
				judge()
			}
			s.drop("gone", "k up")
			s.refused(of(contents[3], 9, one, two), ErrNoUpload)
		})
	}
}

// CreateUpload rejects a missing or long key, too many tags and an unknown checksum, and accepts a key and tags at
// their bounds.
func TestBoundsOfAnUpload(t *testing.T) {
	many := make([]Tag, MaxTags+1)
	for i := range many {
		many[i] = Tag{Key: fmt.Sprint(i), Value: "v"}
	}
	long := strings.Repeat("k", MaxKeyBytes+1)
	for name, spoil := range map[string]func(*Upload){
		"no key":     func(u *Upload) { u.Key = "" },
		"a long key": func(u *Upload) { u.Key = long },
		"many tags":  func(u *Upload) { u.Tags = many },
		"a checksum": func(u *Upload) { u.Checksum.Algorithm = "CRC33" },
	} {
		s := shelved(t, Unlimited)
		good, bad := s.begin(long[:MaxKeyBytes], "up"), s.begin("k", "bad")
		good.Upload.Tags = many[:MaxTags]
		s.must(good)
		spoil(&bad.Upload)
		before := len(s.rows())
		if _, err := s.apply(bad); err == nil || len(s.rows()) != before {
			t.Errorf("%s: %v, %d rows more", name, err, len(s.rows())-before)
		}
	}
}
