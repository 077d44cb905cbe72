package state

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

func (v *Bucket) uploadKey(k string, id UploadID) key {
	return append(v.in(tableUpload).ordered(k), id...)
}

func (v *Bucket) partKey(id UploadID, number uint16) key {
	return part(v.in(tablePart), id).u16(number)
}

// begunKey returns the key of an open upload in the index that sorts the uploads of all accounts
// by Since.
func (v *Bucket) begunKey(u *Upload) key {
	return part(part(table(tableBegun).u64(uint64(u.Since)), v.Account).u64(uint64(v.Born)), u.ID)
}

// begun is the value in the index of open uploads: where the upload is.
type begun struct{ Bucket, Key string }

// Code encodes the record, or decodes it if c is a decoder.
func (v *begun) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.Bucket, maxBucketName)
	codec.String(c, &v.Key, MaxKeyBytes)
}

func findUpload(r Reader, b *Bucket, k string, id UploadID) (*Upload, error) {
	if k == "" || len(k) > MaxKeyBytes || id == "" || len(id) > MaxIDLen {
		return nil, nil
	}
	return get[Upload](r, b.uploadKey(k, id))
}

// openUpload returns the upload that a command names, or ErrNoUpload.
func openUpload(r Reader, b *Bucket, k string, id UploadID) (*Upload, error) {
	u, err := findUpload(r, b, k, id)
	if err == nil && u == nil {
		err = ErrNoUpload
	}
	return u, err
}

// CreateUpload starts a multipart upload. If the upload exists already, nothing changes.
type CreateUpload struct {
	Account AccountID
	Bucket  string
	Born    Incarnation
	Upload  Upload
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CreateUpload) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	v.Upload.Code(c)
}

func (v *CreateUpload) apply(tx Tx, _ *entry) (Result, error) {
	u := v.Upload
	if err := u.check(); err != nil {
		return Result{}, err
	}
	u.Since = min(u.Since, maxCreated) // of another's clock than Created
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil {
		return Result{}, err
	}
	marker := b.partKey(u.ID, 0)
	if k, taken, err := tx.Get(marker); err != nil {
		return Result{}, err
	} else if taken && string(k) == u.Key {
		return Result{}, nil
	} else if taken {
		return Result{}, Errorf(CodeExists, "there is an upload %s already", u.ID)
	}
	if ending, err := has(tx, b.endedKey(u.ID)); err != nil {
		return Result{}, err
	} else if ending {
		return Result{}, Errorf(CodeExists, "there was an upload %s", u.ID)
	}
	if n, err := counter(tx, b.stored(storedUploads)); err != nil {
		return Result{}, err
	} else if n >= MaxUploads {
		return Result{}, Errorf(CodeTooLarge, "the bucket has its most open uploads, %d", MaxUploads)
	}
	if err := growRecord(tx, b.Account, 0, u.weight()); err != nil {
		return Result{}, err
	}
	if err := tx.Set(marker, []byte(u.Key)); err != nil {
		return Result{}, err
	}
	if err := put(tx, b.begunKey(&u), &begun{Bucket: b.Name, Key: u.Key}); err != nil {
		return Result{}, err
	}
	if err := count(tx, b.stored(storedUploads), 1); err != nil {
		return Result{}, err
	}
	return Result{}, put(tx, b.uploadKey(u.Key, u.ID), &u)
}

// AbortUpload aborts an upload and removes its parts, see endUpload. Errors: ErrNoBucket,
// ErrNoUpload.
type AbortUpload struct {
	Account AccountID
	Bucket  string
	Born    Incarnation
	Key     string
	ID      UploadID
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *AbortUpload) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	codec.String(c, &v.Key, MaxKeyBytes)
	codec.String(c, &v.ID, MaxIDLen)
}

func (v *AbortUpload) apply(tx Tx, e *entry) (Result, error) {
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil {
		return Result{}, err
	}
	u, err := openUpload(tx, b, v.Key, v.ID)
	if err != nil {
		return Result{}, err
	}
	return Result{}, gathered(tx, func(tx Tx) error { return b.endUpload(tx, u, e) })
}

