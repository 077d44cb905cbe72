package dag

import (
	"errors"
	"fmt"

	"github.com/ipfs/go-cid"
	"github.com/ipld/go-ipld-prime/datamodel"
	cidlink "github.com/ipld/go-ipld-prime/linking/cid"
)

var errNotJOSE = errors.New("neither signed nor encrypted as dag-jose has it")

// decodeJOSE collects the links of a dag-jose block. The block is a map: a JWS, whose
// payload is the CID of the signed data, or a JWE, which has no links. It ignores the other
// fields. It uses the decoder of dag-cbor, because dag-jose is dag-cbor. The decoder of
// ceramicnetwork/go-dag-jose, which Kubo uses, builds nodes to find the same link.
func decodeJOSE(found *collector, data []byte) error {
	j := jose{collector: found}
	if err := decodeCBOR(&j, data); err != nil {
		return err
	}
	if !j.valid {
		return errNotJOSE
	}
	return nil
}

// jose is the outermost value of a dag-jose block, and its map if it is one.
type jose struct {
	*collector
	valid bool // the map has the fields of a JWS or a JWE
}

// BeginMap implements datamodel.NodeAssembler.
func (j *jose) BeginMap(int64) (datamodel.MapAssembler, error) {
	return &joseMap{mapCollector: (*mapCollector)(j.collector), jose: j}, nil
}

type joseMap struct {
	*mapCollector
	jose *jose
}

// AssembleEntry implements datamodel.MapAssembler.
func (m *joseMap) AssembleEntry(key string) (datamodel.NodeAssembler, error) {
	if key == "payload" || key == "ciphertext" {
		return &joseField{collector: m.jose.collector, jose: m.jose, link: key == "payload"}, nil
	}
	return m.jose.collector, nil
}

// joseField receives the field payload or ciphertext of a dag-jose block, whose value must be of
// type bytes.
type joseField struct {
	*collector
	jose *jose
	link bool
}

// AssignBytes implements datamodel.NodeAssembler.
func (f *joseField) AssignBytes(b []byte) error {
	f.jose.valid = true
	if !f.link {
		return nil
	}
	c, err := cid.Cast(b)
	if err != nil {
		return fmt.Errorf("the payload is no CID: %w", err)
	}
	return f.AssignLink(cidlink.Link{Cid: c})
}
