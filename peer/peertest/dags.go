package peertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	dagpb "github.com/ipld/go-codec-dagpb"
	"github.com/ipld/go-ipld-prime"
	"github.com/ipld/go-ipld-prime/codec/dagcbor"
	"github.com/ipld/go-ipld-prime/codec/dagjson"
	"github.com/ipld/go-ipld-prime/fluent/qp"
	cidlink "github.com/ipld/go-ipld-prime/linking/cid"
	"github.com/ipld/go-ipld-prime/node/basicnode"
	mh "github.com/multiformats/go-multihash"
)

// Bytes returns n random bytes that depend on seed only.
func Bytes(seed uint64, n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}

// Block returns the block of data with its sha2-256 hash.
func Block(codec uint64, data []byte) (blocks.Block, error) {
	c, err := cid.Prefix{Version: 1, Codec: codec, MhType: mh.SHA2_256, MhLength: -1}.Sum(data)
	if err != nil {
		return nil, err
	}
	return blocks.NewBlockWithCid(data, c)
}

// Node returns a node with this codec and data that links to children.
func Node(codec uint64, data []byte, children ...cid.Cid) (blocks.Block, error) {
	var buf bytes.Buffer
	var err error
	switch codec {
	case cid.Raw:
		buf.Write(data)
	case cid.DagProtobuf:
		var n ipld.Node
		n, err = qp.BuildMap(dagpb.Type.PBNode, 2, func(m ipld.MapAssembler) {
			qp.MapEntry(m, "Data", qp.Bytes(data))
			qp.MapEntry(m, "Links", qp.List(int64(len(children)), func(l ipld.ListAssembler) {
				for _, c := range children {
					qp.ListEntry(l, qp.Map(3, func(m ipld.MapAssembler) {
						qp.MapEntry(m, "Hash", qp.Link(cidlink.Link{Cid: c}))
					}))
				}
			}))
		})
		if err == nil {
			err = dagpb.Encode(n, &buf)
		}
	case cid.DagCBOR, cid.DagJSON:
		var n ipld.Node
		n, err = qp.BuildMap(basicnode.Prototype.Map, 2, func(m ipld.MapAssembler) {
			qp.MapEntry(m, "data", qp.Bytes(data))
			qp.MapEntry(m, "links", qp.List(int64(len(children)), func(l ipld.ListAssembler) {
				for _, c := range children {
					qp.ListEntry(l, qp.Link(cidlink.Link{Cid: c}))
				}
			}))
		})
		if err == nil && codec == cid.DagCBOR {
			err = dagcbor.Encode(n, &buf)
		} else if err == nil {
			err = dagjson.Encode(n, &buf)
		}
	default:
		err = fmt.Errorf("no codec 0x%x", codec)
	}
	if err != nil {
		return nil, err
	}
	return Block(codec, buf.Bytes())
}

// AddTree adds a tree to the store: depth levels of nodes of the given codec with width
// children each, and raw leaves of leaf random bytes. It returns the root and the number
// and size of the distinct blocks.
func (s *Store) AddTree(seed, codec uint64, width, depth, leaf int) (root cid.Cid, count, size uint64, err error) {
	ctx := context.Background()
	put := func(b blocks.Block, err error) (cid.Cid, error) {
		if err != nil {
			return cid.Undef, err
		}
		count++
		size += uint64(len(b.RawData()))
		return b.Cid(), s.Blockstore.Put(ctx, b)
	}
	total := 1
	for range depth {
		total *= width
	}
	level := make([]cid.Cid, 0, total)
	for i := range total {
		c, err := put(Block(cid.Raw, Bytes(seed<<24+uint64(i), leaf)))
		if err != nil {
			return cid.Undef, 0, 0, err
		}
		level = append(level, c)
	}
	for len(level) > 1 {
		var next []cid.Cid
		for i := 0; i < len(level); i += width {
			// No protobuf message has a field 0, so this is never a UnixFS message.
			c, err := put(Node(codec, []byte{0, byte(i), byte(i >> 8)}, level[i:min(i+width, len(level))]...))
			if err != nil {
				return cid.Undef, 0, 0, err
			}
			next = append(next, c)
		}
		level = next
	}
	return level[0], count, size, nil
}

// AddChain adds a chain of n nodes to the store, each with a link to the next.
func (s *Store) AddChain(codec uint64, n int) (root cid.Cid, err error) {
	for i := range n {
		var children []cid.Cid
		if root.Defined() {
			children = append(children, root)
		}
		b, err := Node(codec, binary.AppendUvarint(nil, uint64(i)), children...)
		if err != nil {
			return cid.Undef, err
		}
		if err := s.Blockstore.Put(context.Background(), b); err != nil {
			return cid.Undef, err
		}
		root = b.Cid()
	}
	return root, nil
}
