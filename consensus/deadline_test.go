package consensus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/transport"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// heldNetwork is a node's network on which what it asks of others can be held up on the way,
// as packets are that a network sends again and again: none is lost, also of streams that
// have ended.
type heldNetwork struct {
	Network

	mu    sync.Mutex
	held  chan struct{} // closed when what is on its way arrives; nil: nothing is held
	kinds []uint8       // of the requests that were sent
}

func (h *heldNetwork) Dial(ctx context.Context, node, protocol string) (net.Conn, error) {
	conn, err := h.Network.Dial(ctx, node, protocol)
	if err != nil || protocol != transport.ForwardProtocol {
		return conn, err
	}
	return &heldConn{Conn: conn, network: h}, nil
}

// hold keeps what is sent from now on until the function that it returns is called.
func (h *heldNetwork) hold() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := make(chan struct{})
	h.held = held
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.held = nil
		close(held)
	}
}

func (h *heldNetwork) asked(kind uint8) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.kinds, kind)
}

// streamEnds is how much later than what was held the end of its stream arrives.
const streamEnds = 5 * time.Second

type heldConn struct {
	net.Conn
	network *heldNetwork
}

func (c *heldConn) Write(p []byte) (int, error) {
	const kindAt = 4 + 8 // behind the length and the id
	c.network.mu.Lock()
	held := c.network.held
	if len(p) > kindAt {
		c.network.kinds = append(c.network.kinds, p[kindAt])
	}
	c.network.mu.Unlock()
	if held == nil {
		return c.Conn.Write(p)
	}
	sent := slices.Clone(p)
	go func() {
		<-held
		_, _ = c.Conn.Write(sent) // the reader may be gone
	}()
	return len(p), nil
}

func (c *heldConn) Close() error {
	c.network.mu.Lock()
	held := c.network.held
	c.network.mu.Unlock()
	go func() { // behind what is on its way, and later still
		if held != nil {
			<-held
			<-time.After(streamEnds)
		}
		_ = c.Conn.Close()
	}()
	return c.SetReadDeadline(time.Unix(1, 0))
}

// withHeldFollower runs a test of three nodes, of which one that does not lead is on a heldNetwork.
func withHeldFollower(t *testing.T, level state.FeatureLevel, test func(t *testing.T, c *testCluster, n *testNode, net *heldNetwork)) {
	inVirtualTime(t, 0, Timings{}, func(t *testing.T, c *testCluster) {
		c.level = level
		slow := &heldNetwork{Network: c.network.of("n3")}
		for _, id := range []state.NodeID{"n1", "n2", "n3"} {
			n := c.empty(id)
			if id == "n3" {
				n.tune = func(o *Options) { o.Network = slow }
			}
			n.start()
			if id == "n1" {
				c.found(n)
				continue
			}
			c.join(id)
		}
		c.until("everybody has a role", func() bool { return c.know(3) && c.ready() == 3 })
		c.until("n3 does not lead", func() bool {
			leader := c.leader()
			return leader.id != "n3" || leader.HandOver(t.Context()) != nil
		})
		defer func() { <-time.After(2 * streamEnds) }()
		test(t, c, c.nodes["n3"], slow)
	})
}

// A leader does not commit a forwarded command that reaches it after its origin has answered the client.
func TestAForwardThatWasAnsweredTakesNoEffect(t *testing.T) {
	withHeldFollower(t, state.NewestFeatureLevel, func(t *testing.T, c *testCluster, n *testNode, slow *heldNetwork) {
		n.mustPin("before")
		for round := range 3 {
			release := slow.hold()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			late := fmt.Sprintf("late%d", round)
			_, err := n.Propose(ctx, pin(late))
			cancel()
			if !errors.Is(err, state.ErrUnavailable) || !strings.Contains(err.Error(), "not known to be done") {
				t.Fatalf("a forward that does not arrive: %v", err)
			}
			c.leader().mustPin(fmt.Sprintf("again%d", round))
			release()
			<-time.After(2 * time.Second) // what it takes to commit is far less
		}
		c.leader().wantPins("before", "again0", "again1", "again2")
		n.mustPin("after")
		c.sameEverywhere()
		n.wantPins("before", "again0", "again1", "again2", "after")
	})
}

