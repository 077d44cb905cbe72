//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/boxo/ipld/unixfs"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/peer/peertest"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// fewBlocks and lowDepth are the largest DAG of TestHostileContent's nodes. The
// real bounds are ten million and 4,096, where the test would take minutes.
const (
	fewBlocks = 5_000
	lowDepth  = 500
)

// hostile is content that somebody built to hurt.
type hostile struct {
	name string
	make func(t *testing.T, f *peertest.Foreign) cid.Cid
	says string // of the reason; "" means that it is good enough to be pinned
}

func hostileContent() []hostile {
	emptyLeaf := cid.NewCidV1(cid.Raw, must(multihash.Encode(nil, multihash.IDENTITY)))
	return []hostile{
		{"a small block that claims much", offer(cid.DagCBOR, bomb()), "invalid block"},
		{"lists 2 MiB deep", offer(cid.DagCBOR, bytes.Repeat([]byte{0x81}, dag.MaxBlock)), "invalid block"},
		{"JSON lists 1 MiB deep", offer(cid.DagJSON, bytes.Repeat([]byte{'['}, 1<<20)), "invalid block"},
		{"two million integers", offer(cid.DagCBOR, list(dag.MaxBlock-10, []byte{0})), ""},
		{"dag-pb that is none", offer(cid.DagProtobuf, bytes.Repeat([]byte{0xff}, 1000)), "invalid block"},
		{"100,000 links", offer(cid.DagProtobuf, manyLinks(emptyLeaf, dag.MaxLinks)), ""},
		{"100,001 links", offer(cid.DagProtobuf, manyLinks(emptyLeaf, dag.MaxLinks+1)), "links"},
		{"the same child 50,000 times", func(t *testing.T, f *peertest.Foreign) cid.Cid {
			child := offer(cid.Raw, []byte("only one"))(t, f)
			return offer(cid.DagProtobuf, manyLinks(child, 50_000))(t, f)
		}, ""},
		{"a node by 2^60 paths", func(t *testing.T, f *peertest.Foreign) cid.Cid {
			below := offer(cid.Raw, []byte("the bottom"))(t, f)
			for range 60 {
				below = offer(cid.DagProtobuf, manyLinks(below, 2))(t, f)
			}
			return below
		}, ""},
		{"a block of 3 MiB", offer(cid.Raw, peertest.Bytes(1, 3<<20)), "bytes, at most"},
		{"a chain of 50,000 nodes", func(t *testing.T, f *peertest.Foreign) cid.Cid {
			return must(f.Store.AddChain(cid.DagCBOR, 50_000))
		}, "more than 500 levels deep"},
		{"more blocks than are taken", func(t *testing.T, f *peertest.Foreign) cid.Cid {
			root, _, _, err := f.Store.AddTree(7, cid.DagProtobuf, 80, 2, 8)
			if err != nil {
				t.Fatal(err)
			}
			return root
		}, "more than 5000 blocks"},
		{"a sharded folder of a bad width", func(t *testing.T, f *peertest.Foreign) cid.Cid {
			data := must(unixfs.HAMTShardData(nil, 3, multihash.MURMUR3X64_64))
			return put(t, f, must(peertest.Node(cid.DagProtobuf, data)))
		}, "fanout of 3"},
		{"a sharded folder of a giant width", func(t *testing.T, f *peertest.Foreign) cid.Cid {
			data := must(unixfs.HAMTShardData(nil, 1<<40, multihash.MURMUR3X64_64))
			return put(t, f, must(peertest.Node(cid.DagProtobuf, data)))
		}, "fanout of 1099511627776"},
		{"a sharded folder with more in its bitfield than it links to", func(t *testing.T, f *peertest.Foreign) cid.Cid {
			data := must(unixfs.HAMTShardData([]byte{0xff}, 256, multihash.MURMUR3X64_64))
			return put(t, f, must(peertest.Node(cid.DagProtobuf, data)))
		}, "0 links, and 8"},
		{"a folder above a sharded folder of a bad width", func(t *testing.T, f *peertest.Foreign) cid.Cid {
			data := must(unixfs.HAMTShardData(nil, 24, multihash.MURMUR3X64_64))
			bad := put(t, f, must(peertest.Node(cid.DagProtobuf, data)))
			return put(t, f, must(peertest.Node(cid.DagProtobuf, unixfs.FolderPBData(), bad)))
		}, "fanout of 24"},
		{"an empty sharded folder", func(t *testing.T, f *peertest.Foreign) cid.Cid {
			data := must(unixfs.HAMTShardData(nil, 256, multihash.MURMUR3X64_64))
			return put(t, f, must(peertest.Node(cid.DagProtobuf, data)))
		}, ""},
		{"content inside its CID", func(*testing.T, *peertest.Foreign) cid.Cid {
			return cid.NewCidV1(cid.Raw, must(multihash.Encode([]byte("here"), multihash.IDENTITY)))
		}, ""},
		{"a node inside its CID with a bomb", func(*testing.T, *peertest.Foreign) cid.Cid {
			return cid.NewCidV1(cid.DagCBOR, must(multihash.Encode(bomb(), multihash.IDENTITY)))
		}, "invalid block"},
		{"dag-jose that is none", offer(cid.DagJOSE, []byte("?")), "invalid block"},
		{"an unknown codec", offer(cid.GitRaw, []byte("?")), "codec"},
		{"sha1, which git has", hashed(multihash.SHA1, -1), ""},
		{"a hash that is broken", hashed(multihash.MD5, -1), "invalid block"},
		{"a hash cut to 16 bytes", hashed(multihash.SHA2_256, 16), "invalid block"},
	}
}

