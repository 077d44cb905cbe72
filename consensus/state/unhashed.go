package state

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

var unhashedCount = metaKey("unhashed")

func (v *Bucket) unhashedKey(o *Object) key { return v.ofVersion(tableUnhashed, o.Key, o.ID) }

// unhashed returns whether the BLAKE3 hash or the wanted checksum of a version must still
// be computed.
func (v *Object) unhashed() bool {
	return !v.Marker && (len(v.Blake3) == 0 || v.Wanted != "")
}

// markUnhashed adds the mark of a version if a hash of it must still be computed.
func (v *Bucket) markUnhashed(tx Tx, o *Object) error {
	if !o.unhashed() {
		return nil
	}
	if err := tx.Set(v.unhashedKey(o), nil); err != nil {
		return err
	}
	return count(tx, unhashedCount, 1)
}

// unmark removes the mark of a version.
func (v *Bucket) unmark(tx Tx, o *Object) error {
	if err := tx.Delete(v.unhashedKey(o)); err != nil {
		return err
	}
	return count(tx, unhashedCount, -1)
}

// SetObjectHash sets the BLAKE3 hash of a version that has none. It changes nothing if the
// version no longer exists or has its hash.
type SetObjectHash struct {
	Account AccountID
	Born    Incarnation // Born of the bucket
	Key     string
	ID      VersionID
	Root    RootKey // root of the content that was hashed
	Blake3  []byte
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SetObjectHash) Code(c *codec.Coder) {
	codec.String(c, &v.Account, MaxIDLen)
	codec.Uint(c, &v.Born)
	codec.String(c, &v.Key, MaxKeyBytes)
	codec.String(c, &v.ID, MaxIDLen)
	codec.String(c, &v.Root, MaxCIDLen)
	codec.Bytes(c, &v.Blake3, Blake3Bytes)
}

func (v *SetObjectHash) apply(tx Tx, _ *entry) (Result, error) {
	if len(v.Blake3) != Blake3Bytes {
		return Result{}, Errorf(CodeInvalid, "a BLAKE3 hash of %d bytes", len(v.Blake3))
	}
	b := &Bucket{Account: v.Account, Born: v.Born}
	o, row, err := b.lacking(tx, v.Key, v.ID)
	if err != nil || o == nil {
		return Result{}, err
	}
	if o.Root != v.Root {
		return Result{}, Errorf(CodeInvalid, "the hash is of other content than the version's")
	}
	o.Blake3 = v.Blake3
	return Result{}, b.hashed(tx, row, o)
}

// lacking returns a marked version, which still lacks a hash, and the key of its row. It returns
// nil if the version is not marked, because it no longer exists or has all hashes.
func (v *Bucket) lacking(tx Tx, k string, id VersionID) (*Object, key, error) {
	if marked, err := has(tx, v.unhashedKey(&Object{Key: k, ID: id})); err != nil || !marked {
		return nil, nil, err
	}
	return v.markedVersion(tx, k, id)
}

// hashed stores a marked version that has received a hash, and removes the mark if the version
// now has all hashes.
func (v *Bucket) hashed(tx Tx, row key, o *Object) error {
	if err := put(tx, row, o); err != nil || o.unhashed() {
		return err
	}
	return v.unmark(tx, o)
}

// markedVersion returns a marked version and the key of its row. A missing version is an error,
// because the mark is removed together with it.
func (v *Bucket) markedVersion(r Reader, k string, id VersionID) (*Object, key, error) {
	o, err := findObject(r, v, k)
	if err != nil {
		return nil, nil, err
	}
	if o != nil && o.ID == id {
		return o, v.objectKey(k), nil
	}
	if o, err = v.old(r, k, id); err != nil {
		return nil, nil, err
	}
	if o == nil {
		return nil, nil, fmt.Errorf("state: version %s of %q is marked as without a hash, and is not there", id, k)
	}
	return o, v.versionKey(k, o.Created), nil
}

// Unhashed is a version of which a hash must still be computed: BLAKE3, or the checksum that
// Wanted names.
type Unhashed struct {
	Account AccountID
	Born    Incarnation // Born of the bucket
	Object  Object
}

// Unhashed returns up to limit versions that lack a hash. The page begins after the position
// after, which is the next of an earlier page, or with the first version if after is nil. next is
// nil if there are no more.
func (v View) Unhashed(after []byte, limit int) (page []Unhashed, next []byte, err error) {
	prefix := table(tableUnhashed)
	from := prefix
	if len(after) > 0 {
		from = append(append(key(nil), after...), 0)
	}
	var last []byte
	err = v.r.Scan(from, prefix.end(), false, func(row, _ []byte) (bool, error) {
		if len(page) == limit {
			next = last
			return false, nil
		}
		u, err := v.unhashed(row[len(prefix):])
		if err == nil {
			page, last = append(page, u), append([]byte(nil), row...)
		}
		return true, err
	})
	return page, next, err
}

// unhashed returns the version of a mark. row is the key of the mark after the table.
func (v View) unhashed(row []byte) (u Unhashed, err error) {
	var rest []byte
	if u.Account, rest, err = readPart[AccountID](row); err != nil {
		return u, err
	}
	if len(rest) < 8 {
		return u, fmt.Errorf("state: short key %x", row)
	}
	u.Born = Incarnation(binary.BigEndian.Uint64(rest))
	k, id, err := readOrdered(rest[8:])
	if err != nil {
		return u, err
	}
	o, _, err := (&Bucket{Account: u.Account, Born: u.Born}).markedVersion(v.r, k, VersionID(id))
	if err != nil {
		return u, err
	}
	u.Object = *o
	return u, nil
}

// IsUnhashed returns whether a hash of a version must still be computed.
func (v View) IsUnhashed(u *Unhashed) (bool, error) {
	return has(v.r, (&Bucket{Account: u.Account, Born: u.Born}).unhashedKey(&u.Object))
}

// UnhashedCount returns how many versions of all accounts lack a hash.
func (v View) UnhashedCount() (uint64, error) { return counter(v.r, unhashedCount) }