// endUpload removes an upload and its parts. If it has more parts than one entry may remove,
// ClearUploads removes them later.
func (v *Bucket) endUpload(tx Tx, u *Upload, e *entry) error {
	parts, _, err := partsOf(tx, v, u.ID, 0, MaxPartNumber)
	if err != nil {
		return err
	}
	if err := v.removeUpload(tx, u); err != nil {
		return err
	}
	if len(parts) > e.freed() {
		return v.leaveParts(tx, u.ID, e)
	}
	e.settle -= len(parts)
	return v.freeParts(tx, u.ID, parts, e)
}

// DateUpload sets Since of an upload, a time at which the upload certainly existed. If it is
// applied several times, the earliest Since remains.
type DateUpload struct {
	Account AccountID
	Bucket  string
	Born    Incarnation
	Key     string
	ID      UploadID
	Since   Millis
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *DateUpload) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	codec.String(c, &v.Key, MaxKeyBytes)
	codec.String(c, &v.ID, MaxIDLen)
	codec.Int(c, &v.Since)
}

func (v *DateUpload) apply(tx Tx, _ *entry) (Result, error) {
	if v.Since <= 0 {
		return Result{}, Errorf(CodeInvalid, "an upload that is open since %d", v.Since)
	}
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil {
		return Result{}, err
	}
	u, err := openUpload(tx, b, v.Key, v.ID)
	if err != nil || u.Since != 0 && u.Since <= v.Since {
		return Result{}, err
	}
	if err := tx.Delete(b.begunKey(u)); err != nil {
		return Result{}, err
	}
	u.Since = min(v.Since, maxCreated)
	if err := put(tx, b.begunKey(u), &begun{Bucket: b.Name, Key: u.Key}); err != nil {
		return Result{}, err
	}
	return Result{}, put(tx, b.uploadKey(u.Key, u.ID), u)
}

// partsOf returns up to limit parts of an upload with numbers above after, and whether there are
// more.
func partsOf(r Reader, b *Bucket, id UploadID, after uint16, limit int) (parts []Part, more bool, err error) {
	prefix := part(b.in(tablePart), id)
	from := slices.Clone(prefix).u16(min(after, MaxPartNumber) + 1)
	return scanPage[Part](r, from, prefix.end(), limit)
}

// freeParts removes the given parts of an upload and their references to content.
func (v *Bucket) freeParts(tx Tx, id UploadID, parts []Part, e *entry) error {
	for i := range parts {
		p := &parts[i]
		if err := tx.Delete(v.partKey(id, p.Number)); err != nil {
			return err
		}
		if err := unlink(tx, v.Account, link{p.Root, p.ID}, e); err != nil {
			return err
		}
	}
	return nil
}

// removeUpload removes the record of an upload, so that clients no longer see the upload and its
// parts. The parts themselves remain.
func (v *Bucket) removeUpload(tx Tx, u *Upload) error {
	for _, k := range []key{v.uploadKey(u.Key, u.ID), v.partKey(u.ID, 0), v.begunKey(u)} {
		if err := tx.Delete(k); err != nil {
			return err
		}
	}
	if err := reweigh(tx, v.Account, u.weight(), 0); err != nil {
		return err
	}
	return count(tx, v.stored(storedUploads), -1)
}

// clearUploads removes the uploads whose keys begin with a prefix, with their parts, up to the
// entry's limit of changed records.
func clearUploads(tx Tx, a AccountID, prefix key, e *entry) error {
	for e.settle > 0 {
		buckets, uploads, err := rowsIn[Upload](tx, tableUpload, a, prefix, min(e.settle, clearRead))
		if err != nil || len(uploads) == 0 {
			return err
		}
		for i, u := range uploads {
			if err := clearUpload(tx, buckets[i], u, e); err != nil || e.settle == 0 {
				return err
			}
		}
	}
	return nil
}

