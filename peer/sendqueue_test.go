package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
)

// line is a connection that takes so many bytes a second, in virtual time.
type line struct {
	net.Conn
	rate   int           // 0: any
	stuck  chan struct{} // nil: it never is; closed when it goes on
	closed chan struct{}
}

func newLine(c net.Conn, rate int) *line {
	return &line{Conn: c, rate: rate, closed: make(chan struct{})}
}

func (l *line) Write(p []byte) (int, error) {
	if l.rate > 0 {
		select {
		case <-time.After(time.Duration(len(p)) * time.Second / time.Duration(l.rate)):
		case <-l.closed:
			return 0, net.ErrClosed
		}
	}
	if l.stuck != nil {
		select {
		case <-l.stuck:
		case <-l.closed:
			return 0, net.ErrClosed
		}
	}
	return l.Conn.Write(p)
}

func (l *line) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return l.Conn.Close()
}

// overLine runs a test of a multiplexer between two ends of a line.
func overLine(t *testing.T, mux network.Multiplexer, below *line, far net.Conn, test func(near, far network.MuxedConn)) {
	t.Helper()
	a, err := mux.NewConn(below, false, &network.NullScope{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := mux.NewConn(far, true, &network.NullScope{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = a.Close() // what is on its way is lost
		_ = b.Close()
	}()
	test(a, b)
}

// stream opens a stream; its first byte tells the other side of it.
func stream(t *testing.T, near, far network.MuxedConn) (ours, theirs network.MuxedStream) {
	t.Helper()
	ours, err := near.OpenStream(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	if theirs, err = far.AcceptStream(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(theirs, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

func queued(c network.MuxedConn) int {
	q := c.(*queuedConn).queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

// A message of 200 bytes arrives within 60 ms beside eight streams of content on a line of 100 Mbit/s. With yamux
// alone it does not.
func TestWhatIsUrgentIsNotBehindContent(t *testing.T) {
	const rate = 12_500_000 // 100 Mbit/s
	for _, tc := range []struct {
		name string
		mux  network.Multiplexer
		late bool
	}{
		{"with a queue", newQueuedMux(), false},
		{"yamux alone", newQueuedMux().inner, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				overLine(t, tc.mux, newLine(here, rate), there, func(near, far network.MuxedConn) {
					const content, streams = 8 << 20, 8
					done := make(chan error, 2*streams)
					for range streams {
						out, in := stream(t, near, far)
						go func() {
							_, err := out.Write(make([]byte, content))
							done <- errors.Join(err, out.CloseWrite())
						}()
						go func() {
							n, err := io.Copy(io.Discard, in)
							if err == nil && n != content {
								err = fmt.Errorf("%d bytes came, want %d", n, content)
							}
							done <- err
						}()
					}
					out, in := stream(t, near, far)
					var worst time.Duration
					for range 20 {
						<-time.After(100 * time.Millisecond)
						began := time.Now()
						if _, err := out.Write(make([]byte, 200)); err != nil {
							t.Fatal(err)
						}
						if _, err := io.ReadFull(in, make([]byte, 200)); err != nil {
							t.Fatal(err)
						}
						worst = max(worst, time.Since(began))
					}
					if late := worst > 60*time.Millisecond; late != tc.late {
						t.Errorf("a short message took %s", worst)
					}
					for range 2 * streams {
						if err := <-done; err != nil {
							t.Error(err)
						}
					}
					if c, ok := near.(*queuedConn); ok && queued(c) != 0 {
						t.Errorf("%d bytes are counted and nothing waits", queued(c))
					}
				})
			})
		})
	}
}

// A stream is sent whole while 20 other streams of the connection, whose readers do not read, wait for room.
func TestStreamsThatNobodyReadsLeaveTheOthersRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		below := newLine(here, 0)
		overLine(t, newQueuedMux(), below, there, func(near, far network.MuxedConn) {
			const unread = 20
			var full atomic.Int32
			goOn := make(chan struct{})
			for range unread {
				out, _ := stream(t, near, far)
				go func() {
					if _, err := out.Write(make([]byte, clusterWindowAtFirst-1)); err != nil { // stream wrote one
						t.Error(err)
					}
					full.Add(1)
					<-goOn
					_, _ = out.Write(make([]byte, clusterMessage)) // until the connection ends
				}()
			}
			filler, filled := stream(t, near, far)
			go func() { _, _ = io.Copy(io.Discard, filled) }()
			out, in := stream(t, near, far)
			synctest.Wait()
			if full.Load() != unread {
				t.Fatalf("%d windows are full", full.Load())
			}
			below.stuck = make(chan struct{})
			overfill(t, filler)
			close(goOn)
			synctest.Wait() // they wait for room
			go func() {
				_, err := out.Write(make([]byte, 16<<20))
				if err = errors.Join(err, out.CloseWrite()); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait() // and this one behind them
			close(below.stuck)
			if n, err := io.Copy(io.Discard, in); err != nil || n != 16<<20 {
				t.Errorf("%d bytes came: %v", n, err)
			}
		})
	})
}

// overfill writes more than the bound, in pieces that do not wait.
func overfill(t *testing.T, s network.MuxedStream) {
	t.Helper()
	for range overfilled / urgentBytes {
		if _, err := s.Write(make([]byte, urgentBytes)); err != nil {
			t.Fatal(err)
		}
	}
}

const overfilled = 3 * queuedBytes / urgentBytes * urgentBytes

func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// A write that waits for room in the send queue ends at its deadline, at a reset and with its connection. It ends
// with an error.
func TestAWriteThatWaitsForRoomEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(near network.MuxedConn, s network.MuxedStream) error
		want func(error) bool
	}{
		{"at its deadline", func(_ network.MuxedConn, s network.MuxedStream) error {
			return s.SetWriteDeadline(time.Now().Add(time.Second))
		}, timedOut},
		{"at a deadline that is over", func(_ network.MuxedConn, s network.MuxedStream) error {
			return s.SetDeadline(time.Unix(1, 0))
		}, timedOut},
		{"with a reset", func(_ network.MuxedConn, s network.MuxedStream) error { return s.Reset() }, func(err error) bool { return errors.Is(err, network.ErrReset) }},
		{"with the connection", func(near network.MuxedConn, _ network.MuxedStream) error { return near.Close() }, func(err error) bool { return !timedOut(err) }},
		{"with the connection and a reason", func(near network.MuxedConn, _ network.MuxedStream) error {
			go func() { _ = near.CloseWithError(1) }() // which it tries to say
			return nil
		}, func(err error) bool { return !timedOut(err) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				below := newLine(here, 0)
				overLine(t, newQueuedMux(), below, there, func(near, far network.MuxedConn) {
					out, in := stream(t, near, far)
					go func() { _, _ = io.Copy(io.Discard, in) }()
					synctest.Wait()
					below.stuck = make(chan struct{})
					overfill(t, out)
					ended := make(chan error, 1)
					go func() {
						_, err := out.Write(make([]byte, 4<<20)) // more than is queued, and than the window
						ended <- err
					}()
					synctest.Wait()
					if n := queued(near); n != overfilled {
						t.Errorf("%d bytes wait", n)
					}
					select {
					case err := <-ended:
						t.Fatalf("nothing moves, and it ended: %v", err)
					default:
					}
					began := time.Now()
					if err := tc.end(near, out); err != nil {
						t.Fatal(err)
					}
					if err := <-ended; err == nil || !tc.want(err) {
						t.Errorf("ended with %v", err)
					}
					if took := time.Since(began); took > 2*time.Second {
						t.Errorf("after %s", took)
					}
					close(below.stuck)
				})
			})
		})
	}
}

