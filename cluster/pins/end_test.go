package pins

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// ParseEnd reads a time of RFC 3339 or a duration of at least 1 ms, and returns ErrInvalid for any other text.
func TestParseEnd(t *testing.T) {
	for text, want := range map[string]End{
		"2027-01-31T12:00:00Z":           {At: state.Millis(1_801_396_800_000)},
		"2027-01-31t12:00:00z":           {At: state.Millis(1_801_396_800_000)},
		"2027-01-31T14:00:00.1239+02:00": {At: state.Millis(1_801_396_800_123)},
		"720h":                           {For: 720 * time.Hour},
		"1h30m":                          {For: 90 * time.Minute},
		"1ms":                            {For: time.Millisecond},
	} {
		if got, err := ParseEnd(text); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", " ", "720", "-1h", "0s", "1us", "30d", "tomorrow", "2027-01-31", "2027-01-31T12:00:00", "2027-02-30T12:00:00Z", "1960-01-01T00:00:00Z",
		"1h ", "Inf", "9999999999h", strings.Repeat("1h", 40), "1h\x00",
	} {
		if got, err := ParseEnd(text); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
}

// newest returns a world whose cluster has the newest feature level.
func newest(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, clustertest.Setup{})
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	return w
}

// Create, Replace, Get and List tell the end of a pin in UTC under InfoUntil, and no such key for a pin without an
// end.
func TestAllAnswersTellTheEndOfAPin(t *testing.T) {
	w := newest(t)
	begin := state.MillisOf(w.now())
	plain := w.create(t, alice, v0)
	at, err := w.Create(t.Context(), alice, Request{CID: v0, End: End{At: begin + 1}})
	if err != nil {
		t.Fatal(err)
	}
	lasts, err := w.Replace(t.Context(), alice, at.ID, Request{CID: v0, End: End{For: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := at.Info[InfoUntil], "2027-01-15T08:00:00.001Z"; got != want || at.Until != begin+1 {
		t.Errorf("the end is %q, want %q: %+v", got, want, at.Pin)
	}
	const want = "2027-01-15T09:00:00.000Z"
	_, rows, err := w.List(t.Context(), alice, state.PinQuery{Limit: 10, Statuses: state.Statuses()})
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d pins, %v", len(rows), err)
	}
	for name, r := range map[string]Record{"replace": lasts, "get": w.get(t, alice, lasts.ID), "list": rows[0]} {
		if r.Info[InfoUntil] != want || r.Until.Time().UTC().Format(time.RFC3339) != "2027-01-15T09:00:00Z" {
			t.Errorf("%s: %v, want %s", name, r.Info, want)
		}
	}
	for name, r := range map[string]Record{"create": plain, "get": w.get(t, alice, plain.ID), "list": rows[1]} {
		if end, there := r.Info[InfoUntil]; there {
			t.Errorf("%s: a pin without an end has %q", name, end)
		}
	}
	if r, err := w.Replace(t.Context(), alice, lasts.ID, Request{CID: v0}); err != nil || r.Until != 0 || r.Info[InfoUntil] != "" {
		t.Errorf("replaced without an end: %+v, %v", r, err)
	}
}

// The agreed time decides whether an end has passed and from when a duration counts; while it is unknown, the node's
// own clock does.
func TestEndsCountByTheTimeOfMostMembers(t *testing.T) {
	w := newest(t)
	agreed, known := state.MillisOf(w.now()), true
	ahead := New(Options{
		State: w.state, Nodes: w.load, Now: func() time.Time { return w.now().Add(time.Hour) },
		Agreed: func() (early, late state.Millis, ok bool) { return agreed, agreed, known },
	})
	const minute = state.Millis(60_000)
	create := func(end End) (Record, error) { return ahead.Create(t.Context(), alice, Request{CID: v0, End: end}) }
	if r, err := create(End{For: time.Minute}); err != nil || r.Until != agreed+minute {
		t.Errorf("%d, %v", r.Until-agreed, err)
	}
	if r, err := create(End{At: agreed + minute}); err != nil || r.Until != agreed+minute {
		t.Errorf("%d, %v", r.Until-agreed, err)
	}
	pinsOf := func() uint64 {
		t.Helper()
		total, _, err := w.List(t.Context(), alice, state.PinQuery{Limit: 1, Statuses: state.Statuses()})
		if err != nil {
			t.Fatal(err)
		}
		return total
	}
	before := pinsOf()
	if _, err := create(End{At: agreed}); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("an end that has come: %v", err)
	}
	known = false
	if _, err := create(End{At: agreed + minute}); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("an end that has come by the only clock: %v", err)
	}
	if pinsOf() != before {
		t.Error("a refused end made a pin")
	}
}

