package gossip

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

func sample(node state.NodeID, start state.Millis, seq uint64) Sample {
	return Sample{Node: node, Start: start, Seq: seq}
}

// The skew of a node is the time in its newest sample minus the time of this node when the sample came. It is 0
// if no sample told a time.
func TestTheSkewOfAClock(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	table := newTable("a", func() time.Time { return now })
	table.watch([]state.NodeID{"a", "b", "c"})
	ahead, silent := sample("b", 1, 1), sample("c", 1, 1)
	ahead.Time = state.MillisOf(now.Add(3 * time.Second))
	table.record(ahead)
	table.record(silent)
	now = now.Add(time.Hour)
	for id, want := range map[state.NodeID]time.Duration{"a": 0, "b": 3 * time.Second, "c": 0, "x": 0} {
		if got := table.Skew(id); got != want {
			t.Errorf("%s is %s ahead, not %s", id, got, want)
		}
	}
}

// full returns a value in every field.
func full() Sample {
	return Sample{
		Node: "12D3KooWA", Start: 1_760_000_000_000, Seq: 7, Time: 1_760_000_014_000, UsedBytes: 1 << 40, FreeBytes: 1 << 41, Queue: 3, Held: 12,
		Version: "0.1.0", Zone: "rack 7", Addrs: []string{"/ip4/198.51.100.1/tcp/4001/p2p/12D3KooWA"},
		ClusterAddrs: []string{"/ip4/198.51.100.1/tcp/9096/p2p/12D3KooWA"},
		Accounts:     []Account{{ID: "0190f5a2", Requests: 2}, {ID: "0190f5a3", Requests: 32}}, Busy: true,
	}
}

// A sample with a value in every field is encoded as the golden file says and decodes to the same sample.
func TestSampleKeepsItsForm(t *testing.T) {
	s := full()
	got, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	goldentest.File(t, filepath.Join("testdata", "sample.json"), append(got, '\n'))
	back, err := Decode(got)
	if err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("decoded as %+v, %v, want %+v", back, err, s)
	}
}

// Decode rejects a sample whose fields are absent, malformed or out of bounds, and ignores unknown fields.
func TestDecodeRefusesWhatIsOutOfBounds(t *testing.T) {
	const ok = `{"v":1,"node":"a","start":1,"seq":1}`
	for _, tc := range []struct {
		name, in string
		want     error
	}{
		{"least sample", ok, nil},
		{"field of a newer release", `{"v":2,"node":"a","start":1,"seq":1,"new":[1,{"x":2}]}`, nil},
		{"nothing", ``, ErrBadSample},
		{"no object", `[1]`, ErrBadSample},
		{"null", `null`, ErrBadSample},
		{"no version", `{"node":"a","start":1,"seq":1}`, ErrBadSample},
		{"no node", `{"v":1,"start":1,"seq":1}`, ErrBadSample},
		{"long node", `{"v":1,"node":"` + strings.Repeat("n", 129) + `","start":1,"seq":1}`, ErrBadSample},
		{"no start", `{"v":1,"node":"a","seq":1}`, ErrBadSample},
		{"no sequence", `{"v":1,"node":"a","start":1}`, ErrBadSample},
		{"negative time", `{"v":1,"node":"a","start":1,"seq":1,"time":-1}`, ErrBadSample},
		{"negative queue", `{"v":1,"node":"a","start":1,"seq":1,"queue":-1}`, ErrBadSample},
		{"negative size", `{"v":1,"node":"a","start":1,"seq":1,"free":-1}`, ErrBadSample},
		{"number too large", `{"v":1,"node":"a","start":1,"seq":18446744073709551616}`, ErrBadSample},
		{"too many addresses", `{"v":1,"node":"a","start":1,"seq":1,"addrs":["x"` + strings.Repeat(`,"x"`, 32) + `]}`, ErrBadSample},
		{"long address", `{"v":1,"node":"a","start":1,"seq":1,"addrs":["` + strings.Repeat("x", 1025) + `"]}`, ErrBadSample},
		{"accounts", `{"v":1,"node":"a","start":1,"seq":1,"accounts":[{"id":"x","requests":1048576,"new":1}],"busy":true}`, nil},
		{"too many accounts", `{"v":1,"node":"a","start":1,"seq":1,"accounts":[{"id":"x","requests":1}` + strings.Repeat(`,{"id":"x","requests":1}`, MaxAccounts) + `]}`, ErrBadSample},
		{"no account id", `{"v":1,"node":"a","start":1,"seq":1,"accounts":[{"requests":1}]}`, ErrBadSample},
		{"long account id", `{"v":1,"node":"a","start":1,"seq":1,"accounts":[{"id":"` + strings.Repeat("x", 129) + `","requests":1}]}`, ErrBadSample},
		{"account without requests", `{"v":1,"node":"a","start":1,"seq":1,"accounts":[{"id":"x","requests":0}]}`, ErrBadSample},
		{"too many requests", `{"v":1,"node":"a","start":1,"seq":1,"accounts":[{"id":"x","requests":1048577}]}`, ErrBadSample},
		{"bytes after the end", ok + ok, ErrBadSample},
		{"no UTF-8", "{\"v\":1,\"node\":\"\xff\",\"start\":1,\"seq\":1}", ErrBadSample},
		{"too large", ok + strings.Repeat(" ", MaxSample), ErrSampleTooLarge},
		{"deep", strings.Repeat("[", 8000), ErrBadSample},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Decode([]byte(tc.in)); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	s := full()
	b, err := s.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"v":1,"node":"a","start":1,"seq":1,"addrs":[null]}`))
	f.Add([]byte(`{"v":1,"NODE":"a","start":1e3,"seq":1}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := Decode(in)
		if err != nil {
			return
		}
		out, err := s.Encode()
		if errors.Is(err, ErrSampleTooLarge) {
			return // all fields are written, also those that in left out
		}
		if err != nil {
			t.Fatalf("decoded and not encoded: %v", err)
		}
		if back, err := Decode(out); err != nil || !reflect.DeepEqual(back, s) {
			t.Fatalf("%+v came back as %+v, %v", s, back, err)
		}
	})
}

