package web

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// load is clients of one account that send one request after the other.
type load struct {
	p       *Pacer
	account state.AccountID
	clients int
	takes   time.Duration // of each request, while it is served
	pause   time.Duration // of each client after a request
}

// run sends requests for a time, and returns how many were served and how long one waited at
// the most before it was.
func (l load) run(t *testing.T, lasts time.Duration) (served int, waited time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range l.clients {
		all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				leave, err := l.p.Enter(ctx, l.account)
				if err != nil {
					return
				}
				mu.Lock()
				served, waited = served+1, max(waited, time.Since(began))
				mu.Unlock()
				<-time.After(l.takes)
				leave()
				if l.pause > 0 { // the race detector of Go 1.26 does not bear timers that have passed
					<-time.After(l.pause)
				}
			}
		})
	}
	all.Wait()
	return served, waited
}

// always are processors that are busy or not.
func always(busy bool) func(time.Duration) func() bool {
	return func(time.Duration) func() bool { return func() bool { return busy } }
}

// others are nodes that say always the same.
type others struct {
	requests map[state.AccountID]int
	busy     bool
	hurries  int
	report   func() (map[state.AccountID]int, bool)
}

func (o *others) SetReport(report func() (map[state.AccountID]int, bool)) { o.report = report }
func (o *others) Hurry()                                                  { o.hurries++ }
func (o *others) Elsewhere() (map[state.AccountID]int, bool)              { return o.requests, o.busy }

// TestANoisyNeighbourIsPaced promises that an account with many requests at a time is held to
// its rate while processors are busy and another account sends to any node, that the other one
// never waits, and that nobody waits otherwise.
func TestANoisyNeighbourIsPaced(t *testing.T) {
	for _, c := range []struct {
		name           string
		rate           int
		busy           bool
		elsewhere      others
		beside         int           // clients of the other account; 0: there is none
		least, most    int           // requests of the noisy one in ten seconds
		noisy, another time.Duration // one request of each waits at the most
	}{
		{name: "beside a modest one on a busy node", rate: 250, busy: true, beside: 1, least: 2_000, most: 3_500, noisy: maxPaced},
		{name: "alone on a busy node", rate: 250, busy: true, least: 32_000, most: 32_100},
		// Whichever sends first seems noisy until the other one's requests are there.
		{name: "beside one that is alike", rate: 250, busy: true, beside: 20, least: 31_900, most: 32_100, noisy: growSample, another: growSample},
		{name: "on a node with time to spare", rate: 250, beside: 1, least: 31_900, most: 32_100, noisy: paceSample},
		{name: "beside a modest one on another node", rate: 250, busy: true, elsewhere: others{requests: map[state.AccountID]int{"other": 8}}, least: 2_000, most: 3_500, noisy: maxPaced},
		{name: "beside one while the leader is busy", rate: 250, elsewhere: others{busy: true}, beside: 1, least: 2_000, most: 3_500, noisy: maxPaced},
		{name: "beside one elsewhere while the leader is busy", rate: 250, elsewhere: others{requests: map[state.AccountID]int{"other": 8}, busy: true}, least: 2_000, most: 3_500, noisy: maxPaced},
		{name: "beside one elsewhere that is alike", rate: 250, busy: true, elsewhere: others{requests: map[state.AccountID]int{"other": 9}}, least: 32_000, most: 32_100},
		{name: "on several nodes beside one that is modest", rate: 250, busy: true, elsewhere: others{requests: map[state.AccountID]int{"noisy": 4, "other": 9}}, least: 2_000, most: 3_500, noisy: maxPaced},
		{name: "beside one that is modest on this node alone", rate: 250, busy: true, elsewhere: others{requests: map[state.AccountID]int{"other": 20}}, beside: 1, least: 32_000, most: 32_100},
		{name: "beside one elsewhere with time to spare", rate: 250, elsewhere: others{requests: map[state.AccountID]int{"other": 1}}, least: 31_900, most: 32_100, noisy: paceSample},
		{name: "alone on several nodes", rate: 250, busy: true, elsewhere: others{requests: map[state.AccountID]int{"noisy": 1}, busy: true}, least: 32_000, most: 32_100},
		{name: "without a rate", busy: true, beside: 1, least: 32_000, most: 32_100},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := NewPacer(c.rate, 2, always(c.busy), &c.elsewhere)
				noisy := load{p: p, account: "noisy", clients: 32, takes: 10 * time.Millisecond}
				other := load{p: p, account: "other", clients: c.beside, takes: 5 * time.Millisecond, pause: 20 * time.Millisecond}
				var beside sync.WaitGroup
				beside.Go(func() {
					if served, waited := other.run(t, 10*time.Second); waited > c.another || served < 390*c.beside {
						t.Errorf("the other account waited for %v, %d served", waited, served)
					}
				})
				served, waited := noisy.run(t, 10*time.Second)
				beside.Wait()
				if served < c.least || served > c.most || waited > c.noisy {
					t.Errorf("%d of the noisy account were served, one waited for %v; want %d to %d, %v at the most", served, waited, c.least, c.most, c.noisy)
				}
			})
		})
	}
}

