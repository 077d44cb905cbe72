package tracker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// running runs something until the returned function is called.
func running(w *world, run func(context.Context) error) (stop func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("Run: %v", err)
		}
	}
}

func (w *world) totals() map[state.Status]uint64 {
	w.Helper()
	view, release := w.state.State.LocalView()
	defer release()
	pins, _, err := view.Totals()
	if err != nil {
		w.Fatal(err)
	}
	return pins
}

// The leader moves the pins that one entry had no room for, after a loss of the majority too; other nodes move none.
func TestTheReconcilerMovesWhatOneEntryHadNoRoomFor(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		const pins = 3*state.MaxSettle + 10
		for range pins {
			w.pin(1)
		}
		w.state.SetLeader(false)
		s := &Reconciler{Self: self, State: w.state, Watch: w.state.Watch, Logger: slog.New(slog.DiscardHandler)}
		defer running(w, s.Run)()
		w.says(self, 1, state.Held)
		w.pass(time.Minute)
		if n := w.totals()[state.Pinned]; n != state.MaxSettle {
			w.Fatalf("%d pins moved by a node that does not lead", n)
		}
		w.state.SetLeader(true)
		w.state.Fail(state.ErrUnavailable)
		w.pass(time.Minute)
		w.state.Fail(nil)
		w.pass(reconcileEvery)
		if n := w.totals()[state.Pinned]; n != pins {
			w.Fatalf("%d of %d pins are pinned", n, pins)
		}
	})
}

// The leader clears all open uploads of a deleted bucket, also if one entry has no room for them.
func TestTheReconcilerClearsDeletedBuckets(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		const account, uploads = clustertest.Operator, 2*state.MaxSettle + 10
		w.state.Apply(w, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
		b := w.state.NewBucket(w, account, "bucket", false)
		for i := range uploads {
			w.state.Apply(w, &state.CreateUpload{
				Account: account, Bucket: b.Name, Born: b.Born, Upload: state.Upload{ID: state.UploadID(fmt.Sprint(i)), Key: "k", Created: 1},
			})
		}
		s := &Reconciler{Self: self, State: w.state, Watch: w.state.Watch, Logger: slog.New(slog.DiscardHandler)}
		defer running(w, s.Run)()
		w.pass(time.Second)
		w.state.Apply(w, &state.DeleteBucket{Account: account, Name: b.Name, Born: b.Born})
		w.pass(time.Second)
		view, release := w.state.State.LocalView()
		defer release()
		left, err := view.Emptying(1)
		_, _, open, uerr := view.BucketUsage(&b)
		if err := errors.Join(err, uerr); err != nil || len(left) != 0 || open != 0 {
			w.Fatalf("%d of %d uploads are left of %v, %v", open, uploads, left, err)
		}
	})
}

// The leader frees all parts of an aborted upload, also if one entry has no room for them.
func TestTheReconcilerClearsUploadsThatHaveEnded(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		const account, parts = clustertest.Operator, 3*state.MaxFreed + 10
		w.state.Apply(w, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
		b := w.state.NewBucket(w, account, "bucket", false)
		w.state.Apply(w, &state.CreateUpload{
			Account: account, Bucket: b.Name, Born: b.Born, Upload: state.Upload{ID: "up", Key: "k", Created: 1},
		})
		root := key(1)
		held := []state.Holding{{Node: self}, {Node: "n2"}, {Node: "n3"}}
		for i := range parts {
			w.state.Apply(w, &state.PutPart{
				Account: account, Bucket: b.Name, Born: b.Born, Key: "k", Upload: "up",
				Part:    state.Part{Number: uint16(i + 1), ID: state.VersionID(fmt.Sprint(i)), Root: root, Size: 1, Created: 1, ETag: "e"},
				Content: state.Content{Root: root, Bytes: 1, Blocks: 1, Held: held},
			})
		}
		s := &Reconciler{Self: self, State: w.state, Watch: w.state.Watch, Logger: slog.New(slog.DiscardHandler)}
		defer running(w, s.Run)()
		w.pass(time.Second)
		w.state.Apply(w, &state.AbortUpload{Account: account, Bucket: b.Name, Born: b.Born, Key: "k", ID: "up"})
		w.pass(time.Second)
		view, release := w.state.State.LocalView()
		defer release()
		left, err := view.Ended(1)
		_, rerr := view.Root(root)
		if err != nil || len(left) != 0 || !errors.Is(rerr, state.ErrNotFound) {
			w.Fatalf("left is %v, %v; the content of the parts: %v", left, err, rerr)
		}
	})
}

