package state

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// testShare returns a share of alice's bucket "one" that reads and writes under prefixes.
func testShare(prefixes ...string) Share {
	return Share{
		ID: "0123456789abcdef0123456789abcdef", Account: alice, Bucket: "one", Key: "sharekey", Name: "for Ann", Prefixes: prefixes,
		Read: true, Write: true, Created: 5,
	}
}

// A prefix that ends in a slash covers all keys and lists that begin with it, and any other prefix covers one key.
// It covers no list.
func TestAShareCoversWhatItsPrefixesSay(t *testing.T) {
	s := testShare("/", "e/", "photos", "ä/ö/")
	for k, want := range map[string]bool{
		"/": true, "//": true, "/x": true, "e/": true, "e/1": true, "e//": true, "e/../f": true, "photos": true, "ä/ö/\xff": true,
		"": false, "e": false, "E/1": false, "ee/": false, "./e/1": false, "photos/": false, "photos/1": false, "photos-private/x": false, "photo": false,
		"a\u0308/o\u0308/1": false, "ä/": false, "\x00e/": false,
	} {
		if s.Covers(k) != want {
			t.Errorf("%q is covered: %v", k, !want)
		}
	}
	for prefix, want := range map[string]bool{
		"/": true, "e/": true, "e/1": true, "ä/ö/x": true, "": false, "e": false, "photos": false, "photos/": false, "ä/": false, "p": false,
	} {
		if s.CoversList(prefix) != want {
			t.Errorf("a list of %q is covered: %v", prefix, !want)
		}
	}
}

