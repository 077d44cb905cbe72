package peer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/p2p/net/swarm"
)

const (
	// originDials is the number of places for dials of origins. A dial takes one place for each
	// address that it dials. libp2p dials at most 160 addresses at the same time
	// (swarm.ConcurrentFdDials) and puts all others into one queue. The remaining 32 are for peers
	// that routing finds.
	originDials = swarm.ConcurrentFdDials - 32
	// originGrace is how long a dial keeps its places although other dials wait. It is 1 s longer
	// than three round trips around the world, which TCP and TLS need.
	originGrace = 3 * time.Second
)

// errGaveWay ends a dial that has used its grace time while others wait.
var errGaveWay = errors.New("no answer yet, and others wait to be dialled")

// dials shares the dials of origins fairly between accounts. The number of addresses that are
// dialled at the same time is limited to originDials places. Origins that users name are often
// unreachable, and a dial of such an origin keeps its places until it times out. A free place goes
// to the account with the fewest places, and within the account to the session with the fewest. If
// no place is free, the oldest dial of the account or session with the most places is ended and
// repeated later.
type dials struct {
	// mu guards the fields below and Session.dialling.
	mu       sync.Mutex
	free     int            // free places
	leaving  int            // places of dials that makeRoom has told to end and that have not ended yet
	accounts map[string]int // number of places of each account
	running  []*dial        // oldest first
	waiting  []*Session     // sessions with dials that wait; the session whose last turn is longest ago is first
	recheck  *time.Timer
}

// dialling has the dials of one session, as the type dials counts them.
type dialling struct {
	places  int
	waiting []*dial // oldest first
}

// dial is one origin that waits to be dialled or is being dialled.
type dial struct {
	session *Session
	places  int
	began   time.Time     // zero while it waits
	turn    chan struct{} // closed when its turn begins
	end     context.CancelCauseFunc
	leaving bool
}

func newDials() *dials {
	return &dials{free: originDials, accounts: map[string]int{}}
}

// run waits for places for a dial of the given number of addresses and calls fn. The context of
// fn ends with ctx, or with errGaveWay if the dial must give its places to another dial. run
// returns the error of fn, or the reason why the dial did not begin.
func (d *dials) run(ctx context.Context, s *Session, addresses int, fn func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	// libp2p dials at most this many addresses of one peer at a time.
	me := &dial{session: s, places: min(max(addresses, 1), swarm.DefaultPerPeerRateLimit), turn: make(chan struct{}), end: end}
	d.mu.Lock()
	if s.dialling.waiting = append(s.dialling.waiting, me); len(s.dialling.waiting) == 1 {
		d.waiting = append(d.waiting, s)
	}
	d.give()
	d.mu.Unlock()
	defer d.giveBack(me)
	select {
	case <-me.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := fn(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errGaveWay) {
		return errGaveWay
	}
	return err
}

// giveBack removes a dial that has ended or that was given up before it began, and frees its
// places.
func (d *dials) giveBack(me *dial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if me.began.IsZero() {
		d.leave(me)
	} else {
		d.running = without(d.running, me)
		d.free += me.places
		if me.leaving {
			d.leaving -= me.places
		}
		d.count(me, -me.places)
	}
	d.give()
}

// leave removes a dial from the waiting dials of its session. The caller holds mu.
func (d *dials) leave(me *dial) {
	s := me.session
	s.dialling.waiting = without(s.dialling.waiting, me)
	d.waiting = without(d.waiting, s)
	if len(s.dialling.waiting) > 0 {
		d.waiting = append(d.waiting, s)
	}
}

func without[T comparable](all []T, one T) []T {
	return slices.DeleteFunc(all, func(t T) bool { return t == one })
}

func (d *dials) count(of *dial, by int) {
	s := of.session
	s.dialling.places += by
	if d.accounts[s.account] += by; d.accounts[s.account] == 0 {
		delete(d.accounts, s.account)
	}
}

// less compares two sessions for sorting: first by the number of places of their accounts, then by
// their own. The result is negative, 0 or positive, as of cmp.Compare.
func (d *dials) less(a, b *Session) int {
	return cmp.Or(
		cmp.Compare(d.accounts[a.account], d.accounts[b.account]),
		cmp.Compare(a.dialling.places, b.dialling.places),
	)
}

// give starts the waiting dials for which there are places. The caller holds mu.
func (d *dials) give() {
	for len(d.waiting) > 0 {
		next := slices.MinFunc(d.waiting, d.less).dialling.waiting[0] // the first of equals
		if d.free < next.places {
			d.makeRoom(next)
			return
		}
		d.leave(next)
		d.free -= next.places
		d.count(next, next.places)
		next.began = time.Now()
		d.running = append(d.running, next)
		close(next.turn)
	}
}

// makeRoom frees places for the dial next: it ends running dials of other accounts or sessions that
// have used their grace time (originGrace). If the dial to end has not used it yet, makeRoom sets a
// timer that calls give when it has. The caller holds mu.
func (d *dials) makeRoom(next *dial) {
	for d.free+d.leaving < next.places {
		var most *dial
		for _, r := range d.running {
			if !r.leaving && d.outweighs(r, next) && (most == nil || d.less(r.session, most.session) > 0) {
				most = r
			}
		}
		if most == nil {
			return // a dial that ends calls give again
		}
		if left := originGrace - time.Since(most.began); left > 0 {
			if d.recheck != nil {
				d.recheck.Stop()
			}
			d.recheck = time.AfterFunc(left, func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.give()
			})
			return
		}
		most.leaving = true
		d.leaving += most.places
		most.end(errGaveWay)
	}
}

// outweighs reports whether the dial running may be ended so that next gets its places. That is so
// if the account of running (or, within one account, its session) would then still have at least as
// many places as that of next.
func (d *dials) outweighs(running, next *dial) bool {
	a, b := running.session, next.session
	if a.account != b.account {
		return d.accounts[a.account]-running.places >= d.accounts[b.account]+next.places
	}
	return a.dialling.places-running.places >= b.dialling.places+next.places
}