// repairs is a cluster of many nodes with a repairer on the leader.
type repairs struct {
	*world

	mu   sync.Mutex
	down map[state.NodeID]time.Time
	full map[state.NodeID]bool
}

func (r *repairs) isFull(n state.NodeID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.full[n]
}

func (r *repairs) fill(n state.NodeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full[n] = true
}

func (r *repairs) downSince(n state.NodeID) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, ok := r.down[n]
	return since, ok
}

func (r *repairs) fall(n state.NodeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down[n] = time.Now()
}

func (r *repairs) rise(n state.NodeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.down, n)
}

func repairWorld(t *testing.T, members []state.NodeID, fn func(r *repairs)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, repairer := newRepairs(t, members)
		defer running(r.world, repairer.Run)()
		fn(r)
	})
}

// newRepairs returns a repairer that does not run.
func newRepairs(t *testing.T, members []state.NodeID) (*repairs, *Repairer) {
	t.Helper()
	st := clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members(members...), Replication: 3, WriteCopies: 2})
	r := &repairs{world: &world{TB: t, state: &consensus{State: st}}, down: map[state.NodeID]time.Time{}, full: map[state.NodeID]bool{}}
	return r, &Repairer{
		Self: self, State: r.state, Watch: st.Watch, Logger: slog.New(slog.DiscardHandler),
		DownSince: r.downSince,
		Full:      r.isFull,
		Place:     r.choose,
	}
}

// choose keeps the copies on nodes that are up and have room, or hold them, and adds
// others with room in order.
func (r *repairs) choose(root state.Root) (nodes []state.NodeID) {
	view, release := r.state.State.LocalView()
	defer release()
	members, err := view.Nodes()
	if err != nil {
		r.Error(err)
	}
	for _, first := range []bool{true, false} {
		for _, m := range members {
			_, down := r.downSince(m.ID)
			c := root.Copy(m.ID)
			if drain, err := view.Drain(m.ID); err != nil || drain != nil {
				continue
			}
			if r.isFull(m.ID) && (c == nil || c.Phase != state.Held) {
				continue
			}
			if len(nodes) < 3 && !down && (c != nil) == first {
				nodes = append(nodes, m.ID)
			}
		}
	}
	return nodes
}

func (r *repairs) wantOn(n int, want ...state.NodeID) {
	r.Helper()
	root := r.root(n)
	if got := root.Nodes(); !slices.Equal(got, want) {
		r.Fatalf("root %d is on %v, want %v", n, got, want)
	}
}

func (r *repairs) held(n int, nodes ...state.NodeID) {
	for _, node := range nodes {
		r.says(node, n, state.Held)
	}
}

// Roots of a member that is down for DefaultRepairAfter get another node, and lose the member only when that node
// holds them.
func TestRepairAfterAMemberIsDownForTooLong(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c", "d", "e"}, func(r *repairs) {
		for n := range 300 {
			r.pin(n, "a", "b", "c")
			r.held(n, "a", "b", "c")
		}
		r.fall("c")
		r.pass(DefaultRepairAfter - time.Second)
		r.wantOn(0, "a", "b", "c")
		r.pass(DefaultRepairEvery + 10*time.Second)
		for n := range 300 {
			r.wantOn(n, "a", "b", "c", "d") // c's copy counts until d's is whole
			r.held(n, "d")
		}
		r.pass(DefaultRepairEvery + 10*time.Second)
		for n := range 300 {
			r.wantOn(n, "a", "b", "d")
		}
	})
}

