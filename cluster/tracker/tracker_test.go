package tracker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const moment = 100 * time.Millisecond // for a report to be flushed

// A node fetches, seals and reports content that is pinned on it, and drops it after the pin is deleted.
func TestHoldsWhatIsPinned(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.start()
		defer w.stop()
		id := w.pin(1, self, other)
		w.pass(moment)
		w.wantPhase(1, state.Held)
		w.wantSealed(1, true)
		if root := w.root(1); root.Size != 100 || root.Blocks != 10 {
			w.Fatalf("size %d in %d blocks, want 100 in 10", root.Size, root.Blocks)
		}
		if s, _ := w.status(id); s != state.Pinned {
			w.Fatalf("status %s, want pinned", s)
		}
		w.wantIdle()
		w.unpin(id)
		w.pass(moment)
		w.wantNothingHere(1)
	})
}

// A node fetches nothing that is allocated to other nodes alone.
func TestIgnoresWhatOthersKeep(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.pin(1, other, third)
		w.start()
		defer w.stop()
		w.pin(2, other)
		w.pass(moment)
		if len(w.net.jobs) != 0 {
			w.Fatalf("fetched %v", w.net.jobs)
		}
	})
}

// A complete copy that nobody else holds stays until another node has it or nobody wants it; parts do not stay. A
// node that was removed and joins again with its blocks is wanted nowhere, but the others can fetch the content from
// it alone.
func TestWhatNobodyElseHoldsStays(t *testing.T) {
	const audit = time.Minute
	bubble(t, Limits{Audit: audit}, func(w *world) {
		pins := []state.RequestID{w.pin(1, other, third), w.pin(2, other, third), w.pin(3, other, third)}
		for n := 1; n <= 2; n++ {
			w.store.put(Reference(key(n)), owned{sealed: true, bytes: 100, blocks: 10})
		}
		w.store.put(Reference(key(3)), owned{bytes: 30, blocks: 3})
		w.start()
		defer w.stop()
		w.pass(10 * audit)
		w.wantSealed(1, true)
		w.wantSealed(2, true)
		w.wantNothingHere(3)
		w.wantIdle()
		w.says(third, 1, state.Held)
		w.unpin(pins[1])
		w.pass(2 * audit)
		w.wantNothingHere(1)
		w.wantNothingHere(2)
	})
}

// A complete copy stays until a member holds the content; the copy on record of a removed node does not count.
func TestWhatOnlyARemovedNodeHeldStays(t *testing.T) {
	const audit = time.Minute
	bubble(t, Limits{Audit: audit}, func(w *world) {
		w.pin(1, other, third)
		w.says(third, 1, state.Held)
		w.state.Apply(w, &state.RemoveNode{ID: third})
		w.store.put(Reference(key(1)), owned{sealed: true, bytes: 100, blocks: 10})
		w.start()
		defer w.stop()
		w.pass(10 * audit)
		w.wantSealed(1, true)
		w.says(other, 1, state.Held)
		w.pass(2 * audit)
		w.wantNothingHere(1)
	})
}

