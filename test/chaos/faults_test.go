package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// fault is something that goes wrong for a while.
type fault uint8

const (
	partition  fault = iota // a node reaches nobody and nobody reaches it
	deaf                    // a node sends, and hears nothing
	mute                    // a node hears, and nobody hears it
	pair                    // two nodes do not reach each other, and others reach both
	slow                    // what a node sends takes long
	powerLoss               // a node ends without a word, and comes back
	blackout                // all do, at one moment
	restart                 // a node ends as it should, and comes back
	flap                    // a node is cut off and back again and again
	hold                    // nothing arrives at or from a node, then all of it does
	slowDisk                // the log of a node takes long for each write
	hungDisk                // it answers no more, for longer than a node waits
	brokenDisk              // a write to it fails
	skew                    // the clock of a node is wrong, by an hour or so
	guest                   // one more node joins, and is removed
	hungState               // the disk under the state of a node answers no more
	split                   // a node and half of the others reach nobody else
	full                    // the disk under the blocks of a node takes no more
	lost                    // a node ends without a word, and comes back without its blocks
	faults
)

func (f fault) String() string {
	return [...]string{
		"partition", "deaf", "mute", "pair", "slow", "power loss", "blackout", "restart",
		"flap", "hold", "slow disk", "hung disk", "broken disk", "skew", "guest", "hung state", "split", "full disk", "lost blocks",
	}[f]
}

// Bounds of the faults of one run, in virtual time.
const (
	calm       = 2 * time.Second // before the first
	maxGap     = 2 * time.Second // between two
	minFault   = 500 * time.Millisecond
	maxFault   = 5 * time.Second
	slowBy     = 400 * time.Millisecond
	faultsEach = 5 // in one run
	// together is how many of them at the end of a run have a second one beside.
	together = 2
	minFlap  = 50 * time.Millisecond
	maxFlap  = 800 * time.Millisecond
	// hungFor is what a hang lasts beyond its step: nodes give up after 5 s.
	hungFor = 3 * time.Second
	maxSkew = 2 * time.Hour
	// fullFor is what a disk stays full beyond its step: others learn of it first.
	fullFor = 5 * time.Second
)

// step is one fault of a plan.
type step struct {
	fault     fault
	leader    bool // the node is the leader, if one is known
	node      int  // else it is this one
	next      int  // no: the one so far after it
	other     int  // of a pair: how far from node, 1 for the next
	gap, last time.Duration
	by        time.Duration // of a clock
	late      bool          // what hangs is done, and only the answer waits
	group     uint64        // of a split: a bit for each node on one side; 0: a half
	oneWay    bool          // of a split: only what the one side sends is lost
	with      *step         // what begins at the same moment; nil: nothing
}

func (s step) String() string {
	who := fmt.Sprintf("node %d", s.node+1)
	if s.leader {
		who = "leader"
	}
	text := fmt.Sprintf("after %v %v of %s for %v", s.gap, s.fault, who, s.last)
	if s.group != 0 {
		text += fmt.Sprintf(" in groups %b", s.group)
	}
	if s.oneWay {
		text += " one way"
	}
	if s.with != nil {
		text += ", and " + s.with.String()
	}
	return text
}

// plan draws the faults of a seed, for so many nodes.
func plan(rng *rand.Rand, size int) []step {
	steps := make([]step, faultsEach)
	for i := range steps {
		steps[i] = draw(rng, size)
		if i >= faultsEach-together {
			with := draw(rng, size)
			steps[i].with = &with
		}
	}
	return steps
}

func draw(rng *rand.Rand, size int) step {
	return step{
		fault: fault(rng.IntN(int(faults))), leader: rng.IntN(2) == 0, node: rng.IntN(size), other: 1 + rng.IntN(size-1),
		gap:  time.Duration(rng.Int64N(int64(maxGap))).Round(time.Millisecond),
		last: minFault + time.Duration(rng.Int64N(int64(maxFault-minFault))).Round(time.Millisecond),
		by:   time.Duration(rng.Int64N(int64(2*maxSkew))) - maxSkew,
		late: rng.IntN(2) == 0,
	}
}

