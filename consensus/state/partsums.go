package state

import "github.com/holdfast-ipfs/holdfast/consensus/codec"

// PartSums has the checksums of the parts of an object. They are a row of their own,
// because 10,000 of them have up to 640 KB, and lists and reads of the object do not need
// them.
type PartSums struct {
	Algorithm string // that of the object's checksum
	Values    []byte // one behind the other, in the order of the parts
}

// Code implements the record's form.
func (v *PartSums) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.Algorithm, maxAlgorithm)
	codec.Bytes(c, &v.Values, MaxPartNumber*MaxSumBytes)
}

// Of returns the checksum of a part, by its place from 1 on; nil for one that is not
// there.
func (v *PartSums) Of(part int) []byte {
	size := checksumBytes(v.Algorithm)
	if size == 0 || part < 1 || part*size > len(v.Values) {
		return nil
	}
	return v.Values[(part-1)*size : part*size]
}

// HasPartSums returns true if the object keeps the checksums of its parts. Objects of uploads
// with such checksums do; copies do not.
func (v *Object) HasPartSums() bool {
	return v.Upload != "" && len(v.Parts) > 0 && len(v.Checksums) > 0
}

// partSumsKey goes by the upload, whose id the version has: clients may know it by another.
func (v *Bucket) partSumsKey(o *Object) key {
	return v.ofVersion(tablePartSums, o.Key, VersionOf(o.Upload))
}

// forget removes the other rows of a version, and their weight.
func (v *Bucket) forget(tx Tx, o *Object) error {
	if err := reweigh(tx, v.Account, o.weight(), 0); err != nil {
		return err
	}
	if o.HasPartSums() {
		if err := tx.Delete(v.partSumsKey(o)); err != nil {
			return err
		}
	}
	if o.unhashed() {
		return v.unmark(tx, o)
	}
	return nil
}

// sums gathers the checksums of the parts that the object is made of; nil when it
// has none to keep.
func (v *CompleteUpload) sums(listed []Part) (*PartSums, error) {
	if !v.Object.HasPartSums() {
		return nil, nil
	}
	p := &PartSums{Algorithm: v.Object.Checksums[0].Algorithm}
	for i := range listed {
		found := false
		for _, s := range listed[i].Checksums {
			if found = s.Algorithm == p.Algorithm; found {
				p.Values = append(p.Values, s.Value...)
				break
			}
		}
		if !found {
			return nil, Errorf(CodeInvalid, "the object has a %s, and its part %d has none", p.Algorithm, listed[i].Number)
		}
	}
	return p, nil
}

// PartSums returns the checksums of an object's parts; nil when none are kept, or the
// object has been replaced. Its id may be NullVersion, by which clients know it.
func (v View) PartSums(b *Bucket, o *Object) (*PartSums, error) {
	if !o.HasPartSums() {
		return nil, nil
	}
	return get[PartSums](v.r, b.partSumsKey(o))
}
