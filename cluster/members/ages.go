package members

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// ageBounds are the upper bounds of the age classes. The last class has none.
var ageBounds = [AgeClasses - 1]time.Duration{10 * time.Minute, time.Hour, 6 * time.Hour, 12 * time.Hour}

// AgeClasses is the number of age classes by which missing copies are counted.
const AgeClasses = 5

// AgeBound returns the upper bound of an age class. The last class has none: bounded is false,
// and age is the smallest age in the class.
func AgeBound(class int) (age time.Duration, bounded bool) {
	if class < len(ageBounds) {
		return ageBounds[class], true
	}
	return ageBounds[len(ageBounds)-1], false
}

func ageClass(age time.Duration) int {
	class, found := slices.BinarySearch(ageBounds[:], age)
	if found {
		class++ // a bound is the lowest age of the next class
	}
	return class
}

const (
	momentEvery = time.Minute // interval between two moments that a node remembers
	// momentsKept is the number of moments that a node remembers. They cover a little more than
	// the highest age bound.
	momentsKept = 12*60 + 10
)

// moment is a time at which a node had applied the log up to an index. Content whose record was
// created by an entry up to this index is at least as old as the moment.
type moment struct {
	index uint64
	at    time.Time
}

// ages has the moments that this node remembers since its start, oldest first. They are used to
// estimate the age of content, because roots have no creation time.
type ages struct {
	mu      sync.Mutex // guards moments
	moments []moment
}

// note records that the log is applied up to index, at most once per momentEvery.
func (a *ages) note(index uint64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.moments)
	if n > 0 && now.Sub(a.moments[n-1].at).Abs() < momentEvery {
		return
	}
	if n == momentsKept {
		a.moments = slices.Delete(a.moments, 0, 1)
	}
	a.moments = append(a.moments, moment{index, now})
}

// in returns the moments that this node remembers, and those of the state checks, which are in
// the replicated state and so survive a restart of this node.
func (a *ages) in(view state.View) ([]moment, error) {
	checks, err := view.Checks()
	if err != nil {
		return nil, fmt.Errorf("read checks: %w", err)
	}
	a.mu.Lock()
	all := slices.Clone(a.moments)
	a.mu.Unlock()
	for _, c := range checks {
		all = append(all, moment{c.Index, c.At.Time()})
	}
	slices.SortFunc(all, func(a, b moment) int { return cmp.Or(cmp.Compare(a.index, b.index), a.at.Compare(b.at)) })
	return all, nil
}

// ageOf returns the minimum age of content whose record was created by the entry born: the
// largest age that the moments prove, which may be too small by momentEvery, or 0.
func ageOf(moments []moment, born uint64, now time.Time) time.Duration {
	i, _ := slices.BinarySearchFunc(moments, born, func(m moment, born uint64) int { return cmp.Compare(m.index, born) })
	if i == len(moments) {
		return 0
	}
	return max(0, now.Sub(moments[i].at))
}