// A node that starts reports, fetches or drops what it finds, whatever it was doing when it was stopped.
func TestRestartReconciles(t *testing.T) {
	sealed, partial := &owned{sealed: true, bytes: 100, blocks: 10}, &owned{bytes: 30, blocks: 3}
	for _, tc := range []struct {
		name    string
		here    *owned
		phase   state.Phase // 0: not wanted
		want    state.Phase
		fetches int
		kept    bool
		reports []state.Phase
	}{
		{"sealed, not reported", sealed, state.Assigned, state.Held, 0, true, []state.Phase{state.Held}},
		{"sealed, reported as fetching", sealed, state.Fetching, state.Held, 0, true, []state.Phase{state.Held}},
		{"sealed after all was given up", sealed, state.GaveUp, state.Held, 0, true, []state.Phase{state.Held}},
		{"sealed and reported", sealed, state.Held, state.Held, 0, true, nil},
		{"begun", partial, state.Fetching, state.Held, 1, true, []state.Phase{state.Held}},
		{"not begun", nil, state.Assigned, state.Held, 1, true, []state.Phase{state.Held}},
		{"lost in part", partial, state.Held, state.Held, 1, true, []state.Phase{state.Held}},
		{"given up, parts left", partial, state.GaveUp, state.GaveUp, 0, false, nil},
		{"given up", nil, state.GaveUp, state.GaveUp, 0, false, nil},
		{"not wanted, complete", sealed, 0, 0, 0, false, nil},
		{"not wanted, begun", partial, 0, 0, 0, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, Limits{}, func(w *world) {
				if tc.here != nil {
					w.store.put(Reference(key(1)), *tc.here)
				}
				nodes := []state.NodeID{other, third}
				if tc.phase != 0 {
					nodes = append(nodes, self)
				}
				w.pin(1, nodes...)
				switch {
				case tc.phase == 0:
					w.says(other, 1, state.Held)
				case tc.phase > state.Assigned:
					w.says(self, 1, tc.phase)
				}
				w.start()
				defer w.stop()
				w.pass(moment)
				if tc.want != 0 {
					w.wantPhase(1, tc.want)
				}
				if got := len(w.net.fetched(key(1))); got != tc.fetches {
					w.Errorf("%d fetches, want %d", got, tc.fetches)
				}
				if got := w.state.reported(key(1)); tc.name != "lost in part" && !slices.Equal(got, tc.reports) {
					w.Errorf("reported %v, want %v", got, tc.reports)
				}
				if _, here := w.store.get(Reference(key(1))); here != tc.kept {
					w.Errorf("blocks here: %t, want %t", here, tc.kept)
				}
				w.wantIdle()
			})
		})
	}
}

// A held root whose content is gone is reported as being fetched, and is held again after that.
func TestLostContentIsReportedAndFetchedAgain(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		id := w.pin(1, self, other)
		w.says(self, 1, state.Held)
		w.net.set(key(1), slow(3))
		w.start()
		defer w.stop()
		w.pass(time.Second)
		w.wantPhase(1, state.Fetching)
		w.pass(5 * time.Second)
		w.wantPhase(1, state.Held)
		if s, _ := w.status(id); s != state.Pinned {
			w.Fatalf("status %s, want pinned", s)
		}
	})
}

// The deletion of a pin stops its fetch, or its wait for the next attempt, and drops its parts.
func TestDeleteStopsTheFetchAndFreesItsParts(t *testing.T) {
	for _, state := range []struct {
		name string
		does behaviour
	}{{"moving", slow(1000)}, {"stalled", stalls(3)}, {"silent", silent}, {"between attempts", vanishes(2)}} {
		t.Run(state.name, func(t *testing.T) {
			bubble(t, Limits{}, func(w *world) {
				w.net.set(key(1), state.does)
				w.start()
				defer w.stop()
				id := w.pin(1)
				w.pass(3 * time.Second)
				w.unpin(id)
				w.pass(moment)
				w.wantNothingHere(1)
				w.wantIdle()
				if !w.gone(1) {
					w.Fatal("the root is still on record")
				}
				if _, _, ok := w.tracker.Progress(key(1)); ok {
					w.Fatal("a fetch still runs")
				}
			})
		})
	}
}

// The deletion of one of two pins of a root leaves the fetch of the root alone.
func TestDeleteOfOneOfTwoPinsKeepsTheFetch(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.net.set(key(1), slow(5))
		w.start()
		defer w.stop()
		first := w.pin(1)
		w.pin(1)
		w.pass(2 * time.Second)
		w.unpin(first)
		w.pass(10 * time.Second)
		w.wantPhase(1, state.Held)
		if n := len(w.net.fetched(key(1))); n != 1 {
			w.Fatalf("%d fetches, want 1", n)
		}
	})
}

