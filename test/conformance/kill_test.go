//go:build conformance

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Sizes of the tests under fire. The long form kills a hundred times.
const (
	fireClients = 12
	firePins    = 2000
	// firePace is the pause of one client between two writes: together they
	// make about 200 a second.
	firePace                 = 60 * time.Millisecond
	fireBytes                = 1 << 10
	fireFiles                = 2000
	fireKills, fireKillsLong = 4, 100
	// fireDown is how long a killed leader stays away, and fireCalm what passes
	// between its return and the next kill.
	fireDown, fireCalm = time.Second, 1500 * time.Millisecond
	fireWithin         = 20 * time.Minute
	fireRetry          = 20 * time.Millisecond
	decidedWithin      = time.Minute // a write: 10 s, of consensus, and what a busy machine needs
	pinnedUnderFire    = 4 * time.Minute
)

// attempt is one POST. A client that got no answer tries again under another
// name, so that each attempt is told apart on the list.
type attempt struct {
	name, cid   string
	id, created string // of the answer; empty: none came
}

// fire is a load of writes through all nodes.
type fire struct {
	c       *harness.Cluster
	token   string
	files   []harness.Offered
	origins []string
	next    atomic.Int64

	// mu guards the fields below.
	mu       sync.Mutex
	attempts []attempt
	acked    int
	wrong    []error         // what no client should see
	outages  []time.Duration // between two writes of one client that tries every node
}

// acknowledged returns how many writes were.
func (f *fire) acknowledged() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acked
}

func (f *fire) fault(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, fmt.Errorf(format, args...))
}

// clean tells whether an error is one that a leader's loss may cause: no answer
// at all, or 503 in the specified form with the time to wait.
func clean(err error) bool {
	var api *harness.APIError
	if !errors.As(err, &api) {
		return true
	}
	return api.Status == http.StatusServiceUnavailable && api.RetryAfter > 0 && api.Reason == "SERVICE_UNAVAILABLE"
}

