//go:build conformance

package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Bounds of an overload and what it may do to a cluster.
const (
	overloadCalm  = 3 * time.Second
	overloadFor   = 3 * time.Second // 5 s with -long
	overloadTries = 2
	// overloadProcessor is what an overload may cost the node it hits, as a share of one
	// processor, on top of what members' requests cost without an overload.
	overloadProcessor = 0.5
	// An election says more about the machine, which unknown peers and nodes share
	// with others here, than about the overload when a timer of this process was so
	// late, or when some node waited so many times longer for a processor than it
	// had one.
	machineBusy     = 60 * time.Millisecond
	machineShared   = 1.0
	overloadPeers   = 1000
	overloadGrowth  = 256 << 20 // resident bytes of one node
	overloadClients = 8
)

// load is what members do meanwhile: clients that write pins through every node
// and read them on another.
type load struct {
	writes []time.Duration
	errs   []error
}

// p99 returns the time within which 99 of 100 writes were answered.
func (l load) p99() time.Duration {
	return quantile(l.writes, 0.99)
}

// work writes and reads until done is closed.
func work(s *service, done <-chan struct{}) load {
	var all sync.WaitGroup
	var mu sync.Mutex
	var sum load
	for range overloadClients {
		all.Go(func() {
			var l load
			for open := true; open; {
				start := time.Now()
				st, err := s.next().Post(s.t.Context(), harness.Pin{CID: nowhere().String()})
				l.writes = append(l.writes, time.Since(start))
				if err == nil {
					_, err = s.next().Get(s.t.Context(), st.RequestID)
				}
				if err == nil {
					err = s.next().Delete(s.t.Context(), st.RequestID)
				}
				l.errs = append(l.errs, err)
				select {
				case <-done:
					open = false
				default:
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sum.writes = append(sum.writes, l.writes...)
			sum.errs = append(sum.errs, l.errs...)
		})
	}
	all.Wait()
	return sum
}

// during does work as long as fn runs.
func during(s *service, fn func()) load {
	done := make(chan struct{})
	result := make(chan load, 1)
	go func() { result <- work(s, done) }()
	fn()
	close(done)
	return <-result
}

// strain is how much the processors are wanted by others.
type strain struct {
	late   time.Duration // timers of this process, at the worst
	waited float64       // time that a node waited for a processor by the time that it ran, at the worst
}

// busy tells whether the machine is too busy to judge a cluster by elections.
func (s strain) busy() bool { return s.late >= machineBusy || s.waited >= machineShared }

// calm returns the load on a cluster that nobody disturbs for some time, and the processor time that
// a node needs for it.
func (s *service) calm(n *harness.Node, lasts time.Duration) (load, time.Duration) {
	s.t.Helper()
	used := n.ProcessorTime()
	l := during(s, func() { harness.Pause(s.t.Context(), lasts) })
	if err := errors.Join(l.errs...); err != nil {
		s.t.Fatal(err)
	}
	return l, n.ProcessorTime() - used
}

// scheduled returns how long the threads of a process ran, and waited to run, from
// /proc. Threads that have ended are missing; Go keeps its own.
func scheduled(t *testing.T, pid int) (ran, waited time.Duration) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		var r, w int64
		if _, err := fmt.Sscan(string(data), &r, &w); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		ran += time.Duration(r)
		waited += time.Duration(w)
	}
	return ran, waited
}

// strained measures the strain while fn runs.
func strained(t *testing.T, c *harness.Cluster, fn func()) (s strain) {
	t.Helper()
	type times struct{ ran, waited time.Duration }
	before := make(map[int]times)
	for _, n := range c.Live() {
		ran, waited := scheduled(t, n.Pid())
		before[n.Pid()] = times{ran, waited}
	}
	s.late = lateness(fn)
	for _, n := range c.Live() {
		if b, ok := before[n.Pid()]; ok {
			ran, waited := scheduled(t, n.Pid())
			s.waited = max(s.waited, float64(waited-b.waited)/float64(max(ran-b.ran, 1)))
		}
	}
	return s
}