// A copy leaves a member that is being drained when enough others hold the root. What is not fetched yet
// moves at once.
func TestAMemberIsDrained(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c", "d"}, func(r *repairs) {
		r.state.Apply(r, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
		r.pin(1, "a", "b", "c")
		r.held(1, "a", "b", "c")
		r.pin(2, "a", "b", "c")
		r.pass(time.Second)
		r.state.Apply(r, &state.SetDrain{Node: "c", On: true})
		r.pass(2 * DefaultRepairEvery)
		r.wantOn(1, "a", "b", "c", "d")
		r.wantOn(2, "a", "b", "d")
		r.held(1, "d")
		r.pass(returnEvery + time.Second) // it does not wait for the next pass over all roots
		r.wantOn(1, "a", "b", "d")

		r.state.Apply(r, &state.SetDrain{Node: "d", On: true}) // two members are left for three copies
		r.pass(2 * DefaultRepairEvery)
		r.wantOn(1, "a", "b")
		r.wantOn(2, "a", "b", "d")
		r.held(2, "a", "b")
		r.pass(2 * DefaultRepairEvery)
		view, release := r.state.State.LocalView()
		if short, err := view.ShortWithout(func(state.NodeID) bool { return true }); err != nil || short != 0 {
			r.Errorf("%d roots lack copies, %v", short, err)
		}
		release()
		before := r.state.commands()
		r.pass(3 * DefaultRepairEvery)
		if after := r.state.commands(); after != before {
			r.Errorf("%d commands when nothing was to be done", after-before)
		}

		r.state.Apply(r, &state.SetDrain{Node: "d", On: false})
		r.pass(2 * DefaultRepairEvery)
		r.wantOn(1, "a", "b", "d")
		joining := clustertest.Members("c")[0]
		joining.FeatureLevel = state.NewestFeatureLevel
		r.state.Apply(r, &state.RemoveNode{ID: "c"}) // its drain ends with it
		r.state.Apply(r, &state.JoinNode{Node: joining, At: 1})
		r.fall("d")
		r.pass(DefaultRepairAfter + 3*DefaultRepairEvery)
		r.wantOn(1, "a", "b", "c")
	})
}

// Members that are back before their replacements hold anything keep their copies, and the replacements are taken
// back.
func TestAMemberThatComesBackInTimeKeepsItsCopies(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c", "d", "e"}, func(r *repairs) {
		r.pin(1, "a", "b", "c")
		r.held(1, "a", "b", "c")
		r.fall("b")
		r.fall("c")
		r.pass(DefaultRepairAfter + 2*DefaultRepairEvery)
		r.wantOn(1, "a", "b", "c", "d", "e")
		r.rise("b")
		r.rise("c")
		r.pass(2 * DefaultRepairEvery)
		r.wantOn(1, "a", "b", "c") // nothing was lost, the new ones are not needed
	})
}

// A member that was told to keep content and has no room by then is replaced. What it has
// of it counts until there are as many copies as there should be.
func TestAMemberThatFillsBeforeItHasTheContentIsReplaced(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c", "d"}, func(r *repairs) {
		r.pin(1, "a", "b", "c")
		r.held(1, "a", "b")
		r.pin(2, "b", "c", "d")
		r.held(2, "b", "c", "d")
		r.fill("c")
		r.pass(DefaultRepairEvery + time.Second)
		r.wantOn(1, "a", "b", "c", "d")
		r.wantOn(2, "b", "c", "d") // it is there
		r.held(1, "d")
		r.pass(2 * DefaultRepairEvery)
		r.wantOn(1, "a", "b", "d")
		r.fill("d")
		r.pin(3, "a", "b", "d")
		r.held(3, "a", "b")
		commands := r.state.commands()
		r.pass(20 * DefaultRepairEvery)
		r.wantOn(3, "a", "b", "d") // nobody else has room either
		if n := r.state.commands() - commands; n > 0 {
			t.Errorf("%d commands that change nothing", n)
		}
	})
}

// With no other node to use, the copies of a member that is down wait for it. It would have to fetch everything again
// otherwise.
func TestThreeNodesWaitForTheThird(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c"}, func(r *repairs) {
		r.pin(1, "a", "b", "c")
		r.held(1, "a", "b", "c")
		r.fall("c")
		r.pin(2, "a", "b")
		r.held(2, "a", "b")
		r.pass(24 * time.Hour)
		r.wantOn(1, "a", "b", "c")
		r.wantOn(2, "a", "b")
		r.rise("c")
		r.pass(DefaultRepairEvery + time.Second)
		r.wantOn(2, "a", "b", "c")
	})
}

