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
	// promiseParts is the divisor for the duration of a promise: patience / promiseParts. Within
	// it a candidate needs one round trip, and the patience is at least five round trips.
	promiseParts = 3
	// lostParts is the divisor for the time after which a voter acts on the leader's own report
	// that it can no longer lead: patience / lostParts.
	lostParts = 5
	// agreeEarly is the divisor for a tolerance: a voter consents to a candidate up to patience /
	// agreeEarly before the voter itself sees a reason for an election, because both have
	// received the last beat at different times.
	agreeEarly = 5
)

// Reasons why a voter stands for election, as text for the log.
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
	// look returns the leader that Raft follows, its term, and when Raft last heard from it. It
	// must not block.
	look  func() following
	ready chan struct{} // has a token when there is new evidence that the leader is gone

	// mu guards the fields below.
	mu       sync.Mutex
	clock    time.Duration // how long the process has run, counted in steps
	stepped  time.Time     // time of the last step; zero before the first
	patience time.Duration
	agreedAt time.Duration // when this node, as leader, last computed the patience
	gaps     extreme       // longest gap between two beats, or pause of this process

	following
	since     time.Duration // when this node began to follow the leader
	heard     time.Duration // when this node last heard from the leader
	beats     bool          // the leader sends beats, so contact is ignored
	lostSaid  bool          // the leader reports that it can no longer lead
	lostSince time.Duration // time of the first such report
	gone      bool          // there is evidence that the leader no longer leads
	goneSince time.Duration

	promised     state.NodeID // the candidate to which this voter has given its consent
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

// step advances the clock by one step per tick, even if the process was paused for longer. It
// records a pause as a gap.
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

// refresh calls look and resets what is known about the previous leader if the leader or the term
// has changed. The caller must hold mu, so that an older result of look cannot replace a newer one.
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

// beat records a beat from a member, with the patience that the member chose. lost means that the
// member reports that it can no longer lead. follows is true if the member is the leader that
// this node follows in that term. gap is the longest gap between beats that this node has seen.
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

// leaderGone records evidence that the leader of the given term no longer leads. Evidence about
// another leader or term is ignored.
func (d *detector) leaderGone(leader state.NodeID, term uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	if leader == d.leader && term == d.term {
		d.setGone(true)
	}
}

// setGone sets gone, and notifies watchLeader when gone becomes true. The caller must hold mu.
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
// is none. The caller must hold mu.
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

// turn returns the delay before a voter stands for election after a reason exists. Each voter
// except the leader has its own delay, in the order of the ids, so that not all stand at once.
func (d *detector) turn(id state.NodeID, voters []state.NodeID) time.Duration {
	turn := 0
	for _, v := range voters {
		if v < id && v != d.leader {
			turn++
		}
	}
	return time.Duration(turn) * detectorStep
}

// stand returns the reason why this voter should stand for election now, and records that a
// candidacy is in progress until stood is called. It returns "" if the voter should not stand.
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

// stands returns whether a candidacy in the given term is still justified: there is still a
// reason, the term is current, and this voter has promised its consent to no candidate.
func (d *detector) stands(term uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	why, _ := d.reason(d.patience)
	return why != "" && term == d.term && !d.promises("")
}

// promises returns whether this voter is bound by a promise to a candidate other than to. The
// caller must hold mu.
func (d *detector) promises(to state.NodeID) bool {
	return d.promised != "" && d.promised != to && d.clock < d.promisedTill
}

// agree returns whether this voter consents to the candidacy of the voter to. If so, it promises
// for a while neither to consent to another candidate nor to stand itself.
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

// current returns the current patience, which the leader chooses for all members, and the
// detector's clock.
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
