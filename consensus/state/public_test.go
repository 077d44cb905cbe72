package state

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func (s *shelf) setPublic(public bool) *SetBucketPublic {
	return &SetBucketPublic{Account: s.b.Account, Name: s.b.Name, Born: s.b.Born, Public: public}
}

// turned walks through buckets as the leader does, and says in how many entries.
func (m *machine) turned() (entries int) {
	m.t.Helper()
	for {
		left, err := m.view().Turning(10)
		if err != nil {
			m.t.Fatal(err)
		}
		if len(left) == 0 {
			return entries
		}
		entries++
		m.must(&TurnBuckets{Items: left})
		m.check()
	}
}

// seen tells who may see content, for one who follows what nodes are told of it.
type seen struct {
	*shelf
	root    RootKey
	private bool
}

// step applies a command after which the content has to be private or not, and which
// has to tell its nodes if that is new.
func (s *seen) step(what string, cmd Command, private bool) {
	s.t.Helper()
	s.must(cmd)
	s.check()
	root, err := s.view().Root(s.root)
	if err != nil || root.Private() != private {
		s.t.Fatalf("%s: %+v, %v, want private %v", what, root, err, private)
	}
	told := slices.ContainsFunc(s.fx.Roots, func(r RootChange) bool { return r.Root == s.root && len(r.Nodes) > 0 })
	if private != s.private && !told {
		s.t.Errorf("%s: nobody hears that it is private: %v", what, private)
	}
	s.private = private
}

// Content is public while an object of a public bucket or a pin names it, and nodes are notified when that
// changes. Parts of an upload do not make content public.
func TestWhatAPublicBucketNamesIsPublic(t *testing.T) {
	s := &seen{shelf: shelved(t, Unlimited)}
	put := s.putOf("k", "v1", contents[1])
	s.root, s.private = put.Content.Root, true
	theirs := &shelf{s.machine, s.bucket(alice, "private")}
	drop := func(of *shelf, key string) *DeleteObjects {
		return &DeleteObjects{Account: of.b.Account, Bucket: of.b.Name, Born: of.b.Born, Keys: []string{key}}
	}

	s.step("an object", put, true)
	s.step("its bucket becomes public", s.setPublic(true), false)
	s.step("and does so again", s.setPublic(true), false)
	s.step("a private object of another account", theirs.putOf("k", "v2", contents[1]), false)
	s.step("the public one goes", drop(s.shelf, "k"), true)
	s.step("a public one again", s.putOf("k", "v3", contents[1]), false)
	s.step("is put anew", s.putOf("k", "v4", contents[1]), false)
	s.step("is replaced by other content", s.putOf("k", "v5", contents[2]), true)

	s.step("an upload of a public bucket", s.begin("up", "up"), true)
	s.step("its part", s.partOf("up", "up", 1, "p1", contents[1]), true)
	s.step("a copy of it", s.partOf("up", "up", 2, "p2", contents[2]), true)
	s.step("is an object", s.completeOf("up", "up", contents[1], Part{Number: 1, ID: "p1"}, Part{Number: 2, ID: "p2"}), false)
	s.step("a pin", create(alice, "pin", contents[1]), false)
	s.step("the object goes", drop(s.shelf, "up"), false)
	s.step("the pin goes", &DeletePin{Account: alice, ID: "pin"}, true)

	other := s.bucket(bob, "other")
	cp := &CopyObject{
		Account: bob, Bucket: s.b.Name, Born: s.b.Born, Object: s.putOf("copy", "v8", contents[1]).Object,
		SourceBucket: "other", SourceBorn: other.Born, SourceKey: "k", SourceID: "v7",
	}
	s.step("an object of a private bucket", (&shelf{s.machine, other}).putOf("k", "v7", contents[1]), true)
	s.step("copied into a public one", cp, false)
	s.step("which becomes private", s.setPublic(false), true)
	s.step("and public", s.setPublic(true), false)
	s.step("the copy goes", drop(s.shelf, "copy"), true)
	s.must(drop(s.shelf, "k"))
	s.must(&DeleteBucket{Account: bob, Name: s.b.Name, Born: s.b.Born})
	s.refused(s.setPublic(false), ErrNoBucket)
	s.b = s.bucket(bob, s.b.Name)
	if s.b.Public {
		t.Error("a bucket is public as the one before it was")
	}
	s.step("an object of the next bucket of the name", s.putOf("k", "v9", contents[1]), true)

	s.must(&CreateBucket{Bucket: Bucket{Account: bob, Name: "born-public", Created: 1, Public: true}})
	born, err := s.view().Bucket(bob, "born-public")
	if err != nil {
		t.Fatal(err)
	}
	s.step("an object of a bucket that was made public", (&shelf{s.machine, born}).putOf("k", "v10", contents[1]), false)
	late := s.setPublic(true)
	late.Born++
	s.refused(late, ErrNoBucket)
	s.must(&TurnBuckets{Items: []BucketName{{bob, "bucket"}, {bob, "absent"}, {"nobody", "bucket"}}}) // of a leader that was late
	s.check()
	s.must(&CloseAccount{Account: bob})
	s.refused(s.setPublic(true), ErrUnauthorized)
}