// A member that is back is soon given the content that was put while it was down, also if no pass has seen it down.
func TestAMemberThatIsBackIsGivenWhatItMissed(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c"}, func(r *repairs) {
		r.pass(DefaultRepairEvery + time.Second)
		for n := range 2 {
			r.fall("c")
			r.pin(n, "a", "b")
			r.held(n, "a", "b")
			r.pass(returnEvery)
			r.rise("c")
			r.pass(returnEvery)
			r.wantOn(n, "a", "b", "c")
			r.held(n, "c")
			r.pass(DefaultRepairEvery)
		}
		commands := r.state.commands()
		r.pass(DefaultRepairEvery)
		if n := r.state.commands() - commands; n > 0 {
			t.Errorf("%d commands when nobody was away", n)
		}
	})
}

// A root gets another node in place of a member that has left, and one more when a member joins.
func TestRepairAfterMembersHaveLeftOrJoined(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c", "d"}, func(r *repairs) {
		r.pin(1, "a", "b", "c")
		r.held(1, "a", "b", "c")
		r.pass(time.Second)
		r.state.Apply(r, &state.RemoveNode{ID: "c"})
		r.pass(time.Second)
		r.wantOn(1, "a", "b", "d")
		r.state.Apply(r, &state.RemoveNode{ID: "d"})
		r.pass(time.Second)
		r.wantOn(1, "a", "b")
		r.state.Apply(r, &state.JoinNode{Node: clustertest.Members("e")[0], At: 1})
		r.pass(time.Second)
		r.wantOn(1, "a", "b", "e")
	})
}

// A placement takes no copy from a node that a put has made a holder since the repairer read the root. Those who held
// the root before may be down for good.
func TestRepairTakesNothingFromWhoHoldsItByNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const account = clustertest.Operator
		r, repairer := newRepairs(t, []state.NodeID{"a", "b", "c", "d", "e", "f", "g"})
		r.state.Apply(r, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
		b := r.state.NewBucket(r, account, "bucket", false)
		put := &state.PutObject{
			Account: account, Bucket: b.Name, Born: b.Born,
			Object:  state.Object{ID: "v", Key: "k", Root: key(1), Size: 1, Created: 1, ETag: "e"},
			Content: state.Content{Root: key(1), Bytes: 1, Blocks: 1, Held: []state.Holding{{Node: "f"}, {Node: "g"}}},
		}
		repairer.Place = func(root state.Root) []state.NodeID {
			nodes := r.choose(root)
			if put != nil {
				r.state.Apply(r, put)
				put = nil
			}
			return nodes
		}
		defer running(r.world, repairer.Run)()
		r.pin(1, "a", "b", "c")
		r.held(1, "a", "b", "c")
		r.fall("b")
		r.fall("c")
		r.pass(DefaultRepairAfter + DefaultRepairEvery + time.Second)
		r.wantOn(1, "a", "b", "c", "f", "g")
		r.pass(3 * DefaultRepairEvery)
		r.wantOn(1, "a", "f", "g")
	})
}

// A root with fewer copies than the members could hold gets more. Its pin was proposed by a node that had not heard
// of the newest members.
func TestRootsWithFewerCopiesThanThereCouldBeGetMore(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c"}, func(r *repairs) {
		r.pass(DefaultRepairEvery)
		r.pin(1, "a", "b")
		r.held(1, "a", "b")
		r.pass(DefaultRepairEvery + time.Second)
		r.wantOn(1, "a", "b", "c")
	})
}

// A pin with too few copies to become pinned gets more, though nothing changes that could be a reason to scan it.
func TestAPinWithTooFewCopiesGetsMore(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c"}, func(r *repairs) {
		r.pass(DefaultRepairEvery)
		pin := r.pin(1, "a")
		r.held(1, "a")
		r.pass(scanEvery + DefaultRepairEvery + time.Second)
		r.wantOn(1, "a", "b", "c")
		r.held(1, "b")
		if s, _ := r.status(pin); s != state.Pinned {
			t.Errorf("the pin is %s", s)
		}
	})
}

// A root that becomes short gets a copy although another becomes whole, so that as many are short as before.
func TestRepairSeesWhichRootsAreShort(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c"}, func(r *repairs) {
		r.pin(1, "a", "b", "c")
		r.held(1, "a", "b")
		r.pass(2 * DefaultRepairEvery)
		r.held(1, "c")
		r.pin(2, "a", "b")
		r.held(2, "a", "b")
		r.pass(DefaultRepairEvery + time.Second)
		r.wantOn(2, "a", "b", "c")
	})
}

