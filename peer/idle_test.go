package peer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p"
	quictransport "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/marcopolo/simnet"
	"github.com/quic-go/quic-go"

	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// simulated is one end of a simulated network.
type simulated struct {
	sim *simnet.Simnet
	ip  net.IP

	// mu guards the fields below.
	mu       sync.Mutex
	port     int
	managers []*quicreuse.ConnManager
}

// PreferredSourceIPForDestination implements quicreuse.SourceIPSelector.
func (s *simulated) PreferredSourceIPForDestination(*net.UDPAddr) (net.IP, error) { return s.ip, nil }

func (s *simulated) listen(_ string, at *net.UDPAddr) (net.PacketConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := &net.UDPAddr{IP: s.ip, Port: at.Port}
	if own.Port == 0 {
		s.port++
		own.Port = s.port
	}
	link := simnet.LinkSettings{BitsPerSecond: 100 * simnet.Mibps}
	return socket{s.sim.NewEndpoint(own, simnet.NodeBiDiLinkSettings{Uplink: link, Downlink: link})}, nil
}

// socket writes addresses in the one form that simnet knows.
type socket struct{ *simnet.SimConn }

// WriteTo implements net.PacketConn.
func (s socket) WriteTo(b []byte, to net.Addr) (int, error) {
	if u, ok := to.(*net.UDPAddr); ok {
		to = &net.UDPAddr{IP: u.IP.To4(), Port: u.Port}
	}
	return s.SimConn.WriteTo(b, to)
}

func (s *simulated) adapt(o *Options) {
	manager := func(reset quic.StatelessResetKey, token quic.TokenGeneratorKey) (*quicreuse.ConnManager, error) {
		m, err := quicreuse.NewConnManager(reset, token, quicreuse.OverrideListenUDP(s.listen),
			quicreuse.OverrideSourceIPSelector(func() (quicreuse.SourceIPSelector, error) { return s, nil }))
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.managers = append(s.managers, m)
		return m, nil
	}
	o.Listen = nil
	o.ClusterListen = []string{"/ip4/" + s.ip.String() + "/udp/9096/quic-v1"}
	o.HostOptions = []HostOption{libp2p.QUICReuse(manager), libp2p.DisableIdentifyAddressDiscovery()}
	o.ClusterOptions = []HostOption{libp2p.Transport(quictransport.NewTransport)}
}

// GetBlocks uses pooled streams again after they were idle for 11 s and 35 s. It succeeds after the pool has closed
// them, too. In libp2p a stream has 10 s to name its protocol; virtual time makes that short.
func TestPooledStreamsSurviveIdling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := &simnet.Simnet{LatencyFunc: func(*simnet.Packet) time.Duration { return time.Millisecond }, Logger: slog.New(slog.DiscardHandler)}
		sim.Start()
		r := newRoster()
		var ends []*simulated
		var peers []*Peer
		var stores []*peertest.Store
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		for i := range 2 {
			s := &simulated{sim: sim, ip: net.IPv4(1, 0, 0, byte(i+1)).To4(), port: 20000}
			ends = append(ends, s)
			key, err := NewKey()
			if err != nil {
				t.Fatal(err)
			}
			store := peertest.NewStore()
			o := Options{Key: key, Members: r.isMember, Joiners: r.isJoiner, Blocks: store}
			s.adapt(&o)
			p, err := Open(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			r.set(p.ID(), true)
			peers, stores = append(peers, p), append(stores, store)
			running.Go(func() {
				if err := p.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		for i, p := range peers {
			other := peers[1-i]
			p.SetMember(other.ID(), []string{"/ip4/" + ends[1-i].ip.String() + "/udp/9096/quic-v1/p2p/" + other.ID()})
		}
		wanted := addBlocks(t, stores[1], 3, 1000)
		pull := func() (reused int) {
			got := 0
			missing, err := peers[0].GetBlocks(ctx, peers[1].ID(), wanted, func(blocks.Block) error { got++; return nil })
			if err != nil || len(missing) > 0 || got != len(wanted) {
				t.Fatalf("%d blocks, %d missing, %v", got, len(missing), err)
			}
			peers[0].pool.mu.Lock()
			defer peers[0].pool.mu.Unlock()
			for _, s := range peers[0].pool.members[peers[1].ID()].idle {
				if s.reused {
					reused++
				}
			}
			return reused
		}
		sayAfterIdling(ctx, t, peers[0], peers[1])
		pull()
		for _, idle := range []time.Duration{11 * time.Second, 35 * time.Second} {
			<-time.After(idle)
			if pull() == 0 {
				t.Errorf("no stream is used again after %s", idle)
			}
		}
		<-time.After(5 * time.Minute) // longer than either side keeps one
		pull()

		cancel()
		running.Wait()
		for i := range peers {
			if err := peers[i].Close(); err != nil {
				t.Error(err)
			}
			for _, m := range ends[i].managers {
				if err := m.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			}
		}
		sim.Close()
		synctest.Wait()
	})
}

// sayAfterIdling dials a stream for later, and says something on it when it has
// been silent for longer than a stream may be that has not named its protocol.
func sayAfterIdling(ctx context.Context, t *testing.T, from, to *Peer) {
	t.Helper()
	listener, err := to.Listen(testProtocol)
	if err != nil {
		t.Fatal(err)
	}
	echoed := make(chan error, 1)
	go func() {
		c, err := listener.Accept()
		if err == nil {
			_, err = io.CopyN(c, c, 1)
			c.Close()
		}
		echoed <- err
	}()
	silent, err := from.Dial(ctx, to.ID(), testProtocol)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(11 * time.Second)
	b := []byte{7}
	if _, err := silent.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(silent, b); err != nil || b[0] != 7 {
		t.Fatal(b, err)
	}
	silent.Close()
	if err := errors.Join(<-echoed, listener.Close()); err != nil {
		t.Error(err)
	}
}

// A DAG that was just fetched from an origin is fetched whole again, six times, into an empty store. Bitswap loses a
// want now and then when blocks are deleted and fetched again at once; a session that begins anew asks again.
func TestDeletedContentIsFetchedAgainAtOnce(t *testing.T) {
	const rounds, leaves = 6, 1024
	f := peertest.NewForeign(t)
	root, count, _, err := f.Store.AddTree(1, cid.DagProtobuf, 32, 2, 4<<10)
	if err != nil || count < leaves {
		t.Fatal(count, err)
	}
	p := newTestPeer(t, newRoster())
	for round := range rounds {
		s := p.Session(t.Context(), "one", f.Addrs())
		got, err := dag.Fetch(t.Context(), dag.FetchRequest{
			Root: root, Reference: "again", Store: peertest.NewStore().DAGStore(), Sources: []dag.Source{s},
			Limits: dag.Limits{Renew: time.Second, Idle: time.Minute},
		})
		s.Close()
		if err != nil || got.Blocks != count {
			t.Fatalf("round %d: %+v of %d blocks, %v", round, got, count, err)
		}
	}
}
