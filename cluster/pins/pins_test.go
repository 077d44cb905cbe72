package pins

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

const (
	alice state.AccountID = "alice"
	bob   state.AccountID = "bob"
)

// load is what gossip says: settable, and read by any goroutine.
type load struct {
	mu    sync.Mutex
	nodes []placement.Node
}

func (l *load) Candidates() []placement.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.nodes)
}

func (l *load) set(ids ...state.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes = nil
	for _, id := range ids {
		l.nodes = append(l.nodes, placement.Node{ID: id, Free: 1 << 40, Alive: true})
	}
}

func (l *load) lose(ids ...state.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.nodes {
		l.nodes[i].Alive = l.nodes[i].Alive && !slices.Contains(ids, l.nodes[i].ID)
	}
}

// world is the use case over a state machine, with two accounts.
type world struct {
	*Pins
	state *clustertest.State
	load  *load
}

func newWorld(tb testing.TB, setup clustertest.Setup) *world {
	tb.Helper()
	if setup.Nodes == nil {
		setup.Nodes = clustertest.Members("n1", "n2", "n3", "n4", "n5")
	}
	st := clustertest.New(tb, setup)
	for _, a := range []state.AccountID{alice, bob} {
		st.Apply(tb, &state.CreateAccount{Account: state.Account{ID: a, Email: string(a) + "@example.org", Created: 1}})
	}
	l := new(load)
	for _, n := range setup.Nodes {
		l.nodes = append(l.nodes, placement.Node{ID: n.ID, Free: 1 << 40, Alive: true})
	}
	now := time.UnixMilli(1_800_000_000_000)
	return &world{Pins: New(Options{State: st, Nodes: l, Now: func() time.Time { return now }}), state: st, load: l}
}

// report says that a node's copy of content is in a phase.
func (w *world) report(tb testing.TB, text string, node state.NodeID, phase state.Phase, size uint64, reason string) {
	tb.Helper()
	root := w.root(tb, text)
	w.state.Apply(tb, &state.ReportCopies{Node: node, Items: []state.CopyReport{{
		Root: root.Key, Born: root.Born, Phase: phase, Size: size, Blocks: 1, Reason: reason,
	}}})
}

func (w *world) root(tb testing.TB, text string) *state.Root {
	tb.Helper()
	c, err := cid.Decode(text)
	if err != nil {
		tb.Fatal(err)
	}
	view, release := w.state.LocalView()
	defer release()
	root, err := view.Root(state.RootOf(c))
	if err != nil {
		tb.Fatal(err)
	}
	return &root
}

