//go:build conformance

package conformance

import (
	"context"
	"fmt"
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

// bitswap is the protocol of the IPFS network that strangers speak.
const bitswap = protocol.ID("/ipfs/bitswap/1.2.0")

// answerWithin bounds how long a node may take to answer one want.
const answerWithin = 20 * time.Second

// stranger is a peer of the IPFS network that asks a node for blocks and writes
// down what it answers.
type stranger struct {
	host    host.Host
	answers chan message.BitSwapMessage
}

func newStranger(t *testing.T, options ...libp2p.Option) *stranger {
	t.Helper()
	h, err := libp2p.New(append([]libp2p.Option{libp2p.NoListenAddrs, libp2p.DisableMetrics()}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	s := &stranger{host: h, answers: make(chan message.BitSwapMessage, 64)}
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

// publicOf is the address of a node's public host.
func publicOf(t *testing.T, n *harness.Node) peer.AddrInfo {
	t.Helper()
	info, err := peer.AddrInfoFromString(n.Status().Node.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	return *info
}

// ask sends one want for c and returns what comes: "have", "block" or "none".
func (s *stranger) ask(t *testing.T, node peer.AddrInfo, c cid.Cid, want pb.Message_Wantlist_WantType) string {
	t.Helper()
	got, err := s.try(t.Context(), node, c, want)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (s *stranger) try(ctx context.Context, node peer.AddrInfo, c cid.Cid, want pb.Message_Wantlist_WantType) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := s.host.Connect(ctx, node); err != nil {
		return "", err
	}
	out, err := s.host.NewStream(ctx, node.ID, bitswap)
	if err != nil {
		return "", err
	}
	defer out.Close()
	m := message.New(true) // the whole list: what was asked before is forgotten
	m.AddEntry(c, 1, want, true)
	if err := m.ToNetV1(out); err != nil {
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

// askedAgain is how often a stranger asks that asks for much: what it takes is
// bounded, and an answer may be lost with the connection that is cut for that.
const askedAgain = 3

// seesAtLast is sees for who asks for so much that an answer may not come.
func (s *stranger) seesAtLast(t *testing.T, n *harness.Node, c cid.Cid) bool {
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
func (s *stranger) sees(t *testing.T, n *harness.Node, c cid.Cid) bool {
	t.Helper()
	node := publicOf(t, n)
	have, block := s.ask(t, node, c, pb.Message_Wantlist_Have), s.ask(t, node, c, pb.Message_Wantlist_Block)
	if (have == "none") != (block == "none") {
		t.Errorf("%s answers %q to want-have and %q to want-block for %s", n.Name, have, block, c)
	}
	return block == "block"
}
