package tracker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"
)

// self is the node whose tracker is tested; other is another one.
const (
	self  state.NodeID = "a"
	other state.NodeID = "b"
	third state.NodeID = "c"
)

var errNobody = errors.New("nobody offered the block")

// key returns the n-th root.
func key(n int) state.RootKey {
	sum, err := mh.Sum(fmt.Appendf(nil, "root %d", n), mh.SHA2_256, -1)
	if err != nil {
		panic(err)
	}
	return state.RootOf(cid.NewCidV1(cid.Raw, sum))
}

// store stands in for the block store: references in memory.
type store struct {
	mu         sync.Mutex
	references map[string]owned
	hurt       map[string]bool // references that lack blocks, until they are sealed again
	drops      []string
	fail       error        // of Reference
	stuck      error        // of Drop
	onDrop     func()       // called before the next drop
	onHide     func() error // called before each Hide
	hides      int          // changes

	judge    func(reference string) bool // whether it is hidden as it is sealed; nil: it is not
	dropping func(reference string)      // called at each drop
}

type owned struct {
	sealed        bool
	bytes, blocks uint64
	hidden        bool
}

func newStore() *store { return &store{references: map[string]owned{}, hurt: map[string]bool{}} }

func (s *store) put(reference string, o owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.references[reference] = o
}

func (s *store) get(reference string) (owned, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.references[reference]
	return o, ok
}

func (s *store) setFail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *store) setStuck(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = err
}

func (s *store) dropped() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.drops)
}

func (s *store) Reference(_ context.Context, reference string) (bool, uint64, uint64, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.references[reference]
	return o.sealed && !s.hurt[reference], o.bytes, o.blocks, ok, s.fail
}

func (s *store) Damaged(reference string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hurt[reference]
}

func (s *store) harm(reference string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurt[reference] = true
}

func (s *store) References(_ context.Context, prefix string, fn func(string, bool) (bool, error)) error {
	s.mu.Lock()
	all := maps.Clone(s.references)
	s.mu.Unlock()
	for _, reference := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(reference, prefix) {
			if more, err := fn(reference, all[reference].sealed); !more || err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *store) Seal(_ context.Context, reference string, bytes, blocks uint64) error {
	s.put(reference, owned{sealed: true, bytes: bytes, blocks: blocks, hidden: s.judge != nil && s.judge(reference)})
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hurt, reference)
	return nil
}

func (s *store) Hide(_ context.Context, reference string, hidden bool) error {
	s.mu.Lock()
	before := s.onHide
	s.mu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.references[reference]
	if ok && o.sealed && o.hidden != hidden {
		o.hidden = hidden
		s.references[reference] = o
		s.hides++
	}
	return nil
}

func (s *store) Drop(_ context.Context, reference string) error {
	s.mu.Lock()
	before := s.onDrop
	s.onDrop = nil
	s.mu.Unlock()
	if before != nil {
		before()
	}
	if s.dropping != nil {
		s.dropping(reference)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck != nil {
		return s.stuck
	}
	delete(s.references, reference)
	s.drops = append(s.drops, reference)
	return nil
}

// nodeMeta stands in for the metadata that a node keeps across restarts.
type nodeMeta struct {
	mu   sync.Mutex
	kept map[string][]byte
}

func (n *nodeMeta) Get(key string) ([]byte, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v, ok := n.kept[key]
	return v, ok
}

func (n *nodeMeta) Set(key string, value []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept[key] = value
}

func (n *nodeMeta) Delete(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.kept, key)
}

func (n *nodeMeta) Keys(fn func(string)) {
	n.mu.Lock()
	all := slices.Collect(maps.Keys(n.kept))
	n.mu.Unlock()
	for _, key := range all {
		fn(key)
	}
}

// behaviour is how the network answers for one root.
type behaviour func(ctx context.Context, f *network, job Job, progress func(bytes, blocks uint64)) error

// good gives the whole DAG at once.
func good(context.Context, *network, Job, func(uint64, uint64)) error { return nil }

// absent fails at once.
func absent(context.Context, *network, Job, func(uint64, uint64)) error { return errNobody }

// crowded fails at once, for want of room here.
func crowded(context.Context, *network, Job, func(uint64, uint64)) error { return errCrowded }

var errCrowded = errors.New("no room")

// unasked is content whose origins are all refused, and that nobody else has.
func unasked(context.Context, *network, Job, func(uint64, uint64)) error { return errRefusedOrigins }

var errRefusedOrigins = errors.New("all origins refused")

// silent gives nothing, and does not say so.
func silent(ctx context.Context, _ *network, _ Job, _ func(uint64, uint64)) error {
	<-ctx.Done()
	return ctx.Err()
}

