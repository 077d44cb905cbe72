//go:build faults

package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

var long = flag.Bool("long", false, "all tests, with what the requirements say: frozen for a minute, 2,000 pins")

// longForm leaves a test to `make faults`: of faults that are like those of other tests.
func longForm(t *testing.T) {
	t.Helper()
	if !*long {
		t.Skip("in the long form: make faults")
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(harness.Main(m))
}

// Bounds of a client.
const (
	clients    = 8
	postWithin = 3 * time.Second // then the next node is asked
	retryAfter = 20 * time.Millisecond
	healWithin = 3 * time.Minute
)

// load is clients that post pins through all nodes, and what they were told.
type load struct {
	cluster *harness.Cluster
	token   string
	files   []harness.Offered
	origins []string
	pace    time.Duration // of each client, after an acknowledgement

	// mu guards the fields below.
	mu     sync.Mutex
	begun  int                        // pins that were tried
	acked  map[string]harness.Offered // by request id
	names  map[string]string          // of acknowledged pins: name to request id
	unsure map[string]bool            // names of posts whose outcome nobody knows
	last   time.Time                  // of the newest acknowledgement
	gap    time.Duration              // the longest time between two
}

func newLoad(t *testing.T, c *harness.Cluster, source *harness.Boxo, files int) *load {
	t.Helper()
	return &load{
		cluster: c, token: c.Nodes[0].UserKey("faults@example.org").Token,
		files: source.AddRandom(files, 40_000), origins: source.Addrs,
		acked: map[string]harness.Offered{}, names: map[string]string{}, unsure: map[string]bool{},
	}
}

// keepPosting posts pins in the background. Its stop ends that, at the latest the end of the
// test does, and returns what was wrong with an answer.
func (l *load) keepPosting(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.post(ctx, math.MaxInt) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// post posts pins until there are so many, or ctx ends. A pin whose post had no
// answer is posted again through the next node, under the same name.
func (l *load) post(ctx context.Context, total int) error {
	var work errgroup.Group
	for range clients {
		work.Go(func() error {
			for {
				l.mu.Lock()
				at := l.begun
				l.begun++
				l.mu.Unlock()
				if at >= total || ctx.Err() != nil {
					return nil
				}
				if err := l.one(ctx, at); err != nil {
					return err
				}
			}
		})
	}
	return work.Wait()
}

func (l *load) one(ctx context.Context, at int) error {
	file, name := l.files[at%len(l.files)], fmt.Sprintf("pin-%05d", at)
	for turn := at; ctx.Err() == nil; turn++ {
		node := l.cluster.Nodes[turn%len(l.cluster.Nodes)]
		if !node.Running() {
			if !harness.Pause(ctx, retryAfter/4) {
				return nil
			}
			continue
		}
		call, cancel := context.WithTimeout(ctx, postWithin)
		s, err := node.Pins(l.token).Post(call, harness.Pin{CID: file.CID, Name: name, Origins: l.origins})
		cancel()
		if err == nil {
			l.took(s.RequestID, name, file)
			harness.Pause(ctx, l.pace)
			return nil
		}
		var api *harness.APIError
		if errors.As(err, &api) && api.Status < http.StatusInternalServerError {
			return fmt.Errorf("%s: %w", node.Name, err)
		}
		l.mu.Lock()
		l.unsure[name] = l.unsure[name] || api == nil || api.Status != http.StatusInsufficientStorage
		l.mu.Unlock()
		if !harness.Pause(ctx, retryAfter) {
			return nil
		}
	}
	return nil
}

func (l *load) took(id, name string, file harness.Offered) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.last.IsZero() {
		l.gap = max(l.gap, now.Sub(l.last))
	}
	l.last = now
	l.acked[id], l.names[name] = file, id
}

// count returns how many pins were acknowledged.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// more waits until so many more pins were acknowledged.
func (l *load) more(t *testing.T, pins int, within time.Duration) {
	t.Helper()
	from := l.count()
	harness.Eventually(t, within, fmt.Sprintf("%d more pins are acknowledged", pins), func() (bool, error) {
		return l.count() >= from+pins, fmt.Errorf("%d are", l.count()-from)
	})
}

// check wants every acknowledged pin once, in the same list on every node, and
// the same state everywhere. A post that nobody waited for may still be on its
// way, so the lists have some seconds to become equal.
func (l *load) check(t *testing.T) {
	t.Helper()
	l.cluster.Settle()
	var lists [][]harness.PinStatus
	harness.Eventually(t, healWithin, "all nodes show the same list", func() (bool, error) {
		lists = nil
		for _, n := range l.cluster.Nodes {
			pins, err := n.Pins(l.token).ListAll(t.Context(), nil, 1000)
			if err != nil {
				return false, err
			}
			lists = append(lists, pins)
			same := slices.EqualFunc(pins, lists[0], func(a, b harness.PinStatus) bool { return a.RequestID == b.RequestID })
			if !same {
				return false, fmt.Errorf("%s lists other pins than %s", n.Name, l.cluster.Nodes[0].Name)
			}
		}
		return true, nil
	})
	names, seen := map[string]int{}, map[string]bool{}
	for _, p := range lists[0] {
		names[p.Pin.Name]++
		seen[p.RequestID] = true
	}
	for id := range l.acked {
		if !seen[id] {
			t.Errorf("pin %s is lost", id)
		}
	}
	for name, times := range names {
		if times > 1 && !l.unsure[name] {
			t.Errorf("%s is there %d times, posted once", name, times)
		}
	}
	if len(seen) != len(lists[0]) {
		t.Error("a pin is listed twice")
	}
	if err := l.cluster.SameState(t.Context()); err != nil {
		t.Error(err)
	}
}

// pinned waits until every acknowledged pin is pinned, and reads some of them
// from every node.
func (l *load) pinned(t *testing.T, read int) {
	t.Helper()
	harness.Eventually(t, healWithin, "all pins are pinned", func() (bool, error) {
		r, err := l.cluster.Nodes[0].Pins(l.token).List(t.Context(), map[string][]string{"status": {"queued,pinning,failed"}, "limit": {"1"}})
		if err != nil {
			return false, err
		}
		for _, p := range r.Results {
			return false, fmt.Errorf("%d are not; one is %s: %v", r.Count, p.Status, p.Info)
		}
		return r.Count == 0, nil
	})
	for i, f := range l.files[:min(read, len(l.files))] {
		n := l.cluster.Nodes[i%len(l.cluster.Nodes)]
		if !f.Matches(n.Get(f.CID)) {
			t.Errorf("%s reads other bytes of %s", n.Name, f.CID)
		}
	}
}
