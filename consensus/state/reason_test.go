package state

import (
	"fmt"
	"strings"
	"testing"
)

// OwnReason has the cause of a failure and the remarks on one's own origins, and none on other origins.
func TestAReasonTellsOfOnesOwnOriginsAlone(t *testing.T) {
	whole := ReasonOf("nobody has it\n", []string{"/a/1: refused", "/b/1: no answer", "/b/10: not reachable\x03 \x02x"})
	for _, tc := range []struct {
		reason  string
		origins []string
		want    string
	}{
		{"nobody has it", []string{"/a/1"}, "nobody has it"},
		{"", nil, ""},
		{whole, nil, "nobody has it "},
		{whole, []string{"/c"}, "nobody has it "},
		{whole, []string{"/a/1"}, "nobody has it ; /a/1: refused"},
		{whole, []string{"/b/1"}, "nobody has it ; /b/1: no answer"},
		{whole, []string{"/b/10"}, "nobody has it ; /b/10: not reachable   x"},
		{whole, []string{"/b/10", "/a/1", "/b/1"}, "nobody has it ; /a/1: refused; /b/1: no answer; /b/10: not reachable   x"},
		{whole[:strings.Index(whole, "swer")], []string{"/a/1"}, "nobody has it ; /a/1: refused"},
		{whole[:strings.Index(whole, "swer")], []string{"/b/1"}, "nobody has it ; /b/1: no an"},
		{ReasonOf("", []string{"/x\x03: no"}), []string{"/x\x03"}, "; /x : no"},
	} {
		if got := OwnReason(tc.reason, tc.origins); got != tc.want {
			t.Errorf("of %q with %q is told %q, want %q", tc.reason, tc.origins, got, tc.want)
		}
	}
}

// A failure of several nodes shows a remark to nobody but the account that named the origin, also where it was
// cut. The remark does not run into what the next node says.
func TestRemarksInAFailureAreWholeOrCut(t *testing.T) {
	root := new(Root)
	for i := range 3 {
		reason := ReasonOf(fmt.Sprintf("cause %d", i), []string{"/secret/1: " + strings.Repeat("x", 700), "/secret/2: no"})
		root.Copies = append(root.Copies, Copy{Node: NodeID(fmt.Sprint("n", i)), Phase: GaveUp, Reason: reason[:700]})
	}
	for _, copies := range [][]Copy{root.Copies[:1], root.Copies} {
		text := failure(&Root{Copies: copies})
		if len(text) > MaxReasonLen {
			t.Errorf("%d bytes", len(text))
		}
		want := "node n0: cause 0"
		if len(copies) > 1 {
			want += "; node n1: cause 1; node n2: cause 2"
		}
		if got := OwnReason(text, nil); got != want {
			t.Errorf("others are told %q, want %q", got, want)
		}
		if got := OwnReason(text, []string{"/secret/1"}); strings.Count(got, "/secret/1: xxx") != len(copies) || strings.ContainsAny(got, remarkBegin+remarkEnd) {
			t.Errorf("who named it is told %q", got)
		}
	}
}

// A failed pin has the remarks on its own origins and none on those of others. So it is for a pin that waits when
// the content fails, and for one that comes while the others are moved.
func TestFailedPinsTellNothingOfOthersOrigins(t *testing.T) {
	m := found(t)
	root := rootOf(t, contents[1])
	mine := create(alice, "a", contents[1])
	mine.Pin.Origins = []string{"/mine"}
	m.must(mine)
	for i := range MaxSettle {
		m.must(create(bob, RequestID(fmt.Sprintf("p%04d", i)), contents[1]))
	}
	m.giveUp(root, ReasonOf("nobody has it", []string{"/mine: no answer"}))
	m.must(create(bob, "late", contents[1]))
	for id, want := range map[RequestID]string{"p0000": "nobody has it", "late": "nobody has it"} {
		if p, err := m.view().Pin(bob, id); err != nil || p.Status != Failed || p.Detail != "nodes n1, n2, n3: "+want {
			t.Errorf("%s is %s for %q, %v", id, p.Status, p.Detail, err)
		}
	}
	m.must(&SettleRoots{Roots: []RootKey{root}})
	if p, err := m.view().Pin(alice, "a"); err != nil || p.Detail != "nodes n1, n2, n3: nobody has it; /mine: no answer" {
		t.Errorf("%q, %v", p.Detail, err)
	}
	m.check()
}
