package dag

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ipfs/boxo/ipld/merkledag"
	mdtest "github.com/ipfs/boxo/ipld/merkledag/test"
	"github.com/ipfs/boxo/ipld/unixfs"
	"github.com/ipfs/boxo/ipld/unixfs/hamt"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	mh "github.com/multiformats/go-multihash"
)

// shard makes a dag-pb node of a sharded directory whose links have these names.
func shard(tb testing.TB, bitfield []byte, fanout, hash uint64, names ...string) blocks.Block {
	tb.Helper()
	data, err := unixfs.HAMTShardData(bitfield, fanout, hash)
	if err != nil {
		tb.Fatal(err)
	}
	return named(tb, data, names...)
}

// named makes a dag-pb node of data whose links have these names.
func named(tb testing.TB, data []byte, names ...string) blocks.Block {
	tb.Helper()
	n := merkledag.NodeWithData(data)
	for _, name := range names {
		if err := n.AddRawLink(name, &ipld.Link{Cid: node(tb, cid.Raw, []byte(name)).Cid()}); err != nil {
			tb.Fatal(err)
		}
	}
	return labelled(tb, cid.DagProtobuf, n.RawData())
}

// Links refuses a sharded directory that boxo cannot read with ErrInvalidBlock and the fault. It accepts every other
// node.
func TestShardsThatCannotBeReadAreInvalid(t *testing.T) {
	usual := uint64(mh.MURMUR3X64_64)
	field := func(number byte, v uint64) []byte { return binary.AppendUvarint([]byte{number << 3}, v) }
	full := make([]byte, 32)
	for i := range full {
		full[i] = 0xff
	}
	var all []string
	for i := range 256 {
		all = append(all, fmt.Sprintf("%02Xf", i))
	}
	for _, tc := range []struct {
		name  string
		block blocks.Block
		says  string // "" means that it is good
	}{
		{"empty", shard(t, nil, 256, usual), ""},
		{"a child and a file", shard(t, []byte{3}, 256, usual, "00", "01name"), ""},
		{"every place taken", shard(t, full, 256, usual, all...), ""},
		{"the narrowest", shard(t, []byte{1}, 8, usual, "0x"), ""},
		{"the widest", shard(t, []byte{1}, 1024, usual, "000x"), ""},

		{"no fanout", named(t, []byte{8, 5, 0x28, 0x22}), "without a fanout"},
		{"a fanout of three", shard(t, nil, 3, usual), "fanout of 3"},
		{"a fanout of four", shard(t, nil, 4, usual), "fanout of 4"},
		{"a fanout of 24", shard(t, nil, 24, usual), "fanout of 24"},
		{"a fanout of 2048", shard(t, nil, 2048, usual), "at most 1024"},
		{"a fanout of 2^40", shard(t, nil, 1<<40, usual), "at most 1024"},
		{"a fanout of 2^64-1", shard(t, nil, 1<<64-1, usual), "at most 1024"},
		{"another hash", shard(t, nil, 256, mh.SHA2_256), "hash 0x12"},
		{"no hash", named(t, append([]byte{8, 5}, field(6, 256)...)), "hash 0x0"},
		{"a bitfield too long", shard(t, make([]byte, 33), 256, usual), "bitfield of 33 bytes"},
		{"fewer links than bits", shard(t, []byte{3}, 256, usual, "00"), "1 links, and 2"},
		{"more links than bits", shard(t, []byte{1}, 256, usual, "00", "01"), "2 links, and 1"},
		{"a name too short", shard(t, []byte{3}, 256, usual, "00", "1"), `named "1"`},
		{"no name", shard(t, []byte{1}, 256, usual, ""), `named ""`},
		{"a type that is given twice", named(t, []byte{8, 2, 8, 5}), "without a fanout"},

		{"not a shard after all", named(t, []byte{8, 5, 8, 1}, "a"), ""},
		{"a type that nobody knows", named(t, []byte{8, 77}, "a"), ""},
		{"another type of no number", named(t, []byte{0x0a, 1, 5}, "a"), ""},
		{"not UnixFS", named(t, []byte{8, 5, 0xff}, "a"), ""},
		{"a file", named(t, unixfs.FilePBData([]byte("text"), 4), "a"), ""},
		{"a folder", named(t, unixfs.FolderPBData(), "a"), ""},
		{"nothing", named(t, nil, "a"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Links(tc.block)
			switch {
			case tc.says == "" && err != nil:
				t.Error(err)
			case tc.says != "" && (!errors.Is(err, ErrInvalidBlock) || !strings.Contains(Reason(err), tc.says)):
				t.Errorf("%v; want an invalid block that says %q", err, tc.says)
			}
		})
	}
}

