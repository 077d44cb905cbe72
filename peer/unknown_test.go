package peer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/boxo/bitswap/message"
	pb "github.com/ipfs/boxo/bitswap/message/pb"
	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// door returns an unknownPeers over a resource manager without limits.
func door(trusted ...libp2ppeer.ID) (s *unknownPeers, refused *int) {
	refused = new(int)
	return newUnknownPeers(&network.NullResourceManager{}, func(id libp2ppeer.ID) bool {
		for _, t := range trusted {
			if t == id {
				return true
			}
		}
		return false
	}, func() { *refused++ }), refused
}

func knock(s *unknownPeers, dir network.Direction, ip string) (network.ConnManagementScope, error) {
	return s.OpenConnection(dir, true, ma.StringCast("/ip4/"+ip+"/tcp/4001"))
}

// At most unknownPending handshakes of unknown peers run at once. Dials of this node and a member's address do not
// count. A handshake that has ended makes room for another.
func TestHandshakesOfUnknownPeersAreBounded(t *testing.T) {
	synctest.Test(t, handshakes)
}

func handshakes(t *testing.T) {
	s, refused := door()
	var open []network.ConnManagementScope
	for i := range unknownPending {
		c, err := knock(s, network.DirInbound, fmt.Sprintf("203.0.113.%d", i))
		if err != nil {
			t.Fatal(i, err)
		}
		open = append(open, c)
	}
	if _, err := knock(s, network.DirInbound, "198.51.100.1"); !errors.Is(err, errUnknownPeers) || *refused != 1 {
		t.Fatal(err, *refused)
	}
	if _, err := knock(s, network.DirOutbound, "198.51.100.1"); err != nil {
		t.Error("this node's own dials are held up:", err)
	}
	s.know(netip.MustParseAddr("198.51.100.2"))
	if _, err := knock(s, network.DirInbound, "198.51.100.2"); err != nil {
		t.Error("a member's address is held up:", err)
	}
	if err := open[0].SetPeer("done"); err != nil {
		t.Fatal(err)
	}
	open[1].Done()
	open[1].Done()                // twice is once
	<-time.After(2 * time.Second) // the rate of arrivals is another bound
	for i := range 2 {
		if _, err := knock(s, network.DirInbound, fmt.Sprintf("198.51.100.%d", 10+i)); err != nil {
			t.Error("a handshake that is over still counts:", err)
		}
	}
	if _, err := knock(s, network.DirInbound, "198.51.100.20"); err == nil {
		t.Error("more handshakes than their bound")
	}
}

// One address holds at most half of the handshakes of unknown peers, and another address still begins one. So a new
// member, whose address nobody knows yet, gets in beside a peer that begins handshakes and never ends one.
func TestOneAddressLeavesHandshakesToOthers(t *testing.T) {
	s, _ := door()
	had := 0
	for range unknownPending - 1 { // as many at once are another bound
		if _, err := knock(s, network.DirInbound, "203.0.113.1"); err == nil {
			had++
		}
	}
	if had != unknownPending/2 {
		t.Errorf("one address has %d handshakes of %d", had, unknownPending)
	}
	if _, err := knock(s, network.DirInbound, "198.51.100.1"); err != nil {
		t.Error("nobody else has one:", err)
	}
}

// One address of unknown peers has at most addressConns connections. It gets another one only when one of them has
// closed.
func TestOneAddressMayHaveSoManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := door()
		var last network.ConnManagementScope
		for range addressConns {
			c, err := knock(s, network.DirInbound, "203.0.113.1")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.SetPeer("p"); err != nil {
				t.Fatal(err)
			}
			last = c
		}
		next := func() error {
			c, err := knock(s, network.DirInbound, "203.0.113.1")
			if err == nil {
				c.Done()
			}
			return err
		}
		if next() == nil {
			t.Fatal("more connections of one address than their bound")
		}
		<-time.After(time.Minute) // the rate of arrivals is another bound
		if next() == nil {
			t.Fatal("waiting was enough")
		}
		last.Done()
		if err := next(); err != nil {
			t.Fatal("a closed connection still counts:", err)
		}
	})
}

// Unknown peers of one address, and of all addresses, connect no faster than their burst and their rate.
func TestUnknownPeersArriveNoFasterThanTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrive := func(s *unknownPeers, ip func(i int) string, n int) (admitted int) {
			for i := range n {
				if c, err := knock(s, network.DirInbound, ip(i)); err == nil {
					c.Done()
					admitted++
				}
			}
			return admitted
		}
		one := func(int) string { return "203.0.113.1" }
		each := func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, byte(i>>8), byte(i)) }
		for _, tc := range []struct {
			name  string
			ip    func(int) string
			burst int
			rate  int
		}{
			{"one address", one, addressArrivalsBurst, addressArrivals},
			{"every time another", each, unknownArrivalsBurst, unknownArrivals},
		} {
			s, _ := door()
			if n := arrive(s, tc.ip, 1000); n != tc.burst {
				t.Errorf("%s: %d at once, want %d", tc.name, n, tc.burst)
			}
			<-time.After(time.Second)
			if n := arrive(s, tc.ip, 1000); n != tc.rate {
				t.Errorf("%s: %d after a second, want %d", tc.name, n, tc.rate)
			}
		}
	})
}

