package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// All reads that wait share the next round, and no read shares a round that began before it.
func TestReadsShareRoundsThatBeginAfterThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := newReadRounds()
		ctx, stop := context.WithCancel(t.Context())
		begun := make(chan chan uint64) // of each round, to give its result
		ended := make(chan error, 1)
		go func() {
			ended <- rounds.run(ctx, func(context.Context) (uint64, error) {
				result := make(chan uint64)
				begun <- result
				return <-result, nil
			})
		}()
		var readers sync.WaitGroup
		read := func(n int, want uint64) {
			for range n {
				readers.Go(func() {
					if got, err := rounds.join(ctx); err != nil || got != want {
						t.Errorf("read at %d, want %d: %v", got, want, err)
					}
				})
			}
			synctest.Wait()
		}
		// One round is under way with one reader; a thousand more share the next.
		read(1, 1)
		under := <-begun
		read(1000, 100)
		under <- 1
		next := <-begun
		read(1, 200) // too late for the one that has begun
		next <- 100
		last := <-begun
		last <- 200
		readers.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := rounds.join(t.Context()); !errors.Is(err, errStopping) {
			t.Errorf("joined when all is over: %v", err)
		}
	})
}

// A queue with maxWaiting commands refuses the next one as unavailable, and counts the bytes that wait.
func TestFullQueueRefusesAndGrowsNoMore(t *testing.T) {
	body, err := wire.EncodeCommand(wire.Command{Body: &state.RemoveNode{ID: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	b := newBatcher(&Node{disk: &disk{}})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range maxWaiting {
		if _, err := b.submit(ended, body); !errors.Is(err, context.Canceled) {
			t.Fatalf("command %d: %v", i, err)
		}
	}
	if _, err := b.submit(t.Context(), body); !errors.Is(err, state.ErrUnavailable) || errors.Is(err, errRetry) {
		t.Errorf("one too many: %v", err)
	}
	if got, want := b.bytes.Load(), int64(maxWaiting*len(body)); got != want {
		t.Errorf("%d bytes wait, counted %d", want, got)
	}
	b.refuse()
	if left := b.bytes.Load(); left != 0 || len(b.queue) != 0 {
		t.Errorf("%d bytes left of an empty queue", left)
	}
	if _, err := b.submit(t.Context(), body); !errors.Is(err, errStopping) {
		t.Errorf("after the end: %v", err)
	}
}

// An entry has at most wire.MaxBatch commands and wire.MaxEntry bytes, and every command gets into one.
func TestEntriesStayWithinTheirBounds(t *testing.T) {
	b := newBatcher(&Node{disk: &disk{}})
	large := make([]byte, wire.MaxCommand)
	wait := func(body []byte) *waiting { return &waiting{body: body, answer: make(chan decision, 1)} }
	for range 10 {
		if err := b.enqueue(wait(large)); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		if err := b.enqueue(wait([]byte("x"))); err != nil {
			t.Fatal(err)
		}
	}
	packed := 0
	for len(b.queue) > 0 {
		e, err := b.pack()
		if err != nil || len(e.data) > wire.MaxEntry || len(e.members) > wire.MaxBatch {
			t.Fatalf("an entry of %d commands and %d bytes: %v", len(e.members), len(e.data), err)
		}
		packed += len(e.members)
	}
	if packed != 1010 || b.bytes.Load() != 0 {
		t.Errorf("%d commands packed, %d bytes counted as waiting", packed, b.bytes.Load())
	}
}

// A leader answers reads only in its present term, after a commit in it, and while a majority confirms the term.
func TestLeaderAsksVotersWhetherItsTermIsTheNewest(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		leader := c.leader()
		term := leader.raft.CurrentTerm()
		if err := leader.confirmTerm(t.Context(), term); err != nil {
			t.Errorf("a leader in office: %v", err)
		}
		if err := leader.confirmTerm(t.Context(), term-1); !errors.Is(err, errRetry) {
			t.Errorf("by an old term: %v", err)
		}
		young := &Node{
			opts: leader.opts, raft: leader.raft, forwards: leader.forwards, fsm: &fsm{progress: newProgress(leader.Applied())},
		}
		if _, err := young.leaderIndex(t.Context()); !errors.Is(err, errRetry) {
			t.Errorf("a leader that has not committed in its term: %v", err)
		}
		c.network.isolate(leader.id, c.others(leader.id)...)
		ctx, cancel := context.WithTimeout(t.Context(), roundTimeout)
		defer cancel()
		if err := leader.confirmTerm(ctx, term); !errors.Is(err, errRetry) {
			t.Errorf("a leader that nobody hears: %v", err)
		}
	})
}

// The metrics of one node have a registry to themselves, and can be registered again after they were unregistered.
func TestMetricsComeAndGoWithTheNode(t *testing.T) {
	registry := prometheus.NewRegistry()
	n := &Node{fsm: &fsm{progress: newProgress(7)}, disk: &disk{}}
	m, err := registerMetrics(n, registry)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := registerMetrics(n, registry); err == nil {
		t.Error("two nodes share one registry")
	}
	m.unregister()
	if m, err = registerMetrics(n, registry); err != nil {
		t.Errorf("once more: %v", err)
	}
	m.unregister()
}

// A command that reports how things are has no operation id, and any other has a new one for each proposal.
func TestOnlyCommandsThatSayHowThingsAreGoWithoutAnOperation(t *testing.T) {
	for _, tc := range []struct {
		cmd  state.Command
		want bool
	}{
		{&state.CreatePin{}, true},
		{&state.ReplacePin{}, true},
		{&state.DeletePin{}, true},
		{&state.RevokeKey{}, true},
		{&state.RemoveNode{}, true},
		{&state.SetDrain{}, true},
		{&state.SetDisabled{}, true},
		{&state.JoinNode{}, true},
		{&state.ReportCopies{}, false},
		{&state.ChargeStorage{}, false},
		{&state.PlaceRoots{}, false},
		{&state.SettleRoots{}, false},
		{&state.IndexPins{}, false},
		{&state.PackNames{}, false},
		{&state.ClearAccounts{}, false},
		{&state.ReportArrivals{}, false},
		{&state.ClearBuckets{}, false},
		{&state.ClearUploads{}, false},
		{&state.Fence{}, false},
		{&state.PutObject{}, true},
		{&state.CreateBucket{}, true},
		{&state.CompleteUpload{}, true},
		{&state.GrantCredits{}, true},
		{&state.PostCredits{}, true},
		{&state.UpdateNode{}, false},
	} {
		a, err := newOperation(tc.cmd)
		if err != nil {
			t.Fatal(err)
		}
		b, err := newOperation(tc.cmd)
		if err != nil {
			t.Fatal(err)
		}
		if has := a != (state.OpID{}); has != tc.want || has && a == b {
			t.Errorf("%T: operations %x and %x", tc.cmd, a, b)
		}
	}
}

// An entry waits for clients that just had their answers, maxGather at the longest, and never for a client alone.
func TestEntriesWaitForThoseWhoComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pace{gather: time.NewTimer(time.Hour)}
		need := func(when string, want int) {
			t.Helper()
			if got := p.need(); got != want {
				t.Errorf("%s: %d commands make an entry, want %d", when, got, want)
			}
		}
		need("nothing is under way", 1)
		p.begin(1)
		need("a single command is under way", 1)
		p.begin(1)
		need("as many entries as may are under way", math.MaxInt32)
		p.end(1, 0)
		need("a single command is left", 1)
		p.end(1, 0)
		need("a client alone has its answer", 1)
		p.begin(1)
		p.end(1, 1)
		need("of two clients one has its answer", 1)

		p.begin(8)
		need("eight commands are under way", 24)
		p.began = time.Now().Add(-time.Second)
		p.end(8, 24)
		need("eight of 32 clients have their answer", 24)
		asked := time.Now()
		<-p.gather.C
		if waited := time.Since(asked); waited != maxGather {
			t.Errorf("waited %s for the others, want %s", waited, maxGather)
		}
		p.begin(32)
		p.end(32, 0)
		need("all of 32 clients have their answer", 24)
		p.begin(200)
		need("an entry that is nearly full is under way", wire.MaxBatch)
		p.end(200, 4000)
		need("many wait", wire.MaxBatch)
	})
}

