//go:build conformance

package conformance

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Shape of the overload by slow clients of objects (A37).
const (
	slowPuts     = 500
	slowPutEvery = 10 * time.Second // between two bytes
	// slowPutCut is when the last of them must be cut: 60 s without enough of a body,
	// and some for a busy machine.
	slowPutCut  = 100 * time.Second
	slowReadFor = 80 * time.Second
	slowReads   = 16 << 20 // bytes of what is read slowly, more than buffers of a connection
	// slowPutGrowth is for the block that each slow reader holds, for eight files that
	// are read ahead in, and as much again for the garbage of it.
	slowPutGrowth = 1 << 30
	otherPuts     = 4 // clients that are not slow
	otherObject   = 64 << 10

	// Clients that send some of a body at once and then hardly anything: each wants a
	// MiB of the 96 for all bodies of a node, and is one to be waited for.
	trickling     = 420
	trickledFirst = 400 << 10
	trickleEvery  = time.Second // a byte
	trickleFor    = 30 * time.Second

	// maxBusy is how often one client may be told to come again, because a machine with 500 slow clients
	// and other tests on it may be too busy for a moment.
	maxBusy = 5
)

// slowlyPut are ways to hold a connection of the object gateway: what is sent at
// once, and what is repeated.
var slowlyPut = []struct{ name, first, then string }{
	{"head", "PUT BUCKET/slow HTTP/1.1\r\nHost: node\r\n", "X-Slow: 1\r\n"},
	{"body", "PUT BUCKET/slow HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer TOKEN\r\nContent-Length: 100000000\r\n\r\n", "x"},
	{"read", "GET BUCKET/large HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer TOKEN\r\n\r\n", ""},
}

// TestSlowClientsOfObjectsAreCut promises that five hundred clients of the object gateway that hardly send or read
// lose their connections, while others' puts and reads go on (A37). They send a byte of a head or body now and then,
// or read one.
func TestSlowClientsOfObjectsAreCut(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: []string{"HOLDFAST_API_ACCOUNT_RATE=0", "HOLDFAST_API_ADDRESS_RATE=0"}})
	o := newObjects(t, c, "slow@example.org")
	c.Leader().CLI("user", "quota", "slow@example.org", "unlimited")
	bucket := "/slow" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/large", harness.RandomBytes(slowReads))
	victim := c.Followers()[0]
	addr := strings.TrimPrefix(victim.S3URL(), "http://")
	before, most := victim.ResidentBytes(), int64(0)
	alone := o.others(t, victim, bucket, func() { harness.Pause(t.Context(), 3*time.Second) })

	var slow lasting
	for i := range slowPuts {
		way := slowlyPut[i%len(slowlyPut)]
		first := strings.NewReplacer("TOKEN", o.token, "BUCKET", bucket).Replace(way.first)
		slow.add(way.name, func() (time.Duration, error) {
			if way.then == "" {
				err := readSlowly(addr, first)
				for again := 0; again < maxBusy && errors.Is(err, errNotRead); again++ {
					harness.Pause(t.Context(), time.Second)
					err = readSlowly(addr, first)
				}
				return 0, err
			}
			return hold(addr, first, way.then, slowPutEvery, slowPutCut)
		})
	}
	beside := o.others(t, victim, bucket, func() {
		most = max(most, mostResident(victim, &slow.all))
	})
	if err := errors.Join(slow.failed...); err != nil {
		t.Error(err)
	}
	t.Logf("cut after %v at the latest; others' requests p50 %s, p99 %s (%d), alone %s, %s (%d); the node grew by %d MiB",
		slow.cut, quantile(beside, 0.5), quantile(beside, 0.99), len(beside), quantile(alone, 0.5), quantile(alone, 0.99), len(alone), (most-before)>>20)
	if most-before > slowPutGrowth {
		t.Errorf("the node grew by %d MiB", (most-before)>>20)
	}
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/slow", nil)
}

