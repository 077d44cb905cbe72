package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/holdfast-ipfs/holdfast/internal/nettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A frame is encoded as the recorded bytes, which read as the same frame.
func TestFrameKeepsItsBytes(t *testing.T) {
	f := Frame{ID: 0x0102030405060708, Kind: 9, Budget: 1500 * time.Millisecond, Body: []byte("body")}
	b, err := AppendFrame(nil, f)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := hex.EncodeToString(b), "00000011"+"0102030405060708"+"09"+"000005dc"+"626f6479"; got != want {
		t.Errorf("the form has changed: %s, was %s", got, want)
	}
	back, err := ReadFrame(bufio.NewReader(bytes.NewReader(b)))
	if err != nil || back.ID != f.ID || back.Kind != f.Kind || back.Budget != f.Budget || !bytes.Equal(back.Body, f.Body) {
		t.Errorf("came back as %+v, %v", back, err)
	}
}

// ReadFrame rejects a frame that is cut off or has a length out of bounds, and AppendFrame a body above
// MaxBody.
func TestWhatIsNoFrameIsRefused(t *testing.T) {
	whole, err := AppendFrame(nil, Frame{Body: make([]byte, 3*firstBytes)})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"shorter than a header": {0, 0, 0, headerBytes - 1},
		"longer than the bound": {0xff, 0xff, 0xff, 0xff},
		"half a length":         {0, 0},
		"half a header":         whole[:10],
		"half a body":           whole[:2*firstBytes],
		"all but a byte":        whole[:len(whole)-1],
	} {
		if _, err := ReadFrame(bufio.NewReader(bytes.NewReader(b))); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadFrame(bufio.NewReader(bytes.NewReader(nil))); !errors.Is(err, io.EOF) || errors.Is(err, ErrFrame) {
		t.Errorf("nothing: %v", err)
	}
	if _, err := AppendFrame(nil, Frame{Body: make([]byte, MaxBody+1)}); !errors.Is(err, ErrFrame) {
		t.Errorf("a body above the bound: %v", err)
	}
}

func FuzzReadFrame(f *testing.F) {
	for _, frame := range []Frame{{}, {ID: 1, Kind: 2, Budget: time.Second, Body: []byte("x")}, {Body: make([]byte, 70_000)}} {
		b, err := AppendFrame(nil, frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(b, 1, 2, 3))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := ReadFrame(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, ErrFrame) {
				t.Fatal(err)
			}
			return
		}
		again, err := AppendFrame(nil, frame)
		if err != nil || !bytes.HasPrefix(b, again) {
			t.Fatalf("%x was read as %+v, which is %x: %v", b, frame, again, err)
		}
	})
}

// pipes is a network of one node, which calls itself.
type pipes struct {
	*nettest.Pipes

	mu     sync.Mutex
	dialed int
	conns  []net.Conn // the callers' ends
	deaf   bool       // new streams lose what is sent
}

func newPipes() *pipes { return &pipes{Pipes: nettest.NewPipes()} }

type named struct{ net.Conn }

func (named) RemoteAddr() net.Addr { return nodeAddr("peer") }

func (p *pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	p.mu.Lock()
	p.dialed++
	p.conns = append(p.conns, near)
	deaf := p.deaf
	p.mu.Unlock()
	if deaf {
		go func() { _, _ = io.Copy(io.Discard, far) }()
		return near, nil
	}
	if err := p.Hand(ctx, named{far}); err != nil {
		return nil, errors.Join(err, near.Close(), far.Close())
	}
	return near, nil
}

func (p *pipes) Listen(string) (net.Listener, error) { return p, nil }

func (p *pipes) Addr() net.Addr { return nodeAddr("peer") }

func (p *pipes) setDeaf(deaf bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = deaf
}

func (p *pipes) breakStreams() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

func (p *pipes) dials() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dialed
}

// calling runs a test of a client and a server in virtual time.
func calling(t *testing.T, handle Handler, test func(t *testing.T, network *pipes, c *Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- Serve(ctx, network, handle, func(string) {}, slog.New(slog.DiscardHandler)) }()
		c := NewClient(network, ForwardProtocol)
		test(t, network, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if _, _, err := c.Call(context.Background(), "peer", 1, nil); !errors.Is(err, errClosed) {
			t.Errorf("call of a closed client: %v", err)
		}
	})
}

func echo(_ context.Context, from string, kind uint8, body []byte) (uint8, []byte) {
	return kind + 1, append([]byte(from+" "), body...)
}

// 2,000 calls to a peer at once share one stream, and each gets its own answer.
func TestCallsShareAStreamAndGetTheirOwnAnswers(t *testing.T) {
	calling(t, echo, func(t *testing.T, network *pipes, c *Client) {
		var calls sync.WaitGroup
		for i := range 2000 {
			calls.Go(func() {
				body := fmt.Sprintf("call %d", i)
				kind, answer, err := c.Call(context.Background(), "peer", uint8(i%200), []byte(body))
				if err != nil || kind != uint8(i%200)+1 || string(answer) != "peer "+body {
					t.Errorf("call %d: %d %q %v", i, kind, answer, err)
				}
			})
		}
		calls.Wait()
		if n := network.dials(); n != 1 {
			t.Errorf("%d streams for one peer", n)
		}
	})
}

