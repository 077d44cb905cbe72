package peer

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// memberStream is a stream of a multiplexer, as the one of a member.
type memberStream struct {
	network.Stream // nil
	mux            network.MuxedStream
}

func (s memberStream) Read(p []byte) (int, error)         { return s.mux.Read(p) }
func (s memberStream) Write(p []byte) (int, error)        { return s.mux.Write(p) }
func (s memberStream) Reset() error                       { return s.mux.Reset() }
func (s memberStream) Close() error                       { return s.mux.Close() }
func (s memberStream) SetDeadline(t time.Time) error      { return s.mux.SetDeadline(t) }
func (s memberStream) SetReadDeadline(t time.Time) error  { return s.mux.SetReadDeadline(t) }
func (s memberStream) SetWriteDeadline(t time.Time) error { return s.mux.SetWriteDeadline(t) }
func (s memberStream) Conn() network.Conn                 { return memberConn{} }

type memberConn struct{ network.Conn }

func (memberConn) RemotePeer() libp2ppeer.ID { return "member" }

// lonely returns a peer without hosts.
func lonely(t *testing.T, store *peertest.Store) *Peer {
	t.Helper()
	p := &Peer{
		opts: Options{Blocks: store, Members: func(string) bool { return true }},
		log:  slog.New(slog.DiscardHandler), ctx: t.Context(), serving: newPlaces(maxServedRequests),
	}
	if err := p.metrics.register(prometheus.NewRegistry(), nil); err != nil {
		t.Fatal(err)
	}
	return p
}

// As many blocks as one member requests at once arrive over a line that carries all in three times blockTimeout. A
// block may be without a sign of life for blockTimeout.
func TestBlocksComeOverASlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = maxStreamsPerMember << 20 / (3 * int(blockTimeout/time.Second)) // 1.5 Mbit/s
		store := peertest.NewStore()
		cids := addBlocks(t, store, maxStreamsPerMember, 1<<20)
		server, client := lonely(t, store), lonely(t, peertest.NewStore())
		here, there := net.Pipe()
		slow := newLine(here, rate)
		overLine(t, newQueuedMux(), slow, there, func(near, far network.MuxedConn) {
			defer slow.Close() // nothing waits for it when the multiplexer ends
			ended := make(chan error, len(cids))
			for _, c := range cids {
				out, in := stream(t, near, far)
				go server.serveBlocks(memberStream{mux: out}) // ends with the connection
				s := &pooledStream{stream: memberStream{mux: in}, in: bufio.NewReaderSize(in, blockBuffer)}
				go func() {
					_, err := client.exchange(context.Background(), s, []cid.Cid{c}, taker{lend: fresh, take: func(cid.Cid, []byte) error { return nil }, steady: true})
					ended <- err
				}()
			}
			for range cids {
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
			}
		})
	})
}

// Ten blocks that are read ahead arrive over a line that carries two blocks in blockTimeout. A read from a line that
// carries half a block in that time fails. The blocks share the line, so that each takes longer than blockTimeout. A
// member that does not carry even one is still given up.
func TestBlocksOfAFileComeOverASlowLine(t *testing.T) {
	const second = int(time.Second)
	for _, tc := range []struct {
		ahead, rate int
		comes       bool
	}{
		{10, 2 << 20 * second / int(blockTimeout), true}, // two blocks in blockTimeout
		{1, 1 << 20 * second / int(blockTimeout) / 2, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := peertest.NewStore()
			cids := addBlocks(t, store, tc.ahead, 1<<20)
			server, client := lonely(t, store), lonely(t, peertest.NewStore())
			here, there := net.Pipe()
			slow := newLine(here, tc.rate)
			overLine(t, newQueuedMux(), slow, there, func(near, far network.MuxedConn) {
				defer slow.Close() // nothing waits for it when the multiplexer ends
				streams := make(chan network.Stream, tc.ahead)
				for range tc.ahead {
					out, in := stream(t, near, far)
					go server.serveBlocks(memberStream{mux: out}) // ends with the connection
					streams <- memberStream{mux: in}
				}
				client.pool = newStreamPool(func(context.Context, string) (network.Stream, error) { return <-streams, nil })
				ended := make(chan error, len(cids))
				for _, c := range cids {
					go func() {
						_, err := client.ReadBlock(context.Background(), "member", c, fresh)
						ended <- err
					}()
				}
				for range cids {
					if err := <-ended; (err == nil) != tc.comes {
						t.Fatalf("%d at once: %v", tc.ahead, err)
					}
				}
			})
		})
	}
}
