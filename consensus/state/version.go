package state

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Versioning is a bucket's versioning state, which decides what happens to a replaced version.
type Versioning uint8

// The versioning states. A bucket never becomes Unversioned again.
const (
	Unversioned Versioning = iota // a replaced version is removed
	Versioned                     // a replaced version remains as a noncurrent version
	Suspended                     // as Versioned, except that a new version replaces the null version
)

// NullVersion is the id by which clients name a version that was created while versioning was not
// enabled. Each key has at most one.
const NullVersion VersionID = "null"

// codeID encodes or decodes a version id in a compact form: a UUID, which proposers normally
// create, takes 17 bytes. So the ids of MaxDeleteKeys versions fit into one command together with
// keys of MaxKeyBytes.
func codeID(c *codec.Coder, id *VersionID) {
	const none, text, uuid uint8 = 0, 1, 2
	form := text
	raw, short := rawUUID(string(*id))
	switch {
	case *id == "":
		form = none
	case short:
		form = uuid
	}
	codec.Uint(c, &form)
	switch form {
	case none:
	case text:
		codec.String(c, id, MaxIDLen)
	case uuid:
		codec.Fixed(c, raw[:])
		if c.Decoding() {
			*id = VersionID(fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:]))
		}
	default:
		c.Fail("an id of an unknown form")
	}
}

// rawUUID parses a UUID in the form in which proposers write it. ok is false for other texts.
func rawUUID(id string) (raw [16]byte, ok bool) {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' || strings.ToLower(id) != id {
		return raw, false
	}
	n, err := hex.Decode(raw[:], []byte(id[:8]+id[9:13]+id[14:18]+id[19:23]+id[24:]))
	return raw, err == nil && n == len(raw)
}

// Deed is what a command did to the versions of one key, in a bucket for which versioning is or
// was enabled.
type Deed uint8

// All deeds. The numbers are stored and sent to other members: append-only.
const (
	DidNothing     Deed = iota // also the result in a bucket without versioning
	MadeVersion                // a version with its own id
	MadeNull                   // the null version
	MadeMarker                 // a delete marker with its own id
	MadeNullMarker             // a delete marker that is the null version
	RemovedVersion             // a version was removed permanently
	RemovedMarker
	FoundNoVersion // the key has no version with the named id
	MissedVersion  // without versioning: the current version has another id than the named one
	deeds
)

func codeDeeds(c *codec.Coder, all *[]Deed) {
	codec.List(c, all, MaxDeleteKeys, func(c *codec.Coder, d *Deed) {
		if codec.Uint(c, d); *d >= deeds {
			c.Fail("an unknown deed")
		}
	})
}

// made returns the result of a command that has created the version o.
func (v *Bucket) made(o *Object) Result {
	r := Result{Created: o.Created}
	switch {
	case v.Versioning == Unversioned:
	case o.Versioned:
		r.Deeds = []Deed{MadeVersion}
	default:
		r.Deeds = []Deed{MadeNull}
	}
	return r
}

// versionsOf returns the prefix of the rows of a key's noncurrent versions and of all its delete
// markers, newest first. They are in another table than the current versions, so that a list of
// objects costs the same as without versions. If a key has no current version, its newest row
// here is a delete marker, or it has no rows. The creation times of a key's versions differ, and
// rise.
func (v *Bucket) versionsOf(k string) key { return v.in(tableVersion).ordered(k) }

func (v *Bucket) versionKey(k string, created Millis) key {
	return v.versionsOf(k).descending(created)
}

// versionTime returns the key of the row with the creation time of a noncurrent version, by which
// the version is found by its id.
func (v *Bucket) versionTime(k string, id VersionID) key { return v.ofVersion(tableVersionTime, k, id) }

// ofVersion returns the key of a row about one version in a table. It contains the object key,
// because a version id need only be unique within its object key.
func (v *Bucket) ofVersion(table byte, k string, id VersionID) key {
	return append(v.in(table).ordered(k), id...)
}

// newestOld returns the newest noncurrent version or delete marker of a key, or nil if there is
// none.
func (v *Bucket) newestOld(r Reader, k string) (o *Object, err error) {
	prefix := v.versionsOf(k)
	err = r.Scan(prefix, prefix.end(), false, func(_, value []byte) (bool, error) {
		o, err = decode[Object](value)
		return false, err
	})
	return o, err
}

// old returns the noncurrent version or delete marker of a key with an id, or nil if there is
// none.
func (v *Bucket) old(r Reader, k string, id VersionID) (*Object, error) {
	if k == "" || len(k) > MaxKeyBytes || id == "" || len(id) > MaxIDLen {
		return nil, nil
	}
	created, err := counter(r, v.versionTime(k, id))
	if err != nil || created == 0 {
		return nil, err
	}
	o, err := get[Object](r, v.versionKey(k, Millis(created)))
	if err == nil && o == nil {
		err = fmt.Errorf("state: version %s of %d has no row", id, created)
	}
	return o, err
}

