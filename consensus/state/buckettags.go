package state

import "github.com/holdfast-ipfs/holdfast/consensus/codec"

// BucketTags has the tags of a bucket, in the order in which they were given.
type BucketTags struct{ Tags []Tag }

// Code encodes the record, or decodes it if c is a decoder.
func (v *BucketTags) Code(c *codec.Coder) {
	c.Version(1)
	codeTags(c, &v.Tags, MaxBucketTags)
}

// SetBucketTags replaces the tags of a bucket. An empty list removes them. The command needs
// feature level 5.
type SetBucketTags struct {
	Account AccountID
	Bucket  string
	Born    Incarnation
	Tags    BucketTags
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SetBucketTags) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	v.Tags.Code(c)
}

func (v *SetBucketTags) apply(tx Tx, _ *entry) (Result, error) {
	if err := checkTags(v.Tags.Tags, MaxBucketTags); err != nil {
		return Result{}, err
	}
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil {
		return Result{}, err
	}
	if len(v.Tags.Tags) == 0 {
		return Result{}, tx.Delete(b.in(tableBucketTags))
	}
	return Result{}, put(tx, b.in(tableBucketTags), &v.Tags)
}

// BucketTags returns the tags of a bucket, which may be none.
func (v View) BucketTags(b *Bucket) ([]Tag, error) {
	t, err := get[BucketTags](v.r, b.in(tableBucketTags))
	if err != nil || t == nil {
		return nil, err
	}
	return t.Tags, nil
}