// try posts once.
func (f *fire) try(ctx context.Context, at, i, k int) (attempt, error) {
	file := f.files[i%len(f.files)]
	a := attempt{name: fmt.Sprintf("%d.%d", i, k), cid: file.CID}
	st, err := f.c.Nodes[at].Pins(f.token).Post(ctx, harness.Pin{CID: a.cid, Name: a.name, Origins: f.origins})
	if err == nil {
		a.id, a.created = st.RequestID, st.Created
	} else if ctx.Err() == nil && !clean(err) {
		f.fault("262: a write through %s: %w", f.c.Nodes[at].Name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempts = append(f.attempts, a)
	if err == nil {
		f.acked++
	}
	return a, err
}

// write posts until some node takes it, and reads it back through the next.
func (f *fire) write(ctx context.Context) {
	i := int(f.next.Add(1))
	for k := 0; ctx.Err() == nil; k++ {
		a, err := f.try(ctx, (i+k)%len(f.c.Nodes), i, k)
		if err != nil {
			harness.Pause(ctx, fireRetry)
			continue
		}
		other := f.c.Nodes[(i+k+1)%len(f.c.Nodes)]
		st, err := other.Pins(f.token).Get(ctx, a.id)
		switch {
		case err == nil && (st.RequestID != a.id || st.Created != a.created || st.Pin.Name != a.name):
			f.fault("261: %s reads %+v of %+v", other.Name, st, a)
		case err != nil && ctx.Err() == nil && !clean(err):
			f.fault("261: %s does not read what another node acknowledged: %w", other.Name, err)
		}
		return
	}
}

// clients writes until ctx ends; one of them without pause, to see for how long
// nothing can be written.
func (f *fire) clients(ctx context.Context) {
	var all sync.WaitGroup
	for range fireClients {
		all.Go(func() {
			for ctx.Err() == nil {
				f.write(ctx)
				harness.Pause(ctx, firePace)
			}
		})
	}
	all.Go(func() {
		at, last := 0, time.Now()
		for ctx.Err() == nil {
			i := int(f.next.Add(1))
			for k := 0; ctx.Err() == nil; k++ {
				if _, err := f.try(ctx, at, i, k); err == nil {
					break
				}
				at = (at + 1) % len(f.c.Nodes)
				harness.Pause(ctx, time.Millisecond)
			}
			f.mu.Lock()
			f.outages = append(f.outages, time.Since(last))
			f.mu.Unlock()
			last = time.Now()
			harness.Pause(ctx, firePace/4)
		}
	})
	all.Wait()
}

// check wants every acknowledged write once on every node's list, no attempt
// twice, and one list and one state everywhere.
func (f *fire) check(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.wrong[:min(len(f.wrong), 10)] {
		t.Error(err)
	}
	tried := map[string]attempt{}
	for _, a := range f.attempts {
		tried[a.name] = a
	}
	// A write that was under way when its client left may be decided between two lists.
	harness.Eventually(t, decidedWithin, "261: all nodes have one list", func() (bool, error) {
		var first []harness.PinStatus
		for i, n := range f.c.Nodes {
			list, err := n.Pins(f.token).ListAll(t.Context(), nil, 1000)
			if err != nil {
				t.Fatalf("%s: %v", n.Name, err)
			}
			f.checkList(t, n, list, tried)
			if i == 0 {
				first = list
			} else if !slices.EqualFunc(list, first, samePin) {
				return false, fmt.Errorf("%s lists %d pins, %s %d, and they differ", n.Name, len(list), f.c.Nodes[0].Name, len(first))
			}
		}
		return true, nil
	})
	if err := f.c.SameState(t.Context()); err != nil {
		t.Error(err)
	}
}

// checkList wants what was acknowledged of the attempts, by name, once on a node's list,
// and nothing twice. The caller has mu.
func (f *fire) checkList(t *testing.T, n *harness.Node, list []harness.PinStatus, tried map[string]attempt) {
	t.Helper()
	seen := map[string]bool{}
	acked := 0
	for i, p := range list {
		a, known := tried[p.Pin.Name]
		switch {
		case !known:
			t.Fatalf("%s lists %+v, which nobody asked for", n.Name, p)
		case seen[p.Pin.Name]:
			t.Errorf("262: %s lists %s twice", n.Name, p.Pin.Name)
		case a.id != "" && (a.id != p.RequestID || a.created != p.Created || a.cid != p.Pin.CID):
			t.Errorf("%s lists %+v for %+v", n.Name, p, a)
		case i > 0 && p.Created >= list[i-1].Created:
			t.Errorf("%s: %s stands after %s", n.Name, p.Created, list[i-1].Created)
		}
		seen[p.Pin.Name] = true
		if a.id != "" {
			acked++
		}
	}
	if acked != f.acked {
		t.Errorf("262: %s lists %d of %d acknowledged pins", n.Name, acked, f.acked)
	}
}

// pinned waits until everything on the list is pinned.
func (f *fire) pinned(t *testing.T) {
	t.Helper()
	harness.Eventually(t, pinnedUnderFire, "everything is pinned", func() (bool, error) {
		q := url.Values{"status": {"queued,pinning,failed"}, "limit": {"1"}}
		r, err := f.c.Nodes[0].Pins(f.token).List(t.Context(), q)
		if err != nil {
			return false, err
		}
		if r.Count > 0 && r.Results[0].Status == "failed" {
			t.Fatalf("a pin failed: %v", r.Results[0].Info)
		}
		return r.Count == 0, fmt.Errorf("%d pins are not", r.Count)
	})
}

// TestNothingAcknowledgedIsLostUnderFire promises that no acknowledged pin is lost while nodes are killed, paused and
// restarted (A1, A2, A5, A13, rows 261, 262 and 264). It writes 2,000 pins and more through all nodes while the
// leader is killed every few seconds, then kills everybody, pauses a leader and restarts nodes without end.
func TestNothingAcknowledgedIsLostUnderFire(t *testing.T) {
	c := harness.Start(t, harness.Options{Replication: 2})
	source := harness.StartBoxo(t)
	f := &fire{
		c: c, token: c.Nodes[0].UserKey("fire@example.org").Token,
		files: source.AddRandom(fireFiles, fireBytes), origins: source.Addrs,
	}
	t.Run("A1 261 262: the leader is killed every few seconds", func(t *testing.T) { testKilledLeaders(t, f) })
	t.Run("A2: all are killed at one moment", func(t *testing.T) {
		c := c.As(t)
		for _, n := range c.Nodes {
			n.Kill()
		}
		for _, n := range c.Nodes {
			n.Restart()
		}
		c.Settle()
		f.check(t)
	})
	t.Run("264: who joins late sees what the others see", func(t *testing.T) { testLateJoiner(t, c) })
	t.Run("A5: a leader that was paused", func(t *testing.T) { testPausedLeader(t, c.As(t)) })
	t.Run("A13: every node is killed every two seconds", func(t *testing.T) { testRepeatedKills(t, f) })
}

func testKilledLeaders(t *testing.T, f *fire) {
	c := f.c.As(t)
	kills := fireKills
	if *longFlag {
		kills = fireKillsLong
	}
	ctx, cancel := context.WithTimeout(t.Context(), fireWithin)
	defer cancel()
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.clients(ctx)
	}()
	defer func() { cancel(); <-done }()
	killed := 0
	for ctx.Err() == nil && (killed < kills || f.acknowledged() < firePins) {
		harness.Pause(ctx, fireCalm)
		leader := c.Leader()
		leader.Kill()
		killed++
		harness.Pause(ctx, fireDown)
		leader.Restart()
		if err := leader.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	harness.Pause(ctx, fireCalm)
	took := time.Since(began)
	cancel()
	<-done
	c.Settle()
	f.check(t)
	f.pinned(t)
	f.check(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.outages)
	worst := f.outages[max(0, len(f.outages)-killed):]
	t.Logf("%d kills in %s, %d attempts, %d acknowledged; the %d longest times without a write: median %s, worst %s",
		killed, took.Round(time.Second), len(f.attempts), f.acked, len(worst), worst[(len(worst)-1)/2].Round(time.Millisecond), worst[len(worst)-1].Round(time.Millisecond))
	if killed < kills || f.acked < firePins {
		t.Errorf("%d kills and %d acknowledged pins show too little", killed, f.acked)
	}
}

// gossipWithin is how long a node's numbers may take to be everywhere.
const gossipWithin = 2 * time.Minute

// testLateJoiner adds a node, which learns what the others hold and use from
// gossip, and removes it again.
func testLateJoiner(t *testing.T, all *harness.Cluster) {
	c := all.As(t)
	late := c.Add(c.JoinArgs(true)...)
	c.Settle()
	id := late.Status().Node.ID
	harness.Eventually(t, gossipWithin, "all nodes tell the same of each", func() (bool, error) {
		var first []string
		for _, n := range c.Live() {
			s, err := n.StatusNow()
			if err != nil {
				return false, err
			}
			var rows []string
			for _, p := range s.Peers {
				if p.ID != id && (p.Pins == 0 || p.UsedBytes == 0) {
					return false, fmt.Errorf("%s knows of %d pins and %d bytes on %s", n.Name, p.Pins, p.UsedBytes, p.Name)
				}
				rows = append(rows, fmt.Sprintf("%s %s %s %s %d %d", p.ID, p.Name, p.State, p.Version, p.Pins, p.UsedBytes))
			}
			rows = append(rows, fmt.Sprint(s.Pins, s.Leader))
			slices.Sort(rows)
			if first == nil {
				first = rows
			} else if !slices.Equal(rows, first) {
				return false, fmt.Errorf("%s tells %v, another %v", n.Name, rows, first)
			}
		}
		return true, nil
	})
	c.Leader().CLI("peers", "rm", id, "--force")
	late.Kill()
	left := all.As(t)
	harness.Eventually(t, gossipWithin, "three members are left", func() (bool, error) {
		for _, n := range left.Live() {
			s, err := n.StatusNow()
			if err != nil || len(s.Peers) != len(left.Nodes) {
				return false, fmt.Errorf("%s sees %d: %w", n.Name, len(s.Peers), err)
			}
		}
		return true, nil
	})
}

// paused is how long a leader is.
const paused = 5 * time.Second

// testPausedLeader stops the leader's process, changes things through the
// others, and asks the old leader first with what waits for it when it goes on.
func testPausedLeader(t *testing.T, c *harness.Cluster) {
	s := newService(t, c, "paused@example.org")
	key := c.Nodes[0].Key("paused@example.org")
	old := s.post(harness.Pin{CID: nowhere().String(), Name: "old"}).RequestID
	if _, err := c.Nodes[0].Pins(key.Token).Get(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	leader := c.Leader()
	began := time.Now()
	leader.Pause()
	others := slices.DeleteFunc(slices.Clone(c.Nodes), func(n *harness.Node) bool { return n.Name == leader.Name })
	other := others[0].Pins(s.token)
	var fresh harness.PinStatus
	retry := func(what string, call func() error) {
		t.Helper()
		harness.Eventually(t, time.Minute, what, func() (bool, error) { err := call(); return err == nil, err })
	}
	retry("a write through another node", func() (err error) {
		fresh, err = other.Post(t.Context(), harness.Pin{CID: nowhere().String(), Name: "fresh"})
		return err
	})
	retry("a delete through another node", func() error {
		err := other.Delete(t.Context(), old)
		if api := (*harness.APIError)(nil); errors.As(err, &api) && api.Status == http.StatusNotFound {
			return nil // an attempt without an answer did it
		}
		return err
	})
	others[1].CLI("key", "revoke", key.ID)
	harness.Pause(t.Context(), paused-time.Since(began))

	// Everything is sent while the process stands still, so nothing else comes first.
	type answer struct {
		what string
		resp harness.Response
		err  error
		ok   func(harness.Response) bool
	}
	ask := func(token, path string) (harness.Response, error) {
		return leader.Pins(token).Do(t.Context(), http.MethodGet, path, nil, nil)
	}
	questions := []struct {
		what, token, path string
		ok                func(harness.Response) bool
	}{
		{"the pin that is gone", s.token, "/pins/" + old, func(r harness.Response) bool { return r.Status == http.StatusNotFound }},
		{"the pin that is new", s.token, "/pins/" + fresh.RequestID, func(r harness.Response) bool { return r.Status == http.StatusOK }},
		{"the list", s.token, "/pins?status=" + url.QueryEscape(harness.AllStatuses), func(r harness.Response) bool {
			text := string(r.Body)
			return r.Status == http.StatusOK && strings.Contains(text, fresh.RequestID) && !strings.Contains(text, old)
		}},
		{"a revoked key", key.Token, "/pins", func(r harness.Response) bool { return r.Status == http.StatusUnauthorized }},
	}
	const each = 3
	answers := make(chan answer, each*len(questions))
	var sent sync.WaitGroup
	for range each {
		for _, q := range questions {
			sent.Go(func() {
				r, err := ask(q.token, q.path)
				answers <- answer{q.what, r, err, q.ok}
			})
		}
	}
	harness.Pause(t.Context(), 200*time.Millisecond) // the kernel has them
	leader.Resume()
	sent.Wait()
	close(answers)
	said := map[int]int{}
	for a := range answers {
		said[a.resp.Status]++
		if a.err != nil {
			t.Errorf("A5: %s: %v", a.what, a.err)
		} else if a.resp.Status != http.StatusServiceUnavailable && !a.ok(a.resp) {
			t.Errorf("A5: %s: the old leader says %d %.200s", a.what, a.resp.Status, a.resp.Body)
		}
	}
	t.Logf("answers of the leader that was paused, by status: %v", said)
	if !leader.Running() {
		t.Fatalf("%s took its pause for a disk that hangs, and ended", leader.Name)
	}
	c.Settle()
	for _, q := range questions {
		if r, err := ask(q.token, q.path); err != nil || !q.ok(r) {
			t.Errorf("A5: %s, later: %d %.200s: %v", q.what, r.Status, r.Body, err)
		}
	}
	if err := c.SameState(t.Context()); err != nil {
		t.Error(err)
	}
}

// Repeated kills.
const (
	killEvery                 = 2 * time.Second // each node
	killsFor, killsLong       = 6 * time.Second, time.Minute
	killsConverge             = 10 * time.Second
	killsGrowth         int64 = 2
)

// testRepeatedKills kills every node every two seconds while clients write.
func testRepeatedKills(t *testing.T, f *fire) {
	c := f.c.As(t)
	last := killsFor
	if *longFlag {
		last = killsLong
	}
	before := diskUse(t, c)
	acked := f.acknowledged()
	calm, cancel := context.WithTimeout(t.Context(), last)
	f.clients(calm)
	cancel()
	f.pinned(t)
	normal, written := diskUse(t, c)-before, f.acknowledged()-acked

	ctx, cancel := context.WithTimeout(t.Context(), last)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.clients(ctx)
	}()
	kills := 0
	for ctx.Err() == nil {
		n := c.Nodes[kills%len(c.Nodes)]
		n.Kill()
		n.Restart()
		kills++
		harness.Pause(ctx, killEvery/time.Duration(len(c.Nodes)))
	}
	<-done
	ended := time.Now()
	c.Settle()
	if err := c.SameState(t.Context()); err != nil {
		t.Error(err)
	}
	converged := time.Since(ended)
	f.pinned(t)
	f.check(t)
	grown, more := diskUse(t, c)-before-normal, f.acknowledged()-acked-written
	t.Logf("%d kills in %s; %d writes and %d KiB before, %d writes and %d KiB during the kills; one state again after %s",
		kills, last, written, normal>>10, more, grown>>10, converged.Round(time.Millisecond))
	if *longFlag && converged > killsConverge {
		t.Errorf("A13: one state again after %s", converged)
	}
	if *longFlag && grown > killsGrowth*max(normal, 1) {
		t.Errorf("A13: the folders grew by %d bytes during the kills, and by %d as much time before", grown, normal)
	}
}

// diskUse returns what the data folders of all nodes take on the disk, in bytes.
func diskUse(t *testing.T, c *harness.Cluster) int64 {
	t.Helper()
	var total int64
	for _, n := range c.Nodes {
		used, err := n.DiskUse()
		if err != nil {
			t.Fatal(err)
		}
		total += used
	}
	return total
}
