package node

import (
	registry "github.com/multiformats/go-multihash/core"

	"github.com/holdfast-ipfs/holdfast/cluster/bao"
)

// HashInPlace makes go-multihash use the BLAKE3 implementation of cluster/bao. go-multihash
// hashes every block. Call HashInPlace at the start of the process, before anything is hashed.
func HashInPlace() { registry.RegisterVariableSize(registry.BLAKE3, bao.NewHash) }
