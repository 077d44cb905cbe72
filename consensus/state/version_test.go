package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// plain is what the model knows of one version.
type plain struct {
	id     VersionID
	null   bool
	marker bool
	cid    string
}

// plainly is the words of versioning as S3 has them, about one bucket: of each key
// its versions, the newest first.
type plainly struct {
	status Versioning
	keys   map[string][]plain
}

// add makes a version, or a marker, the newest.
func (p *plainly) add(k string, v plain) {
	v.null = p.status != Versioned
	if v.null {
		p.keys[k] = slices.DeleteFunc(p.keys[k], func(old plain) bool { return old.null })
	}
	p.keys[k] = slices.Insert(p.keys[k], 0, v)
}

// drop removes what an id names.
func (p *plainly) drop(k string, id VersionID) {
	p.keys[k] = slices.DeleteFunc(p.keys[k], func(v plain) bool { return v.id == id || v.null && id == NullVersion })
}

// lines returns the versions of all keys in order.
func (p *plainly) lines() (lines []string) {
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range p.keys {
			if !yield(k) {
				return
			}
		}
	}) {
		for i, v := range p.keys[k] {
			lines = append(lines, fmt.Sprintf("%q %s %v %v %v", k, v.id, v.null, v.marker, i == 0))
		}
	}
	return lines
}

// listed returns all versions of the bucket, read in pages.
func (s *shelf) listed(q VersionsQuery) (lines []string) {
	s.t.Helper()
	for {
		page, err := s.view().Versions(&s.b, q)
		if err != nil {
			s.t.Fatal(err)
		}
		n := len(page.Versions) + len(page.Prefixes)
		if n > q.Limit || page.Truncated && n < q.Limit || page.Truncated != (page.NextKey != "") || len(page.Latest) != len(page.Versions) {
			s.t.Fatalf("%+v: %+v", q, page)
		}
		type entry struct{ by, line string }
		var on []entry
		for i, o := range page.Versions {
			on = append(on, entry{o.Key, fmt.Sprintf("%q %s %v %v %v", o.Key, o.ID, !o.Versioned, o.Marker, page.Latest[i])})
		}
		for _, p := range page.Prefixes {
			on = append(on, entry{p, fmt.Sprintf("%q", p)})
		}
		slices.SortStableFunc(on, func(a, b entry) int { return strings.Compare(a.by, b.by) })
		for _, e := range on {
			lines = append(lines, e.line)
		}
		if !page.Truncated {
			return lines
		}
		q.AfterKey, q.AfterID = page.NextKey, page.NextID
	}
}

// refresh reads the bucket's record again.
func (s *shelf) refresh() {
	s.t.Helper()
	var err error
	if s.b, err = s.view().Bucket(s.b.Account, s.b.Name); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shelf) versioning(to Versioning) {
	s.t.Helper()
	s.must(&SetVersioning{Account: s.b.Account, Bucket: s.b.Name, Born: s.b.Born, Versioning: to})
	s.refresh()
}

// drop deletes keys, and versions: a key, a space and an id.
func (s *shelf) drop(marker VersionID, names ...string) []Deed {
	s.t.Helper()
	cmd := &DeleteObjects{Account: s.b.Account, Bucket: s.b.Name, Born: s.b.Born, Marker: marker, Created: 2}
	for _, name := range names {
		k, id, _ := strings.Cut(name, " ")
		cmd.Keys, cmd.IDs = append(cmd.Keys, k), append(cmd.IDs, VersionID(id))
	}
	return s.must(cmd).Deeds
}

