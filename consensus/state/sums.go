package state

import "github.com/holdfast-ipfs/holdfast/consensus/codec"

// WholeSum returns the object's checksum of all its bytes by an algorithm; nil if it has
// none, or only a composite one.
func (v *Object) WholeSum(algorithm string) *Checksum {
	for i := range v.Checksums {
		if s := &v.Checksums[i]; s.Algorithm == algorithm && !s.Composite {
			return s
		}
	}
	return nil
}

// SetObjectSums sets the wanted checksum of all bytes of a version, and its BLAKE3 hash if
// that is unknown. It changes nothing if the version is gone or has them already. It needs
// feature level 5.
type SetObjectSums struct {
	Account  AccountID
	Born     Incarnation // Born of the bucket
	Key      string
	ID       VersionID
	Root     RootKey // root that was hashed
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
