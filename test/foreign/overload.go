package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipfs/boxo/bitswap/message"
	pb "github.com/ipfs/boxo/bitswap/message/pb"
	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/multiformats/go-multihash"
	"github.com/multiformats/go-multistream"
)

// Limits of an overload, in which many peers that the node does not know attack it.
const (
	maxUnknownPeers   = 10_000
	maxOverload       = 2 * time.Minute
	overloadDial      = 5 * time.Second
	overloadHandshake = 20 * time.Second
	overloadPause     = 2 * time.Second // between two connections of one peer
	overloadStreams   = 2_000           // number of streams that one peer tries to open
	overloadWants     = 1_000           // number of wants in one message
	overloadMessages  = 100             // messages with wants on one connection; then the peer connects again
	giantMessage      = 4 << 20         // bytes of the largest message that bitswap reads
)

// overloadRequest is the body of POST /overload. It asks for Count unknown peers that connect to
// Addr, over TCP or QUIC, and send too much until the time is over. Each of them has its own
// identity and its own loopback address.
type overloadRequest struct {
	Addr     string `json:"addr"` // multiaddr over TCP or QUIC with /p2p/
	Kind     string `json:"kind"` // see behaviours
	Count    int    `json:"count"`
	Millis   int    `json:"millis"`   // duration of the overload in milliseconds
	Networks int    `json:"networks"` // number of networks 127.x.0.0/16 that the source addresses come from; 0 means 1
}

// overloadResult has the counts of one overload, summed over all its peers.
type overloadResult struct {
	Dialled   int64 `json:"dialled"`   // number of TCP connections that were made, or of QUIC connections that were tried
	Secured   int64 `json:"secured"`   // number of completed handshakes
	Streams   int64 `json:"streams"`   // number of streams that the peers opened
	Protocols int64 `json:"protocols"` // number of streams on which the node agreed to use bitswap
	Bytes     int64 `json:"bytes"`     // number of bytes written to streams
	Cut       int64 `json:"cut"`       // number of connections that the node closed
	Most      int64 `json:"most"`      // largest number of connections at the same time
}

// overload is the state of one overload that is running: many unknown peers attack one node.
type overload struct {
	target peer.ID
	addr   string
	quic   bool
	behave func(ctx context.Context, g *overload, c network.MuxedConn)
	silent bool // the peers connect and make no handshake

	dialled, secured, streams, protocols, bytes, cut, now, most atomic.Int64
}

// behaviours maps each kind of an overloadRequest to what a peer does on a connection after the
// handshake. The kind "silent" is not here, because such a peer makes no handshake.
var behaviours = map[string]func(ctx context.Context, g *overload, c network.MuxedConn){
	"idle":    func(context.Context, *overload, network.MuxedConn) {},
	"churn":   func(_ context.Context, _ *overload, c network.MuxedConn) { c.Close() },
	"streams": manyStreams,
	"wants":   manyWants,
	"giant":   giantMessages,
	"bomb":    emptyEntries,
}