// hangsUntil is how long a write of Raft's log may hang before the node ends.
const hangsUntil = 5 * time.Second

// hangs draws faults of nothing but disks that hang, of two nodes at a time, most
// of them for about as long as a node waits, from every offset to each other.
func hangs(rng *rand.Rand, size int) []step {
	one := func() step {
		s := draw(rng, size)
		s.fault = hungDisk
		if rng.IntN(4) == 0 {
			s.fault = hungState
		}
		s.late = rng.IntN(2) == 0
		s.last = hangsUntil - hungFor
		switch rng.IntN(4) {
		case 0:
			s.last += time.Duration(rng.IntN(3)-1) * 100 * time.Millisecond
		case 1:
			s.last += time.Duration(rng.IntN(500)) * time.Millisecond
		case 2:
			s.last += time.Duration(rng.IntN(2000)-1000) * time.Millisecond
		}
		return s
	}
	steps := make([]step, faultsEach)
	for i := range steps {
		steps[i] = one()
		steps[i].gap = time.Second + time.Duration(rng.IntN(1000))*time.Millisecond
		with := one()
		with.gap = time.Duration(rng.IntN(200)) * time.Millisecond
		if rng.IntN(2) == 0 {
			with.gap = time.Duration(rng.IntN(6000)) * time.Millisecond
		}
		if !steps[i].leader && !with.leader && steps[i].node == with.node {
			with.node = (with.node + 1) % size
		}
		steps[i].with = &with
	}
	return steps
}

// noRoom draws faults of which every other one is a full disk, most of them beside another
// fault, and one that takes a node's blocks.
func noRoom(rng *rand.Rand, size int) []step {
	steps := plan(rng, size)
	for i := range steps {
		with := draw(rng, size)
		with.fault = full
		steps[i].with = &with
		if steps[i].fault == lost {
			steps[i].fault = full
		}
	}
	steps[rng.IntN(len(steps))].fault = lost
	return steps
}

// deposed draws faults that leave a leader with a minority, in which a log hangs,
// most of them for shorter than the node waits.
func deposed(rng *rand.Rand, size int) []step {
	steps := make([]step, faultsEach)
	for i := range steps {
		last := minFault + time.Duration(rng.Int64N(int64(hungFor)))
		steps[i] = step{
			fault: split, leader: true, last: last, gap: time.Second,
			with: &step{fault: hungDisk, leader: true, next: 1, late: rng.IntN(2) == 0, last: last - hungFor + time.Duration(rng.IntN(1000))*time.Millisecond},
		}
	}
	return steps
}

// cutsEach is how many cuts a run of many nodes has.
const cutsEach = 12

// cuts draws faults of nothing but lines: a leader or another node alone, groups, one way and
// both, lines that come and go, and such as hold up what is on its way for as long as clients
// wait and longer. Every third one has another one beside it.
func cuts(rng *rand.Rand, size int) []step {
	kinds := []fault{partition, deaf, mute, pair, split, split, split, flap, hold, hold}
	one := func() step {
		s := draw(rng, size)
		s.fault = kinds[rng.IntN(len(kinds))]
		if s.fault == split {
			for s.group = 0; s.group == 0; { // somebody on each side
				s.group = rng.Uint64N(1<<size - 1)
			}
			s.oneWay = rng.IntN(3) == 0
		}
		return s
	}
	steps := make([]step, cutsEach)
	for i := range steps {
		steps[i] = one()
		if i%3 == 2 {
			with := one()
			with.gap = time.Duration(rng.IntN(2000)) * time.Millisecond
			steps[i].with = &with
		}
	}
	return steps
}

