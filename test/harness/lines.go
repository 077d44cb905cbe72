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

// Line describes the network line over which a node sends its packets to the other nodes. Each node
// of a cluster has one such line.
type Line struct {
	Delay time.Duration // time that each packet takes
	Lost  float64       // part of the packets that are lost, from 0 to 1
	Rate  int           // bytes per second that the line can carry; 0 means no limit
	Queue int           // with Rate: bytes that can wait for the line; further packets are lost
}

const (
	tunDevice  = "/dev/net/tun"
	mostPacket = 64 << 10 // largest size of a packet in bytes
	mostOnWay  = 1 << 14  // largest number of packets of one line that have not arrived yet
	// Position of the destination address in an IPv4 header (RFC 791, section 3.1).
	destinationAt = 16
	headerOfIPv4  = 20
)

// relay simulates the network between nodes: it reads the packets of each node from a TUN device
// and delivers them to other nodes as the line of the sender says.
type relay struct {
	line Line
	work sync.WaitGroup

	// mu guards ends.
	mu   sync.Mutex
	ends map[netip.Addr]*end // by the IP address of the device
}

// end is the TUN device of one node, and the state of its line.
type end struct {
	device *os.File
	cut    atomic.Bool
	onWay  chan packet // in the order in which they arrive

	// Only the goroutine that reads the device uses the following fields.
	rng  *rand.Rand
	free time.Time // when the line will have sent all packets so far
}

// packet is an IP packet that waits for its time of arrival.
type packet struct {
	bytes []byte
	due   time.Time
	to    *end
}

// needTUN skips a test if the machine has no TUN devices, which simulated lines need.
func needTUN(tb testing.TB) {
	tb.Helper()
	if _, err := os.Stat(tunDevice); err != nil {
		tb.Skipf("a line between nodes needs TUN devices: %v", err)
	}
}

func newRelay(line Line) *relay { return &relay{line: line, ends: map[netip.Addr]*end{}} }

// attach creates the TUN device "net" in a namespace and starts to relay its packets. address is
// the IP address that the device will have: the relay delivers packets with this destination to it.
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

// send reads the packets that a node sends, until its device is closed, and queues those that are
// not lost.
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

// carry returns when a packet of this size that is sent now arrives. ok is false if the line loses
// the packet.
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

// arrive delivers each queued packet when its time has come.
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

// cut sets whether the relay loses all packets from and to the node with this address.
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
