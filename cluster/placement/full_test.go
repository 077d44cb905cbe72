package placement

import (
	"slices"
	"testing"
)

// A node without room keeps the content that it has and is chosen for no other.
func TestNodesWithoutRoomKeepWhatTheyHaveAndTakeNothing(t *testing.T) {
	nodes := []Node{up("a", 9*MinFree), up("b", 9*MinFree), up("c", 9*MinFree)}
	nodes[0].Full, nodes[1].Full = true, true
	for _, tc := range []struct {
		name string
		keep []string
		want []string
	}{
		{"new content goes where room is", nil, []string{"c"}},
		{"content stays", []string{"a", "b"}, []string{"a", "b"}},
		{"one copy stays, the other finds room", []string{"b"}, []string{"b", "c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Choose("root", 2, nodes, ids(tc.keep...)); !slices.Equal(got, ids(tc.want...)) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
	nodes[2].Full = true
	if got := Choose("root", 2, nodes, nil); len(got) != 0 {
		t.Errorf("no room anywhere, yet %v", got)
	}
}
