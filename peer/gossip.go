package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/cache"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"
)

const (
	// MaxGossip is the maximum size of a message, in bytes. pubsub drops larger messages
	// silently, so Publish returns an error for them.
	MaxGossip = 16 << 10

	gossipMaxMessage    = 32 << 10 // bytes including signature and topic
	gossipOutboundQueue = 128      // messages that wait for one member; further messages are dropped
	gossipValidateQueue = 128
	gossipBuffer        = 256 // messages that wait for Next; further messages are dropped

	// Limits of the messages that one member sends or forwards. 256 members together send 128
	// samples a second. Verifying a signature takes 0.1 ms, so the node applies the limits
	// before it verifies.
	gossipRate     = 400 // messages and control messages a second
	gossipBurst    = 1200
	maxGossipPeers = 1024
	gossipRPCParts = 4096 // messages, subscriptions and control entries of one RPC
)

var errGossipFlood = errors.New("more gossip than a member may send")

// gossipFlow limits the messages of each member before their signatures are verified: it drops
// messages above the member's rate.
type gossipFlow struct {
	dropped func(n int) // counts dropped messages

	// mu guards the fields below.
	mu      sync.Mutex
	members *cache.Cache[libp2ppeer.ID, *rate.Limiter] // a member that is removed from this cache gets a new burst
	topics  []string                                   // topics that this node listens to
}

// inspect checks the rate of one RPC. If it returns an error, pubsub drops the RPC.
func (g *gossipFlow) inspect(id libp2ppeer.ID, rpc *pubsub.RPC) error {
	n := max(len(rpc.GetPublish()), 1) + len(rpc.GetSubscriptions())
	if c := rpc.GetControl(); c != nil {
		for _, h := range c.GetIhave() {
			n += len(h.GetMessageIDs())
		}
		for _, w := range c.GetIwant() {
			n += len(w.GetMessageIDs())
		}
		for _, d := range c.GetIdontwant() {
			n += len(d.GetMessageIDs())
		}
		n += len(c.GetIhave()) + len(c.GetIwant()) + len(c.GetIdontwant()) + len(c.GetGraft()) + len(c.GetPrune())
	}
	if n > gossipRPCParts || !g.limiter(id).AllowN(time.Now(), n) {
		g.dropped(n)
		return errGossipFlood
	}
	g.subscribe(rpc)
	return nil
}

// subscribe adds a subscription to an RPC with a message of a topic, because every member
// that publishes to a topic also listens to it. pubsub learns a subscription when the
// stream of a member begins, and forgets it when its own stream to the member breaks. The
// member's stream may still be open then, and pubsub would never send to that member again.
func (g *gossipFlow) subscribe(rpc *pubsub.RPC) {
	if len(rpc.GetSubscriptions()) > 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, topic := range g.topics {
		if slices.ContainsFunc(rpc.GetPublish(), func(m *pb.Message) bool { return m.GetTopic() == topic }) {
			listens := true
			rpc.Subscriptions = append(rpc.Subscriptions, &pb.RPC_SubOpts{Topicid: &topic, Subscribe: &listens})
		}
	}
}

func (g *gossipFlow) join(topic string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.topics = append(g.topics, topic)
}

func (g *gossipFlow) limiter(id libp2ppeer.ID) *rate.Limiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, known := g.members.Get(id)
	if !known {
		l = rate.NewLimiter(gossipRate, gossipBurst)
		g.members.Put(id, l)
	}
	return l
}

// ErrGossipTooLarge means that a message of Publish is larger than MaxGossip.
var ErrGossipTooLarge = errors.New("gossip message too large")

func newGossipFlow(dropped func(int)) *gossipFlow {
	return &gossipFlow{dropped: dropped, members: cache.New[libp2ppeer.ID, *rate.Limiter](maxGossipPeers)}
}

func newPubSub(ctx context.Context, h host.Host, member func(libp2ppeer.ID) bool, flow *gossipFlow, log *slog.Logger) (*pubsub.PubSub, error) {
	return pubsub.NewGossipSub(ctx, h,
		pubsub.WithMessageSignaturePolicy(pubsub.StrictSign),
		pubsub.WithFloodPublish(true),
		pubsub.WithMaxMessageSize(gossipMaxMessage),
		pubsub.WithPeerOutboundQueueSize(gossipOutboundQueue),
		pubsub.WithValidateQueueSize(gossipValidateQueue),
		pubsub.WithPeerExchange(false),
		pubsub.WithAppSpecificRpcInspector(flow.inspect),
		pubsub.WithLogger(slog.New(errorsOnly{log.Handler()}).With("logger", "pubsub")),
		pubsub.WithPeerFilter(func(id libp2ppeer.ID, _ string) bool { return member(id) }),
	)
}

