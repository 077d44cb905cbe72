package node

import (
	registry "github.com/multiformats/go-multihash/core"

	"github.com/holdfast-ipfs/holdfast/cluster/bao"
)

// HashInPlace has go-multihash, which hashes every block that is stored, sent, received or
// read, take the BLAKE3 of cluster/bao instead of its own. It belongs at the beginning of
// a process: nothing may be hashed at the same time.
func HashInPlace() { registry.RegisterVariableSize(registry.BLAKE3, bao.NewHash) }
