package state

import "github.com/holdfast-ipfs/holdfast/consensus/codec"

// WholeSum returns the object's checksum by an algorithm over all its bytes, or nil if it has
// none or only a composite one.
func (v *Object) WholeSum(algorithm string) *Checksum {
	for i := range v.Checksums {
		if s := &v.Checksums[i]; s.Algorithm == algorithm && !s.Composite {
			return s
		}
	}
	return nil
}

// SetObjectSums sets the checksum that the version's field Wanted names, and the BLAKE3 hash if
// it is missing. It changes nothing if the version no longer exists or has both. It needs feature
// level 5.
//
// Errors: ErrInvalid if the root or the algorithm is not that of the version.
type SetObjectSums struct {
	Account  AccountID
	Born     Incarnation // Born of the bucket
	Key      string
	ID       VersionID
	Root     RootKey // root of the content that was hashed
	Blake3   []byte
	Checksum Checksum
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SetObjectSums) Code(c *codec.Coder) {
	codec.String(c, &v.Account, MaxIDLen)
	codec.Uint(c, &v.Born)
	codec.String(c, &v.Key, MaxKeyBytes)
	codec.String(c, &v.ID, MaxIDLen)
	codec.String(c, &v.Root, MaxCIDLen)
	codec.Bytes(c, &v.Blake3, Blake3Bytes)
	v.Checksum.Code(c)
}

func (v *SetObjectSums) apply(tx Tx, _ *entry) (Result, error) {
	if len(v.Blake3) != Blake3Bytes || v.Checksum.Composite {
		return Result{}, Errorf(CodeInvalid, "a BLAKE3 hash of %d bytes and a checksum of the whole are told together", len(v.Blake3))
	}
	if err := checkChecksums([]Checksum{v.Checksum}); err != nil {
		return Result{}, err
	}
	b := &Bucket{Account: v.Account, Born: v.Born}
	o, row, err := b.lacking(tx, v.Key, v.ID)
	if err != nil || o == nil {
		return Result{}, err
	}
	if o.Root != v.Root {
		return Result{}, Errorf(CodeInvalid, "the checksum is of other content than the version's")
	}
	if o.Wanted != v.Checksum.Algorithm {
		return Result{}, Errorf(CodeInvalid, "the version wants a %q, and not a %q", o.Wanted, v.Checksum.Algorithm)
	}
	o.Checksums, o.Wanted = []Checksum{v.Checksum}, ""
	if len(o.Blake3) == 0 {
		o.Blake3 = v.Blake3
	}
	return Result{}, b.hashed(tx, row, o)
}
