package state

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// PartList identifies the parts of an object, as the proposer has read them. Apply compares it
// with the parts that it reads itself. For 10,000 parts it has 1.3 kB, while their numbers and
// ids would have 390 kB.
type PartList struct {
	Numbers []byte // one bit per part number; bit 0 of the first byte is part 1
	Hash    Hash   // hash of their numbers and ids
}

// The following texts are hashed first; the number in them is the version of the format.
const (
	partsDomain = "holdfast parts 1\n"
	listDomain  = "holdfast list 1\n"
)

// maxPartBits is the largest size of PartList.Numbers in bytes.
const maxPartBits = (MaxPartNumber + 7) / 8

// ListParts returns the PartList of parts, which must be in ascending order with numbers from 1
// to MaxPartNumber. For each part it hashes the number (2 bytes, big endian), the length of its
// id (4 bytes) and the id.
func ListParts(parts []Part) PartList {
	var l PartList
	sum := sha256.New()
	_, _ = sum.Write([]byte(partsDomain)) // a hash takes everything
	var buf []byte
	for i := range parts {
		p := &parts[i]
		at := int(p.Number-1) / 8
		for len(l.Numbers) <= at {
			l.Numbers = append(l.Numbers, 0)
		}
		l.Numbers[at] |= 1 << ((p.Number - 1) % 8)
		buf = binary.BigEndian.AppendUint16(buf[:0], p.Number)
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(p.ID)))
		buf = append(buf, p.ID...)
		_, _ = sum.Write(buf)
	}
	l.Hash = Hash(sum.Sum(nil))
	return l
}

// HashList returns the hash of a list of parts in the form in which clients name them: for each
// part its number (2 bytes, big endian), the length of its ETag (4 bytes) and the ETag. The hash
// does not change if a part is put again with the same bytes.
func HashList(parts []Part) (h Hash) {
	sum := sha256.New()
	_, _ = sum.Write([]byte(listDomain))
	var buf []byte
	for i := range parts {
		buf = binary.BigEndian.AppendUint16(buf[:0], parts[i].Number)
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(parts[i].ETag)))
		_, _ = sum.Write(append(buf, parts[i].ETag...))
	}
	return Hash(sum.Sum(nil))
}

// Code encodes or decodes the list as a part of a command.
func (l *PartList) Code(c *codec.Coder) {
	codec.Bytes(c, &l.Numbers, maxPartBits)
	codec.Fixed(c, l.Hash[:])
}

// names returns whether the list contains the part with a number.
func (l *PartList) names(number uint16) bool {
	at := int(number-1) / 8
	return at < len(l.Numbers) && l.Numbers[at]>>((number-1)%8)&1 == 1
}

// of returns those of the parts that are in the list. parts are the parts of an upload in
// ascending order. It returns ErrInvalidPart if a listed part is missing or was replaced since
// the proposer has read it.
func (l *PartList) of(parts []Part) ([]Part, error) {
	want := 0
	for _, b := range l.Numbers {
		want += bits.OnesCount8(b)
	}
	if want == 0 {
		return nil, Errorf(CodeInvalid, "an object of no parts")
	}
	listed := parts
	if want != len(parts) || slices.ContainsFunc(parts, func(p Part) bool { return !l.names(p.Number) }) {
		listed = slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return !l.names(p.Number) })
	}
	if len(listed) < want {
		return nil, Errorf(CodeInvalidPart, "%d of %d parts are not there", want-len(listed), want)
	}
	if ListParts(listed).Hash != l.Hash {
		return nil, Errorf(CodeInvalidPart, "a part has been replaced by another one")
	}
	return listed, nil
}
