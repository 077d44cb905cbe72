package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

func bucketsOf(a AccountID) key { return part(table(tableBucket), a) }

func bucketKey(a AccountID, name string) key { return part(bucketsOf(a), name) }

func bornKey(a AccountID) key { return part(table(tableBorn), a) }

// in returns the prefix of the bucket's rows in the table t.
func (v *Bucket) in(t byte) key { return part(table(t), v.Account).u64(uint64(v.Born)) }

func (v *Bucket) objectKey(k string) key { return append(v.in(tableObject), k...) }

// The counters of a bucket, as the last byte of their keys.
const (
	storedKeys     = 'k'
	storedBytes    = 'b'
	storedUploads  = 'u'
	storedVersions = 'v' // number of noncurrent versions and delete markers
)

func (v *Bucket) stored(what byte) key { return v.in(tableStored).byte(what) }

func emptyingKey(a AccountID, born Incarnation) key {
	return part(table(tableEmptying), a).u64(uint64(born))
}

// liveAccount returns an error if the account does not exist.
func liveAccount(r Reader, a AccountID) error {
	known, err := has(r, accountKey(a))
	if err == nil && !known {
		err = Errorf(CodeUnauthorized, "the account is gone")
	}
	return err
}

// openBucket returns the bucket that a command names. It returns ErrNoBucket if there is none
// with that name, or if it was created anew and is not the one with the Incarnation born.
func openBucket(r Reader, a AccountID, name string, born Incarnation) (*Bucket, error) {
	if err := liveAccount(r, a); err != nil {
		return nil, err
	}
	b, err := findBucket(r, a, name)
	if err != nil {
		return nil, err
	}
	if b == nil || b.Born != born {
		return nil, Errorf(CodeNoBucket, "there is no bucket %q", name)
	}
	return b, nil
}

func findBucket(r Reader, a AccountID, name string) (*Bucket, error) {
	if !ValidBucketName(name) {
		return nil, nil
	}
	return get[Bucket](r, bucketKey(a, name))
}

func findObject(r Reader, b *Bucket, k string) (*Object, error) {
	if k == "" || len(k) > MaxKeyBytes {
		return nil, nil
	}
	return get[Object](r, b.objectKey(k))
}

// CreateBucket creates a bucket of an account. Apply sets the field Born.
type CreateBucket struct{ Bucket Bucket }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CreateBucket) Code(c *codec.Coder) { v.Bucket.Code(c) }

func (v *CreateBucket) apply(tx Tx, e *entry) (Result, error) {
	b := v.Bucket
	if !ValidBucketName(b.Name) || b.Created <= 0 || b.Created > maxCreated {
		return Result{}, Errorf(CodeInvalid, "%q is no name of a bucket", b.Name)
	}
	if b.Versioning != Unversioned || b.Turning {
		return Result{}, Errorf(CodeInvalid, "a new bucket keeps no versions and has no setting that has changed")
	}
	if err := liveAccount(tx, b.Account); err != nil {
		return Result{}, err
	}
	if old, err := findBucket(tx, b.Account, b.Name); err != nil {
		return Result{}, err
	} else if old != nil {
		return Result{}, Errorf(CodeExists, "there is a bucket %q already", b.Name)
	}
	n := 0
	prefix := bucketsOf(b.Account)
	err := tx.Scan(prefix, prefix.end(), false, func(_, _ []byte) (bool, error) { n++; return n < MaxBucketsPerUser, nil })
	if err != nil {
		return Result{}, err
	}
	if n >= MaxBucketsPerUser {
		return Result{}, Errorf(CodeTooLarge, "the account has its most buckets, %d", MaxBucketsPerUser)
	}
	// Several commands of one entry have one index.
	last, err := counter(tx, bornKey(b.Account))
	if err != nil {
		return Result{}, err
	}
	b.Born = Incarnation(max(e.index, last+1))
	if err := tx.Set(bornKey(b.Account), binary.BigEndian.AppendUint64(nil, uint64(b.Born))); err != nil {
		return Result{}, err
	}
	return Result{}, put(tx, bucketKey(b.Account, b.Name), &b)
}

