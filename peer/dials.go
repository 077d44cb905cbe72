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
	// originDials is how many addresses of origins are dialled at the same time, about.
	// libp2p dials 160 at once (swarm.ConcurrentFdDials) and lets all others wait in one
	// line; what is left is for those that routing finds.
	originDials = swarm.ConcurrentFdDials - 32
	// originGrace is how long a dial has its place whoever waits: a second more than
	// TCP and TLS take over three times around the world.
	originGrace = 3 * time.Second
)

// errGaveWay ends a dial that has had its grace while others wait.
var errGaveWay = errors.New("no answer yet, and others wait to be dialled")

// dials gives the dials of origins their turns. Those whom users name are often gone, and
// each holds a place until it times out. So a place goes to the account with the fewest,
// then to the session with the fewest; and where there is none, an account or a session with
// many gives up what it has dialled for longest, to try again later.
type dials struct {
	// mu guards what follows, and the dialling of every session.
	mu       sync.Mutex
	free     int // places
	leaving  int // of dials that were told to give way, and have not yet
	accounts map[string]int
	running  []*dial    // oldest first
	waiting  []*Session // that have dials which wait, and who had no turn for longest first
	look     *time.Timer
}

// dialling is what a session has of the dials.
type dialling struct {
	places  int
	waiting []*dial // oldest first
}

// dial is one origin that waits for its turn or has it.
type dial struct {
	session *Session
	places  int
	began   time.Time     // zero while it waits
	turn    chan struct{} // closed when it has it
	end     context.CancelCauseFunc
	leaving bool
}

func newDials() *dials {
	return &dials{free: originDials, accounts: map[string]int{}}
}

// run calls fn when there is room for a dial of so many addresses, with a context that ends
// with ctx or when the dial has to give way, for errGaveWay. It returns fn's error, or why
// there was no turn.
func (d *dials) run(ctx context.Context, s *Session, addresses int, fn func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	// libp2p dials at most so many of one peer at a time.
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

// giveBack takes a dial out, whether it had its turn or not.
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

// leave takes a dial out of those of its session that wait. With mu.
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

// less orders sessions by what their accounts, then they themselves have.
func (d *dials) less(a, b *Session) int {
	return cmp.Or(
		cmp.Compare(d.accounts[a.account], d.accounts[b.account]),
		cmp.Compare(a.dialling.places, b.dialling.places),
	)
}

// give starts those whose turn it is. With mu.
func (d *dials) give() {
	for len(d.waiting) > 0 {
		next := slices.MinFunc(d.waiting, d.less).dialling.waiting[0] // the first of several
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

// makeRoom has dials give way to one, as far as they have had their grace, and looks
// again when the next one has. With mu.
func (d *dials) makeRoom(next *dial) {
	for d.free+d.leaving < next.places {
		var most *dial
		for _, r := range d.running {
			if !r.leaving && d.outweighs(r, next) && (most == nil || d.less(r.session, most.session) > 0) {
				most = r
			}
		}
		if most == nil {
			return // until one ends
		}
		if left := originGrace - time.Since(most.began); left > 0 {
			if d.look != nil {
				d.look.Stop()
			}
			d.look = time.AfterFunc(left, func() {
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

// outweighs says whether next has less also once it has what running has now.
func (d *dials) outweighs(running, next *dial) bool {
	a, b := running.session, next.session
	if a.account != b.account {
		return d.accounts[a.account]-running.places >= d.accounts[b.account]+next.places
	}
	return a.dialling.places-running.places >= b.dialling.places+next.places
}