// A version of a public bucket is public, also if it is not current or is under a delete marker.
func TestVersionsFollowTheirBucket(t *testing.T) {
	s := &seen{shelf: shelved(t, Unlimited)}
	first := s.putOf("k", "v1", contents[1])
	s.root, s.private = first.Content.Root, true
	drop := func(id VersionID) *DeleteObjects {
		d := &DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k"}, Marker: "m" + id, Created: 7}
		if id != "" {
			d.IDs = []VersionID{id}
		}
		return d
	}
	s.must(&SetVersioning{Account: bob, Bucket: "bucket", Born: s.b.Born, Versioning: Versioned})
	s.step("a version", first, true)
	s.step("public", s.setPublic(true), false)
	s.step("with a newer one", s.putOf("k", "v2", contents[2]), false)
	s.step("private", s.setPublic(false), true)
	s.step("public again", s.setPublic(true), false)
	s.step("under a delete marker", drop(""), false)
	s.step("the newer one is gone", drop("v2"), false)
	s.step("the marker too", drop("m"), false)
	if s.must(drop("v1")); s.kept(s.root) {
		t.Error("it was removed for good, and is kept")
	}
}

// A walk that makes a bucket public misses no version that becomes current or old while it is under way. It goes
// through the versions that are not current first.
func TestVersionsThatMoveAreNotMissed(t *testing.T) {
	s := shelved(t, Unlimited)
	s.must(&SetVersioning{Account: bob, Bucket: "bucket", Born: s.b.Born, Versioning: Versioned})
	for _, id := range []string{"1", "2"} {
		for _, k := range []string{"a", "b", "c"} {
			s.must(s.putOf(k, VersionID(k+id), contents[1]))
		}
	}
	apply := func(cmd Command) {
		t.Helper()
		s.index++
		if _, err := run(s.memory, cmd, &entry{index: s.index, settle: 1, fx: &s.fx}); err != nil {
			t.Fatal(err)
		}
		s.check()
	}
	walk := func() { apply(&TurnBuckets{Items: []BucketName{{bob, "bucket"}}}) }
	apply(s.setPublic(true)) // the old version of a
	apply(s.putOf("a", "a3", contents[1]))
	walk() // that of b
	apply(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"b"}, Marker: "m", Created: 7})
	apply(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"c"}, IDs: []VersionID{"c2"}, Marker: "m", Created: 7})
	apply(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"b"}, IDs: []VersionID{"m"}, Marker: "m", Created: 7})
	for range 10 {
		walk()
	}
	root, err := s.view().Root(rootOf(t, contents[1]))
	if err != nil || root.Public != 6 || root.Links != 6 || len(s.rows(tableTurning)) != 0 {
		t.Errorf("%+v, %v", root, err)
	}
}