func (w *world) create(tb testing.TB, account state.AccountID, text string) Record {
	tb.Helper()
	r, err := w.Create(tb.Context(), account, Request{CID: text})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func (w *world) get(tb testing.TB, account state.AccountID, id state.RequestID) Record {
	tb.Helper()
	r, err := w.Get(tb.Context(), account, id)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// raw returns the CIDv1 of a raw block of some text.
func raw(text string) string {
	sum := sha256.Sum256([]byte(text))
	mh, err := multihash.Encode(sum[:], multihash.SHA2_256)
	if err != nil {
		panic(err)
	}
	return cid.NewCidV1(cid.Raw, mh).String()
}

const v0 = "QmdfTbBqBPQ7VNxZEYEj14VmRuZBkqFbiwReogJgS1zR1n"

// Create answers queued with a UUID, the delegates of the three allocated nodes and the fields that were given.
func TestCreateAnswersQueuedWithTheAllocation(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	in := Request{
		CID: raw("a"), Given: state.GivenName | state.GivenMeta, Origins: []string{"/ip4/203.0.113.1/tcp/4001/p2p/" + v0},
	}
	got, err := w.Create(t.Context(), alice, in)
	if err != nil {
		t.Fatal(err)
	}
	if got.Status != state.Queued || got.CID != in.CID || got.Account != alice || got.Created != 1_800_000_000_000 ||
		got.Given != state.GivenName|state.GivenMeta|state.GivenOrigins || !slices.Equal(got.Origins, in.Origins) {
		t.Errorf("got %+v", got)
	}
	if len(got.ID) != 36 {
		t.Errorf("id %q is no UUID", got.ID)
	}
	root := w.root(t, in.CID)
	var want []string
	for _, n := range root.Nodes() {
		want = append(want, fmt.Sprintf("/ip4/198.51.100.%s/tcp/4001/p2p/%s", n[1:], n))
	}
	if len(want) != 3 || !slices.Equal(got.Delegates, want) {
		t.Errorf("delegates %v, want %v", got.Delegates, want)
	}
	if got.Info[InfoDetails] != "waiting for 3 nodes" {
		t.Errorf("info %v", got.Info)
	}
	if again := w.get(t, alice, got.ID); again.CID != got.CID || again.Created != got.Created || again.Status != state.Queued {
		t.Errorf("read after write: %+v", again)
	}
}

// Create of content that is kept answers queued with its size and delegates, and the pin is pinned without a new
// placement.
func TestCreateOfContentThatIsHere(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	first := w.create(t, alice, raw("a"))
	nodes := w.root(t, raw("a")).Nodes()
	for _, n := range nodes {
		w.report(t, raw("a"), n, state.Held, 7, "")
	}
	w.load.set() // whatever placement would say now: the root stays
	for _, account := range []state.AccountID{alice, bob} {
		second := w.create(t, account, raw("a"))
		if second.Status != state.Queued {
			t.Errorf("the answer says %s, want queued", second.Status)
		}
		if second.ID == first.ID || !slices.Equal(second.Delegates, first.Delegates) || second.Info[InfoSize] != "7" {
			t.Errorf("got %+v", second)
		}
		if now := w.get(t, account, second.ID); now.Status != state.Pinned {
			t.Errorf("it is %s, want pinned", now.Status)
		}
	}
	if root := w.root(t, raw("a")); root.Refs != 3 || !slices.Equal(root.Nodes(), nodes) {
		t.Errorf("root %+v", root)
	}
}

// Each pin of an account has a later creation time than the one before, although the clock stands still.
func TestCreatedIsUniqueInAnAccount(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	seen := map[state.Millis]bool{}
	var last state.Millis
	for range 50 {
		r := w.create(t, alice, raw("a")) // the clock stands still
		if seen[r.Created] || r.Created <= last {
			t.Fatalf("created %d again or earlier than %d", r.Created, last)
		}
		seen[r.Created], last = true, r.Created
	}
}

// Create for an account that does not exist fails with ErrUnauthorized.
func TestAnAccountThatIsGone(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	if _, err := w.Create(t.Context(), "nobody", Request{CID: v0}); !errors.Is(err, state.ErrUnauthorized) {
		t.Errorf("got %v", err)
	}
}

// New content is placed on members that were heard of, or on any if the node has heard of nobody.
func TestPlacementPrefersLiveMembers(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	w.load.set("n2", "n4", "n5", "unknown") // n1 and n3 were not heard of
	w.create(t, alice, v0)
	if got := w.root(t, v0).Nodes(); !slices.Equal(got, []state.NodeID{"n2", "n4", "n5"}) {
		t.Errorf("kept on %v", got)
	}
	w.load.set() // a node that has just started has heard of nobody
	w.create(t, alice, raw("b"))
	if got := w.root(t, raw("b")).Nodes(); len(got) != 3 {
		t.Errorf("kept on %v", got)
	}
}

// leave makes the nodes of a command leave the cluster before it is applied.
func (w *world) leave(tb testing.TB, nodes []state.NodeID) {
	for i, n := range nodes {
		id := state.NodeID(fmt.Sprintf("new-%s-%d", n, i))
		w.state.Apply(tb, &state.JoinNode{Node: state.Node{ID: id}, At: 2}, &state.RemoveNode{ID: n})
	}
}

// A pin whose nodes leave before its commit is placed again under the same id, and fails with ErrUnavailable after
// maxAttempts.
func TestNodesThatLeaveBetweenPlacementAndCommit(t *testing.T) {
	setup := clustertest.Setup{Nodes: clustertest.Members("n1", "n2"), Replication: 1}
	for _, tc := range []struct {
		name  string
		times int
		want  error
	}{
		{"once: placed again", 1, nil},
		{"always: given up", 100, state.ErrUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, setup)
			seen := map[state.RequestID]bool{}
			calls := 0
			w.state.Before(func(cmd state.Command) {
				c := cmd.(*state.CreatePin)
				seen[c.Pin.ID] = true
				if calls++; calls <= tc.times {
					w.leave(t, c.Nodes)
				}
			})
			r, err := w.Create(t.Context(), alice, Request{CID: v0})
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if len(seen) != 1 || calls != min(tc.times+1, maxAttempts) {
				t.Errorf("%d attempts under %d ids", calls, len(seen))
			}
			if err == nil && len(r.Delegates) != 1 {
				t.Errorf("delegates %v", r.Delegates)
			}
		})
	}
}

