package tracker

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// anybody lets everything begin, ten fetches of an account at the most.
var anybody = room{line: [lines]bool{true, true}, first: true, caps: [lines]int{10, 8}}

func newEntry(n int) *entry { return &entry{root: key(n)} }

// The next slot goes to the account with the fewest fetches under way, and to its new pins before its backlog.
func TestSlotsGoToTheAccountWithTheFewest(t *testing.T) {
	q := newQueue()
	for n := range 100 {
		q.add(newEntry(n), "many", fresh)
	}
	for n := range 3 {
		q.add(newEntry(100+n), "few", fresh)
	}
	var picked []state.AccountID
	for range 8 {
		e := q.next(anybody)
		q.begun(e.account)
		picked = append(picked, e.account)
	}
	if got := fmt.Sprint(picked); got != "[many few many few many few many many]" && got != "[few many few many few many many many]" {
		t.Fatal(got)
	}
	few := q.of("few")
	for range 3 {
		q.ended(few)
	}
	q.add(newEntry(200), "few", backlog)
	q.add(newEntry(201), "few", fresh)
	if e := q.next(anybody); e.account != "few" || e.line != fresh {
		t.Fatalf("%s, line %d", e.account, e.line)
	}
}

// A root begins only if its line has room and its account is below its bounds, or if the reserve is free and its
// account has nothing under way.
func TestRoomDecidesWhoMayBegin(t *testing.T) {
	for _, tc := range []struct {
		name   string
		active int
		line   line
		room   room
		want   bool
	}{
		{"room for anybody", 3, fresh, anybody, true},
		{"no room", 0, fresh, room{caps: anybody.caps}, false},
		{"the reserve, and nothing under way", 0, fresh, room{first: true, caps: anybody.caps}, true},
		{"the reserve, and something under way", 1, fresh, room{first: true, caps: anybody.caps}, false},
		{"room for new pins alone", 0, backlog, room{line: [lines]bool{true, false}, caps: anybody.caps}, false},
		{"all of the account's", 10, fresh, anybody, false},
		{"all of its backlog's", 8, backlog, anybody, false},
		{"its backlog's, and a new pin", 8, fresh, anybody, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := newQueue()
			for range tc.active {
				q.begun("a")
			}
			q.add(newEntry(1), "a", tc.line)
			if got := q.next(tc.room) != nil; got != tc.want {
				t.Fatalf("begins: %t, want %t", got, tc.want)
			}
		})
	}
}

// One of four roots that begin is of the backlog while new pins wait too.
func TestOneOfFourIsOfTheBacklog(t *testing.T) {
	q := newQueue()
	for n := range 100 {
		q.add(newEntry(2*n), "a", fresh)
		q.add(newEntry(2*n+1), "a", backlog)
	}
	old := 0
	for range 40 {
		if q.next(anybody).line == backlog {
			old++
		}
	}
	if old != 10 {
		t.Fatalf("%d of 40 from the backlog", old)
	}
}

// After each of 20,000 random steps the queue has the roots that wait, its orders begin with the right account, and
// no account is kept for nothing.
func TestTheQueueKeepsItsOrders(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	q := newQueue()
	var waiting, running []*entry
	next := 0
	for range 20_000 {
		switch rng.IntN(5) {
		case 0, 1:
			e := newEntry(next)
			next++
			q.add(e, state.AccountID(fmt.Sprint("account ", rng.IntN(20))), line(rng.IntN(int(lines))))
			waiting = append(waiting, e)
		case 2:
			e := q.next(anybody)
			if e == nil {
				continue
			}
			e.run = &run{share: q.begun(e.account)}
			running = append(running, e)
			for i, w := range waiting {
				if w == e {
					waiting = append(waiting[:i], waiting[i+1:]...)
				}
			}
		case 3:
			if len(waiting) > 0 {
				i := rng.IntN(len(waiting))
				q.remove(waiting[i])
				waiting = append(waiting[:i], waiting[i+1:]...)
			}
		case 4:
			if len(running) > 0 {
				i := rng.IntN(len(running))
				q.ended(running[i].run.share)
				running = append(running[:i], running[i+1:]...)
			}
		}
		checkQueue(t, q, waiting, running)
	}
}

