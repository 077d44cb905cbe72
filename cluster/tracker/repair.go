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

// Defaults and limits of the Repairer.
const (
	DefaultRepairAfter = 10 * time.Minute
	DefaultRepairEvery = time.Minute
	DefaultRepairRate  = 1000 // roots placed on other nodes, per second

	// placeBatch is the number of roots that one command places.
	placeBatch = 128
	// scanEvery is the interval between two scans of all roots while pins are not pinned yet.
	// Such a root may have too few copies, because the node that chose its members knew fewer of
	// them.
	scanEvery = 10 * time.Minute
	// fewShort is the largest number of roots with too few copies at which each pass processes
	// them all. If there are more, they are processed only every scanEvery, because they may lack
	// copies as long as a member is down.
	fewShort = 10_000
	// placedLevel is the lowest feature level at which a placement command contains the index of
	// the state by which its nodes were chosen.
	placedLevel state.FeatureLevel = 4
	// returnEvery is the interval of the checks whether members are back. Content that was put
	// while they were down lacks copies, which these members can store now.
	returnEvery = 5 * time.Second
	// repairRetry is the pause after a pass that could not be completed.
	repairRetry = 2 * time.Second
	// drainShare limits the work for members that are being drained. The pause between two scans
	// of their roots is at least drainShare times the duration of a scan, and at least
	// returnEvery.
	drainShare = 20
)

// Repairer changes on the leader to which nodes roots are allocated. If a root has lost copies,
// it allocates the root to other nodes. A copy counts as lost if its member has been down for too
// long or has left the cluster. If a member is being drained, the Repairer moves its copies to
// other members; the copy is removed from the drained member when enough others have the complete
// content. It adds copies to roots with fewer copies than possible, for example because the disk
// of a node was full, and it removes surplus copies.
//
// The Repairer also makes the state evaluate roots again whose status was computed when the
// cluster had more or fewer members. Roots that are not pinned yet do not wait for a member that
// is down, because no copy can be lost yet. Zero numbers and durations mean the defaults; the
// other fields are required.
type Repairer struct {
	Self  state.NodeID
	State State
	Watch *state.Watch
	// DownSince returns whether a member is down, and since when.
	DownSince func(state.NodeID) (since time.Time, down bool)
	// Full returns whether a member accepts no new content.
	Full func(state.NodeID) bool
	// Place returns the best nodes for a root. It prefers the nodes to which the root is
	// allocated already.
	Place  func(root state.Root) []state.NodeID
	After  time.Duration // time after which the copies of a member that is down count as lost
	Every  time.Duration // interval of passes
	Rate   int           // largest number of roots per second that are allocated again
	Logger *slog.Logger

	// The following fields are about the last complete pass. Only Run uses them.
	last  topology
	short uint64    // number of roots with too few complete copies at that time
	whole time.Time // time of that pass

	lacked time.Time // time of the last pass over the roots with too few copies; only Run uses it

	absent map[state.NodeID]bool // whether each member was down at the last check; only Run uses it

	drainNext time.Time // the roots on drained members are not scanned before this time; only Run uses it

	// A put allocates surplus copies if it does not know which nodes still have the content. A
	// pass removes surplus copies only if they come from log entries up to aged, because by then
	// it is known which members were down. aged is the index of the state one or more Every ago.
	aged   uint64
	looked time.Time // time at which index was read
	index  uint64
}

// topology is the facts about members that decide to which nodes roots can be allocated.
type topology struct {
	replication int
	members     []state.NodeID // ids of all members, in order
	gone        []state.NodeID // members that have been down for too long
	drained     []state.NodeID // members that are being drained, in order
	leaving     []state.NodeID // gone and drained together
	unsure      []state.NodeID // down and drained together
	down        []state.NodeID // members that are down now; set only while some pins wait
	full        []state.NodeID // members without room; set only while pins wait or roots have too few copies
	waiting     bool           // some pins are not pinned yet
}

// copies returns the number of copies that a root should have.
func (t *topology) copies() int { return min(t.replication, len(t.members)-len(t.drained)) }

// stuck returns whether a copy cannot be completed because its member has no room.
func (t *topology) stuck(c state.Copy) bool {
	return c.Phase != state.Held && slices.Contains(t.full, c.Node)
}

func (t *topology) live() int { return len(t.members) - len(t.gone) }

// halved returns whether at least half of the members are gone. Then the Repairer moves nothing,
// because the others may lack the room.
func (t *topology) halved() bool { return len(t.gone) > 0 && 2*t.live() <= len(t.members) }

// without returns the members on which the copies of a root do not count: those that are leaving
// for a pinned root, and also those that are just down for other roots.
func (t *topology) without(root *state.Root) []state.NodeID {
	if root.Status == state.Pinned {
		return t.leaving
	}
	return t.unsure
}

func (t *topology) has(n state.NodeID) bool {
	_, found := slices.BinarySearch(t.members, n)
	return found
}

func (t *topology) equal(o *topology) bool {
	return t.replication == o.replication && slices.Equal(t.members, o.members) &&
		slices.Equal(t.leaving, o.leaving) && slices.Equal(t.unsure, o.unsure) && slices.Equal(t.drained, o.drained) && slices.Equal(t.full, o.full)
}

