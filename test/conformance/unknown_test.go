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
		for i := 1; ; i++ {
			err := s.gets(t, n, want, cids)
			if err == nil {
				break
			}
			if i == askedAgain || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
	}
}

// soon waits until every node gives an unknown peer all of these, or none.
func (s *unknownPeer) soon(t *testing.T, c *harness.Cluster, want bool, cids []cid.Cid) {
	t.Helper()
	harness.Eventually(t, pinnedWithin, fmt.Sprintf("unknown peers are served: %v", want), func() (bool, error) {
		for _, n := range c.Nodes {
			if err := s.gets(t, n, want, cids); err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// gets returns an error unless a node says that it has all of these, or that it has none, and
// gives what it has. Of what it has it is asked for the first and the last block alone: what one
// unknown peer takes is bounded.
func (s *unknownPeer) gets(t *testing.T, n *harness.Node, want bool, cids []cid.Cid) error {
	t.Helper()
	node := publicOf(t, n)
	blocks := cids
	if want {
		blocks = slices.Compact([]cid.Cid{cids[0], cids[len(cids)-1]})
	}
	for kind, asked := range map[pb.Message_Wantlist_WantType][]cid.Cid{pb.Message_Wantlist_Have: cids, pb.Message_Wantlist_Block: blocks} {
		got := make(map[cid.Cid]bool, len(asked))
		if err := s.page(t.Context(), node, asked, kind, got); err != nil {
			return fmt.Errorf("%s, %s: %w", n.Name, kind, err)
		}
		for k, has := range got {
			if has != want {
				return fmt.Errorf("%s answers an unknown peer's %s for %s: %t, want %t", n.Name, kind, k, has, want)
			}
		}
	}
	return nil
}

// wantsAtOnce is how many wants an unknown peer puts into one message: a node remembers
// some more of one peer.
const wantsAtOnce = 512

// haves asks whether a node has these, many in a message.
func (s *unknownPeer) haves(ctx context.Context, node peer.AddrInfo, cids []cid.Cid) (map[cid.Cid]bool, error) {
	have := make(map[cid.Cid]bool, len(cids))
	for page := range slices.Chunk(cids, wantsAtOnce) {
		if err := s.page(ctx, node, page, pb.Message_Wantlist_Have, have); err != nil {
			return nil, err
		}
	}
	return have, nil
}

// page asks whether a node has these, or for them, in one message. To say so of small blocks it
// reads them all, each from where it lies on the disk.
func (s *unknownPeer) page(ctx context.Context, node peer.AddrInfo, cids []cid.Cid, want pb.Message_Wantlist_WantType, have map[cid.Cid]bool) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	m := message.New(true)
	open := make(map[cid.Cid]bool, len(cids))
	for _, c := range cids {
		m.AddEntry(c, 1, want, true)
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