// lateness is by how much this process's timers are late at the worst while fn
// runs: how much the processors are wanted by others.
func lateness(fn func()) time.Duration {
	const every = 5 * time.Millisecond
	end := make(chan struct{})
	go func() {
		defer close(end)
		fn()
	}()
	worst := time.Duration(0)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-end:
			return worst
		case <-tick.C:
			now := time.Now()
			worst = max(worst, now.Sub(last)-every)
			last = now
		}
	}
}

// overloadRun is one overload of a node by unknown peers.
type overloadRun struct {
	cluster *harness.Cluster
	service *service
	boxo    *harness.Boxo
	victim  *harness.Node
	refused string // the metric
	lasts   time.Duration
	calm    time.Duration // commit p99 without an overload
}

// run starts unknown peers while members work, and checks the effect on the members.
// idle is what the members' work costs the victim in that time without an overload.
// It runs on a goroutine of its own, so it must not end the test.
func (g overloadRun) run(t *testing.T, addr, kind string, idle time.Duration) (harness.Overload, error) {
	t.Helper()
	before, most := make(map[string]int64), make(map[string]int64)
	for _, n := range g.cluster.Nodes {
		before[n.Name] = n.ResidentBytes()
	}
	refused := g.victim.Metrics()[g.refused]
	used := g.victim.ProcessorTime()
	var overload harness.Overload
	var err error
	rough := during(g.service, func() {
		end := make(chan struct{})
		go func() {
			defer close(end)
			overload, err = g.boxo.Overload(addr, kind, overloadPeers, g.lasts)
		}()
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for over := false; !over; {
			for _, n := range g.cluster.Nodes {
				most[n.Name] = max(most[n.Name], n.ResidentBytes())
			}
			select {
			case <-end:
				over = true
			case <-tick.C:
			}
		}
	})
	if err != nil {
		return overload, err
	}
	refused = g.victim.Metrics()[g.refused] - refused
	used = g.victim.ProcessorTime() - used
	t.Logf("%+v; %.0f refused; %s of processor time in %s, %s without; commits p99 %s (%d), %.1f times that without",
		overload, refused, used, g.lasts, idle, rough.p99(), len(rough.writes), rough.p99().Seconds()/g.calm.Seconds())
	if err := errors.Join(rough.errs...); err != nil {
		t.Errorf("members' requests fail: %v", err)
	}
	for _, n := range g.cluster.Nodes {
		grown := most[n.Name] - before[n.Name]
		t.Logf("%s grew by %d MiB to %d MiB", n.Name, grown>>20, most[n.Name]>>20)
		if grown > overloadGrowth {
			t.Errorf("%s grew by %d MiB", n.Name, grown>>20)
		}
	}
	// Who begins connections over QUIC and does not answer is not even refused.
	unheard := kind == "silent" && overload.Cut == 0 && overload.Secured == 0
	if overload.Dialled < overloadPeers/10 || refused == 0 && !unheard {
		t.Errorf("no overload: %+v, %.0f refused", overload, refused)
	}
	if limit := idle + time.Duration(overloadProcessor*float64(g.lasts)); used > limit {
		t.Errorf("the overload cost %s of processor time in %s, want at most %s", used, g.lasts, limit)
	}
	return overload, nil
}

// overloads are the ways to behave badly, and where.
var overloads = []struct {
	port, kind string
	always     bool // without -long as well
}{
	{"cluster", "churn", true},
	{"cluster", "silent", false},
	{"public", "idle", false},
	{"public", "silent", false},
	{"public", "churn", false},
	{"public", "streams", true},
	{"public", "wants", false},
	{"public", "giant", false},
	{"public", "bomb", true},
	{"quic", "idle", false},
	{"quic", "silent", false},
	{"quic", "churn", true},
	{"quic", "streams", false},
	{"quic", "wants", false},
	{"quic", "giant", false},
	{"quic", "bomb", false},
}

