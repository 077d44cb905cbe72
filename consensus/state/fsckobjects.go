package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// takeBucket decodes the account and the incarnation at the beginning of the current row's key.
func (c *fsck) takeBucket() (b Bucket, rest []byte, err error) {
	rest = c.k[1:]
	b.Account = takePart[AccountID](&rest, &err)
	b.Born = Incarnation(takeU64(&rest, &err))
	return b, rest, err
}

// inBucket returns the open bucket to which the current row belongs. If there is none, it reports
// the row and returns nil.
func (c *fsck) inBucket() (*Bucket, error) {
	at, _, err := c.takeBucket()
	if !c.parsed(err) {
		return nil, nil
	}
	b, err := c.bucket(at.Account, at.Born)
	if err == nil && b == nil {
		c.differs(valueText(c.v), fmt.Sprintf("nothing: account %s has no bucket %d", at.Account, at.Born))
	}
	return b, err
}

func (c *fsck) bucketRow() error {
	b := read(c, func(b *Bucket) key { return bucketKey(b.Account, b.Name) })
	if b == nil {
		return nil
	}
	if open, err := c.bucket(b.Account, b.Born); err != nil {
		return err
	} else if open != nil && open.Name != b.Name {
		c.differs(fmt.Sprintf("incarnation %d", b.Born), "another one: bucket "+open.Name+" has it")
	}
	marked, err := has(c.r, turningKey(b.Account, b.Name))
	if err != nil {
		return err
	}
	if marked != b.Turning {
		c.differs(fmt.Sprintf("setting changed: %t", b.Turning), fmt.Sprintf("setting changed: %t", marked))
	}
	if err := c.owner(b.Account); err != nil {
		return err
	}
	newest, _, err := c.r.Get(bornKey(b.Account))
	if err == nil && (len(newest) != 8 || Incarnation(binary.BigEndian.Uint64(newest)) < b.Born) {
		c.differs(fmt.Sprintf("incarnation %d", b.Born), "at most that of the newest bucket, "+valueText(newest))
	}
	return err
}

func (c *fsck) born() error {
	c.number()
	a, _, err := readPart[AccountID](c.k[1:])
	if !c.parsed(err) {
		return nil
	}
	return c.owner(a)
}

// weighs computes the bytes of a record of an account.
func (c *fsck) weighs(a AccountID, bytes uint64) error {
	f, err := c.of(a)
	if err == nil && f.quota {
		c.counts(quotaKey(a), bytesOfRecords, bytes)
	}
	return err
}

// object checks a current version.
func (c *fsck) object() error {
	b, err := c.inBucket()
	if err != nil || b == nil {
		return err
	}
	o := read(c, func(o *Object) key { return b.objectKey(o.Key) })
	if o == nil {
		return nil
	}
	if o.Marker {
		c.differs("a delete marker", "a version")
	}
	c.counts(b.stored(storedKeys), aCounter, 1)
	if b.Account == PaidAccount {
		owner, err := get[PaidObject](c.r, ownerKey(o.Key))
		if err != nil || owner == nil || owner.Ended || owner.Version != o.ID {
			c.differs("a paid object", "nothing: nobody has paid for it")
		}
	}
	return c.versioned(b, o)
}

// versioned computes what the state has beside a version.
func (c *fsck) versioned(b *Bucket, o *Object) error {
	c.counts(b.stored(storedBytes), aCounter, o.Size)
	if o.unhashed() {
		c.computed(b.unhashedKey(o), nil)
	}
	if o.HasPartSums() {
		c.counts(b.partSumsKey(o), sumsOfParts, o.partCount())
	}
	public, err := c.public(b, c.k, o)
	if err != nil {
		return err
	}
	c.computed(linkKey(o.Root, b.Account, o.ID), linkRow(public))
	return c.weighs(b.Account, o.weight())
}

// sumsOfParts is the name of the number of checksums of parts.
const sumsOfParts = "checksums"

// partCount returns the number of parts of the upload that became the version.
func (v *Object) partCount() (n uint64) {
	for _, run := range v.Parts {
		n += run.Count
	}
	return n
}

// public returns whether the link of a version should count as public: as its bucket says. For
// versions that have not been changed to the bucket's setting yet, it returns what is stored.
func (c *fsck) public(b *Bucket, row key, o *Object) (bool, error) {
	if !b.Turning {
		return b.Public, nil
	}
	next, turning, err := c.r.Get(turningKey(b.Account, b.Name))
	if err != nil || !turning || bytes.Compare(row, next) < 0 {
		return b.Public, err
	}
	now, _, err := c.r.Get(linkKey(o.Root, b.Account, o.ID))
	return isPublic(now), err
}

