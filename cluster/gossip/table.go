package gossip

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Ages of a node's last sign of life at which its state changes. Samples come
// every DefaultEvery, so that two lost ones are no cause for suspicion.
const (
	SuspectAfter = 6 * time.Second
	DownAfter    = 15 * time.Second
)

// maxEntries bounds the nodes of a table.
const maxEntries = state.MaxNodes

// State is how alive a node seems to be.
type State uint8

// The states, from best to worst.
const (
	Alive State = iota
	Suspect
	Down
)

func (s State) String() string {
	switch s {
	case Alive:
		return "alive"
	case Suspect:
		return "suspect"
	}
	return "down"
}

// Peer is what the table knows of one node.
type Peer struct {
	Node   state.NodeID
	Sample Sample // the newest; zero when Heard is false
	Heard  bool
	State  State
	Last   time.Time // last sign of life; of one never heard, when watching it began
}

// Table keeps the newest sample of every member. It is safe for concurrent use.
type Table struct {
	self state.NodeID     // set once
	now  func() time.Time // set once

	// mu guards everything below. It is never held while calling out.
	mu    sync.Mutex
	peers map[state.NodeID]*Peer // State is computed when read
	// floor is the earliest time from which silence counts: this process was
	// stopped, or cut off from all others, until then.
	floor    time.Time
	tick     time.Time // last call of watch
	lastHere time.Time // last sample of any other node
}

func newTable(self state.NodeID, now func() time.Time) *Table {
	return &Table{self: self, now: now, peers: map[state.NodeID]*Peer{}}
}

// Get returns the newest sample of a node and how alive it seems; ok is false
// when there is no sample of it. A node that is not watched is Suspect.
func (t *Table) Get(id state.NodeID) (s Sample, alive State, ok bool) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[id]
	if p == nil {
		return Sample{}, Suspect, false
	}
	return p.Sample, p.at(now), p.Heard
}

// Silent is how long ago the last sign of life of a node was. Of one never heard it is how
// long it has been watched, and of one that is not watched 0.
func (t *Table) Silent(id state.NodeID) time.Duration {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[id]
	if p == nil {
		return 0
	}
	return max(0, now.Sub(p.Last))
}

// All returns every watched node, by id.
func (t *Table) All() []Peer {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Peer, 0, len(t.peers))
	for _, p := range t.peers {
		copied := *p
		copied.State = p.at(now)
		all = append(all, copied)
	}
	slices.SortFunc(all, func(a, b Peer) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// DownSince tells whether a node is down, and since when this node has been
// able to see that: the node's last sign of life, or later when this process
// was itself stopped or cut off from everybody.
func (t *Table) DownSince(id state.NodeID) (since time.Time, down bool) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[id]
	if p == nil || p.at(now) != Down {
		return time.Time{}, false
	}
	if p.Last.Before(t.floor) {
		return t.floor, true
	}
	return p.Last, true
}

// Agreed returns what is certain of the time while most clocks are right, by what members
// said last. early is the latest time that the clocks of more than half of them have
// reached: a few wrong clocks do not make it later, and it lags by what is between two
// samples. late is the earliest time that more than half have not passed: a few wrong
// clocks do not make it earlier. ok is false while too few members are heard.
func (t *Table) Agreed() (early, late state.Millis, ok bool) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	most := len(t.peers)/2 + 1
	var said, goes []state.Millis // and what the clocks say now, if they go on
	for _, p := range t.peers {
		if p.Sample.Time > 0 && p.at(now) != Down {
			since := state.Millis(max(0, now.Sub(p.Last).Milliseconds()))
			said, goes = append(said, p.Sample.Time), append(goes, min(p.Sample.Time, math.MaxInt64-since)+since)
		}
	}
	if len(said) < most {
		return 0, 0, false
	}
	slices.Sort(said)
	slices.Sort(goes)
	return said[len(said)-most], goes[most-1], true
}

func (p *Peer) at(now time.Time) State {
	switch age := now.Sub(p.Last); {
	case age < SuspectAfter:
		return Alive
	case age <= DownAfter:
		return Suspect
	}
	return Down
}

// record takes a sample in and tells whether it was news. Samples of nodes that
// are not watched, repeated and outdated ones are dropped.
func (t *Table) record(s Sample) bool {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[s.Node]
	if p == nil {
		return false
	}
	// A process whose clock went back while it restarted has a lower start. It
	// is believed once the process known before is silent for good; if that one
	// speaks again, its higher start wins, so a replay gains nothing.
	if p.Heard && !s.newer(&p.Sample) && (s.Start == p.Sample.Start || p.at(now) != Down) {
		return false
	}
	if s.Node != t.self {
		if now.Sub(t.lastHere) > DownAfter {
			t.floor = now // deaf until now: nobody else's silence meant anything
		}
		t.lastHere = now
	}
	p.Sample, p.Heard, p.Last = s, true, now
	return true
}

// watch takes the membership over, and notices when this process was stopped.
func (t *Table) watch(members []state.NodeID) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tick.IsZero() {
		t.floor, t.lastHere = now, now
	} else if now.Sub(t.tick) > DownAfter {
		t.floor = now
	}
	t.tick = now
	for id := range t.peers {
		if !slices.Contains(members, id) {
			delete(t.peers, id)
		}
	}
	for _, id := range members {
		if t.peers[id] == nil && len(t.peers) < maxEntries {
			t.peers[id] = &Peer{Node: id, Last: now}
		}
	}
}
