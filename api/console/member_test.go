package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

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