// Replace makes a new pin on the nodes of the old one, and the old pin does not exist any more.
func TestReplace(t *testing.T) {
	w := newWorld(t, clustertest.Setup{Nodes: clustertest.Members("n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9")})
	for i := range 20 { // different roots would be placed differently
		old := w.create(t, alice, raw(fmt.Sprint("old", i)))
		was := w.root(t, raw(fmt.Sprint("old", i))).Nodes()
		got, err := w.Replace(t.Context(), alice, old.ID, Request{CID: raw(fmt.Sprint("new", i)), Name: "n"})
		if err != nil {
			t.Fatal(err)
		}
		if got.ID == old.ID || got.Status != state.Queued || got.Name != "n" || !slices.Equal(got.Delegates, old.Delegates) {
			t.Fatalf("got %+v", got)
		}
		if now := w.root(t, raw(fmt.Sprint("new", i))).Nodes(); !slices.Equal(now, was) {
			t.Fatalf("the new root is on %v, shared blocks are on %v", now, was)
		}
		if _, err := w.Get(t.Context(), alice, old.ID); !errors.Is(err, state.ErrNotFound) {
			t.Fatalf("the old pin: %v", err)
		}
	}
}

// A replacement with the same content keeps the root with its copies, and is pinned.
func TestReplaceBySameContentFetchesNothing(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	old := w.create(t, alice, v0)
	for _, n := range w.root(t, v0).Nodes() {
		w.report(t, v0, n, state.Held, 7, "")
	}
	born := w.root(t, v0).Born
	got, err := w.Replace(t.Context(), alice, old.ID, Request{CID: v0})
	if err != nil {
		t.Fatal(err)
	}
	if root := w.root(t, v0); root.Born != born || root.Refs != 1 || root.In(state.Held) != 3 {
		t.Errorf("root %+v", root)
	}
	if now := w.get(t, alice, got.ID); now.Status != state.Pinned {
		t.Errorf("the new pin is %s", now.Status)
	}
}

// A replacement that fails for any reason leaves the old pin and makes no other.
func TestReplaceKeepsTheOldPinOnAnyError(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	old := w.create(t, alice, v0)
	for _, tc := range []struct {
		name    string
		account state.AccountID
		old     state.RequestID
		in      Request
		fail    error
		want    error
	}{
		{"bad cid", alice, old.ID, Request{CID: "nope"}, nil, state.ErrInvalid},
		{"bad request before unknown id", alice, "none", Request{CID: ""}, nil, state.ErrInvalid},
		{"unknown id", alice, "none", Request{CID: raw("n")}, nil, state.ErrNotFound},
		{"empty id", alice, "", Request{CID: raw("n")}, nil, state.ErrNotFound},
		{"long id", alice, state.RequestID(strings.Repeat("x", 129)), Request{CID: raw("n")}, nil, state.ErrNotFound},
		{"another account's", bob, old.ID, Request{CID: raw("n")}, nil, state.ErrNotFound},
		{"no majority", alice, old.ID, Request{CID: raw("n")}, state.ErrUnavailable, state.ErrUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.state.Fail(tc.fail)
			_, err := w.Replace(t.Context(), tc.account, tc.old, tc.in)
			w.state.Fail(nil)
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if got := w.get(t, alice, old.ID); got.CID != v0 {
				t.Errorf("the old pin is %+v", got)
			}
			if total, _, err := w.List(t.Context(), tc.account, state.PinQuery{}); err != nil || total > 1 {
				t.Errorf("%d pins, %v", total, err)
			}
		})
	}
}

