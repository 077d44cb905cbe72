package dag

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"

	"github.com/ipfs/boxo/ipld/unixfs"
	mh "github.com/multiformats/go-multihash"
	"google.golang.org/protobuf/encoding/protowire"
)

// maxFanout is the maximum number of entries of one node of a sharded UnixFS directory.
// boxo rejects more.
const maxFanout = 1024

// Fields of the messages PBNode and PBLink of dag-pb and of the message Data of UnixFS, and
// its value for a shard.
const (
	nodeLinks     = 2
	linkName      = 2
	unixfsType    = 1
	unixfsTypes   = 5 // the largest value of Type; a parser ignores larger ones
	unixfsHAMT    = 5
	hashTypeUsual = mh.MURMUR3X64_64
)

// checkShard returns an error if a dag-pb block says that it is a node of a sharded UnixFS
// directory but cannot be read as one. block is the whole block, data its field Data, and
// links its number of links. Other data is not checked.
//
// https://specs.ipfs.tech/unixfs/#dag-pb-hamtdirectory; the bounds are those of
// boxo's package hamt.
func checkShard(block, data []byte, links int) error {
	if !claimsShard(data) {
		return nil
	}
	shard, err := unixfs.FSNodeFromBytes(data)
	if err != nil || shard.Type() != unixfs.THAMTShard {
		return nil //nolint:nilerr // not UnixFS, so it is not for UnixFS to judge
	}
	fanout, bitfield := shard.Fanout(), shard.Data()
	switch {
	case fanout == 0:
		return errors.New("sharded directory without a fanout")
	case fanout > maxFanout:
		return fmt.Errorf("sharded directory with a fanout of %d, at most %d", fanout, maxFanout)
	case fanout%8 != 0 || bits.OnesCount64(fanout) != 1:
		return fmt.Errorf("sharded directory with a fanout of %d, which is no power of two from 8 on", fanout)
	case shard.HashType() != hashTypeUsual:
		return fmt.Errorf("sharded directory with hash 0x%x, want murmur3-x64-64", shard.HashType())
	case uint64(len(bitfield)) > fanout/8: // it may be shorter: leading zeros may be left out
		return fmt.Errorf("sharded directory with a bitfield of %d bytes for a fanout of %d", len(bitfield), fanout)
	}
	set := 0
	for _, b := range bitfield {
		set += bits.OnesCount8(b)
	}
	if set != links {
		return fmt.Errorf("sharded directory with %d links, and %d in its bitfield", links, set)
	}
	return checkNames(block, len(strconv.FormatUint(fanout-1, 16)))
}

// claimsShard returns whether data is a UnixFS message whose type is a shard. It allocates
// nothing, because almost no block is one.
func claimsShard(data []byte) (shard bool) {
	for len(data) > 0 {
		field, wire, n := protowire.ConsumeTag(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		if field == unixfsType && wire == protowire.VarintType {
			v, n := protowire.ConsumeVarint(data)
			if n < 0 {
				return false
			}
			if v <= unixfsTypes { // the last one counts
				shard = v == unixfsHAMT
			}
		}
		if n = protowire.ConsumeFieldValue(field, wire, data); n < 0 {
			return false
		}
		data = data[n:]
	}
	return shard
}

// checkNames checks that every link of a valid dag-pb block has a name that is long enough
// for its position in the bitfield, in hexadecimal digits.
func checkNames(block []byte, digits int) error {
	for len(block) > 0 {
		field, wire, n := protowire.ConsumeTag(block)
		value, m := protowire.ConsumeBytes(block[max(n, 0):])
		if n < 0 || m < 0 || wire != protowire.BytesType {
			return errors.New("not dag-pb") // the decoder has already accepted it
		}
		block = block[n+m:]
		if field != nodeLinks {
			continue
		}
		if name := nameOf(value); len(name) < digits {
			return fmt.Errorf("sharded directory with a link named %q, want %d digits in front", name, digits)
		}
	}
	return nil
}

// nameOf returns the field Name of a link; nil if it has none.
func nameOf(link []byte) []byte {
	for len(link) > 0 {
		field, wire, n := protowire.ConsumeTag(link)
		if n < 0 {
			return nil
		}
		if link = link[n:]; field == linkName {
			name, _ := protowire.ConsumeBytes(link)
			return name
		}
		if n = protowire.ConsumeFieldValue(field, wire, link); n < 0 {
			return nil
		}
		link = link[n:]
	}
	return nil
}