// The content of a replaced pin stays until that of the new pin is held, unless it was still fetched itself.
func TestReplaceKeepsTheOldUntilTheNewIsPinned(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.net.set(key(2), slow(20))
		w.net.set(key(3), slow(3))
		w.start()
		defer w.stop()
		w.pin(1)
		w.pass(moment)
		replace := func(old, with state.RequestID, n int) {
			w.state.Apply(w, &state.ReplacePin{Old: old, Pin: w.newPin(with, n), Nodes: []state.NodeID{self}})
		}
		replace("pin-1", "two", 2)
		w.pass(2 * time.Second)
		w.wantSealed(1, true) // shared blocks are at hand
		w.wantPhase(2, state.Fetching)
		replace("two", "three", 3) // replaced while it is fetched
		w.pass(moment)
		w.wantNothingHere(2)
		w.wantSealed(1, true)
		w.pass(5 * time.Second)
		w.wantPhase(3, state.Held)
		w.wantNothingHere(1)
		w.wantIdle()
	})
}

// A node gives up content that nobody has after DefaultAttempts with growing pauses, and then drops its parts.
func TestGivesUpAfterItsAttempts(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.net.set(key(1), vanishes(2))
		w.start()
		defer w.stop()
		id := w.pin(1, self, other)
		w.pass(moment)
		root := w.root(1)
		if c := root.Copy(self); c.Phase != state.Assigned || !strings.Contains(c.Reason, "no luck") {
			w.Fatalf("after the first attempt: %+v", c)
		}
		if o, ok := w.store.get(Reference(key(1))); !ok || o.blocks != 2 {
			w.Fatal("the parts are gone before the last attempt")
		}
		w.pass(DefaultBackoff + moment)
		if n := len(w.net.fetched(key(1))); n != 2 {
			w.Fatalf("%d attempts after the first pause, want 2", n)
		}
		w.pass(2*DefaultBackoff + moment)
		w.wantPhase(1, state.GaveUp)
		w.wantNothingHere(1)
		w.wantIdle()
		w.pass(time.Hour)
		if n := len(w.net.fetched(key(1))); n != DefaultAttempts {
			w.Fatalf("%d attempts, want %d", n, DefaultAttempts)
		}
		w.says(other, 1, state.GaveUp)
		if s, detail := w.status(id); s != state.Failed || !strings.Contains(detail, "no luck: nobody offered the block") {
			w.Fatalf("status %s, %q", s, detail)
		}
	})
}

// Content that objects name is not given up in a day of failed attempts, and what has come of it stays. It was held
// once, so it may come back.
func TestWhatObjectsNameIsNotGivenUp(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.net.set(key(1), vanishes(2))
		w.state.Apply(w, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
		b := w.state.NewBucket(w, clustertest.Operator, "bucket", false)
		w.state.Apply(w, &state.PutObject{
			Account: b.Account, Bucket: b.Name, Born: b.Born, Object: state.Object{ID: "v", Key: "k", Root: key(1), Size: 90, Created: 1, ETag: "e"},
			Content: state.Content{Root: key(1), Bytes: 100, Blocks: 10, Nodes: []state.NodeID{self}, Held: []state.Holding{{Node: other}}},
		})
		w.says(other, 1, state.GaveUp)
		w.store.onDrop = func() { w.Error("what had come is dropped") }
		w.start()
		defer w.stop()
		w.pass(24 * time.Hour)
		if n := len(w.net.fetched(key(1))); n <= DefaultAttempts {
			w.Errorf("%d attempts in a day", n)
		}
		w.wantPhase(1, state.Assigned)
		if o, ok := w.store.get(Reference(key(1))); !ok || o.blocks != 2 {
			w.Error("what had come is gone")
		}
		w.net.set(key(1), good)
		w.pass(24 * time.Hour)
		w.wantPhase(1, state.Held)
	})
}

// A new pin of content whose pin has failed is fetched anew, and becomes pinned.
func TestPinningAgainAfterFailureBeginsAfresh(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.net.set(key(1), absent)
		w.start()
		defer w.stop()
		id := w.pin(1)
		w.pass(time.Minute)
		if s, _ := w.status(id); s != state.Failed {
			w.Fatalf("status %s, want failed", s)
		}
		w.net.set(key(1), good)
		again := w.pin(1)
		w.pass(moment)
		if s, _ := w.status(again); s != state.Pinned {
			w.Fatalf("status %s, want pinned", s)
		}
	})
}

