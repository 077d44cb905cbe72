package objects

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Pages by size or time, of any length and in both directions, together have every folder and every object once and
// in order. Objects of one value are by name.
func TestPagesBySizeAndTimeAreInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	var all state.ObjectsPage
	for i := range 60 {
		all.Prefixes = append(all.Prefixes, fmt.Sprintf("p/%02d/", i))
		all.Objects = append(all.Objects, state.Object{Key: fmt.Sprintf("p/k%02d", random.IntN(10_000)*100+i), Size: random.Uint64N(5), Created: state.Millis(random.Int64N(7))})
	}
	for _, q := range []SortedQuery{{}, {Descending: true}, {ByTime: true}, {ByTime: true, Descending: true}} {
		want := slices.Clone(all.Objects)
		slices.SortFunc(want, func(a, b state.Object) int {
			by := cmp.Compare(a.Size, b.Size)
			if q.ByTime {
				by = cmp.Compare(a.Created, b.Created)
			}
			if q.Descending {
				by = -by
			}
			return cmp.Or(by, strings.Compare(a.Key, b.Key))
		})
		for _, limit := range []int{1, 7, 60, 119, 120, 500} {
			q := q
			q.Prefix, q.Delimiter, q.Limit = "p/", "/", limit
			var prefixes []string
			var objects []state.Object
			for range 121 {
				page := q.page(&state.ObjectsPage{Objects: slices.Clone(all.Objects), Prefixes: all.Prefixes})
				prefixes, objects = append(prefixes, page.Prefixes...), append(objects, page.Objects...)
				if len(page.Prefixes)+len(page.Objects) > limit || page.Truncated && len(page.Prefixes)+len(page.Objects) != limit {
					t.Fatalf("%+v: a page of %d and %d", q, len(page.Prefixes), len(page.Objects))
				}
				if !page.Truncated {
					break
				}
				if q.After = page.Next; len(page.Objects) > 0 {
					q.Value = q.value(&page.Objects[len(page.Objects)-1])
				}
			}
			same := slices.EqualFunc(objects, want, func(a, b state.Object) bool { return a.Key == b.Key })
			if !slices.Equal(prefixes, all.Prefixes) || !same {
				t.Errorf("%+v gives %d prefixes and %d objects, in order: %t", q, len(prefixes), len(objects), same)
			}
		}
	}
}

// A list is sorted if it has at most as many entries as the bound, where a folder is one entry.
func TestOnlyListsWithinTheBoundAreSorted(t *testing.T) {
	w := newWorld(t)
	if err := w.objects.CreateBucket(t.Context(), w.account, "sorted", false); err != nil {
		t.Fatal(err)
	}
	for i, key := range []string{"c", "a", "d/1", "d/2", "d/3", "b"} {
		w.put("sorted", key, strings.Repeat("x", i+1))
	}
	page, many, err := w.objects.Sorted(t.Context(), w.account, "sorted", SortedQuery{Delimiter: "/", Descending: true, Limit: 10})
	if err != nil || many || page.Truncated || !slices.Equal(page.Prefixes, []string{"d/"}) {
		t.Fatalf("%+v, %t, %v", page, many, err)
	}
	var keys []string
	for _, o := range page.Objects {
		keys = append(keys, o.Key)
	}
	if !slices.Equal(keys, []string{"b", "a", "c"}) {
		t.Errorf("by size: %q", keys)
	}
	view, release := w.state.LocalView()
	defer release()
	b, err := view.Bucket(w.account, "sorted")
	if err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]bool{3: true, 4: false} {
		if _, many, err := listAll(t.Context(), view, &b, &SortedQuery{Delimiter: "/"}, most); err != nil || many != want {
			t.Errorf("with a bound of %d: %t, %v", most, many, err)
		}
	}
	if _, _, err := w.objects.Sorted(t.Context(), w.account, "nothing", SortedQuery{Limit: 1}); !errors.Is(err, state.ErrNoBucket) {
		t.Errorf("no bucket: %v", err)
	}
}