// version returns the version of a key with an id, or nil if there is none. current is the
// current version of the key, or nil.
func (v *Bucket) version(r Reader, current *Object, k string, id VersionID) (*Object, error) {
	if current != nil && (current.ID == id || id == NullVersion && !current.Versioned) {
		return current, nil
	}
	if v.Versioning == Unversioned {
		return nil, nil
	}
	return v.old(r, k, id)
}

// names returns the ids by which a noncurrent version can be found: its own, and NullVersion for
// a null version.
func (v *Object) names() []VersionID {
	if v.Versioned {
		return []VersionID{v.ID}
	}
	return []VersionID{v.ID, NullVersion}
}

// shelve writes the rows of a noncurrent version or delete marker.
func (v *Bucket) shelve(tx Tx, o *Object) error {
	for _, id := range o.names() {
		if err := tx.Set(v.versionTime(o.Key, id), binary.BigEndian.AppendUint64(nil, uint64(o.Created))); err != nil {
			return err
		}
	}
	if err := count(tx, v.stored(storedVersions), 1); err != nil {
		return err
	}
	return put(tx, v.versionKey(o.Key, o.Created), o)
}

// unshelve removes the rows that shelve has written.
func (v *Bucket) unshelve(tx Tx, o *Object) error {
	for _, id := range o.names() {
		if err := tx.Delete(v.versionTime(o.Key, id)); err != nil {
			return err
		}
	}
	if err := count(tx, v.stored(storedVersions), -1); err != nil {
		return err
	}
	return tx.Delete(v.versionKey(o.Key, o.Created))
}

// succession describes how the existing versions of a key change when a new version is created.
type succession struct {
	current *Object // the previous current version; nil if there was none
	stays   bool    // current remains as a noncurrent version
	null    *Object // noncurrent null version that is removed; nil if there is none
	after   Millis  // creation time of the newest existing version; 0 if there is none
}

// succeed determines the changes for a new version, or delete marker, o of a key. The id of o
// must be new. It also sets o.Versioned.
func (v *Bucket) succeed(r Reader, o, current *Object) (s succession, err error) {
	s.current = current
	if current != nil {
		s.after = current.Created
	}
	o.Versioned = v.Versioning == Versioned
	if v.Versioning == Unversioned {
		return s, nil
	}
	if current == nil {
		newest, err := v.newestOld(r, o.Key)
		if err != nil {
			return s, err
		}
		if newest != nil {
			s.after = newest.Created
		}
	}
	s.stays = current != nil && (v.Versioning == Versioned || current.Versioned)
	if v.Versioning == Suspended && (current == nil || current.Versioned) {
		s.null, err = v.old(r, o.Key, NullVersion)
	}
	return s, err
}

// gone iterates over the versions that the change removes.
func (s *succession) gone(yield func(*Object) bool) {
	if s.current != nil && !s.stays && !yield(s.current) {
		return
	}
	if s.null != nil && !s.null.Marker {
		yield(s.null)
	}
}

// drops returns the links of the removed versions.
func (s *succession) drops() (drops []link) {
	for o := range s.gone {
		drops = append(drops, link{o.Root, o.ID})
	}
	return drops
}

// sheds returns the total weight of the removed versions in bytes.
func (s *succession) sheds() (bytes uint64) {
	for o := range s.gone {
		bytes += o.weight()
	}
	return bytes
}

// write stores the new version o and makes the other changes, except for links. It gives o a
// later creation time than all existing versions of the key.
func (s *succession) write(tx Tx, v *Bucket, o *Object) error {
	keys, bytes := int64(0), int64(o.Size)
	for g := range s.gone {
		bytes -= int64(g.Size)
		if err := v.forget(tx, g); err != nil {
			return err
		}
	}
	if err := reweigh(tx, v.Account, 0, o.weight()); err != nil {
		return err
	}
	if err := v.markUnhashed(tx, o); err != nil {
		return err
	}
	if s.current == nil && !o.Marker {
		keys = 1
	} else if s.current != nil && o.Marker {
		keys = -1
	}
	if err := v.counted(tx, keys, bytes); err != nil {
		return err
	}
	if s.after > 0 {
		o.Created = max(o.Created, s.after+1)
	}
	if s.null != nil {
		if err := v.unshelve(tx, s.null); err != nil {
			return err
		}
	}
	if s.stays {
		if err := v.shelve(tx, s.current); err != nil {
			return err
		}
	}
	if !o.Marker {
		return put(tx, v.objectKey(o.Key), o)
	}
	if s.current != nil {
		if err := tx.Delete(v.objectKey(o.Key)); err != nil {
			return err
		}
	}
	return v.shelve(tx, o)
}