// A pin that is made again while its failed fetch is cleared away does not fail for the old fetch.
func TestGivingUpDoesNotMeetTheNextIncarnation(t *testing.T) {
	for _, when := range []string{"at the end of the fetch", "while the parts are dropped"} {
		t.Run(when, func(t *testing.T) {
			bubble(t, Limits{Attempts: 1}, func(w *world) {
				again := func() {
					w.net.set(key(1), good)
					w.unpin("pin-1")
					w.state.Apply(w, &state.CreatePin{Pin: w.newPin("again", 1), Nodes: []state.NodeID{self}})
				}
				w.net.set(key(1), func(context.Context, *network, Job, func(uint64, uint64)) error {
					if when == "at the end of the fetch" {
						again()
					}
					return errNobody
				})
				if when == "while the parts are dropped" {
					w.store.onDrop = again
				}
				w.start()
				defer w.stop()
				w.pin(1)
				w.pass(time.Minute)
				if s, detail := w.status("again"); s != state.Pinned {
					w.Fatalf("status %s, %q, want pinned", s, detail)
				}
			})
		})
	}
}

// Content that was given up is not fetched again before the report of it is committed.
func TestWhatWasGivenUpRestsUntilThatIsKnown(t *testing.T) {
	bubble(t, Limits{Attempts: 1}, func(w *world) {
		w.net.set(key(1), absent)
		w.state.cutOff(true)
		w.start()
		defer w.stop()
		w.pin(1, self, other)
		w.pass(moment)
		w.says(other, 1, state.Fetching) // the state still says that this node is to fetch it
		w.pass(time.Minute)
		if n := len(w.net.fetched(key(1))); n != 1 {
			w.Fatalf("%d fetches, want 1", n)
		}
		w.state.cutOff(false)
		w.pass(maxReportPause)
		w.wantPhase(1, state.GaveUp)
		w.wantIdle()
	})
}

// Content that another node holds is not given up: a node tries it once or twice a minute.
func TestNeverGivesUpWhileSomebodyHoldsIt(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.net.set(key(1), absent)
		w.pin(1, self, other)
		w.says(other, 1, state.Held)
		w.start()
		defer w.stop()
		w.pass(time.Hour)
		root := w.root(1)
		if c := root.Copy(self); c.Phase != state.Assigned || c.Reason == "" {
			w.Fatalf("copy %+v, want assigned with a reason", c)
		}
		jobs := w.net.fetched(key(1))
		if len(jobs) < 60 || len(jobs) > 130 {
			w.Fatalf("%d attempts in an hour, want one or two a minute", len(jobs))
		}
		w.net.set(key(1), good)
		w.pass(DefaultMaxBackoff)
		w.wantPhase(1, state.Held)
	})
}

// A root is fetched without the rest of its pause once another node holds it.
func TestAHolderEndsThePause(t *testing.T) {
	bubble(t, Limits{Backoff: time.Hour, MaxBackoff: time.Hour}, func(w *world) {
		w.net.set(key(1), absent)
		w.start()
		defer w.stop()
		w.pin(1, self, other)
		w.pass(moment)
		w.net.set(key(1), good)
		w.says(other, 1, state.Held)
		w.pass(moment)
		w.wantPhase(1, state.Held)
	})
}

// A root that this node gave up is fetched once another node holds it.
func TestAHolderRevivesWhatWasGivenUp(t *testing.T) {
	bubble(t, Limits{Attempts: 1}, func(w *world) {
		w.net.set(key(1), absent)
		w.start()
		defer w.stop()
		w.pin(1, self, other)
		w.pass(moment)
		w.wantPhase(1, state.GaveUp)
		w.net.set(key(1), good)
		w.says(other, 1, state.Held)
		w.pass(moment)
		w.wantPhase(1, state.Held)
	})
}

