package state

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"pgregory.net/rapid"
)

// A PartList selects exactly the parts that it was made of. It is ErrInvalidPart if one of them is gone or
// replaced, and ErrInvalid without parts.
func TestAListOfPartsSaysWhatTheirNamesSay(t *testing.T) {
	name := func(p Part) string { return fmt.Sprint(p.Number, " ", p.ID) }
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.OneOf(rapid.Uint16Range(1, 20), rapid.Uint16Range(1, MaxPartNumber))
		id := rapid.Custom(func(t *rapid.T) VersionID {
			return VersionID(rapid.StringMatching("[ab\x00]{1,3}").Draw(t, "id"))
		})
		var parts, read []Part
		for _, n := range slices.Sorted(slices.Values(rapid.SliceOfNDistinct(numbers, 1, 30, rapid.ID).Draw(t, "numbers"))) {
			p := Part{Number: n, ID: id.Draw(t, "id")}
			was := p
			switch rapid.IntRange(0, 12).Draw(t, "since it was read") {
			case 0:
				was.ID = id.Draw(t, "replaced")
			case 1: // put after that
				parts = append(parts, p)
				continue
			case 2: // left out by the client
				parts = append(parts, p)
				continue
			case 3: // gone
				read = append(read, was)
				continue
			}
			parts, read = append(parts, p), append(read, was)
		}
		l := ListParts(read)
		got, err := l.of(parts)
		there := map[string]bool{}
		for _, p := range parts {
			there[name(p)] = true
		}
		switch extra := slices.ContainsFunc(read, func(p Part) bool { return !there[name(p)] }); {
		case len(read) == 0:
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("no parts: %v", err)
			}
		case extra:
			if !errors.Is(err, ErrInvalidPart) {
				t.Fatalf("%v of %v: %v", read, parts, err)
			}
		case err != nil || !slices.EqualFunc(got, read, func(a, b Part) bool { return name(a) == name(b) }):
			t.Fatalf("%v of %v: %v, %v", read, parts, got, err)
		}
	})
}

// A PartList is encoded in a bit for each number up to its last part, and a hash. It decodes to the same parts. A
// list in another order is ErrInvalidPart.
func TestAListOfPartsIsSmall(t *testing.T) {
	var all []Part
	for n := range uint16(MaxPartNumber) {
		all = append(all, Part{Number: n + 1, ID: VersionID(fmt.Sprintf("%036d", n))})
	}
	odd := slices.DeleteFunc(slices.Clone(all), func(p Part) bool { return p.Number%2 == 0 })
	for name, parts := range map[string][]Part{"all": all, "odd": odd, "first": all[:1], "last": all[MaxPartNumber-1:]} {
		l := ListParts(parts)
		c := codec.Encoder(nil)
		l.Code(c)
		b, err := c.Finish()
		if most := int(parts[len(parts)-1].Number+7)/8 + 2 + len(Hash{}); err != nil || len(b) > most {
			t.Errorf("%s: %d bytes, want %d at the most, %v", name, len(b), most, err)
		}
		var back PartList
		d := codec.Decoder(b)
		back.Code(d)
		if _, err := d.Finish(); err != nil {
			t.Fatal(err)
		}
		got, err := back.of(all)
		if err != nil || !slices.EqualFunc(got, parts, func(a, b Part) bool { return a.ID == b.ID }) {
			t.Errorf("%s: %d parts of %d, %v", name, len(got), len(parts), err)
		}
	}
	l := ListParts(odd)
	l.Numbers = append(l.Numbers, make([]byte, maxPartBits)...)
	c := codec.Encoder(nil)
	l.Code(c)
	if _, err := c.Finish(); err == nil {
		t.Error("a list of more numbers than there are can be written")
	}
	slices.SortFunc(odd, func(a, b Part) int { return cmp.Compare(b.Number, a.Number) })
	l = ListParts(odd)
	if _, err := l.of(all); !errors.Is(err, ErrInvalidPart) {
		t.Errorf("parts in another order: %v", err)
	}
}

// CompleteUpload discards parts that it does not list, and is rejected if a listed part was replaced.
func TestPartsPutBesideACompletionAreDiscarded(t *testing.T) {
	s := shelved(t, Unlimited)
	complete := s.uploaded("k", "up", 3)
	s.must(s.partOf("k", "up", 9, "late", contents[2]))
	s.must(complete)
	s.check()
	if o, err := s.view().Object(&s.b, "k"); err != nil || o.Size != 27 || len(s.rows(tablePart)) != 0 {
		t.Errorf("%+v, %d rows, %v", o, len(s.rows(tablePart)), err)
	}
	complete = s.uploaded("l", "other", 3)
	s.must(s.partOf("l", "other", 2, "again", contents[3]))
	s.refused(complete, ErrInvalidPart)
}