// clearUpload removes one upload with its parts. If that exceeds the entry's limit, it removes as
// many parts as it may.
func clearUpload(tx Tx, b *Bucket, u *Upload, e *entry) error {
	parts, _, err := partsOf(tx, b, u.ID, 0, e.settle)
	if err != nil {
		return err
	}
	if err := b.freeParts(tx, u.ID, parts, e); err != nil {
		return err
	}
	if e.settle -= len(parts); e.settle == 0 {
		return nil
	}
	e.settle--
	return b.removeUpload(tx, u)
}

// PutPart adds content to an upload as the part with a number, and replaces an existing part with
// that number. If the same part (with the same id) is put again, nothing changes.
type PutPart struct {
	Account AccountID
	Bucket  string
	Born    Incarnation
	Key     string
	Upload  UploadID
	Part    Part
	Content Content
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *PutPart) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	codec.String(c, &v.Key, MaxKeyBytes)
	codec.String(c, &v.Upload, MaxIDLen)
	v.Part.Code(c)
	v.Content.Code(c)
}

func (v *PutPart) apply(tx Tx, e *entry) (Result, error) {
	if err := v.Part.check(); err != nil {
		return Result{}, err
	}
	if err := v.Content.check(v.Part.Root); err != nil {
		return Result{}, err
	}
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil {
		return Result{}, err
	}
	return b.putPart(tx, v.Key, v.Upload, v.Part, &v.Content, nil, e)
}

// putPart adds a checked part to an upload. For a copy, content is nil and the part references
// the root of an existing object; source then checks that this object still exists.
func (v *Bucket) putPart(tx Tx, k string, id UploadID, p Part, content *Content, source func() error, e *entry) (Result, error) {
	u, err := openUpload(tx, v, k, id)
	if err != nil {
		return Result{}, err
	}
	row := v.partKey(u.ID, p.Number)
	old, err := get[Part](tx, row)
	if err != nil {
		return Result{}, err
	}
	if old != nil && old.ID == p.ID {
		return Result{Created: old.Created}, nil
	}
	if source != nil {
		if err := source(); err != nil {
			return Result{}, err
		}
	}
	l := linking{account: v.Account, link: link{p.Root, p.ID}, content: content, size: p.Size}
	if old != nil {
		l.drops = []link{{old.Root, old.ID}}
		p.Created = max(p.Created, old.Created+1)
	}
	if err := l.judge(tx); err != nil {
		return Result{}, err
	}
	if err := put(tx, row, &p); err != nil {
		return Result{}, err
	}
	return Result{Created: p.Created}, l.write(tx, e)
}

// CopyPart adds a part that has the content of a whole existing object. Errors: ErrConflict if
// the source is no longer the version that the proposer has read.
type CopyPart struct {
	Account      AccountID
	Bucket       string
	Born         Incarnation
	Key          string
	Upload       UploadID
	Part         Part // Root and Size are those of the source
	SourceBucket string
	SourceBorn   Incarnation
	SourceKey    string
	SourceID     VersionID
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CopyPart) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	codec.String(c, &v.Key, MaxKeyBytes)
	codec.String(c, &v.Upload, MaxIDLen)
	v.Part.Code(c)
	codec.String(c, &v.SourceBucket, maxBucketName)
	codec.Uint(c, &v.SourceBorn)
	codec.String(c, &v.SourceKey, MaxKeyBytes)
	codec.String(c, &v.SourceID, MaxIDLen)
}

func (v *CopyPart) apply(tx Tx, e *entry) (Result, error) {
	if err := v.Part.check(); err != nil {
		return Result{}, err
	}
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil {
		return Result{}, err
	}
	source := func() error {
		o, err := findSource(tx, v.Account, v.SourceBucket, v.SourceBorn, v.SourceKey, v.SourceID)
		if err == nil && (o.Root != v.Part.Root || o.Size != v.Part.Size) {
			err = Errorf(CodeInvalid, "the part has other content than its source")
		}
		return err
	}
	return b.putPart(tx, v.Key, v.Upload, v.Part, nil, source, e)
}

