//go:build conformance

package conformance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pubsubpb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-msgio"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const (
	// samplesTopic is where members tell their load.
	samplesTopic = "/holdfast/samples/1"
	// gossipFor is how long each flood lasts, with floodRate messages a second.
	gossipFor = 4 * time.Second
	floodRate = 10_000
	// floodProcessor is what a flood may cost a node, as a share of a processor:
	// A60 gives it a fifth, and reading it costs the test as much as sending.
	floodProcessor = 0.5
)

// floods are what a member sends that does not keep to the program.
var floods = []struct {
	name string
	rpc  func(f flooder, i int) *pubsubpb.RPC
}{
	{"its own messages", func(f flooder, i int) *pubsubpb.RPC { return f.signed(f.self, i, []byte("no sample")) }},
	{"another member's name", func(f flooder, i int) *pubsubpb.RPC { return f.signed(f.other, i, []byte("no sample")) }},
	{"1 MiB each", func(f flooder, i int) *pubsubpb.RPC { return f.signed(f.self, i, make([]byte, 1<<20)) }},
	{"what was heard, again", func(f flooder, i int) *pubsubpb.RPC { return &pubsubpb.RPC{Publish: f.heard} }},
}

// flooder is a member's identity in the wrong hands.
type flooder struct {
	key         crypto.PrivKey
	self, other peer.ID
	heard       []*pubsubpb.Message
}

// signed returns one message as from sends it, signed by the flooder's own key.
func (f flooder) signed(from peer.ID, i int, data []byte) *pubsubpb.RPC {
	topic := samplesTopic
	m := &pubsubpb.Message{
		From: []byte(from), Data: data, Topic: &topic,
		Seqno: []byte{1, 2, 3, 4, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)},
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil
	}
	if m.Signature, err = f.key.Sign(append([]byte(pubsub.SignPrefix), b...)); err != nil {
		return nil
	}
	return &pubsubpb.RPC{Publish: []*pubsubpb.Message{m}}
}

// flood sends RPCs to a node at floodRate until the time is over, on a new
// stream whenever one is cut, and returns how many it tried and how many were
// taken off its hands.
func (f flooder) flood(ctx context.Context, h host.Host, to peer.AddrInfo, rpc func(f flooder, i int) *pubsubpb.RPC) (tried, sent int, err error) {
	ctx, cancel := context.WithTimeout(ctx, gossipFor)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var out msgio.Writer
	for i := 0; ctx.Err() == nil; i++ {
		if i%(floodRate/1000) == 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return tried, sent, nil
			}
		}
		if out == nil {
			if err := h.Connect(ctx, to); err != nil {
				continue
			}
			s, err := h.NewStream(ctx, to.ID, "/meshsub/1.1.0")
			if err != nil {
				continue
			}
			defer s.Close()
			defer context.AfterFunc(ctx, func() { s.Reset() })()
			out = msgio.NewVarintWriter(s)
		}
		b, err := proto.Marshal(rpc(f, i))
		if err != nil {
			return tried, sent, err
		}
		tried++
		if out.WriteMsg(b) != nil {
			out = nil
			continue
		}
		sent++
	}
	return tried, sent, nil
}

