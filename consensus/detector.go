package consensus

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Times of a detector, in steps of its clock.
const (
	// detectorStep is the resolution of the measured silence.
	detectorStep = 100 * time.Millisecond
	// leaderlessWait is how long a voter that knows no leader waits for a message from one.
	leaderlessWait = 300 * time.Millisecond
	// firstCandidacyPause is how long a voter waits after a candidacy that found no majority;
	// it doubles up to lastCandidacyPause.
	firstCandidacyPause, lastCandidacyPause = 100 * time.Millisecond, 800 * time.Millisecond
	// promiseParts is the divisor that gives the duration of a promise from the patience. In
	// this time a candidate needs one round trip, and the patience is at least five round
	// trips.
	promiseParts = 3
	// lostParts is the divisor that gives, from the patience, for how long a leader must have
	// reported that it can no longer lead.
	lostParts = 5
	// agreeEarly is the part of the patience that a voter may have waited less than the
	// candidate with which it agrees, because both have heard the last beat at different times.
	agreeEarly = 5
)

// Reasons of a voter to stand for election.
const (
	whyLeaderless = "no leader is known"
	whyGone       = "the leader is gone, or says that it can lead no more"
	whySilent     = "the leader is silent"
)

// detector decides when this node should start an election; Raft decides who leads. Its
// clock stops while the process is paused, so that a pause of this process does not count
// as silence of the leader.
type detector struct {
	self state.NodeID
	// look returns what Raft knows: the leader, its term, and when it was last heard of. It
	// must not block.
	look  func() following
	ready chan struct{} // has a token when there is new evidence

	// mu guards the fields below.
	mu       sync.Mutex
	clock    time.Duration // how long the process has run, counted in steps
	stepped  time.Time     // time of the last step; zero before the first
	patience time.Duration
	agreedAt time.Duration // when the leader last chose the patience
	gaps     extreme       // gaps between beats, and pauses of this process

	following
	since     time.Duration // when this node began to follow the leader
	heard     time.Duration // when this node last heard from the leader
	beats     bool          // the leader sends beats, so Raft's own contact does not count
	lostSaid  bool          // the leader reports that it can no longer lead
	lostSince time.Duration // time of the first such report
	gone      bool          // there is evidence that the leader no longer leads
	goneSince time.Duration

	promised     state.NodeID // the voter to which this voter has agreed
	promisedTill time.Duration

	standing bool             // a candidacy is under way
	next     time.Duration    // earliest time of the next candidacy
	pause    *backoff.Backoff // pause after a candidacy that failed
}

// following describes the leader that a node follows.
type following struct {
	leader  state.NodeID // empty: unknown
	term    uint64
	contact time.Time // when Raft last heard from the leader
}

func newDetector(self state.NodeID, look func() following) *detector {
	return &detector{self: self, look: look, ready: make(chan struct{}, 1), patience: leastPatience, pause: backoff.New(firstCandidacyPause, lastCandidacyPause)}
}

// step advances the clock by one step for each tick, however long the process was paused, and
// records the pause.
func (d *detector) step(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clock += detectorStep
	if took := now.Sub(d.stepped); !d.stepped.IsZero() && took >= 2*detectorStep {
		d.gaps.note(d.clock, took-detectorStep)
	}
	d.stepped = now
	d.refresh()
}

// refresh reads what Raft knows about the leader. It reads while mu is held, so that an older
// result cannot replace a newer one. The caller holds mu.
func (d *detector) refresh() {
	now := d.look()
	if now.leader != d.leader || now.term != d.term {
		if now.leader != "" {
			d.next = 0
			d.pause.Reset()
		}
		if now.term != d.term {
			d.promised = "" // it has been redeemed, or is in vain
		}
		d.since, d.heard, d.beats, d.gone, d.lostSaid = d.clock, d.clock, false, false, false
	}
	if !now.contact.Equal(d.contact) && !d.beats {
		d.heard = d.clock
	}
	d.following = now
}