// TestManyRequestsAtOnceDoNotAllStart promises that of 64 requests that an account sends at once, beside another
// account, few start at once, and that the others start after paceSample only if the processors are not busy.
func TestManyRequestsAtOnceDoNotAllStart(t *testing.T) {
	const requests, first = 64, firstLimit * 2
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy %t", busy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now atomic.Bool
				p := NewPacer(1, 2, func(time.Duration) func() bool { return now.Load }, nil)
				enter := func(id state.AccountID) {
					t.Helper()
					leave, err := p.Enter(t.Context(), id)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(leave)
				}
				enter("other")
				var started atomic.Int64
				var all sync.WaitGroup
				for range requests {
					all.Go(func() {
						enter("noisy")
						started.Add(1)
					})
				}
				synctest.Wait()
				// The rate admits one more, and one that comes before there are enough to be noisy.
				if n := started.Load(); n < first || n > 2*first+1 {
					t.Errorf("%d requests start at once, want %d or a few more", n, first)
				}
				now.Store(busy)
				<-time.After(paceSample)
				synctest.Wait()
				if n := started.Load(); busy && n > 2*first+1 || !busy && n != requests {
					t.Errorf("%d of %d requests have started after %v, busy: %t", n, requests, paceSample, busy)
				}
				all.Wait() // none waits for longer than a second
			})
		})
	}
}

// TestANoisyAccountHasOneRequestForTwoProcessors promises that a node serves one request of a noisy
// account for every two processors half of the time, and that only the rate admits more.
func TestANoisyAccountHasOneRequestForTwoProcessors(t *testing.T) {
	const (
		// So few that each has its turn before maxPaced, after which a request starts in any case.
		clients, lasts = 32, 10 * time.Second
		each           = 500 // requests of 10 ms that one client sends in that time, with pauses as long
	)
	for processors, atOnce := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 16: 8} {
		t.Run(strconv.Itoa(processors), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := NewPacer(1, processors, always(true), nil)
				other := load{p: p, account: "other", clients: 1, takes: time.Millisecond, pause: 20 * time.Millisecond}
				var beside sync.WaitGroup
				beside.Go(func() { other.run(t, lasts) })
				served, waited := load{p: p, account: "noisy", clients: clients, takes: 10 * time.Millisecond}.run(t, lasts)
				beside.Wait()
				if waited >= maxPaced {
					t.Errorf("a request of the noisy account waited for %v", waited)
				}
				// The first samples have no bound, and the rate admits one a second and processor.
				most := each*atOnce + processors*int(lasts/time.Second) + 6*clients
				if least := each*atOnce - clients; served < least || served > most {
					t.Errorf("%d requests of the noisy account were served, want %d to %d", served, least, most)
				}
			})
		})
	}
}