// The gate passes valid samples of their own author, at most 8 in a burst and one every 250 ms in the long run.
// It remembers at most state.MaxNodes authors and forgets silent ones.
func TestGate(t *testing.T) {
	now := time.Unix(0, 0)
	g := NewGate(func() time.Time { return now })
	b, err := (&Sample{Node: "a", Start: 1, Seq: 1}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if g.Accept("b", b) {
		t.Error("a sample that speaks for another node was passed on")
	}
	if g.Accept("c", []byte("{")) {
		t.Error("what is no sample was passed on")
	}
	passed := 0
	for range 10_000 {
		if g.Accept("a", b) {
			passed++
		}
	}
	if passed != gateBurst {
		t.Errorf("%d of a flood were passed on, want %d", passed, gateBurst)
	}
	now = now.Add(2 * gateEvery)
	for i, want := range []bool{true, true, false} {
		if g.Accept("a", b) != want {
			t.Errorf("the allowance does not come back at its rate: message %d", i)
		}
	}
	for i := range 2 * state.MaxNodes {
		g.Accept(strings.Repeat("x", i), b)
	}
	if len(g.authors) > state.MaxNodes {
		t.Errorf("%d authors are remembered", len(g.authors))
	}
	now = now.Add(time.Hour)
	if !g.Accept("a", b) {
		t.Error("authors that are silent keep others out")
	}
}

// clock is a clock that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func watching(c *clock, members ...state.NodeID) *Table {
	t := newTable("self", c.now)
	t.watch(members)
	return t
}

// A watched node is alive for less than 6 s after its last sample, suspect until 15 s, and then down. Without a
// sample the time since watching began counts. A node that is not watched is suspect.
func TestStatesByAge(t *testing.T) {
	for _, tc := range []struct {
		age  time.Duration
		want State
	}{
		{0, Alive},
		{SuspectAfter - 1, Alive},
		{SuspectAfter, Suspect},
		{DownAfter, Suspect},
		{DownAfter + 1, Down},
		{time.Hour, Down},
	} {
		for _, heard := range []bool{true, false} {
			c := &clock{time.Unix(1000, 0)}
			table := watching(c, "a")
			if heard {
				table.record(sample("a", 1, 1))
			}
			c.at = c.at.Add(tc.age)
			_, got, ok := table.Get("a")
			if got != tc.want || ok != heard {
				t.Errorf("age %s, heard %t: %s, %t, want %s", tc.age, heard, got, ok, tc.want)
			}
		}
	}
	c := &clock{time.Unix(1000, 0)}
	if _, s, ok := watching(c, "a").Get("unknown"); s != Suspect || ok {
		t.Errorf("an unwatched node is %s, %t", s, ok)
	}
}

