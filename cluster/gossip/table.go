package gossip

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Times since a node's last sample after which its State changes. Nodes send one sample per
// DefaultEvery, so two lost samples do not make a node Suspect.
const (
	SuspectAfter = 6 * time.Second
	DownAfter    = 15 * time.Second
)

// maxEntries is the largest number of nodes in a table.
const maxEntries = state.MaxNodes

// State is how alive a node seems, from the age of its last sample.
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

// Peer is the entry of one node in the table.
type Peer struct {
	Node   state.NodeID
	Sample Sample // the newest sample; zero if Heard is false
	Heard  bool
	State  State
	Last   time.Time // arrival time of the last sample; if Heard is false, when the node was added to the table
}

// Table stores the newest sample of every member. It is safe for concurrent use.
type Table struct {
	self state.NodeID     // set once
	now  func() time.Time // set once

	// mu guards the fields below. It is not held during calls of other code.
	mu    sync.Mutex
	peers map[state.NodeID]*Peer // Peer.State is set when read
	// floor is the time from which on the silence of other nodes is counted. Before it, this
	// process was suspended or cut off from all others.
	floor    time.Time
	tick     time.Time // last call of watch
	lastHere time.Time // last sample of any other node
}

func newTable(self state.NodeID, now func() time.Time) *Table {
	return &Table{self: self, now: now, peers: map[state.NodeID]*Peer{}}
}

// Get returns the newest sample of a node and its state. ok is false if there is no sample. A
// node that is not in the table is Suspect.
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

// Silent returns the time since the last sample of a node. If there was none, it returns the time
// since the node was added to the table. For a node that is not in the table it returns 0.
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

// Skew returns by how much the clock of a node was ahead of this node's clock when the newest
// sample arrived; negative if it was behind. The transit time of the sample makes the result
// smaller. It is 0 if there is no sample with a time.
func (t *Table) Skew(id state.NodeID) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[id]
	if p == nil || p.Sample.Time <= 0 {
		return 0
	}
	return p.Sample.Time.Time().Sub(p.Last)
}

// All returns the entries of all nodes in the table, sorted by id.
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

// DownSince returns whether a node is down and since when. since is the time of its last sample,
// or the later time at which this process was resumed or reconnected, because it could not
// observe the node before.
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

// Agreed returns bounds of the current time that are correct while most members' clocks are
// correct, computed from the times in their newest samples. early is the latest time that more
// than 50 % of the clocks have reached; a few wrong clocks cannot make it later than the correct
// time. It lags by up to the interval between samples. late is the earliest time that more than
// 50 % of the clocks have not passed; a few wrong clocks cannot make it too early. ok is false
// while too few members have sent samples.
func (t *Table) Agreed() (early, late state.Millis, ok bool) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	most := len(t.peers)/2 + 1
	var said, goes []state.Millis // times in the samples, and the times that these clocks should show now
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

// record stores a sample and returns whether it was new. It ignores repeated and outdated
// samples, and samples of nodes that are not in the table.
func (t *Table) record(s Sample) bool {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[s.Node]
	if p == nil {
		return false
	}
	// A process whose clock went back during a restart has a lower Start. Its samples count
	// once the earlier process is Down. If the earlier process sends again, its higher
	// Start wins, so replayed samples gain nothing.
	if p.Heard && !s.newer(&p.Sample) && (s.Start == p.Sample.Start || p.at(now) != Down) {
		return false
	}
	if s.Node != t.self {
		if now.Sub(t.lastHere) > DownAfter {
			t.floor = now // this process received nothing until now, so the silence of others proved nothing
		}
		t.lastHere = now
	}
	p.Sample, p.Heard, p.Last = s, true, now
	return true
}

// watch sets which members are in the table. It also detects, from the time since its last call,
// that this process was suspended.
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