// A repair pass that a loss of leadership has cut short is made again, also if leadership is won back before the next
// one. What was placed anew has all its copies by then.
func TestAPassThatWasCutShortIsMadeAgain(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c", "d"}, func(r *repairs) {
		const roots = 3 * placeBatch
		for n := range roots {
			r.pin(n, "a", "b", "c")
			r.held(n, "a", "b", "c")
		}
		r.pass(DefaultRepairEvery)
		r.state.Before(func(cmd state.Command) {
			if _, ok := cmd.(*state.PlaceRoots); ok {
				r.state.SetLeader(false)
			}
		})
		r.state.Apply(r, &state.RemoveNode{ID: "c"})
		r.pass(10 * time.Second)
		r.state.Before(nil)
		r.state.SetLeader(true)
		for n := range roots {
			r.held(n, "d") // where it is told to
		}
		r.pass(2 * DefaultRepairEvery)
		for n := range roots {
			r.wantOn(n, "a", "b", "d")
		}
	})
}

// Every root is judged again by its holders when the number of members changes, also a root that need not move. This
// number decides how many holders are enough.
func TestRootsAreReconciledWhenTheMembersChange(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c"}, func(r *repairs) {
		short := func() uint64 {
			view, release := r.state.State.LocalView()
			defer release()
			_, short, err := view.Totals()
			if err != nil {
				t.Fatal(err)
			}
			return short
		}
		r.pass(time.Second)
		r.fall("c")
		for n := range 200 { // more than one command places
			r.pin(n, "a", "b")
			r.held(n, "a", "b")
		}
		waiting := r.pin(200, "a")
		r.fall("b")
		r.pass(DefaultRepairEvery)
		r.held(200, "a")
		if got := short(); got != 200 {
			t.Fatalf("%d roots are short of holders, want 200", got)
		}
		r.rise("b")
		r.state.Apply(t, &state.RemoveNode{ID: "c"})
		r.pass(2 * DefaultRepairEvery)
		if got := short(); got != 0 {
			t.Fatalf("%d roots are short of holders that cannot be", got)
		}
		r.state.Apply(t, &state.RemoveNode{ID: "b"})
		r.pass(DefaultRepairEvery)
		if s, _ := r.status(waiting); s != state.Pinned {
			t.Fatalf("status %s with all the holders there can be", s)
		}
		r.state.Apply(t, &state.JoinNode{Node: clustertest.Members("d")[0], At: 1})
		r.pass(DefaultRepairEvery)
		if got := short(); got != 201 {
			t.Fatalf("%d roots are short of holders, want all", got)
		}
	})
}

// A node repairs nothing while it does not lead, has no majority or sees half of the members down, and repairs after
// that.
func TestNoRepairWithoutAView(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(r *repairs)
	}{
		{"another node leads", func(r *repairs) { r.state.SetLeader(false); r.fall("c") }},
		{"half of the members are down", func(r *repairs) { r.fall("b"); r.fall("c") }},
		{"no majority", func(r *repairs) { r.state.Fail(errors.New("no leader")); r.fall("c") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			repairWorld(t, []state.NodeID{"a", "b", "c", "d"}, func(r *repairs) {
				r.pin(1, "a", "b", "c")
				r.held(1, "a", "b", "c")
				r.pass(DefaultRepairEvery)
				tc.setup(r)
				r.pass(time.Hour)
				r.wantOn(1, "a", "b", "c")
				r.rise("b")
				r.state.SetLeader(true)
				r.state.Fail(nil)
				r.pass(2 * DefaultRepairEvery)
				r.wantOn(1, "a", "b", "c", "d")
			})
		})
	}
}

// Repair places one to three times DefaultRepairRate roots in two seconds, and all of five times as many in six.
func TestRepairKeepsToItsRate(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c", "d"}, func(r *repairs) {
		const roots = 5 * DefaultRepairRate
		for n := range roots {
			r.pin(n, "a", "b", "c")
		}
		r.pass(time.Second)
		r.state.Apply(r, &state.RemoveNode{ID: "c"})
		moved := func() (n int) {
			view, release := r.state.State.LocalView()
			defer release()
			_, wanted, err := view.CopiesOn("d")
			if err != nil {
				r.Fatal(err)
			}
			return int(wanted)
		}
		r.pass(2 * time.Second)
		if n := moved(); n < DefaultRepairRate || n > 3*DefaultRepairRate {
			r.Fatalf("%d roots placed in two seconds", n)
		}
		r.pass(4 * time.Second)
		if n := moved(); n != roots {
			r.Fatalf("%d of %d roots placed", n, roots)
		}
	})
}

