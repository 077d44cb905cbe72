package tracker

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Defaults and bounds of the repairer.
const (
	DefaultRepairAfter = 10 * time.Minute
	DefaultRepairEvery = time.Minute
	DefaultRepairRate  = 1000 // roots placed anew, per second

	// placeBatch is how many roots one command places.
	placeBatch = 128
	// scanEvery is between two looks at all roots while pins wait: one of them may have
	// fewer copies than make it pinned, by a node that knew of fewer members.
	scanEvery = 10 * time.Minute
	// fewShort is how many roots that are short are looked at in each pass; more are every
	// scanEvery, for they may be short as long as a member is down.
	fewShort = 10_000
	// placedLevel is the level from which all members read by which state was chosen.
	placedLevel state.FeatureLevel = 4
	// returnEvery is between two looks for members that were down and are back: what was put
	// meanwhile lacks a copy that they can have.
	returnEvery = 5 * time.Second
	// repairRetry is the pause after a pass that could not be finished.
	repairRetry = 2 * time.Second
)

// Repairer moves, on the leader, roots that have lost copies to other nodes. A copy counts as
// lost if its member has been down for too long or has left the cluster. It also adds copies to
// roots with fewer copies than possible: a node whose disk was full before the content arrived
// does not keep it.
//
// It re-evaluates roots whose status, or mark as short of holders, is of a time with more or
// fewer members, and removes surplus copies. Roots that are not pinned yet do not wait for a
// member that is down, because there is no copy to lose. Zero numbers and durations take the
// defaults; the other fields are required.
type Repairer struct {
	Self  state.NodeID
	State State
	Watch *state.Watch
	// DownSince tells whether a member is down, and since when that was seen.
	DownSince func(state.NodeID) (since time.Time, down bool)
	// Full tells whether a member takes no content that it has not.
	Full func(state.NodeID) bool
	// Place chooses the nodes for a root as if it were new, but for keeping it
	// where it is if it can stay there.
	Place  func(root state.Root) []state.NodeID
	After  time.Duration // down for longer, a member counts as gone
	Every  time.Duration // between two looks at who is down
	Rate   int           // roots a second
	Logger *slog.Logger

	// Of the last pass that left nothing to do; Run's.
	last  topology
	short uint64    // roots short of holders then
	whole time.Time // when it was

	lacked time.Time // when those that are short were looked at; Run's

	absent map[state.NodeID]bool // whether each member was down when last looked at; Run's

	// A surplus of copies is from a put while it was not known who else holds the content
	// still. It is left alone until a member that was down then is known to be: by
	// entries up to aged, which the state had Every ago.
	aged   uint64
	looked time.Time // at index
	index  uint64
}

// topology is what decides where roots can be.
type topology struct {
	replication int
	members     []state.NodeID // in order
	gone        []state.NodeID // of the members, down for too long
	down        []state.NodeID // of the members, down now, while pins wait
	full        []state.NodeID // of the members, without room, while pins wait or roots are short
	waiting     bool           // pins do
}

// copies is the number of copies that a root should have.
func (t *topology) copies() int { return min(t.replication, len(t.members)) }

// stuck tells whether a copy will not come to be for want of room.
func (t *topology) stuck(c state.Copy) bool {
	return c.Phase != state.Held && slices.Contains(t.full, c.Node)
}

func (t *topology) live() int { return len(t.members) - len(t.gone) }

// without returns the members that a root does not count on.
func (t *topology) without(root *state.Root) []state.NodeID {
	if root.Status == state.Pinned {
		return t.gone
	}
	return t.down
}

func (t *topology) has(n state.NodeID) bool {
	_, found := slices.BinarySearch(t.members, n)
	return found
}

func (t *topology) equal(o *topology) bool {
	return t.replication == o.replication && slices.Equal(t.members, o.members) &&
		slices.Equal(t.gone, o.gone) && slices.Equal(t.down, o.down) && slices.Equal(t.full, o.full)
}

// Run works until ctx ends, then returns nil. On other nodes than the leader it
// only waits.
func (r *Repairer) Run(ctx context.Context) error {
	orDefault(&r.After, DefaultRepairAfter)
	orDefault(&r.Every, DefaultRepairEvery)
	orDefault(&r.Rate, DefaultRepairRate)
	sub := r.Watch.Subscribe(r.Self)
	defer sub.Close()
	timer := time.NewTimer(r.Every)
	defer timer.Stop()
	back := time.NewTicker(returnEvery)
	defer back.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-back.C:
			if !r.State.IsLeader() || !r.returned() {
				continue
			}
		case <-sub.C:
			if ch := sub.Take(); !ch.All && !ch.Members {
				continue
			}
		case <-timer.C:
		}
		next := r.Every
		if err := r.pass(ctx); err != nil && ctx.Err() == nil {
			r.Logger.WarnContext(ctx, "repair failed before its end", "err", err)
			next = min(repairRetry, next)
		}
		timer.Reset(next)
	}
}

