package state

import (
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Condition is a precondition of a change, for S3's conditional requests. It must hold for the
// current version of the key, or for the version that the change names. The zero Condition always
// holds. If several fields are set, all must hold.
type Condition struct {
	Absent bool     // holds if there is no version
	Match  []string // holds if the ETag of the version is one of these; "*" means any
	// The fields below need feature level 5.
	NoneMatch []string // holds if there is no version, or if its ETag is none of these
	Size      uint64   // required size of the version in bytes; only if Sized
	Sized     bool
	Modified  int64 // required creation time of the version in Unix seconds; 0 means any
	// AbsentOK makes Match, Size and Modified hold if there is no version. A delete marker
	// counts as a version: it has a time, but neither ETag nor size.
	AbsentOK bool
}

// conditionForm encodes in one byte which fields a condition has. Up to feature level 4
// this byte was Absent.
type conditionForm uint8

const (
	formAbsent conditionForm = 1 << iota
	formNoneMatch
	formSized
	formModified
	formAbsentOK
	formEnd
)

func (v *Condition) form() (form conditionForm) {
	set := func(is bool, bit conditionForm) {
		if is {
			form |= bit
		}
	}
	set(v.Absent, formAbsent)
	set(len(v.NoneMatch) > 0, formNoneMatch)
	set(v.Sized, formSized)
	set(v.Modified != 0, formModified)
	set(v.AbsentOK, formAbsentOK)
	return form
}

// Code encodes or decodes the condition as a part of a command.
func (v *Condition) Code(c *codec.Coder) {
	form := v.form()
	if codec.Uint(c, &form); form >= formEnd {
		c.Fail("a condition of an unknown form")
		return
	}
	v.Absent, v.Sized, v.AbsentOK = form&formAbsent != 0, form&formSized != 0, form&formAbsentOK != 0
	codec.Strings(c, &v.Match, MaxMatches, MaxETagBytes)
	if form&formNoneMatch != 0 {
		codec.Strings(c, &v.NoneMatch, MaxMatches, MaxETagBytes)
	}
	if v.Sized {
		codec.Uint(c, &v.Size)
	}
	if form&formModified != 0 {
		codec.Int(c, &v.Modified)
	}
}

// FeatureLevel returns the feature level that the encoding of the condition needs.
func (v *Condition) FeatureLevel() FeatureLevel {
	if v.form() > formAbsent {
		return 5
	}
	return 0
}

// asks returns whether the condition requires something of an existing version.
func (v *Condition) asks() bool { return len(v.Match) > 0 || v.Sized || v.Modified != 0 }

// None returns whether the condition always holds.
func (v *Condition) None() bool { return !v.Absent && len(v.NoneMatch) == 0 && !v.asks() }

// Judge returns nil if the condition holds for the version o; nil means that there is no version.
// Otherwise it returns ErrPrecondition, or ErrNoKey if the condition needs an existing version.
func (v *Condition) Judge(o *Object) error {
	if o == nil {
		if v.asks() && !v.AbsentOK {
			return ErrNoKey
		}
		return nil
	}
	switch {
	case v.Absent:
		return Errorf(CodePrecondition, "there is an object under this key")
	case len(v.Match) > 0 && !slices.Contains(v.Match, "*") && (o.Marker || !slices.Contains(v.Match, o.ETag)):
		return Errorf(CodePrecondition, "the object's ETag is another one")
	case !o.Marker && slices.Contains(v.NoneMatch, o.ETag):
		return Errorf(CodePrecondition, "the object's ETag is one of those that it should not be")
	case v.Sized && (o.Marker || o.Size != v.Size):
		return Errorf(CodePrecondition, "the object's size is another one")
	case v.Modified != 0 && int64(o.Created)/1000 != v.Modified:
		return Errorf(CodePrecondition, "the object's time is another one")
	}
	return nil
}
