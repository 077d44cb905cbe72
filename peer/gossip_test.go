package peer

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pubsubpb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/host"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-msgio"
	"google.golang.org/protobuf/proto"
)

const gossipSubject = "/holdfast/test/gossip"

// say sends RPCs to a peer as a host that does what it likes.
func say(t *testing.T, h host.Host, to testPeer, rpcs ...*pubsubpb.RPC) {
	t.Helper()
	s, err := openStream(t.Context(), h, to.id, "/meshsub/1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	w := msgio.NewVarintWriter(s)
	for _, rpc := range rpcs {
		b, err := proto.Marshal(rpc)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteMsg(b); err != nil {
			return // it was cut, which is an answer
		}
	}
}

// A node drops gossip without a valid signature, and larger gossip than allowed, before its validator. It takes a
// signed message of the same stream.
func TestGossipThatIsNotGenuineIsDropped(t *testing.T) {
	peers, r := newCluster(t, 2)
	a, b := peers[0], peers[1]
	const genuine = 20 // bytes, which no other has here
	var judged atomic.Int64
	topics := make([]*Topic, len(peers))
	for i, p := range peers {
		var err error
		if topics[i], err = p.Topic(gossipSubject, func(_ string, data []byte) bool {
			if len(data) != genuine {
				judged.Add(1)
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the members hear each other", func() bool { return len(topics[1].Members()) == 1 && len(topics[0].Members()) == 1 })
	// A member that does not keep to the program: its identity, and anything on the wire.
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	h := newUnknownPeer(t, key)
	r.set(h.ID().String(), true)
	if err := h.Connect(t.Context(), target(t, a.ClusterAddrs())); err != nil {
		t.Fatal(err)
	}
	topic := gossipSubject
	message := func(from libp2ppeer.ID, seq byte, signature []byte, size int) *pubsubpb.RPC {
		return &pubsubpb.RPC{Publish: []*pubsubpb.Message{{
			From: []byte(from), Data: make([]byte, size), Seqno: []byte{0, 0, 0, 0, 0, 0, 0, seq}, Topic: &topic, Signature: signature,
		}}}
	}
	signed := message(h.ID(), 6, nil, genuine)
	priv, _, err := parseKey(key)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := proto.Marshal(signed.Publish[0])
	if err != nil {
		t.Fatal(err)
	}
	if signed.Publish[0].Signature, err = priv.Sign(append([]byte(pubsub.SignPrefix), plain...)); err != nil {
		t.Fatal(err)
	}
	say(t, h, a, message(h.ID(), 5, make([]byte, 64), 1<<20)) // larger than any
	say(t, h, a,
		message(b.id, 1, nil, 10),                // another member's name without a signature
		message(b.id, 2, make([]byte, 64), 10),   // with a bad one
		message(h.ID(), 3, make([]byte, 64), 10), // its own name with a bad one
		message("", 4, nil, 10),                  // nobody's
		signed,                                   // genuine: all before it on this stream were judged
		signed,                                   // and again
	)
	from, data, err := topics[0].Next(t.Context())
	if err != nil || from != h.ID().String() || len(data) != genuine {
		t.Fatal(from, len(data), err)
	}
	if n := judged.Load(); n != 0 {
		t.Errorf("%d messages that are not genuine came as far as the validator", n)
	}
}

// A member may send gossipBurst messages at once and gossipRate in each further second. The limit of one member does
// not touch another. An RPC of gossipRPCParts parts is dropped, and at most maxGossipPeers members are remembered.
func TestAMemberThatFloodsIsStoppedBeforeItCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropped := 0
		g := newGossipFlow(func(n int) { dropped += n })
		one := &pubsub.RPC{RPC: pubsubpb.RPC{Publish: make([]*pubsubpb.Message, 1)}}
		passed := func(id libp2ppeer.ID, rpc *pubsub.RPC, n int) (ok int) {
			for range n {
				if g.inspect(id, rpc) == nil {
					ok++
				}
			}
			return ok
		}
		if n := passed("flood", one, 10_000); n != gossipBurst || dropped != 10_000-n {
			t.Errorf("%d of 10,000 pass at once, %d dropped", n, dropped)
		}
		<-time.After(time.Second)
		if n := passed("flood", one, 10_000); n != gossipRate {
			t.Errorf("%d of 10,000 pass a second later", n)
		}
		if n := passed("other", one, 10); n != 10 {
			t.Errorf("another member gets %d of 10 through", n)
		}
		ids := &pubsub.RPC{RPC: pubsubpb.RPC{Control: &pubsubpb.ControlMessage{
			Ihave: []*pubsubpb.ControlIHave{{MessageIDs: make([]string, gossipRPCParts)}},
		}}}
		if n := passed("announces", ids, 1); n != 0 {
			t.Error("an RPC of so many parts passes")
		}
		for i := range 3 * maxGossipPeers {
			passed(libp2ppeer.ID(fmt.Sprint(i)), one, 1)
		}
		if n := g.members.Len(); n > maxGossipPeers {
			t.Errorf("%d members are remembered", n)
		}
	})
}

// Two members receive each other's gossip again after a second process with the identity of one of them has ended.
// The second process ends the member's streams of gossip until the member gives up.
func TestAMemberIsHeardAgainAfterItsClone(t *testing.T) {
	peers, _ := newCluster(t, 2)
	a, b := peers[0], peers[1]
	topics := make([]*Topic, len(peers))
	for i, p := range peers {
		var err error
		if topics[i], err = p.Topic(gossipSubject, nil); err != nil {
			t.Fatal(err)
		}
	}
	hear := func() bool { return len(topics[0].Members()) == 1 && len(topics[1].Members()) == 1 }
	until(t, "the members hear each other", hear)
	clone := newUnknownPeer(t, b.opts.Key)
	if err := clone.Connect(t.Context(), target(t, a.ClusterAddrs())); err != nil {
		t.Fatal(err)
	}
	until(t, "the member gives the other up", func() bool {
		if s, err := openStream(t.Context(), clone, a.id, "/meshsub/1.1.0"); err == nil {
			_ = s.Reset()
		}
		return !slices.Contains(b.gossip.pubsub.ListPeers(""), a.id)
	})
	if !b.Connected(a.ID()) {
		t.Fatal("the connection of the member ended")
	}
	if err := clone.Close(); err != nil {
		t.Fatal(err)
	}
	heard := make([]atomic.Value, len(topics))
	for i, topic := range topics {
		go func() {
			if from, _, err := topic.Next(t.Context()); err == nil {
				heard[i].Store(from)
			}
		}()
	}
	until(t, "the members hear each other again", func() bool { // they say something now and then
		for _, topic := range topics {
			if err := topic.Publish(t.Context(), []byte("sample")); err != nil {
				t.Fatal(err)
			}
		}
		return heard[0].Load() == b.ID() && heard[1].Load() == a.ID()
	})
}