// The agreed time lies between the latest time that most clocks have reached and the earliest that most have
// not passed. It is unknown while most members are silent or send no time.
func TestAWrongClockMovesNoTimeThatMostAgreeOn(t *testing.T) {
	const silent, mute = -1, 0 // nothing is heard of a member; it does not tell its time
	for _, tc := range []struct {
		name string
		said []state.Millis // of the members, this node first
		// 0: not known
		early, late state.Millis
	}{
		{"alone", []state.Millis{500}, 500, 500},
		{"alone, before its first sample", []state.Millis{silent}, 0, 0},
		{"of two", []state.Millis{500, 900}, 500, 900},
		{"of two, the other is silent", []state.Millis{500, silent}, 0, 0},
		{"own ahead", []state.Millis{900, 500, 501}, 501, 501},
		{"own behind", []state.Millis{1, 500, 501}, 500, 500},
		{"another ahead", []state.Millis{500, 900, 501}, 501, 501},
		{"ahead, and one is silent", []state.Millis{900, 500, silent}, 500, 900},
		{"behind, and one is silent", []state.Millis{1, 500, silent}, 1, 500},
		{"two are silent", []state.Millis{900, silent, silent}, 0, 0},
		{"the others are older releases", []state.Millis{900, mute, mute}, 0, 0},
		{"of four, one ahead", []state.Millis{502, 501, 900, 500}, 501, 502},
		{"of four, one behind", []state.Millis{502, 501, 1, 500}, 500, 501},
		{"of five, two ahead", []state.Millis{902, 900, 500, 501, 502}, 502, 502},
		{"of five, two behind", []state.Millis{2, 1, 500, 501, 502}, 500, 500},
		{"at the end of time", []state.Millis{math.MaxInt64}, math.MaxInt64, math.MaxInt64},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{time.Unix(1000, 0)}
			members := []state.NodeID{"self", "b", "c", "d", "e"}[:len(tc.said)]
			table := watching(c, members...)
			for i, said := range tc.said {
				if said != silent {
					s := sample(members[i], 1, 1)
					s.Time = said
					table.record(s)
				}
			}
			want := func(early, late state.Millis) {
				t.Helper()
				if e, l, known := table.Agreed(); e != early || l != late || known != (early > 0) {
					t.Errorf("%d to %d, %t, want %d to %d", e, l, known, early, late)
				}
			}
			want(tc.early, tc.late)
			c.at = c.at.Add(DownAfter)
			if tc.early > 0 { // the clocks may have gone on
				tc.late = min(tc.late, math.MaxInt64-15_000) + 15_000
			}
			want(tc.early, tc.late)
			c.at = c.at.Add(1)
			want(0, 0)
		})
	}
}

// A repeated, outdated or replayed sample is dropped, and so is one of a node that is not watched. A sample
// with an earlier start counts once the process that started later is down.
func TestOutdatedSamplesAreDropped(t *testing.T) {
	type arrival struct {
		after time.Duration
		s     Sample
		want  bool
	}
	for _, tc := range []struct {
		name string
		came []arrival
	}{
		{"in order", []arrival{{0, sample("a", 5, 1), true}, {time.Second, sample("a", 5, 2), true}}},
		{"repeated", []arrival{{0, sample("a", 5, 1), true}, {time.Second, sample("a", 5, 1), false}}},
		{"overtaken", []arrival{{0, sample("a", 5, 3), true}, {0, sample("a", 5, 2), false}}},
		{"restarted", []arrival{{0, sample("a", 5, 9), true}, {0, sample("a", 6, 1), true}, {0, sample("a", 5, 10), false}}},
		{"an old process replayed", []arrival{{0, sample("a", 5, 1), true}, {time.Second, sample("a", 4, 99), false}}},
		{"the same process replayed while silent", []arrival{{0, sample("a", 5, 3), true}, {time.Hour, sample("a", 5, 2), false}}},
		{"restarted with a clock that went back", []arrival{
			{0, sample("a", 5, 1), true},
			{time.Second, sample("a", 4, 1), false},
			{DownAfter, sample("a", 4, 2), true},
			{time.Second, sample("a", 4, 3), true},
			{time.Second, sample("a", 5, 2), true},
		}},
		{"unwatched node", []arrival{{0, sample("x", 5, 1), false}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{time.Unix(1000, 0)}
			table := watching(c, "a", "b")
			for i, a := range tc.came {
				c.at = c.at.Add(a.after)
				if got := table.record(a.s); got != a.want {
					t.Fatalf("arrival %d, %d/%d: recorded %t, want %t", i, a.s.Start, a.s.Seq, got, a.want)
				}
			}
		})
	}
}

