package peer

import (
	"encoding/binary"
	"testing"

	blocks "github.com/ipfs/go-block-format"
	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/test"
	"github.com/multiformats/go-multiaddr"
)

// ReadBlock gets a block from a member while fetches of DAGs use all streams to it that they may have.
func TestAReadDoesNotWaitBehindDAGs(t *testing.T) {
	peers, _ := newCluster(t, 2)
	member := peers[1].ID()
	cids := addBlocks(t, peers[1].store, maxStreamsPerMember+1, 1<<10)
	release := make(chan struct{})
	ended := make(chan error, maxStreamsPerMember)
	for i := range maxStreamsPerMember {
		go func() {
			_, err := peers[0].GetBlocks(t.Context(), member, cids[i:i+1], func(blocks.Block) error {
				<-release
				return nil
			})
			ended <- err
		}()
	}
	until(t, "streams are in use", func() bool { return peers[0].pool.busy(member) >= maxBulkStreams })
	data, err := peers[0].ReadBlock(t.Context(), member, cids[maxStreamsPerMember], fresh)
	if err != nil || len(data) != 1<<10 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if busy := peers[0].pool.busy(member); busy != maxBulkStreams {
		t.Errorf("%d streams have DAGs", busy)
	}
	close(release)
	for range maxStreamsPerMember {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A peer that this node has dialled opens at most publicPeerInbound streams. It leaves streams to other peers and to
// this node. It may be an origin that a pin names.
func TestNoPeerHasAllStreams(t *testing.T) {
	limits, err := publicLimits()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = limits.Close() }()
	bad, good := test.RandPeerIDFatal(t), test.RandPeerIDFatal(t)
	conn, err := limits.OpenConnection(network.DirOutbound, true, multiaddr.StringCast("/ip4/192.0.2.1/tcp/4001"))
	if err != nil || conn.SetPeer(bad) != nil {
		t.Fatal(err)
	}
	opened := 0
	for range publicPeerStreams {
		if _, err := limits.OpenStream(bad, network.DirInbound); err == nil {
			opened++
		}
	}
	if opened != publicPeerInbound {
		t.Errorf("%d streams from one peer", opened)
	}
	if _, err := limits.OpenStream(bad, network.DirOutbound); err != nil {
		t.Errorf("to the same peer: %v", err)
	}
	if _, err := limits.OpenStream(good, network.DirInbound); err != nil {
		t.Errorf("from another one: %v", err)
	}
}

// A peer that this node has dialled takes at most peerMessages bytes of the room for messages. It gives all back when
// its streams end.
func TestNoPeerHasAllRoomForMessages(t *testing.T) {
	p := newTestPeer(t, newRoster())
	h, err := libp2p.New(libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"), libp2p.DisableMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	session := p.Session(t.Context(), "one", []string{h.Addrs()[0].String() + "/p2p/" + h.ID().String()})
	defer session.Close()
	until(t, "it is dialled", func() bool { return h.Network().Connectedness(p.id) == network.Connected })
	var streams []network.Stream
	const messages = 2 * peerMessages / network.MessageSizeMax
	for range messages {
		s, err := openStream(t.Context(), h, p.id, "/ipfs/bitswap/1.2.0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(binary.AppendUvarint(nil, network.MessageSizeMax)); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	b := p.bitswapHost
	users := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		if s := b.shares[h.ID()]; s != nil {
			return s.users
		}
		return 0
	}
	until(t, "its messages have room, or wait for it", func() bool { return users() == messages })
	if !b.asked.TryAcquire(messageRoom - peerMessages) {
		t.Error("it has others' room")
	} else {
		b.asked.Release(messageRoom - peerMessages)
	}
	for _, s := range streams {
		if err := s.Reset(); err != nil {
			t.Error(err)
		}
	}
	until(t, "all has ended", func() bool { return users() == 0 })
	if !b.asked.TryAcquire(messageRoom) {
		t.Error("room is not given back")
	}
}