// DeleteBucket deletes a bucket without objects, versions and delete markers; otherwise the error
// is ErrNotEmpty. Apply ends the bucket's shares and aborts its open uploads. If there are too
// many uploads for one entry, later ClearBuckets commands remove the rest.
type DeleteBucket struct {
	Account AccountID
	Name    string
	Born    Incarnation
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *DeleteBucket) Code(c *codec.Coder) { codeBucket(c, &v.Account, &v.Name, &v.Born) }

// codeBucket encodes or decodes the fields by which a command identifies a bucket.
func codeBucket(c *codec.Coder, a *AccountID, name *string, born *Incarnation) {
	codec.String(c, a, MaxIDLen)
	codec.String(c, name, maxBucketName)
	codec.Uint(c, born)
}

func (v *DeleteBucket) apply(tx Tx, e *entry) (Result, error) {
	b, err := openBucket(tx, v.Account, v.Name, v.Born)
	if err != nil {
		return Result{}, err
	}
	for _, of := range []byte{storedKeys, storedVersions} {
		if n, err := counter(tx, b.stored(of)); err != nil {
			return Result{}, err
		} else if n > 0 {
			return Result{}, Errorf(CodeNotEmpty, "the bucket %q has %d objects or versions", b.Name, n)
		}
	}
	for _, k := range []key{bucketKey(b.Account, b.Name), turningKey(b.Account, b.Name)} {
		if err := tx.Delete(k); err != nil {
			return Result{}, err
		}
	}
	for _, t := range []byte{tableCors, tableBucketTags} {
		if err := tx.Delete(b.in(t)); err != nil {
			return Result{}, err
		}
	}
	if err := removeShares(tx, b.in(tableShare), e); err != nil {
		return Result{}, err
	}
	if err := tx.Set(emptyingKey(b.Account, b.Born), nil); err != nil {
		return Result{}, err
	}
	return Result{}, gathered(tx, func(tx Tx) error { return emptyBucket(tx, BucketRef{b.Account, b.Born}, e) })
}

// BucketRef identifies a deleted bucket, whose name may belong to another bucket by now.
type BucketRef struct {
	Account AccountID
	Born    Incarnation
}

// ClearBuckets removes records of deleted buckets that did not fit into the entry of
// DeleteBucket, at most MaxSettle records in one command.
type ClearBuckets struct{ Items []BucketRef }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *ClearBuckets) Code(c *codec.Coder) {
	codec.List(c, &v.Items, MaxReports, func(c *codec.Coder, b *BucketRef) {
		codec.String(c, &b.Account, MaxIDLen)
		codec.Uint(c, &b.Born)
	})
}

