package console

import (
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A node is removed when the person has said so, and one whose content would be lost only by force.
func TestAMemberIsRemoved(t *testing.T) {
	w, b := administrator(t)
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
	w, b := administrator(t)
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

// The page of a member that is being drained tells what is left, the rate of the last minute and the
// time left, and says so where that is not known.
func TestTheDrainOfAMemberHasARate(t *testing.T) {
	w, b := administrator(t)
	bytes := uint64(12 << 30)
	for _, tc := range []struct {
		drain members.Drain
		want  []string
	}{
		{members.Drain{Roots: 4312}, []string{"4,312 contents move", "the size is not known yet", "not known yet", "not known<"}},
		{members.Drain{Roots: 1, Bytes: &bytes, Rate: &members.DrainRate{}}, []string{"1 content moves", "12 GiB", "nothing moved", "not known<"}},
		{
			members.Drain{Roots: 4312, Bytes: &bytes, Rate: &members.DrainRate{RootsPerMinute: 229.5, BytesPerMinute: 600 << 20, Left: 20*time.Minute + 34*time.Second}},
			[]string{"230 contents a minute, 10 MiB/s", "20 minutes"},
		},
		{members.Drain{Bytes: new(uint64)}, []string{"holds nothing any more"}},
	} {
		w.Change = func(p *members.Peer) {
			if p.ID == "n3" {
				p.Load.State, p.Drain = members.Draining, &tc.drain
			}
		}
		status, body := b.get(memberPath("n3"))
		for _, want := range append(tc.want, `<div id="drain" data-live="cluster">`, "End the drain and give it content again") {
			if !strings.Contains(body, want) {
				t.Errorf("%+v is answered with %d without %q: %s", tc.drain, status, want, body)
			}
		}
	}
}

// The page of a member that is suspect or down tells when it was last heard and what follows, and that of one that is down not how it was then.
func TestAMemberThatIsDownWasLastHeard(t *testing.T) {
	w, b := administrator(t)
	load := members.Load{Started: 1, Silent: 3 * time.Minute, Busy: true, Queue: 7}
	w.Change = func(p *members.Peer) {
		if p.ID == "n3" {
			p.Load = load
		}
	}
	const heard, busy, uptime = "<dt>Last heard</dt><dd>3 minutes ago</dd>", "busy:", "<dt>Uptime</dt>"
	for of, down := range map[string]bool{"alive": false, "suspect": false, "down": true} {
		load.State = of
		_, body := b.get(memberPath("n3"))
		if strings.Contains(body, heard) != (of != "alive") || strings.Contains(body, "Start it again") != down || strings.Contains(body, busy) == down || strings.Contains(body, uptime) == down {
			t.Errorf("%s: %s", of, body)
		}
	}
}

// Members stand by the zone that their settings name, those without one last. Without zones there are no
// names of zones.
func TestMembersStandByZone(t *testing.T) {
	w, b := administrator(t)
	if _, body := b.get("/cluster"); strings.Contains(body, "zonename") {
		t.Errorf("without zones the page is %s", body)
	}
	zones := map[state.NodeID]string{"n1": "rack <7>", "n3": "rack 2"}
	w.Change = func(p *members.Peer) { p.Zone = zones[p.ID] }
	_, body := b.get("/cluster")
	at := 0
	for _, want := range []string{`aria-label="Zone rack 2"`, "/cluster/nodes/n3", `aria-label="Zone rack &lt;7&gt;"`, "/cluster/nodes/n1", `aria-label="No zone"`, "/cluster/nodes/n2"} {
		i := strings.Index(body[at:], want)
		if i < 0 {
			t.Fatalf("%s does not follow in %s", want, body)
		}
		at += i
	}
}

// The map of missing copies leads from each number to the copies behind it, in pages.
func TestMissingCopiesAreOnAMap(t *testing.T) {
	_, b := administrator(t)
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
	const aged = "/cluster/missing?age=2&amp;node=n2"
	if _, body := b.get("/cluster?by=age"); !strings.Contains(body, `<td class="number heat1"><a href="`+aged+`">1</a></td>`) || !strings.Contains(body, "&lt; 10 min<") {
		t.Errorf("the map by age is %s", body)
	}
	status, body = b.get(html.UnescapeString(aged))
	for _, want := range []string{cat, "2 hours", "from 1 hour to below 6 hours", `age=2&amp;from=` + cat} {
		if !strings.Contains(body, want) {
			t.Errorf("the list by age is answered with %d without %q: %s", status, want, body)
		}
	}
	for _, query := range []string{"size=5", "age=5", "age=-1", "age=x", "size=-1", "size=x", "from=nonsense", "node=" + strings.Repeat("n", 1000)} {
		if status, _ := b.get("/cluster/missing?" + query); status != http.StatusBadRequest {
			t.Errorf("%q is answered with %d", query, status)
		}
	}
}

// The page of a member says clock skew and uptime in words, and the number of digits of missing copies, up to four, decides the colour.
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
