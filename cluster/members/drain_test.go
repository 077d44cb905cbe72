package members

import (
	"errors"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A drain begins once all members know it, is in the status until it is ended, and spares the last member that
// keeps content.
func TestAMemberIsDrained(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	if err := w.Drain(t.Context(), "c", true); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("before all members know it: %v", err)
	}
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	w.loads["a"], w.loads["b"] = Load{State: "alive", FreeBytes: 3}, Load{State: "alive", FreeBytes: 4}
	plan, err := w.DrainPlan(t.Context(), "c")
	if err != nil || plan.ID != "c" || plan.Others != 2 || plan.Free != 7 || plan.Copies != 3 || plan.CopiesThen != 2 {
		t.Errorf("the plan is %+v, %v", plan, err)
	}
	for range 2 { // a repeat changes nothing
		if err := w.Drain(t.Context(), "c", true); err != nil {
			t.Fatal(err)
		}
	}
	w.refresh(t)
	if !w.Drained()["c"] || len(w.Drained()) != 1 {
		t.Errorf("drained are %v", w.Drained())
	}
	status, err := w.Status(t.Context())
	if err != nil || status.Peers[2].State != Draining || status.Peers[1].State != "alive" {
		t.Errorf("the status is %+v, %v", status.Peers, err)
	}
	w.loads["c"] = Load{State: "down"}
	if status, err := w.Status(t.Context()); err != nil || status.Peers[2].State != "down" {
		t.Errorf("one that does not answer is %+v, %v", status.Peers[2], err)
	}
	if err := w.Drain(t.Context(), "b", true); err != nil {
		t.Error(err)
	}
	if err := w.Drain(t.Context(), "a", true); !errors.Is(err, state.ErrConflict) {
		t.Errorf("the last member that keeps content: %v", err)
	}
	if err := w.Drain(t.Context(), "x", true); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("no member: %v", err)
	}
	if _, err := w.DrainPlan(t.Context(), "x"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("the plan for no member: %v", err)
	}
	if err := w.Drain(t.Context(), "b", false); err != nil {
		t.Error(err)
	}
	w.refresh(t)
	if w.Drained()["b"] {
		t.Error("a drain that was ended goes on")
	}
	w.state.EachReadFails(t, func() error {
		_, err := w.DrainPlan(t.Context(), "c")
		return err
	})
}