// Run works until ctx ends, then returns nil. On a node that does not lead it only waits.
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
			if !r.State.IsLeader() {
				continue
			}
			if !r.returned() {
				if err := r.drain(ctx); err != nil && ctx.Err() == nil {
					r.Logger.WarnContext(ctx, "repair of roots on drained members failed before its end", "err", err)
				}
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

// returned returns whether a member that was down at the last check is not down any more. It
// records the check.
func (r *Repairer) returned() (some bool) {
	for id, was := range r.absent {
		_, down := r.DownSince(id)
		some = some || was && !down
		r.absent[id] = down
	}
	return some
}

// pass does one pass of the Repairer, if this node is the leader. It scans all roots if the
// members or the number of roots with too few copies have changed since the last complete pass,
// or if pins have waited for scanEvery. Otherwise it processes only the roots with too few or too
// many copies.
func (r *Repairer) pass(ctx context.Context) error {
	if !r.State.IsLeader() {
		r.last = topology{} // the next leader starts with a complete pass
		return nil
	}
	now, short, err := r.topology()
	if err != nil {
		return err
	}
	again := now.waiting && time.Since(r.whole).Abs() >= scanEvery
	unchanged := now.equal(&r.last) && (short == 0 || short == r.short) && !again
	if now.halved() {
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

// drain processes the roots on the members that are being drained. So a copy is removed from such
// a member soon after enough others have the content, and not only in the next pass over all
// roots.
func (r *Repairer) drain(ctx context.Context) error {
	if time.Now().Before(r.drainNext) {
		return nil
	}
	absent := r.absent // the next call of returned compares with it
	now, _, err := r.topology()
	r.absent = absent
	if err != nil || len(now.drained) == 0 || now.halved() {
		return err
	}
	begun := time.Now()
	for _, id := range now.drained {
		if _, _, err = r.placeOf(ctx, &now, rootsOn(id)); err != nil {
			break
		}
	}
	r.drainNext = time.Now().Add(drainShare * time.Since(begun))
	return err
}

// rootsOn returns a function that reads the roots that are allocated to a node.
func rootsOn(id state.NodeID) roots {
	return func(view state.View, from state.RootKey, fn func(state.Root) (bool, error)) error {
		return view.WantedOn(id, from, func(k state.RootKey, _ state.Phase) (bool, error) {
			root, err := view.Root(k)
			if err != nil {
				return false, err
			}
			return fn(root)
		})
	}
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
	drains, err := view.Drains()
	if err != nil {
		return t, 0, wrap("read drains", err)
	}
	for _, d := range drains {
		t.drained = append(t.drained, d.Node)
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
	t.join()
	return t, short, nil
}

// join sets leaving and unsure from the other lists.
func (t *topology) join() {
	t.leaving, t.unsure = union(t.gone, t.drained), union(t.down, t.drained)
}

// union returns the nodes in a or b, without duplicates.
func union(a, b []state.NodeID) []state.NodeID {
	all := slices.Clone(a)
	for _, id := range b {
		if !slices.Contains(a, id) {
			all = append(all, id)
		}
	}
	return all
}

// roots is a function that calls fn with roots in order, beginning at from, until fn returns
// false or an error.
type roots func(view state.View, from state.RootKey, fn func(state.Root) (more bool, err error)) error

// place processes all roots that the functions looks read, and changes the allocation of those
// that need it. placed is their number, and pending the number of roots that a later pass must
// process again.
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

// rest waits after a command for the given number of roots, so that r.Rate is not exceeded. It
// returns false if ctx ends.
func (r *Repairer) rest(ctx context.Context, roots int) bool {
	return backoff.Wait(ctx, time.Duration(roots)*time.Second/time.Duration(r.Rate))
}

// page reads roots with all, beginning at from, until it has placeBatch placements or has read
// pageRoots roots. next is the first root that it has not read, or "".
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
			if stale || since > 0 && len(root.Copies) <= now.copies() { // placing it on the same nodes makes Apply derive its status again
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

// stale returns whether the state would give a root another status, or another mark as having too
// few copies, if it evaluated the root now. need is the number of complete copies that makes a
// root pinned.
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

// allocation returns the nodes to which a root must be allocated, or nil if nothing must change.
// whole is false if a later pass must process the root again.
//
// A copy on a lost member remains in the record until enough other nodes have the complete
// content. If the member comes back before, its copy counts again. So it does not drop what may
// be the last copy, and a cluster without another node does not fetch everything again. The same
// applies to an incomplete copy on a member without room: it may have parts of the content that
// exist nowhere else.
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

// choose returns the nodes that can store a root, the best first: nodes with the complete
// content, other nodes to which it is allocated, new nodes, and nodes without room for it.
// Members on which its copies do not count are left out.
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

// heldOn returns how many of the given nodes have the complete content of a root.
func heldOn(root *state.Root, nodes []state.NodeID) (held int) {
	for _, c := range root.Copies {
		if c.Phase == state.Held && slices.Contains(nodes, c.Node) {
			held++
		}
	}
	return held
}
