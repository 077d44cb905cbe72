// Package peertest provides fixtures for tests of the IPFS peer: an IPFS peer that is not a
// Holdfast node, a block store in memory, and DAGs of every codec.
//
// Imports: libp2p, boxo. Only tests import this package.
// Never:   imports of other packages of Holdfast.
package peertest

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/ipfs/boxo/bitswap"
	"github.com/ipfs/boxo/bitswap/network/bsnet"
	chunk "github.com/ipfs/boxo/chunker"
	"github.com/ipfs/boxo/ipld/unixfs/importer/balanced"
	"github.com/ipfs/boxo/ipld/unixfs/importer/helpers"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/routing"
)

// Foreign is an ordinary IPFS peer: a libp2p host on loopback with boxo's bitswap and a
// store in memory.
type Foreign struct {
	Host    host.Host
	Store   *Store
	bitswap *bitswap.Bitswap
	stop    context.CancelFunc
	once    sync.Once
}

// NewForeign starts a foreign peer that runs until Close or the end of the test. By default
// it listens on TCP and QUIC on loopback.
func NewForeign(tb testing.TB, listen ...string) *Foreign {
	tb.Helper()
	return NewForeignRouted(tb, nil, listen...)
}

// NewForeignRouted does the work of NewForeign and uses the content routing that route creates
// for the host.
func NewForeignRouted(tb testing.TB, route func(host.Host) (routing.ContentDiscovery, error), listen ...string) *Foreign {
	tb.Helper()
	if len(listen) == 0 {
		listen = []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}
	}
	h, err := libp2p.New(
		libp2p.ListenAddrStrings(listen...),
		libp2p.DisableRelay(),
		libp2p.DisableMetrics(),
	)
	if err != nil {
		tb.Fatal(err)
	}
	var finder routing.ContentDiscovery
	if route != nil {
		if finder, err = route(h); err != nil {
			tb.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &Foreign{Host: h, Store: NewStore(), stop: stop}
	f.bitswap = bitswap.New(ctx, bsnet.NewFromIpfsHost(h), finder, f.Store)
	tb.Cleanup(f.Close)
	return f
}

// Close stops the peer at once, like a provider that disappears.
func (f *Foreign) Close() {
	f.once.Do(func() {
		f.stop()
		_ = f.bitswap.Close()
		_ = f.Host.Close()
	})
}

// Addrs returns the peer's addresses with /p2p/.
func (f *Foreign) Addrs() []string {
	var out []string
	for _, a := range f.Host.Addrs() {
		out = append(out, a.String()+"/p2p/"+f.Host.ID().String())
	}
	return out
}

// Connect dials another peer.
func (f *Foreign) Connect(ctx context.Context, addr string) error {
	info, err := libp2ppeer.AddrInfoFromString(addr)
	if err != nil {
		return err
	}
	return f.Host.Connect(ctx, *info)
}

// Block fetches one block by bitswap from the connected peers.
func (f *Foreign) Block(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	return f.bitswap.GetBlock(ctx, c)
}

// Offer stores a block and sends it to peers that asked for it before.
func (f *Foreign) Offer(ctx context.Context, b blocks.Block) error {
	if err := f.Store.Blockstore.Put(ctx, b); err != nil {
		return err
	}
	return f.bitswap.NotifyNewBlocks(ctx, b)
}

// Sent returns how many blocks the peer has sent by bitswap.
func (f *Foreign) Sent() (uint64, error) {
	s, err := f.bitswap.Stat()
	if err != nil {
		return 0, fmt.Errorf("statistics of bitswap: %w", err)
	}
	return s.BlocksSent, nil
}

// WantedBy returns the blocks that another peer wants from this one now.
func (f *Foreign) WantedBy(id string) ([]cid.Cid, error) {
	p, err := libp2ppeer.Decode(id)
	if err != nil {
		return nil, fmt.Errorf("peer id: %w", err)
	}
	return f.bitswap.WantlistForPeer(p), nil
}

// AddFile imports r with the defaults of IPFS: balanced dag-pb, sha2-256, raw leaves of
// chunkSize bytes, 174 links in a node.
func (f *Foreign) AddFile(r io.Reader, chunkSize int64) (cid.Cid, error) {
	params := helpers.DagBuilderParams{
		Maxlinks:   helpers.DefaultLinksPerBlock,
		RawLeaves:  true,
		CidBuilder: cid.V1Builder{Codec: cid.DagProtobuf, MhType: 0x12},
		Dagserv:    service{f.Store},
	}
	b, err := params.New(chunk.NewSizeSplitter(r, chunkSize))
	if err != nil {
		return cid.Undef, fmt.Errorf("add file: %w", err)
	}
	n, err := balanced.Layout(b)
	if err != nil {
		return cid.Undef, fmt.Errorf("add file: %w", err)
	}
	return n.Cid(), nil
}

// service writes the nodes of an importer into a store.
type service struct{ store *Store }

func (s service) Add(ctx context.Context, n ipld.Node) error {
	return s.store.Blockstore.Put(ctx, n)
}

func (s service) AddMany(ctx context.Context, nodes []ipld.Node) error {
	for _, n := range nodes {
		if err := s.Add(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (s service) Get(_ context.Context, c cid.Cid) (ipld.Node, error) {
	return nil, ipld.ErrNotFound{Cid: c}
}

func (s service) GetMany(context.Context, []cid.Cid) <-chan *ipld.NodeOption {
	ch := make(chan *ipld.NodeOption)
	close(ch)
	return ch
}

func (s service) Remove(ctx context.Context, c cid.Cid) error { return s.store.DeleteBlock(ctx, c) }

func (s service) RemoveMany(ctx context.Context, cids []cid.Cid) error {
	for _, c := range cids {
		if err := s.Remove(ctx, c); err != nil {
			return err
		}
	}
	return nil
}
