package state

import "github.com/holdfast-ipfs/holdfast/consensus/codec"

// WholeSum returns the object's checksum of all its bytes by an algorithm; nil when it has
// none, or only one of those of its parts.
func (v *Object) WholeSum(algorithm string) *Checksum {
	for i := range v.Checksums {
		if s := &v.Checksums[i]; s.Algorithm == algorithm && !s.Composite {
			return s
		}
	}
	return nil
}

// SetObjectSums tells the checksum of all bytes that a version is to have, and its BLAKE3
// hash should that not be known. Of a version that is gone, or has it by now, nothing
// changes. It is of level 5.
type SetObjectSums struct {
	Account  AccountID
	Born     Incarnation // of the bucket
	Key      string
	ID       VersionID
	Root     RootKey // what was hashed
	Blake3   []byte
	Checksum Checksum
}

// Code implements Command.
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
