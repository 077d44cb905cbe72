package harness

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// unheard is how long the test listens where nothing may come.
const unheard = 300 * time.Millisecond

// speak sends a byte and wants to read it at the other end in time, or not at all.
func speak(t *testing.T, from, to net.Conn, within time.Duration) error {
	t.Helper()
	if _, err := from.Write([]byte{1}); err != nil {
		t.Fatalf("send: %v", err) // lost packets are nothing that a sender hears of
	}
	if err := to.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := io.ReadFull(to, make([]byte, 1))
	return err
}

func TestACutNodeHearsNothingAndIsToldNothing(t *testing.T) {
	w := newNetwork(t)
	type end struct {
		*namespace
		at int
		ln net.Listener
	}
	var ends []end
	for range 3 {
		ns, at, host, err := w.join()
		if err != nil {
			t.Fatal(err)
		}
		e := end{namespace: ns, at: at}
		if err := ns.do(func() (err error) { e.ln, err = net.Listen("tcp", host+":0"); return err }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.ln.Close() })
		ends = append(ends, e)
	}
	connect := func(from *namespace, to end) (net.Conn, net.Conn) {
		t.Helper()
		out, err := from.dial(t.Context(), "tcp", to.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { out.Close() })
		in, err := to.ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close() })
		return out, in
	}
	one, two, three := ends[0], ends[1], ends[2]
	out, in := connect(one.namespace, two)
	fromHub, inThree := connect(w.hub, three)
	for _, c := range [][2]net.Conn{{out, in}, {in, out}, {fromHub, inThree}} {
		if err := speak(t, c[0], c[1], commandWithin); err != nil {
			t.Fatalf("before the cut: %v", err)
		}
	}
	if err := w.cut(two.at); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]net.Conn{{out, in}, {in, out}} {
		if err := speak(t, c[0], c[1], unheard); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a cut connection: %v", err)
		}
	}
	for _, way := range []struct{ from, to end }{{one, two}, {two, three}} {
		err := way.from.do(func() error {
			c, err := (&net.Dialer{Timeout: unheard}).DialContext(t.Context(), "tcp", way.to.ln.Addr().String())
			if err == nil {
				c.Close()
			}
			return err
		})
		if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("a dial of what is cut: %v", err)
		}
	}
	if err := speak(t, fromHub, inThree, commandWithin); err != nil {
		t.Fatalf("between the others: %v", err)
	}
	connect(two.namespace, two) // as the test asks a node that is cut off
	if err := w.heal(two.at); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]net.Conn{{out, in}, {in, out}} { // what was lost is sent again
		if err := speak(t, c[0], c[1], commandWithin); err != nil {
			t.Fatalf("after healing: %v", err)
		}
	}
	connect(one.namespace, two)
}
