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
	// MaxGossip is the largest message of Publish, in bytes. pubsub drops what
	// it finds too large without a word, so Publish refuses it aloud.
	MaxGossip = 16 << 10

	gossipMaxMessage    = 32 << 10 // with signature and topic
	gossipOutboundQueue = 128      // messages for one member; more are dropped
	gossipValidateQueue = 128
	gossipBuffer        = 256 // messages that wait for Next; more are dropped

	// What one member may send, its own and what it passes on: the samples of
	// 256 members are 128 a second. A signature costs a tenth of a millisecond,
	// so a member that floods is stopped before its messages are looked at.
	gossipRate     = 400 // messages and control messages a second
	gossipBurst    = 1200
	maxGossipPeers = 1024
	gossipRPCParts = 4096 // messages, subscriptions and control entries of one RPC
)

var errGossipFlood = errors.New("more gossip than a member may send")

// gossipFlow drops what a member sends beyond its rate, before any signature of
// it is verified.
type gossipFlow struct {
	dropped func(n int) // counts

	// mu guards what follows.
	mu      sync.Mutex
	members *cache.Cache[libp2ppeer.ID, *rate.Limiter] // who is forgotten gets a burst again
	topics  []string                                   // that this node listens to
}

// inspect judges one RPC. An error drops it.
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

// subscribe has pubsub know that who speaks of a topic listens to it, as all members do.
// It was told so when the member's stream began, and forgets it when its own stream to
// the member breaks, which need not be the end of the member's: then nothing would be
// sent to the member any more.
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

// ErrGossipTooLarge is returned by Publish for more than MaxGossip bytes.
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

// gossipKeeper has gossip go on with members that are connected. pubsub gives one up whose
// streams broke five times in ten minutes, for as long as the connection stands: what a
// second process with this node's identity does, as each stream of the one ends the
// other's. Nobody would hear this node there any more, although everything else works.
type gossipKeeper struct {
	flow   *gossipFlow
	pubsub *pubsub.PubSub
	tell   event.Emitter // what makes pubsub look at a peer again

	without map[libp2ppeer.ID]bool // who had no stream at the last look
}

func newGossipKeeper(ctx context.Context, h host.Host, member func(libp2ppeer.ID) bool, dropped func(int), log *slog.Logger) (*gossipKeeper, error) {
	flow := newGossipFlow(dropped)
	ps, err := newPubSub(ctx, h, member, flow, log)
	if err != nil {
		return nil, err
	}
	tell, err := h.EventBus().Emitter(new(event.EvtPeerProtocolsUpdated))
	if err != nil {
		return nil, err
	}
	return &gossipKeeper{flow: flow, pubsub: ps, tell: tell}, nil
}

// look opens a stream to every one of the connected members to whom there was none at the
// last look either: opening the first one takes its time. It returns how many those are.
func (k *gossipKeeper) look(connected []libp2ppeer.ID) (again int, err error) {
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
		if err := k.tell.Emit(event.EvtPeerProtocolsUpdated{Peer: id, Added: pubsub.GossipSubDefaultProtocols}); err != nil {
			return again, err
		}
	}
	return again, nil
}

// keepGossip is one look of the keeper.
func (p *Peer) keepGossip(ctx context.Context) {
	members := slices.DeleteFunc(p.cluster.Network().Peers(), func(id libp2ppeer.ID) bool { return !p.isMember(id) })
	again, err := p.gossip.look(members)
	switch {
	case err != nil:
		p.log.WarnContext(ctx, "cannot restart gossip with members", "err", err)
	case again > 0:
		p.log.DebugContext(ctx, "restarted gossip with members", "members", again)
	}
}

// Topic is one gossip topic of the members. Messages may be lost, so they are hints and
// not authoritative.
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

// Publish sends data to the members that are connected.
func (t *Topic) Publish(ctx context.Context, data []byte) error {
	if len(data) > MaxGossip {
		return fmt.Errorf("peer: publish: %w: %d bytes, at most %d", ErrGossipTooLarge, len(data), MaxGossip)
	}
	if err := t.topic.Publish(ctx, data); err != nil {
		return fmt.Errorf("peer: publish: %w", err)
	}
	return nil
}

// Next waits for the next message of another member. It ends with ctx, or with
// an error when the Peer is closed.
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

// Members returns the peer ids of the members known to listen to the topic.
func (t *Topic) Members() []string {
	ids := t.topic.ListPeers()
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}