// A forwarded command that is late, and not too late, is committed: a deadline costs nothing that was in time.
func TestAForwardInTimeIsCommitted(t *testing.T) {
	withHeldFollower(t, state.NewestFeatureLevel, func(t *testing.T, c *testCluster, n *testNode, slow *heldNetwork) {
		n.mustPin("before")
		<-time.After(2 * clockAge) // the clock is asked for again
		release := slow.hold()
		time.AfterFunc(3*time.Second, release)
		n.mustPin("late")
		n.wantPins("before", "late")
		big := pin("big")
		big.Pin.Meta = map[string]string{"k": strings.Repeat("v", 4<<10)}
		if _, err := n.Propose(t.Context(), big); err != nil {
			t.Errorf("a large command: %v", err)
		}
		if !slow.asked(askProposeBy) || !slow.asked(askClock) {
			t.Error("the follower gave no deadline")
		}
	})
}

// A follower gives no deadline before all members understand it, and gives one when they do.
func TestDeadlinesWaitForTheLastMember(t *testing.T) {
	withHeldFollower(t, deadlineLevel-1, func(t *testing.T, c *testCluster, n *testNode, slow *heldNetwork) {
		n.mustPin("a")
		if slow.asked(askProposeBy) || slow.asked(askClock) || !slow.asked(askPropose) {
			t.Errorf("a cluster of level %d was asked in %v", n.fsm.level(), slow.kinds)
		}
		c.level = state.NewestFeatureLevel
		for _, id := range c.ids() {
			c.announce(id)
		}
		c.until("the level is raised", func() bool { return n.fsm.level() == state.NewestFeatureLevel })
		n.mustPin("b")
		if !slow.asked(askProposeBy) {
			t.Error("no deadline when all understand it")
		}
		n.wantPins("a", "b")
	})
}

// A leader refuses a command at its deadline or later, and one whose deadline is by the clock of an earlier process.
func TestALeaderTakesNothingBehindItsDeadline(t *testing.T) {
	inVirtualTime(t, 1, Timings{}, func(t *testing.T, c *testCluster) {
		leader := c.leader()
		body := func(id string) []byte {
			op, err := newOperation(pin(id))
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := wire.EncodeCommand(wire.Command{Op: op, Body: pin(id)})
			if err != nil {
				t.Fatal(err)
			}
			return encoded
		}
		ask := func(by reading, id string) uint8 {
			how, answer := leader.serve(t.Context(), "n2", askProposeBy, append(by.append(nil), body(id)...))
			if how == answerDone || how == answerLate {
				if r, _, ok := cutReading(answer); !ok || r != leader.clock.now() {
					t.Errorf("%s: answered with the reading %+v, and it is %+v", id, r, leader.clock.now())
				}
			}
			return how
		}
		in := func(d time.Duration) reading {
			r := leader.clock.now()
			r.at += d
			return r
		}
		other := in(time.Hour)
		other.clock++
		for _, tc := range []struct {
			name string
			by   reading
			want uint8
		}{
			{"in time", in(time.Second), answerDone},
			{"at the moment", in(0), answerLate},
			{"late", in(-1), answerLate},
			{"by the clock of an earlier life", other, answerLate},
		} {
			if how := ask(tc.by, tc.name); how != tc.want {
				t.Errorf("%s: answer %d, not %d", tc.name, how, tc.want)
			}
		}
		leader.wantPins("in time")
		for _, short := range [][]byte{nil, make([]byte, readingBytes-1), binary.BigEndian.AppendUint64(make([]byte, 8), 1<<63)} {
			if how, _ := leader.serve(t.Context(), "n2", askProposeBy, short); how != answerRefused {
				t.Errorf("a request of %d bytes: answer %d", len(short), how)
			}
		}
	})
}

// A command that its client gave up in the queue of a leader whose disk is slow is not committed.
func TestWhatWasGivenUpLeavesTheQueue(t *testing.T) {
	inVirtualTime(t, 0, Timings{}, func(t *testing.T, c *testCluster) {
		slow := &gate{}
		n := c.empty("n1")
		n.log = &faultyLog{LogStore: n.log, fault: slow.fault}
		n.start()
		c.found(n)
		c.until("the level and the vote are there", func() bool { return c.ready() == 1 && n.fsm.level() == state.NewestFeatureLevel })
		<-time.After(time.Minute) // and nothing is proposed by the node itself
		n.mustPin("before")
		shut := make(chan struct{})
		slow.shut.Store(&shut)
		waiting := []struct {
			name     string
			patience time.Duration
			want     string
			answer   chan error
		}{
			{"in the log", time.Second, "not known to be done", make(chan error, 1)},
			// When Raft would have had to take it and its caller gives up is one moment.
			{"before Raft", time.Second, "", make(chan error, 1)},
			{"in the queue", time.Second / 2, "nothing was written", make(chan error, 1)},
		}
		for _, w := range waiting { // one after the other, so that each is an entry of its own
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), w.patience)
				defer cancel()
				_, err := n.Propose(ctx, pin(w.name))
				w.answer <- err
			}()
			<-time.After(10 * time.Millisecond)
		}
		for _, w := range waiting {
			if err := <-w.answer; !errors.Is(err, state.ErrUnavailable) || !strings.Contains(err.Error(), w.want) {
				t.Errorf("%s: %v", w.name, err)
			}
		}
		slow.shut.Store(nil)
		close(shut)
		n.mustPin("again")
		n.wantPins("before", "in the log", "again")
	})
}