// CompleteUpload makes an object from parts of an upload, and ends the upload. If all parts do
// not fit into the entry, ClearUploads removes the rest later. The version gets the id of the
// upload (VersionOf), so that a repeat, perhaps through another node, finds it. If the upload no
// longer exists and has become this version with the same parts, nothing changes, whatever the
// condition is.
type CompleteUpload struct {
	Account AccountID
	Bucket  string
	Born    Incarnation
	Object  Object // Key and Upload identify the upload; Size and Parts are computed from the parts
	Content Content
	Parts   PartList
	If      Condition
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CompleteUpload) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	v.Object.Code(c)
	v.Content.Code(c)
	v.Parts.Code(c)
	v.If.Code(c)
}

func (v *CompleteUpload) apply(tx Tx, e *entry) (Result, error) {
	o := v.Object
	if err := o.check(); err != nil {
		return Result{}, err
	}
	if o.ID != VersionOf(o.Upload) {
		return Result{}, Errorf(CodeInvalid, "an upload becomes the version of its own id")
	}
	if err := v.Content.check(o.Root); err != nil {
		return Result{}, err
	}
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil {
		return Result{}, err
	}
	old, err := findObject(tx, b, o.Key)
	if err != nil {
		return Result{}, err
	}
	u, there, err := v.look(tx, b, old)
	if err != nil {
		return Result{}, err
	}
	if there != nil {
		return b.made(there), nil
	}
	if err := v.If.Judge(old); err != nil {
		return Result{}, err
	}
	if err := b.room(tx, o.Size); err != nil {
		return Result{}, err
	}
	s, err := b.succeed(tx, &o, old)
	if err != nil {
		return Result{}, err
	}
	err = gathered(tx, func(tx Tx) error {
		parts, _, err := partsOf(tx, b, u.ID, 0, MaxPartNumber)
		if err != nil {
			return err
		}
		listed, err := v.listed(parts)
		if err != nil {
			return err
		}
		sums, err := v.sums(listed)
		if err != nil {
			return err
		}
		l := b.naming(&o, &s, &v.Content)
		l.joined, l.goes = true, l.goes+u.weight()
		l.drops = dropped(parts, l.drops)
		if err := l.judge(tx); err != nil {
			return err
		}
		if err := b.removeUpload(tx, u); err != nil {
			return err
		}
		if sums != nil {
			if err := put(tx, b.partSumsKey(&o), sums); err != nil {
				return err
			}
		}
		if len(parts) > e.freed() { // ClearUploads frees the parts; this entry frees what is replaced
			l.drops = l.drops[len(parts):]
			if err := b.putObject(tx, &o, &s, &l, e); err != nil {
				return err
			}
			return b.leaveParts(tx, u.ID, e)
		}
		e.settle -= len(parts)
		for i := range parts {
			if err := tx.Delete(b.partKey(u.ID, parts[i].Number)); err != nil {
				return err
			}
		}
		return b.putObject(tx, &o, &s, &l, e)
	})
	if err != nil {
		return Result{}, err
	}
	return b.made(&o), nil
}

// dropped returns the links that a completed upload removes: those of its parts, followed by
// those of the replaced object.
func dropped(parts []Part, replaced []link) []link {
	all := make([]link, 0, len(parts)+len(replaced))
	for i := range parts {
		all = append(all, link{parts[i].Root, parts[i].ID})
	}
	return append(all, replaced...)
}

// look returns the upload to complete. If the upload was completed already, it returns the
// resulting object instead.
func (v *CompleteUpload) look(r Reader, b *Bucket, current *Object) (*Upload, *Object, error) {
	o := &v.Object
	u, err := findUpload(r, b, o.Key, o.Upload)
	if err != nil {
		return nil, nil, err
	}
	there, err := b.version(r, current, o.Key, o.ID)
	switch {
	case err != nil:
		return nil, nil, err
	case u != nil && there != nil:
		return nil, nil, Errorf(CodeExists, "there is a version %s already", o.ID)
	case u != nil:
		return u, nil, nil
	case there == nil || there.Upload != o.Upload:
		return nil, nil, ErrNoUpload
	case there.Listed != o.Listed || there.Root != o.Root:
		return nil, nil, Errorf(CodeInvalidPart, "the upload was completed with other parts")
	}
	return nil, there, nil
}