// Links accepts every node of a sharded directory that boxo builds, and returns all its links. The directories have
// four fanouts and up to 3,000 files.
func TestShardsThatOthersBuildAreGood(t *testing.T) {
	for _, fanout := range []int{8, 16, 256, 1024} {
		for _, files := range []int{0, 1, 30, 3000} {
			service := mdtest.Mock()
			s, err := hamt.NewShard(service, fanout)
			if err != nil {
				t.Fatal(err)
			}
			for i := range files {
				leaf := merkledag.NewRawNode([]byte{byte(i), byte(i >> 8)})
				if err := s.Set(t.Context(), fmt.Sprint("file ", i), leaf); err != nil {
					t.Fatal(err)
				}
			}
			root, err := s.Node()
			if err != nil {
				t.Fatal(err)
			}
			err = merkledag.Walk(t.Context(), func(ctx context.Context, c cid.Cid) ([]*ipld.Link, error) {
				n, err := service.Get(ctx, c)
				if err != nil {
					return nil, err
				}
				links, err := Links(n)
				if len(links) != len(n.Links()) {
					t.Errorf("%d links of %d", len(links), len(n.Links()))
				}
				return n.Links(), err
			}, root.Cid(), func(cid.Cid) bool { return true })
			if err != nil {
				t.Errorf("fanout %d, %d files: %v", fanout, files, err)
			}
		}
	}
}

// What passes here can be listed by boxo, which reads past its slices of links
// when a bitfield has more bits than there are links.
func FuzzShard(f *testing.F) {
	f.Add([]byte{8, 5, 0x12, 1, 3, 0x28, 0x22, 0x30, 0x80, 2}, uint8(2), uint8(2))
	f.Add([]byte{8, 5, 0x12, 1, 1, 0x28, 0x22, 0x30, 8}, uint8(1), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, links, name uint8) {
		names := make([]string, links)
		for i := range names {
			names[i] = strings.Repeat("A", int(name))
		}
		b := named(t, data, names...)
		if _, err := Links(b); err != nil || !claimsShard(data) {
			return
		}
		n, err := merkledag.DecodeProtobuf(b.RawData())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unixfs.FSNodeFromBytes(data); err != nil {
			return
		}
		service := mdtest.Mock()
		s, err := hamt.NewHamtFromDag(service, n)
		if err != nil {
			t.Fatalf("passes here and not there: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the children are not here
		_, _ = s.EnumLinks(ctx)
	})
}

// The check is on the way of every dag-pb node, so it must be small beside the
// decoding.
func BenchmarkLinksOfUnixFS(b *testing.B) {
	file := unixfs.NewFSNode(unixfs.TFile)
	var children []cid.Cid
	for i := range 1024 {
		file.AddBlockSize(1 << 20)
		children = append(children, node(b, cid.Raw, []byte{byte(i), byte(i >> 8)}).Cid())
	}
	data, err := file.GetBytes()
	if err != nil {
		b.Fatal(err)
	}
	var all []string
	full := make([]byte, 32)
	for i := range 256 {
		full[i/8] = 0xff
		all = append(all, fmt.Sprintf("%02Xname of a file", i))
	}
	for _, bc := range []struct {
		name  string
		block blocks.Block
	}{
		{"leaf of 256 KiB", named(b, unixfs.FilePBData(make([]byte, 256<<10), 256<<10))},
		{"file of 1024 parts", node(b, cid.DagProtobuf, data, children...)},
		{"shard of 256", shard(b, full, 256, mh.MURMUR3X64_64, all...)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Links(bc.block); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