// follow applies a changed public setting of the bucket to the link of a version that has become
// noncurrent, because the migration by TurnBuckets may have passed the new position of the
// version already.
func (s *succession) follow(tx Tx, v *Bucket, e *entry) error {
	if !s.stays || !v.Turning {
		return nil
	}
	return v.turnLink(tx, link{s.current.Root, s.current.ID}, e)
}

// mark adds a delete marker as the newest version of a key. If a marker with the same id exists,
// nothing changes.
func (v *Bucket) mark(tx Tx, marker Object, current *Object, e *entry) (Deed, error) {
	there, err := v.version(tx, current, marker.Key, marker.ID)
	if err != nil {
		return DidNothing, err
	}
	if there == nil {
		s, err := v.succeed(tx, &marker, current)
		if err != nil {
			return DidNothing, err
		}
		if err := s.write(tx, v, &marker); err != nil {
			return DidNothing, err
		}
		if current != nil {
			e.noteObject(v, marker.Key, e.at, true)
		}
		for _, l := range s.drops() {
			if err := unlink(tx, v.Account, l, e); err != nil {
				return DidNothing, err
			}
		}
		if err := s.follow(tx, v, e); err != nil {
			return DidNothing, err
		}
		there = &marker
	}
	switch {
	case !there.Marker:
		return DidNothing, nil
	case there.Versioned:
		return MadeMarker, nil
	}
	return MadeNullMarker, nil
}

// removeVersion deletes one version permanently. If it was the newest, the newest remaining
// version becomes current.
func (v *Bucket) removeVersion(tx Tx, o, current *Object, e *entry) (Deed, error) {
	if current != nil && current.ID == o.ID {
		if err := v.remove(tx, o, e); err != nil {
			return DidNothing, err
		}
		return RemovedVersion, v.promote(tx, o.Key, e)
	}
	deed := RemovedVersion
	if o.Marker {
		deed = RemovedMarker
	}
	if err := v.removeOld(tx, o, e); err != nil || current != nil {
		return deed, err
	}
	return deed, v.promote(tx, o.Key, e)
}

// removeOld removes a noncurrent version or a delete marker.
func (v *Bucket) removeOld(tx Tx, o *Object, e *entry) error {
	if err := v.unshelve(tx, o); err != nil || o.Marker {
		return err
	}
	if err := v.forget(tx, o); err != nil {
		return err
	}
	if err := v.counted(tx, 0, -int64(o.Size)); err != nil {
		return err
	}
	return unlink(tx, v.Account, link{o.Root, o.ID}, e)
}

// promote makes the newest noncurrent version of a key current, unless that is a delete marker.
// The key has no current version.
func (v *Bucket) promote(tx Tx, k string, e *entry) error {
	if v.Versioning == Unversioned {
		return nil
	}
	o, err := v.newestOld(tx, k)
	if err != nil || o == nil || o.Marker {
		return err
	}
	if err := v.unshelve(tx, o); err != nil {
		return err
	}
	if err := v.counted(tx, 1, 0); err != nil {
		return err
	}
	e.noteObject(v, k, e.at, false)
	return put(tx, v.objectKey(k), o)
}

// SetVersioning enables or suspends versioning for a bucket.
type SetVersioning struct {
	Account    AccountID
	Bucket     string
	Born       Incarnation
	Versioning Versioning
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SetVersioning) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	codec.Uint(c, &v.Versioning)
}

func (v *SetVersioning) apply(tx Tx, _ *entry) (Result, error) {
	if v.Versioning != Versioned && v.Versioning != Suspended {
		return Result{}, Errorf(CodeInvalid, "versioning is enabled or suspended")
	}
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil || b.Versioning == v.Versioning {
		return Result{}, err
	}
	b.Versioning = v.Versioning
	return Result{}, put(tx, bucketKey(b.Account, b.Name), b)
}

// Version returns the version of a key with an id, or the newest version or delete marker if the
// id is "". The id may be NullVersion. Errors: ErrNoVersion if there is no version with the id;
// ErrNoKey if the id is "" and the key has no version.
func (v View) Version(b *Bucket, k string, id VersionID) (Object, error) {
	current, err := findObject(v.r, b, k)
	if err != nil {
		return Object{}, err
	}
	if current == nil && b.Versioning == Unversioned && id == "" {
		return Object{}, ErrNoKey
	}
	found := current
	switch {
	case id != "":
		if found, err = b.version(v.r, current, k, id); err == nil && found == nil {
			err = ErrNoVersion
		}
	case current == nil:
		if found, err = b.newestOld(v.r, k); err == nil && found == nil {
			err = ErrNoKey
		}
	}
	if err != nil {
		return Object{}, err
	}
	return *found, nil
}
