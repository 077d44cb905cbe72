package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
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

	// mu guards members.
	mu      sync.Mutex
	members map[libp2ppeer.ID]*rate.Limiter
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
	return nil
}

func (g *gossipFlow) limiter(id libp2ppeer.ID) *rate.Limiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.members[id]
	if l == nil {
		if len(g.members) >= maxGossipPeers {
			clear(g.members) // members that come and go; each gets its burst again
		}
		l = rate.NewLimiter(gossipRate, gossipBurst)
		g.members[id] = l
	}
	return l
}

// ErrGossipTooLarge is returned by Publish for more than MaxGossip bytes.
var ErrGossipTooLarge = errors.New("gossip message too large")

func newPubSub(ctx context.Context, h host.Host, member func(libp2ppeer.ID) bool, dropped func(int)) (*pubsub.PubSub, error) {
	flow := &gossipFlow{dropped: dropped, members: make(map[libp2ppeer.ID]*rate.Limiter)}
	return pubsub.NewGossipSub(ctx, h,
		pubsub.WithMessageSignaturePolicy(pubsub.StrictSign),
		pubsub.WithFloodPublish(true),
		pubsub.WithMaxMessageSize(gossipMaxMessage),
		pubsub.WithPeerOutboundQueueSize(gossipOutboundQueue),
		pubsub.WithValidateQueueSize(gossipValidateQueue),
		pubsub.WithPeerExchange(false),
		pubsub.WithAppSpecificRpcInspector(flow.inspect),
		pubsub.WithPeerFilter(func(id libp2ppeer.ID, _ string) bool { return member(id) }),
	)
}

// Topic is one subject of gossip among members. A message may be lost: gossip
// is a hint, never the truth.
type Topic struct {
	self  libp2ppeer.ID
	topic *pubsub.Topic
	sub   *pubsub.Subscription
}

// Topic joins and subscribes to a topic. A message is dropped before it is
// passed on unless its signed author is a member and validate accepts it.
// validate runs on many goroutines, also for own messages, and must not block;
// nil accepts all.
func (p *Peer) Topic(name string, validate func(from string, data []byte) bool) (*Topic, error) {
	check := func(_ context.Context, _ libp2ppeer.ID, m *pubsub.Message) bool {
		from := m.GetFrom()
		if len(m.GetData()) > MaxGossip || !p.isMember(from) {
			return false
		}
		return validate == nil || validate(from.String(), m.GetData())
	}
	if err := p.pubsub.RegisterTopicValidator(name, check, pubsub.WithValidatorInline(true)); err != nil {
		return nil, fmt.Errorf("peer: topic %s: %w", name, err)
	}
	t, err := p.pubsub.Join(name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("peer: topic %s: %w", name, err), p.pubsub.UnregisterTopicValidator(name))
	}
	sub, err := t.Subscribe(pubsub.WithBufferSize(gossipBuffer))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("peer: topic %s: %w", name, err), t.Close(), p.pubsub.UnregisterTopicValidator(name))
	}
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
