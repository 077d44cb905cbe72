package tracker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// repinning is bubble in a cluster of a level at which roots say when they were pinned anew.
func repinning(t *testing.T, limits Limits, fn func(w *world)) {
	t.Helper()
	bubble(t, limits, func(w *world) {
		w.state.Apply(w, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
		fn(w)
	})
}

// A new pin begins a fetch again of which nothing comes, or that waits for its next attempt, and lets one go on that
// moves. Its author may have brought the content.
func TestANewPinHasWhatIsStuckTriedAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		before  behaviour
		after   behaviour
		attempt int // that a new pin finds under way, or over
		soon    bool
	}{
		"nothing comes":  {silent, good, 1, true},
		"some has come":  {stalls(3), good, 1, true},
		"nobody has it":  {absent, good, 1, true},
		"it is coming":   {slow(60), good, 1, false},
		"still not here": {silent, silent, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			repinning(t, Limits{Attempts: 3, Backoff: time.Minute, MaxBackoff: time.Minute, Patience: time.Hour}, func(w *world) {
				w.net.set(key(1), tc.before)
				w.pin(1)
				w.start()
				defer w.stop()
				w.pass(10 * time.Second)
				if jobs := w.net.fetched(key(1)); len(jobs) != tc.attempt {
					w.Fatalf("%d attempts", len(jobs))
				}
				w.net.set(key(1), tc.after)
				w.pin(1)
				w.pass(2 * time.Second)
				if phase := w.root(1).Copies[0].Phase; (phase == state.Held) != tc.soon {
					w.Errorf("2 s after another pin it is %v, in %d attempts", phase, len(w.net.fetched(key(1))))
				}
				// No change but a new pin has it begin again.
				tried := len(w.net.fetched(key(1)))
				w.pass(10 * time.Second)
				if jobs := w.net.fetched(key(1)); len(jobs) != tried {
					w.Errorf("%d attempts, %d of them without a reason", len(jobs), len(jobs)-tried)
				}
			})
		})
	}
}

// late finds nobody, before it is known that nothing comes.
func late(ctx context.Context, _ *network, _ Job, _ func(uint64, uint64)) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(stuckAfter * 3 / 4):
		return errNobody
	}
}

