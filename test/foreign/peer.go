package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/ipfs/boxo/bitswap"
	"github.com/ipfs/boxo/bitswap/network/bsnet"
	"github.com/ipfs/boxo/blockservice"
	"github.com/ipfs/boxo/blockstore"
	chunk "github.com/ipfs/boxo/chunker"
	"github.com/ipfs/boxo/exchange"
	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	"github.com/ipfs/boxo/ipld/unixfs/importer/balanced"
	"github.com/ipfs/boxo/ipld/unixfs/importer/helpers"
	uio "github.com/ipfs/boxo/ipld/unixfs/io"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/ipfs/go-datastore"
	dssync "github.com/ipfs/go-datastore/sync"
	ipld "github.com/ipfs/go-ipld-format"
	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multiaddr"
)

// linksPerNode is the width of the file DAGs that the peer builds.
const linksPerNode = 174

// bitswapProtocols are the protocol ids a hanging peer claims to speak.
var bitswapProtocols = []protocol.ID{"/ipfs/bitswap/1.2.0", "/ipfs/bitswap/1.1.0", "/ipfs/bitswap/1.0.0"}

// errVanished answers every block read after the peer has left the network.
var errVanished = errors.New("the peer has vanished")

type peerOptions struct {
	Listen      []string
	Hang        bool  // claim bitswap, read what comes, never answer
	VanishAfter int64 // blocks to serve before leaving the network; 0: never leave
}

// foreignPeer is one IPFS peer with a memory block store.
type foreignPeer struct {
	host  host.Host
	swap  *bitswap.Bitswap // nil when hanging
	store blockstore.Blockstore
	files ipld.DAGService // over the local store only
}

func openPeer(ctx context.Context, o peerOptions) (*foreignPeer, error) {
	h, err := libp2p.New(libp2p.ListenAddrStrings(o.Listen...), libp2p.DisableMetrics(), libp2p.DisableRelay())
	if err != nil {
		return nil, fmt.Errorf("libp2p host: %w", err)
	}
	p := &foreignPeer{host: h, store: blockstore.NewBlockstore(dssync.MutexWrap(datastore.NewMapDatastore()))}
	p.files = merkledag.NewDAGService(blockservice.New(p.store, nil))
	if o.Hang {
		for _, id := range bitswapProtocols {
			h.SetStreamHandler(id, swallow)
		}
		return p, nil
	}
	served := p.store
	if o.VanishAfter > 0 {
		served = &vanishing{Blockstore: p.store, left: o.VanishAfter, leave: func() { _ = h.Close() }}
	}
	p.swap = bitswap.New(ctx, bsnet.NewFromIpfsHost(h), nil, served)
	return p, nil
}

// swallow reads a stream to its end and never writes to it.
func swallow(s network.Stream) {
	_, _ = io.Copy(io.Discard, s)
	_ = s.Reset()
}

// ID returns the peer id in text.
func (p *foreignPeer) ID() string { return p.host.ID().String() }

// Addrs returns the multiaddrs the peer listens on, each ending in /p2p/ID.
func (p *foreignPeer) Addrs() []string {
	var out []string
	for _, a := range p.host.Addrs() {
		out = append(out, a.String()+"/p2p/"+p.ID())
	}
	return out
}

// Close leaves the network.
func (p *foreignPeer) Close() error {
	var err error
	if p.swap != nil {
		err = p.swap.Close()
	}
	return errors.Join(err, p.host.Close())
}

// AddFile keeps r as a UnixFS file with raw leaves of chunkSize bytes.
func (p *foreignPeer) AddFile(ctx context.Context, r io.Reader, chunkSize int64) (cid.Cid, error) {
	prefix, err := merkledag.PrefixForCidVersion(1)
	if err != nil {
		return cid.Undef, err
	}
	batch := ipld.NewBufferedDAG(ctx, p.files)
	params := helpers.DagBuilderParams{Maxlinks: linksPerNode, RawLeaves: true, CidBuilder: prefix, Dagserv: batch}
	builder, err := params.New(chunk.NewSizeSplitter(r, chunkSize))
	if err != nil {
		return cid.Undef, fmt.Errorf("add file: %w", err)
	}
	root, err := balanced.Layout(builder)
	if err != nil {
		return cid.Undef, fmt.Errorf("add file: %w", err)
	}
	if err := batch.Commit(); err != nil {
		return cid.Undef, fmt.Errorf("add file: %w", err)
	}
	return root.Cid(), nil
}