// TestANoisyAccountOnSeveralNodesHasTheShareOfOne promises that a node that has a third of the requests of a
// noisy account serves about a third of what it would serve alone, both of the requests that are always served
// and of those that the rate admits.
func TestANoisyAccountOnSeveralNodesHasTheShareOfOne(t *testing.T) {
	const clients, lasts = 16, 60 * time.Second
	for _, c := range []struct{ rate, processors int }{{1, 2}, {1, 16}, {250, 2}, {250, 6}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			served := func(elsewhere int) (n int) {
				synctest.Test(t, func(t *testing.T) {
					p := NewPacer(c.rate, c.processors, always(true), &others{requests: map[state.AccountID]int{"noisy": elsewhere, "other": 1}})
					n, _ = load{p: p, account: "noisy", clients: clients, takes: 10 * time.Millisecond}.run(t, lasts)
				})
				return n
			}
			alone, part := served(0), served(2*clients)
			// A third; whole requests at once are counted down, and the first samples have no bound.
			if part < alone/5 || part > alone*2/5 {
				t.Errorf("%d requests were served beside twice as many elsewhere, %d without", part, alone)
			}
		})
	}
}

// TestOtherNodesAreTold promises that a node reports how many requests at a time each account
// had of late, that it asks for a report early when an account begins while processors are
// busy, and only then, and that it forgets accounts that no longer send.
func TestOtherNodesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy, elsewhere := false, &others{}
		p := NewPacer(250, 2, func(time.Duration) func() bool { return func() bool { return busy } }, elsewhere)
		send := func(id state.AccountID) {
			t.Helper()
			<-time.After(paceSample)
			leave, err := p.Enter(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			leave()
		}
		want := func(hurries int, requests map[state.AccountID]int) {
			t.Helper()
			got, said := elsewhere.report()
			if elsewhere.hurries != hurries || !maps.Equal(got, requests) || said != busy {
				t.Errorf("%d reports are early, want %d; reported are %v, %t, want %v, %t", elsewhere.hurries, hurries, got, said, requests, busy)
			}
		}
		send("one")
		want(0, map[state.AccountID]int{"one": 1})
		busy = true
		send("one")
		want(0, map[state.AccountID]int{"one": 1})
		send("two")
		want(1, map[state.AccountID]int{"one": 1, "two": 1})
		send("two")
		busy, elsewhere.busy = false, true
		send("three")
		want(2, map[state.AccountID]int{"one": 1, "two": 1, "three": 1})
		for range 3 {
			<-time.After(paceWindow)
			elsewhere.report()
		}
		want(2, nil)
	})
}

// TestLongRequestsAreNotPacedForLong promises that requests that take long are held back for
// no more than a second, however many there are.
func TestLongRequestsAreNotPacedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPacer(1, 1, always(true), nil)
		other := load{p: p, account: "other", clients: 1, takes: time.Millisecond, pause: 20 * time.Millisecond}
		var beside sync.WaitGroup
		beside.Go(func() { other.run(t, 20*time.Second) })
		<-time.After(paceSample)
		served, waited := load{p: p, account: "noisy", clients: 100, takes: 15 * time.Second}.run(t, 10*time.Second)
		if served != 100 || waited > maxPaced {
			t.Errorf("%d of 100 were served, one waited for %v", served, waited)
		}
		beside.Wait()
	})
}

// TestARequestThatNobodyWaitsForLeavesTheLine promises that a client that goes away while its
// request is held back leaves nothing behind, and that the next one is served.
func TestARequestThatNobodyWaitsForLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPacer(1, 1, always(true), nil)
		other, err := p.Enter(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		var leaves []func()
		for range 8 { // noisy from the next sample on
			leave, err := p.Enter(t.Context(), "noisy")
			if err != nil {
				t.Fatal(err)
			}
			leaves = append(leaves, leave)
		}
		<-time.After(2 * paceSample)
		other()
		if other, err = p.Enter(t.Context(), "other"); err != nil { // samples
			t.Fatal(err)
		}
		if leave, err := p.Enter(t.Context(), "noisy"); err == nil { // one a second
			leaves = append(leaves, leave)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := p.Enter(ctx, "noisy"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, want the end of the context", err)
		}
		leave, err := p.Enter(t.Context(), "noisy")
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range append(leaves, leave, other) {
			end()
		}
		if f := p.flows["noisy"]; f.serving != 0 || len(f.waiting) != 0 {
			t.Errorf("left behind: %+v", f)
		}
		// Accounts that send nothing any more are forgotten.
		for range 3 {
			<-time.After(paceWindow)
			if leave, err = p.Enter(t.Context(), "third"); err != nil {
				t.Fatal(err)
			}
			leave()
		}
		if len(p.flows) != 1 {
			t.Errorf("%d accounts are remembered, want 1", len(p.flows))
		}
	})
}