// A fetch asks the holders of a root first, then the nodes that it is allocated to, then other members.
func TestSourcesAreHoldersThenAllocatedThenOthers(t *testing.T) {
	bubble(t, Limits{Backoff: time.Second}, func(w *world) {
		w.state.Apply(w, &state.JoinNode{Node: clustertest.Members("0")[0], At: 1})
		w.pin(1, self, other, third)
		w.says(third, 1, state.Held)
		w.start()
		defer w.stop()
		w.pass(moment)
		jobs := w.net.fetched(key(1))
		if want := []state.NodeID{third, other, "0"}; len(jobs) != 1 || !slices.Equal(jobs[0].Members, want) {
			w.Fatalf("jobs %+v, want one from %v", jobs, want)
		}
		if jobs[0].Reference != "root/"+key(1).Cid().String() {
			w.Fatalf("reference %q", jobs[0].Reference)
		}
		if jobs[0].Of != 3 || jobs[0].Sharing != 2 {
			w.Errorf("%d of its members keep it too, of %d nodes, want 2 of 3", jobs[0].Sharing, jobs[0].Of)
		}
	})
}

// A node that fetches with others has its own place, and asks the others in the order of the places after it.
func TestEveryNodeHasItsShareOfAFetch(t *testing.T) {
	bubble(t, Limits{Backoff: time.Second}, func(w *world) {
		w.state.Apply(w, &state.JoinNode{Node: clustertest.Members("0")[0], At: 1})
		w.pin(1, third, self, other, "0")
		w.start()
		defer w.stop()
		w.pass(moment)
		jobs := w.net.fetched(key(1))
		view, release := w.state.LocalView()
		defer release()
		root, err := view.Root(key(1))
		if err != nil || len(jobs) != 1 {
			w.Fatalf("%d jobs, %v", len(jobs), err)
		}
		job := jobs[0]
		if job.Of != 4 || root.Copies[job.Index].Node != self || len(job.Members) != 3 || job.Sharing != 3 {
			w.Fatalf("job %+v of copies %v", job, root.Copies)
		}
		for i, n := range job.Members {
			if want := root.Copies[(job.Index+1+i)%4].Node; n != want {
				w.Errorf("member %d is %s, want %s", i, n, want)
			}
		}
	})
}

// Fetches to which nothing comes make room for later pins, and fail while others wait for their slots.
func TestContentNobodyHasDoesNotKeepOthersOut(t *testing.T) {
	limits := Limits{Moving: 4, Waiting: 16, Attempts: 2, Patience: time.Minute}
	bubble(t, limits, func(w *world) {
		for n := range 100 {
			w.net.set(key(n), silent)
			w.pin(n)
		}
		w.start()
		defer w.stop()
		w.pass(time.Second)
		for n := 100; n < 150; n++ {
			w.pin(n)
		}
		w.pass(4 * DefaultRotateAfter)
		for n := 100; n < 150; n++ {
			w.wantPhase(n, state.Held)
		}
		if most := w.net.atMost(); most > limits.Moving+limits.Waiting {
			w.Fatalf("%d fetches at the same time", most)
		}
		w.pass(2 * time.Hour)
		failed := 0
		for n := range 100 {
			s, detail := w.status(state.RequestID(fmt.Sprintf("pin-%d", n+1)))
			if s != state.Failed {
				continue
			}
			failed++
			if !strings.Contains(detail, "no block of it has come within 1m") {
				w.Fatalf("pin %d: %q", n, detail)
			}
		}
		if failed < 100-limits.Waiting { // the last ones need not yield to anybody
			w.Fatalf("%d failed", failed)
		}
	})
}

// Pins whose content stops half way fail, however many wait for their slots. Parts that an attempt finds here already
// are no progress.
func TestHalfContentFailsAmongMany(t *testing.T) {
	limits := Limits{Moving: 8, Waiting: 8, Attempts: 1, Patience: time.Minute}
	bubble(t, limits, func(w *world) {
		w.net.rest = stalls(3)
		for n := range 40 {
			w.pin(n)
		}
		w.start()
		defer w.stop()
		w.pass(2 * time.Hour)
		if n := int(w.totals()[state.Failed]); n < 40-limits.Moving-limits.Waiting {
			w.Fatalf("%d of 40 failed", n)
		}
	})
}

