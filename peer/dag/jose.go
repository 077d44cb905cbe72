package dag

import (
	"errors"
	"fmt"

	"github.com/ipfs/go-cid"
	"github.com/ipld/go-ipld-prime/datamodel"
	cidlink "github.com/ipld/go-ipld-prime/linking/cid"
)

var errNotJOSE = errors.New("neither signed nor encrypted as dag-jose has it")

// decodeJOSE collects the links of a dag-jose block: the map of a JWS, whose payload is
// the CID of what is signed, or of a JWE, which links to nothing. The rest of it is not
// looked at. It is dag-cbor, so its decoder does; the one of ceramicnetwork/go-dag-jose,
// which Kubo has, builds nodes to find the same link.
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

// jose is the outermost value of a dag-jose block and, if that is a map, the map.
type jose struct {
	*collector
	valid bool // the map has what makes it a JWS or a JWE
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

// joseField is the payload or the ciphertext, which are bytes.
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