// cause lets one fault happen and end, and what goes with it. An error says that
// the run does not count, because neither happened, or that a node did not come
// back.
func (c *cluster) cause(ctx context.Context, s step) error {
	both := []step{s}
	if s.with != nil {
		both = append(both, *s.with)
	}
	errs := make([]error, len(both))
	var running sync.WaitGroup
	for i, s := range both {
		running.Go(func() {
			if i > 0 {
				harness.Pause(ctx, s.gap)
			}
			errs[i] = c.happen(ctx, s)
		})
	}
	running.Wait()
	var unseen, wrong []error
	for i, err := range errs {
		var invalid invalid
		switch {
		case err == nil:
			c.fired[both[i].fault]++
		case errors.As(err, &invalid):
			unseen = append(unseen, err)
		default:
			wrong = append(wrong, err)
		}
	}
	// What the other fault kept from happening need not have happened.
	if len(unseen) == len(both) {
		return unseen[0]
	}
	return errors.Join(wrong...)
}

func (c *cluster) happen(ctx context.Context, s step) error {
	node, size := s.node, len(c.members)
	if number, known := c.leader(ctx); s.leader && known && number < size {
		node = number
	}
	node = (node + s.next) % size
	all := []int{node} // from this node on, around
	var from, to []link
	for i := 1; i < size; i++ {
		other := (node + i) % size
		all, from, to = append(all, other), append(from, link{node, other}), append(to, link{other, node})
	}
	around := slices.Concat(from, to)
	other := (node + s.other) % size
	switch s.fault {
	case powerLoss:
		return c.crash(ctx, s.last, node)
	case blackout:
		return c.crash(ctx, s.last, all...)
	case restart:
		return c.restart(ctx, node, s.last)
	case slow:
		return c.slowDown(ctx, s.last, from...)
	case partition:
		return c.cutOff(ctx, s.last, around...)
	case deaf:
		return c.cutOff(ctx, s.last, to...)
	case mute:
		return c.cutOff(ctx, s.last, from...)
	case split:
		return c.cutOff(ctx, s.last, s.split(all)...)
	case pair:
		return c.cutOff(ctx, s.last, link{node, other}, link{other, node})
	case flap:
		return c.flap(ctx, s, around...)
	case hold:
		return c.holdBack(ctx, s.last, around...)
	case slowDisk:
		return c.slowDisk(ctx, node, s.last)
	case hungDisk:
		return c.hangDisk(ctx, node, &c.members[node].disk, s.last+hungFor, s.late)
	case hungState:
		return c.hangDisk(ctx, node, &c.members[node].store, s.last+hungFor, s.late)
	case brokenDisk:
		return c.breakDisk(ctx, node, s.last)
	case skew:
		return c.skew(ctx, node, s)
	case full:
		return c.fillDisk(ctx, node, s.last+fullFor)
	case lost:
		return c.loseBlocks(ctx, node, s.last)
	case guest:
		return c.welcome(ctx, s.last)
	}
	return fmt.Errorf("no fault %v", s.fault)
}

// split returns what a split loses.
func (s step) split(all []int) []link {
	one, other := all[:len(all)/2], all[len(all)/2:]
	if s.group != 0 {
		one, other = nil, nil
		for _, node := range all {
			if s.group&(1<<node) != 0 {
				one = append(one, node)
			} else {
				other = append(other, node)
			}
		}
	}
	links := between(one, other)
	if !s.oneWay {
		return links
	}
	return slices.DeleteFunc(links, func(l link) bool { return !slices.Contains(one, l.from) })
}

// between returns all directions from the nodes of one group to those of another,
// and back.
func between(one, other []int) (links []link) {
	for _, a := range one {
		for _, b := range other {
			links = append(links, link{a, b}, link{b, a})
		}
	}
	return links
}

// flap cuts a node off and mends it, as often as the time allows.
func (c *cluster) flap(ctx context.Context, s step, links ...link) error {
	end := time.Now().Add(s.last)
	for i := int64(0); time.Now().Before(end); i++ {
		// Spread over the range by a factor without a common divisor.
		d := minFlap + time.Duration((int64(s.by.Abs())+i*int64(137*time.Millisecond))%int64(maxFlap-minFlap))
		if err := c.cutOff(ctx, d, links...); err != nil && i == 0 && d > inFlight*4 {
			return err
		}
		harness.Pause(ctx, d/2)
	}
	return nil
}

