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

// DefaultServeRate is the default of Options.ServeRate, in bytes per second.
const DefaultServeRate = 16 << 20

// Bounds of the bitswap server for unknown peers. A waiting message is in memory with its
// blocks.
const (
	serveMessageTarget   = 256 << 10
	serveOutstandingPeer = 1 << 20
	serveWorkers         = 8 // number of messages that are being sent or wait for the rate limit
	serveReadWorkers     = 4 // workers that read blocks
	// serveBurst is a divisor: the burst is the number of bytes that the rate allows in
	// 1/serveBurst of a second.
	serveBurst = 8
)

// newServeLimiter returns a limiter for this many bytes per second; 0 means
// DefaultServeRate.
func newServeLimiter(bytes int64) *timerate.Limiter {
	if bytes <= 0 {
		bytes = DefaultServeRate
	}
	return timerate.NewLimiter(timerate.Limit(bytes), int(max(bytes/serveBurst, 1)))
}

// newUnknownPeersServer returns a bitswap server for unknown peers with its own workers. Messages
// that wait there for the rate limit do not delay members and other known peers.
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

// sized is the block store for boxo's bitswap server. It reports a size of one for an empty
// block: the server treats a size of zero as a block that it must not send, and announces
// again and again that it has it.
type sized struct{ blockstore.Blockstore }

// GetSize implements blockstore.Blockstore.
func (s sized) GetSize(ctx context.Context, c cid.Cid) (int, error) {
	size, err := s.Blockstore.GetSize(ctx, c)
	return max(1, size), err
}

// slowNetwork is the network for the bitswap server of unknown peers.
type slowNetwork struct {
	network.BitSwapNetwork
	unknownPeers *unknownPeers
	served       *timerate.Limiter
	bytes        prometheus.Counter
}

// SendMessage implements network.BitSwapNetwork. It waits for the rate limit unless the
// peer is no longer unknown.
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

// splitNetwork is the network for bitswap. It passes the wants of unknown peers to a
// separate server.
type splitNetwork struct {
	network.BitSwapNetwork
	unknownPeers *unknownPeers
	server       *server.Server // for unknown peers
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

// splitReceiver passes received messages to bitswap, and the wants in them to one of two
// servers.
type splitReceiver struct {
	*bitswap.Bitswap
	unknownPeers *unknownPeers
	server       *server.Server // for unknown peers
}

// ReceiveMessage implements network.Receiver.
func (r *splitReceiver) ReceiveMessage(ctx context.Context, id libp2ppeer.ID, m message.BitSwapMessage) {
	r.Client.ReceiveMessage(ctx, id, m)
	to, other := r.Server, r.server
	if r.unknownPeers.isUnknown(id) {
		to, other = other, to
	}
	to.ReceiveMessage(ctx, id, m)
	// A peer can stop or start to be unknown, so the wants that it cancels may be at the
	// other server.
	if back := takenBack(m, other.WantlistForPeer(id)); !back.Empty() {
		other.ReceiveMessage(ctx, id, back)
	}
}

// takenBack returns a message with the cancellations in m, for the server that has the wants in
// held. If m is a complete new list of wants, all wants in held are cancelled. If held is empty,
// the result is empty.
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