// TestAMemberThatFloodsGossipIsIgnored promises that a flood of gossip by a member's stolen identity costs little,
// and that members' requests and Raft go on (A60). An unknown peer cannot even open the stream, see
// TestAnUnknownPeerOnTheClusterPortGetsNothing.
func TestAMemberThatFloodsGossipIsIgnored(t *testing.T) {
	longForm(t)
	c := harness.Start(t, harness.Options{})
	s := newService(t, c, "gossip@example.org")
	victim := c.Leader()
	stolen := c.Followers()[0]
	stolen.Stop()
	other := c.Followers()[0]
	key, err := os.ReadFile(filepath.Join(stolen.Dir, "identity.key"))
	if err != nil {
		t.Fatal(err)
	}
	f := flooder{}
	if f.key, err = crypto.UnmarshalPrivateKey(key); err != nil {
		t.Fatal(err)
	}
	h, err := libp2p.New(libp2p.NoListenAddrs, libp2p.DisableMetrics(), libp2p.Identity(f.key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	f.self = h.ID()
	if f.other, err = peer.Decode(other.Status().Node.ID); err != nil {
		t.Fatal(err)
	}
	to, err := peer.AddrInfoFromString(victim.Status().Node.ClusterAddrs[0])
	if err != nil {
		t.Fatal(err)
	}
	f.heard = overhear(t, h, *to)

	calm, idle := s.calm(victim, gossipFor)
	t.Logf("without a flood: %s of processor time in %s; commits p99 %s (%d)", idle, gossipFor, calm.p99(), len(calm.writes))
	for _, tc := range floods {
		t.Run(tc.name, func(t *testing.T) {
			c, s, victim := c.As(t), s.as(t), victim.As(t)
			votes, memory := c.LogLines(`msg="leader changed"`), victim.ResidentBytes()
			dropped := victim.Metrics()["holdfast_peer_gossip_dropped_total"]
			used := victim.ProcessorTime()
			var tried, sent int
			var rough load
			under := strained(t, c, func() {
				rough = during(s, func() { tried, sent, err = f.flood(t.Context(), h, *to, tc.rpc) })
			})
			if err != nil {
				t.Fatal(err)
			}
			used = victim.ProcessorTime() - used
			dropped = victim.Metrics()["holdfast_peer_gossip_dropped_total"] - dropped
			grown := victim.ResidentBytes() - memory
			t.Logf("%d tried, %d sent, %.0f dropped for the rate; %s of processor time; %d MiB more; commits p99 %s (%d)",
				tried, sent, dropped, used, grown>>20, rough.p99(), len(rough.writes))
			if err := errors.Join(rough.errs...); err != nil {
				t.Errorf("members' requests fail: %v", err)
			}
			if n := c.LogLines(`msg="leader changed"`) - votes; n > 0 && !under.busy() {
				t.Errorf("%d elections in the flood, and the machine was not busy: %+v", n, under)
			}
			if limit := idle + time.Duration(floodProcessor*float64(gossipFor)); used > limit {
				t.Errorf("the flood cost %s of processor time in %s, want at most %s", used, gossipFor, limit)
			}
			if grown > 64<<20 || tried == 0 {
				t.Errorf("%d tried, and the node grew by %d MiB", tried, grown>>20)
			}
		})
	}
	// Nobody was made a fool: the others are seen alive, the stolen one is not.
	harness.Eventually(t, pinnedWithin, "the members see who is there", func() (bool, error) {
		alive := 0
		for _, p := range victim.Status().Peers {
			if p.State == "alive" {
				alive++
			}
			if p.ID == f.self.String() && p.State == "alive" {
				return false, errors.New("the stopped node seems alive")
			}
		}
		return alive == 2, nil
	})
}

// overhear joins the topic as a member may and returns a message of another.
func overhear(t *testing.T, h host.Host, to peer.AddrInfo) []*pubsubpb.Message {
	t.Helper()
	var mu sync.Mutex
	var heard []*pubsubpb.Message
	var streams atomic.Int64
	h.SetStreamHandler("/meshsub/1.1.0", func(s network.Stream) {
		streams.Add(1)
		r := msgio.NewVarintReaderSize(s, 1<<20)
		for {
			b, err := r.ReadMsg()
			if err != nil {
				return
			}
			var rpc pubsubpb.RPC
			if proto.Unmarshal(b, &rpc) == nil {
				mu.Lock()
				heard = append(heard, rpc.GetPublish()...)
				mu.Unlock()
			}
			r.ReleaseMsg(b)
		}
	})
	if err := h.Connect(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	s, err := h.NewStream(t.Context(), to.ID, "/meshsub/1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	topic, subscribe := samplesTopic, true
	hello := &pubsubpb.RPC{
		Subscriptions: []*pubsubpb.RPC_SubOpts{{Subscribe: &subscribe, Topicid: &topic}},
		Control:       &pubsubpb.ControlMessage{Graft: []*pubsubpb.ControlGraft{{TopicID: &topic}}},
	}
	b, err := proto.Marshal(hello)
	if err != nil {
		t.Fatal(err)
	}
	if err := msgio.NewVarintWriter(s).WriteMsg(b); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, pinnedWithin, "a message is overheard", func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return len(heard) > 0, nil
	})
	mu.Lock()
	defer mu.Unlock()
	return []*pubsubpb.Message{heard[0]}
}
