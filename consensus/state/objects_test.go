package state

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sequence returns a page of a list as one sequence: keys as "k:...", prefixes as "p:...",
// in the order of their bytes.
func sequence(keys, prefixes []string) []string {
	type entry struct{ by, text string }
	var all []entry
	for _, k := range keys {
		all = append(all, entry{k, "k:" + k})
	}
	for _, p := range prefixes {
		all = append(all, entry{p, "p:" + p})
	}
	slices.SortStableFunc(all, func(a, b entry) int { return strings.Compare(a.by, b.by) })
	texts := make([]string, len(all))
	for i, e := range all {
		texts[i] = e.text
	}
	return texts
}

// expected returns what a list without a limit has, by the words of ListObjectsV2: keys
// above after, those that hold the delimiter behind the prefix as one prefix.
func expected(keys []string, prefix, delimiter, after string) []string {
	var plain, rolled []string
	for _, k := range slices.Sorted(slices.Values(keys)) {
		if !strings.HasPrefix(k, prefix) {
			continue
		}
		before, _, holds := strings.Cut(k[len(prefix):], delimiter)
		up := prefix + before + delimiter
		switch {
		case k <= after:
		case delimiter == "" || !holds:
			plain = append(plain, k)
		case up != after && !slices.Contains(rolled, up): // up itself: it was the last of a page
			rolled = append(rolled, up)
		}
	}
	return sequence(plain, rolled)
}

// Keys of few bytes, the least and the greatest among them, so that prefixes and
// delimiters meet.
func anyKey(most int) *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0x00, 0x01, 'a', '/', 0xfe, 0xff}), 0, most), func(b []byte) string { return string(b) })
}

// Pages of objects have every key once and in order, rolled up at the delimiter as ListObjectsV2 has it.
func TestPagesOfKeysAreThoseOfTheConvention(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := shelved(rt, Unlimited)
		other := s.bucket(bob, "other") // what is beside it is never seen
		keys := rapid.SliceOfNDistinct(anyKey(5).Filter(func(k string) bool { return k != "" }), 0, 40, rapid.ID).Draw(rt, "keys")
		for i, k := range keys {
			put := s.putOf(k, VersionID(fmt.Sprint(i)), contents[1])
			put.Object.Meta, put.Object.ETag = map[string]string{"a": "b"}, fmt.Sprint(i)
			s.must(put)
			put.Bucket, put.Born, put.Object.ID = "other", other.Born, put.Object.ID+"o"
			s.must(put)
		}
		q := ObjectsQuery{
			Prefix: anyKey(2).Draw(rt, "prefix"), Delimiter: anyKey(2).Draw(rt, "delimiter"), After: anyKey(4).Draw(rt, "after"),
			Limit: rapid.IntRange(1, 5).Draw(rt, "limit"),
		}
		want := expected(keys, q.Prefix, q.Delimiter, q.After)
		var got []string
		for pages := 0; ; pages++ {
			page, err := s.view().Objects(&s.b, q)
			if err != nil {
				rt.Fatal(err)
			}
			var names []string
			for _, o := range page.Objects {
				names = append(names, o.Key)
				if i := slices.Index(keys, o.Key); o.ETag != fmt.Sprint(i) || o.ID != VersionID(fmt.Sprint(i)) || o.Size != 9 || o.Meta != nil {
					rt.Fatalf("%+v", o)
				}
			}
			texts := sequence(names, page.Prefixes)
			got = append(got, texts...)
			if page.Truncated != (len(got) < len(want)) || page.Truncated && len(texts) != q.Limit || page.Truncated != (page.Next != "") || pages > len(want) {
				rt.Fatalf("%+v: page %d is %q, truncated %v, want %q", q, pages, texts, page.Truncated, want)
			}
			if !page.Truncated {
				break
			}
			q.After = page.Next
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%+v of %q: %q, want %q", q, keys, got, want)
		}
	})
}