// gossipKeeper restarts gossip with connected members. pubsub gives up on a peer whose
// streams broke five times in ten minutes, until the connection ends. A second process with
// the identity of this node causes that, because the streams of the two end each other.
// Members would then get no more gossip of this node, although everything else works.
type gossipKeeper struct {
	flow    *gossipFlow
	pubsub  *pubsub.PubSub
	updates event.Emitter // an event on this channel makes pubsub open a stream again

	without map[libp2ppeer.ID]bool // connected members that had no gossip stream at the last scan
}

func newGossipKeeper(ctx context.Context, h host.Host, member func(libp2ppeer.ID) bool, dropped func(int), log *slog.Logger) (*gossipKeeper, error) {
	flow := newGossipFlow(dropped)
	ps, err := newPubSub(ctx, h, member, flow, log)
	if err != nil {
		return nil, err
	}
	updates, err := h.EventBus().Emitter(new(event.EvtPeerProtocolsUpdated))
	if err != nil {
		return nil, err
	}
	return &gossipKeeper{flow: flow, pubsub: ps, updates: updates}, nil
}

// scan makes pubsub open a stream to each connected member that has no gossip stream now and had
// none at the last scan. One scan is not enough, because the first stream of a connection takes
// time to open. again is the number of these members.
func (k *gossipKeeper) scan(connected []libp2ppeer.ID) (again int, err error) {
	streams := k.pubsub.ListPeers("")
	before := k.without
	k.without = make(map[libp2ppeer.ID]bool)
	for _, id := range connected {
		if slices.Contains(streams, id) {
			continue
		}
		k.without[id] = true
		if !before[id] {
			continue
		}
		again++
		if err := k.updates.Emit(event.EvtPeerProtocolsUpdated{Peer: id, Added: pubsub.GossipSubDefaultProtocols}); err != nil {
			return again, err
		}
	}
	return again, nil
}

// keepGossip runs one scan of the gossipKeeper.
func (p *Peer) keepGossip(ctx context.Context) {
	members := slices.DeleteFunc(p.cluster.Network().Peers(), func(id libp2ppeer.ID) bool { return !p.isMember(id) })
	again, err := p.gossip.scan(members)
	switch {
	case err != nil:
		p.log.WarnContext(ctx, "cannot restart gossip with members", "err", err)
	case again > 0:
		p.log.DebugContext(ctx, "restarted gossip with members", "members", again)
	}
}

// Topic is a gossip topic of the members. Messages may be lost, so they are hints only.
type Topic struct {
	self  libp2ppeer.ID
	topic *pubsub.Topic
	sub   *pubsub.Subscription
}

// Topic joins and subscribes to a topic. The peer drops a message, and does not forward
// it, unless its signed author is a member and validate accepts it. validate runs on many
// goroutines, also for the node's own messages, and must not block; nil accepts all.
func (p *Peer) Topic(name string, validate func(from string, data []byte) bool) (*Topic, error) {
	check := func(_ context.Context, _ libp2ppeer.ID, m *pubsub.Message) bool {
		from := m.GetFrom()
		if len(m.GetData()) > MaxGossip || !p.isMember(from) {
			return false
		}
		return validate == nil || validate(from.String(), m.GetData())
	}
	if err := p.gossip.pubsub.RegisterTopicValidator(name, check, pubsub.WithValidatorInline(true)); err != nil {
		return nil, fmt.Errorf("peer: topic %s: %w", name, err)
	}
	t, err := p.gossip.pubsub.Join(name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("peer: topic %s: %w", name, err), p.gossip.pubsub.UnregisterTopicValidator(name))
	}
	sub, err := t.Subscribe(pubsub.WithBufferSize(gossipBuffer))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("peer: topic %s: %w", name, err), t.Close(), p.gossip.pubsub.UnregisterTopicValidator(name))
	}
	p.gossip.flow.join(name)
	return &Topic{self: p.id, topic: t, sub: sub}, nil
}

// Publish sends data to the connected members. It returns ErrGossipTooLarge if data has more
// than MaxGossip bytes, and an error if the validate function of Peer.Topic refuses data.
func (t *Topic) Publish(ctx context.Context, data []byte) error {
	if len(data) > MaxGossip {
		return fmt.Errorf("peer: publish: %w: %d bytes, at most %d", ErrGossipTooLarge, len(data), MaxGossip)
	}
	if err := t.topic.Publish(ctx, data); err != nil {
		return fmt.Errorf("peer: publish: %w", err)
	}
	return nil
}

// Next waits for the next message of another member. It returns an error if ctx ends or the
// Peer is closed.
func (t *Topic) Next(ctx context.Context) (from string, data []byte, err error) {
	for {
		m, err := t.sub.Next(ctx)
		if err != nil {
			return "", nil, fmt.Errorf("peer: next gossip: %w", err)
		}
		if author := m.GetFrom(); author != t.self {
			return author.String(), m.GetData(), nil
		}
	}
}

// Members returns the peer ids of the members that listen to the topic, as far as this node knows.
func (t *Topic) Members() []string {
	ids := t.topic.ListPeers()
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}
