package ingest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// slowLine is the network of a node whose streams share a line and take turns.
type slowLine struct {
	Network
	line *rate.Limiter
}

func (s slowLine) Dial(ctx context.Context, node, proto string) (net.Conn, error) {
	c, err := s.Network.Dial(ctx, node, proto)
	if err != nil {
		return nil, err
	}
	return slowConn{c, s.line}, nil
}

type slowConn struct {
	net.Conn
	line *rate.Limiter
}

func (c slowConn) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		some := p[:min(len(p), 16<<10)]
		if err = c.line.WaitN(context.Background(), len(some)); err != nil {
			return n, err
		}
		var m int
		m, err = c.Conn.Write(some)
		n, p = n+m, p[m:]
	}
	return n, err
}

// A put from one member to another takes at most 1 s while 60 large bodies come to the latter over a slow member's
// line. Bodies come in at a, which is on a line of 40 Mbit/s, and b keeps them: what is half here has room while the
// rest comes.
func TestASlowMemberLeavesOthersRoomForWhatTheyPut(t *testing.T) {
	bubble(t, 3, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		var work sync.WaitGroup
		for k := range 60 {
			work.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					s, err := w.node("a").Store(ctx, bytes.NewReader(bytesOf(byte(k), 16<<20+n)), Placement{Nodes: []state.NodeID{"a", "b"}, Copies: 2})
					if err == nil { // else it was too slow
						s.Done(true)
					}
				}
			})
		}
		<-time.After(time.Minute)
		for k := range 6 {
			began := time.Now()
			s, err := w.node("c").Store(w.Context(), bytes.NewReader(bytesOf(byte(200+k), 8<<20)), Placement{Nodes: []state.NodeID{"b", "c"}, Copies: 2})
			if err != nil {
				t.Error(err)
			} else {
				s.Done(true)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("put %d took %s", k, took)
			}
			<-time.After(5 * time.Second)
		}
		cancel()
		work.Wait()
	}, func(o *Options) {
		if o.Self == "a" {
			o.Network = slowLine{o.Network, rate.NewLimiter(5e6, 16<<10)}
		}
	})
}