// Pages that go backward have what the pages in order have, the last entry first.
func TestPagesOfKeysGoBackward(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := shelved(rt, Unlimited)
		other := s.bucket(bob, "other") // what is beside it is never seen
		keys := rapid.SliceOfNDistinct(anyKey(5).Filter(func(k string) bool { return k != "" }), 0, 40, rapid.ID).Draw(rt, "keys")
		for i, k := range keys {
			put := s.putOf(k, VersionID(fmt.Sprint(i)), contents[1])
			s.must(put)
			put.Bucket, put.Born, put.Object.ID = "other", other.Born, put.Object.ID+"o"
			s.must(put)
		}
		q := ObjectsQuery{
			Prefix: anyKey(2).Draw(rt, "prefix"), Delimiter: anyKey(2).Draw(rt, "delimiter"), Limit: rapid.IntRange(1, 5).Draw(rt, "limit"), Backward: true,
		}
		want := expected(keys, q.Prefix, q.Delimiter, "")
		slices.Reverse(want)
		var got []string
		for pages := 0; ; pages++ {
			page, err := s.view().Objects(&s.b, q)
			if err != nil {
				rt.Fatal(err)
			}
			var names []string
			for _, o := range page.Objects {
				names = append(names, o.Key)
			}
			texts := sequence(names, page.Prefixes)
			slices.Reverse(texts)
			got = append(got, texts...)
			if page.Truncated != (len(got) < len(want)) || page.Truncated && len(texts) != q.Limit || page.Truncated != (page.Next != "") || pages > len(want) {
				rt.Fatalf("%+v: page %d is %q, truncated %v, want %q", q, pages, texts, page.Truncated, want)
			}
			if !page.Truncated {
				break
			}
			q.After = page.Next
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%+v of %q: %q, want %q", q, keys, got, want)
		}
	})
}

// Pages of uploads have every upload once, by key and then by id, rolled up at the delimiter.
func TestPagesOfUploadsAreByKeyAndID(t *testing.T) {
	type upload struct {
		key string
		id  UploadID
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := shelved(rt, Unlimited)
		keys := rapid.SliceOfN(anyKey(4).Filter(func(k string) bool { return k != "" }), 0, 25).Draw(rt, "keys")
		var all []upload
		for i, k := range keys {
			u := upload{k, UploadID(fmt.Sprintf("%02d", i*7%25))}
			s.must(s.begin(u.key, u.id))
			all = append(all, u)
		}
		slices.SortFunc(all, func(a, b upload) int {
			return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.id, b.id))
		})
		q := UploadsQuery{
			Prefix: anyKey(2).Draw(rt, "prefix"), Delimiter: anyKey(2).Draw(rt, "delimiter"), AfterKey: anyKey(4).Draw(rt, "after"),
			Limit: rapid.IntRange(1, 5).Draw(rt, "limit"),
		}
		if q.AfterKey != "" && rapid.Bool().Draw(rt, "behind an id") {
			q.AfterID = "10"
		}
		// Of a key itself, those behind the id; the prefixes as in a list of keys.
		var want []upload
		for _, text := range expected(keys, q.Prefix, q.Delimiter, "") {
			name := text[2:]
			if text[0] == 'p' {
				last := slices.Max(slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return !strings.HasPrefix(k, name) }))
				if q.AfterKey != name && last > q.AfterKey {
					want = append(want, upload{name, ""})
				}
			}
			for _, u := range all {
				behind := u.key > q.AfterKey || u.key == q.AfterKey && q.AfterID != "" && u.id > q.AfterID
				if text[0] == 'k' && u.key == name && behind && !slices.Contains(want, u) {
					want = append(want, u)
				}
			}
		}
		var got []upload
		for {
			page, err := s.view().Uploads(&s.b, q)
			if err != nil {
				rt.Fatal(err)
			}
			var on []upload
			for _, u := range page.Uploads {
				on = append(on, upload{u.Key, u.ID})
			}
			for _, p := range page.Prefixes {
				on = append(on, upload{p, ""})
			}
			slices.SortFunc(on, func(a, b upload) int {
				return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.id, b.id))
			})
			got = append(got, on...)
			if page.Truncated != (len(got) < len(want)) || page.Truncated && len(on) != q.Limit || len(got) > len(want) {
				rt.Fatalf("%+v of %q: %q so far, truncated %v, want %q", q, all, got, page.Truncated, want)
			}
			if !page.Truncated {
				break
			}
			q.AfterKey, q.AfterID = page.NextKey, page.NextID
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%+v of %q: %q, want %q", q, all, got, want)
		}
	})
}

