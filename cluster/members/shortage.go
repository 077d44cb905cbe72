package members

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// sizeBounds are the upper bounds of the classes of sizes, in bytes. The last class has none.
var sizeBounds = [SizeClasses - 1]uint64{1 << 20, 16 << 20, 256 << 20, 4 << 30}

// SizeClasses is the number of classes of sizes by which missing copies are counted.
const SizeClasses = 5

// SizeBound returns the size in bytes below which all contents of a class are. The last class has no
// such size: bounded is false, and bytes is the smallest size in the class.
func SizeBound(class int) (bytes uint64, bounded bool) {
	if class < len(sizeBounds) {
		return sizeBounds[class], true
	}
	return sizeBounds[len(sizeBounds)-1], false
}

func sizeClass(bytes uint64) int {
	class, found := slices.BinarySearch(sizeBounds[:], bytes)
	if found {
		class++ // a bound is the smallest size of the next class
	}
	return class
}

// maxShortRead is how many recorded copies one call reads, which takes about 20 ms.
const maxShortRead = 1 << 12

// Shortage compares the copies that the cluster should have of pinned roots with those that are
// within reach of this node.
type Shortage struct {
	Rows    []ShortRow // members by id, then former ones, then copies without a node
	Partial bool       // only maxShortRead copies were read: Missing is a lower bound
}

// ShortRow has the copies on one node.
type ShortRow struct {
	Node         state.NodeID // empty: no node was chosen for these copies yet
	Name         string
	Member       bool
	Away         bool                // its copies are out of reach
	Held, Wanted uint64              // copies on record
	Missing      [SizeClasses]uint64 // copies that it should hold and that are not within reach
	ByAge        [AgeClasses]uint64  // the same copies by the age of their content
}

// Total is the number of copies that are missing on the node.
func (r ShortRow) Total() (n uint64) {
	for _, of := range r.Missing {
		n += of
	}
	return n
}

// In returns the copies that are missing on the node by the size of their content, or by its age.
func (r ShortRow) In(ages bool) []uint64 {
	if ages {
		return r.ByAge[:]
	}
	return r.Missing[:]
}

// Class is a class of sizes, or of ages if OfAges.
type Class struct {
	OfAges bool
	Number int // from 0 to below SizeClasses or AgeClasses
}

// Known returns whether there is such a class.
func (c Class) Known() bool {
	if c.OfAges {
		return c.Number >= 0 && c.Number < AgeClasses
	}
	return c.Number >= 0 && c.Number < SizeClasses
}

// MissingCopy is a copy of a pinned root that a node should hold.
type MissingCopy struct {
	Root   state.RootKey
	Size   uint64        // bytes
	Age    time.Duration // least time for which the cluster has had the content on record
	Held   int           // copies within reach
	Wanted int           // copies that there should be
	Phase  state.Phase
	Reason string // why the node's last attempt failed; empty: none did
}

// OutOfReach returns whether the node has the copy, but does not answer.
func (m *MissingCopy) OutOfReach() bool { return m.Phase == state.Held }

// shortView is a view with what tells which copies are within reach.
type shortView struct {
	state.View
	full int                   // copies that a root should have
	away map[state.NodeID]bool // nodes with copies on record that are out of reach
	left int                   // copies that may still be read
	now  time.Time
	at   []moment // by which the age of content is known
}

// age returns how long the cluster has had a root on record, at least.
func (v *shortView) age(root *state.Root) time.Duration { return ageOf(v.at, root.Born, v.now) }

// of returns whether a root belongs to a class.
func (v *shortView) of(class Class, root *state.Root) bool {
	if class.OfAges {
		return ageClass(v.age(root)) == class.Number
	}
	return sizeClass(root.Size) == class.Number
}

// read takes one copy of the budget, and returns false when there is none left.
func (v *shortView) read() bool {
	v.left--
	return v.left >= 0
}

// missing returns the copy that a node should hold of a root, or false if it is within reach. An
// empty node stands for copies without a node.
func (v *shortView) missing(root *state.Root, node state.NodeID) (MissingCopy, bool) {
	m := MissingCopy{Root: root.Key, Size: root.Size, Age: v.age(root), Wanted: v.full}
	for _, c := range root.Copies {
		if c.Phase == state.Held && !v.away[c.Node] {
			m.Held++
		}
	}
	if node == "" {
		return m, len(root.Copies) < v.full
	}
	own := root.Copy(node)
	if own == nil || own.Phase == state.Held && !v.away[node] {
		return m, false
	}
	m.Phase, m.Reason = own.Phase, own.Reason
	return m, true
}