// A deadline by the leader's clock is 0 to 100 ms before the client's. The clock is asked for again when its reading
// is old or of another leadership.
func TestADeadlineIsNeverBeyondItsMoment(t *testing.T) {
	inVirtualTime(t, 0, Timings{}, func(t *testing.T, _ *testCluster) {
		leader, err := newClock()
		if err != nil {
			t.Fatal(err)
		}
		c, of, other := newLeaderClock(), make(chan struct{}), make(chan struct{})
		asked := 0
		ask := func() (reading, error) {
			asked++
			<-time.After(30 * time.Millisecond) // there
			r := leader.now()
			<-time.After(20 * time.Millisecond) // and back
			return r, nil
		}
		for _, tc := range []struct {
			name  string
			after time.Duration
			of    chan struct{}
			asked int
		}{
			{"first", 0, of, 1},
			{"soon", clockAge / 2, of, 1},
			{"when the reading is old", clockAge, of, 2},
			{"another leadership", 0, other, 3},
			{"and the first one again", 0, of, 4},
		} {
			<-time.After(tc.after)
			end := time.Now().Add(8 * time.Second)
			by, err := c.by(t.Context(), tc.of, end, ask)
			if err != nil {
				t.Fatal(err)
			}
			at, same := leader.when(by)
			if early := end.Sub(at); !same || early < 0 || early > 100*time.Millisecond {
				t.Errorf("%s: the deadline is %v before the end of the client's time", tc.name, early)
			}
			if asked != tc.asked {
				t.Errorf("%s: the clock was asked for %d times, not %d", tc.name, asked, tc.asked)
			}
		}
		if by, err := c.by(t.Context(), of, time.Now().Add(-time.Hour), ask); err != nil || by.at != 0 {
			t.Errorf("a moment before the leader's clock began: %v, %v", by, err)
		}
		gone := errors.New("gone")
		_, err = c.by(t.Context(), other, time.Now(), func() (reading, error) { return reading{}, gone })
		if !errors.Is(err, gone) || !errors.Is(err, errUntaken) {
			t.Errorf("a leader that does not tell its time: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		<-c.asking
		if _, err := c.by(ended, other, time.Now(), ask); !errors.Is(err, errUntaken) {
			t.Errorf("while somebody else asks: %v", err)
		}
		c.asking <- struct{}{}
	})
}

// A refusal is no answer while an earlier attempt may take effect.
func TestARefusalAfterAnAttemptInDoubtIsNoAnswer(t *testing.T) {
	full := state.Errorf(state.CodeUnavailable, "full")
	doubt := fmt.Errorf("%w: no word", errRetry)
	for _, tc := range []struct {
		name   string
		fails  []error
		answer string // of the last of them; empty: none
		end    string
	}{
		{"refused at once", []error{full}, "full", ""},
		{"not taken, then refused", []error{errUntaken, full}, "full", ""},
		{"in doubt, then refused", []error{doubt, full}, "", "not known to be done"},
		{"in doubt, then not taken", []error{doubt, errUntaken}, "", "not known to be done"},
		{"never taken", []error{errUntaken, errUntaken}, "", "nothing was written"},
		{"stopping", []error{errUntaken, errStopping}, "nothing was written", ""},
		{"stopping in doubt", []error{doubt, errStopping}, "not known to be done", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var a attempts
			var answer error
			for _, err := range tc.fails {
				if answer != nil {
					t.Fatalf("%v is the answer before %v", answer, err)
				}
				answer = a.failed(err)
			}
			if answer == nil && tc.answer == "" {
				answer, tc.answer = a.undecided(context.DeadlineExceeded), tc.end
			}
			if answer == nil || !strings.Contains(answer.Error(), tc.answer) || !errors.Is(answer, state.ErrUnavailable) {
				t.Errorf("the answer is %v, not %q", answer, tc.answer)
			}
		})
	}
}