// returned tells whether a member is back that was down when last looked at.
func (r *Repairer) returned() (some bool) {
	for id, was := range r.absent {
		_, down := r.DownSince(id)
		some = some || was && !down
		r.absent[id] = down
	}
	return some
}

// pass looks at all roots when there is a reason to: the nodes, or the number
// of roots short of holders, have changed since the last one that left nothing
// to do, or pins wait for long. Else it looks at those that are short, or have too many.
func (r *Repairer) pass(ctx context.Context) error {
	if !r.State.IsLeader() {
		r.last = topology{} // whoever leads next begins with a whole pass
		return nil
	}
	now, short, err := r.topology()
	if err != nil {
		return err
	}
	again := now.waiting && time.Since(r.whole).Abs() >= scanEvery
	unchanged := now.equal(&r.last) && (short == 0 || short == r.short) && !again
	if len(now.gone) > 0 && 2*now.live() <= len(now.members) {
		if !unchanged {
			r.Logger.WarnContext(ctx, "no repair while 50 % of the members or more are down", "down", len(now.gone))
		}
		return nil
	}
	var placed, pending int
	if unchanged {
		looks := []roots{state.View.Surplus}
		if short <= fewShort || time.Since(r.lacked).Abs() >= scanEvery {
			// As many that are short may be others than those that were.
			looks, r.lacked = append(looks, state.View.Lacking), time.Now()
		}
		placed, _, err = r.place(ctx, &now, looks...)
	} else {
		placed, pending, err = r.place(ctx, &now, state.View.Roots)
	}
	if placed > 0 {
		r.Logger.InfoContext(ctx, "leader placed roots on other members", "roots", placed, "pending", pending, "down", len(now.gone))
	}
	if err != nil || unchanged {
		return err
	}
	r.last, r.short, r.whole = now, short, time.Now()
	if placed+pending > 0 { // what has changed meanwhile was not placed
		r.last = topology{}
	}
	return nil
}

func (r *Repairer) topology() (t topology, short uint64, err error) {
	view, release := r.State.LocalView()
	defer release()
	if at := time.Now(); at.Sub(r.looked) >= r.Every {
		r.aged, r.looked, r.index = r.index, at, view.Index()
	}
	c, err := view.Cluster()
	if err != nil {
		return t, 0, wrap("read cluster", err)
	}
	nodes, err := view.Nodes()
	if err != nil {
		return t, 0, wrap("read members", err)
	}
	pins, short, err := view.Totals()
	if err != nil {
		return t, 0, wrap("read totals", err)
	}
	t.waiting = pins[state.Queued]+pins[state.Pinning] > 0
	t.replication = int(c.Replication)
	r.absent = make(map[state.NodeID]bool, len(nodes))
	for _, n := range nodes {
		t.members = append(t.members, n.ID)
		if (t.waiting || short > 0) && r.Full(n.ID) {
			t.full = append(t.full, n.ID)
		}
		since, down := r.DownSince(n.ID)
		r.absent[n.ID] = down
		if n.ID == r.Self || !down {
			continue
		}
		if t.waiting {
			t.down = append(t.down, n.ID)
		}
		if time.Since(since) > r.After {
			t.gone = append(t.gone, n.ID)
		}
	}
	return t, short, nil
}

// roots reads roots from one on.
type roots func(view state.View, from state.RootKey, fn func(state.Root) (more bool, err error)) error

// place pages through roots and places those anew that need it. pending counts
// those that a later pass has to look at again.
func (r *Repairer) place(ctx context.Context, now *topology, looks ...roots) (placed, pending int, err error) {
	for _, all := range looks {
		some, wait, err := r.placeOf(ctx, now, all)
		placed, pending = placed+some, pending+wait
		if err != nil {
			return placed, pending, err
		}
	}
	return placed, pending, nil
}

func (r *Repairer) placeOf(ctx context.Context, now *topology, all roots) (placed, pending int, err error) {
	var from state.RootKey
	for {
		batch, wait, next, err := r.page(from, now, all)
		if err != nil {
			return placed, pending, err
		}
		pending += wait
		if len(batch.Items) > 0 {
			if !r.State.IsLeader() {
				return placed, pending + 1, nil // this node may lead again before the next pass
			}
			if _, err := r.State.Propose(ctx, &batch); err != nil {
				return placed, pending, wrap("place roots", err)
			}
			placed += len(batch.Items)
			if !r.rest(ctx, len(batch.Items)) {
				return placed, pending, ctx.Err()
			}
		}
		if next == "" {
			return placed, pending, ctx.Err()
		}
		from = next
	}
}

// rest keeps to the rate. It returns false when ctx ends.
func (r *Repairer) rest(ctx context.Context, roots int) bool {
	return backoff.Wait(ctx, time.Duration(roots)*time.Second/time.Duration(r.Rate))
}