// onAway calls fn for the roots that a node which is out of reach should hold, from one on. root is
// nil for those of which no copy is missing there. never is whether copies that it has never had
// count too, which Lacking has as well.
func (v *shortView) onAway(node state.NodeID, from state.RootKey, never bool, fn func(k state.RootKey, root *state.Root) (more bool, err error)) error {
	return v.WantedOn(node, from, func(k state.RootKey, phase state.Phase) (bool, error) {
		missing, err := phase == state.Held, error(nil)
		if !missing && never {
			missing, err = v.IsShort(k)
		}
		if err != nil {
			return false, fmt.Errorf("read mark: %w", err)
		}
		if !missing {
			return fn(k, nil)
		}
		root, err := v.Root(k)
		if err != nil {
			return false, fmt.Errorf("read root: %w", err)
		}
		if root.Status != state.Pinned {
			return fn(k, nil)
		}
		return fn(k, &root)
	})
}

// shortView returns a view of the local state, and the members.
func (m *Members) shortView() (v *shortView, nodes []state.Node, release func(), err error) {
	view, release := m.opts.State.LocalView()
	if v, nodes, err = m.shortViewOf(view); err != nil {
		release()
		return nil, nil, nil, err
	}
	return v, nodes, release, nil
}

// shortViewOf returns a view with the nodes that are out of reach, and the members.
func (m *Members) shortViewOf(view state.View) (v *shortView, nodes []state.Node, err error) {
	full, err := view.Copies()
	if err != nil {
		return nil, nil, fmt.Errorf("read cluster: %w", err)
	}
	if nodes, err = view.Nodes(); err != nil {
		return nil, nil, fmt.Errorf("read members: %w", err)
	}
	holders, err := view.HoldersOnRecord()
	if err != nil {
		return nil, nil, fmt.Errorf("read holders: %w", err)
	}
	v = &shortView{View: view, full: full, away: map[state.NodeID]bool{}, left: maxShortRead, now: m.opts.Now()}
	if v.at, err = m.ages.in(view); err != nil {
		return nil, nil, err
	}
	member := map[state.NodeID]bool{}
	for i := range nodes {
		member[nodes[i].ID] = true
	}
	for _, id := range holders {
		load, _ := m.opts.Gossip.Load(id)
		if id != m.opts.Self.ID && (!member[id] || load.Away) {
			v.away[id] = true
		}
	}
	return v, nodes, nil
}

// Shortage counts the missing copies of each node by the size and by the age of their content, as
// this node sees them. It reads maxShortRead copies at most.
func (m *Members) Shortage(_ context.Context) (Shortage, error) {
	v, nodes, release, err := m.shortView()
	if err != nil {
		return Shortage{}, err
	}
	defer release()
	var s Shortage
	at := map[state.NodeID]int{}
	row := func(id state.NodeID, name string, member bool) error {
		at[id] = len(s.Rows)
		r := ShortRow{Node: id, Name: name, Member: member, Away: v.away[id]}
		if r.Held, r.Wanted, err = v.CopiesOn(id); err != nil {
			return fmt.Errorf("count copies: %w", err)
		}
		s.Rows = append(s.Rows, r)
		return nil
	}
	for i := range nodes {
		if err := row(nodes[i].ID, nodes[i].Name, true); err != nil {
			return Shortage{}, err
		}
	}
	count := func(root *state.Root, node state.NodeID, copies int) error {
		if copies <= 0 {
			return nil
		}
		if _, known := at[node]; !known {
			if err := row(node, "", false); err != nil {
				return err
			}
		}
		r := &s.Rows[at[node]]
		r.Missing[sizeClass(root.Size)] += uint64(copies)
		r.ByAge[ageClass(v.age(root))] += uint64(copies)
		return nil
	}
	err = v.Lacking("", func(root state.Root) (bool, error) {
		if !v.read() {
			return false, nil
		}
		for _, c := range root.Copies {
			if c.Phase == state.Held { // if that is out of reach, it is counted below
				continue
			}
			if err := count(&root, c.Node, 1); err != nil {
				return false, err
			}
		}
		return true, count(&root, "", v.full-len(root.Copies))
	})
	for _, id := range sortedNodes(v.away) {
		if err != nil {
			break
		}
		err = v.onAway(id, "", false, func(_ state.RootKey, root *state.Root) (bool, error) {
			if !v.read() || root == nil {
				return v.left >= 0, nil
			}
			return true, count(root, id, 1)
		})
	}
	if err != nil {
		return Shortage{}, fmt.Errorf("count missing copies: %w", err)
	}
	s.Partial = v.left < 0
	slices.SortStableFunc(s.Rows, func(a, b ShortRow) int { return rankOf(&a) - rankOf(&b) })
	return s, nil
}

