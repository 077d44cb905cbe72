package state

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Apply rejects every put that RoomForObject rejects, whatever the content is.
func TestTheQuotaPrecheckRefusesWhatApplyRefuses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := shelved(rt, 1000)
		sizes := rapid.IntRange(1, 40)
		keys := rapid.SampledFrom([]string{"a", "b", "c"})
		n := 0
		put := func() *PutObject {
			n++
			p := s.putOf(keys.Draw(rt, "key"), VersionID(fmt.Sprint(n)), rapid.SampledFrom(contents).Draw(rt, "content"))
			p.Object.Size = uint64(sizes.Draw(rt, "size"))
			// The DAG is as large, has nodes, or has blocks that repeat.
			p.Content.Bytes = uint64(max(1, int(p.Object.Size)+rapid.IntRange(-9, 2).Draw(rt, "nodes")))
			if r, err := s.view().Root(p.Object.Root); err == nil && r.Status == Pinned {
				p.Content.Bytes = r.Size
				p.Object.Size = max(p.Object.Size, r.Size-min(r.Size, 2)) // as nodes are bounded
			}
			return p
		}
		for range rapid.IntRange(0, 6).Draw(rt, "before") {
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				s.versioning(rapid.SampledFrom([]Versioning{Versioned, Suspended}).Draw(rt, "versioning"))
			case 1:
				c := rapid.SampledFrom(contents).Draw(rt, "pinned")
				if err := s.create(bob, RequestID(fmt.Sprint("p", n)), c); err == nil {
					if r, err := s.view().Root(rootOf(rt, c)); err == nil {
						s.must(&ReportArrivals{Items: []Arrival{{Root: r.Key, Born: r.Born, Bytes: 3}}})
					}
				}
			default:
				s.must(put())
			}
		}
		s.must(&SetQuota{Account: bob, Allowance: uint64(rapid.IntRange(0, 80).Draw(rt, "allowance"))})
		p := put()
		refusedEarly := s.view().RoomForObject(&s.b, p.Object.Key, Incoming{Size: p.Object.Size, Most: p.Object.Size + 2})
		if refusedEarly != nil && !errors.Is(refusedEarly, ErrQuota) {
			rt.Fatal(refusedEarly)
		}
		if _, err := s.apply(p); refusedEarly != nil && !errors.Is(err, ErrQuota) {
			rt.Fatalf("%+v was refusedEarly to be refused, and got %v", p, err)
		}
	})
}

// RoomForObject accepts content that a pin of the account waits for and is charged for. The account is above its
// allowance, and the pin is in the place of a larger one.
func TestTheQuotaPrecheckAllowsForWhatAPutReplaces(t *testing.T) {
	s := shelved(t, 10)
	s.must(create(bob, "old", contents[1]))
	s.hold(rootOf(t, contents[1]))
	s.must(&SetQuota{Account: bob, Allowance: 3})
	s.must(replace(bob, "old", "new", contents[2]))
	if q := s.quota(bob); q.Coming != 10 {
		t.Fatalf("%+v", q)
	}
	p := s.putOf("k", "v1", contents[2])
	p.Object.Size, p.Content.Bytes = 4, 4
	if err := s.view().RoomForObject(&s.b, "k", Incoming{Size: 4, Most: 6}); err != nil {
		t.Errorf("refusedEarly: %v", err)
	}
	s.must(p)
	s.check()
}

// A refusal says how large the content is where that is known and everybody may know.
// The size of what objects of private buckets alone name is told to nobody else.
func TestRefusalsSayHowLargeTheContentIs(t *testing.T) {
	s := shelved(t, Unlimited)
	s.must(create(alice, "a", contents[1]))
	s.hold(rootOf(t, contents[1]))
	s.must(s.putOf("private", "v1", contents[2]))
	s.must(&SetQuota{Account: alice, Allowance: 5})
	s.must(&SetQuota{Account: bob, Allowance: 5})
	private := s.create(alice, "b", contents[2])
	pinned := s.create(bob, "c", contents[1])
	unknown := s.create(alice, "d", contents[3])
	_, more := s.apply(heavyPin("e", contents[1], 7))
	_, tags := s.apply(&SetObjectTags{
		Account: bob, Bucket: s.b.Name, Born: s.b.Born, Key: "private", Tags: []Tag{{"t", strings.Repeat("\U0001F4CC", MaxTagValueRunes)}},
	})
	_, put := s.apply(s.putOf("more", "v2", contents[3]))
	refusedEarly := s.view().RoomForObject(&s.b, "more", Incoming{Size: 11, Most: 12})
	for _, tc := range []struct {
		what string
		err  error
		want string
	}{
		{"a pin of what others pinned", pinned, "the content, 10 bytes, does not fit: "},
		{"a pin of what is private", private, "the content does not fit: "},
		{"a pin of what nobody knows", unknown, "the content does not fit: "},
		{"a put", put, "the content, 9 bytes, does not fit: "},
		{"a pin with metadata", more, "the content, 10 bytes, and its metadata, 7 bytes above those that are free, do not fit: "},
		{"tags", tags, "metadata, 8 bytes above those that are free, does not fit: "},
		{"a put before its body", refusedEarly, "the content, 11 bytes, does not fit: "},
	} {
		if !errors.Is(tc.err, ErrQuota) || !strings.HasPrefix(tc.err.Error(), tc.want) || !strings.Contains(tc.err.Error(), "of the 5 bytes of the account's free storage are used") {
			t.Errorf("%s: %v, want %q", tc.what, tc.err, tc.want)
		}
	}
}