// lastVersion is the noncurrent version that was read last.
type lastVersion struct {
	bucket  string // prefix of its row
	key     string
	current *Object // current version of the key; nil if there is none
}

// oldVersion checks a noncurrent version or a delete marker.
func (c *fsck) oldVersion() error {
	b, err := c.inBucket()
	if err != nil || b == nil {
		return err
	}
	o := read(c, func(o *Object) key { return b.versionKey(o.Key, o.Created) })
	if o == nil {
		return nil
	}
	if b.Versioning == Unversioned {
		c.differs("a version", "nothing: the bucket has no versions")
	}
	if err := c.besideCurrent(b, o); err != nil {
		return err
	}
	c.counts(b.stored(storedVersions), aCounter, 1)
	for _, id := range o.names() {
		c.computed(b.versionTime(o.Key, id), key(nil).u64(uint64(o.Created)))
	}
	if o.Marker {
		return nil
	}
	return c.versioned(b, o)
}

// besideCurrent compares a noncurrent version with the current one.
func (c *fsck) besideCurrent(b *Bucket, o *Object) error {
	last := &c.version
	prefix := string(b.in(tableVersion))
	newest := last.bucket != prefix || last.key != o.Key
	if newest {
		*last = lastVersion{bucket: prefix, key: o.Key}
		row, ok, err := c.r.Get(b.objectKey(o.Key))
		if err != nil {
			return err
		}
		if ok {
			last.current, _ = decode[Object](row) // its own row is reported
		}
	}
	closed, err := c.of(b.Account)
	if err != nil {
		return err
	}
	switch now := last.current; {
	case now == nil && newest && !o.Marker && !closed.closing:
		c.differs("a noncurrent version", "a current one: it is the newest of its key")
	case now == nil:
	case now.Created <= o.Created:
		c.differs("a noncurrent version", "a current one: it is newer than the current one, "+string(now.ID))
	case !now.Versioned && !o.Versioned, now.ID == o.ID:
		c.differs("a noncurrent version "+string(o.ID), "nothing: the current version has the same id")
	}
	return nil
}

// uploadRow checks an open upload.
func (c *fsck) uploadRow() error {
	at, _, err := c.takeBucket()
	if !c.parsed(err) {
		return nil
	}
	u := read(c, func(u *Upload) key { return at.uploadKey(u.Key, u.ID) })
	if u == nil {
		return nil
	}
	b, err := c.bucket(at.Account, at.Born)
	if err != nil {
		return err
	}
	if b != nil {
		at.Name = b.Name
	} else {
		if err := c.needs(emptyingKey(at.Account, at.Born), "bucket to which the upload belongs"); err != nil {
			return err
		}
		row, ok, err := c.r.Get(at.begunKey(u))
		if err != nil {
			return err
		}
		if old, err := decode[begun](row); ok && err == nil {
			at.Name = old.Bucket // nothing else knows it any more
		}
	}
	c.counts(at.stored(storedUploads), aCounter, 1)
	c.computed(at.partKey(u.ID, 0), []byte(u.Key))
	if err := computedRecord(c, at.begunKey(u), &begun{Bucket: at.Name, Key: u.Key}); err != nil {
		return err
	}
	return c.weighs(at.Account, u.weight())
}

// uploadFacts are what parts of an upload are checked with.
type uploadFacts struct {
	prefix string // of the rows of its parts
	open   bool
	ended  *ended // nil: it has not ended
}

// part checks a part of an open upload or of one that has ended.
func (c *fsck) part() error {
	at, rest, err := c.takeBucket()
	id := takePart[UploadID](&rest, &err)
	if err == nil && len(rest) != 2 {
		err = fmt.Errorf("state: key of a part")
	}
	if !c.parsed(err) {
		return nil
	}
	number := binary.BigEndian.Uint16(rest)
	if number == 0 {
		c.stored()
		return nil
	}
	p := read(c, func(p *Part) key { return at.partKey(id, p.Number) })
	if p == nil {
		return nil
	}
	if err := c.uploadOf(&at, id); err != nil {
		return err
	}
	switch of := c.upload; {
	case !of.open && of.ended == nil:
		c.differs("a part", "nothing: there is no such upload")
	case of.ended != nil && number <= of.ended.After:
		c.differs("a part", fmt.Sprintf("nothing: parts up to %d are freed", of.ended.After))
	}
	c.computed(linkKey(p.Root, at.Account, p.ID), linkRow(false))
	return nil
}