// A fetch that stalls loses its slot to one that waits after DefaultRotateAfter.
func TestFetchesThatStallMakeRoom(t *testing.T) {
	bubble(t, Limits{Moving: 2, Waiting: 8}, func(w *world) {
		w.start()
		defer w.stop()
		w.pass(moment)
		for n := range 2 {
			w.net.set(key(n), stalls(5))
			w.pin(n)
		}
		w.pass(time.Second)
		w.pin(10)
		w.pass(moment)
		if bytes, blocks, ok := w.tracker.Progress(key(0)); !ok || bytes != 50 || blocks != 5 {
			w.Fatalf("progress %d bytes in %d blocks, %t", bytes, blocks, ok)
		}
		w.wantPhase(10, state.Assigned) // both moving slots are taken
		w.pass(DefaultRotateAfter + 2*slotCheck)
		w.wantPhase(10, state.Held)
	})
}

// No more fetches run at the same time than the limits have slots, and each root is fetched once.
func TestMovingFetchesAreBounded(t *testing.T) {
	bubble(t, Limits{Moving: 3, Waiting: 1}, func(w *world) {
		w.net.rest = slow(5)
		for n := range 20 {
			w.pin(n)
		}
		w.start()
		defer w.stop()
		w.pass(5 * time.Minute)
		for n := range 20 {
			w.wantPhase(n, state.Held)
			if jobs := len(w.net.fetched(key(n))); jobs != 1 {
				w.Fatalf("root %d fetched %d times", n, jobs)
			}
		}
		if most := w.net.atMost(); most > 4 {
			w.Fatalf("%d fetches at the same time, want 4 at the most", most)
		}
	})
}

// Reports share commands, and at least half of the reports of a fetch are superseded by one that it is held.
func TestReportsAreBatchedAndSuperseded(t *testing.T) {
	bubble(t, Limits{Waiting: 4096}, func(w *world) {
		const roots = 2000
		for n := range roots {
			w.pin(n)
		}
		w.start()
		defer w.stop()
		w.pass(time.Second)
		if n := w.state.commands(); n > 2*roots/state.MaxReports+2 {
			w.Fatalf("%d commands for %d roots", n, roots)
		}
		fetching := 0
		for n := range roots {
			got := w.state.reported(key(n))
			if len(got) == 0 || got[len(got)-1] != state.Held {
				w.Fatalf("root %d reported %v", n, got)
			}
			fetching += len(got) - 1
		}
		if fetching > roots/2 {
			w.Fatalf("%d reports were superseded before they were sent, and sent", fetching)
		}
	})
}

// A fetch that takes time is reported when it is under way and when its content is held.
func TestFetchingIsReportedOfWhatTakesTime(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.net.set(key(1), slow(3))
		w.start()
		defer w.stop()
		w.pin(1)
		w.pass(time.Second)
		w.wantPhase(1, state.Fetching)
		w.pass(3 * time.Second)
		if got, want := w.state.reported(key(1)), []state.Phase{state.Fetching, state.Held}; !slices.Equal(got, want) {
			w.Fatalf("reported %v, want %v", got, want)
		}
	})
}

// Without a majority a node fetches on and drops nothing; with one it drops what was deleted and reports the newest
// phase.
func TestWithoutMajorityNothingIsLostOrDropped(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.net.rest = slow(3)
		w.start()
		defer w.stop()
		gone := w.pin(1)
		w.pin(2)
		w.pass(10 * time.Second)
		w.pin(3)
		w.state.Before(func(cmd state.Command) {
			if _, ok := cmd.(*state.DeletePin); ok {
				w.state.Fail(state.ErrUnavailable)
			}
		})
		w.unpin(gone) // the last that the majority commits before it is gone
		w.state.Before(nil)
		w.pass(time.Minute)
		w.wantSealed(1, true)
		w.wantSealed(3, true)
		w.wantPhase(3, state.Assigned)
		w.state.Fail(nil)
		w.pass(maxViewWait + maxReportPause)
		w.wantNothingHere(1)
		w.wantPhase(3, state.Held)
		if got := w.state.reported(key(3)); !slices.Equal(got, []state.Phase{state.Held}) {
			w.Fatalf("reported %v, want only the newest phase", got)
		}
		w.wantIdle()
	})
}

