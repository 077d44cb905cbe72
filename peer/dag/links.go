package dag

import (
	"bytes"
	"errors"
	"fmt"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	dagpb "github.com/ipld/go-codec-dagpb"
	"github.com/ipld/go-ipld-prime/codec/dagcbor"
	"github.com/ipld/go-ipld-prime/codec/dagjson"
	"github.com/ipld/go-ipld-prime/datamodel"
	cidlink "github.com/ipld/go-ipld-prime/linking/cid"
	"github.com/ipld/go-ipld-prime/node/basicnode"
)

const (
	// maxNesting bounds the nesting of lists and maps in one dag-cbor or dag-json block,
	// because the decoder is recursive.
	maxNesting = 1024
	// cborBudget is the decoder's limit for the size of the nodes that it builds. The
	// collector builds none, so a block of MaxBlock one-byte values is fine; the default
	// limit would refuse it.
	cborBudget = 64 * MaxBlock
)

// Codecs of data without links, which are pinned like raw; go-cid has no names for them.
const (
	plainCBOR = 0x51
	plainJSON = 0x0200
)

var errTooManyLinks = errors.New("too many links")

func supported(codec uint64) bool {
	switch codec {
	case cid.Raw, cid.DagProtobuf, cid.DagCBOR, cid.DagJSON, cid.DagJOSE, plainCBOR, plainJSON:
		return true
	}
	return false
}

// Links returns the links of a block in their order, including repeated ones. raw, cbor and json
// have no links. For dag-pb, dag-cbor and dag-json it returns all links, and for dag-jose the
// signed CID. It needs memory for the links only. It ignores the data of a dag-pb node, with one
// exception: if the data says that the node belongs to a sharded UnixFS directory, and the node
// cannot be read as one, the block is invalid. The errors are ErrUnsupportedCodec, ErrInvalidBlock,
// and ErrTooLarge for more than MaxLinks links.
func Links(b blocks.Block) ([]cid.Cid, error) {
	c, data := b.Cid(), b.RawData()
	if len(data) > MaxBlock {
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d", ErrInvalidBlock, c, len(data), MaxBlock)
	}
	var found collector
	var err error
	switch codec := c.Prefix().Codec; codec {
	case cid.Raw, plainCBOR, plainJSON:
		return nil, nil
	case cid.DagProtobuf:
		if err = dagpb.DecodeBytes(&found, data); err == nil {
			err = checkShard(data, found.bytes, len(found.links))
		}
	case cid.DagCBOR:
		err = decodeCBOR(&found, data)
	case cid.DagJOSE:
		err = decodeJOSE(&found, data)
	case cid.DagJSON:
		err = dagjson.DecodeOptions{ParseLinks: true, ParseBytes: true, MaxDepth: maxNesting}.Decode(&found, bytes.NewReader(data))
	default:
		return nil, fmt.Errorf("%w: %s has codec 0x%x", ErrUnsupportedCodec, c, codec)
	}
	switch {
	case errors.Is(err, errTooManyLinks):
		return nil, fmt.Errorf("%w: %s has more than %d links", ErrTooLarge, c, MaxLinks)
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalidBlock, c, err)
	}
	return found.links, nil
}

// decodeCBOR accepts integers that are not minimal, because old blocks have them.
func decodeCBOR(into datamodel.NodeAssembler, data []byte) error {
	return dagcbor.DecodeOptions{AllowLinks: true, RelaxedDecode: true, MaxDepth: maxNesting, AllocationBudget: cborBudget}.Decode(into, bytes.NewReader(data))
}

// collector receives the values that a decoder finds in a block. It stores the links, and the last
// value of type bytes, which is the data of a dag-pb node. It ignores all other values. It
// implements the interfaces for nodes, maps, lists, keys and values.
type collector struct {
	links []cid.Cid
	bytes []byte
}

// AssignLink stores one link.
func (c *collector) AssignLink(l datamodel.Link) error {
	link, ok := l.(cidlink.Link)
	if !ok {
		return fmt.Errorf("link of type %T", l)
	}
	if len(c.links) == MaxLinks {
		return errTooManyLinks
	}
	c.links = append(c.links, link.Cid)
	return nil
}

// The other methods of datamodel.NodeAssembler, MapAssembler and ListAssembler.

// BeginMap implements datamodel.NodeAssembler.
func (c *collector) BeginMap(int64) (datamodel.MapAssembler, error) { return (*mapCollector)(c), nil }

// BeginList implements datamodel.NodeAssembler.
func (c *collector) BeginList(int64) (datamodel.ListAssembler, error) {
	return (*listCollector)(c), nil
}

// AssignNull implements datamodel.NodeAssembler.
func (*collector) AssignNull() error { return nil }

// AssignBool implements datamodel.NodeAssembler.
func (*collector) AssignBool(bool) error { return nil }

// AssignInt implements datamodel.NodeAssembler.
func (*collector) AssignInt(int64) error { return nil }

// AssignFloat implements datamodel.NodeAssembler.
func (*collector) AssignFloat(float64) error { return nil }

// AssignString implements datamodel.NodeAssembler.
func (*collector) AssignString(string) error { return nil }

// AssignBytes implements datamodel.NodeAssembler.
func (c *collector) AssignBytes(b []byte) error {
	c.bytes = b
	return nil
}

// AssignNode implements datamodel.NodeAssembler. The decoders pass whole nodes for scalars
// only, such as integers beyond int64.
func (c *collector) AssignNode(n datamodel.Node) error {
	switch n.Kind() {
	case datamodel.Kind_Link:
		l, err := n.AsLink()
		if err != nil {
			return err
		}
		return c.AssignLink(l)
	case datamodel.Kind_Map, datamodel.Kind_List:
		return fmt.Errorf("unexpected %s", n.Kind())
	}
	return nil
}

// Prototype implements datamodel.NodeAssembler.
func (*collector) Prototype() datamodel.NodePrototype { return basicnode.Prototype.Any }

type mapCollector collector

// AssembleKey implements datamodel.MapAssembler.
func (m *mapCollector) AssembleKey() datamodel.NodeAssembler { return (*collector)(m) }

// AssembleValue implements datamodel.MapAssembler.
func (m *mapCollector) AssembleValue() datamodel.NodeAssembler { return (*collector)(m) }

// AssembleEntry implements datamodel.MapAssembler.
func (m *mapCollector) AssembleEntry(string) (datamodel.NodeAssembler, error) {
	return (*collector)(m), nil
}

// Finish implements datamodel.MapAssembler.
func (*mapCollector) Finish() error { return nil }

// KeyPrototype implements datamodel.MapAssembler.
func (*mapCollector) KeyPrototype() datamodel.NodePrototype { return basicnode.Prototype.String }

// ValuePrototype implements datamodel.MapAssembler.
func (*mapCollector) ValuePrototype(string) datamodel.NodePrototype { return basicnode.Prototype.Any }

type listCollector collector

// AssembleValue implements datamodel.ListAssembler.
func (l *listCollector) AssembleValue() datamodel.NodeAssembler { return (*collector)(l) }

// Finish implements datamodel.ListAssembler.
func (*listCollector) Finish() error { return nil }

// ValuePrototype implements datamodel.ListAssembler.
func (*listCollector) ValuePrototype(int64) datamodel.NodePrototype { return basicnode.Prototype.Any }