// A list reads at most passRolled+1 rows for each prefix, however many keys the prefix has. A limit is cut to
// MaxListLimit.
func TestPrefixesAreSkipped(t *testing.T) {
	s := shelved(t, Unlimited)
	for i := range 20 {
		for j := range 200 {
			s.must(s.putOf(fmt.Sprintf("%02d/%03d", i, j), VersionID(fmt.Sprint(i, "-", j)), contents[1]))
		}
	}
	r := &counting{Reader: s.memory}
	page, err := NewView(r, 1).Objects(&s.b, ObjectsQuery{Delimiter: "/", Limit: 10})
	if err != nil || len(page.Prefixes) != 10 || !page.Truncated || page.Next != "09/" {
		t.Errorf("%+v, %v", page, err)
	}
	if most := 11 * (passRolled + 1); r.rows > most {
		t.Errorf("10 prefixes of 200 keys took %d rows, at most %d were expected", r.rows, most)
	}
	r.rows = 0
	if page, err = NewView(r, 1).Objects(&s.b, ObjectsQuery{After: "03/100", Limit: 5}); err != nil || len(page.Objects) != 5 || page.Objects[0].Key != "03/101" || r.rows != 6 {
		t.Errorf("%d rows for %+v, %v", r.rows, page, err)
	}
	for limit, want := range map[int]int{0: 0, -1: 0, MaxListLimit + 1: MaxListLimit} {
		if page, err = s.view().Objects(&s.b, ObjectsQuery{Limit: limit}); err != nil || len(page.Objects) != want || page.Truncated != (want > 0) {
			t.Errorf("limit %d: %d keys, %v", limit, len(page.Objects), err)
		}
	}
}

// counting counts the rows that scans read; it is no walker.
type counting struct {
	Reader
	rows int
}

func (c *counting) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	return c.Reader.Scan(lower, upper, reverse, func(k, v []byte) (bool, error) {
		c.rows++
		return fn(k, v)
	})
}

// Ordered keys sort as their texts do, begin with the prefixes of their texts, and are read back.
func TestOrderedKeysKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyKey(6).Draw(t, "a"), anyKey(6).Draw(t, "b")
		restA, restB := anyKey(3).Draw(t, "behind a"), anyKey(3).Draw(t, "behind b")
		ka, kb := append(table('t').ordered(a), restA...), append(table('t').ordered(b), restB...)
		want := strings.Compare(a, b)
		if want == 0 {
			want = strings.Compare(restA, restB)
		}
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("%q %q and %q %q: %d, want %d", a, restA, b, restB, got, want)
		}
		if begins := bytes.HasPrefix(ka, table('t').orderedPrefix(b)); begins != strings.HasPrefix(a, b) {
			t.Fatalf("%q begins with %q: %v", a, b, begins)
		}
		s, rest, err := readOrdered(ka[1:])
		if err != nil || s != a || string(rest) != restA {
			t.Fatalf("%q %q came back as %q %q, %v", a, restA, s, rest, err)
		}
	})
	for _, k := range []string{"", "a", "a\x00", "a\x00\xff"} {
		if _, _, err := readOrdered([]byte(k)); err == nil {
			t.Errorf("%q has an end", k)
		}
	}
}