// listed returns those of the upload's parts of which the object consists, and checks their
// sizes.
func (v *CompleteUpload) listed(parts []Part) ([]Part, error) {
	listed, err := v.Parts.of(parts)
	if err != nil {
		return nil, err
	}
	var bytes uint64
	var runs []PartRun
	for i := range listed {
		size := listed[i].Size
		bytes += size
		if n := len(runs); n > 0 && runs[n-1].Size == size {
			runs[n-1].Count++
		} else {
			runs = append(runs, PartRun{Size: size, Count: 1})
		}
	}
	if bytes != v.Object.Size || !slices.Equal(runs, v.Object.Parts) {
		return nil, Errorf(CodeInvalid, "the object is not of the sizes of its parts")
	}
	return listed, nil
}

// Upload returns an open upload, or ErrNoUpload.
func (v View) Upload(b *Bucket, k string, id UploadID) (Upload, error) {
	u, err := openUpload(v.r, b, k, id)
	if err != nil {
		return Upload{}, err
	}
	return *u, nil
}

// Parts returns up to limit parts of an upload with numbers above after, in ascending order, and
// whether there are more.
func (v View) Parts(b *Bucket, id UploadID, after uint16, limit int) (parts []Part, more bool, err error) {
	return partsOf(v.r, b, id, after, min(max(limit, 0), MaxPartNumber))
}

// OpenUpload identifies an upload with the fields of AbortUpload and DateUpload.
type OpenUpload struct {
	Account AccountID
	Bucket  string
	Born    Incarnation
	Key     string
	ID      UploadID
	Since   Millis
}

// UploadsBefore returns up to limit open uploads of all accounts with a Since before t, which
// have therefore certainly existed at t, oldest first. It omits uploads of deleted buckets and
// closed accounts, which are removed anyway.
func (v View) UploadsBefore(t Millis, limit int) ([]OpenUpload, error) {
	if t <= 1 {
		return nil, nil
	}
	return v.openUploads(table(tableBegun).u64(1), table(tableBegun).u64(uint64(t)), limit)
}

// UploadsUndated returns up to limit open uploads of all accounts whose Since is unknown or after
// t, so that DateUpload may set an earlier one. It omits uploads of deleted buckets and closed
// accounts.
func (v View) UploadsUndated(t Millis, limit int) ([]OpenUpload, error) {
	unknown, err := v.openUploads(table(tableBegun), table(tableBegun).u64(1), limit)
	if err != nil {
		return nil, err
	}
	later, err := v.openUploads(table(tableBegun).u64(uint64(max(t, 0))+1), table(tableBegun).end(), limit-len(unknown))
	return append(unknown, later...), err
}

// openUploads returns up to limit open uploads in a key range of the index by Since.
func (v View) openUploads(from, to key, limit int) ([]OpenUpload, error) {
	if limit <= 0 {
		return nil, nil
	}
	var open []OpenUpload
	err := v.r.Scan(from, to, false, func(k, value []byte) (bool, error) {
		u, err := readOpen(k[len(table(tableBegun)):], value)
		if err != nil {
			return false, err
		}
		if _, err := openBucket(v.r, u.Account, u.Bucket, u.Born); err == nil {
			open = append(open, u)
		} else if !isOutcome(err) {
			return false, err
		}
		return len(open) < limit, nil
	})
	return open, err
}

func readOpen(k, value []byte) (u OpenUpload, err error) {
	if len(k) < 8 {
		return u, fmt.Errorf("state: short key %x", k)
	}
	of, err := readUpload(k[8:])
	if err != nil {
		return u, err
	}
	at, err := decode[begun](value)
	if err != nil {
		return u, err
	}
	return OpenUpload{
		Account: of.Account, Bucket: at.Bucket, Born: of.Born, Key: at.Key, ID: of.ID,
		Since: Millis(binary.BigEndian.Uint64(k)),
	}, nil
}
