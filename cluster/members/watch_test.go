package members

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// watched is a world whose Watch is driven by hand, second by second.
type watched struct {
	*world
	watch watch
	log   bytes.Buffer
	clock time.Time
}

func newWatched(t *testing.T) *watched {
	w := &watched{world: newWorld(t, "a", "b", "c"), clock: time.Unix(1_000, 0)}
	w.votes = []state.NodeID{"a", "b", "c"}
	w.loads["b"], w.loads["c"] = Load{State: "alive", Connected: true}, Load{State: "alive", Connected: true}
	w.opts.Logger, w.opts.GoneAfter = slog.New(slog.NewTextHandler(&w.log, nil)), 5*time.Minute
	w.watch = watch{m: w.Members, away: map[state.NodeID]*absence{}}
	return w
}

// pass lets time go by and returns what was logged meanwhile.
func (w *watched) pass(t *testing.T, d time.Duration) string {
	t.Helper()
	w.log.Reset()
	for end := w.clock.Add(d); w.clock.Before(end); {
		w.clock = w.clock.Add(watchEvery)
		for id, load := range w.loads {
			if load.State == "down" {
				load.Silent += watchEvery
				w.loads[id] = load
			}
		}
		w.watch.check(t.Context(), w.clock)
	}
	return w.log.String()
}

func wantLines(t *testing.T, what, got string, want ...string) {
	t.Helper()
	if lines := strings.Count(got, "\n"); lines != len(want) {
		t.Errorf("%s: %d lines, want %d:\n%s", what, lines, len(want), got)
	}
	for _, line := range want {
		if !strings.Contains(got, line) {
			t.Errorf("%s: no %s in\n%s", what, line, got)
		}
	}
}

// A member that is down is warned of once, its return is logged, and a suspect member is not logged.
func TestAMemberThatDiesIsWarnedOfOnce(t *testing.T) {
	w := newWatched(t)
	wantLines(t, "all are there", w.pass(t, time.Minute))
	w.loads["b"] = Load{State: "suspect"}
	wantLines(t, "one is suspect", w.pass(t, 9*time.Second))
	w.loads["b"] = Load{State: "down", Silent: 15 * time.Second}
	wantLines(t, "one is down", w.pass(t, time.Hour), `level=WARN msg="member does not answer" node=b name=b silent=16s`)
	w.loads["b"] = Load{State: "alive", Connected: true}
	wantLines(t, "it is back", w.pass(t, time.Minute), `level=INFO msg="member is back" node=b name=b after=1h0m16s`)
}

// A member that was stopped is logged once, and warned of only after GoneAfter, when its content is placed
// anew.
func TestAMemberThatIsStoppedIsWarnedOfWhenItsContentIsPlacedAnew(t *testing.T) {
	w := newWatched(t)
	w.loads["b"] = Load{State: "down", Ended: true, Silent: 15 * time.Second}
	wantLines(t, "stopped", w.pass(t, 4*time.Minute), `level=INFO msg="member was stopped" node=b name=b silent=16s`)
	wantLines(t, "for too long", w.pass(t, time.Hour), `level=WARN msg="member does not answer" node=b name=b silent=5m0s`)
	w.loads["b"] = Load{State: "alive", Connected: true}
	w.pass(t, time.Second)
	w.loads["b"] = Load{State: "down", Ended: true, Silent: 15 * time.Second}
	wantLines(t, "again", w.pass(t, time.Minute), `level=INFO msg="member was stopped"`)
}

// A missing majority that lasts is warned of once, and its end is logged. An election of 9 s is not logged.
func TestNoMajorityIsWarnedOfWhenItLasts(t *testing.T) {
	w := newWatched(t)
	w.leaderless = true
	wantLines(t, "an election", w.pass(t, 9*time.Second))
	w.leaderless = false
	wantLines(t, "it is over", w.pass(t, time.Minute))
	w.leaderless = true
	w.loads["b"], w.loads["c"] = Load{State: "alive"}, Load{State: "alive"}
	wantLines(t, "cut off", w.pass(t, time.Minute), `level=WARN msg="the cluster cannot write" why="2 of 3 votes are needed and 1 is here; missing: b`)
	w.leaderless = false
	w.loads["b"] = Load{State: "alive", Connected: true}
	wantLines(t, "together again", w.pass(t, time.Minute), `level=INFO msg="the cluster can write again" after=1m0s`)
}

// A cluster that stays at two votes is warned of once, and one whose third vote comes within 9 s is not.
func TestTwoVotesAreWarnedOfUnlessAThirdComesSoon(t *testing.T) {
	w := newWatched(t)
	w.votes = []state.NodeID{"a", "b"}
	wantLines(t, "on the way to three", w.pass(t, 9*time.Second))
	w.votes = []state.NodeID{"a", "b", "c"}
	wantLines(t, "three", w.pass(t, time.Minute))
	w.votes = []state.NodeID{"a", "b"}
	wantLines(t, "two", w.pass(t, time.Hour), `level=WARN msg="the cluster has two votes and needs both`)
}

// A voter whose disk of the Raft log is full does not count as here, and Writable names it if the majority is
// gone.
func TestFullDisksTakeTheMajority(t *testing.T) {
	full := Load{State: "alive", Connected: true, Refuses: true}
	w := newWatched(t)
	w.loads["b"] = full
	if err := w.Writable(t.Context()); err != nil || w.Quorum().Here != 2 {
		t.Errorf("one disk of three is full: %v", err)
	}
	w.loads["c"] = full
	var coded *state.Error
	want := "2 of 3 votes are needed and 1 is here; missing: b (b, the disk of its Raft log is full), c (c, the disk of its Raft log is full)"
	if err := w.Writable(t.Context()); !errors.As(err, &coded) || coded.Code != state.CodeUnavailable || coded.Detail != want {
		t.Errorf("two disks of three are full: %v", err)
	}
	w.loads["a"], w.loads["c"] = full, w.loads["a"]
	w.loads["c"] = Load{State: "alive", Connected: true}
	if err := w.Writable(t.Context()); err == nil || !strings.Contains(err.Error(), "a (a, the disk of its Raft log is full)") {
		t.Errorf("its own disk is one of two: %v", err)
	}
}