// A node whose local state is stale drops nothing that the cluster wants. What looks like garbage there may be wanted
// since.
func TestAStaleLocalStateDeletesNothing(t *testing.T) {
	bubble(t, Limits{Audit: time.Minute}, func(w *world) {
		w.state.lag(true)
		w.pin(1, self, other)
		w.says(self, 1, state.Held)
		w.store.put(Reference(key(1)), owned{sealed: true, bytes: 100, blocks: 10})
		w.store.put(Reference(key(2)), owned{sealed: true, bytes: 100, blocks: 10})
		w.start()
		defer w.stop()
		w.pass(5 * time.Minute)
		w.wantSealed(1, true)
		w.wantNothingHere(2)
		w.state.lag(false)
		w.pass(5 * time.Minute)
		w.wantSealed(1, true)
		if got := w.store.dropped(); !slices.Equal(got, []string{Reference(key(2))}) {
			w.Fatalf("dropped %v", got)
		}
	})
}

// 10,000 pins are held by a tracker that may know 256 roots at a time.
func TestTenThousandRootsInLittleMemory(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before bool
	}{{"found at the start", true}, {"told one by one", false}} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, Limits{Known: 256, Waiting: 32}, func(w *world) {
				const roots = 10_000
				if !tc.before {
					w.start()
				}
				for n := range roots {
					w.pin(n)
				}
				if tc.before {
					w.start()
				}
				defer w.stop()
				w.pass(time.Minute)
				view, release := w.state.State.LocalView()
				held, wanted, err := view.CopiesOn(self)
				release()
				if err != nil || held != roots || wanted != roots {
					w.Fatalf("%d of %d held, %v", held, wanted, err)
				}
				w.wantIdle()
			})
		})
	}
}

// All of 100 pins are held after five restarts in the middle of their fetches.
func TestRestartInTheMiddle(t *testing.T) {
	bubble(t, Limits{Waiting: 8, Moving: 8}, func(w *world) {
		w.net.rest = slow(2)
		for n := range 100 {
			w.pin(n)
		}
		for range 5 {
			w.start()
			w.pass(5 * time.Second)
			w.stop()
		}
		w.start()
		w.pass(time.Minute)
		w.stop()
		for n := range 100 {
			w.wantPhase(n, state.Held)
			w.wantSealed(n, true)
		}
	})
}

// The start drops all leases of earlier runs, and no lease of this run is dropped.
func TestLeasesOfEarlierRunsAreDropped(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		for n := range pageRoots + 10 {
			w.store.put(fmt.Sprintf("lease/%d", n), owned{})
		}
		w.start()
		defer w.stop()
		w.pass(moment)
		if n := len(w.store.dropped()); n != pageRoots+10 {
			w.Fatalf("%d leases dropped", n)
		}
		w.store.put("lease/new", owned{})
		if err := w.tracker.DropLeases(w.Context()); err != nil {
			w.Fatal(err)
		}
		w.pass(time.Hour)
		if _, ok := w.store.get("lease/new"); !ok {
			w.Fatal("a lease of this run was dropped")
		}
	})
}

// A root is held after the block store has failed and works again.
func TestABlockStoreInTroubleIsAskedAgain(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.store.setFail(errors.New("disk"))
		w.start()
		defer w.stop()
		w.pin(1)
		w.pass(moment)
		w.wantPhase(1, state.Assigned)
		w.store.setFail(nil)
		w.pass(DefaultMaxBackoff)
		w.wantPhase(1, state.Held)
	})
}