func (p *foreignPeer) serveOverload(r *http.Request) (any, error) {
	var ask overloadRequest
	if err := decodeBody(r, &ask); err != nil {
		return nil, err
	}
	a, err := multiaddr.NewMultiaddr(ask.Addr)
	if err != nil {
		return nil, fmt.Errorf("addr: %w", err)
	}
	info, err := peer.AddrInfoFromP2pAddr(a)
	if err != nil || len(info.Addrs) != 1 {
		return nil, fmt.Errorf("addr %s: want one address with /p2p/: %w", ask.Addr, err)
	}
	_, err = info.Addrs[0].ValueForProtocol(multiaddr.P_QUIC_V1)
	overQUIC := err == nil
	bare, _ := multiaddr.SplitFunc(info.Addrs[0], func(c multiaddr.Component) bool { return c.Code() == multiaddr.P_QUIC_V1 })
	dial, err := manet.ToNetAddr(bare)
	if err != nil {
		return nil, fmt.Errorf("addr: %w", err)
	}
	behave, ok := behaviours[ask.Kind]
	if !ok && ask.Kind != "silent" {
		return nil, fmt.Errorf("kind %q is not known", ask.Kind)
	}
	length := time.Duration(ask.Millis) * time.Millisecond
	if ask.Count < 1 || ask.Count > maxUnknownPeers || length <= 0 || length > maxOverload {
		return nil, fmt.Errorf("want 1 to %d unknown peers for at most %s", maxUnknownPeers, maxOverload)
	}
	g := &overload{target: info.ID, addr: dial.String(), quic: overQUIC, behave: behave, silent: ask.Kind == "silent"}
	ctx, cancel := context.WithTimeout(r.Context(), length)
	defer cancel()
	var all sync.WaitGroup
	for i := range ask.Count {
		from := net.IPv4(127, byte(1+i%max(ask.Networks, 1)), byte(i>>8), byte(i))
		all.Go(func() { g.unknownPeer(ctx, from) })
	}
	all.Wait()
	return overloadResult{
		Dialled: g.dialled.Load(), Secured: g.secured.Load(), Streams: g.streams.Load(),
		Protocols: g.protocols.Load(), Bytes: g.bytes.Load(), Cut: g.cut.Load(), Most: g.most.Load(),
	}, nil
}

// unknownPeer plays one unknown peer with the source address from: it connects again and again
// until ctx ends.
func (g *overload) unknownPeer(ctx context.Context, from net.IP) {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return
	}
	// Not all at the same moment, which would measure this process.
	pause := time.Duration(mrand.Int64N(int64(overloadPause)))
	for {
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		g.visit(ctx, from, key)
		pause = overloadPause
	}
}

// visit makes one TCP connection as an unknown peer and returns when the connection has ended.
func (g *overload) visit(ctx context.Context, from net.IP, key crypto.PrivKey) {
	if g.quic {
		g.visitQUIC(ctx, from, key)
		return
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: overloadDial}
	raw, err := dialer.DialContext(ctx, "tcp", g.addr)
	if err != nil {
		return
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	defer g.arrive()()
	if g.silent {
		g.untilCut(ctx, raw)
		return
	}
	c, err := g.secure(ctx, raw, key)
	if err != nil {
		if ctx.Err() == nil {
			g.cut.Add(1)
		}
		return
	}
	g.stay(ctx, c)
}

// arrive counts a new connection. The caller calls leave when the connection has ended.
func (g *overload) arrive() (leave func()) {
	g.dialled.Add(1)
	for n := g.now.Add(1); ; {
		if m := g.most.Load(); n <= m || g.most.CompareAndSwap(m, n) {
			break
		}
	}
	return func() { g.now.Add(-1) }
}

// stay runs the behaviour of the overload on a connection after the handshake, and keeps the
// connection open until the node closes it or ctx ends.
func (g *overload) stay(ctx context.Context, c network.MuxedConn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	g.secured.Add(1)
	g.behave(ctx, g, c)
	for ctx.Err() == nil && !c.IsClosed() {
		s, err := c.AcceptStream()
		if err != nil {
			break
		}
		_ = s.Reset()
	}
	if ctx.Err() == nil {
		g.cut.Add(1)
	}
}

// untilCut waits until the node closes a connection, and counts that.
func (g *overload) untilCut(ctx context.Context, raw net.Conn) {
	_, _ = io.Copy(io.Discard, raw)
	if ctx.Err() == nil {
		g.cut.Add(1)
	}
}

// secure performs the same handshakes of TLS and yamux as libp2p, and returns the connection.
func (g *overload) secure(ctx context.Context, raw net.Conn, key crypto.PrivKey) (network.MuxedConn, error) {
	if err := raw.SetDeadline(time.Now().Add(overloadHandshake)); err != nil {
		return nil, err
	}
	if _, err := multistream.SelectOneOf([]protocol.ID{libp2ptls.ID}, raw); err != nil {
		return nil, err
	}
	muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: yamux.DefaultTransport}}
	t, err := libp2ptls.New(libp2ptls.ID, key, muxers)
	if err != nil {
		return nil, err
	}
	var secure sec.SecureConn
	if secure, err = t.SecureOutbound(ctx, raw, g.target); err != nil {
		return nil, err
	}
	if secure.ConnState().StreamMultiplexer == "" {
		if _, err := multistream.SelectOneOf([]protocol.ID{yamux.ID}, secure); err != nil {
			return nil, err
		}
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return yamux.DefaultTransport.NewConn(secure, false, nil)
}