func checkQueue(t *testing.T, q *queue, waiting, running []*entry) {
	t.Helper()
	if q.length != len(waiting) {
		t.Fatalf("%d wait, want %d", q.length, len(waiting))
	}
	active, inLine := map[state.AccountID]int{}, map[state.AccountID][lines]int{}
	for _, e := range running {
		active[e.account]++
	}
	for _, e := range waiting {
		n := inLine[e.account]
		n[e.line]++
		inLine[e.account] = n
	}
	var in [orders]int
	for account, s := range q.shares {
		n := inLine[account]
		if s.active != active[account] || s.lines[fresh].Len() != n[fresh] || s.lines[backlog].Len() != n[backlog] {
			t.Fatalf("%s: %d under way, %d and %d wait", account, s.active, s.lines[fresh].Len(), s.lines[backlog].Len())
		}
		if s.load() == 0 {
			t.Fatalf("%s is kept for nothing", account)
		}
		for o := range orders {
			if at := s.place[o]; at >= 0 && q.heaps[o].shares[at] != s {
				t.Fatalf("%s is not where it says", account)
			} else if at >= 0 {
				in[o]++
			}
		}
	}
	for o := range orders {
		h := &q.heaps[o]
		if h.Len() != in[o] {
			t.Fatalf("order %d has %d shares, want %d", o, h.Len(), in[o])
		}
		for i := 1; i < h.Len(); i++ {
			if h.Less(i, 0) {
				t.Fatalf("order %d begins with the wrong share", o)
			}
		}
	}
}

// BenchmarkPick is one root through the queue, with so many others in it.
func BenchmarkPick(b *testing.B) {
	for _, tc := range []struct{ roots, accounts int }{{16, 1}, {16 << 10, 1}, {16 << 10, 1 << 10}, {1 << 20, 1 << 10}} {
		b.Run(fmt.Sprintf("%d-roots-%d-accounts", tc.roots, tc.accounts), func(b *testing.B) {
			q := newQueue()
			for n := range tc.roots {
				q.add(&entry{}, state.AccountID(fmt.Sprint("account ", n%tc.accounts)), line(n%int(lines)))
			}
			b.ReportAllocs()
			for b.Loop() {
				e := q.next(anybody)
				s := q.begun(e.account)
				q.add(e, e.account, e.line)
				q.ended(s)
			}
		})
	}
}

// A table that is full makes room for an account that has fewer roots waiting, the new
// one counted, than the account with the most. Else nothing is forgotten: two accounts
// that have as many would push each other's roots out for ever.
func TestRoomIsMadeForAnAccountWithFewer(t *testing.T) {
	for _, tc := range []struct {
		most, own int // roots that wait
		room      bool
	}{{3, 0, true}, {3, 1, true}, {3, 2, false}, {3, 3, false}, {3, 4, false}, {1, 0, true}, {0, 0, false}, {0, 1, false}} {
		bubble(t, Limits{}, func(w *world) {
			const fresher = 1000
			w.pinAs("own", fresher)
			d := &dispatcher{t: w.build(), known: map[state.RootKey]*entry{}, queue: newQueue()}
			add := func(account state.AccountID, n int) *entry {
				e := newEntry(n)
				d.known[e.root] = e
				d.queue.add(e, account, fresh)
				return e
			}
			var newest *entry
			for n := range tc.most {
				newest = add("most", n)
			}
			for n := range tc.own {
				add("own", 100+n)
			}
			view, release := w.state.LocalView()
			defer release()
			room, left := d.makeRoom(view, key(fresher)), len(d.known)
			if room != tc.room || room && left != tc.most+tc.own-1 || !room && left != tc.most+tc.own || d.queue.length != left {
				w.Fatalf("%d and %d wait: room is %v, %d are known and %d wait after it", tc.most, tc.own, room, left, d.queue.length)
			}
			if newest != nil && (d.known[newest.root] == nil) != room {
				w.Fatalf("%d and %d wait: the newest of the account with the most is not what went", tc.most, tc.own)
			}
			if s := d.queue.shares["most"]; room && !s.again {
				w.Fatal("the auditor does not know that it has to come again")
			}
		})
	}
}

// TestARootWithoutRoomDoesNotHideTheNext promises that of changes that come together those behind
// a root without room are looked at too.
func TestARootWithoutRoomDoesNotHideTheNext(t *testing.T) {
	bubble(t, Limits{Known: 1}, func(w *world) {
		w.pin(1)
		d := &dispatcher{t: w.build(), known: map[state.RootKey]*entry{}, queue: newQueue()}
		gone := newEntry(2) // that nobody wants any more
		d.known[gone.root] = gone
		d.enqueue(gone, clustertest.Operator, fresh)
		d.changed(w.Context(), state.Changes{Roots: []state.RootKey{key(1), key(2)}})
		if !d.missed || len(d.known) != 0 || d.queue.length != 0 {
			w.Errorf("left to an audit: %t, known %d, queued %d; want true and none", d.missed, len(d.known), d.queue.length)
		}
	})
}