// must is for what cannot fail with the values of this file.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func put(t *testing.T, f *peertest.Foreign, b blocks.Block) cid.Cid {
	t.Helper()
	if err := f.Store.Blockstore.Put(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	return b.Cid()
}

// offer returns one block of these bytes.
func offer(codec uint64, data []byte) func(t *testing.T, f *peertest.Foreign) cid.Cid {
	return func(t *testing.T, f *peertest.Foreign) cid.Cid {
		return put(t, f, must(peertest.Block(codec, data)))
	}
}

// hashed returns a raw block named by another hash function.
func hashed(function uint64, length int) func(t *testing.T, f *peertest.Foreign) cid.Cid {
	return func(t *testing.T, f *peertest.Foreign) cid.Cid {
		data := []byte("hashed in another way")
		sum := must(multihash.Sum(data, function, length))
		return put(t, f, must(blocks.NewBlockWithCid(data, cid.NewCidV1(cid.Raw, sum))))
	}
}

// bomb is 51 bytes of dag-cbor: lists within lists that claim 2^63 entries each.
func bomb() []byte {
	return append(bytes.Repeat([]byte{0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 5), 0x9a, 0xff, 0xff, 0xff, 0xff, 0)
}

// list returns a dag-cbor list of n equal values.
func list(n int, value []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0x9a}, uint32(n)), bytes.Repeat(value, n)...)
}

// manyLinks returns a dag-pb node with n links to one child, and nothing else.
func manyLinks(child cid.Cid, n int) []byte {
	hash := append(binary.AppendUvarint([]byte{0x0a}, uint64(child.ByteLen())), child.Bytes()...)
	link := append(binary.AppendUvarint([]byte{0x12}, uint64(len(hash))), hash...)
	return bytes.Repeat(link, n)
}

// TestHostileContent promises that content that is built to hurt is refused with a reason, or pinned if it is only
// strange, and that the node lives on in little memory (A41).
func TestHostileContent(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Nodes: 1, Env: []string{
		// Longer than the 15 s after which a fetch asks again for what bitswap
		// lost, which it does now and then on a busy machine.
		"HOLDFAST_TRACKER_IDLE_TIMEOUT=40s", "HOLDFAST_TRACKER_ATTEMPTS=1",
		fmt.Sprintf("HOLDFAST_TRACKER_MAX_BLOCKS=%d", fewBlocks), fmt.Sprintf("HOLDFAST_TRACKER_MAX_DEPTH=%d", lowDepth),
	}})
	s := newService(t, c, "hostile@example.org")
	n := c.Nodes[0]
	foreign := peertest.NewForeign(t)
	cases := hostileContent()
	roots := make([]cid.Cid, len(cases))
	for i, tc := range cases {
		roots[i] = tc.make(t, foreign)
	}
	before, most := n.ResidentBytes(), int64(0)
	pins := make([]string, len(cases))
	for i := range cases {
		pins[i] = s.post(harness.Pin{CID: roots[i].String(), Origins: foreign.Addrs()}).RequestID
	}
	harness.Eventually(t, 3*time.Minute, "every pin has an end", func() (bool, error) {
		most = max(most, n.ResidentBytes())
		for i, id := range pins {
			if st := s.get(id).Status; st != "pinned" && st != "failed" {
				return false, fmt.Errorf("%s is %s", cases[i].name, st)
			}
		}
		return true, nil
	})
	t.Logf("the node grew by %d MiB to %d MiB", (most-before)>>20, most>>20)
	if most-before > overloadGrowth {
		t.Errorf("the node grew by %d MiB", (most-before)>>20)
	}
	for i, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			st := s.as(t).get(pins[i])
			reason := st.Info["status_details"]
			t.Logf("%s: %s", st.Status, reason)
			switch {
			case tc.says == "" && st.Status != "pinned":
				t.Errorf("%s, %v; want it pinned", st.Status, st.Info)
			case tc.says != "" && (st.Status != "failed" || !strings.Contains(reason, tc.says) || notForPeople.MatchString(reason)):
				t.Errorf("%s because of %q; want a failure that says %q", st.Status, reason, tc.says)
			}
			// Reading it fails or not, but ends.
			if r := n.As(t).TryCLI("", "get", roots[i].String()); r.Code != 0 && (r.Stderr == "" || notForPeople.MatchString(r.Stderr)) {
				t.Errorf("get: exit code %d, %q", r.Code, r.Stderr)
			}
		})
	}
	good := put(t, foreign, must(peertest.Block(cid.Raw, []byte("good"))))
	s.pinned(s.post(harness.Pin{CID: good.String(), Origins: foreign.Addrs()}).RequestID)
}