// Repair takes back the surplus of a put in a later pass, from members that are down first. Content is put again on
// other nodes than those that held it. All keep it until it is known who is up.
func TestASurplusOfAPutIsTakenBackLater(t *testing.T) {
	repairWorld(t, []state.NodeID{"a", "b", "c", "d", "e"}, func(r *repairs) {
		r.pass(10 * time.Minute) // there is nothing to repair, and no reason for a pass
		b := r.bucket()
		r.object(b, 1, "a", "b")
		r.pass(2*DefaultRepairEvery + time.Second)
		r.held(1, "c") // where the repairer has placed the third
		r.wantOn(1, "a", "b", "c")
		r.object(b, 1, "d", "e")
		r.wantOn(1, "a", "b", "c", "d", "e")
		r.fall("a")
		r.fall("b")
		r.pass(DefaultRepairEvery)
		r.wantOn(1, "a", "b", "c", "d", "e")
		r.pass(DefaultRepairEvery)
		r.wantOn(1, "c", "d", "e")
	})
}

// Copies that are no surplus any more, since a member has joined, are marked no more and stay.
func TestTheMarkOfASurplusEndsWithIt(t *testing.T) {
	r, repairer := newRepairs(t, []state.NodeID{"a", "b", "c"})
	orDefault(&repairer.Rate, DefaultRepairRate)
	r.pin(1, "a", "b", "c")
	r.held(1, "c")
	r.state.Apply(r, &state.RemoveNode{ID: "c"})
	r.object(r.bucket(), 1, "a", "b")
	r.state.Apply(r, &state.JoinNode{Node: state.Node{ID: "c", FeatureLevel: state.NewestFeatureLevel}})
	marked := func() uint64 {
		view, release := r.state.State.LocalView()
		defer release()
		since, err := view.SurplusSince(key(1))
		if err != nil {
			r.Fatal(err)
		}
		return since
	}
	if marked() == 0 {
		r.Fatal("with three copies in a cluster of two there is no surplus")
	}
	for range 3 {
		if err := repairer.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.wantOn(1, "a", "b", "c")
	}
	if since := marked(); since != 0 {
		r.Errorf("with three copies in a cluster of three there is a surplus since %d", since)
	}
}

