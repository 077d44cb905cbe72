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

// linksPerNode is the largest number of links of a node in the files that the peer imports.
const linksPerNode = 174

// bitswapProtocols are the bitswap protocols that a peer with the option Hang announces.
var bitswapProtocols = []protocol.ID{"/ipfs/bitswap/1.2.0", "/ipfs/bitswap/1.1.0", "/ipfs/bitswap/1.0.0"}

// errVanished is the error of every read of a block after the peer has left the network.
var errVanished = errors.New("the peer has vanished")

type peerOptions struct {
	Listen      []string
	Hang        bool  // accept bitswap streams and read from them, but never answer
	VanishAfter int64 // number of blocks to serve before the peer leaves the network; 0 means that it stays
}

// foreignPeer is one IPFS peer with a memory block store.
type foreignPeer struct {
	host  host.Host
	swap  *bitswap.Bitswap // nil with the option Hang
	store blockstore.Blockstore
	files ipld.DAGService // reads and writes the local store only
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

// swallow reads a stream until it ends, and never answers.
func swallow(s network.Stream) {
	_, _ = io.Copy(io.Discard, s)
	_ = s.Reset()
}

// ID returns the peer id as text.
func (p *foreignPeer) ID() string { return p.host.ID().String() }

// Addrs returns the multiaddrs on which the peer listens, each with /p2p/ and the peer id.
func (p *foreignPeer) Addrs() []string {
	var out []string
	for _, a := range p.host.Addrs() {
		out = append(out, a.String()+"/p2p/"+p.ID())
	}
	return out
}

// Close closes the host, so that the peer leaves the network.
func (p *foreignPeer) Close() error {
	var err error
	if p.swap != nil {
		err = p.swap.Close()
	}
	return errors.Join(err, p.host.Close())
}

// AddFile stores the bytes of r as a UnixFS file with raw leaves of chunkSize bytes, and returns
// its root.
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

// AddFolder stores a UnixFS folder whose only entry, "file", has the bytes of r, and returns the
// root of the folder.
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

// connect dials the peers to which addrs, each with /p2p/, lead.
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

// fetched is the result of Fetch.
type fetched struct {
	Blocks int    // distinct blocks of the DAG
	Bytes  int    // sum of their sizes
	File   []byte // bytes of the file, if the root is a UnixFS file or a raw block
}

// Fetch connects to the peers in from and fetches the whole DAG below root by bitswap.
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

// errNotAFile means that the root of a DAG is not a UnixFS file.
var errNotAFile = errors.New("not a UnixFS file")

// readFile returns the bytes of the UnixFS file with this root from the local store.
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

// vanishing is a block store that calls leave after it has returned a given number of blocks.
type vanishing struct {
	blockstore.Blockstore
	left  int64 // number of blocks that Get still returns; used atomically
	leave func()
}

// Get returns a block while blocks are left to return. Then it calls leave, and returns errVanished
// from then on.
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