// CreateShare rejects each share of the table, and the same share once more changes nothing.
func TestCreateShareRefuses(t *testing.T) {
	m := shareable(t)
	long := strings.Repeat("p", MaxKeyBytes+1)
	for name, tc := range map[string]struct {
		change func(*Share)
		want   *Error
	}{
		"no id":              {func(s *Share) { s.ID = "" }, ErrInvalid},
		"a short id":         {func(s *Share) { s.ID = s.ID[1:] }, ErrInvalid},
		"an id of capitals":  {func(s *Share) { s.ID = ShareID(strings.ToUpper(string(s.ID))) }, ErrInvalid},
		"no key":             {func(s *Share) { s.Key = "" }, ErrInvalid},
		"a long key":         {func(s *Share) { s.Key = KeyID(strings.Repeat("k", MaxIDLen+1)) }, ErrInvalid},
		"no rights":          {func(s *Share) { s.Read, s.Write = false, false }, ErrInvalid},
		"no prefix":          {func(s *Share) { s.Prefixes = nil }, ErrInvalid},
		"an empty prefix":    {func(s *Share) { s.Prefixes = []string{""} }, ErrInvalid},
		"a long prefix":      {func(s *Share) { s.Prefixes = []string{long} }, ErrInvalid},
		"no text":            {func(s *Share) { s.Prefixes = []string{"\xff"} }, ErrInvalid},
		"U+0000":             {func(s *Share) { s.Prefixes = []string{"a\x00b"} }, ErrInvalid},
		"nine prefixes":      {func(s *Share) { s.Prefixes = strings.Split("abcdefghi", "") }, ErrInvalid},
		"unsorted prefixes":  {func(s *Share) { s.Prefixes = []string{"b", "a"} }, ErrInvalid},
		"a prefix twice":     {func(s *Share) { s.Prefixes = []string{"a", "a"} }, ErrInvalid},
		"a long name":        {func(s *Share) { s.Name = strings.Repeat("ä", MaxNameRunes+1) }, ErrInvalid},
		"no time":            {func(s *Share) { s.Created = 0 }, ErrInvalid},
		"an end before":      {func(s *Share) { s.Expires = s.Created }, ErrInvalid},
		"an end without end": {func(s *Share) { s.Expires = maxCreated + 1 }, ErrInvalid},
		"no bucket":          {func(s *Share) { s.Bucket = "none" }, ErrNoBucket},
		"an earlier bucket":  {func(s *Share) { s.Born-- }, ErrNoBucket},
		"another account":    {func(s *Share) { s.Account = bob }, ErrNoBucket},
		"no account":         {func(s *Share) { s.Account = "nobody" }, ErrUnauthorized},
		"the key of a key":   {func(s *Share) { s.ID, s.Key = "f"+s.ID[1:], "k1" }, ErrConflict},
		"the key of a share": {func(s *Share) { s.ID = "f" + s.ID[1:] }, ErrConflict},
		"another grant":      {func(s *Share) { s.Write = false }, ErrExists},
	} {
		s := m.share(t, "e/")
		tc.change(&s)
		if _, err := m.apply(&CreateShare{Share: s}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	again := m.share(t, "e/")
	again.Key, again.Created = "other", 6 // as a second request mints them
	before := m.rows()
	m.must(&CreateShare{Share: again})
	if after := m.rows(tableShare, tableShareKey, tableMadeBy, tableAudit); !slices.Equal(after, rowsOf(before, tableShare, tableShareKey, tableMadeBy, tableAudit)) {
		t.Errorf("the same share again changes %v", after)
	}
}

// rowsOf returns the rows of some tables.
func rowsOf(all []row, tables ...byte) []row {
	return slices.DeleteFunc(slices.Clone(all), func(r row) bool { return !slices.Contains(tables, r.key[0]) })
}

// shareable returns a state with a bucket "one" of alice with a share of e/, an API key k1 and a signing
// key.
func shareable(t *testing.T) *machine {
	t.Helper()
	m := signedIn(t)
	m.must(&CreateKey{Key: APIKey{ID: "k1", Account: alice, Scope: Scopes()}})
	m.must(&RotateSigningKey{Sealed: []byte("sealed")})
	m.must(&CreateBucket{Bucket{Account: alice, Name: "one", Created: 1}})
	m.must(&CreateShare{Share: m.share(t, "e/")})
	return m
}

// share returns testShare of the bucket that there is.
func (m *machine) share(t *testing.T, prefixes ...string) Share {
	t.Helper()
	b, err := m.view().Bucket(alice, "one")
	if err != nil {
		t.Fatal(err)
	}
	s := testShare(prefixes...)
	s.Born = b.Born
	return s
}

// A share permits the changes to objects below its prefixes that its rights include, and no other change that a
// key may ask for. A new change is refused to shares, until it has a line here and in permits.
func TestAShareAsksForNothingButItsObjects(t *testing.T) {
	whole := testShare("e/", "x/one")
	whole.Born, whole.Delete = 7, true
	const in, out = "e/1", "x/one/1"
	changes := func(bucket string, born Incarnation, k, source string) map[string]Command {
		o := Object{Key: k}
		return map[string]Command{
			"put":      &PutObject{Account: alice, Bucket: bucket, Born: born, Object: o},
			"begin":    &CreateUpload{Account: alice, Bucket: bucket, Born: born, Upload: Upload{Key: k}},
			"part":     &PutPart{Account: alice, Bucket: bucket, Born: born, Key: k},
			"complete": &CompleteUpload{Account: alice, Bucket: bucket, Born: born, Object: o},
			"abort":    &AbortUpload{Account: alice, Bucket: bucket, Born: born, Key: k},
			"copy":     &CopyObject{Account: alice, Bucket: bucket, Born: born, Object: o, SourceBucket: bucket, SourceBorn: born, SourceKey: source},
			"joined":   &CopyPart{Account: alice, Bucket: bucket, Born: born, Key: k, SourceBucket: bucket, SourceBorn: born, SourceKey: source},
			"delete":   &DeleteObjects{Account: alice, Bucket: bucket, Born: born, Keys: []string{in, k}},
		}
	}
	needs := map[string]string{"delete": "d", "copy": "rw", "joined": "rw"}
	covered := map[reflect.Type]bool{}
	for name, change := range changes("one", 7, in, "x/one") {
		covered[reflect.TypeOf(change)] = true
		for _, rights := range []string{"", "r", "w", "d", "rw", "rd", "wd", "rwd"} {
			s := whole
			s.Read, s.Write, s.Delete = strings.Contains(rights, "r"), strings.Contains(rights, "w"), strings.Contains(rights, "d")
			want := !strings.ContainsFunc(cmp.Or(needs[name], "w"), func(r rune) bool { return !strings.ContainsRune(rights, r) })
			if s.permits(change) != want {
				t.Errorf("%s by %q: %v", name, rights, !want)
			}
		}
	}
	for what, all := range map[string]map[string]Command{
		"another bucket": changes("two", 7, in, in), "an earlier bucket": changes("one", 6, in, in), "another key": changes("one", 7, out, in),
	} {
		for name, change := range all {
			if whole.permits(change) {
				t.Errorf("%s in %s is permitted", name, what)
			}
		}
	}
	for name, change := range map[string]Command{
		"a source outside": changes("one", 7, in, out)["copy"], "a part from outside": changes("one", 7, in, out)["joined"],
		"a source in another bucket":   &CopyObject{Account: alice, Bucket: "one", Born: 7, Object: Object{Key: in}, SourceBucket: "two", SourceBorn: 7, SourceKey: in},
		"a part from an older bucket":  &CopyPart{Account: alice, Bucket: "one", Born: 7, Key: in, SourceBucket: "one", SourceBorn: 6, SourceKey: in},
		"a version":                    &DeleteObjects{Account: alice, Bucket: "one", Born: 7, Keys: []string{in}, IDs: []VersionID{"v"}},
		"a version among other things": &DeleteObjects{Account: alice, Bucket: "one", Born: 7, Keys: []string{in, in}, IDs: []VersionID{"", NullVersion}},
	} {
		if whole.permits(change) {
			t.Errorf("%s is permitted", name)
		}
	}
	for form := range 256 {
		change := newAsked(uint8(form)) //nolint:gosec // it fits
		if change != nil && !covered[reflect.TypeOf(change)] && whole.permits(change) {
			t.Errorf("%T is permitted", change)
		}
	}
}

// TestTheKeyOfAShareIsJudgedInApply promises that Apply holds a change to the limits of a share, and
// refuses it after the share was revoked.
func TestTheKeyOfAShareIsJudgedInApply(t *testing.T) {
	m := shareable(t)
	s := m.share(t, "e/")
	begin := func(k, id string) *ByKey {
		return &ByKey{Key: s.Key, Change: &CreateUpload{Account: alice, Bucket: "one", Born: s.Born, Upload: Upload{ID: UploadID(id), Key: k, Created: 1}}}
	}
	m.must(begin("e/1", "u1"))
	foreign := begin("e/1", "u2")
	foreign.Change.(*CreateUpload).Account = bob
	for name, cmd := range map[string]Command{
		"outside": begin("f/1", "u2"), "another account": foreign,
		"a pin":   &ByKey{Key: s.Key, Change: create(alice, "p1", contents[0])},
		"a share": &ByKey{Key: s.Key, Change: &CreateShare{Share: m.share(t, "a/")}},
		"its end": &ByKey{Key: s.Key, Change: &RevokeShare{Account: alice, Bucket: "one", Born: s.Born, ID: s.ID}},
	} {
		if _, err := m.apply(cmd); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := m.view().Judge(cmd); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s is judged: %v", name, err)
		}
	}
	m.must(&NoteUses{Items: []Use{{Key: s.Key, At: 60}}})
	if at, err := m.view().KeyUsed(s.Key); at != 60 || err != nil {
		t.Errorf("used at %d, %v", at, err)
	}
	m.must(&RevokeShare{Account: alice, Bucket: "one", Born: s.Born, ID: s.ID})
	if !m.fx.Keys {
		t.Error("the end of a share is not reported")
	}
	if _, err := m.apply(begin("e/2", "u2")); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("after its end: %v", err)
	}
	if _, err := m.apply(&RevokeShare{Account: alice, Bucket: "one", Born: s.Born, ID: s.ID}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a second end: %v", err)
	}
	m.checkCredentials()
}

