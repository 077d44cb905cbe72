package raftlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// The frame of an entry, version 1, is the Data of the entry that raft-boltdb
// stores. All numbers are big endian, CRC is CRC32C of all that precedes it and
// of the index, so that an entry in the place of another is found as well.
//
//	version 0x01, type uint8, term uint64,
//	appended at: seconds int64, nanoseconds uint32 (Unix),
//	length of extensions uint32, extensions, data, CRC uint32
//
// A value of the stable store is the value followed by the CRC32C of the length
// of its key (uint32), the key and the value.
const (
	entryVersion   = 1
	entryHeadBytes = 1 + 1 + 8 + 8 + 4 + 4
	crcBytes       = 4
)

func entryBytes(e *raft.Log) int {
	return entryHeadBytes + len(e.Extensions) + len(e.Data) + crcBytes
}

func entrySum(frame []byte, index uint64) uint32 {
	var place [8]byte
	binary.BigEndian.PutUint64(place[:], index)
	return crc32.Update(crc32.Checksum(frame, castagnoli()), castagnoli(), place[:])
}

func appendEntry(b []byte, e *raft.Log) []byte {
	start := len(b)
	b = append(b, entryVersion, byte(e.Type))
	b = binary.BigEndian.AppendUint64(b, e.Term)
	b = binary.BigEndian.AppendUint64(b, uint64(e.AppendedAt.Unix()))
	b = binary.BigEndian.AppendUint32(b, uint32(e.AppendedAt.Nanosecond()))
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Extensions)))
	b = append(b, e.Extensions...)
	b = append(b, e.Data...)
	return binary.BigEndian.AppendUint32(b, entrySum(b[start:], e.Index))
}

// decodeEntry fills e from a frame that was stored at index. The slices of e
// point into frame.
func decodeEntry(frame []byte, index uint64, e *raft.Log) error {
	if len(frame) < entryHeadBytes+crcBytes {
		return fmt.Errorf("%w: %d bytes", ErrCorrupt, len(frame))
	}
	body, sum := frame[:len(frame)-crcBytes], frame[len(frame)-crcBytes:]
	if entrySum(body, index) != binary.BigEndian.Uint32(sum) {
		return fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	if body[0] != entryVersion {
		return fmt.Errorf("raftlog: entry %d: %w", index, durable.Newer("the log of Raft", uint64(body[0]), entryVersion))
	}
	extensions := binary.BigEndian.Uint32(body[22:])
	rest := body[entryHeadBytes:]
	if uint64(extensions) > uint64(len(rest)) {
		return fmt.Errorf("%w: extensions of %d bytes", ErrCorrupt, extensions)
	}
	*e = raft.Log{
		Index: index,
		Type:  raft.LogType(body[1]),
		Term:  binary.BigEndian.Uint64(body[2:]),
		Data:  rest[extensions:len(rest):len(rest)],
		AppendedAt: time.Unix(int64(binary.BigEndian.Uint64(body[10:])),
			int64(binary.BigEndian.Uint32(body[18:]))).UTC(),
	}
	if extensions > 0 {
		e.Extensions = rest[:extensions:extensions]
	}
	return nil
}

func valueSum(key, value []byte) uint32 {
	place := binary.BigEndian.AppendUint32(nil, uint32(len(key)))
	sum := crc32.Update(crc32.Checksum(place, castagnoli()), castagnoli(), key)
	return crc32.Update(sum, castagnoli(), value)
}

func sealValue(key, value []byte) []byte {
	sealed := append(make([]byte, 0, len(value)+crcBytes), value...)
	return binary.BigEndian.AppendUint32(sealed, valueSum(key, value))
}

func openValue(key, sealed []byte) ([]byte, error) {
	if len(sealed) < crcBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrCorrupt, len(sealed))
	}
	value, sum := sealed[:len(sealed)-crcBytes], sealed[len(sealed)-crcBytes:]
	if valueSum(key, value) != binary.BigEndian.Uint32(sum) {
		return nil, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	return value, nil
}
