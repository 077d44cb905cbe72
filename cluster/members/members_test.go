package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// world is membership as node "a" sees it, over the real state machine.
type world struct {
	*Members
	state      *clustertest.State
	now        time.Time
	agreed     state.Millis // 0: nobody knows
	loads      map[state.NodeID]Load
	votes      []state.NodeID
	leaderless bool
	asked      func() // when it is asked who votes; nil: nothing
}

// consensus is the state with what only Raft knows.
type consensus struct {
	*clustertest.State
	world *world
}

func (c consensus) Leader() (state.NodeID, bool) { return "a", !c.world.leaderless }
func (c consensus) Roles() map[state.NodeID]string {
	roles := map[state.NodeID]string{"a": "nonvoter", "b": "nonvoter", "c": "nonvoter"}
	if c.world.asked != nil {
		c.world.asked()
	}
	for _, id := range c.world.votes {
		roles[id] = "voter"
	}
	return roles
}
func (consensus) Applied() uint64 { return 7 }

func (w *world) Load(id state.NodeID) (Load, bool) {
	l, ok := w.loads[id]
	if !ok {
		l.State = "suspect"
	}
	return l, ok
}

func newWorld(t *testing.T, ids ...state.NodeID) *world {
	t.Helper()
	nodes := clustertest.Members(ids...)
	w := &world{state: clustertest.New(t, clustertest.Setup{Nodes: nodes, WriteCopies: 1}), now: time.UnixMilli(1_000_000), loads: map[state.NodeID]Load{}, votes: []state.NodeID{"a", "b"}}
	for _, id := range ids {
		w.loads[id] = Load{State: "alive", Connected: true}
	}
	var err error
	w.Members, err = New(Options{
		Self: nodes[0], State: consensus{w.state, w}, Gossip: w, Secret: []byte("the secret of the cluster"),
		JoinID: func(secret []byte) (string, error) { return "join:" + string(secret), nil },
		Now:    func() time.Time { return w.now }, Logger: slog.New(slog.DiscardHandler),
		Agreed: func() (early, late state.Millis, ok bool) { return w.agreed, w.agreed, w.agreed > 0 },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) refresh(t *testing.T) {
	t.Helper()
	if err := w.Refresh(); err != nil {
		t.Fatal(err)
	}
}

// A removed member is listed no more at once, and is admitted until LeaveGrace after this node learned of it.
func TestARemovedMemberIsCutOffAfterAGrace(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	if err := w.Remove(t.Context(), "c", false); err != nil {
		t.Fatal(err)
	}
	w.refresh(t)
	if !w.Is("c") || len(w.Nodes()) != 2 {
		t.Errorf("right after: admitted %t, %d members", w.Is("c"), len(w.Nodes()))
	}
	w.now = w.now.Add(LeaveGrace / 2)
	w.refresh(t) // does not begin anew
	w.now = w.now.Add(LeaveGrace / 2)
	if w.Is("c") {
		t.Error("still admitted after the grace")
	}
	if !w.Is("a") || !w.Is("b") || w.Is("x") {
		t.Error("members are a and b")
	}
}

// A removed member is admitted while it is a voter, and is cut off LeaveGrace after it is none. Nobody else can
// lead before it has handed over.
func TestARemovedMemberThatVotesIsAdmittedUntilItDoesNot(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.votes = []state.NodeID{"c"}
	w.state.Apply(t, &state.RemoveNode{ID: "c"})
	for range 3 {
		w.refresh(t)
		w.now = w.now.Add(2 * LeaveGrace)
		if !w.Is("c") || len(w.Nodes()) != 2 {
			t.Fatalf("it votes: admitted %t, %d members", w.Is("c"), len(w.Nodes()))
		}
	}
	w.votes = []state.NodeID{"a"}
	w.refresh(t)
	if w.now = w.now.Add(LeaveGrace); w.Is("c") {
		t.Error("it is admitted still")
	}
}

// Members for which another node vouches are admitted until the local state has reached the index of its word.
func TestAMemberIsAdmittedByTheWordOfAnotherUntilTheStateIsAsNew(t *testing.T) {
	w := newWorld(t, "a", "b")
	view, release := w.state.LocalView()
	index := view.Index()
	release()
	w.Vouch(Membership{Members: clustertest.Members("x")})
	if w.Is("x") {
		t.Error("x is admitted, and nobody says until when")
	}
	w.Vouch(Membership{Members: clustertest.Members("a", "x", "y"), Index: index + 2})
	w.state.Apply(t, &state.JoinNode{Node: clustertest.Members("x")[0]})
	w.refresh(t)
	if !w.Is("x") || !w.Is("y") || w.Is("z") || len(w.Vouched()) != 3 {
		t.Errorf("by the word of another: %v", w.Vouched())
	}
	w.state.Apply(t, &state.JoinNode{Node: clustertest.Members("z")[0]})
	w.refresh(t)
	if !w.Is("x") || w.Is("y") || !w.Is("z") || len(w.Vouched()) != 0 {
		t.Error("members are a, b, x and z")
	}
}

// A removal is refused, also by force, if together with a simultaneous one it would leave no majority that
// answers.
func TestRemovingSeveralLeavesAMajority(t *testing.T) {
	for _, tc := range []struct {
		name  string
		force bool
		setup func(t *testing.T, w *world)
	}{
		{"after another", false, func(t *testing.T, w *world) { w.state.Apply(t, &state.RemoveNode{ID: "b"}) }},
		{"after another, by force", true, func(t *testing.T, w *world) { w.state.Apply(t, &state.RemoveNode{ID: "b"}) }},
		{"at the same moment", false, func(t *testing.T, w *world) {
			w.asked = func() { w.state.Apply(t, &state.RemoveNode{ID: "b"}) }
		}},
		{"at the same moment, by force", true, func(t *testing.T, w *world) {
			w.asked = func() { w.state.Apply(t, &state.RemoveNode{ID: "b"}) }
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "a", "b", "c", "d", "e", "f")
			w.votes = []state.NodeID{"a", "b", "c", "d", "e", "f"}
			w.loads["e"], w.loads["f"] = Load{State: "down"}, Load{State: "down"}
			tc.setup(t, w)
			if err := w.Remove(t.Context(), "c", tc.force); !errors.Is(err, state.ErrConflict) {
				t.Errorf("got %v, and of a, d, e and f two answer", err)
			}
		})
	}
}

// Without force, Remove refuses a member that does not answer or without which content is out of reach. It
// refuses every removal, also by force, that leaves no majority that answers.
func TestRemoving(t *testing.T) {
	for _, tc := range []struct {
		name  string
		id    state.NodeID
		force bool
		setup func(*world)
		want  error
	}{
		{"one that is alive", "b", false, nil, nil},
		{"a node that is not a member", "x", false, nil, state.ErrNotFound},
		{"a dead one", "b", false, func(w *world) { w.loads["b"] = Load{State: "down"} }, state.ErrConflict},
		{"one never heard of", "b", false, func(w *world) { delete(w.loads, "b") }, state.ErrConflict},
		{"one that was not heard of lately", "b", false, func(w *world) { w.loads["b"] = Load{State: "suspect"} }, state.ErrConflict},
		{"the only holder that answers", "b", false, func(w *world) {
			hold(t, w, "b", "c")
			w.loads["c"] = Load{State: "down"}
		}, state.ErrConflict},
		{"a holder, where another one is no member any more", "b", false, func(w *world) {
			hold(t, w, "b", "c")
			w.state.Apply(t, &state.RemoveNode{ID: "c"})
		}, state.ErrConflict},
		{"one without whom no majority answers", "b", false, func(w *world) {
			w.votes = []state.NodeID{"a", "b", "c"}
			w.loads["c"] = Load{State: "down"}
		}, state.ErrConflict},
		{"one without whom no majority answers, by force", "b", true, func(w *world) {
			w.votes = []state.NodeID{"a", "b", "c"}
			w.loads["c"] = Load{State: "down"}
		}, state.ErrConflict},
		{"one without whom no majority answers, where another has just died", "b", false, func(w *world) {
			w.votes = []state.NodeID{"a", "b", "c"}
			w.loads["c"] = Load{State: "alive"} // heard of a second ago, and its connections have ended
		}, state.ErrConflict},
		{"the same by force", "b", true, func(w *world) {
			w.votes = []state.NodeID{"a", "b", "c"}
			w.loads["c"] = Load{State: "alive"}
		}, state.ErrConflict},
		{"one without whom no majority answers, where another stops", "b", false, func(w *world) {
			w.votes = []state.NodeID{"a", "b", "c"}
			w.loads["c"] = Load{State: "alive", Connected: true, Ended: true}
		}, state.ErrConflict},
		{"one whose connection broke, without whom no majority answers, by force", "b", true, func(w *world) {
			w.votes = []state.NodeID{"a", "b", "c"}
			w.loads["b"], w.loads["c"] = Load{State: "alive"}, Load{State: "down"}
		}, state.ErrConflict},
		{"the only holder since another one has just died", "b", false, func(w *world) {
			hold(t, w, "b", "c")
			w.loads["c"] = Load{State: "alive"}
		}, state.ErrConflict},
		{"the dead one of a majority", "c", true, func(w *world) {
			w.votes = []state.NodeID{"a", "b", "c"}
			w.loads["c"] = Load{State: "down"}
		}, nil},
		{"the one that votes", "b", false, func(w *world) { w.votes = []state.NodeID{"b"} }, nil},
		{"the one that votes, while half of the others are down", "b", false, func(w *world) {
			w.votes = []state.NodeID{"b"}
			w.loads["c"] = Load{State: "down"}
		}, state.ErrConflict},
		{"a dead one by force", "b", true, func(w *world) { w.loads["b"] = Load{State: "down"} }, nil},
		{"the only holder of something", "b", false, func(w *world) { hold(t, w, "b") }, state.ErrConflict},
		{"the only holder of something by force", "b", true, func(w *world) { hold(t, w, "b") }, nil},
		{"one of two holders", "b", false, func(w *world) { hold(t, w, "a", "b") }, nil},
		{"one that alone holds something from the same moment on", "b", false, func(w *world) {
			w.asked = func() { hold(t, w, "b") }
		}, state.ErrConflict},
		{"one that holds something from the same moment on, as another does", "b", false, func(w *world) {
			w.asked = func() { hold(t, w, "a", "b") }
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "a", "b", "c")
			if tc.setup != nil {
				tc.setup(w)
			}
			if err := w.Remove(t.Context(), tc.id, tc.force); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			view, release := w.state.LocalView()
			defer release()
			if _, err := view.Node(tc.id); (err != nil) != (tc.want == nil || tc.id == "x") {
				t.Errorf("record afterwards: %v", err)
			}
		})
	}
}