// A share ends without a row left when its bucket is deleted, its account is closed or its key is revoked.
func TestWhatHasSharesEndsThem(t *testing.T) {
	for name, end := range map[string]func(m *machine, s *Share) Command{
		"the bucket":   func(_ *machine, s *Share) Command { return &DeleteBucket{Account: alice, Name: "one", Born: s.Born} },
		"the operator": func(_ *machine, s *Share) Command { return &RevokeKey{ID: s.Key} },
		"the owner":    func(_ *machine, s *Share) Command { return &RevokeKey{Account: alice, ID: s.Key} },
	} {
		m := shareable(t)
		s := m.share(t, "e/")
		if _, err := m.apply(&RevokeKey{Account: bob, ID: s.Key}); !errors.Is(err, ErrNotFound) {
			t.Errorf("another account ends a share: %v", err)
		}
		m.must(end(m, &s))
		if left := m.rows(tableShare, tableShareKey); len(left) > 0 || !m.fx.Keys {
			t.Errorf("%s leaves %v", name, left)
		}
		m.checkCredentials()
	}
	m := signedIn(t)
	m.must(&CreateBucket{Bucket{Account: bob, Name: "one", Created: 1}})
	b, err := m.view().Bucket(bob, "one")
	if err != nil {
		t.Fatal(err)
	}
	s := testShare("e/")
	s.Account, s.Born = bob, b.Born
	m.must(&CreateShare{Share: s})
	m.must(&CloseAccount{bob})
	if left := m.rows(tableShare, tableShareKey); len(left) > 0 {
		t.Errorf("a closed account leaves %v", left)
	}
}

