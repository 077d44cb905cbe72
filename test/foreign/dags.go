package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	dagpb "github.com/ipld/go-codec-dagpb"
	prime "github.com/ipld/go-ipld-prime"
	"github.com/ipld/go-ipld-prime/codec/dagcbor"
	"github.com/ipld/go-ipld-prime/codec/dagjson"
	"github.com/ipld/go-ipld-prime/datamodel"
	"github.com/ipld/go-ipld-prime/fluent/qp"
	cidlink "github.com/ipld/go-ipld-prime/linking/cid"
	"github.com/ipld/go-ipld-prime/node/basicnode"
	"github.com/ipld/go-ipld-prime/traversal"
	"github.com/multiformats/go-multihash"
)

// codecNames maps the names of the codecs that AddDAG can use to their codes.
var codecNames = map[string]uint64{"dag-cbor": cid.DagCBOR, "dag-json": cid.DagJSON, "dag-pb": cid.DagProtobuf}

// leafBytes is the size in bytes of the raw leaves of a DAG that AddDAG builds.
const leafBytes = 1024

// linksOf returns the links of a block. It returns an error for a codec that the peer does not
// support.
func linksOf(b blocks.Block) ([]cid.Cid, error) {
	builder := basicnode.Prototype.Any.NewBuilder()
	var decode func() error
	r := bytes.NewReader(b.RawData())
	switch b.Cid().Type() {
	case cid.Raw:
		return nil, nil
	case cid.DagProtobuf:
		builder = dagpb.Type.PBNode.NewBuilder()
		decode = func() error { return dagpb.Decode(builder, r) }
	case cid.DagCBOR:
		decode = func() error { return dagcbor.Decode(builder, r) }
	case cid.DagJSON:
		decode = func() error { return dagjson.Decode(builder, r) }
	default:
		return nil, fmt.Errorf("codec 0x%x is not known here", b.Cid().Type())
	}
	if err := decode(); err != nil {
		return nil, err
	}
	links, err := traversal.SelectLinks(builder.Build())
	if err != nil {
		return nil, err
	}
	out := make([]cid.Cid, 0, len(links))
	for _, l := range links {
		if l, ok := l.(cidlink.Link); ok {
			out = append(out, l.Cid)
		}
	}
	return out, nil
}

// AddDAG stores a tree with random raw leaves and returns its root and its number of blocks. Above
// the leaves the tree has depth levels of nodes of the given codec, each with width children.
func (p *foreignPeer) AddDAG(ctx context.Context, codec string, width, depth int) (cid.Cid, int, error) {
	code, ok := codecNames[codec]
	if !ok {
		return cid.Undef, 0, fmt.Errorf("codec %q: want dag-cbor, dag-json or dag-pb", codec)
	}
	level := make([]cid.Cid, 1)
	for range depth {
		level = make([]cid.Cid, len(level)*width)
	}
	count := 0
	for i := range level {
		c, err := p.putBlock(ctx, cid.Raw, randomBytes(leafBytes))
		if err != nil {
			return cid.Undef, 0, err
		}
		level[i], count = c, count+1
	}
	for len(level) > 1 {
		var up []cid.Cid
		for i := 0; i < len(level); i += width {
			data, err := encodeNode(code, level[i:i+width])
			if err != nil {
				return cid.Undef, 0, fmt.Errorf("encode %s: %w", codec, err)
			}
			c, err := p.putBlock(ctx, code, data)
			if err != nil {
				return cid.Undef, 0, err
			}
			up, count = append(up, c), count+1
		}
		level = up
	}
	return level[0], count, nil
}

// encodeNode returns the encoding of a node with links to children, in the codec with this code.
func encodeNode(code uint64, children []cid.Cid) ([]byte, error) {
	var buf bytes.Buffer
	if code == cid.DagProtobuf {
		node, err := qp.BuildMap(dagpb.Type.PBNode, 1, func(m datamodel.MapAssembler) {
			qp.MapEntry(m, "Links", qp.List(int64(len(children)), func(l datamodel.ListAssembler) {
				for _, c := range children {
					qp.ListEntry(l, qp.Map(1, func(m datamodel.MapAssembler) {
						qp.MapEntry(m, "Hash", qp.Link(cidlink.Link{Cid: c}))
					}))
				}
			}))
		})
		if err != nil {
			return nil, err
		}
		err = dagpb.Encode(node, &buf)
		return buf.Bytes(), err
	}
	node, err := qp.BuildMap(basicnode.Prototype.Any, 2, func(m datamodel.MapAssembler) {
		qp.MapEntry(m, "kind", qp.String("test tree"))
		qp.MapEntry(m, "children", qp.List(int64(len(children)), func(l datamodel.ListAssembler) {
			for _, c := range children {
				qp.ListEntry(l, qp.Link(cidlink.Link{Cid: c}))
			}
		}))
	})
	if err != nil {
		return nil, err
	}
	encode := map[uint64]func(prime.Node) error{
		cid.DagCBOR: func(n prime.Node) error { return dagcbor.Encode(n, &buf) },
		cid.DagJSON: func(n prime.Node) error { return dagjson.Encode(n, &buf) },
	}[code]
	err = encode(node)
	return buf.Bytes(), err
}

func (p *foreignPeer) putBlock(ctx context.Context, code uint64, data []byte) (cid.Cid, error) {
	hash, err := multihash.Sum(data, multihash.SHA2_256, -1)
	if err != nil {
		return cid.Undef, fmt.Errorf("hash: %w", err)
	}
	b, err := blocks.NewBlockWithCid(data, cid.NewCidV1(code, hash))
	if err != nil {
		return cid.Undef, fmt.Errorf("block: %w", err)
	}
	return b.Cid(), p.store.Put(ctx, b)
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	fillRandom(b)
	return b
}

// fillRandom fills b with random bytes, different ones in each call.
func fillRandom(b []byte) {
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
}