// The table has the watched nodes and no others, at most maxEntries of them, and a new one is alive.
func TestTableFollowsTheMembers(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	table := watching(c, "a", "b")
	table.record(sample("a", 1, 1))
	c.at = c.at.Add(time.Hour)
	table.watch([]state.NodeID{"b", "new"})
	if _, _, ok := table.Get("a"); ok {
		t.Error("a node that has left is remembered")
	}
	if _, s, _ := table.Get("new"); s != Alive {
		t.Errorf("a node that has just joined is %s", s)
	}
	var all []state.NodeID
	for _, p := range table.All() {
		all = append(all, p.Node)
	}
	if want := []state.NodeID{"b", "new"}; !slices.Equal(all, want) {
		t.Errorf("watched %v, want %v", all, want)
	}
	many := make([]state.NodeID, 2*maxEntries)
	for i := range many {
		many[i] = state.NodeID(strings.Repeat("n", i+1))
	}
	table.watch(many)
	if n := len(table.All()); n != maxEntries {
		t.Errorf("%d nodes are watched", n)
	}
}

// Silent is the time since a node's last sample, or since watching began if there was none. For a node that is
// not watched it is 0.
func TestSilenceIsCountedFromTheLastSignOfLife(t *testing.T) {
	c := &clock{at: time.Unix(1_000, 0)}
	table := newTable("self", c.now)
	table.watch([]state.NodeID{"self", "a", "b"})
	c.at = c.at.Add(20 * time.Second)
	table.record(sample("a", 1, 1))
	c.at = c.at.Add(14 * time.Second)
	for id, want := range map[state.NodeID]time.Duration{"a": 14 * time.Second, "b": 34 * time.Second, "nobody": 0} {
		if got := table.Silent(id); got != want {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
}

// A node counts as down only for the time in which this process ran and heard samples of other nodes.
func TestDownSinceCountsOnlyWhatThisNodeCouldHear(t *testing.T) {
	members := []state.NodeID{"self", "a", "b"}
	for _, tc := range []struct {
		name string
		run  func(table *Table, c *clock, tick func(seconds int, heard ...state.NodeID))
		want time.Duration // how long b has been down; 0: it is not
	}{
		{"silent", func(_ *Table, _ *clock, tick func(int, ...state.NodeID)) { tick(100, "a") }, 100 * time.Second},
		{"just silent", func(_ *Table, _ *clock, tick func(int, ...state.NodeID)) { tick(15, "a") }, 0},
		{"this process was stopped", func(table *Table, c *clock, tick func(int, ...state.NodeID)) {
			tick(10, "a")
			c.at = c.at.Add(time.Hour)
			tick(20, "a")
		}, 18 * time.Second},
		{"this node was cut off", func(table *Table, c *clock, tick func(int, ...state.NodeID)) {
			tick(3600)
			tick(20, "a")
		}, 18 * time.Second},
		{"heard again", func(_ *Table, _ *clock, tick func(int, ...state.NodeID)) {
			tick(3600, "a")
			tick(2, "b")
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{time.Unix(1000, 0)}
			table := watching(c, members...)
			seq := uint64(0)
			tick := func(seconds int, heard ...state.NodeID) {
				for i := 2; i <= seconds+1; i += 2 {
					c.at = c.at.Add(min(2, time.Duration(seconds-i+2)) * time.Second)
					table.watch(members)
					for _, n := range heard {
						seq++
						table.record(sample(n, 1, seq))
					}
				}
			}
			tc.run(table, c, tick)
			since, down := table.DownSince("b")
			if down != (tc.want > 0) || down && c.at.Sub(since) != tc.want {
				t.Errorf("down %t for %s, want %s", down, c.at.Sub(since), tc.want)
			}
		})
	}
}

// air carries messages between the topics of one bubble.
type air struct {
	mu     sync.Mutex
	topics map[string]*topic
	mute   bool
}

type topic struct {
	air  *air
	id   string
	in   chan message
	end  chan struct{}
	sent int
}

type message struct {
	from string
	data []byte
}

func (a *air) join(id string) *topic {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := &topic{air: a, id: id, in: make(chan message, 1024), end: make(chan struct{})}
	a.topics[id] = t
	return t
}

func (t *topic) Publish(_ context.Context, data []byte) error {
	t.air.mu.Lock()
	defer t.air.mu.Unlock()
	if t.air.mute {
		return errors.New("nobody is connected")
	}
	t.sent++
	for id, o := range t.air.topics {
		if id != t.id {
			o.in <- message{t.id, data}
		}
	}
	return nil
}

func (t *topic) Next(ctx context.Context) (string, []byte, error) {
	select {
	case m := <-t.in:
		return m.from, m.data, nil
	case <-t.end:
		return "", nil, errors.New("topic closed")
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
}

func node(id state.NodeID, topic Topic, members []state.NodeID, queue int) *Gossip {
	return New(Options{
		Self: id, Topic: topic, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Measure: func() Sample {
			return Sample{Queue: queue, Version: "1", Addrs: slices.Repeat([]string{strings.Repeat("x", 900)}, 32)}
		},
		Members: func() []state.NodeID { return members },
	})
}

func start(t *testing.T, g *Gossip) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// Every node learns the newest samples of all others, also a node that starts late. A node that is stopped says
// so in its last sample, is down after a while, and is alive after a restart.
func TestNodesHearOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := []state.NodeID{"a", "b", "late"}
		air := &air{topics: map[string]*topic{}}
		a := node("a", air.join("a"), members, 1)
		stopA := start(t, a)
		defer stopA()
		stopB := start(t, node("b", air.join("b"), members, 2))
		pass(time.Minute)
		late := node("late", air.join("late"), members, 3)
		defer start(t, late)()
		pass(2 * DefaultEvery)
		for _, want := range []struct {
			id    state.NodeID
			queue int
		}{{"a", 1}, {"b", 2}, {"late", 3}} {
			for _, g := range []*Gossip{a, late} {
				s, alive, ok := g.Table().Get(want.id)
				if !ok || alive != Alive || s.Queue != want.queue || s.Version != "1" || len(s.Addrs) == 0 {
					t.Fatalf("%s knows of %s: %+v, %s, %t", g.opts.Self, want.id, s, alive, ok)
				}
			}
		}
		from, to, known := a.Table().Agreed()
		if !known || time.Since(from.Time()) > 2*DefaultEvery || time.Since(to.Time()).Abs() > DefaultEvery {
			t.Fatalf("they agree on %v to %v, %t", from, to, known)
		}
		stopB()
		pass(time.Second)
		if s, _, _ := a.Table().Get("b"); !s.Ends {
			t.Fatalf("the last sample of a stopped node does not say so: %+v", s)
		}
		pass(DownAfter + DefaultEvery)
		if _, alive, _ := a.Table().Get("b"); alive != Down {
			t.Fatalf("a stopped node is %s", alive)
		}
		defer start(t, node("b", air.topics["b"], members, 5))()
		pass(time.Second)
		if s, alive, _ := a.Table().Get("b"); alive != Alive || s.Queue != 5 || s.Ends {
			t.Fatalf("a restarted node is %s, %+v", alive, s)
		}
	})
}