// A stream stays while it is idle, and a new one replaces it after it has broken.
func TestStreamIsReplacedWhenItBreaks(t *testing.T) {
	calling(t, echo, func(t *testing.T, network *pipes, c *Client) {
		for i := range 3 {
			if _, _, err := c.Call(context.Background(), "peer", 1, nil); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Hour) // an idle stream stays
			if n := network.dials(); n != i+1 {
				t.Fatalf("%d streams after %d breaks", n, i)
			}
			network.breakStreams()
			synctest.Wait()
		}
	})
}

// A stream on which more waits than goes out is kept while the other side reads, and given up when it does not.
// More may wait all the time, as on a slow line.
func TestAStreamOnWhichMoreWaitsAllTheTimeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		out, done, ended := make(chan []byte, maxQueued), make(chan struct{}), make(chan error, 1)
		go func() { ended <- writeFrames(near, out, done) }()
		go func() {
			for {
				select {
				case out <- make([]byte, bufferBytes/16):
				case <-done:
					return
				}
			}
		}()
		read := make([]byte, bufferBytes)
		for range 5 * writeTimeout / time.Second {
			<-time.After(time.Second)
			if err := far.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Error(err)
			}
			if _, err := far.Read(read); err != nil {
				t.Errorf("nothing comes any more: %v", err)
				break
			}
		}
		close(done)
		<-time.After(2 * writeTimeout) // now nobody reads
		select {
		case <-ended:
		default:
			t.Error("it waits for who does not read")
			_ = near.Close()
			<-ended
		}
	})
}

// The call after one that got no answer in time has a new stream.
func TestStreamThatAnswersNothingIsReplaced(t *testing.T) {
	calling(t, echo, func(t *testing.T, network *pipes, c *Client) {
		network.setDeaf(true)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, _, err := c.Call(ctx, "peer", 1, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("called nobody: %v", err)
		}
		network.setDeaf(false)
		if _, _, err := c.Call(context.Background(), "peer", 1, nil); err != nil {
			t.Error(err)
		}
	})
}

// The context of a handler ends by the deadline of the call.
func TestAHandlerEndsByTheDeadlineOfItsCall(t *testing.T) {
	handled := make(chan time.Duration, 1)
	slow := func(ctx context.Context, _ string, _ uint8, _ []byte) (uint8, []byte) {
		began := time.Now()
		<-ctx.Done()
		handled <- time.Since(began)
		return 0, nil
	}
	calling(t, slow, func(t *testing.T, _ *pipes, c *Client) {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		// At the very end of its time the call may still get an answer.
		if kind, _, err := c.Call(ctx, "peer", 1, nil); kind != 0 || err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(kind, err)
		}
		if took := <-handled; took > 3*time.Second {
			t.Errorf("worked for %s on what nobody waits for", took)
		}
	})
}

// closing notes that it was closed.
type closing struct {
	net.Conn
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return c.Conn.Close()
}

// The server closes a stream that the client has ended, or that carries an invalid frame. Clients replace a
// stream on which nothing was answered in time, while the connection below goes on: without this, ended streams
// would pile up there.
func TestAStreamThatHasEndedIsClosed(t *testing.T) {
	for name, sent := range map[string][]byte{"ended": nil, "with what is no frame": {0, 0, 0, 0}} {
		near, far := net.Pipe()
		served := &closing{Conn: named{far}}
		go func() {
			_, _ = near.Write(sent)
			_ = near.Close()
		}()
		if err := serveStream(t.Context(), served, echo); (err != nil) != (sent != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if !served.closed {
			t.Errorf("one that %s stays open", name)
		}
	}
}

// A closed Raft transport sends nothing through its pipelines and opens no new one.
func TestRaftTransportIsSilentOnceClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		trans, err := NewRaft(network, "self", 0, Hooks{Leads: func(uint64) bool { return true }}, raft.NetworkTransportConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if trans.LocalAddr() != "self" {
			t.Errorf("it calls itself %s", trans.LocalAddr())
		}
		pipe, err := trans.AppendEntriesPipeline("peer", "peer")
		if err != nil {
			t.Fatal(err)
		}
		if err := trans.Close(); err != nil {
			t.Error(err)
		}
		if _, err := pipe.AppendEntries(&raft.AppendEntriesRequest{}, &raft.AppendEntriesResponse{}); err == nil {
			t.Error("a pipeline of a closed transport sends")
		}
		if _, err := trans.AppendEntriesPipeline("peer", "peer"); err == nil {
			t.Error("a closed transport opens a pipeline")
		}
	})
}

func BenchmarkCall(b *testing.B) {
	network := newPipes()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, network, echo, func(string) {}, slog.New(slog.DiscardHandler)) }()
	c := NewClient(network, ForwardProtocol)
	body := make([]byte, 300)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, _, err := c.Call(ctx, "peer", 1, body); err != nil {
				b.Error(err)
				return
			}
		}
	})
	if err := c.Close(); err != nil {
		b.Error(err)
	}
	stop()
	<-served
}