// checkLeft compares what all overloads left on the node that they hit with what
// members' work left on the others since first.
func checkLeft(t *testing.T, c *harness.Cluster, victim *harness.Node, first map[string]int64) {
	t.Helper()
	var others int64
	for _, n := range c.Nodes {
		if grown := n.ResidentBytes() - first[n.Name]; n != victim {
			others = max(others, grown)
		}
	}
	left := victim.ResidentBytes() - first[victim.Name]
	t.Logf("all overloads together left %d MiB on %s, %d MiB on others", left>>20, victim.Name, others>>20)
	if left-others > overloadGrowth {
		t.Errorf("all overloads together left %d MiB on %s, %d MiB on others", left>>20, victim.Name, others>>20)
	}
}

// TestUnknownPeersDoNotDisturbTheCluster promises that members go on while a thousand unknown peers at once behave
// badly at a node's libp2p ports (A56, P14). With -long they do so in every way of the table, without it in those
// that cost most. On the cluster port they get no streams, and a peer that behaves is answered afterwards.
func TestUnknownPeersDoNotDisturbTheCluster(t *testing.T) {
	longForm(t)
	c := harness.Start(t, harness.Options{})
	s := newService(t, c, "overload@example.org")
	boxo := harness.StartBoxo(t)
	victim := c.Leader()
	status := victim.Status()
	addrs := map[string]string{"cluster": status.Node.ClusterAddrs[0]}
	for _, a := range status.Node.Addrs {
		if strings.Contains(a, "/tcp/") {
			addrs["public"] = a
		}
		if strings.Contains(a, "/quic-v1") {
			addrs["quic"] = a
		}
	}
	lasts := overloadFor
	if *longFlag {
		lasts = 5 * time.Second
	}
	// The unknown peers must not win by taking the processors that all share here.
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, boxo.Pid(), 19); err != nil {
		t.Fatal(err)
	}
	calm, used := s.calm(victim, overloadCalm)
	idle := time.Duration(used.Seconds() / overloadCalm.Seconds() * float64(lasts))
	t.Logf("without an overload: %s of processor time in %s; commits p99 %s (%d)", used, overloadCalm, calm.p99(), len(calm.writes))
	first := make(map[string]int64)
	for _, n := range c.Nodes {
		first[n.Name] = n.ResidentBytes()
	}
	for _, tc := range overloads {
		if !tc.always && !*longFlag {
			continue
		}
		t.Run(tc.port+" "+tc.kind, func(t *testing.T) {
			g := overloadRun{cluster: c.As(t), service: s.as(t), boxo: boxo.As(t), victim: victim.As(t), lasts: lasts, calm: calm.p99()}
			host := tc.port
			if host == "quic" {
				host = "public"
			}
			g.refused = `holdfast_peer_strangers_refused_total{host="` + host + `"}`
			for try := 1; ; try++ {
				votes := c.LogLines(`msg="leader changed"`)
				var overload harness.Overload
				var err error
				under := strained(t, c, func() { overload, err = g.run(t, addrs[tc.port], tc.kind, idle) })
				if err != nil {
					t.Fatal(err)
				}
				if tc.port == "cluster" && (overload.Streams > 0 || overload.Protocols > 0) {
					t.Errorf("unknown peers got streams on the cluster port: %+v", overload)
				}
				n := c.LogLines(`msg="leader changed"`) - votes
				t.Logf("%d elections; timers late by %s, a node waited %.1f times as long as it ran", n, under.late, under.waited)
				if n > 0 && !under.busy() {
					t.Errorf("%d elections in the overload, and the machine was not busy: %+v", n, under)
				}
				if n == 0 || t.Failed() {
					break
				}
				t.Log("the machine is too busy to tell")
				if try == overloadTries {
					break
				}
			}
		})
	}
	checkLeft(t, c, victim, first)
	// The doors are open again for whoever behaves.
	f := boxo.AddRandom(1, 300_000)[0]
	s.pinned(s.post(harness.Pin{CID: f.CID, Origins: boxo.Addrs}).RequestID)
	peer := newUnknownPeer(t)
	harness.Eventually(t, pinnedWithin, "a peer that behaves is answered", func() (bool, error) {
		_, err := peer.try(t.Context(), publicOf(t, victim), nowhere(), 0)
		return err == nil, err
	})
}
