package members

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// sizeBounds are the upper bounds of the size classes in bytes. The last class has none.
var sizeBounds = [SizeClasses - 1]uint64{1 << 20, 16 << 20, 256 << 20, 4 << 30}

// SizeClasses is the number of size classes by which missing copies are counted.
const SizeClasses = 5

// SizeBound returns the upper bound of a size class in bytes. The last class has none: bounded is
// false, and bytes is the smallest size in the class.
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

// maxShortRead is the largest number of recorded copies that one call reads, which takes about 20
// ms.
const maxShortRead = 1 << 12

// Shortage lists the missing copies of pinned roots: those that the cluster should have and that
// this node cannot reach or that do not exist.
type Shortage struct {
	Rows    []ShortRow // one row per node: members by id, then former members, then copies that are allocated to no node
	Partial bool       // more than maxShortRead copies exist, so that Missing is a lower bound
}

// ShortRow counts the missing copies of one node.
type ShortRow struct {
	Node         state.NodeID // empty means that no node was chosen for these copies yet
	Name         string
	Member       bool
	Away         bool                // the node cannot be reached
	Held, Wanted uint64              // recorded and allocated copies of the node
	Missing      [SizeClasses]uint64 // missing copies by the size class of their content
	ByAge        [AgeClasses]uint64  // the same copies by the age class of their content
}

// Total returns the number of missing copies of the node.
func (r ShortRow) Total() (n uint64) {
	for _, of := range r.Missing {
		n += of
	}
	return n
}

// In returns the missing copies of the node by age class if ages is true, and otherwise by size
// class.
func (r ShortRow) In(ages bool) []uint64 {
	if ages {
		return r.ByAge[:]
	}
	return r.Missing[:]
}

// Class is a size class, or an age class if OfAges is true.
type Class struct {
	OfAges bool
	Number int // 0 or above, and below SizeClasses or AgeClasses
}

// Known returns whether Number is within its range.
func (c Class) Known() bool {
	if c.OfAges {
		return c.Number >= 0 && c.Number < AgeClasses
	}
	return c.Number >= 0 && c.Number < SizeClasses
}

// MissingCopy is a copy of a pinned root that a node should hold and that is missing or cannot be
// reached.
type MissingCopy struct {
	Root   state.RootKey
	Size   uint64        // bytes
	Age    time.Duration // minimum time since the root was recorded
	Held   int           // number of copies that this node can reach
	Wanted int           // number of copies that the root should have
	Phase  state.Phase
	Reason string // why the node's last attempt to fetch it failed; empty if none did
}

// OutOfReach returns whether the node has the copy but cannot be reached.
func (m *MissingCopy) OutOfReach() bool { return m.Phase == state.Held }

// shortView is a view of the state with the data by which missing copies are found.
type shortView struct {
	state.View
	full int                   // copies that a root should have
	away map[state.NodeID]bool // nodes with recorded copies that cannot be reached
	left int                   // number of copies that may still be read
	now  time.Time
	at   []moment // moments from which ages are estimated
}

// age returns the minimum time since a root was recorded.
func (v *shortView) age(root *state.Root) time.Duration { return ageOf(v.at, root.Born, v.now) }

// of returns whether a root is in a class.
func (v *shortView) of(class Class, root *state.Root) bool {
	if class.OfAges {
		return ageClass(v.age(root)) == class.Number
	}
	return sizeClass(root.Size) == class.Number
}

// read counts one copy that is read, and returns false if the limit is exceeded.
func (v *shortView) read() bool {
	v.left--
	return v.left >= 0
}

// missing returns the copy of a root that a node should hold, and true if that copy is missing or
// cannot be reached. An empty node stands for copies that are allocated to no node.
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

// onAway calls fn for the roots that are allocated to an unreachable node, from the root from on.
// It passes a nil root if the copy is not counted as missing there. With never, also copies that
// the node has never held are counted; otherwise only copies that it has held, because Lacking
// reports the others.
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

// shortView returns a shortView of the local state, and the members. The caller must call
// release.
func (m *Members) shortView() (v *shortView, nodes []state.Node, release func(), err error) {
	view, release := m.opts.State.LocalView()
	if v, nodes, err = m.shortViewOf(view); err != nil {
		release()
		return nil, nil, nil, err
	}
	return v, nodes, release, nil
}

// shortViewOf returns a shortView of a view, and the members.
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

// Shortage counts the missing copies of each node by the size and by the age of their content,
// according to this node. It reads at most maxShortRead copies.
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

// rankOf returns the position of a row among the kinds of rows: members, former members, copies
// without a node.
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

// MissingOn returns up to limit missing copies of a node whose content is in one class, in the
// order of their roots, beginning at from. next is the root at which the next call continues; it
// is empty if there are no more copies. One call reads at most maxShortRead copies, so it may
// return fewer than limit. An empty node stands for copies that are allocated to no node. The
// error is that of a read of the local state.
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

// Limits for measuring how fast missing copies are restored.
const (
	repairEvery  = 5 * time.Second // between two samples
	maxRepairs   = 120             // largest number of samples, from 10 minutes
	repairLeast  = 10 * time.Second
	repairRecent = 5 * time.Minute // older samples do not count
)

// Repair is the rate at which missing copies are restored. A node measures it only at calls of
// Status, so it is known only while somebody observes the cluster.
type Repair struct {
	PerMinute float64       // roots per minute that have regained all their copies; 0 if none recently, or not known yet
	Left      time.Duration // time until all roots have their copies at this rate; 0 if not known
}

// repairs has the newest samples of the number of roots with too few copies.
type repairs struct {
	mu      sync.Mutex // guards samples
	samples []repairSample
}

type repairSample struct {
	at    time.Time
	short uint64
}

// note records that short roots have too few copies, and returns how fast their number falls. If
// the number has risen, the measurement starts again.
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
