package dag

import (
	"errors"
	"fmt"

	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	mh "github.com/multiformats/go-multihash"
)

// builder is the CID format of the nodes that this file makes.
var builder = cid.V1Builder{Codec: cid.DagProtobuf, MhType: mh.BLAKE3, MhLength: 32}

// Leaf returns the block for content of at most ChunkSize bytes, as Import makes it.
func Leaf(data []byte) (blocks.Block, error) { return LeafOf(data, nil) }

// LeafOf does the same as Leaf for a caller that may know the BLAKE3-256 hash of data. sum is
// that hash, or nil; LeafOf does not verify it, and refuses one of another length.
func LeafOf(data, sum []byte) (blocks.Block, error) {
	var hash mh.Multihash
	var err error
	switch {
	case sum == nil:
		hash, err = mh.Sum(data, mh.BLAKE3, 32)
	case len(sum) == 32:
		hash, err = mh.Encode(sum, mh.BLAKE3)
	default:
		err = fmt.Errorf("a hash of %d bytes", len(sum))
	}
	if err != nil {
		return nil, fmt.Errorf("dag: leaf: %w", err)
	}
	b, err := blocks.NewBlockWithCid(data, cid.NewCidV1(cid.Raw, hash))
	if err != nil {
		return nil, fmt.Errorf("dag: leaf: %w", err)
	}
	return checked{b}, nil
}

// Part is a file that becomes a part of a larger one.
type Part struct {
	Root cid.Cid
	Size uint64 // bytes of the file
}

// Join returns the nodes of the UnixFS file that consists of the parts in order, children
// before parents. A single part is the file itself. Empty parts are left out. The sizes of
// subtrees in links (Tsize) are file sizes: the sizes of the nodes below the parts are not
// known, and no reader needs them. Join returns an error if there are no parts, if a part has
// no CID, or if the file would be too large.
func Join(parts []Part) (root cid.Cid, nodes []blocks.Block, err error) {
	if len(parts) == 0 {
		return cid.Undef, nil, errors.New("dag: join: no parts")
	}
	level := make([]Part, 0, len(parts))
	for _, p := range parts {
		if err := checkCID(p.Root); err != nil {
			return cid.Undef, nil, fmt.Errorf("dag: join: %w", err)
		}
		if p.Size > 0 {
			level = append(level, p)
		}
	}
	if len(level) == 0 {
		level = parts[:1]
	}
	for len(level) > 1 {
		var above []Part
		for len(level) > 0 {
			n := min(len(level), LinksPerNode)
			b, size, err := parent(level[:n])
			if err != nil {
				return cid.Undef, nil, fmt.Errorf("dag: join: %w", err)
			}
			nodes = append(nodes, b)
			above = append(above, Part{b.Cid(), size})
			level = level[n:]
		}
		level = above
	}
	return level[0].Root, nodes, nil
}

// parent returns the node over children and its file size.
func parent(children []Part) (blocks.Block, uint64, error) {
	file := unixfs.NewFSNode(unixfs.TFile)
	n := new(merkledag.ProtoNode)
	if err := n.SetCidBuilder(builder); err != nil {
		return nil, 0, err
	}
	size := uint64(0)
	for _, p := range children {
		if size+p.Size < size {
			return nil, 0, errors.New("the sizes of the parts are too large")
		}
		size += p.Size
		file.AddBlockSize(p.Size)
		if err := n.AddRawLink("", &ipld.Link{Size: p.Size, Cid: p.Root}); err != nil {
			return nil, 0, err
		}
	}
	data, err := file.GetBytes()
	if err != nil {
		return nil, 0, err
	}
	n.SetData(data)
	b, err := blocks.NewBlockWithCid(n.RawData(), n.Cid())
	if err != nil {
		return nil, 0, err
	}
	return checked{b}, size, nil
}