// uploadOf reads the facts of an upload, unless it was read last.
func (c *fsck) uploadOf(b *Bucket, id UploadID) error {
	prefix := part(b.in(tablePart), id)
	if c.upload.prefix == string(prefix) {
		return nil
	}
	c.upload = uploadFacts{prefix: string(prefix)}
	var err error
	if c.upload.open, err = has(c.r, b.partKey(id, 0)); err != nil {
		return err
	}
	row, ok, err := c.r.Get(b.endedKey(id))
	if ok {
		c.upload.ended, _ = decode[ended](row) // its own row is reported
	}
	return err
}

// ended checks the mark of an upload that has ended and still has parts.
func (c *fsck) ended() error {
	v := read(c, here[ended](c))
	u, err := readUpload(c.k[1:])
	if !c.parsed(err) || v == nil {
		return nil
	}
	b := Bucket{Account: u.Account, Born: u.Born}
	open, err := has(c.r, b.partKey(u.ID, 0))
	if err != nil {
		return err
	}
	if open {
		c.differs("an ended upload", "nothing: the upload is open")
	}
	some := false
	prefix := part(b.in(tablePart), u.ID)
	err = c.r.Scan(b.partKey(u.ID, 1), prefix.end(), false, func(_, _ []byte) (bool, error) {
		some = true
		return false, nil
	})
	if err == nil && !some {
		c.differs("an ended upload", "nothing: it has no parts")
	}
	return err
}

func (c *fsck) emptying() error {
	c.empty()
	at, _, err := c.takeBucket()
	if !c.parsed(err) {
		return nil
	}
	b, err := c.bucket(at.Account, at.Born)
	if err == nil && b != nil {
		c.differs("a deleted bucket", "nothing: bucket "+b.Name+" exists")
	}
	return err
}

func (c *fsck) turning() error {
	rest := []byte(c.k[1:])
	var err error
	a := takePart[AccountID](&rest, &err)
	name := takePart[string](&rest, &err)
	if !c.parsed(err) {
		return nil
	}
	f, err := c.of(a)
	if err != nil || f.closing {
		return err
	}
	b, err := get[Bucket](c.r, bucketKey(a, name))
	switch {
	case err != nil || b == nil || !b.Turning: // a record that cannot be decoded is reported
		c.differs(valueText(c.v), "nothing: there is no bucket whose setting has changed")
	case !bytes.HasPrefix(c.v, b.in(tableVersion)) && !bytes.HasPrefix(c.v, b.in(tableObject)):
		c.differs(valueText(c.v), "the key of a version of the bucket")
	}
	return nil
}

// partSums checks the checksums of the parts of a version.
func (c *fsck) partSums() error {
	v := read(c, here[PartSums](c))
	if v == nil {
		return nil
	}
	size := checksumBytes(v.Algorithm)
	if size == 0 || len(v.Values)%size != 0 {
		c.differs(fmt.Sprintf("%d bytes of the algorithm %q", len(v.Values), v.Algorithm), "checksums")
		return nil
	}
	c.tally.number(c.k, sumsOfParts, uint64(len(v.Values)/size), true)
	return nil
}

func (c *fsck) unhashed() error {
	c.stored()
	c.counts(unhashedCount, aCounter, 1)
	return nil
}

// ofBucket checks that a row belongs to an open bucket, or to an account that is being removed.
func (c *fsck) ofBucket(empty bool) error {
	if empty {
		c.differs("an empty record", "nothing")
	}
	at, _, err := c.takeBucket()
	if !c.parsed(err) {
		return nil
	}
	f, err := c.of(at.Account)
	if err != nil || f.closing {
		return err
	}
	_, err = c.inBucket()
	return err
}

func (c *fsck) cors() error {
	v := read(c, here[Cors](c))
	if v == nil {
		return nil
	}
	return c.ofBucket(len(v.Rules) == 0)
}

func (c *fsck) bucketTags() error {
	v := read(c, here[BucketTags](c))
	if v == nil {
		return nil
	}
	return c.ofBucket(len(v.Tags) == 0)
}

// share checks a share.
func (c *fsck) share() error {
	s := read(c, (*Share).key)
	if s == nil {
		return nil
	}
	c.computed(shareByKey(s.Key), s.key())
	_, err := c.inBucket()
	return err
}