// Only the owner deletes a pin, once, and every other id gets the same answer as an unknown one.
func TestDelete(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	pin := w.create(t, alice, v0)
	for _, tc := range []struct {
		name    string
		account state.AccountID
		id      state.RequestID
		want    error
	}{
		{"another account's", bob, pin.ID, state.ErrNotFound},
		{"unknown", alice, "none", state.ErrNotFound},
		{"empty", alice, "", state.ErrNotFound},
		{"long", alice, state.RequestID(strings.Repeat("x", 10_000)), state.ErrNotFound},
		{"own", alice, pin.ID, nil},
		{"twice", alice, pin.ID, state.ErrNotFound},
	} {
		err := w.Delete(t.Context(), tc.account, tc.id)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, err, tc.want)
		}
		var coded *state.Error
		if err != nil && (!errors.As(err, &coded) || coded.Detail != "there is no such pin request") {
			t.Errorf("%s: %q tells more than that there is none", tc.name, err)
		}
	}
	if total, _, err := w.List(t.Context(), alice, state.PinQuery{}); err != nil || total != 0 {
		t.Errorf("%d pins, %v", total, err)
	}
}

// An account gets the answer for an unknown id for another account's pin, and does not list it.
func TestNothingCrossesAccounts(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	pin := w.create(t, alice, v0)
	_, other := w.Get(t.Context(), bob, pin.ID)
	_, unknown := w.Get(t.Context(), bob, "00000000-0000-0000-0000-000000000000")
	if other == nil || unknown == nil || other.Error() != unknown.Error() || !errors.Is(other, state.ErrNotFound) {
		t.Errorf("another's pin answers %v, an unknown one %v", other, unknown)
	}
	if total, rows, err := w.List(t.Context(), bob, state.PinQuery{Limit: 10}); err != nil || total != 0 || len(rows) != 0 || rows == nil {
		t.Errorf("bob lists %d %v %v", total, rows, err)
	}
}

