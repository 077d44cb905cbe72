package state

import "github.com/holdfast-ipfs/holdfast/consensus/codec"

// PartSums has the checksums of the parts of an object. They have a separate row, because
// 10,000 checksums take up to 640 KB, and lists and reads of the object do not need them.
type PartSums struct {
	Algorithm string // algorithm of the object's checksum
	Values    []byte // checksums one after the other, in the order of the parts
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *PartSums) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.Algorithm, maxAlgorithm)
	codec.Bytes(c, &v.Values, MaxPartNumber*MaxSumBytes)
}

// Of returns the checksum of a part by its position, beginning with 1, or nil if there is no
// such part.
func (v *PartSums) Of(part int) []byte {
	size := checksumBytes(v.Algorithm)
	if size == 0 || part < 1 || part*size > len(v.Values) {
		return nil
	}
	return v.Values[(part-1)*size : part*size]
}

// HasPartSums returns true if the checksums of the object's parts are stored: for an object that
// was made by an upload with checksums, but not for a copy.
func (v *Object) HasPartSums() bool {
	return v.Upload != "" && len(v.Parts) > 0 && len(v.Checksums) > 0
}

// partSumsKey returns the key of the PartSums of an object. It contains the id of the upload and
// not that of the version, because a null version has two ids.
func (v *Bucket) partSumsKey(o *Object) key {
	return v.ofVersion(tablePartSums, o.Key, VersionOf(o.Upload))
}

// forget removes the rows that exist beside the row of a version, and the version's weight.
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

// sums returns the PartSums of the listed parts, or nil if the object has no part checksums. It
// returns ErrInvalid if a part lacks its checksum.
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

// PartSums returns the checksums of an object's parts, or nil if none are stored or the object
// was replaced.
func (v View) PartSums(b *Bucket, o *Object) (*PartSums, error) {
	if !o.HasPartSums() {
		return nil, nil
	}
	return get[PartSums](v.r, b.partSumsKey(o))
}
