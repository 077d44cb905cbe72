package dag

import (
	"errors"
	"fmt"

	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"
)

// Layout of content that is imported as Usual.
const (
	ChunkSize    = 1 << 20 // maximum size of a leaf, in bytes
	LinksPerNode = 1024
)

// Layout of content that is imported with the defaults of Kubo.
const (
	kuboChunkSize    = 256 << 10
	kuboLinksPerNode = 174
)

// Names of the hash functions of a Layout, as ipfs add --hash names them.
const (
	BLAKE3  = "blake3"
	SHA2256 = "sha2-256"
)

// ErrLayout means that a hash function or a CID version is not supported.
var ErrLayout = errors.New("unsupported layout")

// Layout describes how content becomes blocks, and thus its CIDs. Its zero value is not valid.
type Layout struct {
	builder   cid.Builder
	chunk     int  // maximum size of a leaf, in bytes
	links     int  // maximum number of links of a node of a file
	rawLeaves bool // false means that leaves are dag-pb
	// wholeBlock means that a folder becomes sharded if its block exceeds maxFolderBlock. Otherwise
	// the names and CIDs count, but not the sizes and the encoding.
	wholeBlock bool
}

// Usual is the layout of content for which no other layout was asked: BLAKE3-256 hashes and
// otherwise the profile unixfs-v1-2025 (https://github.com/ipfs/specs/pull/499).
var Usual = Layout{builder: builder, chunk: ChunkSize, links: LinksPerNode, rawLeaves: true, wholeBlock: true}

// LayoutOf returns the layout for a hash function and a CID version, which is 0 or 1. Without a version
// it is 1. Without a hash it is BLAKE3 for version 1, and SHA2256 for version 0. With SHA2256 the CIDs are
// those of ipfs add of Kubo with its defaults, which are the profile unixfs-v0-2015, with raw leaves
// for version 1. With BLAKE3 the layout is Usual. Version 0 has no other hash than SHA2256.
func LayoutOf(hash, version string) (Layout, error) {
	if version == "" {
		version = "1"
	}
	if hash == "" {
		hash = map[string]string{"0": SHA2256, "1": BLAKE3}[version]
	}
	l := Layout{chunk: kuboChunkSize, links: kuboLinksPerNode}
	switch {
	case version != "0" && version != "1":
		return Layout{}, fmt.Errorf("%w: CID version %q, want 0 or 1", ErrLayout, version)
	case hash == BLAKE3 && version == "1":
		return Usual, nil
	case hash == SHA2256 && version == "1":
		l.rawLeaves = true
		l.builder = cid.V1Builder{Codec: cid.DagProtobuf, MhType: mh.SHA2_256}
	case hash == SHA2256:
		l.builder = cid.V0Builder{}
	case hash == BLAKE3:
		return Layout{}, fmt.Errorf("%w: CID version 0 has the hash %s only", ErrLayout, SHA2256)
	default:
		return Layout{}, fmt.Errorf("%w: hash %q, want %s or %s", ErrLayout, hash, SHA2256, BLAKE3)
	}
	return l, nil
}