// Create, Get, List and Delete fail with ErrUnavailable without a majority.
func TestNoMajorityIsUnavailable(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	pin := w.create(t, alice, v0)
	w.state.Fail(state.ErrUnavailable)
	_, create := w.Create(t.Context(), alice, Request{CID: v0})
	_, get := w.Get(t.Context(), alice, pin.ID)
	_, _, list := w.List(t.Context(), alice, state.PinQuery{Limit: 1})
	for name, err := range map[string]error{"create": create, "get": get, "list": list, "delete": w.Delete(t.Context(), alice, pin.ID)} {
		if !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The status and the info of a pin say how many nodes keep and fetch it, its size, and the last errors, in Get and in
// List.
func TestInfoReportsTheProgressOfAPin(t *testing.T) {
	type news struct {
		node   int // of the allocation
		phase  state.Phase
		reason string
	}
	for _, tc := range []struct {
		name   string
		news   []news
		status state.Status
		want   map[string]string
	}{
		{"told", nil, state.Queued, map[string]string{InfoDetails: "waiting for 3 nodes"}},
		{"one fetches", []news{{0, state.Fetching, ""}}, state.Pinning, map[string]string{InfoDetails: "fetching on 1 of 3 nodes"}},
		{
			"between attempts",
			[]news{{0, state.Fetching, ""}, {1, state.Fetching, "no provider"}},
			state.Pinning,
			map[string]string{InfoDetails: "fetching on 2 of 3 nodes; last error of node n2: no provider"},
		},
		{
			"one holds it",
			[]news{{0, state.Held, ""}, {1, state.Fetching, ""}},
			state.Pinning,
			map[string]string{InfoDetails: "kept on 1 of 3 nodes, fetching on 1", InfoSize: "4096"},
		},
		{
			"one holds it, the others wait",
			[]news{{0, state.Held, ""}, {1, state.Assigned, "out of space"}},
			state.Pinning,
			map[string]string{InfoDetails: "kept on 1 of 3 nodes; last error of node n2: out of space", InfoSize: "4096"},
		},
		{
			"enough hold it",
			[]news{{0, state.Held, ""}, {1, state.Held, ""}},
			state.Pinned,
			map[string]string{InfoDetails: "kept on 2 of 3 nodes", InfoSize: "4096"},
		},
		{
			"all hold it",
			[]news{{0, state.Held, ""}, {1, state.Held, ""}, {2, state.Held, ""}},
			state.Pinned,
			map[string]string{InfoSize: "4096"},
		},
		{
			"all gave up",
			[]news{{0, state.GaveUp, "nobody has it"}, {1, state.GaveUp, "timed out"}, {2, state.GaveUp, "nobody has it"}},
			state.Failed,
			map[string]string{InfoDetails: "nodes n1, n3: nobody has it; node n2: timed out"},
		},
		{
			"all gave up without a word",
			[]news{{0, state.GaveUp, ""}, {1, state.GaveUp, ""}, {2, state.GaveUp, ""}},
			state.Failed,
			map[string]string{InfoDetails: "the content could not be fetched"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, clustertest.Setup{})
			pin := w.create(t, alice, v0)
			nodes := w.root(t, v0).Nodes()
			for _, n := range tc.news {
				w.report(t, v0, nodes[n.node], n.phase, 4096, n.reason)
			}
			got := w.get(t, alice, pin.ID)
			if got.Status != tc.status || !maps.Equal(got.Info, tc.want) {
				t.Errorf("%s %v, want %s %v", got.Status, got.Info, tc.status, tc.want)
			}
			_, rows, err := w.List(t.Context(), alice, state.PinQuery{Limit: 1})
			if err != nil || len(rows) != 1 || !maps.Equal(rows[0].Info, tc.want) || !slices.Equal(rows[0].Delegates, got.Delegates) {
				t.Errorf("the list says %+v, %v", rows, err)
			}
			if len(got.Delegates) == 0 {
				t.Error("no delegate")
			}
		})
	}
}

// An account that waits for the same content as another does not learn which origins the other has named.
func TestAReasonTellsNobodyOfAnothersOrigins(t *testing.T) {
	w := newWorld(t, clustertest.Setup{Replication: 1})
	const origin = "/ip4/203.0.113.1/tcp/4001"
	mine, err := w.Create(t.Context(), alice, Request{CID: v0, Origins: []string{origin}})
	if err != nil {
		t.Fatal(err)
	}
	other := w.create(t, bob, v0)
	node := w.root(t, v0).Nodes()[0]
	reason := state.ReasonOf("nobody has it", []string{origin + ": no answer"})
	for _, tc := range []struct {
		phase  state.Phase
		before string
	}{
		{state.Fetching, "fetching on 1 of 1 node; last error of node n2: "},
		{state.GaveUp, "node n2: "},
	} {
		w.report(t, v0, node, tc.phase, 0, reason)
		if got := w.get(t, alice, mine.ID).Info[InfoDetails]; got != tc.before+"nobody has it; "+origin+": no answer" {
			t.Errorf("%s: who named the origin is told %q", tc.phase, got)
		}
		if got := w.get(t, bob, other.ID).Info[InfoDetails]; got != tc.before+"nobody has it" {
			t.Errorf("%s: another account is told %q", tc.phase, got)
		}
		_, rows, err := w.List(t.Context(), bob, state.PinQuery{Statuses: state.Statuses(), Limit: 1})
		if err != nil || len(rows) != 1 || rows[0].Info[InfoDetails] != tc.before+"nobody has it" {
			t.Errorf("%s: another account lists %v, %v", tc.phase, rows, err)
		}
	}
}

// A failed pin stays failed with its reason when another pin of the same content succeeds.
func TestAFailedPinKeepsItsReasonWhenTheContentIsPinnedAnew(t *testing.T) {
	w := newWorld(t, clustertest.Setup{Replication: 1})
	failed := w.create(t, alice, v0)
	w.report(t, v0, w.root(t, v0).Nodes()[0], state.GaveUp, 0, "nobody has it")
	again := w.create(t, alice, v0)
	w.report(t, v0, w.root(t, v0).Nodes()[0], state.Held, 5, "")
	if got := w.get(t, alice, failed.ID); got.Status != state.Failed || !maps.Equal(got.Info, map[string]string{InfoDetails: "node n2: nobody has it"}) {
		t.Errorf("the failed pin is %s %v", got.Status, got.Info)
	}
	if got := w.get(t, alice, again.ID); got.Status != state.Pinned || got.Info[InfoSize] != "5" {
		t.Errorf("the new one is %s %v", got.Status, got.Info)
	}
}

// List returns the newest pins first, with the rows of Get and the total of all, and Holders the nodes that keep
// each.
func TestListIsNewestFirstWithFullRows(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	const n = 120
	for i := range n {
		w.create(t, alice, raw(fmt.Sprint(i%7)))
	}
	for _, node := range w.root(t, raw("3")).Nodes() {
		w.report(t, raw("3"), node, state.Held, 9, "")
	}
	total, rows, err := w.List(t.Context(), alice, state.PinQuery{Limit: MaxList})
	if err != nil || total != n || len(rows) != n {
		t.Fatalf("%d of %d rows, %v", len(rows), total, err)
	}
	if !slices.IsSortedFunc(rows, func(a, b Record) int { return cmp.Compare(b.Created, a.Created) }) {
		t.Error("not newest first")
	}
	var names []string // those of the test are the ids
	for _, node := range w.root(t, raw("3")).Nodes() {
		names = append(names, string(node))
	}
	holders, err := w.Holders(rows)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rows {
		if held := r.CID == raw("3"); held && !slices.Equal(holders[i], names) || !held && len(holders[i]) > 0 {
			t.Fatalf("%s is held by %v", r.CID, holders[i])
		}
		if one := w.get(t, alice, r.ID); !slices.Equal(one.Delegates, r.Delegates) || !maps.Equal(one.Info, r.Info) || one.Status != r.Status {
			t.Fatalf("the list says %+v, the pin %+v", r, one)
		}
	}
	total, rows, err = w.List(t.Context(), alice, state.PinQuery{Limit: 5, Statuses: []state.Status{state.Pinned}})
	if err != nil || total != 17 || len(rows) != 5 || rows[0].CID != raw("3") {
		t.Errorf("%d of %d pinned rows, %v", len(rows), total, err)
	}
}

// List rejects a query out of its bounds with ErrInvalid, and accepts one at the bounds.
func TestListRefusesQueriesOutOfBounds(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	c := cid.MustParse(v0)
	for name, q := range map[string]state.PinQuery{
		"limit below zero": {Limit: -1},
		"limit":            {Limit: MaxList + 1},
		"11 cids":          {CIDs: slices.Repeat([]cid.Cid{c}, MaxListCIDs+1)},
		"undefined cid":    {CIDs: []cid.Cid{cid.Undef}},
		"status 0":         {Statuses: []state.Status{0}},
		"status 5":         {Statuses: []state.Status{state.Failed + 1}},
		"match":            {Name: "x", Match: state.IPartial + 1},
	} {
		if _, _, err := w.List(t.Context(), alice, q); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ten := state.PinQuery{Limit: MaxList, CIDs: slices.Repeat([]cid.Cid{c}, MaxListCIDs)}
	if _, _, err := w.List(t.Context(), alice, ten); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
}

// Eight callers that create, replace and delete pins at the same time leave the number of pins that they made.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			account := []state.AccountID{alice, bob}[i%2]
			for k := range 20 {
				r, err := w.Create(t.Context(), account, Request{CID: raw(fmt.Sprint(k))})
				if err != nil {
					t.Error(err)
					return
				}
				if k%2 == 0 {
					_, err = w.Replace(t.Context(), account, r.ID, Request{CID: raw(fmt.Sprint(k + 1))})
				} else {
					err = w.Delete(t.Context(), account, r.ID)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, account := range []state.AccountID{alice, bob} {
		if total, _, err := w.List(t.Context(), account, state.PinQuery{Limit: 1}); err != nil || total != 40 {
			t.Errorf("%s has %d pins, %v", account, total, err)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	w := newWorld(b, clustertest.Setup{})
	var texts []string
	for i := range 1000 {
		texts = append(texts, raw(fmt.Sprint(i)))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.create(b, alice, texts[i%len(texts)])
	}
}

func BenchmarkList(b *testing.B) {
	w := newWorld(b, clustertest.Setup{})
	for i := range 20_000 {
		w.create(b, alice, raw(fmt.Sprint(i)))
	}
	for _, limit := range []int{10, 1000} {
		b.Run(fmt.Sprint(limit), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, rows, err := w.List(b.Context(), alice, state.PinQuery{Limit: limit}); err != nil || len(rows) != limit {
					b.Fatal(len(rows), err)
				}
			}
		})
	}
}

// A read needs no majority if this node has applied the entry that the request has seen.
func TestAReadOfWhatIsAppliedHereNeedsNoMajority(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	pin := w.create(t, alice, raw("seen"))
	view, release := w.state.LocalView()
	index := view.Index()
	release()
	w.state.Fail(state.ErrUnavailable) // the cluster cannot be asked
	for _, tc := range []struct {
		name string
		seen uint64
		want error
	}{
		{"nothing is known", 0, state.ErrUnavailable},
		{"this node has it", index, nil},
		{"this node had it before", index - 1, nil},
		{"this node lags behind", index + 1, state.ErrUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := Seen(t.Context(), tc.seen)
			if _, err := w.Get(ctx, alice, pin.ID); !errors.Is(err, tc.want) {
				t.Errorf("Get: %v, want %v", err, tc.want)
			}
			if _, _, err := w.List(ctx, alice, state.PinQuery{Limit: 1}); !errors.Is(err, tc.want) {
				t.Errorf("List: %v, want %v", err, tc.want)
			}
		})
	}
}

// A node whose clock is a year ahead makes no second pin of a repeated request before most clocks say that a day is
// over.
func TestOneWrongClockMakesNoSecondPin(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	begin := state.MillisOf(w.now())
	agreed, known := begin, true
	ahead := New(Options{
		State: w.state, Nodes: w.load, Now: func() time.Time { return w.now().Add(365 * 24 * time.Hour) },
		Agreed: func() (early, late state.Millis, ok bool) {
			if !known {
				return 0, 0, false
			}
			return agreed, agreed, true
		},
	})
	ctx := Once(t.Context(), state.Hash{1})
	create := func(p *Pins) state.RequestID {
		t.Helper()
		r, err := p.Create(ctx, alice, Request{CID: v0})
		if err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	first := create(w.Pins)
	if create(ahead) != first {
		t.Error("a clock that is ahead made a second pin")
	}
	agreed, known = begin+state.OnceFor, false
	if create(ahead) != first {
		t.Error("a second pin was made while nobody knew the time")
	}
	if known = true; create(ahead) == first {
		t.Error("remembered for more than a day")
	}
}

// Ids of pins are UUIDs and greater than those before, so that rows of pins that are created one after the other
// are neighbours in the store.
func TestIDsOfPinsAreOrderedByTime(t *testing.T) {
	last := state.RequestID("")
	for range 1000 {
		id := newRequestID()
		if parsed, err := uuid.Parse(string(id)); err != nil || parsed.Version() != 7 || parsed.Variant() != uuid.RFC4122 || parsed.String() != string(id) {
			t.Fatalf("%q is no UUID of version 7: %v", id, err)
		}
		if id <= last {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
}
