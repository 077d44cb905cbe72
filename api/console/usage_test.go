package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A chart has a bar for each day, the largest of which fills it, and says the same in words.
func TestChartsShowEachDay(t *testing.T) {
	c := requestChart([]state.Usage{{Day: 20783, Requests: 2}, {Day: 20784, Requests: 0}, {Day: 20785, Requests: 1}})
	if len(c.Bars) != 3 || c.Bars[0].Height != "120" || c.Bars[0].Y != "0" || c.Bars[1].Height != "0" || c.Bars[2].Height != "60" || c.Bars[2].Y != "60" {
		t.Errorf("the bars are %+v", c.Bars)
	}
	if c.Top != "2 requests" || c.Bars[2].Value != "1 request" || !c.Newest()[0].Day.Equal(state.Day(20785).Time()) || !strings.Contains(c.Description, "From 2026-11-26 to 2026-11-28. The most is 2 requests, the last 1 request.") {
		t.Errorf("%q, %q, %q", c.Top, c.Bars[2], c.Description)
	}
	if c := storageChart([]state.Usage{{Day: 1}}); c.Bars[0].Height != "0" {
		t.Errorf("nothing is drawn as %+v", c.Bars[0])
	}
}

// The page and the file have the requests of the account.
func TestUsageIsShown(t *testing.T) {
	w := newWorld(t)
	day := w.AheadToMinute() // midnight does not pass between the requests and what is shown of them
	b := w.browser()
	b.signIn("alice")
	for range 4 {
		b.get("/pins")
	}
	if err := w.users.NoteUsage(t.Context()); err != nil {
		t.Fatal(err)
	}
	today := day.UTC().Format(time.DateOnly)
	status, file := b.get("/usage.csv")
	if want := "day,stored_bytes,requests\r\n" + today + ",0,"; status != http.StatusOK || !strings.HasPrefix(file, want) || strings.HasPrefix(file, want+"0") {
		t.Errorf("the file is %q", file)
	}
	if _, body := b.get("/usage"); !strings.Contains(body, today) || !strings.Contains(body, "<rect") || !strings.Contains(body, "<strong>0 B of 500 MiB</strong>") {
		t.Errorf("the page is %s", body)
	}
	// The overview has the numbers of its chart.
	alice, now := w.account("alice"), state.DayOf(state.MillisOf(day))
	w.State.Apply(t, &state.NoteUsage{Day: now - 1, Items: []state.AccountRequests{{Account: alice, Count: 1}}})
	numbers := "<summary>Show numbers</summary>"
	yesterday := (now - 1).Time().UTC().Format(time.DateOnly) + `</time></td><td class="number" data-label="Stored by day">0 B</td>`
	if _, body := b.get("/"); !strings.Contains(body, numbers) || !strings.Contains(body, yesterday) {
		t.Errorf("the overview is %s", body)
	}
	other := w.browser()
	other.signIn("bob")
	if _, file := other.get("/usage.csv"); !strings.HasSuffix(file, today+",0,0\r\n") {
		t.Errorf("the file of another account is %q", file)
	}
}
