package members

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// leaves moves the copy of a root from c to d.
func (w *world) leaves(t *testing.T, k state.RootKey) {
	t.Helper()
	born := w.born(t, k)
	w.state.Apply(t, &state.PlaceRoots{Items: []state.Placement{{Root: k, Born: born, Nodes: []state.NodeID{"a", "d"}, Held: []state.NodeID{"a"}}}})
	w.state.Apply(t, &state.ReportCopies{Node: "d", Items: []state.CopyReport{{Root: k, Born: born, Phase: state.Held, Size: 1000, Blocks: 1}}})
}

// The drain of a member shows what is left, the rate of the last minute and the time left. The rate is unknown
// until the node has watched for some time, and the time left while nothing moves.
func TestTheDrainOfAMemberHasARateAndATimeLeft(t *testing.T) {
	w := newWorld(t, "a", "b", "c", "d")
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	var keys []state.RootKey
	for i := range 20 {
		keys = append(keys, w.pinnedOn(t, fmt.Sprint(i), 1000, []state.NodeID{"a", "c"}, "a", "c"))
	}
	look := func() *Drain {
		t.Helper()
		plan, err := w.DrainPlan(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		return plan.Drain
	}
	if d := look(); d != nil {
		t.Errorf("before the drain: %+v", d)
	}
	if err := w.Drain(t.Context(), "c", true); err != nil {
		t.Fatal(err)
	}
	w.refresh(t)
	tick := func(d time.Duration) {
		for end := w.now.Add(d); w.now.Before(end); {
			w.now = w.now.Add(time.Second)
			if err := w.sampleDrains(); err != nil {
				t.Fatal(err)
			}
		}
	}
	tick(time.Second)
	if d := look(); d.Roots != 20 || d.Bytes == nil || *d.Bytes != 20_000 || d.Rate != nil {
		t.Errorf("at the beginning: %+v", d)
	}
	tick(10 * time.Second)
	if d := look(); d.Rate == nil || *d.Rate != (DrainRate{}) {
		t.Errorf("while nothing moves: %+v", d.Rate)
	}
	for _, k := range keys[:5] {
		w.leaves(t, k)
	}
	tick(20 * time.Second)
	if d := look(); d.Roots != 15 || *d.Bytes != 15_000 || *d.Rate != (DrainRate{RootsPerMinute: 10, BytesPerMinute: 10_000, Left: 90 * time.Second}) {
		t.Errorf("after half a minute: %d, %d, %+v", d.Roots, *d.Bytes, d.Rate)
	}
	tick(2 * time.Minute)
	if d := look(); d.Rate.RootsPerMinute != 0 || d.Rate.Left != 0 {
		t.Errorf("when the last minute saw nothing: %+v", d.Rate)
	}
	for _, k := range keys[5:] {
		w.leaves(t, k)
	}
	if d := look(); d.Roots != 0 || *d.Bytes != 0 {
		t.Errorf("at the end: %+v", d)
	}
	if n := len(w.drains.of["c"].samples); n > 14 {
		t.Errorf("%d samples are remembered", n)
	}
	if err := w.Drain(t.Context(), "c", false); err != nil {
		t.Fatal(err)
	}
	w.refresh(t)
	tick(time.Second)
	if d := look(); d != nil || len(w.drains.of) != 0 {
		t.Errorf("after the drain: %+v, %v", d, w.drains.of)
	}
}

// The size of more contents than one sample reads is unknown until all were read once, and then an
// estimate by their mean.
func TestTheSizeOfManyContentsIsEstimated(t *testing.T) {
	w := newWorld(t, "a", "b", "c", "d")
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	const roots = maxDrainRead + 100
	for i := range roots {
		w.pinnedOn(t, fmt.Sprint(i), 1000, []state.NodeID{"a", "c"}, "a", "c")
	}
	if err := w.Drain(t.Context(), "c", true); err != nil {
		t.Fatal(err)
	}
	look := func() *Drain {
		t.Helper()
		w.now = w.now.Add(drainEvery)
		s, err := w.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Peers[2].Drain
	}
	if d := look(); d.Roots != roots || d.Bytes != nil {
		t.Errorf("first: %+v", d)
	}
	if d := look(); d.Bytes == nil || *d.Bytes != roots*1000 {
		t.Errorf("second: %+v", d)
	}
	if d := look(); d.Bytes == nil || *d.Bytes != roots*1000 || d.Rate == nil {
		t.Errorf("third: %+v", d)
	}
}

// A read of the state that fails is an error of the plan or of the sample of a drain.
func TestADrainThatCannotBeReadIsNoDrain(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	w.pinnedOn(t, "1", 1000, []state.NodeID{"a", "c"}, "a", "c")
	if err := w.Drain(t.Context(), "c", true); err != nil {
		t.Fatal(err)
	}
	w.refresh(t)
	w.state.EachReadFails(t, func() error {
		w.now = w.now.Add(drainEvery)
		_, err := w.DrainPlan(t.Context(), "c")
		return errors.Join(err, w.sampleDrains())
	})
}

// The time left of a drain is unknown, and not negative, when a minute saw only one small content of many large
// ones leave.
func TestATimeLeftBeyondAllBoundsIsNotKnown(t *testing.T) {
	begun := time.Now()
	whole, rest := uint64(1<<50), uint64(1<<50-1)
	r := rateOf([]drainSample{{begun, 1001, &whole, true}, {begun.Add(time.Minute), 1000, &rest, true}})
	if r == nil || r.BytesPerMinute != 1 || r.Left != 0 {
		t.Errorf("the rate is %+v", r)
	}
	if left, known := (&Drain{Roots: 1000, Bytes: &rest, Rate: r}).Left(); known {
		t.Errorf("%s are left", left)
	}
}
