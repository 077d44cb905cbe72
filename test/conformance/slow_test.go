//go:build conformance

package conformance

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const (
	slowClients = 1000
	slowEvery   = 3 * time.Second // between two bytes of a client
	// slowCut is when the last of them must be cut: 30 s for a whole request,
	// and some for a busy machine.
	slowCut = 45 * time.Second
)

// slowly are ways to hold a connection without saying much: what is sent at
// once, and what is repeated.
var slowly = []struct{ name, first, then string }{
	{"head", "GET /pins HTTP/1.1\r\nHost: node\r\n", "X-Slow: 1\r\n"},
	{"letters", "GET /pi", "n"},
	{"body", "POST /pins HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer TOKEN\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{", " "},
	{"chunks", "POST /pins HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer TOKEN\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", "1\r\n \r\n"},
}

// TestSlowClientsAreCut promises that a thousand HTTP clients that send a byte now and then lose their connections,
// and that others do not notice them (P14).
func TestSlowClientsAreCut(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	s := newService(t, c, "slow@example.org")
	victim := c.Leader()
	addr := strings.TrimPrefix(victim.URL(), "http://")
	before, most := victim.ResidentBytes(), int64(0)
	votes := c.LogLines(`msg="leader changed"`)

	var slow lasting
	for i := range slowClients {
		way := slowly[i%len(slowly)]
		slow.add(way.name, func() (time.Duration, error) {
			return hold(addr, strings.ReplaceAll(way.first, "TOKEN", s.token), way.then, slowEvery, slowCut)
		})
	}
	var sum load
	under := strained(t, c, func() {
		sum = during(s, func() {
			most = max(most, mostResident(victim, &slow.all))
		})
	})
	if err := errors.Join(slow.failed...); err != nil {
		t.Error(err)
	}
	t.Logf("cut after %v at the latest; others' writes p99 %s (%d); the node grew by %d MiB",
		slow.cut, sum.p99(), len(sum.writes), (most-before)>>20)
	if err := errors.Join(sum.errs...); err != nil {
		t.Errorf("others' requests fail: %v", err)
	}
	if most-before > overloadGrowth {
		t.Errorf("the node grew by %d MiB", (most-before)>>20)
	}
	if n := c.LogLines(`msg="leader changed"`) - votes; n > 0 && !under.busy() {
		t.Errorf("%d elections, and the machine was not busy: %+v", n, under)
	}
}

// lasting are clients that hold connections until the node cuts them, each in one of some ways.
type lasting struct {
	all sync.WaitGroup

	// mu guards the fields below.
	mu     sync.Mutex
	cut    map[string]time.Duration // the latest of each way
	failed []error
}

// add returns one more client hold a connection in a way of this name.
func (h *lasting) add(way string, hold func() (time.Duration, error)) {
	h.all.Go(func() {
		held, err := hold()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.cut == nil {
			h.cut = map[string]time.Duration{}
		}
		h.cut[way] = max(h.cut[way], held)
		h.failed = append(h.failed, err)
	})
}

// hold sends a few bytes now and then until the node cuts the connection, and
// returns how long that took.
func hold(addr, first, then string, every, within time.Duration) (time.Duration, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	start := time.Now()
	if err := conn.SetDeadline(start.Add(within)); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn) // to the end that the node makes
		ended <- err
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	_, _ = io.WriteString(conn, first) // who is cut already is told below
	for {
		select {
		case err := <-ended:
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return time.Since(start), fmt.Errorf("a connection is open after %s", within)
			}
			return time.Since(start).Round(time.Second), nil
		case <-tick.C:
			_, _ = io.WriteString(conn, then)
		}
	}
}

// mostResident returns the most memory that a node has in the time in which all end, in
// bytes.
func mostResident(n *harness.Node, all *sync.WaitGroup) (most int64) {
	ended := make(chan struct{})
	go func() { defer close(ended); all.Wait() }()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		most = max(most, n.ResidentBytes())
		select {
		case <-ended:
			return most
		case <-tick.C:
		}
	}
}