// beat records a beat. It returns whether the beat is from the leader that this node follows,
// and the longest gap that this node has seen.
func (d *detector) beat(from state.NodeID, term uint64, patience time.Duration, lost bool) (follows bool, gap time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	follows = from == d.leader && term == d.term
	if follows {
		if d.beats && !d.gone {
			d.gaps.note(d.clock, d.clock-d.heard)
		}
		d.heard, d.beats, d.patience = d.clock, true, boundedPatience(patience)
		if lost && !d.lostSaid {
			d.lostSince = d.clock
		}
		// One message is not enough: messages that a leader sent while all others were
		// paused arrive together later and are outdated.
		d.lostSaid = lost
		d.setGone(lost && d.clock-d.lostSince >= d.patience/lostParts)
	}
	return follows, d.gaps.value(d.clock)
}

// leaderGone records evidence that a leader no longer leads.
func (d *detector) leaderGone(leader state.NodeID, term uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	if leader == d.leader && term == d.term {
		d.setGone(true)
	}
}

// setGone records the evidence. The caller holds mu.
func (d *detector) setGone(gone bool) {
	if gone && !d.gone {
		d.goneSince = d.clock
		select {
		case d.ready <- struct{}{}:
		default:
		}
	}
	d.gone = gone
}

// follows returns the leader that this node follows.
func (d *detector) follows() following {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	return d.following
}

// reason returns why there should be a new leader, and since when. The reason is empty if there
// is none. The caller holds mu.
func (d *detector) reason(patience time.Duration) (why string, since time.Duration) {
	switch {
	case d.leader == d.self:
		return "", 0
	case d.leader == "":
		return whyLeaderless, d.since + leaderlessWait
	case d.gone:
		return whyGone, d.goneSince
	case d.clock-d.heard >= patience:
		return whySilent, d.heard + patience
	}
	return "", 0
}

// turn returns how long a voter waits for its turn. All voters except the leader take turns, in
// the order of their ids.
func (d *detector) turn(id state.NodeID, voters []state.NodeID) time.Duration {
	turn := 0
	for _, v := range voters {
		if v < id && v != d.leader {
			turn++
		}
	}
	return time.Duration(turn) * detectorStep
}

// stand returns why this voter should stand for election now, and records that a candidacy is
// in progress until stood is called. The result is empty if the voter should not stand.
func (d *detector) stand(voters []state.NodeID) (why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	if d.standing || d.clock < d.next || d.promises("") || !slices.Contains(voters, d.self) {
		return ""
	}
	why, since := d.reason(d.patience)
	if why == "" || d.clock < since+d.turn(d.self, voters) {
		return ""
	}
	d.standing = true
	return why
}

// stood ends a candidacy that has lasted for took, and sets the earliest time of the next one.
func (d *detector) stood(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.standing = false
	d.next = d.clock + max(d.pause.NextBackOff(), min(took, lastCandidacyPause))
}

// stands returns whether the reason for a candidacy of this term still exists.
func (d *detector) stands(term uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	why, _ := d.reason(d.patience)
	return why != "" && term == d.term && !d.promises("")
}

// promises returns whether a promise to another voter than to is still valid. The caller
// holds mu.
func (d *detector) promises(to state.NodeID) bool {
	return d.promised != "" && d.promised != to && d.clock < d.promisedTill
}

// agree returns whether this voter agrees that another one stands for election. If so, it
// promises not to agree to a third one and not to stand itself for a while.
func (d *detector) agree(to state.NodeID, voters []state.NodeID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	if d.promises(to) || d.standing && d.turn(d.self, voters) < d.turn(to, voters) {
		return false
	}
	why, _ := d.reason(d.patience - d.patience/agreeEarly)
	if why == "" && to != d.leader {
		return false
	}
	d.promised, d.promisedTill = to, d.clock+d.patience/promiseParts
	return true
}

// current returns the patience, on which all members have agreed, and how long this node has
// run.
func (d *detector) current() (patience, clock time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.patience, d.clock
}

// agreePatience computes the leader's patience from the round trip and the longest gap. The
// patience rises at once and falls slowly. risen is true if it rose.
func (d *detector) agreePatience(roundTrip, gap time.Duration) (now time.Duration, risen bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	want := wantedPatience(roundTrip, max(gap, d.gaps.value(d.clock)))
	risen = want > d.patience
	passed := min(d.clock-d.agreedAt, patienceFalls)
	d.patience, d.agreedAt = max(want, d.patience-d.patience*passed/patienceFalls), d.clock
	return d.patience, risen
}
