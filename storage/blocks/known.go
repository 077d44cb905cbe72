package blocks

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

const (
	// knownSlots is the number of fingerprints, 8 bytes each: enough for 128 GiB in blocks
	// of 1 MiB.
	knownSlots = 1 << 17
	// knownBytes is the size in bytes of the smallest record whose fingerprint is stored.
	knownBytes = 16 << 10
)

// known recognizes bytes that were verified before. It stores their 64-bit XXH3 fingerprints
// (github.com/Cyan4973/xxHash) with secret seeds; computing a fingerprint takes a small part of the
// time of computing the hash. The probability that a damaged block is taken for good is 2^-63,
// because one bit of each stored fingerprint is always set. XXH3 does not resist an attacker, so
// known is used only for blocks that this node itself has stored.
type known struct {
	seed, place uint64
	slots       [knownSlots]atomic.Uint64 // fingerprints; 0 means that the slot is empty
}

func newKnown() *known {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return &known{seed: binary.NativeEndian.Uint64(b[:]), place: binary.NativeEndian.Uint64(b[8:])}
}

// check returns whether a block has its hash: the result of compare, unless the payload of
// the record is the same as when compare last returned true. Blocks whose hashes share a
// slot replace each other.
func (k *known) check(payload, hash []byte, compare func() bool) bool {
	if len(payload) < knownBytes {
		return compare()
	}
	slot := &k.slots[xxh3.HashSeed(hash, k.place)%knownSlots]
	fingerprint := xxh3.HashSeed(payload, k.seed) | 1
	if slot.Load() == fingerprint {
		return true
	}
	good := compare()
	if good {
		slot.Store(fingerprint)
	}
	return good
}