// An unknown peer has at most unknownStreamsEach streams, and all unknown peers have at most unknownStreams. Members
// and dialled peers are not limited.
func TestStreamsOfUnknownPeersAreBounded(t *testing.T) {
	const member, dialled = libp2ppeer.ID("member"), libp2ppeer.ID("dialled")
	s, refused := door(member)
	connect := func(id libp2ppeer.ID, dir network.Direction) network.ConnManagementScope {
		s.know(netip.MustParseAddr("203.0.113.1")) // the arrivals are not the subject
		c, err := knock(s, dir, "203.0.113.1")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetPeer(id); err != nil {
			t.Fatal(err)
		}
		return c
	}
	open := func(id libp2ppeer.ID, n int) (opened []network.StreamManagementScope) {
		for range n {
			if c, err := s.OpenStream(id, network.DirInbound); err == nil {
				opened = append(opened, c)
			}
		}
		return opened
	}
	connect(member, network.DirInbound)
	connect(dialled, network.DirOutbound)
	count, peers := 0, 0
	for ; peers < 100; peers++ {
		id := libp2ppeer.ID(fmt.Sprint("unknown", peers))
		connect(id, network.DirInbound)
		n := len(open(id, 1000))
		if peers == 0 && n != unknownStreamsEach {
			t.Fatalf("one unknown peer has %d streams, want %d", n, unknownStreamsEach)
		}
		count += n
	}
	if count != unknownStreams || *refused != 100_000-count {
		t.Errorf("unknown peers have %d streams, want %d; %d refused", count, unknownStreams, *refused)
	}
	for _, id := range []libp2ppeer.ID{member, dialled} {
		if n := len(open(id, 1000)); n != 1000 {
			t.Errorf("%s has %d streams of 1000", id, n)
		}
	}
	if !s.isUnknown("unknown1") || s.isUnknown(member) || s.isUnknown(dialled) {
		t.Error("who is an unknown peer")
	}
}

// Each stream that an unknown peer opens counts against its read rate, also a refused one. A peer that goes on when
// it is refused is cut once. Another peer does not wait for it.
func TestStreamsCostUnknownPeersTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := door()
		cut := 0
		s.cut = func(id libp2ppeer.ID) {
			if id != "p" {
				t.Errorf("%s is cut", id)
			}
			cut++
		}
		for _, id := range []libp2ppeer.ID{"p", "q"} {
			c, err := knock(s, network.DirInbound, "203.0.113.1")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.SetPeer(id); err != nil {
				t.Fatal(err)
			}
		}
		const more = unknownStreamsEach + refusalBurst
		for range more {
			_, _ = s.OpenStream("p", network.DirInbound)
		}
		if cut != 0 {
			t.Fatal("cut by a burst")
		}
		if _, err := s.OpenStream("p", network.DirInbound); !errors.Is(err, errUnknownPeers) || cut != 1 {
			t.Fatalf("%v; cut %d times", err, cut)
		}
		if _, err := s.OpenStream("p", network.DirInbound); !errors.Is(err, errUnknownPeers) || cut != 1 {
			t.Fatalf("%v; cut %d times while its connection ends", err, cut)
		}
		start := time.Now()
		if err := s.charge(t.Context(), "p", 1); err != nil {
			t.Fatal(err)
		}
		owed := time.Duration((more+2)*streamCharge+minCharge-peerBytesBurst) * time.Second / peerBytes
		if d := time.Since(start); d < owed-time.Millisecond || d > owed+time.Second {
			t.Errorf("waited %s for %d streams, want %s", d, more+2, owed)
		}
		if err := s.charge(t.Context(), "q", 1); err != nil || time.Since(start) > owed+time.Second {
			t.Errorf("another one waited %s for it, %v", time.Since(start), err)
		}
	})
}

// QUIC's address validation is required of every address but those of known members, in both forms of IPv4.
func TestUnknownAddressesShowThatTheyAreThere(t *testing.T) {
	s, _ := door()
	s.know(netip.MustParseAddr("203.0.113.1"))
	for addr, want := range map[string]bool{
		"203.0.113.1:4001":          false,
		"[::ffff:203.0.113.1]:4001": false,
		"203.0.113.2:4001":          true,
		"[2001:db8::1]:4001":        true,
	} {
		if got := s.VerifySourceAddress(net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr))); got != want {
			t.Errorf("%s: %t", addr, got)
		}
	}
}