// After any history of a bucket, its versions and current objects are those of a plain model of S3 versioning.
func TestAnyHistoryOfVersionsIsWhatTheWordsSay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := shelved(rt, Unlimited)
		model := &plainly{keys: map[string][]plain{}}
		key := rapid.SampledFrom([]string{"a", "a\x00", "a/b", "a/c"})
		n := 0
		fresh := func() VersionID { n++; return VersionID(fmt.Sprintf("v%d", n)) }
		one := func(k string) (plain, bool) {
			if len(model.keys[k]) == 0 {
				return plain{}, false
			}
			return rapid.SampledFrom(model.keys[k]).Draw(rt, "version"), true
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			k := key.Draw(rt, "key")
			switch rapid.IntRange(0, 8).Draw(rt, "step") {
			case 0:
				to := rapid.SampledFrom([]Versioning{Versioned, Suspended}).Draw(rt, "status")
				s.versioning(to)
				model.status = to
			case 1, 2, 3:
				put := s.putOf(k, fresh(), rapid.SampledFrom(contents).Draw(rt, "cid"))
				put.Object.Created = Millis(rapid.IntRange(1, 20).Draw(rt, "created"))
				s.must(put)
				model.add(k, plain{id: put.Object.ID, cid: string(put.Object.Root)})
			case 4:
				from := key.Draw(rt, "source")
				v, ok := one(from)
				if !ok || v.marker {
					continue
				}
				o := s.putOf(k, fresh(), contents[0]).Object
				o.Root = RootKey(v.cid)
				s.must(&CopyObject{
					Account: bob, Bucket: "bucket", Born: s.b.Born, Object: o,
					SourceBucket: "bucket", SourceBorn: s.b.Born, SourceKey: from, SourceID: v.id,
				})
				model.add(k, plain{id: o.ID, cid: v.cid})
			case 5:
				id := fresh()
				up := UploadID(id)
				s.must(s.begin(k, up))
				s.must(s.partOf(k, up, 1, VersionID("p"+id), contents[2]))
				done := s.completeOf(k, up, contents[4], Part{Number: 1, ID: VersionID("p" + id)})
				s.must(done)
				model.add(k, plain{id: id, cid: string(done.Object.Root)})
			case 6:
				id := fresh()
				s.drop(id, k)
				if model.status == Unversioned {
					delete(model.keys, k)
				} else {
					model.add(k, plain{id: id, marker: true})
				}
			default:
				id := NullVersion
				if v, ok := one(k); ok && rapid.IntRange(0, 3).Draw(rt, "by its id") > 0 {
					id = v.id
				}
				s.drop(fresh(), k+" "+string(id))
				model.drop(k, id)
			}
			s.check()
		}
		agrees(rt, s, model)
	})
}