// holdBack lets nothing arrive for a while, and then everything.
func (c *cluster) holdBack(ctx context.Context, d time.Duration, links ...link) error {
	before := c.network.late()
	until := time.Now().Add(d)
	for _, l := range links {
		c.network.hold(l, until)
	}
	harness.Pause(ctx, d)
	if c.network.late() == before {
		return errInvalid("nothing was held back")
	}
	return nil
}

func (c *cluster) slowDisk(ctx context.Context, number int, d time.Duration) error {
	disk := &c.members[number].disk
	disk.set(condition{slow: slowWrite})
	harness.Pause(ctx, d)
	if disk.set(condition{}) == 0 {
		return errInvalid("nothing was written to a slow disk")
	}
	return nil
}

// hangDisk lets writes to one disk of a node hang. If it is the one of Raft's
// log, the node gives up after a while, which is as good as a power loss, and is
// started again.
func (c *cluster) hangDisk(ctx context.Context, number int, disk *platter, d time.Duration, late bool) error {
	was := c.members[number].now()
	disk.set(condition{hangs: true, late: late})
	harness.Pause(ctx, d)
	if disk.set(condition{}) == 0 {
		return errInvalid("nothing was written to a disk that hangs")
	}
	harness.Pause(ctx, pollEvery)
	return c.revive(ctx, number, was, false)
}

// failsWithin is how long a node may live on a disk that failed a write.
const failsWithin = time.Second

// breakDisk lets a write fail, which has to end the node at once.
func (c *cluster) breakDisk(ctx context.Context, number int, down time.Duration) error {
	disk, was := &c.members[number].disk, c.members[number].now()
	disk.set(condition{broken: true})
	for range int(maxFault / pollEvery) { // until something is written
		harness.Pause(ctx, pollEvery)
		if disk.hits() > 0 {
			break
		}
	}
	harness.Pause(ctx, failsWithin)
	met := disk.set(condition{})
	if met == 0 {
		return errInvalid("nothing was written to a broken disk")
	}
	harness.Pause(ctx, down)
	return c.revive(ctx, number, was, true)
}

// fillDisk lets the disk under a node's blocks be full.
func (c *cluster) fillDisk(ctx context.Context, number int, d time.Duration) error {
	disk := &c.members[number].full
	if !disk.CompareAndSwap(false, true) {
		return errInvalid("the disk is full already")
	}
	harness.Pause(ctx, d)
	disk.Store(false)
	return nil
}

// loseBlocks takes the power from a node, which comes back without its blocks. One copy of
// what is pinned is elsewhere, so that this may happen once in a run.
func (c *cluster) loseBlocks(ctx context.Context, number int, down time.Duration) error {
	if !c.lost.CompareAndSwap(false, true) {
		return errInvalid("blocks were lost before")
	}
	return c.crashAnd(ctx, down, func(m *member) error {
		return os.RemoveAll(filepath.Join(m.folder, "blocks"))
	}, number)
}

// skew sets a node's clock wrong, and right again.
func (c *cluster) skew(ctx context.Context, number int, s step) error {
	m := c.members[number]
	m.ahead.Add(int64(s.by))
	harness.Pause(ctx, s.last)
	m.ahead.Add(-int64(s.by))
	return nil
}

// cutOff loses everything on some directions for a while.
func (c *cluster) cutOff(ctx context.Context, d time.Duration, links ...link) error {
	before := uint64(0)
	for _, l := range links {
		before += c.network.losses(l)
		c.network.set(l, true)
	}
	harness.Pause(ctx, d)
	lost := uint64(0)
	for _, l := range links {
		lost += c.network.losses(l)
		c.network.set(l, false)
	}
	if lost == before {
		return errInvalid("nothing was lost on cut links")
	}
	return nil
}

// slowDown delays everything on some directions for a while.
func (c *cluster) slowDown(ctx context.Context, d time.Duration, links ...link) error {
	before := c.network.late()
	for _, l := range links {
		c.network.delay(l, slowBy)
	}
	harness.Pause(ctx, d)
	for _, l := range links {
		c.network.delay(l, 0)
	}
	if c.network.late() == before {
		return errInvalid("nothing was late on slow links")
	}
	return nil
}