// hold has the nodes report that they hold a root that somebody pinned.
func hold(t *testing.T, w *world, nodes ...state.NodeID) {
	t.Helper()
	const text = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
	w.state.Apply(t, &state.CreatePin{
		Pin: state.Pin{ID: "1", Account: clustertest.Operator, Created: 1, CID: text}, Nodes: []state.NodeID{"a", "b", "c"},
	})
	view, release := w.state.LocalView()
	defer release()
	err := view.Roots("", func(root state.Root) (bool, error) {
		for _, n := range nodes {
			w.state.Apply(t, &state.ReportCopies{Node: n, Items: []state.CopyReport{{Root: root.Key, Born: root.Born, Phase: state.Held, Size: 1, Blocks: 1}}})
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A ticket admits its joiner until it expires, and no ticket has a time to live out of bounds.
func TestATicketAdmitsUntilItEnds(t *testing.T) {
	w := newWorld(t, "a", "b")
	text, err := w.CreateTicket(t.Context(), time.Hour, func(b []byte) { copy(b, strings.Repeat("s", len(b))) })
	if err != nil {
		t.Fatal(err)
	}
	ticket, ok := ParseTicket(text + "\n")
	if !ok || ticket.Expires != state.MillisOf(w.now.Add(time.Hour)) || len(ticket.Addrs) != 2 || !strings.HasSuffix(ticket.Addrs[0], "/p2p/a") {
		t.Fatalf("ticket %q: %+v", text, ticket)
	}
	id := "join:" + string(ticket.Secret)
	w.refresh(t)
	if !w.MayJoin(id) || !w.MayJoin("join:the secret of the cluster") || w.MayJoin("join:a guess") {
		t.Error("the ticket and the cluster's secret admit, nothing else")
	}
	w.now = w.now.Add(time.Hour)
	if w.MayJoin(id) {
		t.Error("an expired ticket admits")
	}
	for _, ttl := range []time.Duration{0, MinTicketTTL - 1, MaxTicketTTL + 1} {
		if _, err := w.CreateTicket(t.Context(), ttl, func([]byte) {}); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("ttl %v: %v", ttl, err)
		}
	}
}

// The text for the log says why a peer is refused: a used or expired ticket, a removal, or a wrong secret. The
// peer itself is not told.
func TestWhoIsRefusedIsKnownToTheLog(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	ids := map[string]string{}
	for i, name := range []string{"used", "old", "swept"} {
		ttl := time.Duration(i+1) * time.Minute
		if name == "used" {
			ttl = time.Hour
		}
		text, err := w.CreateTicket(t.Context(), ttl, func(b []byte) { copy(b, strings.Repeat(name, len(b))) })
		if err != nil {
			t.Fatal(err)
		}
		ticket, _ := ParseTicket(text)
		ids[name] = "join:" + string(ticket.Secret)
	}
	w.refresh(t)
	node := clustertest.Members("d")[0]
	w.state.Apply(t, &state.JoinNode{Node: node, Ticket: state.NodeID(ids["used"]), At: state.MillisOf(w.now)})
	if err := w.Remove(t.Context(), "c", false); err != nil {
		t.Fatal(err)
	}
	w.refresh(t)
	w.now = w.now.Add(4 * time.Minute)
	check := func() {
		t.Helper()
		for id, want := range map[string]string{
			ids["used"]: "was used", ids["old"]: "expired at 1970-01-01T00:18:40Z", ids["swept"]: "expired at 1970-01-01T00:19:40Z",
			"c": "was removed", "join:a guess": "wrong secret",
		} {
			if got := w.WhyNot(id); !strings.Contains(got, want) {
				t.Errorf("%.12s: %q, want %q", id, got, want)
			}
		}
	}
	check()
	w.agreed = state.MillisOf(w.now)
	text, err := w.CreateTicket(t.Context(), time.Hour, func(b []byte) { copy(b, strings.Repeat("x", len(b))) }) // sweeps the expired ones
	if err != nil || text == "" {
		t.Fatal(err)
	}
	w.gate.Load().leaving["c"] = w.now.Add(LeaveGrace) // its grace begins anew
	w.refresh(t)
	check()
}

// A node remembers at least the tickets that ended last, and fewer than maxSpent more.
func TestWhatIsToldOfTicketsIsBounded(t *testing.T) {
	const each = 100
	g := &gate{tickets: map[string]state.Millis{}, spent: map[string]string{}}
	for round := range 3 * maxSpent / each {
		before := &gate{tickets: map[string]state.Millis{}, spent: g.spent}
		for i := range each {
			before.tickets[fmt.Sprint(round, "-", i)] = 1
		}
		g = &gate{tickets: map[string]state.Millis{}, spent: map[string]string{}}
		g.remember(before, 2)
		if n := len(g.spent); n < each || n >= maxSpent+each {
			t.Fatalf("round %d: %d tickets remembered", round, n)
		}
	}
}

// A ticket that is good by most clocks is kept by a node whose clock is ahead, and by one without an agreed
// time.
func TestOneWrongClockEndsNoTicket(t *testing.T) {
	w := newWorld(t, "a", "b")
	n := 0
	create := func(agreed time.Time) {
		t.Helper()
		n++
		if w.agreed = 0; !agreed.IsZero() {
			w.agreed = state.MillisOf(agreed)
		}
		if _, err := w.CreateTicket(t.Context(), time.Hour, func(b []byte) { copy(b, strings.Repeat(string(rune('a'+n)), len(b))) }); err != nil {
			t.Fatal(err)
		}
	}
	left := func(what string, want int) {
		t.Helper()
		view, release := w.state.LocalView()
		defer release()
		tickets, err := view.Tickets()
		if err != nil || len(tickets) != want {
			t.Errorf("%s: %d tickets, %v, want %d", what, len(tickets), err, want)
		}
	}
	begin := w.now
	create(begin)
	w.now = begin.Add(365 * 24 * time.Hour)
	create(begin.Add(time.Hour - time.Millisecond))
	left("through a clock that is a year ahead", 2)
	create(time.Time{})
	left("while nobody knows the time", 3)
	create(begin.Add(time.Hour))
	left("by most clocks", 3)
}

// dialled is one end of a pipe whose other end proved an identity.
type dialled struct {
	net.Conn
	id string
}

type identity string

func (identity) Network() string  { return "test" }
func (i identity) String() string { return string(i) }

func (d dialled) RemoteAddr() net.Addr { return identity(d.id) }

// join plays a joiner that proved an identity, and returns its answer.
func (w *world) join(t *testing.T, id string, node state.Node) (Joined, error) {
	t.Helper()
	server, client := net.Pipe()
	served := make(chan error, 1)
	w.now = time.Now() // deadlines of a connection are real
	go func() {
		err := w.serveJoin(context.Background(), dialled{server, id})
		_ = server.Close()
		served <- err
	}()
	joined, err := Join(client, time.Now().Add(time.Minute), node)
	if serveErr := <-served; serveErr != nil {
		t.Errorf("serve: %v", serveErr)
	}
	return joined, err
}

// A node that proves the cluster's secret joins, also a second time, and learns the members. One with an
// unknown ticket or with addresses that are not its own is rejected.
func TestJoining(t *testing.T) {
	w := newWorld(t, "a", "b")
	c := clustertest.Members("a", "b", "c")[2]
	bySecret := "join:the secret of the cluster"
	joined, err := w.join(t, bySecret, c)
	if err != nil || joined.ClusterID != "cluster" || string(joined.Secret) != "the secret of the cluster" || len(joined.Members) != 3 {
		t.Fatalf("joined %+v, %v", joined, err)
	}
	if _, err := w.join(t, bySecret, c); err != nil {
		t.Errorf("joining again: %v", err)
	}
	var refused []string
	w.opts.Refused = func(joiner, why string) { refused = append(refused, joiner+": "+why) }
	if _, err := w.join(t, "join:unknown", clustertest.Members("d")[0]); !errors.Is(err, state.ErrUnauthorized) {
		t.Errorf("a ticket that is none: %v", err)
	}
	if len(refused) != 1 || !strings.Contains(refused[0], "join:unknown: ") || !strings.Contains(refused[0], "spent, expired or unknown") {
		t.Errorf("the audit log is told of %q", refused)
	}
	for name, node := range map[string]state.Node{
		"no address":         {ID: "d"},
		"another's address":  {ID: "d", ClusterAddrs: []string{"/ip4/192.0.2.1/tcp/1/p2p/e"}},
		"an address too far": {ID: "d", ClusterAddrs: []string{"/ip4/192.0.2.1/tcp/1/p2p/d"}, Addrs: []string{"/ip4/192.0.2.1/tcp/1"}},
	} {
		if _, err := w.join(t, bySecret, node); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// ticketed returns a world of two members with an open ticket, which a peer id stands for.
func ticketed(t *testing.T) (w *world, id string) {
	t.Helper()
	w = newWorld(t, "a", "b")
	w.now = time.Now()
	text, err := w.CreateTicket(t.Context(), time.Hour, func(b []byte) { copy(b, strings.Repeat("s", len(b))) })
	if err != nil {
		t.Fatal(err)
	}
	ticket, ok := ParseTicket(text)
	if !ok {
		t.Fatalf("%s is no ticket", text)
	}
	w.refresh(t)
	return w, "join:" + string(ticket.Secret)
}

// A ticket admits the node that it let in, and no other, until this node has an answer or answerGrace is over.
// The member that let it in lost the majority in that moment, so it could not tell.
func TestWhoWasLetInAndNotToldAsksAgain(t *testing.T) {
	const other = "join:another"
	for name, wait := range map[string]time.Duration{"at once": 0, "too late": answerGrace} {
		t.Run(name, func(t *testing.T) {
			w, id := ticketed(t)
			nodes := clustertest.Members("a", "b", "c", "d")
			w.state.Before(func(state.Command) { w.state.Fail(state.ErrUnavailable) })
			if _, err := w.join(t, id, nodes[2]); !errors.Is(err, state.ErrUnavailable) {
				t.Fatalf("without a majority: %v", err)
			}
			w.state.Before(nil)
			if _, err := w.join(t, id, nodes[2]); !errors.Is(err, state.ErrUnavailable) {
				t.Fatalf("still without one: %v", err)
			}
			w.state.Fail(nil)
			w.refresh(t)
			if view, release := w.state.LocalView(); true {
				if _, err := view.Node("c"); err != nil {
					t.Fatal(err)
				}
				release()
			}
			if wait > 0 {
				if w.now = w.now.Add(wait); w.MayJoin(id) {
					t.Error("the ticket admits still")
				}
				return
			}
			if !w.MayJoin(id) || w.MayJoin(other) {
				t.Error("the ticket does not admit whom it let in, or another one does")
			}
			if _, err := w.join(t, id, nodes[3]); !errors.Is(err, state.ErrUnauthorized) {
				t.Errorf("another node: %v", err)
			}
			if joined, err := w.join(t, id, nodes[2]); err != nil || len(joined.Secret) == 0 || len(joined.Members) != 3 {
				t.Errorf("it asked again: %+v, %v", joined, err)
			}
			if w.MayJoin(id) {
				t.Error("the ticket admits after the answer")
			}
			if _, err := w.join(t, id, nodes[2]); !errors.Is(err, state.ErrUnauthorized) {
				t.Errorf("after the answer: %v", err)
			}
		})
	}
}

// A ticket admits its node again if the answer was lost on its way, and not after an answer has come. Writing
// the answer succeeds, into a buffer.
func TestWhoseAnswerWasLostOnItsWayAsksAgain(t *testing.T) {
	w, id := ticketed(t)
	node := clustertest.Members("a", "b", "c")[2]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	w.now = time.Now()
	served := make(chan error, 1)
	go func() { served <- w.serveJoin(context.Background(), dialled{server, id}) }()
	request := joinRequest{Node: joinNode{ID: "c", Name: "c", ClusterAddrs: node.ClusterAddrs, Level: node.FeatureLevel}}
	if err := json.NewEncoder(client).Encode(request); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err != nil { // it has been sent, and the rest is lost
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	_ = server.Close()
	w.refresh(t)
	if !w.MayJoin(id) {
		t.Error("who was let in and lost the answer is cut off")
	}
	if joined, err := w.join(t, id, node); err != nil || len(joined.Secret) == 0 {
		t.Errorf("it asked again: %v", err)
	}
	if w.MayJoin(id) {
		t.Error("the ticket admits after the answer")
	}
}

// A ticket that two nodes show at once lets in one. The one that asked first comes second.
func TestATicketLetsInOneOfTwo(t *testing.T) {
	w, id := ticketed(t)
	nodes := clustertest.Members("a", "b", "c", "d")
	w.state.Before(func(state.Command) {
		if _, err := w.join(t, id, nodes[3]); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		if _, err := w.join(t, id, nodes[2]); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("the second: %v", err)
		}
		w.state.Before(nil)
		w.refresh(t)
		if w.MayJoin(id) {
			t.Error("the ticket admits still")
		}
	}
}

// A peer that knows the secret is told whether a node is a member, but not by a node without a majority.
func TestMembershipIsTold(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.now = time.Now()
	ask := func(id state.NodeID) (m Membership, err, served error) {
		server, client := net.Pipe()
		done := make(chan error, 1)
		go func() {
			err := w.serveJoin(context.Background(), dialled{server, "join:the secret of the cluster"})
			done <- errors.Join(err, server.Close())
		}()
		m, err = AskMembership(client, time.Now().Add(time.Minute), id)
		return m, err, <-done
	}
	for id, members := range map[state.NodeID]int{"a": 2, "b": 2, "c": 0} {
		m, err, served := ask(id)
		if m.ClusterID != "cluster" || m.Member != (members > 0) || len(m.Members) != members || err != nil || served != nil {
			t.Errorf("%s: %+v, %v, %v", id, m, err, served)
		}
	}
	w.state.Fail(state.ErrUnavailable)
	if _, err, served := ask("c"); err == nil || !errors.Is(served, state.ErrUnavailable) {
		t.Errorf("without a majority: %v, %v", err, served)
	}
}

// A node that ends does not wait for a joiner that says nothing.
func TestASilentJoinerKeepsNoNodeFromEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.now = time.Now()
		server, client := net.Pipe()
		ctx, end := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- w.serveJoin(ctx, dialled{server, "join:the secret of the cluster"}) }()
		synctest.Wait()
		ended := time.Now()
		end()
		if err := <-served; err == nil {
			t.Error("a joiner that said nothing was served")
		}
		if took := time.Since(ended); took > 0 {
			t.Errorf("it was waited for %s", took)
		}
		if err := errors.Join(server.Close(), client.Close()); err != nil {
			t.Error(err)
		}
	})
}

// The status shows every member with its role, state and release, also one that was never heard of.
func TestStatusShowsEveryMember(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	hold(t, w, "a", "b")
	w.loads["b"] = Load{State: "down", UsedBytes: 5, FreeBytes: 6, Queue: 7, Version: "9"}
	delete(w.loads, "c")
	s, err := w.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.ClusterID != "cluster" || s.Leader != "a" || s.Index != 7 || s.Node.ID != "a" || s.Pins[state.Pinned] != 1 || s.UnderReplicated != 1 {
		t.Errorf("status %+v", s)
	}
	var got []string
	for _, p := range s.Peers {
		got = append(got, strings.Join([]string{string(p.ID), p.Role, p.Load.State, p.Load.Version}, " "))
	}
	if want := "a voter alive 0.0.0,b voter down 9,c nonvoter suspect 0.0.0"; strings.Join(got, ",") != want {
		t.Errorf("peers %v, want %s", got, want)
	}
}

// A root is under-replicated while one of its members is away or after that member was removed. A node that
// answers is never away itself.
func TestCopiesOfAMemberThatIsAwayAreMissed(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	hold(t, w, "a", "b", "c")
	missed := func() uint64 {
		t.Helper()
		s, err := w.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.UnderReplicated
	}
	if n := missed(); n != 0 {
		t.Errorf("%d roots are short of holders while everybody is there", n)
	}
	w.loads["c"] = Load{State: "suspect", Away: true}
	if n := missed(); n != 1 {
		t.Errorf("%d roots are short of holders while c is away, want 1", n)
	}
	w.loads["a"] = Load{State: "down", Away: true} // who answers is there, whatever is heard of it
	w.loads["c"] = Load{State: "alive"}
	if n := missed(); n != 0 {
		t.Errorf("%d roots are short of holders after c is back", n)
	}
	w.state.Apply(t, &state.JoinNode{Node: clustertest.Members("d")[0]})
	if err := w.Remove(t.Context(), "c", true); err != nil {
		t.Fatal(err)
	}
	if n := missed(); n != 1 {
		t.Errorf("%d roots are short of holders after c was removed, want 1", n)
	}
}

// The status names both hashes for the member whose state differs from that of the others, and only for it.
func TestStatusSaysWhyAMemberIsInQuarantine(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	do := func(cmd state.Command) {
		t.Helper()
		if _, err := w.state.Propose(t.Context(), cmd); err != nil {
			t.Fatal(err)
		}
	}
	do(&state.RaiseLevel{FeatureLevel: 1})
	for _, id := range []state.NodeID{"a", "b", "c"} {
		do(&state.UpdateNode{Node: state.Node{ID: id, FeatureLevel: 1, Store: "s", Votes: true}})
	}
	do(&state.CheckState{At: 1})
	view, release := w.state.LocalView()
	defer release()
	checks, err := view.Checks()
	if err != nil || len(checks) != 1 {
		t.Fatal(checks, err)
	}
	for _, id := range []state.NodeID{"a", "b", "c"} {
		hash := state.Hash{0xaa}
		if id == "b" {
			hash = state.Hash{0xbb}
		}
		do(&state.ReportHash{Node: id, Check: checks[0].Index, Hash: hash})
	}
	s, err := w.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Peers {
		if in := strings.Contains(p.Quarantine, "bb0000000000, not aa0000000000"); in != (p.ID == "b") || !in && p.Quarantine != "" {
			t.Errorf("%s: %q", p.ID, p.Quarantine)
		}
	}
}

func FuzzParseTicket(f *testing.F) {
	f.Add(Ticket{Secret: []byte("0123456789abcdef"), Addrs: []string{"/ip4/192.0.2.1/tcp/9096/p2p/a"}}.String())
	f.Add(ticketPrefix)
	f.Add(ticketPrefix + "e30")
	f.Add("/ip4/192.0.2.1/tcp/9096/p2p/a")
	f.Fuzz(func(t *testing.T, text string) {
		ticket, ok := ParseTicket(text)
		if !ok {
			return
		}
		if again, ok := ParseTicket(ticket.String()); !ok || string(again.Secret) != string(ticket.Secret) || len(again.Addrs) != len(ticket.Addrs) {
			t.Errorf("%q reads as %+v, which is written and read as %+v", text, ticket, again)
		}
	})
}

// The answer to a joiner has all members of the largest cluster, with addresses of the greatest length.
func TestTheLargestClusterTellsWhoIsInIt(t *testing.T) {
	long := strings.Repeat("a", state.MaxAddrLen)
	addrs := slices.Repeat([]string{long}, state.MaxAddrs)
	var nodes []state.Node
	for i := range state.MaxNodes {
		nodes = append(nodes, state.Node{ID: state.NodeID(fmt.Sprintf("%0*d", state.MaxIDLen, i)), Name: long[:state.MaxIDLen], Addrs: addrs, ClusterAddrs: addrs})
	}
	near, far := net.Pipe()
	go func() {
		var req joinRequest
		if err := readMessage(far, maxJoinRequest, &req); err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(far).Encode(joinReply{ClusterID: "cluster", Secret: make([]byte, 32), Members: joinNodes(nodes)})
		_ = far.Close()
	}()
	joined, err := Join(near, time.Now().Add(10*joinTimeout), state.Node{ID: "x"}) // the race detector is slow
	if err != nil || len(joined.Members) != len(nodes) {
		t.Errorf("it knows %d members, %v", len(joined.Members), err)
	}
	_ = near.Close()
}