// agrees compares what is shown of a bucket with the model.
func agrees(t *rapid.T, s *shelf, model *plainly) {
	t.Helper()
	want := model.lines()
	for _, limit := range []int{1, 2, 3, MaxListLimit} {
		if got := s.listed(VersionsQuery{Limit: limit}); !slices.Equal(got, want) {
			t.Fatalf("in pages of %d:\n%s\nwant\n%s", limit, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	left := 0
	for k, all := range model.keys {
		left += len(all)
		now, err := s.view().Object(&s.b, k)
		if there := len(all) > 0 && !all[0].marker; there != (err == nil) || there && now.ID != all[0].id || err != nil && !errors.Is(err, ErrNoKey) {
			t.Fatalf("%q is %q, %v, want %+v", k, now.ID, err, all)
		}
		newest, err := s.view().Version(&s.b, k, "")
		if (len(all) > 0) != (err == nil) || err == nil && newest.ID != all[0].id {
			t.Fatalf("the newest of %q is %q, %v, want %+v", k, newest.ID, err, all)
		}
		for _, v := range all {
			for _, id := range []VersionID{v.id, NullVersion}[:1+b2i(v.null)] {
				o, err := s.view().Version(&s.b, k, id)
				if err != nil || o.ID != v.id || o.Marker != v.marker || string(o.Root) != v.cid {
					t.Fatalf("version %s of %q: %+v, %v, want %+v", id, k, o, err, v)
				}
			}
		}
		if _, err := s.view().Version(&s.b, k, "none"); !errors.Is(err, ErrNoVersion) {
			t.Fatalf("a version that is not there: %v", err)
		}
	}
	empty := &DeleteBucket{Account: bob, Name: "bucket", Born: s.b.Born}
	if left > 0 {
		s.refused(empty, ErrNotEmpty)
		return
	}
	s.must(empty)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Pages of versions with any prefix, delimiter and limit are those of one whole list.
func TestPagesOfVersionsAreCutAnywhere(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := shelved(rt, Unlimited)
		s.versioning(Versioned)
		keys := rapid.SliceOfNDistinct(anyKey(4).Filter(func(k string) bool { return k != "" }), 0, 12, rapid.ID).Draw(rt, "keys")
		for i, k := range keys {
			for n := range rapid.IntRange(1, 3).Draw(rt, "versions") {
				s.must(s.putOf(k, VersionID(fmt.Sprintf("%d-%d", i, n)), contents[1]))
			}
			if rapid.Bool().Draw(rt, "marked") {
				s.drop("marker", k)
			}
		}
		q := VersionsQuery{Prefix: anyKey(2).Draw(rt, "prefix"), Delimiter: anyKey(1).Draw(rt, "delimiter"), Limit: MaxListLimit}
		var want []string
		all := s.listed(VersionsQuery{Limit: MaxListLimit})
		for _, name := range expected(keys, q.Prefix, q.Delimiter, "") {
			if quoted := fmt.Sprintf("%q", name[2:]); name[0] == 'p' {
				want = append(want, quoted)
			} else {
				for _, line := range all {
					if strings.HasPrefix(line, quoted+" ") {
						want = append(want, line)
					}
				}
			}
		}
		for q.Limit = 1; q.Limit <= len(want)+1; q.Limit++ {
			if got := s.listed(q); !slices.Equal(got, want) {
				rt.Fatalf("%+v:\n%s\nwant\n%s", q, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	})
}

// A page of versions that begins behind a removed version leaves out none that is there.
func TestAPageOfVersionsGoesOnBehindWhatIsGone(t *testing.T) {
	s := shelved(t, Unlimited)
	s.versioning(Versioned)
	for n := range 6 {
		s.must(s.putOf("k", VersionID(fmt.Sprint("v", n)), contents[1]))
	}
	s.must(s.putOf("l", "w", contents[1]))
	s.drop("m", "k v5", "k v4")
	want := []string{`"k" v3 false false true`, `"k" v2 false false false`, `"k" v1 false false false`, `"k" v0 false false false`, `"l" w false false true`}
	if got := s.listed(VersionsQuery{AfterKey: "k", AfterID: "v4", Limit: 2}); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := s.listed(VersionsQuery{AfterKey: "k", AfterID: "v1", Limit: 1}); !slices.Equal(got, want[3:]) {
		t.Errorf("%q", got)
	}
	if got := s.listed(VersionsQuery{AfterKey: "k", Limit: 1}); !slices.Equal(got, want[4:]) {
		t.Errorf("%q", got)
	}
}

// A page of versions reads few rows for each entry that it returns, however many versions are rolled up in a
// prefix.
func TestPagesOfVersionsCostWhatTheyAnswer(t *testing.T) {
	s := shelved(t, Unlimited)
	s.versioning(Versioned)
	for i := range 20 {
		for j := range 20 {
			for n := range 5 {
				s.must(s.putOf(fmt.Sprintf("%02d/%02d", i, j), VersionID(fmt.Sprint(i, "-", j, "-", n)), contents[1]))
			}
		}
	}
	r := &counting{Reader: s.memory}
	page, err := NewView(r, 1).Versions(&s.b, VersionsQuery{Delimiter: "/", Limit: 10})
	if err != nil || len(page.Prefixes) != 10 || !page.Truncated || page.NextKey != "09/" || page.NextID != "" {
		t.Errorf("%+v, %v", page, err)
	}
	if most := 2 * 11 * (passRolled + 1); r.rows > most {
		t.Errorf("10 prefixes of 100 versions took %d rows, at most %d were expected", r.rows, most)
	}
	r.rows = 0
	if page, err = NewView(r, 1).Versions(&s.b, VersionsQuery{AfterKey: "03/10", AfterID: "3-10-3", Limit: 7}); err != nil || len(page.Versions) != 7 || page.Versions[0].ID != "3-10-2" {
		t.Errorf("%+v, %v", page, err)
	}
	if r.rows > 2*(7+1) {
		t.Errorf("7 versions took %d rows", r.rows)
	}
}

// A put or deletion reports for each key which version or marker it made, removed or did not find. Invalid
// deletions and settings of versioning are rejected and change nothing.
func TestDeedsTellWhatBecameOfEachKey(t *testing.T) {
	s := shelved(t, Unlimited)
	s.must(s.putOf("k", "v1", contents[1]))
	is := func(got []Deed, want ...Deed) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		s.check()
	}
	is(s.drop("", "k other", "absent other"), MissedVersion, DidNothing)
	is(s.must(s.putOf("l", "v2", contents[1])).Deeds)
	s.versioning(Versioned)
	is(s.must(s.putOf("k", "v3", contents[2])).Deeds, MadeVersion)
	is(s.must(s.putOf("k", "v3", contents[2])).Deeds, MadeVersion)
	is(s.must(s.putOf("k", "v1", contents[2])).Deeds, MadeNull)
	is(s.drop("m1", "k", "k", "absent", "l v2"), MadeMarker, MadeMarker, MadeMarker, RemovedVersion)
	is(s.drop("m1", "k"), MadeMarker) // once more
	is(s.drop("m2", "k m1", "k none", "absent m1", "k null"), RemovedMarker, FoundNoVersion, RemovedMarker, RemovedVersion)
	if s.current("k") != "v3" {
		t.Errorf("%q is current", s.current("k"))
	}
	s.versioning(Suspended)
	is(s.must(s.putOf("k", "v4", contents[3])).Deeds, MadeNull)
	is(s.drop("m3", "k"), MadeNullMarker)
	is(s.drop("m4", "k null"), RemovedMarker)
	if s.current("k") != "v3" {
		t.Errorf("%q is current", s.current("k"))
	}
	s.refused(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k"}}, ErrInvalid)
	s.refused(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k"}, Marker: NullVersion, Created: 1}, ErrInvalid)
	s.refused(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k", ""}, Marker: "m", Created: 1}, ErrInvalid)
	s.refused(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k"}, IDs: []VersionID{"a", "b"}, Marker: "m", Created: 1}, ErrInvalid)
	s.refused(&DeleteObjects{
		Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k"}, IDs: []VersionID{"v3"}, Marker: "m", Created: 1, If: Condition{Match: []string{"x"}},
	}, ErrPrecondition)
	s.refused(&SetVersioning{Account: bob, Bucket: "bucket", Born: s.b.Born}, ErrInvalid)
	s.refused(&SetVersioning{Account: bob, Bucket: "bucket", Born: s.b.Born, Versioning: Suspended + 1}, ErrInvalid)
	s.refused(&SetVersioning{Account: alice, Bucket: "bucket", Born: s.b.Born, Versioning: Versioned}, ErrNoBucket)
	s.refused(&CreateBucket{Bucket: Bucket{Account: bob, Name: "born-so", Created: 1, Versioning: Versioned}}, ErrInvalid)
	null := s.putOf("k", NullVersion, contents[1])
	s.refused(null, ErrInvalid)
}

// Every version is charged, and a removed one is not any more.
func TestVersionsAreCharged(t *testing.T) {
	s := shelved(t, 20)
	s.versioning(Versioned)
	s.must(s.putOf("k", "v1", contents[1]))
	s.must(s.putOf("k", "v2", contents[2]))
	s.refused(s.putOf("k", "v3", contents[4]), ErrQuota)
	s.drop("m", "k")
	s.refused(s.putOf("k", "v3", contents[4]), ErrQuota)
	if q := s.quota(bob); q.Stored != 20 {
		t.Errorf("%+v", q)
	}
	s.drop("m2", "k v1")
	s.must(s.putOf("k", "v3", contents[4]))
	s.versioning(Suspended)
	s.drop("m3", "k v2")
	s.must(s.putOf("k", "v4", contents[1]))
	s.must(s.putOf("k", "v5", contents[2])) // in the place of v4, which is null
	s.check()
	if q := s.quota(bob); q.Stored != 20 || s.kept(rootOf(t, contents[1])) {
		t.Errorf("%+v", q)
	}
}

// A closed account loses all versions of its objects, at most MaxSettle in one entry.
func TestAClosedAccountLosesItsVersions(t *testing.T) {
	s := shelved(t, Unlimited)
	s.versioning(Versioned)
	for i := range 3 {
		for n := range MaxSettle/2 + 100 {
			s.must(s.putOf(fmt.Sprint("k", n), VersionID(fmt.Sprint(i, "-", n)), contents[1+i]))
		}
	}
	for n := range 300 {
		s.drop("m", fmt.Sprint("k", n))
	}
	s.check()
	b, err := s.view().Bucket(bob, "bucket")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.view().OldVersions(&b); err != nil || n == 0 || n != uint64(len(s.rows(tableVersion))) {
		t.Errorf("%d old versions are told, %v; there are %d", n, err, len(s.rows(tableVersion)))
	}
	s.must(&CloseAccount{Account: bob})
	entries := 0
	for ; ; entries++ {
		closing, err := s.view().Closing(10)
		if err != nil {
			t.Fatal(err)
		}
		if len(closing) == 0 {
			break
		}
		before := len(s.rows(tableVersion)) + len(s.rows(tableObject))
		s.must(&ClearAccounts{Accounts: closing})
		if gone := before - len(s.rows(tableVersion)) - len(s.rows(tableObject)); gone > MaxSettle {
			t.Errorf("one entry removed %d versions", gone)
		}
		s.check()
	}
	for _, table := range []byte{tableVersion, tableVersionTime, tableObject, tableStored, tableLink, tableRoot} {
		if left := s.rows(table); len(left) != 0 {
			t.Errorf("table %c: %d rows are left", table, len(left))
		}
	}
	if entries < 2 {
		t.Errorf("all went in %d entries", entries)
	}
}

// In a bucket that never had versioning, puts and deletions read and write no table of versions.
func TestWithoutVersioningNothingIsLookedFor(t *testing.T) {
	s := shelved(t, Unlimited)
	s.must(s.putOf("k", "v1", contents[1]))
	r := &touched{memory: s.memory, tables: map[byte]int{}}
	for i, cmd := range []Command{
		s.putOf("k", "v2", contents[2]), s.putOf("l", "v3", contents[2]),
		&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k"}, Marker: "m", Created: 1},
	} {
		if _, err := Apply(r, uint64(100+i), OpID{}, cmd, &Effects{}); err != nil {
			t.Fatal(err)
		}
	}
	if r.tables[tableVersion]+r.tables[tableVersionTime] != 0 || r.tables[tableObject] == 0 {
		t.Errorf("%v", r.tables)
	}
}

// touched counts what is read, scanned and written by table.
type touched struct {
	*memory
	tables map[byte]int
}

func (m *touched) Get(k []byte) ([]byte, bool, error) {
	m.tables[k[0]]++
	return m.memory.Get(k)
}

func (m *touched) Set(k, v []byte) error {
	m.tables[k[0]]++
	return m.memory.Set(k, v)
}

func (m *touched) Delete(k []byte) error {
	m.tables[k[0]]++
	return m.memory.Delete(k)
}

func (m *touched) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	m.tables[lower[0]]++
	return m.memory.Scan(lower, upper, reverse, fn)
}
