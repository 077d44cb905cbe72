package state

import (
	"errors"
	"testing"
)

// Voter eligibility belongs to a Raft store, and a store in the place of another may not vote until it is granted.
// The first report of a store counts as it is made.
func TestAVoteIsLostWithItsStore(t *testing.T) {
	node := func(store StoreID, votes bool) Node {
		return Node{ID: "n2", FeatureLevel: 1, Store: store, Votes: votes}
	}
	for _, tc := range []struct {
		name  string
		steps []Command
		want  bool // may vote after them
	}{
		{"before level 1", nil, true},
		{"first word of a whole log", []Command{&UpdateNode{node("s1", true)}}, true},
		{"first word of a lost log", []Command{&UpdateNode{node("s1", false)}}, false},
		{"joins again with a lost log", []Command{&JoinNode{Node: node("s1", false)}}, false},
		{"joins again and names no store", []Command{&UpdateNode{node("s1", true)}, &JoinNode{Node: node("", true)}}, false},
		{"joins again with the whole log", []Command{&UpdateNode{node("s1", true)}, &JoinNode{Node: node("", true)}, &UpdateNode{node("s1", true)}}, true},
		{"the same store again", []Command{&UpdateNode{node("s1", true)}, &UpdateNode{node("s1", false)}}, true},
		{"another store", []Command{&UpdateNode{node("s1", true)}, &UpdateNode{node("s2", true)}}, false},
		{"another store by joining", []Command{&UpdateNode{node("s1", true)}, &JoinNode{Node: node("s2", true)}}, false},
		{"granted", []Command{&UpdateNode{node("s1", true)}, &UpdateNode{node("s2", true)}, &GrantVote{Node: "n2", Store: "s2"}}, true},
		{"granted and told again", []Command{&UpdateNode{node("s1", true)}, &UpdateNode{node("s2", true)}, &GrantVote{Node: "n2", Store: "s2"}, &UpdateNode{node("s2", false)}}, true},
		{"an old grant is void", []Command{&UpdateNode{node("s1", true)}, &UpdateNode{node("s2", true)}, &GrantVote{Node: "n2", Store: "s1"}}, false},
		{"removed and joined again", []Command{&UpdateNode{node("s1", true)}, &RemoveNode{ID: "n2"}, &JoinNode{Node: node("s1", true)}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := found(t)
			for _, cmd := range tc.steps {
				var refused *Error
				if _, err := m.apply(cmd); err != nil && !errors.As(err, &refused) {
					t.Fatal(err)
				}
			}
			got, err := m.view().Node("n2")
			if err != nil || got.MayVote() != tc.want {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	m := found(t)
	if _, err := m.apply(&GrantVote{Node: "x", Store: "s"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a vote for a node that is not a member: %v", err)
	}
}
