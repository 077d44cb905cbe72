package peer

import (
	"context"

	"github.com/ipfs/boxo/bitswap"
	"github.com/ipfs/boxo/bitswap/message"
	"github.com/ipfs/boxo/bitswap/network"
	"github.com/ipfs/boxo/bitswap/server"
	"github.com/ipfs/boxo/blockstore"
	"github.com/ipfs/go-cid"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/client_golang/prometheus"
	timerate "golang.org/x/time/rate"
)

// DefaultServeRate is the rate in bytes per second at which bitswap serves all unknown
// peers together.
const DefaultServeRate = 16 << 20

// Bounds of the bitswap server of unknown peers. A message that waits for its turn
// is in memory with its blocks.
const (
	serveMessageTarget   = 256 << 10
	serveOutstandingPeer = 1 << 20
	serveWorkers         = 8 // messages on their way, or waiting
	serveReadWorkers     = 4 // that read blocks
	// serveBurst is the part of a second's bytes that may go at once.
	serveBurst = 8
)

// newServeLimiter shares out so many bytes a second, DefaultServeRate for 0.
func newServeLimiter(bytes int64) *timerate.Limiter {
	if bytes <= 0 {
		bytes = DefaultServeRate
	}
	return timerate.NewLimiter(timerate.Limit(bytes), int(max(bytes/serveBurst, 1)))
}

// newUnknownPeersServer is a bitswap server for unknown peers alone, with workers of
// its own: what waits for their share keeps nobody else's answers back.
func newUnknownPeersServer(ctx context.Context, net network.BitSwapNetwork, p *Peer, filter []server.Option) *server.Server {
	slow := &slowNetwork{
		BitSwapNetwork: net, unknownPeers: p.unknownPeers, served: newServeLimiter(p.opts.ServeRate), bytes: p.metrics.unknownServed,
	}
	return server.New(ctx, slow, sized{p.opts.Blocks}, append([]server.Option{
		server.WithTargetMessageSize(serveMessageTarget),
		server.MaxOutstandingBytesPerPeer(serveOutstandingPeer),
		server.TaskWorkerCount(serveWorkers),
		server.EngineTaskWorkerCount(serveWorkers),
		server.EngineBlockstoreWorkerCount(serveReadWorkers),
	}, filter...)...)
}

// sized is a store as boxo's bitswap server may see it. A block of no bytes counts as
// one: the server takes a size of zero for a block that it is not to send, and tells
// those who want it again and again that it has it.
type sized struct{ blockstore.Blockstore }

// GetSize implements blockstore.Blockstore.
func (s sized) GetSize(ctx context.Context, c cid.Cid) (int, error) {
	size, err := s.Blockstore.GetSize(ctx, c)
	return max(1, size), err
}

// slowNetwork is the network as the server of unknown peers sees it.
type slowNetwork struct {
	network.BitSwapNetwork
	unknownPeers *unknownPeers
	served       *timerate.Limiter
	bytes        prometheus.Counter
}

// SendMessage implements network.BitSwapNetwork. It waits for the share of unknown peers,
// unless the peer has stopped to count as unknown.
func (n *slowNetwork) SendMessage(ctx context.Context, id libp2ppeer.ID, m message.BitSwapMessage) error {
	size := m.Size()
	n.bytes.Add(float64(size))
	for size > 0 && n.unknownPeers.isUnknown(id) {
		part := min(size, n.served.Burst())
		if err := n.served.WaitN(ctx, part); err != nil {
			return err
		}
		size -= part
	}
	return n.BitSwapNetwork.SendMessage(ctx, id, m)
}

// splitNetwork is the network as bitswap sees it: the wants of unknown peers go to a
// server of their own.
type splitNetwork struct {
	network.BitSwapNetwork
	unknownPeers *unknownPeers
	server       *server.Server // of unknown peers
}

// Start implements network.BitSwapNetwork.
func (n *splitNetwork) Start(receivers ...network.Receiver) {
	for i, r := range receivers {
		if b, ok := r.(*bitswap.Bitswap); ok {
			receivers[i] = &splitReceiver{Bitswap: b, unknownPeers: n.unknownPeers, server: n.server}
		}
	}
	n.BitSwapNetwork.Start(receivers...)
}

// splitReceiver hands what comes in to bitswap, and wants to one of two servers.
type splitReceiver struct {
	*bitswap.Bitswap
	unknownPeers *unknownPeers
	server       *server.Server // of unknown peers
}

// ReceiveMessage implements network.Receiver.
func (r *splitReceiver) ReceiveMessage(ctx context.Context, id libp2ppeer.ID, m message.BitSwapMessage) {
	r.Client.ReceiveMessage(ctx, id, m)
	to, other := r.Server, r.server
	if r.unknownPeers.isUnknown(id) {
		to, other = other, to
	}
	to.ReceiveMessage(ctx, id, m)
	// Who is an unknown peer changes, so what is taken back may wait at the other one.
	if back := takenBack(m, other.WantlistForPeer(id)); !back.Empty() {
		other.ReceiveMessage(ctx, id, back)
	}
}

// takenBack is what a message takes back of the wants that are held: those that
// it names, and all of them when it is a whole new list.
func takenBack(m message.BitSwapMessage, held []cid.Cid) message.BitSwapMessage {
	back := message.New(false)
	if len(held) == 0 {
		return back
	}
	if m.Full() {
		for _, c := range held {
			back.Cancel(c)
		}
		return back
	}
	for _, e := range m.Wantlist() {
		if e.Cancel {
			back.Cancel(e.Cid)
		}
	}
	return back
}

// PeerConnected implements network.Receiver.
func (r *splitReceiver) PeerConnected(id libp2ppeer.ID) {
	r.Bitswap.PeerConnected(id)
	r.server.PeerConnected(id)
}

// PeerDisconnected implements network.Receiver.
func (r *splitReceiver) PeerDisconnected(id libp2ppeer.ID) {
	r.Bitswap.PeerDisconnected(id)
	r.server.PeerDisconnected(id)
}
