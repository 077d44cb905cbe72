package harness

import (
	"errors"
	"io"
	"math/rand/v2"
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

// A node that is cut off gets no packet and reaches nobody, over a bridge and over lines.
func TestACutNodeHearsNothingAndIsToldNothing(t *testing.T) {
	t.Run("bridge", func(t *testing.T) { testCut(t, nil) })
	t.Run("lines", func(t *testing.T) { testCut(t, &Line{}) })
}

func testCut(t *testing.T, line *Line) {
	t.Helper()
	w := newNetwork(t, line)
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

// A line delays packets as it says, makes them wait for its rate, and loses those that find its queue full and its
// share of the others.
func TestALineTakesWhatItSays(t *testing.T) {
	now := time.Now()
	slow := Line{Delay: 30 * time.Millisecond, Rate: 1_000_000, Queue: 10_000}
	e := end{rng: rand.New(rand.NewPCG(1, 1))}
	for i := range 11 {
		due, ok := e.carry(slow, 1000, now)
		if want := now.Add(time.Duration(i+1)*time.Millisecond + slow.Delay); ok != (i < 10) || ok && !due.Equal(want) {
			t.Errorf("packet %d: arrives %v, %v after it was sent, want %v", i, ok, due.Sub(now), want.Sub(now))
		}
	}
	if due, ok := e.carry(slow, 1000, now.Add(time.Second)); !ok || due.Sub(now) != time.Second+time.Millisecond+slow.Delay {
		t.Errorf("a packet on a free line arrives %v, %v after the first", ok, due.Sub(now))
	}
	lost := 0
	for range 10_000 {
		if _, ok := e.carry(Line{Lost: 0.1}, 1000, now); !ok {
			lost++
		}
	}
	if lost < 800 || lost > 1200 {
		t.Errorf("%d of 10,000 packets are lost, a tenth should be", lost)
	}

	w := newNetwork(t, &Line{Delay: 30 * time.Millisecond})
	var ends [2]*namespace
	var hosts [2]string
	for i := range ends {
		var err error
		if ends[i], _, hosts[i], err = w.join(); err != nil {
			t.Fatal(err)
		}
	}
	var ln net.Listener
	if err := ends[1].do(func() (err error) { ln, err = net.Listen("tcp", hosts[1]+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	began := time.Now()
	out, err := ends[0].dial(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if took := time.Since(began); took < 60*time.Millisecond {
		t.Errorf("there and back takes %v", took)
	}
}