// An unknown peer that goes on opening streams loses its connection, over TCP and over QUIC.
func TestAnUnknownPeerThatOpensStreamsWithoutEndIsDisconnected(t *testing.T) {
	for _, transport := range []string{"/tcp/", "/quic-v1/"} {
		p := newTestPeer(t, newRoster())
		var addrs []string
		for _, a := range p.Addrs() {
			if strings.Contains(a, transport) {
				addrs = append(addrs, a)
			}
		}
		h := newUnknownPeer(t, nil)
		if err := h.Connect(t.Context(), target(t, addrs)); err != nil {
			t.Fatal(err)
		}
		conn := h.Network().ConnsToPeer(p.id)[0]
		until(t, transport+": the connection to be cut", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if s, err := conn.NewStream(ctx); err == nil {
				// Over QUIC a stream begins with its first byte; this one is of the
				// length of a line, so the node waits for the line.
				_, _ = s.Write([]byte{19})
			}
			return conn.IsClosed()
		})
	}
}

// Nothing is remembered of an unknown peer after its connection and its streams have ended.
func TestUnknownPeersLeaveNothingBehind(t *testing.T) {
	s, _ := door()
	c, err := knock(s, network.DirInbound, "203.0.113.1")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetPeer("p"); err != nil {
		t.Fatal(err)
	}
	in, err := s.OpenStream("p", network.DirInbound)
	if err != nil {
		t.Fatal(err)
	}
	c.Done()
	in.Done()
	in.Done()
	if len(s.peers) != 0 || len(s.addrs) != 0 || len(s.hands) != 0 || s.pending != 0 || s.streams != 0 {
		t.Errorf("%d peers, %d addresses, %d handshakes, %d streams are left", len(s.peers), len(s.addrs), s.pending, s.streams)
	}
}

// A node reads from an unknown peer at peerBytes per second after a burst; a member does not wait. A small read
// counts as minCharge.
func TestUnknownPeersReadNoFasterThanTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := door("member")
		s.know(netip.MustParseAddr("203.0.113.1"))
		c, err := knock(s, network.DirInbound, "203.0.113.1")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetPeer("p"); err != nil {
			t.Fatal(err)
		}
		took := func(id libp2ppeer.ID, bytes, read int) time.Duration {
			start := time.Now()
			for range bytes / read {
				if err := s.charge(t.Context(), id, read); err != nil {
					t.Fatal(err)
				}
			}
			return time.Since(start).Round(time.Second)
		}
		const ten = peerBytesBurst + 10*peerBytes
		if d := took("member", ten, 16<<10); d != 0 {
			t.Errorf("a member waits %s", d)
		}
		if d := took("p", ten, 16<<10); d != 10*time.Second {
			t.Errorf("an unknown peer reads %d bytes in %s, want 10 s", ten, d)
		}
		if d := took("p", 10*peerBytes/minCharge, 1); d != 10*time.Second {
			t.Errorf("single bytes are read in %s, want 10 s", d)
		}
	})
}

func wantlist(n int) []byte {
	m := message.New(false)
	for i := range n {
		b, err := peertest.Block(cid.Raw, binary.BigEndian.AppendUint64(nil, uint64(i)))
		if err != nil {
			panic(err) // a hash of 8 bytes
		}
		m.AddEntry(b.Cid(), int32(i), pb.Message_Wantlist_Have, true)
	}
	return unframed(m)
}

// unframed returns an encoded message without its length.
func unframed(m message.BitSwapMessage) []byte {
	var buf bytes.Buffer
	if err := m.ToNetV1(&buf); err != nil {
		panic(err) // a buffer takes everything
	}
	_, n := binary.Uvarint(buf.Bytes())
	return buf.Bytes()[n:]
}

func answers(blocks, size, presences int) []byte {
	m := message.New(false)
	for i := range blocks {
		b, err := peertest.Block(cid.Raw, peertest.Bytes(uint64(i), size))
		if err != nil {
			panic(err)
		}
		m.AddBlock(b)
	}
	for i := range presences {
		b, err := peertest.Block(cid.Raw, peertest.Bytes(uint64(i), 9))
		if err != nil {
			panic(err)
		}
		m.AddDontHave(b.Cid())
	}
	return unframed(m)
}

