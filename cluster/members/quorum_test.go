package members

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Without a majority, Lacking says how many votes are needed and here, and which members are missing since
// when. Only a cluster of two votes has a warning.
func TestWhoIsMissingIsSaid(t *testing.T) {
	here := Load{State: "alive", Connected: true}
	for _, tc := range []struct {
		name       string
		votes      []state.NodeID
		b, c       Load
		unheard    bool // c, since this node started
		leaderless bool
		complete   bool
		lacking    string
		warns      bool
	}{
		{name: "all here", votes: []state.NodeID{"a", "b", "c"}, b: here, c: here, complete: true},
		{name: "one missing", votes: []state.NodeID{"a", "b", "c"}, b: here, c: Load{State: "alive"}, complete: true},
		{
			name: "two missing", votes: []state.NodeID{"a", "b", "c"}, b: Load{State: "down", Silent: 61 * time.Minute}, c: Load{State: "suspect", Silent: 14 * time.Second},
			leaderless: true, lacking: "2 of 3 votes are needed and 1 is here; missing: b (b, last heard of 1 h ago), c (c, last heard of 14 s ago)",
		},
		{
			name: "a connection alone is not enough", votes: []state.NodeID{"a", "b", "c"}, b: Load{State: "down", Connected: true, Silent: time.Minute}, unheard: true,
			leaderless: true, lacking: "2 of 3 votes are needed and 1 is here; missing: b (b, last heard of 1 min ago), c (c, not heard of since this node started)",
		},
		{
			name: "an election", votes: []state.NodeID{"a", "b", "c"}, b: here, c: here, leaderless: true,
			lacking: "2 of 3 votes are needed and 3 are here; no leader is known: the members elect one, or do not reach each other",
		},
		{name: "two votes", votes: []state.NodeID{"a", "b"}, b: here, c: here, complete: true, warns: true},
		{
			name: "one of two", votes: []state.NodeID{"a", "b"}, b: Load{State: "down", Silent: 20 * time.Second}, c: here, leaderless: true, warns: true,
			lacking: "2 of 2 votes are needed and 1 is here; missing: b (b, last heard of 20 s ago)",
		},
		{name: "one vote", votes: []state.NodeID{"a"}, complete: true},
		{name: "no votes are known", lacking: "this node does not know the votes of the cluster yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "a", "b", "c")
			w.votes, w.leaderless = tc.votes, tc.leaderless
			w.loads["b"], w.loads["c"] = tc.b, tc.c
			if tc.unheard {
				delete(w.loads, "c")
			}
			q := w.Quorum()
			if q.Complete() != tc.complete || !tc.complete && q.Lacking() != tc.lacking {
				t.Errorf("complete %t, %q; want %t, %q", q.Complete(), q.Lacking(), tc.complete, tc.lacking)
			}
			if warns := strings.Contains(q.Warning(), "third node"); warns != tc.warns {
				t.Errorf("warning %q", q.Warning())
			}
		})
	}
}

// Writable returns no error with a majority, and CodeUnavailable with the missing members without one.
func TestWritableSaysWhy(t *testing.T) {
	w := newWorld(t, "a", "b")
	if err := w.Writable(t.Context()); err != nil {
		t.Errorf("with a majority: %v", err)
	}
	w.state.Fail(state.ErrUnavailable)
	w.loads["b"] = Load{State: "down", Silent: 14 * time.Second}
	var coded *state.Error
	if err := w.Writable(t.Context()); !errors.As(err, &coded) || coded.Code != state.CodeUnavailable || !strings.Contains(coded.Detail, "missing: b (b, last heard of 14 s ago)") {
		t.Errorf("without one: %v", err)
	}
}

// A member is found by its id or its whole name. A name of two members is a conflict that says which two.
func TestAMemberIsFoundByItsName(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	for id, name := range map[state.NodeID]string{"a": "one", "b": "twin", "c": "twin"} {
		n := clustertest.Members(id)[0]
		n.Name = name
		w.state.Apply(t, &state.UpdateNode{Node: n})
	}
	for _, tc := range []struct {
		who  string
		id   state.NodeID
		code state.Code
	}{
		{"a", "a", 0},
		{"one", "a", 0},
		{"c", "c", 0},
		{"twin", "", state.CodeConflict},
		{"On", "", state.CodeNotFound},
		{"", "", state.CodeNotFound},
	} {
		n, err := w.Named(t.Context(), tc.who)
		l, also := w.Leaving(t.Context(), tc.who, true)
		for _, err := range []error{err, also} {
			var coded *state.Error
			if tc.code == 0 && err != nil || tc.code != 0 && (!errors.As(err, &coded) || coded.Code != tc.code) {
				t.Errorf("%q: %v", tc.who, err)
			}
			if tc.code == state.CodeConflict && !strings.Contains(err.Error(), "b or c") {
				t.Errorf("it does not say which: %v", err)
			}
		}
		if n.ID != tc.id || l.ID != tc.id {
			t.Errorf("%q is %q and %q, want %q", tc.who, n.ID, l.ID, tc.id)
		}
	}
}

// Leaving says whether a member leads, its role and its roots, and how many of the remaining votes answer. The
// pins, and the roots that no other member holds, are counted only on demand.
func TestWhatARemovalTakesAway(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.votes = []state.NodeID{"a", "b", "c"}
	w.loads["c"] = Load{State: "down"}
	l, err := w.Leaving(t.Context(), "a", true)
	if err != nil || !l.Leads || l.Role != "voter" || l.Votes != 2 || l.Answer != 1 || l.Sole != 0 {
		t.Errorf("%+v, %v", l, err)
	}
	hold(t, w, "b")
	if l, err = w.Leaving(t.Context(), "b", true); err != nil || l.Sole != 1 || l.Roots != 1 || l.Pins != 1 || l.Leads {
		t.Errorf("the only holder of something: %+v, %v", l, err)
	}
	// Who is not asked needs no count of every root.
	if l, err = w.Leaving(t.Context(), "b", false); err != nil || l.Sole != 0 || l.Pins != 0 || l.Roots != 1 || l.ID != "b" || l.Votes != 2 || l.Answer != 1 {
		t.Errorf("without a count: %+v, %v", l, err)
	}
	w.votes = []state.NodeID{"a", "b"}
	if l, err = w.Leaving(t.Context(), "c", true); err != nil || l.Leads || l.Role != "nonvoter" || l.State != "down" || l.Votes != 2 || l.Answer != 2 {
		t.Errorf("%+v, %v", l, err)
	}
}