// Every new pin of content that is stuck has it tried within 2 s, whenever in the life of an attempt it comes. It may
// come before it is known that nothing comes, after another pin that went, or in the place of one.
func TestEveryNewPinHasWhatIsStuckTried(t *testing.T) {
	const soon = 2 * time.Second
	brought := func(w *world, _ state.RequestID) {
		w.net.set(key(1), good)
		w.pin(1)
	}
	for name, tc := range map[string]struct {
		before   behaviour
		attempts int
		pins     func(w *world, first state.RequestID)
	}{
		"after more time than it has without a block": {silent, 1, func(w *world, _ state.RequestID) {
			w.pass(2 * time.Hour)
			w.net.set(key(1), good)
			w.pin(1)
		}},
		"as an attempt fails":       {late, 3, brought},
		"as the last attempt fails": {late, 1, brought},
		"in the first second":       {silent, 3, brought},
		"after one that went": {silent, 3, func(w *world, _ state.RequestID) {
			w.pass(10 * time.Second)
			id := w.pin(1)
			w.pass(10 * time.Second)
			w.unpin(id)
			w.pass(10 * time.Second)
			w.net.set(key(1), good)
			w.pin(1)
		}},
		"as another goes": {silent, 3, func(w *world, first state.RequestID) {
			w.pass(10 * time.Second)
			w.net.set(key(1), good)
			w.pin(1)
			w.unpin(first)
		}},
		"in the place of another": {silent, 3, func(w *world, first state.RequestID) {
			w.pass(10 * time.Second)
			w.net.set(key(1), good)
			w.state.Apply(w, &state.ReplacePin{Old: first, Pin: w.newPin("another", 1), Nodes: []state.NodeID{self}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			repinning(t, Limits{Attempts: tc.attempts, Backoff: time.Minute, MaxBackoff: time.Minute, Patience: time.Hour}, func(w *world) {
				w.net.set(key(1), tc.before)
				first := w.pin(1)
				w.start()
				defer w.stop()
				w.pass(stuckAfter / 2)
				tc.pins(w, first)
				w.pass(soon)
				if phase := w.root(1).Copies[0].Phase; phase != state.Held {
					w.Errorf("%s after the pin it is %v, in %d attempts", soon, phase, len(w.net.fetched(key(1))))
				}
			})
		})
	}
}

// 80 pins begin a fetch of which nothing comes again at most six times, and never one that moves. Each time it has
// twice the time of the one before.
func TestManyPinsLeaveAFetchTheTimeToFindSomebody(t *testing.T) {
	for name, tc := range map[string]struct {
		net  behaviour
		most int
	}{"nobody answers": {silent, 7}, "it is coming": {slow(90), 1}} {
		t.Run(name, func(t *testing.T) {
			repinning(t, Limits{Patience: time.Hour}, func(w *world) {
				w.net.set(key(1), tc.net)
				w.start()
				defer w.stop()
				for range 80 {
					w.pin(1)
					w.pass(stuckAfter)
				}
				if tried := len(w.net.fetched(key(1))); tried > tc.most {
					w.Errorf("%d attempts, want %d at most", tried, tc.most)
				}
			})
		})
	}
}

// A fetch that moved since the last pin is not begun again, also when it stands still later. It is the fetch that the
// pin would have begun.
func TestAFetchThatMovedSinceThePinGoesOn(t *testing.T) {
	bubble(t, Limits{Patience: time.Hour}, func(w *world) {
		w.net.set(key(1), func(ctx context.Context, f *network, job Job, progress func(uint64, uint64)) error {
			if err := slow(3)(ctx, f, job, progress); err != nil {
				return err
			}
			return silent(ctx, f, job, progress)
		})
		w.pin(1)
		w.start()
		defer w.stop()
		w.pass(2 * time.Second)
		w.pin(1)
		w.pass(20 * stuckAfter)
		if tried := len(w.net.fetched(key(1))); tried != 1 {
			w.Errorf("%d attempts, the first of which had moved since the last pin", tried)
		}
	})
}

// Each of five more pins of the same content has it tried, and none of them brings the first pin to its end sooner.
func TestManyPinsDoNotUseUpTheAttempts(t *testing.T) {
	repinning(t, Limits{Attempts: 2, Backoff: time.Hour, MaxBackoff: time.Hour, Patience: time.Hour}, func(w *world) {
		w.net.set(key(1), absent)
		first := w.pin(1)
		w.start()
		defer w.stop()
		w.pass(time.Second)
		for range 5 {
			w.pin(1)
			w.pass(time.Second)
		}
		if got, why := w.status(first); got == state.Failed {
			w.Errorf("after five more pins it is failed: %s", why)
		}
		if tried := len(w.net.fetched(key(1))); tried < 6 {
			w.Errorf("%d attempts for six pins", tried)
		}
		w.pass(2 * time.Hour)
		if got, _ := w.status(first); got != state.Failed {
			w.Errorf("after the last attempt it is %v", got)
		}
	})
}

// A pin is tried without a pause also if no news of it came: too much changed at once, the process was down, or the
// content was just given up.
func TestAPinOfWhichNoNewsCameIsTriedAtOnce(t *testing.T) {
	brought := func(w *world) {
		w.net.set(key(1), good)
		w.pin(1)
	}
	// overflow has the dispatcher told of what fn changes by no more than All.
	overflow := func(w *world, fn func(w *world)) {
		w.state.mu.Lock()
		w.state.viewed = sync.OnceFunc(func() {
			fn(w)
			w.state.Watch.Replace(1 << 20)
		})
		w.state.mu.Unlock()
		w.pin(2) // this is what it looks at meanwhile
	}
	for name, tc := range map[string]struct {
		before   behaviour
		attempts int
		pins     func(w *world)
	}{
		"it waits, and too much changes": {absent, 3, func(w *world) { overflow(w, brought) }},
		"it is stuck, and too much changes": {silent, 3, func(w *world) {
			w.pass(time.Minute)
			overflow(w, brought)
		}},
		"the process is down": {absent, 3, func(w *world) {
			w.stop()
			brought(w)
			w.start()
		}},
		"what came is dropped after the last attempt": {func(ctx context.Context, f *network, job Job, progress func(uint64, uint64)) error {
			<-time.After(time.Minute)
			return vanishes(2)(ctx, f, job, progress)
		}, 1, func(w *world) {
			w.store.mu.Lock()
			w.store.onDrop = func() { brought(w) }
			w.store.mu.Unlock()
			w.pass(time.Minute)
		}},
		"that it is given up waits to be told": {late, 1, func(w *world) {
			w.state.cutOff(true)
			w.pass(10 * time.Second)
			brought(w)
			w.pass(10 * time.Second)
			w.state.cutOff(false)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			repinning(t, Limits{Attempts: tc.attempts, Backoff: time.Hour, MaxBackoff: time.Hour, Patience: time.Hour}, func(w *world) {
				w.net.set(key(1), tc.before)
				w.pin(1)
				w.start()
				defer func() { w.stop() }()
				w.pass(moment)
				tc.pins(w)
				w.pass(3 * time.Second)
				if w.gone(1) {
					w.Fatal("it was given up without an attempt for the pin")
				}
				if phase := w.root(1).Copies[0].Phase; phase != state.Held {
					w.Errorf("3 s after the pin it is %v, in %d attempts", phase, len(w.net.fetched(key(1))))
				}
			})
		})
	}
}

// A pin that an attempt knew of brings no other, also not when its root changes, everything is scanned, or the
// process restarts.
func TestAPinThatAnAttemptKnewOfBringsNoOther(t *testing.T) {
	repinning(t, Limits{Backoff: time.Hour, MaxBackoff: time.Hour}, func(w *world) {
		w.net.set(key(1), absent)
		w.pin(1)
		w.start()
		w.pass(moment)
		for range 2 {
			root := w.root(1)
			w.state.Watch.Publish(root.Born, &state.Effects{Roots: []state.RootChange{{Root: root.Key, Nodes: root.Nodes()}}})
			w.pass(moment)
			w.state.Watch.Replace(root.Born)
			w.pass(moment)
			if tried := len(w.net.fetched(key(1))); tried != 1 {
				w.Errorf("%d attempts for a pin that the first one knew of", tried)
			}
			w.stop()
			w.start()
			w.pass(moment)
		}
		defer w.stop()
		w.pin(1)
		w.pass(moment)
		if tried := len(w.net.fetched(key(1))); tried != 2 {
			w.Errorf("%d attempts, one of them for a later pin", tried)
		}
	})
}

// A pin begins a stuck fetch again after stuckAfter at the latest, or after stuckAfter << maxAgain if many pins did
// so before it. The time is that of the first again once a block has come, and attempts that ended do not lengthen
// it.
func TestHowLongAFetchIsLeftAlone(t *testing.T) {
	const longest = stuckAfter << maxAgain
	for name, tc := range map[string]struct {
		begin  behaviour
		before func(w *world)
		want   time.Duration
	}{
		"at first": {silent, func(*world) {}, stuckAfter},
		"after many pins": {silent, func(w *world) {
			for range maxAgain + 3 {
				w.pin(1)
				w.pass(longest + time.Second)
			}
		}, longest},
		"after many pins and a block": {silent, func(w *world) {
			for range maxAgain {
				w.pin(1)
				w.pass(longest + time.Second)
			}
			w.net.set(key(1), stalls(3))
			w.pin(1)
			w.pass(3 * longest)
			w.net.set(key(1), silent)
			w.pin(1)
			w.pass(5 * stuckAfter)
		}, stuckAfter},
		"after many that ended": {late, func(w *world) {
			for range maxAgain {
				w.pin(1)
				w.pass(stuckAfter * 3 / 4)
			}
			w.net.set(key(1), silent)
			w.pin(1)
			w.pass(10 * stuckAfter)
		}, stuckAfter},
	} {
		t.Run(name, func(t *testing.T) {
			repinning(t, Limits{Attempts: 100, Backoff: time.Hour, MaxBackoff: time.Hour, Patience: time.Hour}, func(w *world) {
				w.net.set(key(1), tc.begin)
				w.pin(1)
				w.start()
				defer w.stop()
				w.pass(moment)
				tc.before(w)
				w.net.set(key(1), good)
				w.pin(1)
				w.pass(tc.want + stuckAfter)
				if phase := w.root(1).Copies[0].Phase; phase != state.Held {
					w.Errorf("%s after a pin it is %v, in %d attempts", tc.want+stuckAfter, phase, len(w.net.fetched(key(1))))
				}
			})
		})
	}
}

// A pin that is ordered before the report that nobody has the content, and after it was
// made, has an attempt of its own.
func TestAPinThatComesBesideGivingUpIsTried(t *testing.T) {
	repinning(t, Limits{}, func(w *world) {
		w.net.set(key(1), vanishes(2))
		var late state.RequestID
		w.state.Before(func(cmd state.Command) {
			r, ok := cmd.(*state.ReportCopies)
			if ok && late == "" && r.Items[0].Phase == state.GaveUp {
				late = w.pin(1, self)
				w.net.set(key(1), good)
			}
		})
		w.start()
		defer w.stop()
		first := w.pin(1, self)
		w.pass(time.Hour)
		if late == "" {
			w.Fatal("it was not given up")
		}
		for _, id := range []state.RequestID{first, late} {
			if s, detail := w.status(id); s != state.Pinned {
				w.Errorf("%s is %s: %s", id, s, detail)
			}
		}
	})
}

// TestAPinThatComesBesideADropThatFailsHasAllAttempts promises that a root which is pinned while
// the parts of its last attempt cannot be dropped is tried as often as a new one.
func TestAPinThatComesBesideADropThatFailsHasAllAttempts(t *testing.T) {
	limits := Limits{Attempts: 3, Backoff: time.Minute, MaxBackoff: time.Hour}
	repinning(t, limits, func(w *world) {
		w.net.set(key(1), vanishes(2))
		var before int
		w.store.stuck = errors.New("disk")
		w.store.onDrop = func() {
			before = len(w.net.fetched(key(1)))
			w.pin(1)
		}
		w.start()
		defer w.stop()
		w.pin(1)
		w.pass(30 * time.Minute) // less than a drop that failed waits
		if before != limits.Attempts {
			w.Fatalf("it was given up after %d attempts, want %d", before, limits.Attempts)
		}
		w.store.setStuck(nil)
		w.pass(24 * time.Hour)
		if !w.gone(1) {
			w.wantPhase(1, state.GaveUp)
		}
		if n := len(w.net.fetched(key(1))) - before; n != limits.Attempts {
			w.Errorf("%d attempts for the pin that came meanwhile, want %d", n, limits.Attempts)
		}
	})
}