// AddFolder keeps a UnixFS folder with r as its only file, which is called file.
func (p *foreignPeer) AddFolder(ctx context.Context, r io.Reader) (cid.Cid, error) {
	c, err := p.AddFile(ctx, r, maxBlock)
	if err != nil {
		return cid.Undef, err
	}
	inside, err := p.files.Get(ctx, c)
	if err != nil {
		return cid.Undef, fmt.Errorf("add folder: %w", err)
	}
	folder := unixfs.EmptyDirNode()
	if err := folder.AddNodeLink("file", inside); err != nil {
		return cid.Undef, fmt.Errorf("add folder: %w", err)
	}
	if err := p.files.Add(ctx, folder); err != nil {
		return cid.Undef, fmt.Errorf("add folder: %w", err)
	}
	return folder.Cid(), nil
}

// connect dials the peer that the addresses (with /p2p/) name.
func (p *foreignPeer) connect(ctx context.Context, addrs []string) error {
	var all []multiaddr.Multiaddr
	for _, s := range addrs {
		a, err := multiaddr.NewMultiaddr(s)
		if err != nil {
			return fmt.Errorf("address %q: %w", s, err)
		}
		all = append(all, a)
	}
	infos, err := peer.AddrInfosFromP2pAddrs(all...)
	if err != nil {
		return fmt.Errorf("addresses: %w", err)
	}
	for _, info := range infos {
		if err := p.host.Connect(ctx, info); err != nil {
			return fmt.Errorf("connect %s: %w", info.ID, err)
		}
	}
	return nil
}

// fetched says what one fetch brought.
type fetched struct {
	Blocks int    // distinct blocks of the DAG
	Bytes  int    // sum of their sizes
	File   []byte // the file's bytes when the root is a UnixFS file or raw
}

// Fetch connects to from and reads the whole DAG below root over bitswap.
func (p *foreignPeer) Fetch(ctx context.Context, root cid.Cid, from []string) (fetched, error) {
	var got fetched
	if p.swap == nil {
		return got, errors.New("a hanging peer cannot fetch")
	}
	if err := p.connect(ctx, from); err != nil {
		return got, err
	}
	session := blockservice.NewSession(ctx, blockservice.New(p.store, exchange.Interface(p.swap)))
	seen := map[string]bool{}
	for stack := []cid.Cid{root}; len(stack) > 0; {
		c := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[c.KeyString()] {
			continue
		}
		seen[c.KeyString()] = true
		b, err := session.GetBlock(ctx, c)
		if err != nil {
			return got, fmt.Errorf("block %s: %w", c, err)
		}
		got.Blocks++
		got.Bytes += len(b.RawData())
		links, err := linksOf(b)
		if err != nil {
			return got, fmt.Errorf("links of %s: %w", c, err)
		}
		stack = append(stack, links...)
	}
	file, err := p.readFile(ctx, root)
	if err != nil && !errors.Is(err, errNotAFile) {
		return got, err
	}
	got.File = file
	return got, nil
}

// errNotAFile says that a root is a DAG but not a UnixFS file.
var errNotAFile = errors.New("not a UnixFS file")

// readFile returns the bytes of a UnixFS file from the local store.
func (p *foreignPeer) readFile(ctx context.Context, root cid.Cid) ([]byte, error) {
	if t := root.Type(); t != cid.Raw && t != cid.DagProtobuf {
		return nil, errNotAFile
	}
	node, err := p.files.Get(ctx, root)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", root, err)
	}
	r, err := uio.NewDagReader(ctx, node, p.files)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errNotAFile, root, err)
	}
	defer r.Close()
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(r); err != nil {
		return nil, fmt.Errorf("read %s: %w", root, err)
	}
	return buf.Bytes(), nil
}

// vanishing is a block store whose owner leaves the network once it has handed
// out the given number of blocks.
type vanishing struct {
	blockstore.Blockstore
	left  int64 // used atomically
	leave func()
}

// Get hands out a block, or leaves.
func (v *vanishing) Get(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	switch left := atomic.AddInt64(&v.left, -1); {
	case left == -1:
		// In a goroutine: closing the host waits for the streams that
		// this very read serves. The process ends soon after.
		go v.leave()
		return nil, errVanished
	case left < -1:
		return nil, errVanished
	}
	return v.Blockstore.Get(ctx, c)
}