// TestTricklingClientsDoNotHoldTheMemory promises that clients that hardly send lose the memory for bodies when
// others need it, and that nobody else's put fails (A37).
func TestTricklingClientsDoNotHoldTheMemory(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: []string{"HOLDFAST_API_ACCOUNT_RATE=0", "HOLDFAST_API_ADDRESS_RATE=0"}})
	o := newObjects(t, c, "trickle@example.org")
	c.Leader().CLI("user", "quota", "trickle@example.org", "unlimited")
	bucket := "/trickle" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	victim := c.Followers()[0]
	addr := strings.TrimPrefix(victim.S3URL(), "http://")
	request := fmt.Sprintf("PUT %s/slow HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer %s\r\nContent-Length: 100000000\r\n\r\n%s",
		bucket, o.token, bytes.Repeat([]byte("x"), trickledFirst))

	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	stop := make(chan struct{})
	for range trickling {
		conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			answer := trickle(conn, request, stop)
			mu.Lock()
			defer mu.Unlock()
			answers[answer]++
		})
	}
	took := o.others(t, victim, bucket, func() { harness.Pause(t.Context(), trickleFor) })
	close(stop)
	all.Wait()
	t.Logf("clients that trickle: %v; others' requests p50 %s, p99 %s, at most %s (%d)",
		answers, quantile(took, 0.5), quantile(took, 0.99), quantile(took, 1), len(took))
	if answers["503 SlowDown"] == 0 {
		t.Errorf("nobody was cut for the memory: %v", answers)
	}
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/slow", nil)
}

// trickle sends a request and then a byte of its body now and then, until it is
// answered or stop is closed, and returns how it was answered.
func trickle(conn net.Conn, request string, stop <-chan struct{}) string {
	answered := make(chan string, 1)
	go func() {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			answered <- "none"
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body) // the connection may break behind what matters
		_, code, _ := strings.Cut(string(body), "<Code>")
		code, _, _ = strings.Cut(code, "<")
		answered <- fmt.Sprint(resp.StatusCode, " ", code)
	}()
	_, _ = io.WriteString(conn, request) // who is cut already is told by the answer
	tick := time.NewTicker(trickleEvery)
	defer tick.Stop()
	for {
		select {
		case answer := <-answered:
			_ = conn.Close()
			return answer
		case <-stop:
			_ = conn.Close()
			<-answered
			return "open"
		case <-tick.C:
			_, _ = io.WriteString(conn, "x")
		}
	}
}

// others puts and reads objects through a node while fn runs; none may fail. It
// returns how long each took.
func (o *objects) others(t *testing.T, n *harness.Node, bucket string, fn func()) (took []time.Duration) {
	t.Helper()
	done := make(chan struct{})
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range otherPuts {
		all.Go(func() {
			busy := 0
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				path, body := fmt.Sprintf("%s/other/%d", bucket, w), harness.RandomBytes(otherObject)
				began := time.Now()
				r, err := o.tryOn(n, http.MethodPut, path, body)
				put := time.Since(began)
				if err == nil && r.Status == http.StatusOK {
					began = time.Now()
					if r, err = o.tryOn(n, http.MethodGet, path, nil); err == nil && !bytes.Equal(r.Body, body) {
						err = errors.New("other bytes are read")
					}
				}
				if err == nil && r.Status == http.StatusServiceUnavailable && busy < maxBusy { // the machine is busy: as clients do
					busy++
					harness.Pause(t.Context(), time.Second)
					continue
				}
				if err != nil || r.Status != http.StatusOK {
					t.Errorf("another client, request %d: %d %s, %v", i, r.Status, r.Body[:min(len(r.Body), 300)], err)
					return
				}
				mu.Lock()
				took = append(took, put, time.Since(began))
				mu.Unlock()
			}
		})
	}
	fn()
	close(done)
	all.Wait()
	slices.Sort(took)
	return took
}

// quantile is that of durations, as people read it.
func quantile(all []time.Duration, share float64) time.Duration {
	return harness.Quantile(all, share).Round(100 * time.Microsecond)
}

// errNotRead is the error of readSlowly for an answer without the object.
var errNotRead = errors.New("the object was not answered")

// readSlowly asks for an object and reads a byte of it now and then, and after
// slowReadFor the rest: who was cut gets less than the whole.
func readSlowly(addr, request string) error {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	start := time.Now()
	if err := conn.SetDeadline(start.Add(2 * slowPutCut)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %d", errNotRead, resp.StatusCode)
	}
	tick := time.NewTicker(slowPutEvery)
	defer tick.Stop()
	got := int64(0)
	for one := make([]byte, 1); time.Since(start) < slowReadFor; <-tick.C {
		n, err := resp.Body.Read(one)
		got += int64(n)
		if err != nil {
			return nil // cut, and nothing was in the buffers any more
		}
	}
	rest, err := io.Copy(io.Discard, resp.Body)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("a slow reader was not cut: it got %d of %d bytes", got+rest, resp.ContentLength)
	}
	return nil
}
