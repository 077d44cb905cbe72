package console

import (
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A node is removed when the person has said so, and one whose content would be lost only by force.
func TestAMemberIsRemoved(t *testing.T) {
	w := newWorld(t)
	if err := w.users.SetAdmin(t.Context(), "alice@example.org", true); err != nil {
		t.Fatal(err)
	}
	b := w.browser()
	b.signIn("alice")
	for _, tc := range []struct {
		id   string
		form url.Values
		want int
	}{
		{"n3", nil, http.StatusBadRequest},
		{"n3", url.Values{"force": {"1"}}, http.StatusBadRequest},
		{"n2", url.Values{"sure": {"1"}}, http.StatusConflict},
		{"n2", url.Values{"sure": {"1"}, "force": {"1"}}, http.StatusSeeOther},
		{"n3", url.Values{"sure": {"1"}}, http.StatusSeeOther},
	} {
		page := memberPath(state.NodeID(tc.id)) + "/remove"
		answer := b.post(page, page, tc.form)
		if answer.Code != tc.want || answer.Code == http.StatusConflict && !strings.Contains(answer.Body.String(), "the only holder of 2 roots") {
			t.Errorf("%s %v: %d %s", tc.id, tc.form, answer.Code, answer.Body)
		}
	}
	if !slices.Equal(w.Removed, []state.NodeID{"n2", "n3"}) {
		t.Errorf("removed are %q", w.Removed)
	}
	if status, _ := b.get(memberPath("n9")); status != http.StatusNotFound {
		t.Errorf("an absent member: %d", status)
	}
}

// A node is drained when the person has seen what that moves, and the drain can be ended.
func TestAMemberIsDrained(t *testing.T) {
	w := newWorld(t)
	if err := w.users.SetAdmin(t.Context(), "alice@example.org", true); err != nil {
		t.Fatal(err)
	}
	b := w.browser()
	b.signIn("alice")
	page := memberPath("n3") + "/drain"
	if status, body := b.get(page); status != http.StatusOK || !strings.Contains(body, "5 contents move to 2 other nodes") || !strings.Contains(body, "without it: 2 instead of 3") {
		t.Errorf("the question: %d %s", status, body)
	}
	for _, tc := range []struct {
		id   string
		form url.Values
		want int
	}{
		{"n3", url.Values{}, http.StatusSeeOther},
		{"n3", url.Values{"cancel": {"1"}}, http.StatusSeeOther},
		{"n2", url.Values{}, http.StatusConflict},
	} {
		page := memberPath(state.NodeID(tc.id)) + "/drain"
		answer := b.post(page, page, tc.form)
		if answer.Code != tc.want || answer.Code == http.StatusConflict && !strings.Contains(answer.Body.String(), "the last member that keeps content") {
			t.Errorf("%s %v: %d %s", tc.id, tc.form, answer.Code, answer.Body)
		}
	}
	if !slices.Equal(w.Drained, []string{"n3 true", "n3 false"}) {
		t.Errorf("drained are %q", w.Drained)
	}
	if status, _ := b.get(memberPath("n9") + "/drain"); status != http.StatusNotFound {
		t.Errorf("an absent member: %d", status)
	}
}

// The map of missing copies leads from each number to the copies behind it, in pages.
func TestMissingCopiesAreOnAMap(t *testing.T) {
	w := newWorld(t)
	if err := w.users.SetAdmin(t.Context(), "alice@example.org", true); err != nil {
		t.Fatal(err)
	}
	b := w.browser()
	b.signIn("alice")
	const cell = "/cluster/missing?node=n2&amp;size=0"
	if _, body := b.get("/cluster"); !strings.Contains(body, `<td class="number heat1"><a href="`+cell+`">1</a></td>`) || !strings.Contains(body, `<td class="number heat0">0</td>`) {
		t.Errorf("the map is %s", body)
	}
	status, body := b.get(html.UnescapeString(cell))
	for _, want := range []string{cat, "2 of 3", "nobody offered it", "below 1 MiB", `from=` + cat, `rel="next"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the list is answered with %d without %q: %s", status, want, body)
		}
	}
	next := html.UnescapeString(textBetween(body, `<p><a href="`, `" rel="next"`))
	if status, body := b.get(next); status != http.StatusOK || !strings.Contains(body, "No copy of this size is missing here.") {
		t.Errorf("%s is answered with %d: %s", next, status, body)
	}
	for _, query := range []string{"size=5", "size=-1", "size=x", "from=nonsense", "node=" + strings.Repeat("n", 1000)} {
		if status, _ := b.get("/cluster/missing?" + query); status != http.StatusBadRequest {
			t.Errorf("%q is answered with %d", query, status)
		}
	}
}

func TestFiguresOfMembersInWords(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "", 900 * time.Millisecond: "", 2 * time.Second: "2s ahead of this node", -90 * time.Second: "1m30s behind this node"} {
		if got := skewText(d); got != want {
			t.Errorf("%s is %q", d, got)
		}
	}
	for d, want := range map[time.Duration]string{time.Second: "less than a minute", 61 * time.Second: "1 minute", 50 * time.Hour: "2 days"} {
		if got := span(d); got != want {
			t.Errorf("%s is %q", d, got)
		}
	}
	for n, want := range map[uint64]int{0: 0, 1: 1, 9: 1, 10: 2, 999: 3, 123_456: 4} {
		if got := heat(n); got != want {
			t.Errorf("%d has the heat %d", n, got)
		}
	}
}