func (v *ClearBuckets) apply(tx Tx, e *entry) (Result, error) {
	return Result{}, gathered(tx, func(tx Tx) error {
		for _, b := range v.Items {
			if left, err := has(tx, emptyingKey(b.Account, b.Born)); err != nil {
				return err
			} else if !left {
				continue
			}
			if err := emptyBucket(tx, b, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// emptyBucket aborts the uploads of a deleted bucket, up to the entry's limit of changed records.
// If uploads remain, it sets Effects.Settling.
func emptyBucket(tx Tx, b BucketRef, e *entry) error {
	bucket := &Bucket{Account: b.Account, Born: b.Born}
	if err := clearUploads(tx, b.Account, bucket.in(tableUpload), e); err != nil {
		return err
	}
	if e.settle == 0 {
		e.fx.Settling = true
		return nil
	}
	return tx.Delete(emptyingKey(b.Account, b.Born))
}

// clearNames removes the versions, objects, uploads and buckets of a closed account, up to the
// entry's limit of changed records.
func clearNames(tx Tx, a AccountID, e *entry) error {
	return gathered(tx, func(tx Tx) error {
		if err := clearObjects(tx, a, tableVersion, (*Bucket).removeOld, e); err != nil {
			return err
		}
		if err := clearObjects(tx, a, tableObject, (*Bucket).remove, e); err != nil {
			return err
		}
		if err := clearUploads(tx, a, part(table(tableUpload), a), e); err != nil {
			return err
		}
		left, err := endedIn(tx, part(table(tableEnded), a), e.settle)
		if err != nil {
			return err
		}
		if err := clearEnded(tx, left, e); err != nil {
			return err
		}
		for _, t := range []byte{tableTurning, tableBucket, tableCors, tableBucketTags, tableEmptying} {
			if err := clearRows(tx, part(table(t), a), e); err != nil {
				return err
			}
		}
		return nil
	})
}

// rowsIn reads up to limit records of the table t whose keys begin with prefix, and the bucket of
// each record. prefix begins with the account a.
func rowsIn[T any, P record[T]](r Reader, t byte, a AccountID, prefix key, limit int) (buckets []*Bucket, all []*T, err error) {
	born := len(part(table(t), a))
	err = r.Scan(prefix, prefix.end(), false, func(k, value []byte) (bool, error) {
		if len(k) < born+8 {
			return false, fmt.Errorf("state: short key %x", k)
		}
		v, err := decode[T, P](value)
		if err != nil {
			return false, err
		}
		buckets = append(buckets, &Bucket{Account: a, Born: Incarnation(binary.BigEndian.Uint64(k[born:]))})
		all = append(all, v)
		return len(all) < limit, nil
	})
	return buckets, all, err
}

// clearRead is the number of records that clearObjects reads at once. It is small because one
// record can be large.
const clearRead = 64

// clearObjects calls remove for the objects of an account in the table t, up to the entry's limit
// of changed records.
func clearObjects(tx Tx, a AccountID, t byte, remove func(*Bucket, Tx, *Object, *entry) error, e *entry) error {
	for e.settle > 0 {
		buckets, objects, err := rowsIn[Object](tx, t, a, part(table(t), a), min(e.settle, clearRead))
		if err != nil || len(objects) == 0 {
			return err
		}
		for i, o := range objects {
			if err := remove(buckets[i], tx, o, e); err != nil {
				return err
			}
		}
		e.settle -= len(objects)
	}
	return nil
}

// remove deletes an object of the bucket.
func (v *Bucket) remove(tx Tx, o *Object, e *entry) error {
	if err := tx.Delete(v.objectKey(o.Key)); err != nil {
		return err
	}
	e.noteObject(v, o.Key, e.at, true)
	if err := v.forget(tx, o); err != nil {
		return err
	}
	if err := v.counted(tx, -1, -int64(o.Size)); err != nil {
		return err
	}
	return unlink(tx, v.Account, link{o.Root, o.ID}, e)
}

// counted adds to the bucket's counters of objects and bytes; the numbers may be negative.
func (v *Bucket) counted(tx Tx, keys, bytes int64) error {
	if keys != 0 {
		if err := count(tx, v.stored(storedKeys), keys); err != nil {
			return err
		}
	}
	if bytes == 0 {
		return nil
	}
	return count(tx, v.stored(storedBytes), bytes)
}

// naming returns the change of links for a new version: the link from the version to its root is
// added, and the links of the versions that s replaces are removed. content may be nil if the
// root exists.
func (v *Bucket) naming(o *Object, s *succession, content *Content) linking {
	return linking{
		account: v.Account, link: link{o.Root, o.ID}, content: content, size: o.Size, public: v.Public,
		drops: s.drops(), comes: o.weight(), goes: s.sheds(),
	}
}

// putObject writes an object as the current version of its key, together with the changes in s
// and l. The caller has checked them.
func (v *Bucket) putObject(tx Tx, o *Object, s *succession, l *linking, e *entry) error {
	if err := s.write(tx, v, o); err != nil {
		return err
	}
	if err := l.write(tx, e); err != nil {
		return err
	}
	e.noteObject(v, o.Key, o.Created, false)
	return s.follow(tx, v, e)
}

// room returns ErrTooLarge if the bucket's counter of bytes would overflow.
func (v *Bucket) room(r Reader, bytes uint64) error {
	n, err := counter(r, v.stored(storedBytes))
	if err == nil && n > math.MaxInt64-bytes {
		err = Errorf(CodeTooLarge, "the bucket has more bytes than can be counted")
	}
	return err
}

// PutObject makes Content the current version of Object's key if the condition If holds. The
// version gets a time that is later than that of the version it replaces. If a version with the
// same id exists, nothing changes, so the command can be repeated.
type PutObject struct {
	Account AccountID
	Bucket  string
	Born    Incarnation
	Object  Object
	Content Content
	If      Condition
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *PutObject) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	v.Object.Code(c)
	v.Content.Code(c)
	v.If.Code(c)
}

func (v *PutObject) apply(tx Tx, e *entry) (Result, error) {
	if err := v.Object.check(); err != nil {
		return Result{}, err
	}
	if err := v.Content.check(v.Object.Root); err != nil {
		return Result{}, err
	}
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil {
		return Result{}, err
	}
	return b.change(tx, &v.Object, &v.If, &v.Content, e)
}

// change makes a checked object the current version of its key if cond holds. If content is nil,
// the object refers to a root that another object references already.
func (v *Bucket) change(tx Tx, object *Object, cond *Condition, content *Content, e *entry) (Result, error) {
	o := *object
	old, err := findObject(tx, v, o.Key)
	if err != nil {
		return Result{}, err
	}
	if there, err := v.version(tx, old, o.Key, o.ID); err != nil {
		return Result{}, err
	} else if there != nil {
		return v.made(there), nil
	}
	if err := cond.Judge(old); err != nil {
		return Result{}, err
	}
	if err := v.room(tx, o.Size); err != nil {
		return Result{}, err
	}
	s, err := v.succeed(tx, &o, old)
	if err != nil {
		return Result{}, err
	}
	l := v.naming(&o, &s, content)
	if err := l.judge(tx); err != nil {
		return Result{}, err
	}
	if err := v.putObject(tx, &o, &s, &l, e); err != nil {
		return Result{}, err
	}
	return v.made(&o), nil
}

// CopyObject creates an object that refers to the same content as an existing version, or changes
// the attributes of an object by a copy onto itself. Errors: ErrConflict if the source version no
// longer exists.
type CopyObject struct {
	Account      AccountID
	Bucket       string
	Born         Incarnation
	Object       Object // the new object; Root and Size are those of the source
	If           Condition
	SourceBucket string
	SourceBorn   Incarnation
	SourceKey    string
	SourceID     VersionID
	KeepTags     bool // the copy gets the tags that the source has when the command is applied
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CopyObject) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	v.Object.Code(c)
	v.If.Code(c)
	codec.String(c, &v.SourceBucket, maxBucketName)
	codec.Uint(c, &v.SourceBorn)
	codec.String(c, &v.SourceKey, MaxKeyBytes)
	codec.String(c, &v.SourceID, MaxIDLen)
	codec.Bool(c, &v.KeepTags)
}

func (v *CopyObject) apply(tx Tx, e *entry) (Result, error) {
	if err := v.Object.check(); err != nil {
		return Result{}, err
	}
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil {
		return Result{}, err
	}
	if current, err := findObject(tx, b, v.Object.Key); err != nil {
		return Result{}, err
	} else if there, err := b.version(tx, current, v.Object.Key, v.Object.ID); err != nil {
		return Result{}, err
	} else if there != nil {
		return b.made(there), nil // it was the source, maybe
	}
	source, err := findSource(tx, v.Account, v.SourceBucket, v.SourceBorn, v.SourceKey, v.SourceID)
	if err != nil {
		return Result{}, err
	}
	if source.Root != v.Object.Root || source.Size != v.Object.Size {
		return Result{}, Errorf(CodeInvalid, "the copy has other content than its source")
	}
	o := v.Object
	if len(o.Blake3) == 0 {
		o.Blake3 = source.Blake3 // it is known since the proposer read the source
	}
	if sum := source.WholeSum(o.Wanted); sum != nil { // and so is the checksum
		o.Checksums, o.Wanted = []Checksum{*sum}, ""
	}
	if v.KeepTags {
		o.Tags = source.Tags
	}
	return b.change(tx, &o, &v.If, nil, e)
}

// findSource returns the source version of a copy, which the proposer has read before. It returns
// ErrConflict if the bucket or the version no longer exists.
func findSource(r Reader, a AccountID, bucket string, born Incarnation, k string, id VersionID) (*Object, error) {
	b, err := findBucket(r, a, bucket)
	if err != nil {
		return nil, err
	}
	if b != nil && b.Born == born {
		current, err := findObject(r, b, k)
		if err != nil {
			return nil, err
		}
		source, err := b.version(r, current, k, id)
		if err != nil || source != nil && !source.Marker {
			return source, err
		}
	}
	return nil, Errorf(CodeConflict, "the object has changed while it was copied")
}

// DeleteObjects deletes the objects with the given keys; a key without an object is no error. If
// versioning is or was enabled for the bucket, Apply adds a delete marker and the objects remain
// as noncurrent versions. Versions that IDs names are removed permanently. A condition is only
// possible with a single key; it applies to the version with the given id if there is an id, and
// otherwise to the current version.
type DeleteObjects struct {
	Account AccountID
	Bucket  string
	Born    Incarnation
	Keys    []string
	IDs     []VersionID // ids of versions, "" for none; nil means no ids
	Marker  VersionID   // id of all delete markers that the command adds; one id suffices, because ids must be unique only within a key
	Created Millis      // creation time of the delete markers
	If      Condition
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *DeleteObjects) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	codec.Strings(c, &v.Keys, MaxDeleteKeys, MaxKeyBytes)
	codec.List(c, &v.IDs, MaxDeleteKeys, codeID)
	codec.String(c, &v.Marker, MaxIDLen)
	codec.Int(c, &v.Created)
	v.If.Code(c)
}

func (v *DeleteObjects) apply(tx Tx, e *entry) (Result, error) {
	if len(v.Keys) == 0 || len(v.Keys) > MaxDeleteKeys || !v.If.None() && len(v.Keys) > 1 ||
		len(v.IDs) != 0 && len(v.IDs) != len(v.Keys) {
		return Result{}, Errorf(CodeInvalid, "%d keys and %d versions in one deletion", len(v.Keys), len(v.IDs))
	}
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil {
		return Result{}, err
	}
	if b.Versioning != Unversioned {
		if err := v.checkMarkers(); err != nil {
			return Result{}, err
		}
	}
	e.at = v.Created
	var r Result
	if b.Versioning != Unversioned || len(v.IDs) > 0 {
		r.Deeds = make([]Deed, len(v.Keys))
	}
	return r, gathered(tx, func(tx Tx) error {
		for i := range v.Keys {
			deed, err := v.one(tx, b, i, e)
			if err != nil {
				return err
			}
			if r.Deeds != nil {
				r.Deeds[i] = deed
			}
		}
		return nil
	})
}

// checkMarkers checks the ids and times of the delete markers.
func (v *DeleteObjects) checkMarkers() error {
	if v.Marker == "" || v.Marker == NullVersion || len(v.Marker) > MaxIDLen || v.Created <= 0 || v.Created > maxCreated {
		return Errorf(CodeInvalid, "a delete marker needs an id and a time")
	}
	for _, k := range v.Keys {
		if err := checkObjectKey(k); err != nil {
			return err
		}
	}
	return nil
}

// one handles the key with index i: it deletes the object or the version, or adds a delete
// marker, and returns what it did.
func (v *DeleteObjects) one(tx Tx, b *Bucket, i int, e *entry) (Deed, error) {
	k := v.Keys[i]
	current, err := findObject(tx, b, k)
	if err != nil {
		return DidNothing, err
	}
	named := len(v.IDs) > 0 && v.IDs[i] != ""
	o := current
	if named {
		if o, err = b.version(tx, current, k, v.IDs[i]); err != nil {
			return DidNothing, err
		}
	}
	judged, err := v.judged(tx, b, o, k, named)
	if err != nil {
		return DidNothing, err
	}
	if err := v.If.Judge(judged); err != nil {
		return DidNothing, err
	}
	switch {
	case !named && judged == nil && !v.If.None() && v.If.AbsentOK:
		return DidNothing, nil // no delete marker either
	case !named && b.Versioning != Unversioned:
		return b.mark(tx, Object{ID: v.Marker, Key: k, Created: v.Created, Marker: true}, current, e)
	case o != nil && b.Versioning != Unversioned:
		return b.removeVersion(tx, o, current, e)
	case o != nil:
		return DidNothing, b.remove(tx, o, e)
	case named && b.Versioning != Unversioned:
		return FoundNoVersion, nil
	case current != nil:
		return MissedVersion, nil
	}
	return DidNothing, nil
}

// judged returns the version to which the condition of the command applies, or nil if there is
// none. o is the version to delete; named means that the command names its id.
func (v *DeleteObjects) judged(r Reader, b *Bucket, o *Object, k string, named bool) (*Object, error) {
	switch {
	case o != nil && (!o.Marker || v.If.AbsentOK):
		return o, nil
	case o == nil && !named && v.If.AbsentOK && b.Versioning != Unversioned:
		return b.newestOld(r, k) // a delete marker, since there is no object
	}
	return nil, nil
}

// SetObjectTags replaces the tags of a version. The time of the version does not change.
type SetObjectTags struct {
	Account AccountID
	Bucket  string
	Born    Incarnation
	Key     string
	ID      VersionID // "" means the current version
	Tags    []Tag
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SetObjectTags) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	codec.String(c, &v.Key, MaxKeyBytes)
	codec.String(c, &v.ID, MaxIDLen)
	codeTags(c, &v.Tags, MaxTags)
}

func (v *SetObjectTags) apply(tx Tx, _ *entry) (Result, error) {
	if err := checkTags(v.Tags, MaxTags); err != nil {
		return Result{}, err
	}
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil {
		return Result{}, err
	}
	current, err := findObject(tx, b, v.Key)
	if err != nil {
		return Result{}, err
	}
	o := current
	if v.ID != "" {
		if o, err = b.version(tx, current, v.Key, v.ID); err != nil {
			return Result{}, err
		}
		if o == nil {
			return Result{}, ErrNoVersion
		}
	}
	if o == nil || o.Marker {
		return Result{}, ErrNoKey
	}
	was := o.weight()
	o.Tags = v.Tags
	if err := growRecord(tx, b.Account, was, o.weight()); err != nil {
		return Result{}, err
	}
	if o != current {
		return Result{}, put(tx, b.versionKey(o.Key, o.Created), o)
	}
	return Result{}, put(tx, b.objectKey(o.Key), o)
}

// Bucket returns a bucket of an account by its name. It returns ErrNoBucket if the account has no
// such bucket.
func (v View) Bucket(a AccountID, name string) (Bucket, error) {
	b, err := findBucket(v.r, a, name)
	if err != nil {
		return Bucket{}, err
	}
	if b == nil {
		return Bucket{}, Errorf(CodeNoBucket, "there is no bucket %q", name)
	}
	return *b, nil
}

// Buckets returns the buckets of an account in the order of their names.
func (v View) Buckets(a AccountID) ([]Bucket, error) {
	all, err := scanAll[Bucket](v.r, bucketsOf(a))
	slices.SortFunc(all, func(a, b Bucket) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

// BucketUsage returns the number of objects in a bucket, the bytes of all its versions, and the
// number of its open uploads.
func (v View) BucketUsage(b *Bucket) (keys, bytes, uploads uint64, err error) {
	for what, n := range map[byte]*uint64{storedKeys: &keys, storedBytes: &bytes, storedUploads: &uploads} {
		if *n, err = counter(v.r, b.stored(what)); err != nil {
			return 0, 0, 0, err
		}
	}
	return keys, bytes, uploads, nil
}

// OldVersions returns the number of noncurrent versions and delete markers in a bucket.
func (v View) OldVersions(b *Bucket) (uint64, error) { return counter(v.r, b.stored(storedVersions)) }

// Object returns the current version of a key in a bucket, or ErrNoKey.
func (v View) Object(b *Bucket, k string) (Object, error) {
	o, err := findObject(v.r, b, k)
	if err != nil {
		return Object{}, err
	}
	if o == nil {
		return Object{}, ErrNoKey
	}
	return *o, nil
}

// Emptying returns up to limit deleted buckets that still have records.
func (v View) Emptying(limit int) ([]BucketRef, error) {
	var refs []BucketRef
	prefix := table(tableEmptying)
	err := v.r.Scan(prefix, prefix.end(), false, func(k, _ []byte) (bool, error) {
		if len(refs) == limit {
			return false, nil
		}
		a, rest, err := readPart[AccountID](k[len(prefix):])
		if err != nil || len(rest) != 8 {
			return false, fmt.Errorf("state: key %x of a deleted bucket: %w", k, err)
		}
		refs = append(refs, BucketRef{a, Incarnation(binary.BigEndian.Uint64(rest))})
		return true, nil
	})
	return refs, err
}
