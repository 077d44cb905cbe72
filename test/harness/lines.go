package harness

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Line says how the packets travel that a node sends. Each node of a cluster has one such line to all others.
type Line struct {
	Delay time.Duration // of each packet
	Lost  float64       // how many do not arrive, of 1
	Rate  int           // bytes a second that the line carries; 0 is without a bound
	Queue int           // bytes that wait for the line at the most, with Rate: what comes then is lost
}

const (
	tunDevice  = "/dev/net/tun"
	mostPacket = 64 << 10 // bytes
	mostOnWay  = 1 << 14  // packets of one line
	// Where IPv4 has the destination (RFC 791, section 3.1).
	destinationAt = 16
	headerOfIPv4  = 20
)

// relay carries packets between the devices of nodes, each over the line of its sender.
type relay struct {
	line Line
	work sync.WaitGroup

	// mu guards ends.
	mu   sync.Mutex
	ends map[netip.Addr]*end // by address
}

// end is the device of one node.
type end struct {
	device *os.File
	cut    atomic.Bool
	onWay  chan packet // in the order in which they arrive

	// Of who reads the device alone:
	rng  *rand.Rand
	free time.Time // when the line has carried what was sent so far
}

// packet is on its way.
type packet struct {
	bytes []byte
	due   time.Time
	to    *end
}

// needTUN skips a test where nodes can have no lines.
func needTUN(tb testing.TB) {
	tb.Helper()
	if _, err := os.Stat(tunDevice); err != nil {
		tb.Skipf("a line between nodes needs TUN devices: %v", err)
	}
}

func newRelay(line Line) *relay { return &relay{line: line, ends: map[netip.Addr]*end{}} }

// attach makes the device "net" in a namespace, which is to have an address. What is sent
// to it goes to whoever is attached with the packet's.
func (r *relay) attach(ns *namespace, address netip.Addr) error {
	var device *os.File
	err := ns.do(func() error {
		fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", tunDevice, err)
		}
		// Only now, for a device that has no name yet cannot be waited for.
		defer func() { device = os.NewFile(uintptr(fd), tunDevice) }()
		request, err := unix.NewIfreq("net")
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	})
	if err != nil {
		if device != nil {
			device.Close()
		}
		return fmt.Errorf("line: %w", err)
	}
	e := &end{device: device, onWay: make(chan packet, mostOnWay), rng: rand.New(rand.NewPCG(uint64(address.As4()[3]), 1))}
	r.mu.Lock()
	r.ends[address] = e
	r.mu.Unlock()
	r.work.Go(func() { r.send(e) })
	r.work.Go(e.arrive)
	return nil
}

// send takes what a node sends until its device is closed.
func (r *relay) send(from *end) {
	defer close(from.onWay)
	buf := make([]byte, mostPacket)
	for {
		n, err := from.device.Read(buf)
		if err != nil {
			return
		}
		if n < headerOfIPv4 || buf[0]>>4 != 4 {
			continue
		}
		r.mu.Lock()
		to := r.ends[netip.AddrFrom4([4]byte(buf[destinationAt:]))]
		r.mu.Unlock()
		due, ok := from.carry(r.line, n, time.Now())
		if to == nil || !ok || from.cut.Load() || to.cut.Load() {
			continue
		}
		select {
		case from.onWay <- packet{append([]byte(nil), buf[:n]...), due, to}:
		default: // as in a queue that is full
		}
	}
}

// carry says when a packet that is sent now arrives, if it does.
func (e *end) carry(line Line, bytes int, now time.Time) (due time.Time, ok bool) {
	if e.free.Before(now) {
		e.free = now
	}
	if line.Rate > 0 {
		waiting := e.free.Sub(now).Seconds() * float64(line.Rate)
		if waiting+float64(bytes) > float64(line.Queue) {
			return due, false
		}
		e.free = e.free.Add(time.Duration(float64(bytes) / float64(line.Rate) * float64(time.Second)))
	}
	return e.free.Add(line.Delay), e.rng.Float64() >= line.Lost
}

// arrive hands packets over when their time has come.
func (e *end) arrive() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for p := range e.onWay {
		if wait := time.Until(p.due); wait > 0 {
			timer.Reset(wait)
			<-timer.C
		}
		if !p.to.cut.Load() && !e.cut.Load() {
			_, _ = p.to.device.Write(p.bytes) // one that does not get in is lost
		}
	}
}

// cut loses everything that a node sends, and what others send to it, or stops that.
func (r *relay) cut(address netip.Addr, cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends[address].cut.Store(cut)
}

func (r *relay) close() {
	r.mu.Lock()
	for _, e := range r.ends {
		e.device.Close()
	}
	r.mu.Unlock()
	r.work.Wait()
}