// stalls gives n blocks and then nothing more.
func stalls(n uint64) behaviour {
	return func(ctx context.Context, f *network, job Job, progress func(uint64, uint64)) error {
		f.store.put(job.Reference, owned{bytes: 10 * n, blocks: n})
		progress(10*n, n)
		<-ctx.Done()
		return ctx.Err()
	}
}

// vanishes gives n blocks and fails.
func vanishes(n uint64) behaviour {
	return func(_ context.Context, f *network, job Job, progress func(uint64, uint64)) error {
		f.store.put(job.Reference, owned{bytes: 10 * n, blocks: n})
		progress(10*n, n)
		return errNobody
	}
}

// slow gives a block every second, n in all.
func slow(n uint64) behaviour {
	return func(ctx context.Context, f *network, job Job, progress func(uint64, uint64)) error {
		for i := uint64(1); i <= n; i++ {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
			}
			f.store.put(job.Reference, owned{bytes: 10 * i, blocks: i})
			progress(10*i, i)
		}
		return nil
	}
}

// network stands in for where DAGs come from.
type network struct {
	store *store

	mu      sync.Mutex
	roots   map[state.RootKey]behaviour
	rest    behaviour
	jobs    []Job
	running int
	most    int
}

func (f *network) set(k state.RootKey, b behaviour) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.roots[k] = b
}

// fetched returns the jobs for a root, in order.
func (f *network) fetched(k state.RootKey) (jobs []Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.jobs {
		if state.RootOf(j.Root) == k {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func (f *network) atMost() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

func (f *network) Fetch(ctx context.Context, job Job, progress func(uint64, uint64)) (uint64, uint64, error) {
	f.mu.Lock()
	do := f.roots[state.RootOf(job.Root)]
	if do == nil {
		do = f.rest
	}
	f.jobs = append(f.jobs, job)
	f.running++
	f.most = max(f.most, f.running)
	f.mu.Unlock()
	err := do(ctx, f, job, progress)
	f.mu.Lock()
	f.running--
	f.mu.Unlock()
	if err != nil {
		return 0, 0, err
	}
	return 100, 10, nil
}

func (f *network) Final(error) bool { return false }

func (f *network) Vain(err error) bool { return errors.Is(err, errRefusedOrigins) }

func (f *network) Blameless(err error) bool { return errors.Is(err, errCrowded) }

func (f *network) Reason(err error) string { return "no luck: " + err.Error() }

// consensus counts what is proposed, and can show an old state as the local one.
type consensus struct {
	*clustertest.State

	mu        sync.Mutex
	proposals []*state.ReportCopies
	old       *state.View
	cut       bool
	viewed    func() // called after each local view was made, before anybody reads it
	asked     func() // the same of the next view of the cluster
}

// cutOff makes this node unable to propose, while others go on.
func (c *consensus) cutOff(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

func (c *consensus) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	if cut {
		return state.Result{}, fmt.Errorf("propose: %w", state.ErrUnavailable)
	}
	result, err := c.State.Propose(ctx, cmd)
	if r, ok := cmd.(*state.ReportCopies); ok && err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.proposals = append(c.proposals, r)
	}
	return result, err
}

func (c *consensus) LocalView() (state.View, func()) {
	c.mu.Lock()
	old, viewed := c.old, c.viewed
	c.mu.Unlock()
	if old != nil {
		return *old, func() {}
	}
	if viewed != nil {
		defer viewed()
	}
	return c.State.LocalView()
}

func (c *consensus) View(ctx context.Context) (state.View, func(), error) {
	c.mu.Lock()
	asked := c.asked
	c.asked = nil
	c.mu.Unlock()
	if asked != nil {
		defer asked()
	}
	return c.State.View(ctx)
}

// whenAsked has fn called once, after the next view of the cluster was made and before
// anybody has it.
func (c *consensus) whenAsked(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = fn
}

// lag makes the local state stay what it is now, or catch up again.
func (c *consensus) lag(behind bool) {
	view, release := c.State.LocalView()
	release() // the stand-in's views stay readable
	c.mu.Lock()
	defer c.mu.Unlock()
	c.old = nil
	if behind {
		c.old = &view
	}
}

// reported returns the phases reported of a root, in order.
func (c *consensus) reported(k state.RootKey) (phases []state.Phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.proposals {
		for _, item := range p.Items {
			if item.Root == k {
				phases = append(phases, item.Phase)
			}
		}
	}
	return phases
}

func (c *consensus) commands() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.proposals)
}