// TestProcessorsAreBusyByStalls promises that the processors count as busy, for the length of the window, after
// two calls between which threads were stalled for more than half of the time.
func TestProcessorsAreBusyByStalls(t *testing.T) {
	now, total := time.Now(), time.Duration(0)
	busy := busyBy(func() (time.Duration, bool) { return total, true }, func() time.Time { return now }, time.Second)
	step := func(lasts, stalled time.Duration) bool {
		now, total = now.Add(lasts), total+stalled
		return busy()
	}
	for i, c := range []struct {
		lasts, stalled time.Duration
		want           bool
	}{
		{50 * time.Millisecond, 20 * time.Millisecond, false},
		{50 * time.Millisecond, 26 * time.Millisecond, true},
		{900 * time.Millisecond, 0, true}, // for a second
		{101 * time.Millisecond, 0, false},
		{2 * time.Second, 2 * time.Second, false}, // too long ago
		{50 * time.Millisecond, 50 * time.Millisecond, true},
	} {
		if got := step(c.lasts, c.stalled); got != c.want {
			t.Errorf("step %d: busy %v, want %v", i, got, c.want)
		}
	}
}

// TestStallsAreReadOfTheOwnGroup promises that the control group's file counts before that of
// the machine, and that a kernel without either has nobody paced.
func TestStallsAreReadOfTheOwnGroup(t *testing.T) {
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	proc, groups := t.TempDir(), t.TempDir()
	if stallReader(proc, groups) != nil {
		t.Error("a reader of nothing")
	}
	for _, c := range []struct {
		name, text string
		want       time.Duration
	}{
		{filepath.Join(proc, "pressure", "cpu"), "some avg10=28.57 avg60=38.62 avg300=32.16 total=11074095764\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", 11074095764 * time.Microsecond},
		{filepath.Join(proc, "self", "cgroup"), "4:memory:/a\n0::/system.slice/holdfast.service\n", 11074095764 * time.Microsecond},
		{filepath.Join(groups, "system.slice", "holdfast.service", "cpu.pressure"), "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n", 7 * time.Microsecond},
	} {
		write(c.name, c.text)
		if got, ok := stallReader(proc, groups)(); !ok || got != c.want {
			t.Errorf("after %s: %v, %v, want %v", c.name, got, ok, c.want)
		}
	}
	for _, text := range []string{"", "full total=1\n", "some avg10=0.00\n", "some total=x\n"} {
		if _, ok := parseStalls([]byte(text)); ok {
			t.Errorf("%q is read", text)
		}
	}
}

// BenchmarkPacer is what a request of an account alone pays.
func BenchmarkPacer(b *testing.B) {
	p := NewPacer(250, 2, always(true), nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			leave, err := p.Enter(b.Context(), "one")
			if err != nil {
				b.Fatal(err)
			}
			leave()
		}
	})
}

// TestRequestsThatWaitSlowTheOthersWithinABound promises that an account with hundreds of requests
// that wait for something else still starts others at an eighth of the rate.
func TestRequestsThatWaitSlowTheOthersWithinABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPacer(200, 2, always(true), nil)
		other := load{p: p, account: "other", clients: 1, takes: time.Millisecond, pause: 20 * time.Millisecond}
		waiting := load{p: p, account: "noisy", clients: 500, takes: time.Minute}
		var beside sync.WaitGroup
		beside.Go(func() { other.run(t, 20*time.Second) })
		beside.Go(func() { waiting.run(t, 20*time.Second) })
		<-time.After(5 * time.Second) // all of those that wait are being served
		served, _ := load{p: p, account: "noisy", clients: 1, takes: time.Millisecond}.run(t, 10*time.Second)
		if served < 300 { // 400 a second and two processors, of which an eighth is left
			t.Errorf("%d requests in ten seconds", served)
		}
		beside.Wait()
	})
}