// A large bucket becomes public or private in bounded entries, and objects that change meanwhile are counted
// right. So it is before and behind the walk, and when the setting changes once more.
func TestALargeBucketTurnsInSteps(t *testing.T) {
	s := shelved(t, Unlimited)
	const objects = 2*MaxSettle + 10
	name := func(i int) string { return fmt.Sprintf("%05d", i) }
	version := 0
	put := func(key, content string) {
		t.Helper()
		version++
		s.must(s.putOf(key, VersionID(fmt.Sprint(version)), content))
	}
	for i := range objects {
		put(name(i), contents[1+i%2])
	}
	put("zz", contents[4]) // the last
	last := rootOf(t, contents[4])
	private := func() bool {
		t.Helper()
		r, err := s.view().Root(last)
		if err != nil {
			t.Fatal(err)
		}
		return r.Private()
	}
	public := func(of string) uint64 {
		t.Helper()
		r, err := s.view().Root(rootOf(t, of))
		if err != nil {
			t.Fatal(err)
		}
		return r.Public
	}

	s.must(s.setPublic(true))
	s.check()
	if !s.fx.Settling || !private() || public(contents[1])+public(contents[2]) != MaxSettle {
		t.Fatalf("after the first entry: told %v, the last is private %v", s.fx.Settling, private())
	}
	drop := func(keys ...string) {
		t.Helper()
		s.must(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: keys})
		s.check()
	}
	drop(name(3), name(MaxSettle+3))
	put(name(5), contents[3])
	put(name(MaxSettle+5), contents[3])
	put(name(objects-1), contents[1])
	put("a-new-one", contents[1]) // behind the walk
	put("00000-new", contents[1])
	s.check()
	if public(contents[3]) != 2 {
		t.Errorf("%d of two objects count as public", public(contents[3]))
	}
	if entries := s.turned(); entries != 2 || private() {
		t.Errorf("%d more entries, private %v", entries, private())
	}

	s.must(s.setPublic(false))
	left, err := s.view().Turning(10)
	if err != nil || !slices.Equal(left, []BucketName{{bob, "bucket"}}) || private() {
		t.Fatalf("%+v, %v, private %v", left, err, private())
	}
	s.must(&TurnBuckets{Items: left})
	s.must(s.setPublic(true)) // in the middle
	s.check()
	s.must(s.setPublic(false))
	s.check()
	if entries := s.turned(); entries != 2 || !private() || public(contents[1])+public(contents[2])+public(contents[3]) != 0 {
		t.Errorf("%d more entries, private %v", entries, private())
	}

	s.must(s.setPublic(true))
	for from := 0; from < objects; from += MaxDeleteKeys { // while it is walked through
		var keys []string
		for i := from; i < min(from+MaxDeleteKeys, objects); i++ {
			keys = append(keys, name(i))
		}
		drop(keys...)
	}
	drop("zz", "a-new-one", "00000-new")
	if len(s.rows(tableTurning)) != 1 {
		t.Fatal("the walk is over, which was to be cut")
	}
	s.must(&DeleteBucket{Account: bob, Name: "bucket", Born: s.b.Born})
	s.check()
	if left := s.rows(tableTurning, tableLink, tableObject); len(left) != 0 {
		t.Errorf("%q are left of a bucket that is gone", left)
	}
}

// In any history with steps of a few objects, every count is right after each step. The same commands lead to the
// same bytes, also when they are applied anew from any of them on.
func TestBucketsTurnInAnyHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := rich(rt, Unlimited)
		m.narrow = true
		type applied struct {
			cmd    Command
			settle int
		}
		var log []applied
		apply := func(m *machine, a applied) {
			m.index++
			m.fx = Effects{}
			_, err := run(m.memory, a.cmd, &entry{index: m.index, settle: a.settle, fx: &m.fx})
			var refused *Error
			if err != nil && !errors.As(err, &refused) {
				rt.Fatalf("%+v: %v", a.cmd, err)
			}
		}
		steps := rapid.IntRange(1, 50).Draw(rt, "steps")
		from := rapid.IntRange(0, steps-1).Draw(rt, "anew from")
		var anew *machine
		for step := range steps {
			if step == from {
				anew = &machine{memory: m.fork(), t: rt, index: m.index}
			}
			a := applied{anyNaming(rt, m), rapid.IntRange(1, 3).Draw(rt, "room")}
			if anew != nil {
				log = append(log, a)
			}
			apply(m, a)
			m.check()
			if rt.Failed() {
				rt.Fatalf("after step %d: %+v", step, a.cmd)
			}
		}
		for range 100 {
			left, err := m.view().Turning(2)
			if err != nil {
				rt.Fatal(err)
			}
			if len(left) == 0 {
				break
			}
			a := applied{&TurnBuckets{Items: left}, 1}
			log = append(log, a)
			apply(m, a)
			m.check()
		}
		if left := m.rows(tableTurning); len(left) != 0 {
			rt.Fatalf("it never ends: %q", left)
		}
		for _, a := range log {
			apply(anew, a)
		}
		if !slices.Equal(m.rows(), anew.rows()) {
			rt.Fatal("the same commands lead to another state")
		}
	})
}