// A node sends 25 to 36 samples a minute, and takes itself for alive while it cannot send any.
func TestGossipIsQuietAndGoesOnWithoutANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		air := &air{topics: map[string]*topic{}}
		own := air.join("a")
		g := node("a", own, []state.NodeID{"a", "b"}, 0)
		defer start(t, g)()
		pass(time.Minute)
		if own.sent < 25 || own.sent > 36 {
			t.Fatalf("%d samples in a minute", own.sent)
		}
		air.mu.Lock()
		air.mute = true
		air.mu.Unlock()
		pass(time.Minute)
		if _, alive, ok := g.Table().Get("a"); !ok || alive != Alive {
			t.Fatalf("the node takes itself for %s", alive)
		}
	})
}

// TestASampleInAHurryIsSentEarly promises that a sample is sent at once when it is wanted early,
// that many calls do not flood the topic, and that samples go on as before.
func TestASampleInAHurryIsSentEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		air := &air{topics: map[string]*topic{}}
		own := air.join("a")
		g := node("a", own, []state.NodeID{"a", "b"}, 0)
		defer start(t, g)()
		sent := func() int {
			air.mu.Lock()
			defer air.mu.Unlock()
			return own.sent
		}
		pass(time.Second)
		want := sent() + 1
		g.Hurry()
		pass(time.Millisecond)
		if got := sent(); got != want {
			t.Fatalf("%d samples were sent at once, want %d", got, want)
		}
		for range 100 {
			g.Hurry()
			pass(hurryEvery / 10)
		}
		if more := sent() - want; more < 9 || more > 11 {
			t.Errorf("%d samples in ten times %v", more, hurryEvery)
		}
		pass(hurryEvery) // a last call may not have been answered
		want = sent()
		pass(time.Minute)
		if more := sent() - want; more < 25 || more > 36 {
			t.Errorf("%d samples in a minute", more)
		}
	})
}