// page reads roots until it has a batch or a page of them.
func (r *Repairer) page(from state.RootKey, now *topology, all roots) (batch state.PlaceRoots, pending int, next state.RootKey, err error) {
	view, release := r.State.LocalView()
	defer release()
	need, err := view.Need()
	if err != nil {
		return batch, 0, "", wrap("read cluster", err)
	}
	level, err := view.FeatureLevel()
	if err != nil {
		return batch, 0, "", wrap("read level", err)
	}
	if level >= placedLevel { // before there may be members that cannot read it
		batch.At = view.Index()
	}
	read := 0
	err = all(view, from, func(root state.Root) (bool, error) {
		if read == pageRoots || len(batch.Items) == placeBatch {
			next = root.Key
			return false, nil
		}
		read++
		if root.Status == state.Failed {
			return true, nil
		}
		since, err := view.SurplusSince(root.Key)
		if err != nil {
			return false, err
		}
		if since > r.aged {
			pending++
			return true, nil
		}
		nodes, whole := r.allocation(&root, now)
		if !whole {
			pending++
		}
		if nodes == nil {
			stale, err := stale(view, &root, now, need)
			if err != nil {
				return false, err
			}
			if stale || since > 0 && len(root.Copies) <= now.copies() { // to be placed where it is has it judged
				nodes = root.Nodes()
			}
		}
		if nodes != nil {
			batch.Items = append(batch.Items, state.Placement{Root: root.Key, Born: root.Born, Nodes: nodes, Held: root.Holders()})
		}
		return true, nil
	})
	return batch, pending, next, wrap("read roots", err)
}

// stale tells whether a root on members alone would be judged otherwise now.
func stale(view state.View, root *state.Root, now *topology, need int) (bool, error) {
	if slices.ContainsFunc(root.Copies, func(c state.Copy) bool { return !now.has(c.Node) }) {
		return false, nil
	}
	held := root.In(state.Held)
	if root.Status != state.Pinned {
		return held >= need, nil
	}
	if root.UnderReplicated && held >= need {
		return true, nil
	}
	marked, err := view.IsShort(root.Key)
	return marked != (held < now.copies()), err
}

// allocation returns where a root is to be kept, nil when it may stay as it is.
// whole is false when a later pass has to look again.
//
// A copy on a member that is gone stays on record until others hold as many as
// there should be with every member there. Should that member come back before,
// its content counts: it does not drop what may be the last copy, and a cluster
// that has no other node to use does not fetch everything again. So does one on a member
// without room: part of the content may be there, and nowhere else.
func (r *Repairer) allocation(root *state.Root, now *topology) (nodes []state.NodeID, whole bool) {
	var live, held, outsiders, stuck int
	without := now.without(root)
	for _, c := range root.Copies {
		switch {
		case !now.has(c.Node):
			outsiders++
		case slices.Contains(without, c.Node):
		case now.stuck(c):
			stuck++
		default:
			live++
			if c.Phase == state.Held {
				held++
			}
		}
	}
	target, full := min(now.replication, len(now.members)-len(without)), now.copies()
	lacking := live < target || outsiders > 0
	surplus := len(root.Copies) > full && held >= full
	if !lacking && !surplus {
		return nil, len(root.Copies) <= full || held == live
	}
	nodes = r.choose(root, now)
	nodes = nodes[:min(target, len(nodes))]
	if len(nodes) == 0 {
		return nil, false
	}
	whole = true
	for _, c := range root.Copies {
		last := (c.Phase == state.Held || now.stuck(c)) && now.has(c.Node) && heldOn(root, nodes) < full
		if last && !slices.Contains(nodes, c.Node) && len(nodes) < state.MaxCopies {
			nodes = append(nodes, c.Node)
			whole = false
		}
	}
	slices.Sort(nodes)
	if slices.Equal(nodes, root.Nodes()) {
		return nil, !lacking || outsiders == 0 && live+stuck >= target // there is no other room
	}
	return nodes, whole
}

// choose lists the nodes that can keep a root, best first: those that hold it,
// those that were told to, those that are new to it, and those without room for it. So
// a member that is down for a moment, where nothing would be placed now, loses
// nothing.
func (r *Repairer) choose(root *state.Root, now *topology) []state.NodeID {
	placed := r.Place(*root)
	rank := func(c state.Copy) int {
		n := 0
		if c.Phase != state.Held {
			n += 2
		}
		if !slices.Contains(placed, c.Node) {
			n++
		}
		return n
	}
	copies := slices.Clone(root.Copies)
	slices.SortStableFunc(copies, func(a, b state.Copy) int { return cmp.Compare(rank(a), rank(b)) })
	var nodes []state.NodeID
	add := func(n state.NodeID) {
		if now.has(n) && !slices.Contains(now.without(root), n) && !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	for _, c := range copies {
		if !now.stuck(c) {
			add(c.Node)
		}
	}
	for _, n := range placed {
		if c := root.Copy(n); c == nil || !now.stuck(*c) {
			add(n)
		}
	}
	for _, c := range copies {
		add(c.Node)
	}
	return nodes
}

// heldOn counts the copies of a root that some of the nodes hold.
func heldOn(root *state.Root, nodes []state.NodeID) (held int) {
	for _, c := range root.Copies {
		if c.Phase == state.Held && slices.Contains(nodes, c.Node) {
			held++
		}
	}
	return held
}