// rankOf is the place of a row: members, former members, copies without a node.
func rankOf(r *ShortRow) int {
	switch {
	case r.Member:
		return 0
	case r.Node != "":
		return 1
	}
	return 2
}

func sortedNodes(set map[state.NodeID]bool) []state.NodeID {
	all := make([]state.NodeID, 0, len(set))
	for id := range set {
		all = append(all, id)
	}
	slices.Sort(all)
	return all
}

// MissingOn returns up to limit missing copies of a node, whose contents are of one class. They are in the
// order of their roots and begin at from. next is the root at which the next call continues; it is empty
// if no copies are left. A call reads at most maxShortRead copies, so it may return fewer than limit. An
// empty node stands for copies without a node. The error is that of a read of the local state.
func (m *Members) MissingOn(_ context.Context, node state.NodeID, class Class, from state.RootKey, limit int) (rows []MissingCopy, next state.RootKey, err error) {
	v, _, release, err := m.shortView()
	if err != nil {
		return nil, "", err
	}
	defer release()
	take := func(k state.RootKey, root *state.Root) (bool, error) {
		if len(rows) == limit || !v.read() {
			next = k
			return false, nil
		}
		if root != nil && v.of(class, root) {
			if missing, is := v.missing(root, node); is {
				rows = append(rows, missing)
			}
		}
		return true, nil
	}
	if v.away[node] {
		err = v.onAway(node, from, true, take)
	} else {
		err = v.Lacking(from, func(root state.Root) (bool, error) { return take(root.Key, &root) })
	}
	if err != nil {
		return nil, "", fmt.Errorf("list missing copies: %w", err)
	}
	return rows, next, nil
}

// Bounds of what a node remembers to tell how fast missing copies are made.
const (
	repairEvery  = 5 * time.Second // between two samples
	maxRepairs   = 120             // samples, of 10 minutes
	repairLeast  = 10 * time.Second
	repairRecent = 5 * time.Minute // older samples do not count
)

// Repair tells how fast missing copies are made. A node measures it by the calls of Status, so it is known
// only while somebody watches.
type Repair struct {
	PerMinute float64       // contents that got all their copies, per minute; 0: none lately, or not known yet
	Left      time.Duration // time until all contents have their copies at this rate; 0: not known
}

// repairs are the newest numbers of contents with too few copies.
type repairs struct {
	mu      sync.Mutex // guards samples
	samples []repairSample
}

type repairSample struct {
	at    time.Time
	short uint64
}

// note records how many contents have too few copies, and returns how fast they get fewer. A
// number that rises begins anew.
func (r *repairs) note(now time.Time, short uint64) Repair {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.samples); n > 0 && short > r.samples[n-1].short || short == 0 {
		r.samples = r.samples[:0]
	}
	if n := len(r.samples); n == 0 || now.Sub(r.samples[n-1].at) >= repairEvery {
		if r.samples = append(r.samples, repairSample{now, short}); len(r.samples) > maxRepairs {
			r.samples = slices.Delete(r.samples, 0, 1)
		}
	}
	for _, s := range r.samples {
		since := now.Sub(s.at)
		if since > repairRecent {
			continue
		}
		if since < repairLeast || s.short <= short {
			break
		}
		rate := float64(s.short-short) / since.Minutes()
		return Repair{PerMinute: rate, Left: timeLeft(float64(short), rate)}
	}
	return Repair{}
}