// TestAddressesCountMoreThanAccounts promises that a sample that is too large leaves out its
// accounts first.
func TestAddressesCountMoreThanAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		air := &air{topics: map[string]*topic{}}
		g := node("a", air.join("a"), []state.NodeID{"a"}, 0)
		addrs := slices.Repeat([]string{strings.Repeat("x", 980)}, 8)
		g.opts.Measure = func() Sample {
			return Sample{Addrs: addrs, Accounts: slices.Repeat([]Account{{ID: state.AccountID(strings.Repeat("i", state.MaxIDLen)), Requests: 1}}, MaxAccounts)}
		}
		defer start(t, g)()
		pass(time.Second)
		if s, _, ok := g.Table().Get("a"); !ok || len(s.Addrs) != len(addrs) || len(s.Accounts) != 0 {
			t.Errorf("%t, %d addresses and %d accounts, want %d and 0", ok, len(s.Addrs), len(s.Accounts), len(addrs))
		}
	})
}

// A sample that names another node than its sender, or that is invalid, is not recorded.
func TestSamplesForOthersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		air := &air{topics: map[string]*topic{}}
		own := air.join("a")
		g := node("a", own, []state.NodeID{"a", "b"}, 0)
		defer start(t, g)()
		forged, err := (&Sample{Node: "b", Start: 1, Seq: 1}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		own.in <- message{"x", forged}
		own.in <- message{"b", []byte("{}")}
		pass(time.Second)
		if _, _, ok := g.Table().Get("b"); ok {
			t.Fatal("a forged sample was recorded")
		}
	})
}

// Run returns an error if its topic is closed.
func TestRunFailsWithItsTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := (&air{topics: map[string]*topic{}}).join("a")
		close(own.end)
		if err := node("a", own, []state.NodeID{"a"}, 0).Run(t.Context()); err == nil {
			t.Fatal("Run ended without an error")
		}
	})
}

func BenchmarkSample(b *testing.B) {
	s := full()
	data, err := s.Encode()
	if err != nil {
		b.Fatal(err)
	}
	c := &clock{time.Unix(1000, 0)}
	table := watching(c, s.Node)
	b.ReportAllocs()
	for b.Loop() {
		s, err := Decode(data)
		if err != nil {
			b.Fatal(err)
		}
		table.record(s)
	}
}

// A node that reaches nobody warns once, not with each sample, and once more after it
// had reached somebody.
func TestSamplesThatCannotBeSentAreWarnedOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		air := &air{topics: map[string]*topic{}, mute: true}
		a := node("a", air.join("a"), []state.NodeID{"a", "b"}, 1)
		var logs bytes.Buffer
		a.opts.Logger = slog.New(slog.NewTextHandler(&logs, nil))
		stop := start(t, a)
		mute := func(on bool) {
			air.mu.Lock()
			defer air.mu.Unlock()
			air.mute = on
		}
		warned := func(want int) {
			t.Helper()
			pass(5 * a.opts.Every)
			if got := strings.Count(logs.String(), `level=WARN msg="cannot send the gossip sample"`); got != want {
				t.Errorf("%d warnings, want %d", got, want)
			}
		}
		warned(1)
		mute(false)
		warned(1)
		mute(true)
		warned(2)
		stop()
	})
}