// Pages of shares have every share of an account or bucket once and in order, whatever the limit is.
func TestSharesAreListedInPages(t *testing.T) {
	m := shareable(t)
	m.must(&CreateBucket{Bucket{Account: alice, Name: "two", Created: 1}})
	two, err := m.view().Bucket(alice, "two")
	if err != nil {
		t.Fatal(err)
	}
	var want []SharePlace
	want = append(want, SharePlace{m.share(t).Born, testShare().ID})
	for i := range 4 {
		s := testShare("k")
		s.ID, s.Key, s.Bucket, s.Born = ShareID(fmt.Sprintf("%032x", 4-i)), KeyID(fmt.Sprint("key", i)), "two", two.Born
		m.must(&CreateShare{Share: s})
		want = append(want, SharePlace{two.Born, ShareID(fmt.Sprintf("%032x", i+1))})
	}
	for limit := 1; limit <= 6; limit++ {
		for _, of := range []*Bucket{nil, &two} {
			var got []SharePlace
			q := SharesQuery{Account: alice, Bucket: of, Limit: limit}
			for more := true; more; {
				var page []Share
				if page, more, err = m.view().Shares(q); err != nil || len(page) > limit || more && len(page) < limit {
					t.Fatalf("%d of %d, more %v, %v", len(page), limit, more, err)
				}
				for i := range page {
					got = append(got, page[i].Place())
					q.After = page[i].Place()
				}
			}
			all := want
			if of != nil {
				all = want[1:]
			}
			if !slices.Equal(got, all) {
				t.Errorf("by %d: %v, want %v", limit, got, all)
			}
		}
	}
	if all, more, err := m.view().Shares(SharesQuery{Account: bob, Limit: 5}); len(all) > 0 || more || err != nil {
		t.Errorf("another account has %v, %v, %v", all, more, err)
	}
}
