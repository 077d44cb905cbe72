package clustertest

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"pgregory.net/rapid"
)

// contents reads a range of a store into pairs.
func contents(t *rapid.T, r state.Reader, lower, upper []byte, reverse bool) (pairs [][2]string) {
	err := r.Scan(lower, upper, reverse, func(k, v []byte) (bool, error) {
		pairs = append(pairs, [2]string{string(k), string(v)})
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pairs
}

// want returns the same range of a map.
func want(m map[string]string, lower, upper []byte, reverse bool) (pairs [][2]string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if k >= string(lower) && (upper == nil || k < string(upper)) {
			pairs = append(pairs, [2]string{k, m[k]})
		}
	}
	if reverse {
		slices.Reverse(pairs)
	}
	return pairs
}

// The test store gets and scans like an ordered map, and a snapshot of it does not change.
func TestStoreIsAnOrderedMapWithSnapshots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 4, -1)
		tx := &transaction{seed: newSeed()}
		model := map[string]string{}
		old, oldModel := tx.snapshot, maps.Clone(model)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			k := key.Draw(t, "key")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				if err := tx.Delete([]byte(k)); err != nil {
					t.Fatal(err)
				}
				delete(model, k)
			case 1:
				old, oldModel = tx.snapshot, maps.Clone(model)
			default:
				v := key.Draw(t, "value")
				if err := tx.Set([]byte(k), []byte(v)); err != nil {
					t.Fatal(err)
				}
				model[k] = v
			}
			v, ok, err := tx.Get([]byte(k))
			if w, has := model[k]; err != nil || ok != has || string(v) != w {
				t.Fatalf("get %q: %q %v %v, want %q %v", k, v, ok, err, w, has)
			}
		}
		lower, upper := []byte(key.Draw(t, "lower")), []byte(key.Draw(t, "upper"))
		if rapid.Bool().Draw(t, "to the end") {
			upper = nil
		}
		reverse := rapid.Bool().Draw(t, "reverse")
		if got, want := contents(t, tx, lower, upper, reverse), want(model, lower, upper, reverse); !slices.Equal(got, want) {
			t.Fatalf("scan [%s, %s) reverse %v: %v, want %v", lower, upper, reverse, got, want)
		}
		if got, want := contents(t, old, nil, nil, false), want(oldModel, nil, nil, false); !slices.Equal(got, want) {
			t.Fatalf("the snapshot has moved: %v, want %v", got, want)
		}
	})
}

// The test state applies proposals, notifies subscribers, gives views that do not change, and fails as it is told.
func TestStateIsASmallCluster(t *testing.T) {
	s := New(t, Setup{Nodes: Members("n1", "n2")})
	before, release := s.LocalView()
	defer release()
	sub := s.Watch.Subscribe("")
	defer sub.Close()
	sub.Take()
	s.Apply(t, &state.RemoveNode{ID: "n2"})
	if !sub.Take().Members {
		t.Error("nobody is told")
	}
	if nodes, err := before.Nodes(); err != nil || len(nodes) != 2 {
		t.Errorf("the older view has %d nodes, %v", len(nodes), err)
	}
	after, release, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if nodes, err := after.Nodes(); err != nil || len(nodes) != 1 || after.Index() != before.Index()+1 {
		t.Errorf("the newer view has %d nodes, %v", len(nodes), err)
	}
	if _, err := s.Propose(t.Context(), &state.RemoveNode{ID: "n2"}); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("outcome %v", err)
	}
	s.Fail(state.ErrUnavailable)
	if _, err := s.Propose(t.Context(), &state.RemoveNode{ID: "n2"}); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("failed: %v", err)
	}
	if _, err := s.Propose(t.Context(), &state.DeletePin{ID: state.RequestID(make([]byte, state.MaxIDLen+1))}); err == nil {
		t.Error("a command beyond its form is taken")
	}
}
