package peer

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/boxo/bitswap/message"
	pb "github.com/ipfs/boxo/bitswap/message/pb"
	"github.com/ipfs/boxo/bitswap/network"
	"github.com/ipfs/go-cid"
	corenet "github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// sentNetwork notes when messages are sent.
type sentNetwork struct {
	network.BitSwapNetwork
	sent []time.Time
}

func (n *sentNetwork) SendMessage(context.Context, libp2ppeer.ID, message.BitSwapMessage) error {
	n.sent = append(n.sent, time.Now())
	return nil
}

// Unknown peers together get blocks at ServeRate; members and peers that this node has dialled do not wait.
func TestUnknownPeersAreServedNoFasterThanTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1 << 20
		s, _ := door("member")
		inner := &sentNetwork{}
		n := &slowNetwork{
			BitSwapNetwork: inner, unknownPeers: s, served: newServeLimiter(rate),
			bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "bytes"}),
		}
		m := message.New(false)
		b, err := peertest.Block(cid.Raw, peertest.Bytes(1, 2<<20)) // more than may go at once
		if err != nil {
			t.Fatal(err)
		}
		m.AddBlock(b)
		took := func(id libp2ppeer.ID, messages int) time.Duration {
			start := time.Now()
			for range messages {
				if err := n.SendMessage(t.Context(), id, m); err != nil {
					t.Fatal(err)
				}
			}
			return time.Since(start).Round(time.Second)
		}
		if d := took("member", 10); d != 0 {
			t.Errorf("a member waits %s", d)
		}
		if d := took("p", 5) + took("q", 5); d != 20*time.Second {
			t.Errorf("20 MiB for unknown peers take %s, want 20 s", d)
		}
		c, err := knock(s, corenet.DirOutbound, "203.0.113.1")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetPeer("p"); err != nil {
			t.Fatal(err)
		}
		if d := took("p", 10); d != 0 {
			t.Errorf("a peer that was dialled waits %s", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := n.SendMessage(ctx, "q", m); err == nil {
			t.Error("sent without the share")
		}
		if len(inner.sent) != 30 {
			t.Errorf("%d messages of 30", len(inner.sent))
		}
	})
}

// A peer that this node has dialled gets three blocks of 1 MiB before the share of unknown peers would have carried
// them, while unknown peers fill all workers. The wants of
// unknown peers are not with those of others.
func TestAnswersForDialledPeersAreNotBehindThoseForUnknownPeers(t *testing.T) {
	const rate = 64 << 10
	p := newTestPeer(t, newRoster(), func(o *Options) { o.ServeRate = rate })
	held := addBlocks(t, p.store, 4*serveWorkers, 1<<20)
	for range 2 {
		h := newUnknownPeer(t, nil)
		if err := h.Connect(t.Context(), target(t, p.Addrs())); err != nil {
			t.Fatal(err)
		}
		s, err := openStream(t.Context(), h, p.id, "/ipfs/bitswap/1.2.0")
		if err != nil {
			t.Fatal(err)
		}
		m := message.New(true)
		for i, c := range held { // a message has no order but this
			m.AddEntry(c, int32(len(held)-i), pb.Message_Wantlist_Block, true)
		}
		if err := m.ToNetV1(s); err != nil {
			t.Fatal(err)
		}
		until(t, "its wants to wait", func() bool { return len(p.serve.WantlistForPeer(h.ID())) > serveWorkers })
		if n := len(p.bitswap.Server.WantlistForPeer(h.ID())); n > 0 {
			t.Errorf("%d wants of an unknown peer are with those of others", n)
		}
		// What it takes back is forgotten, wherever it was.
		if !slices.Contains(p.serve.WantlistForPeer(h.ID()), held[len(held)-1]) {
			t.Error("the last want is served first")
		}
	}
	asked := peertest.NewForeign(t)
	if err := p.public.Connect(t.Context(), target(t, asked.Addrs())); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second) // of the unknown peers' answers 2.5 MiB
	defer cancel()
	for _, c := range held[:3] { // 3 MiB, 48 s of the unknown peers' share
		if _, err := asked.Block(ctx, c); err != nil {
			t.Fatal("behind unknown peers:", err)
		}
	}
}

// A peer that has become a member since its request takes its wants back, one or all, from the server that has them.
func TestWantsAreTakenBackWhereTheyAre(t *testing.T) {
	for range 5 {
		if takesBackWants(t) {
			return
		}
	}
	t.Error("all wants were gone each time before one was taken back")
}

// takesBackWants is false if a share of the unknown peers, of which there is one a second,
// came after the peer had become a member: then everything that it wants goes out at once.
func takesBackWants(t *testing.T) bool {
	t.Helper()
	roster := newRoster()
	p := newTestPeer(t, roster, func(o *Options) { o.ServeRate = 1 })
	held := addBlocks(t, p.store, 2*serveWorkers, 1<<20)
	h := newUnknownPeer(t, nil)
	if err := h.Connect(t.Context(), target(t, p.Addrs())); err != nil {
		t.Fatal(err)
	}
	s, err := openStream(t.Context(), h, p.id, "/ipfs/bitswap/1.2.0")
	if err != nil {
		t.Fatal(err)
	}
	send := func(m message.BitSwapMessage) {
		t.Helper()
		if err := m.ToNetV1(s); err != nil {
			t.Fatal(err)
		}
	}
	want := message.New(false)
	for _, c := range held {
		want.AddEntry(c, 1, pb.Message_Wantlist_Block, true)
	}
	waits := func() []cid.Cid { return p.serve.WantlistForPeer(h.ID()) }
	send(want)
	until(t, "its wants to wait", func() bool { return len(waits()) > serveWorkers })
	roster.set(h.ID().String(), true)
	before := waits()
	if len(before) == 0 {
		return false
	}
	last := before[len(before)-1]
	one := message.New(false)
	one.Cancel(last)
	send(one)
	until(t, "one want to be taken back", func() bool { return !slices.Contains(waits(), last) })
	if len(waits()) == 0 {
		return false
	}
	all := message.New(true)
	absent, err := peertest.Block(cid.Raw, []byte("not here"))
	if err != nil {
		t.Fatal(err)
	}
	all.AddEntry(absent.Cid(), 1, pb.Message_Wantlist_Block, false)
	send(all)
	until(t, "all wants to be taken back", func() bool { return len(waits()) == 0 })
	return true
}
