package peer

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/libp2p/go-libp2p/core/sec"
)

// counted counts what is written, and fails or waits for Close when it is told to.
type counted struct {
	net.Conn
	writes      atomic.Int32
	fail, stall atomic.Bool
	stalled     chan struct{} // closed by the first write that waits
	closed      chan struct{}
	once        sync.Once
}

var errCut = errors.New("cut")

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	if c.fail.Load() {
		return 0, errCut
	}
	if c.stall.CompareAndSwap(true, false) {
		close(c.stalled)
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *counted) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// secured returns the ends of a connection, the first over what counts.
func secured(t *testing.T) (a, b sec.SecureConn, below *counted) {
	t.Helper()
	from, _ := tlsNow(t)
	to, id := tlsNow(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var accepting sync.WaitGroup
	accepting.Go(func() {
		conn, err := l.Accept()
		if err == nil {
			b, err = to.SecureInbound(context.Background(), conn, "")
		}
		if err != nil {
			t.Error(err)
		}
	})
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	below = &counted{Conn: conn, stalled: make(chan struct{}), closed: make(chan struct{})}
	if a, err = from.SecureOutbound(context.Background(), below, id); err != nil {
		t.Fatal(err)
	}
	accepting.Wait()
	if b == nil {
		t.FailNow()
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b, below
}

// One Write of up to 200 KiB on a secured connection becomes one write to the network. The bytes arrive unchanged.
func TestWhatIsGivenAtOnceIsWrittenAtOnce(t *testing.T) {
	a, b, below := secured(t)
	data := make([]byte, 200<<10)
	_, _ = rand.Read(data)
	for _, n := range []int{1, 12, 16 << 10, 64<<10 + 100, 200 << 10} {
		before := below.writes.Load()
		var reading sync.WaitGroup
		got := make([]byte, n)
		reading.Go(func() {
			if _, err := io.ReadFull(b, got); err != nil {
				t.Error(err)
			}
		})
		if m, err := a.Write(data[:n]); m != n || err != nil {
			t.Fatalf("%d of %d bytes: %v", m, n, err)
		}
		reading.Wait()
		if !bytes.Equal(got, data[:n]) {
			t.Errorf("other bytes have come, of %d", n)
		}
		if writes := below.writes.Load() - before; writes != 1 {
			t.Errorf("%d bytes in %d writes", n, writes)
		}
	}
}

// Concurrent writers on one secured connection do not mix their bytes, and its buffer stays below twice flushBytes.
// The buffer is empty when all have written.
func TestManyBytesAreNotKept(t *testing.T) {
	a, b, below := secured(t)
	const each, writers = 3 << 20, 4
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			if _, err := a.Write(bytes.Repeat([]byte{byte(i)}, each)); err != nil {
				t.Error(err)
			}
		})
	}
	got := make([]byte, writers*each)
	if _, err := io.ReadFull(b, got); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	for i := 0; i < len(got); i += each {
		if !bytes.Equal(got[i:i+each], bytes.Repeat(got[i:i+1], each)) {
			t.Error("the bytes of two writers are mixed")
		}
	}
	if c := a.(*flushed); cap(c.below.buf) > 2*flushBytes || len(c.below.buf) != 0 {
		t.Errorf("%d bytes kept, in memory for %d", len(c.below.buf), cap(c.below.buf))
	}
	if below.writes.Load() > 2*writers*each/flushBytes {
		t.Errorf("%d writes", below.writes.Load())
	}
}

// A Write on a secured connection returns the error of the network below it.
func TestAFailureBelowIsTold(t *testing.T) {
	a, _, below := secured(t)
	below.fail.Store(true)
	for _, n := range []int{1, 2 * flushBytes} {
		if _, err := a.Write(make([]byte, n)); !errors.Is(err, errCut) {
			t.Errorf("a write of %d bytes: %v", n, err)
		}
	}
}

// Close of a secured connection ends a Write that the network does not take, with an error.
func TestClosingEndsAWriteThatDoesNotMove(t *testing.T) {
	a, _, below := secured(t)
	below.stall.Store(true)
	ended := make(chan error, 1)
	go func() {
		_, err := a.Write(make([]byte, 100))
		ended <- err
	}()
	<-below.stalled
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the write has succeeded")
	}
}
