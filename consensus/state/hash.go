package state

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Hash is the SHA-256 of a whole state. Nodes that have applied the same entries must have the
// same hash; otherwise the state of one of them is wrong.
type Hash [sha256.Size]byte

var _ encoding.TextMarshaler = Hash{}

// String returns the hash in lower-case hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(h) {
		return fmt.Errorf("a hash has %d hexadecimal digits, not %d", 2*len(h), len(text))
	}
	if _, err := hex.Decode(h[:], text); err != nil {
		return fmt.Errorf("read hash: %w", err)
	}
	return nil
}

// hashDomain is hashed first; the number is the version of the format.
const hashDomain = "holdfast state 1\n"

// hashBuffer is the number of bytes that are collected before they are hashed.
const hashBuffer = 64 << 10

// HashOf returns the hash of all rows in r except those of table 0x00, which is local to a node.
// For each row, in key order, it hashes the length of the key (4 bytes, big endian), the key, the
// length of the value and the value. It calls pace after about every hashBuffer bytes with the
// number of bytes read since, so that the caller can limit the rate, and returns the first error
// of pace.
func HashOf(r Reader, pace func(bytes int) error) (Hash, error) {
	sum := sha256.New()
	buf := append(make([]byte, 0, 2*hashBuffer), hashDomain...)
	flush := func() error {
		n := len(buf)
		_, _ = sum.Write(buf) // a hash takes everything
		buf = buf[:0]
		return pace(n)
	}
	err := r.Scan([]byte{0x01}, nil, false, func(key, value []byte) (bool, error) {
		for _, part := range [2][]byte{key, value} {
			buf = binary.BigEndian.AppendUint32(buf, uint32(len(part)))
			buf = append(buf, part...)
		}
		if len(buf) < hashBuffer {
			return true, nil
		}
		return true, flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return Hash{}, fmt.Errorf("state: hash: %w", err)
	}
	return Hash(sum.Sum(nil)), nil
}

// Hash hashes the state of the view, see HashOf.
func (v View) Hash(pace func(bytes int) error) (Hash, error) { return HashOf(v.r, pace) }