// Below the feature level of ends, a request with an end or a bound is refused and changes nothing.
func TestEndsWaitForAllMembers(t *testing.T) {
	w := newWorld(t, clustertest.Setup{})
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.PinsEndLevel - 1})
	old := w.create(t, alice, v0)
	for _, r := range []Request{{CID: v0, End: End{For: time.Hour}}, {CID: v0, MaxBytes: 5}} {
		if _, err := w.Create(t.Context(), alice, r); !errors.Is(err, state.ErrUnavailable) || !strings.Contains(err.Error(), "until all members are upgraded") {
			t.Errorf("create: %v", err)
		}
		if _, err := w.Replace(t.Context(), alice, old.ID, r); !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("replace: %v", err)
		}
	}
	if total, rows, err := w.List(t.Context(), alice, state.PinQuery{Limit: 2, Statuses: state.Statuses()}); err != nil || total != 1 || rows[0].ID != old.ID {
		t.Errorf("%d pins: %+v, %v", total, rows, err)
	}
}

// A repeated request with the same duration gets the first pin, and one with another end is refused with ErrExists.
func TestARepeatedDurationMakesOnePin(t *testing.T) {
	w := newest(t)
	now := w.now()
	later := New(Options{State: w.state, Nodes: w.load, Now: func() time.Time { return now.Add(time.Minute) }})
	ctx := Once(t.Context(), state.Hash{1})
	first, err := w.Create(ctx, alice, Request{CID: v0, End: End{For: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := later.Create(ctx, alice, Request{CID: v0, End: End{For: time.Hour}}); err != nil || again.ID != first.ID || again.Until != first.Until {
		t.Errorf("%+v, %v", again, err)
	}
	for _, end := range []End{{}, {For: 2 * time.Hour}, {At: first.Until}} {
		if _, err := later.Create(ctx, alice, Request{CID: v0, End: end}); !errors.Is(err, state.ErrExists) {
			t.Errorf("%+v: %v", end, err)
		}
	}
}

// A request that is repeated after its end gets its first answer, also when the pin has ended; a new request with
// such an end is refused.
func TestARepeatAfterTheEndGetsTheFirstAnswer(t *testing.T) {
	w := newest(t)
	agreed := state.MillisOf(w.now())
	node := New(Options{State: w.state, Nodes: w.load, Now: w.now, Agreed: func() (early, late state.Millis, ok bool) { return agreed, agreed, true }})
	ask := Request{CID: v0, Name: "first", End: End{At: agreed + 60_000}}
	named := Once(t.Context(), state.Hash{1})
	first, err := node.Create(named, alice, ask)
	if err != nil {
		t.Fatal(err)
	}
	for _, later := range []state.Millis{60_000, 120_000} {
		agreed = ask.End.At + later
		if again, err := node.Create(named, alice, ask); err != nil || again.ID != first.ID || again.Until != ask.End.At || again.Created != first.Created || again.Status != state.Queued {
			t.Errorf("%d ms after the end: %+v, %v; at first %+v", later, again.Pin, err, first.Pin)
		}
		if err := node.EndPins(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := node.Get(t.Context(), alice, first.ID); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("the pin has not ended: %v", err)
	}
	other := ask
	other.Name = "second"
	for name, tc := range map[string]struct {
		ctx  context.Context
		r    Request
		want error
	}{
		"another pin":  {named, other, state.ErrExists},
		"another name": {Once(t.Context(), state.Hash{2}), ask, state.ErrInvalid},
		"no name":      {t.Context(), ask, state.ErrInvalid},
	} {
		if r, err := node.Create(tc.ctx, alice, tc.r); !errors.Is(err, tc.want) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if _, err := node.Create(Once(t.Context(), state.Hash{1}), bob, ask); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("another account: %v", err)
	}
}

// Content that is larger than the bound of a pin fails that pin, and no pin of another account.
func TestABoundOfTheSizeFailsAPin(t *testing.T) {
	w := newest(t)
	r, err := w.Create(t.Context(), alice, Request{CID: v0, MaxBytes: 9})
	if err != nil {
		t.Fatal(err)
	}
	other := w.create(t, bob, v0)
	w.report(t, v0, w.root(t, v0).Nodes()[0], state.Held, 10, "")
	if got := w.get(t, alice, r.ID); got.Status != state.Failed || !strings.Contains(got.Info[InfoDetails], "larger than the 9 bytes") {
		t.Errorf("%s: %v", got.Status, got.Info)
	}
	if got := w.get(t, bob, other.ID); got.Status != state.Pinning {
		t.Errorf("the pin of another account is %s", got.Status)
	}
}

// A pin lasts for its whole duration, although the agreed time is some seconds behind.
func TestAPinLastsForItsWholeDuration(t *testing.T) {
	w := newest(t)
	begin := state.MillisOf(w.now())
	node := New(Options{
		State: w.state, Nodes: w.load, Now: w.now,
		Agreed: func() (early, late state.Millis, ok bool) { return begin - 2000, begin - 3, true },
	})
	r, err := node.Create(t.Context(), alice, Request{CID: v0, End: End{For: time.Hour}})
	if err != nil || r.Until < r.Created+state.Millis(time.Hour.Milliseconds()) {
		t.Errorf("the pin ends %d ms after its creation, %v", r.Until-r.Created, err)
	}
	if _, err := node.Create(t.Context(), alice, Request{CID: v0, End: End{At: begin - 1}}); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("an end that has passed by all clocks: %v", err)
	}
}

// The leader ends all pins that are due by the agreed time, whatever its own clock says, and no others. Nodes that do
// not lead end none.
func TestTheLeaderEndsPinsByTheAgreedTime(t *testing.T) {
	w := newest(t)
	agreed, known := state.MillisOf(w.now()), true
	var nodes []*Pins
	for i := range 3 {
		nodes = append(nodes, New(Options{
			State: w.state, Nodes: w.load,
			Now:    func() time.Time { return agreed.Time().Add(time.Duration(i-1) * time.Hour) },
			Agreed: func() (early, late state.Millis, ok bool) { return agreed, agreed, known },
		}))
	}
	for i := range state.MaxSettle + 1 { // more than one command ends
		if _, err := nodes[1].Create(t.Context(), alice, Request{CID: v0, Name: fmt.Sprint(i), End: End{For: time.Minute}}); err != nil {
			t.Fatal(err)
		}
	}
	stays := w.create(t, alice, v0)
	end := func() {
		t.Helper()
		for _, n := range nodes {
			if err := n.EndPins(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func(want uint64) {
		t.Helper()
		total, _, err := w.List(t.Context(), alice, state.PinQuery{Limit: 1, Statuses: state.Statuses()})
		if err != nil || total != want {
			t.Errorf("%d pins are left, %v, want %d", total, err, want)
		}
	}
	all := uint64(state.MaxSettle + 2)
	agreed += 59_999
	end()
	left(all)
	agreed++
	known = false
	end()
	left(all)
	known = true
	w.state.SetLeader(false)
	end()
	left(all)
	w.state.SetLeader(true)
	w.state.Fail(state.ErrUnavailable)
	if err := nodes[0].EndPins(t.Context()); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("without a majority: %v", err)
	}
	w.state.Fail(nil)
	end()
	left(1)
	if got := w.get(t, alice, stays.ID); got.Status != state.Queued {
		t.Errorf("the pin without an end is %s", got.Status)
	}
}
