package state

import (
	"errors"
	"reflect"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// A condition holds only if ETag, size and time in seconds all match, and a delete marker has neither ETag nor
// size. Without an object it fails with ErrNoKey, unless AbsentOK is set or the condition asks for no match.
func TestConditionsOnSizeAndTime(t *testing.T) {
	o := &Object{ETag: "e", Size: 3, Created: 5_999}
	marker := &Object{Created: 5_999, Marker: true}
	for _, tc := range []struct {
		name                 string
		cond                 Condition
		object, marker, none error
	}{
		{"size", Condition{Size: 3, Sized: true}, nil, ErrPrecondition, ErrNoKey},
		{"other size", Condition{Size: 0, Sized: true}, ErrPrecondition, ErrPrecondition, ErrNoKey},
		{"second", Condition{Modified: 5}, nil, nil, ErrNoKey},
		{"other second", Condition{Modified: 6}, ErrPrecondition, ErrPrecondition, ErrNoKey},
		{"any", Condition{Match: []string{"*"}}, nil, nil, ErrNoKey},
		{"ETag", Condition{Match: []string{"e"}}, nil, ErrPrecondition, ErrNoKey},
		{"no ETag", Condition{Match: []string{""}}, ErrPrecondition, ErrPrecondition, ErrNoKey},
		{"all", Condition{Match: []string{"e"}, Size: 3, Sized: true, Modified: 5}, nil, ErrPrecondition, ErrNoKey},
		{"all but one", Condition{Match: []string{"e"}, Size: 4, Sized: true, Modified: 5}, ErrPrecondition, ErrPrecondition, ErrNoKey},
		{"where there is one", Condition{Match: []string{"e"}, Size: 3, Sized: true, Modified: 5, AbsentOK: true}, nil, ErrPrecondition, nil},
		{"not the ETag", Condition{NoneMatch: []string{"e", ""}}, ErrPrecondition, nil, nil},
	} {
		for what, want := range map[*Object]error{o: tc.object, marker: tc.marker, nil: tc.none} {
			if err := tc.cond.Judge(what); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%s of %+v: %v, want %v", tc.name, what, err, want)
			}
		}
	}
}

// A condition with the fields of level 4 alone keeps the form that older releases read. The form of a newer
// release is not read.
func TestAConditionOfLevel4KeepsItsForm(t *testing.T) {
	for _, c := range []Condition{{}, {Absent: true}, {Match: []string{"e", "*"}}, {Absent: true, Match: []string{"e"}}} {
		was := codec.Encoder(nil)
		codec.Bool(was, &c.Absent)
		codec.Strings(was, &c.Match, MaxMatches, MaxETagBytes)
		is := codec.Encoder(nil)
		c.Code(is)
		want, _ := was.Finish()
		if got, err := is.Finish(); err != nil || !reflect.DeepEqual(got, want) || c.FeatureLevel() != 0 {
			t.Errorf("%+v is %x of level %d, was %x: %v", c, got, c.FeatureLevel(), want, err)
		}
	}
	unknown := codec.Decoder([]byte{byte(formEnd), 0})
	new(Condition).Code(unknown)
	if _, err := unknown.Finish(); !errors.Is(err, codec.ErrMalformed) {
		t.Errorf("a condition of a newer release is read: %v", err)
	}
}

// A conditional deletion with AbsentOK makes no delete marker where there is no version, and judges a current
// delete marker.
func TestADeletionWithAConditionWhereThereIsNothing(t *testing.T) {
	s := shelved(t, Unlimited)
	drop := func(marker VersionID, id VersionID, c Condition) *DeleteObjects {
		c.AbsentOK = true
		d := &DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k"}, Marker: marker, Created: 10, If: c}
		if id != "" {
			d.IDs = []VersionID{id}
		}
		return d
	}
	deed := func(r Result, want Deed) {
		t.Helper()
		if got := append(r.Deeds, DidNothing)[0]; got != want {
			t.Errorf("it did %d, want %d", got, want)
		}
	}
	other, its := Condition{Match: []string{"other"}}, Condition{Match: []string{"e-v1"}}
	deed(s.must(drop("m0", "", other)), DidNothing) // no versions yet
	s.must(s.putOf("k", "v1", contents[1]))
	s.refused(drop("m0", "", other), ErrPrecondition)
	s.must(drop("m0", "", its))
	if s.current("k") != "" {
		t.Error("it is there still")
	}
	s.versioning(Versioned)
	deed(s.must(drop("m1", "", other)), DidNothing)
	deed(s.must(drop("m1", "v9", other)), FoundNoVersion)
	s.must(s.putOf("k", "v1", contents[1]))
	s.refused(drop("m2", "", other), ErrPrecondition)
	s.refused(drop("m2", "v1", other), ErrPrecondition)
	deed(s.must(drop("m2", "", its)), MadeMarker)
	s.refused(drop("m3", "", its), ErrPrecondition)
	s.refused(drop("m3", "m2", its), ErrPrecondition)
	deed(s.must(drop("m3", "", Condition{Match: []string{"*"}})), MadeMarker)
	deed(s.must(drop("m4", "m3", Condition{Match: []string{"*"}})), RemovedMarker)
	deed(s.must(drop("m4", "v1", its)), RemovedVersion)
	s.check()
}