// Commands of 32 clients that propose again and again take at most one entry for eight commands.
func TestCommandsOfManyClientsShareEntries(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		leader := c.leader()
		const clients, each = 32, 20
		before := leader.Applied()
		var group sync.WaitGroup
		for i := range clients {
			group.Go(func() {
				for j := range each {
					if _, err := leader.Propose(t.Context(), pin(fmt.Sprintf("%d-%d", i, j))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		if entries := leader.Applied() - before; entries > clients*each/8 {
			t.Errorf("%d commands of %d clients took %d entries", clients*each, clients, entries)
		}
	})
}

// Ids of operations of a later millisecond are greater, so that the results that Apply remembers have
// neighbouring keys. No two operations of one moment have one id.
func TestOperationsAreOrderedByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := map[state.OpID]bool{}
		var last state.OpID
		for range 4 {
			<-time.After(time.Millisecond)
			first := last
			for range 64 {
				op, err := newOperation(&state.CreatePin{})
				if err != nil {
					t.Fatal(err)
				}
				if known[op] || bytes.Compare(op[:], first[:]) <= 0 {
					t.Fatalf("operation %x after %x, known %t", op, first, known[op])
				}
				known[op] = true
				if bytes.Compare(op[:], last[:]) > 0 {
					last = op
				}
			}
		}
	})
}