// checkMessage refuses malformed messages and those with many empty or unknown parts. It accepts what bitswap sends.
func TestBitswapMessagesAreCheckedBeforeTheyAreDecoded(t *testing.T) {
	field := func(number byte, value []byte) []byte {
		return append(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(value))), value...)
	}
	for _, tc := range []struct {
		name    string
		message []byte
		refused bool
	}{
		{"nothing", nil, false},
		{"one want", wantlist(1), false},
		{"all wants that are kept", wantlist(1024), false},
		{"more wants than are kept", wantlist(60_000), false},
		{"blocks", answers(4, 500_000, 100), false},
		{"tiny blocks", answers(30_000, 8, 0), false},
		{"answers", answers(0, 0, 60_000), false},
		{"some empty entries", field(1, bytes.Repeat([]byte{0x0a, 0}, 500)), false},
		{"empty wants", field(1, bytes.Repeat([]byte{0x0a, 0}, 1<<20)), true},
		{"empty lists", bytes.Repeat([]byte{0x0a, 0}, 1<<20), true},
		{"empty blocks", bytes.Repeat([]byte{0x12, 0}, 1<<20), true},
		{"empty payloads", bytes.Repeat([]byte{0x1a, 0}, 1<<20), true},
		{"empty answers", bytes.Repeat([]byte{0x22, 0}, 1<<20), true},
		{"unknown fields", bytes.Repeat([]byte{0x78, 0}, 1<<20), true},
		{"a field that ends too early", []byte{0x0a, 200, 1}, true},
		{"a length beyond all", binary.AppendUvarint([]byte{0x0a}, 1<<63), true},
		{"a tag that does not end", bytes.Repeat([]byte{0xff}, 20), true},
		{"a group", []byte{0x0b, 0x0c}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := checkMessage(tc.message); (err != nil) != tc.refused {
				t.Errorf("%d bytes: %v", len(tc.message), err)
			}
		})
	}
}

func FuzzCheckMessage(f *testing.F) {
	f.Add(wantlist(3))
	f.Add(answers(2, 20, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		if checkMessage(b) != nil {
			return
		}
		// What is passed on has no more parts than its size allows.
		m, _, err := message.FromNet(bytes.NewReader(append(binary.AppendUvarint(nil, uint64(len(b))), b...)))
		if err != nil {
			return
		}
		if n := len(m.Wantlist()) + len(m.Blocks()) + len(m.BlockPresences()); n > freeEntries+len(b)/entryBytes {
			t.Errorf("%d parts of %d bytes", n, len(b))
		}
	})
}

// Unfinished large messages of an unknown peer take the room of unknown peers alone, and others are served meanwhile.
// The room is free again when the streams end. A message that is too large or malformed ends its stream.
func TestMessagesOfUnknownPeersShareTheirMemory(t *testing.T) {
	p := newTestPeer(t, newRoster())
	h := newUnknownPeer(t, nil)
	if err := h.Connect(t.Context(), target(t, p.Addrs())); err != nil {
		t.Fatal(err)
	}
	begin := func(first []byte) network.Stream {
		s, err := openStream(t.Context(), h, p.id, "/ipfs/bitswap/1.2.0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(first); err != nil {
			t.Fatal(err)
		}
		return s
	}
	giant := binary.AppendUvarint(nil, network.MessageSizeMax)
	room := p.bitswapHost.foreign
	free := func(n int64) bool {
		if !room.TryAcquire(n) {
			return false
		}
		room.Release(n)
		return true
	}
	var streams []network.Stream
	for range unknownMessages / network.MessageSizeMax {
		streams = append(streams, begin(giant))
	}
	until(t, "the room of unknown peers is taken", func() bool { return !free(1) })
	if !p.bitswapHost.asked.TryAcquire(messageRoom) {
		t.Error("unknown peers have taken others' room")
	} else {
		p.bitswapHost.asked.Release(messageRoom)
	}
	// A small message still gets through: the answer is that the block is not here.
	foreign := peertest.NewForeign(t)
	if err := foreign.Connect(t.Context(), p.Addrs()[0]); err != nil {
		t.Fatal(err)
	}
	held := addBlocks(t, p.store, 1, 100)
	if _, err := foreign.Block(t.Context(), held[0]); err != nil {
		t.Error("others are not served meanwhile:", err)
	}
	for _, s := range streams {
		if err := s.Reset(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the room of unknown peers is free again", func() bool { return free(unknownMessages) })

	for name, first := range map[string][]byte{
		"larger than the largest": binary.AppendUvarint(nil, network.MessageSizeMax+1),
		"empty entries":           append(binary.AppendUvarint(nil, 60_000), bytes.Repeat([]byte{0x0a, 0}, 30_000)...),
	} {
		s := begin(first)
		_ = s.SetReadDeadline(time.Now().Add(time.Minute))
		var timeout net.Error
		if _, err := s.Read(make([]byte, 1)); err == nil || (errors.As(err, &timeout) && timeout.Timeout()) {
			t.Errorf("%s: the stream goes on: %v", name, err)
		}
	}
}