// world is one node with its tracker. Everything runs in a synctest bubble.
type world struct {
	testing.TB
	id       state.NodeID
	state    *consensus
	store    *store
	nodeMeta *nodeMeta
	net      *network
	limits   Limits

	tracker *Tracker
	leases  *Leases // nil: the tracker's own
	stop    func()
	pins    int
	down    state.NodeID // does not answer
	back    atomic.Bool  // it answers again
	moves   error        // for which others are to keep what could not be fetched

	accounts map[state.AccountID]bool // that were made
}

func newWorld(tb testing.TB, limits Limits) *world {
	tb.Helper()
	st := clustertest.New(tb, clustertest.Setup{Nodes: clustertest.Members(self, other, third), Replication: 3, WriteCopies: 1})
	s := newStore()
	return &world{
		TB: tb, id: self, limits: limits, store: s, nodeMeta: &nodeMeta{kept: map[string][]byte{}}, state: &consensus{State: st},
		net: &network{store: s, roots: map[state.RootKey]behaviour{}, rest: good},
	}
}

// build makes a tracker that does not run.
func (w *world) build() *Tracker {
	w.Helper()
	t, err := New(Options{
		Self: w.id, State: w.state, Watch: w.state.Watch, Blocks: w.store, Fetcher: w.net, NodeMeta: w.nodeMeta, Limits: w.limits,
		Down:   func(n state.NodeID) bool { return n == w.down && !w.back.Load() },
		Moves:  func(_ *state.Root, err error) bool { return w.moves != nil && errors.Is(err, w.moves) },
		Leases: w.leases, LeasePrefix: "lease/", Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.Fatal(err)
	}
	return t
}

// start runs a tracker, as a process that has just started.
func (w *world) start() {
	w.Helper()
	t := w.build()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- t.Run(ctx) }()
	w.tracker = t
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("Run: %v", err)
		}
	}
}

// pass lets time pass and everything settle.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// pin adds a pin of root n on some nodes and returns its id.
func (w *world) pin(n int, nodes ...state.NodeID) state.RequestID {
	w.Helper()
	w.pins++
	id := state.RequestID(fmt.Sprintf("pin-%d", w.pins))
	if len(nodes) == 0 {
		nodes = []state.NodeID{self}
	}
	w.state.Apply(w, &state.CreatePin{Pin: w.newPin(id, n), Nodes: nodes})
	return id
}

func (w *world) newPin(id state.RequestID, n int) state.Pin {
	return state.Pin{ID: id, Account: clustertest.Operator, Created: 1, CID: key(n).String()}
}

func (w *world) unpin(id state.RequestID) {
	w.Helper()
	w.state.Apply(w, &state.DeletePin{Account: clustertest.Operator, ID: id})
}

// says lets another node report.
func (w *world) says(node state.NodeID, n int, phase state.Phase) {
	w.Helper()
	root := w.root(n)
	w.state.Apply(w, &state.ReportCopies{Node: node, Items: []state.CopyReport{{
		Root: root.Key, Born: root.Born, Phase: phase, Size: 100, Blocks: 10,
	}}})
}

func (w *world) root(n int) state.Root {
	w.Helper()
	view, release := w.state.State.LocalView()
	defer release()
	root, err := view.Root(key(n))
	if err != nil {
		w.Fatal(err)
	}
	return root
}

// gone tells whether the state knows nothing of a root.
func (w *world) gone(n int) bool {
	view, release := w.state.State.LocalView()
	defer release()
	_, err := view.Root(key(n))
	return errors.Is(err, state.ErrNotFound)
}

func (w *world) status(id state.RequestID) (state.Status, string) {
	w.Helper()
	view, release := w.state.State.LocalView()
	defer release()
	p, err := view.Pin(clustertest.Operator, id)
	if err != nil {
		w.Fatal(err)
	}
	return p.Status, p.Detail
}

func (w *world) wantPhase(n int, want state.Phase) {
	w.Helper()
	root := w.root(n)
	if c := root.Copy(self); c == nil || c.Phase != want {
		w.Fatalf("root %d: copy %+v, want %s", n, c, want)
	}
}

func (w *world) wantSealed(n int, want bool) {
	w.Helper()
	if o, ok := w.store.get(Reference(key(n))); o.sealed != want {
		w.Fatalf("root %d: reference %+v (there: %t), want sealed %t", n, o, ok, want)
	}
}

func (w *world) wantNothingHere(n int) {
	w.Helper()
	if o, ok := w.store.get(Reference(key(n))); ok {
		w.Fatalf("root %d: blocks are still here: %+v", n, o)
	}
}

// wantIdle checks that the tracker remembers nothing once all is done.
func (w *world) wantIdle() {
	w.Helper()
	if q := w.tracker.Queue(); q != 0 {
		w.Fatalf("queue %d, want 0", q)
	}
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, limits Limits, fn func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fn(newWorld(t, limits))
	})
}