// A write of 20 KiB arrives within 1 s while small answers of all other streams use the whole line. Each small answer
// is asked for when the one before is there, so that they are as much as the line carries and wait for no room.
func TestLargerWritesHaveTheirTurnBesideSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		const rate = 12_500_000 // 100 Mbit/s
		overLine(t, newQueuedMux(), newLine(here, rate), newLine(there, rate), func(near, far network.MuxedConn) {
			var over atomic.Bool
			var asking sync.WaitGroup
			defer asking.Wait()
			defer over.Store(true)
			for range maxStreamsPerMember {
				out, in := stream(t, near, far)
				go func() { // ends with the connection
					for question := make([]byte, 50); ; {
						if _, err := io.ReadFull(out, question); err != nil {
							return
						}
						if _, err := out.Write(make([]byte, urgentBytes)); err != nil {
							return
						}
					}
				}()
				asking.Go(func() {
					for answer := make([]byte, urgentBytes); !over.Load(); {
						_, err := in.Write(make([]byte, 50))
						if err == nil {
							_, err = io.ReadFull(in, answer)
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			<-time.After(100 * time.Millisecond)
			out, in := stream(t, near, far)
			const bytes = 20 << 10
			began := time.Now()
			if err := out.SetWriteDeadline(began.Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			go func() {
				if _, err := out.Write(make([]byte, bytes)); err != nil {
					t.Error(err)
				}
			}()
			if _, err := io.ReadFull(in, make([]byte, bytes)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("%d bytes were there after %s", bytes, took)
			}
		})
	})
}