// An allocation keeps holders until enough others hold the root, replaces nodes that are gone or full, and names
// members alone.
func TestAllocation(t *testing.T) {
	const H, A = state.Held, state.Assigned
	for _, tc := range []struct {
		name    string
		copies  []state.Copy
		members string
		gone    string // down for too long; those of the rows with pinning are down now, of those with full have no room
		place   string
		want    string // empty: stays
		whole   bool
	}{
		{"complete", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}, {Node: "c", Phase: H}}, "abcd", "", "abd", "", true},
		{"being fetched", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: A}, {Node: "c", Phase: A}}, "abcd", "", "abd", "", true},
		{"too few", []state.Copy{{Node: "a", Phase: H}}, "abcd", "", "abc", "abc", true},
		{"fewer than there could be, no place", []state.Copy{{Node: "a", Phase: H}}, "ab", "", "a", "", false},
		{"nobody to place on", []state.Copy{{Node: "a", Phase: H}}, "bc", "", "", "", false},
		{"gone and not held", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}, {Node: "c", Phase: A}}, "abcd", "c", "abd", "abd", true},
		{"gone and held", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}, {Node: "c", Phase: H}}, "abcd", "c", "abd", "abcd", false},
		{"replaced, being fetched", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}, {Node: "c", Phase: H}, {Node: "d", Phase: A}}, "abcd", "c", "abd", "", false},
		{"replaced, whole", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}, {Node: "c", Phase: H}, {Node: "d", Phase: H}}, "abcd", "c", "abd", "abd", true},
		{"left", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}, {Node: "x", Phase: H}}, "abc", "", "abc", "abc", true},
		{"left, no other", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}, {Node: "x", Phase: H}}, "ab", "", "ab", "ab", true},
		{"placed away from a holder that is down for a moment", []state.Copy{{Node: "a", Phase: H}}, "abcd", "", "bcd", "abc", true},
		{"too many", []state.Copy{{Node: "a", Phase: A}, {Node: "b", Phase: H}, {Node: "c", Phase: H}, {Node: "d", Phase: H}}, "abcd", "", "abc", "bcd", true},
		{"pinning, one is down", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: A}}, "abc", "b", "ac", "ac", true},
		{"pinning, one is down and no other is there", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: A}}, "ab", "b", "a", "", true},
		{"full and not held", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}, {Node: "c", Phase: A}}, "abcd", "c", "abd", "abcd", false},
		{"full, no other", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}, {Node: "c", Phase: A}}, "abc", "c", "ab", "", true},
		{"full and held", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}, {Node: "c", Phase: H}}, "abcd", "c", "abc", "", true},
		{"full and replaced, being fetched", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}, {Node: "c", Phase: A}, {Node: "d", Phase: A}}, "abcd", "c", "abd", "", false},
		{"full and replaced, whole", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}, {Node: "c", Phase: A}, {Node: "d", Phase: H}}, "abcd", "c", "abd", "abd", true},
		{"full and held by nobody", []state.Copy{{Node: "a", Phase: A}, {Node: "b", Phase: A}, {Node: "c", Phase: A}}, "abcd", "c", "abd", "abcd", false},
		{"placed on a node that is not a member and on one that is gone", []state.Copy{{Node: "a", Phase: H}, {Node: "b", Phase: H}}, "abcde", "d", "xde", "abe", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ids := func(s string) (nodes []state.NodeID) {
				for _, c := range s {
					nodes = append(nodes, state.NodeID(c))
				}
				return nodes
			}
			r := &Repairer{Place: func(state.Root) []state.NodeID { return ids(tc.place) }}
			root, now := state.Root{Status: state.Pinned, Copies: tc.copies}, topology{replication: 3, members: ids(tc.members)}
			switch {
			case strings.HasPrefix(tc.name, "pinning"):
				root.Status, now.down = state.Pinning, ids(tc.gone)
			case strings.HasPrefix(tc.name, "full"):
				now.full = ids(tc.gone)
			default:
				now.gone = ids(tc.gone)
			}
			now.join()
			got, whole := r.allocation(&root, &now)
			if !slices.Equal(got, ids(tc.want)) || whole != tc.whole {
				t.Errorf("got %v (whole %t), want %v (whole %t)", got, whole, ids(tc.want), tc.whole)
			}
		})
	}
}

// BenchmarkRoots is a root's whole way: told, fetched, sealed, reported. The
// fetch itself and the state machine in memory cost something too.
func BenchmarkRoots(b *testing.B) {
	b.ReportAllocs()
	w := newWorld(b, Limits{Flush: time.Millisecond})
	w.start()
	defer w.stop()
	last := ""
	for n := range b.N {
		last = fmt.Sprintf("pin-%d", n+1)
		w.pin(n)
	}
	deadline := time.After(time.Minute)
	for {
		view, release := w.state.State.LocalView()
		held, _, err := view.CopiesOn(self)
		release()
		if err != nil {
			b.Fatal(err)
		}
		if held == uint64(b.N) {
			return
		}
		select {
		case <-deadline:
			b.Fatalf("%d of %d held, up to %s", held, b.N, last)
		case <-time.After(time.Millisecond):
		}
	}
}

// A placement says by which state it was chosen if all members can read that, and only then.
func TestAPlacementSaysByWhichStateWhereAllReadThat(t *testing.T) {
	for _, level := range []state.FeatureLevel{placedLevel - 1, placedLevel} {
		r, repairer := newRepairs(t, []state.NodeID{"a", "b", "c", "d"})
		orDefault(&repairer.Rate, DefaultRepairRate)
		r.state.Apply(r, &state.RaiseLevel{FeatureLevel: level})
		r.pin(1, "a", "b", "c")
		r.held(1, "a", "b", "c")
		r.state.Apply(r, &state.RemoveNode{ID: "c"})
		var placed []*state.PlaceRoots
		r.state.Before(func(cmd state.Command) {
			if place, ok := cmd.(*state.PlaceRoots); ok {
				placed = append(placed, place)
			}
		})
		if err := repairer.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.wantOn(1, "a", "b", "d")
		if len(placed) != 1 || (placed[0].At > 0) != (level == placedLevel) {
			t.Errorf("at level %d: %+v", level, placed)
		}
	}
}
