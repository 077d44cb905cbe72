//go:build conformance

package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ipfs/boxo/bitswap/message"
	pb "github.com/ipfs/boxo/bitswap/message/pb"
	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// bitswap is the protocol of the IPFS network that unknown peers speak.
const bitswap = protocol.ID("/ipfs/bitswap/1.2.0")

// answerWithin bounds how long a node may take to answer one want.
const answerWithin = 20 * time.Second

// unknownPeer is a peer of the IPFS network that asks a node for blocks and writes
// down what it answers.
type unknownPeer struct {
	host    host.Host
	answers chan message.BitSwapMessage
}

func newUnknownPeer(t *testing.T, options ...libp2p.Option) *unknownPeer {
	t.Helper()
	h, err := libp2p.New(append([]libp2p.Option{libp2p.NoListenAddrs, libp2p.DisableMetrics()}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	s := &unknownPeer{host: h, answers: make(chan message.BitSwapMessage, 64)}
	h.SetStreamHandler(bitswap, func(in network.Stream) {
		defer in.Close()
		for {
			m, _, err := message.FromNet(in)
			if err != nil {
				return
			}
			select {
			case s.answers <- m:
			default: // nobody asks any more
			}
		}
	})
	t.Cleanup(func() { h.Close() })
	return s
}

// publicOf returns the address of a node's public host.
func publicOf(t *testing.T, n *harness.Node) peer.AddrInfo {
	t.Helper()
	info, err := peer.AddrInfoFromString(n.Status().Node.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	return *info
}

// ask sends one want for c and returns what comes: "have", "block" or "none". A small block
// is the answer to want-have already, and boxo's engine passes over what is asked for again
// before it has noted that the block was sent: so who has no answer asks once more.
func (s *unknownPeer) ask(t *testing.T, node peer.AddrInfo, c cid.Cid, want pb.Message_Wantlist_WantType) string {
	t.Helper()
	for i := 1; ; i++ {
		got, err := s.try(t.Context(), node, c, want)
		if err == nil {
			return got
		}
		if i == askedAgain || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
}

func (s *unknownPeer) try(ctx context.Context, node peer.AddrInfo, c cid.Cid, want pb.Message_Wantlist_WantType) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	m := message.New(true) // the whole list: what was asked before is forgotten
	m.AddEntry(c, 1, want, true)
	if err := s.send(ctx, node, m); err != nil {
		return "", err
	}
	for {
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("no answer for %s: %w", c, ctx.Err())
		case a := <-s.answers:
			for _, b := range a.Blocks() {
				if b.Cid().Equals(c) {
					return "block", nil
				}
			}
			for _, p := range a.BlockPresences() {
				if p.Cid.Equals(c) {
					return map[bool]string{true: "have", false: "none"}[p.Type == pb.Message_Have], nil
				}
			}
		}
	}
}

// askedAgain is how often an unknown peer asks. Of one that asks for much what it takes is
// bounded, and an answer may be lost with the connection that is cut for that.
const askedAgain = 3

// seesAtLast is sees for who asks for so much that an answer may not come.
func (s *unknownPeer) seesAtLast(t *testing.T, n *harness.Node, c cid.Cid) bool {
	t.Helper()
	node := publicOf(t, n)
	for i := 1; ; i++ {
		have, err := s.try(t.Context(), node, c, pb.Message_Wantlist_Have)
		var block string
		if err == nil {
			block, err = s.try(t.Context(), node, c, pb.Message_Wantlist_Block)
		}
		if err == nil && (have == "none") != (block == "none") && i < askedAgain {
			continue // it changed in between
		}
		switch {
		case err == nil && (have == "none") != (block == "none"):
			t.Errorf("%s answers %q to want-have and %q to want-block for %s", n.Name, have, block, c)
			return block == "block"
		case err == nil:
			return block == "block"
		case i == askedAgain:
			t.Fatal(err)
		}
		t.Logf("%s: asked again: %v", n.Name, err)
	}
}

// sees asks for c in both ways; both must say the same.
func (s *unknownPeer) sees(t *testing.T, n *harness.Node, c cid.Cid) bool {
	t.Helper()
	node := publicOf(t, n)
	have, block := s.ask(t, node, c, pb.Message_Wantlist_Have), s.ask(t, node, c, pb.Message_Wantlist_Block)
	if (have == "none") != (block == "none") {
		t.Errorf("%s answers %q to want-have and %q to want-block for %s", n.Name, have, block, c)
	}
	return block == "block"
}

// given tells whether a node gives an unknown peer a block or says that it has it. Between the two
// questions the node may change its mind, where content comes or goes.
func (s *unknownPeer) given(t *testing.T, n *harness.Node, c cid.Cid) bool {
	t.Helper()
	node := publicOf(t, n)
	return s.ask(t, node, c, pb.Message_Wantlist_Have) != "none" || s.ask(t, node, c, pb.Message_Wantlist_Block) != "none"
}

// served fails unless every node gives an unknown peer all of these, or none.
func (s *unknownPeer) served(t *testing.T, c *harness.Cluster, want bool, cids []cid.Cid) {
	t.Helper()
	for _, n := range c.Nodes {
		for _, k := range cids {
			if got := s.seesAtLast(t, n, k); got != want {
				t.Errorf("%s gives an unknown peer %s: %v, want %v", n.Name, k, got, want)
			}
		}
	}
}

// soon waits until every node gives an unknown peer all of these, or none.
func (s *unknownPeer) soon(t *testing.T, c *harness.Cluster, want bool, cids []cid.Cid) {
	t.Helper()
	harness.Eventually(t, pinnedWithin, fmt.Sprintf("unknown peers are served: %v", want), func() (bool, error) {
		for _, n := range c.Nodes {
			for _, k := range cids {
				if s.seesAtLast(t, n, k) != want {
					return false, fmt.Errorf("%s, %s", n.Name, k)
				}
			}
		}
		return true, nil
	})
}

// wantsAtOnce is how many wants an unknown peer puts into one message: a node remembers
// some more of one peer.
const wantsAtOnce = 512

// haves asks whether a node has these, many in a message.
func (s *unknownPeer) haves(ctx context.Context, node peer.AddrInfo, cids []cid.Cid) (map[cid.Cid]bool, error) {
	have := make(map[cid.Cid]bool, len(cids))
	for page := range slices.Chunk(cids, wantsAtOnce) {
		if err := s.page(ctx, node, page, have); err != nil {
			return nil, err
		}
	}
	return have, nil
}

// page asks whether a node has these, in one message. To say so of small blocks it reads
// them all, each from where it lies on the disk.
func (s *unknownPeer) page(ctx context.Context, node peer.AddrInfo, cids []cid.Cid, have map[cid.Cid]bool) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	m := message.New(true)
	open := make(map[cid.Cid]bool, len(cids))
	for _, c := range cids {
		m.AddEntry(c, 1, pb.Message_Wantlist_Have, true)
		open[c] = true
	}
	if err := s.send(ctx, node, m); err != nil {
		return err
	}
	for len(open) > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d wants without an answer: %w", len(open), len(cids), ctx.Err())
		case a := <-s.answers:
			for _, p := range a.BlockPresences() {
				have[p.Cid] = p.Type == pb.Message_Have
				delete(open, p.Cid)
			}
			for _, b := range a.Blocks() { // which a small one is answered with
				have[b.Cid()] = true
				delete(open, b.Cid())
			}
		}
	}
	return nil
}

// send connects, and sends a message on a stream of its own.
func (s *unknownPeer) send(ctx context.Context, node peer.AddrInfo, m message.BitSwapMessage) error {
	if err := s.host.Connect(ctx, node); err != nil {
		return err
	}
	out, err := s.host.NewStream(ctx, node.ID, bitswap)
	if err != nil {
		return err
	}
	defer out.Close()
	return m.ToNetV1(out)
}