// open opens a stream and negotiates bitswap on it.
func (g *overload) open(ctx context.Context, c network.MuxedConn) (network.MuxedStream, error) {
	s, err := c.OpenStream(ctx)
	if err != nil {
		return nil, err
	}
	g.streams.Add(1)
	if err := s.SetDeadline(time.Now().Add(overloadHandshake)); err != nil {
		return nil, err
	}
	if _, err := multistream.SelectOneOf(bitswapProtocols, s); err != nil {
		return nil, errors.Join(err, s.Reset())
	}
	g.protocols.Add(1)
	return s, s.SetDeadline(time.Time{})
}

// manyStreams opens up to overloadStreams streams and leaves them open.
func manyStreams(ctx context.Context, g *overload, c network.MuxedConn) {
	for range overloadStreams {
		if _, err := g.open(ctx, c); err != nil && (c.IsClosed() || ctx.Err() != nil) {
			return
		}
	}
}

// manyWants requests blocks that no peer has, in overloadMessages messages.
func manyWants(ctx context.Context, g *overload, c network.MuxedConn) {
	s, err := g.open(ctx, c)
	if err != nil {
		return
	}
	for range overloadMessages {
		m := message.New(false)
		for i := range overloadWants {
			hash, err := multihash.Sum(randomBytes(32), multihash.SHA2_256, -1)
			if err != nil {
				return
			}
			m.AddEntry(cid.NewCidV1(cid.Raw, hash), int32(i), pb.Message_Wantlist_Block, true)
		}
		if err := m.ToNetV1(counted{s, &g.bytes}); err != nil {
			return
		}
	}
}

// giantMessages begins a bitswap message of the largest permitted size on each of many streams, and
// does not send the last byte of any message.
func giantMessages(ctx context.Context, g *overload, c network.MuxedConn) {
	part := append(binary.AppendUvarint(nil, giantMessage), make([]byte, giantMessage-1)...)
	for range overloadStreams {
		s, err := g.open(ctx, c)
		if err != nil {
			if c.IsClosed() || ctx.Err() != nil {
				return
			}
			continue
		}
		_ = s.SetWriteDeadline(time.Now().Add(time.Second)) // whatever is taken
		_, _ = counted{s, &g.bytes}.Write(part)
	}
}

// emptyEntries sends messages whose entries are empty: each entry has two bytes, but takes far more
// memory when it is decoded.
func emptyEntries(ctx context.Context, g *overload, c network.MuxedConn) {
	entries := make([]byte, giantMessage-16)
	for i := 0; i < len(entries); i += 2 {
		entries[i] = 0x0a // field 1 of the wantlist, of no length
	}
	body := binary.AppendUvarint([]byte{0x0a}, uint64(len(entries)))
	body = append(body, entries...)
	frame := append(binary.AppendUvarint(nil, uint64(len(body))), body...)
	for range overloadMessages {
		s, err := g.open(ctx, c)
		if err != nil {
			return
		}
		if _, err := (counted{s, &g.bytes}).Write(frame); err != nil && c.IsClosed() {
			return
		}
	}
}

// counted is a writer that adds the number of written bytes to n.
type counted struct {
	io.Writer
	n *atomic.Int64
}

// Write implements io.Writer.
func (c counted) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n.Add(int64(n))
	return n, err
}
