package node

import (
	"fmt"
	"testing"

	registry "github.com/multiformats/go-multihash/core"

	"github.com/holdfast-ipfs/holdfast/cluster/bao"
)

// HashInPlace registers the hasher of package bao for BLAKE3.
func TestTheHasherOfBaoIsRegisteredForBLAKE3(t *testing.T) {
	HashInPlace()
	got, err := registry.GetHasher(registry.BLAKE3)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := bao.NewHash(-1)
	if fmt.Sprintf("%T", got) != fmt.Sprintf("%T", want) {
		t.Errorf("blocks are hashed with %T, want %T", got, want)
	}
}
