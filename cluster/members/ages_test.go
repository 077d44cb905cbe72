package members

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Missing copies are counted and listed by the age of their content too. The age is the time since the first
// moment after the pin that this node remembers, or since the first check of the state after it.
func TestMissingCopiesAreCountedByAge(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.now = time.UnixMilli(1_000_000_000)
	all := []state.NodeID{"a", "b", "c"}
	index := func() uint64 {
		view, release := w.state.LocalView()
		defer release()
		return view.Index()
	}
	old := w.pinnedOn(t, "old", 5, all, "a")
	w.state.Apply(t, &state.CheckState{At: state.MillisOf(w.now)}) // the node that remembers it has been restarted since
	w.now = w.now.Add(6 * time.Hour)
	w.pinnedOn(t, "hours", 5, all, "a", "b")
	w.ages.note(index(), w.now)
	w.now = w.now.Add(7 * time.Hour)
	w.pinnedOn(t, "minutes", 5, all, "a", "b")
	w.ages.note(index(), w.now)
	w.now = w.now.Add(20 * time.Minute)
	w.pinnedOn(t, "new", 5, all, "a", "b")
	ages := func() (all []string) {
		s, err := w.Shortage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range s.Rows {
			all = append(all, fmt.Sprintf("%s%v", r.Node, r.ByAge))
		}
		return all
	}
	if got := ages(); !slices.Equal(got, []string{"a[0 0 0 0 0]", "b[0 0 0 0 1]", "c[1 1 0 1 1]"}) {
		t.Errorf("missing are %v", got)
	}
	rows, next, err := w.MissingOn(t.Context(), "c", Class{OfAges: true, Number: 4}, "", 10)
	if err != nil || next != "" || len(rows) != 1 || rows[0].Root != old || rows[0].Age != 13*time.Hour+20*time.Minute {
		t.Errorf("%+v, %q, %v", rows, next, err)
	}
	for i, want := range []bool{true, true, true, true, true, false} {
		if (Class{OfAges: true, Number: i}).Known() != want || (Class{Number: i}).Known() != want || (Class{Number: -1 - i}).Known() {
			t.Errorf("class %d", i)
		}
	}
}

// Every age is in one class, and the moments that a node remembers are bounded and reach back to the last
// class.
func TestAgesAreClassed(t *testing.T) {
	for age, want := range map[time.Duration]int{
		0: 0, 10*time.Minute - 1: 0, 10 * time.Minute: 1, time.Hour: 2, 6*time.Hour - 1: 2, 6 * time.Hour: 3, 12 * time.Hour: 4, 1000 * time.Hour: 4,
	} {
		if got := ageClass(age); got != want {
			t.Errorf("%s is of class %d", age, got)
		}
		bound, bounded := AgeBound(want)
		if bounded != (want < AgeClasses-1) || bounded && age >= bound {
			t.Errorf("%s is not below %s", age, bound)
		}
	}
	var a ages
	start := time.UnixMilli(1_000_000)
	for i := range 3 * momentsKept {
		a.note(uint64(i), start.Add(time.Duration(i)*momentEvery/2))
	}
	last := a.moments[len(a.moments)-1]
	if len(a.moments) != momentsKept || ageClass(last.at.Sub(a.moments[0].at)) != AgeClasses-1 {
		t.Errorf("%d moments, from %s to %s", len(a.moments), a.moments[0].at, last.at)
	}
	if got := ageOf(a.moments, last.index+1, last.at); got != 0 {
		t.Errorf("content after the last moment is %s old", got)
	}
	if got := ageOf(a.moments, last.index-3, last.at.Add(time.Second)); got != momentEvery+time.Second {
		t.Errorf("content before the last moment but one is %s old", got)
	}
	a.note(last.index+5, last.at.Add(-time.Hour)) // the clock was set
	if got := ageOf(a.moments, last.index+1, last.at.Add(-2*time.Hour)); got < 0 {
		t.Errorf("an age of %s", got)
	}
}
