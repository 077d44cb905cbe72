package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// An administrator grants, refunds and corrects; the person of the account sees each posting with the
// balance after it, and nobody else does.
func TestTheLedgerIsShownAndCorrected(t *testing.T) {
	w := newWorld(t)
	if err := w.users.SetAdmin(t.Context(), "alice@example.org", true); err != nil {
		t.Fatal(err)
	}
	alice, bob := w.browser(), w.browser()
	alice.signIn("alice")
	bob.signIn("bob")
	page := "/users/" + string(w.Account("bob"))
	post := func(form url.Values) (int, string) {
		t.Helper()
		answer := alice.post(page, page+"/credits", form)
		return answer.Code, answer.Body.String()
	}
	form := url.Values{"kind": {"grant"}, "credits": {"1000"}, "note": {"welcome & thanks"}, "posting": {"g"}}
	for range 2 { // the button was pressed twice
		if status, body := post(form); status != http.StatusOK || !strings.Contains(body, "The posting was made.") {
			t.Fatalf("a grant is answered with %d: %s", status, body)
		}
	}
	post(url.Values{"kind": {"refund"}, "credits": {"5"}})
	if status, body := post(url.Values{"kind": {"correction"}, "credits": {"-900"}, "corrects": {"g"}}); status != http.StatusOK || !strings.Contains(body, "−900") {
		t.Errorf("a correction is answered with %d: %s", status, body)
	}
	for want, form := range map[string]url.Values{
		"balance negative":      {"kind": {"correction"}, "credits": {"-106"}, "corrects": {"g"}},
		"Credits are a whole":   {"kind": {"grant"}, "credits": {"1.5"}},
		"Choose whether":        {"kind": {"charge"}, "credits": {"-1"}},
		"is another one":        {"kind": {"grant"}, "credits": {"7"}, "posting": {"g"}},
		"A posting has 1 to":    {"kind": {"grant"}, "credits": {"0"}},
		"Only charges and corr": {"kind": {"grant"}, "credits": {"-1"}},
	} {
		if status, body := post(form); status != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%v is answered with %d, without %q", form, status, want)
		}
	}
	if _, body := alice.get(page + "?correct=g"); !strings.Contains(body, `value="g"`) || !strings.Contains(body, `<details id="correct" open>`) {
		t.Errorf("the form for a correction of g is not open: %s", body)
	}
	_, body := bob.get("/usage")
	for _, want := range []string{"Balance: <strong>105</strong>", "welcome &amp; thanks", "+1,000", "−900", ", corrects g", "alice@example.org"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page of Bob has no %q: %s", want, body)
		}
	}
	if strings.Contains(body, ">Correct<") {
		t.Error("Bob is offered to correct")
	}
	_, file := bob.get("/usage/ledger.csv")
	lines := strings.Split(file, "\r\n")
	if len(lines) != 5 || lines[0] != "seq,time,kind,credits,balance,id,corrects,note,by" || !strings.HasPrefix(lines[1], "3,") || !strings.Contains(lines[1], ",correction,-900,105,") {
		t.Errorf("the file is %q", file)
	}
	if status, other := alice.get(page + "/ledger.csv"); status != http.StatusOK || other != file {
		t.Errorf("the file for administrators is %d %q", status, other)
	}
	if _, own := alice.get("/usage"); strings.Contains(own, "welcome") || !strings.Contains(own, "No credits were granted yet. Ask the operator of this service") {
		t.Errorf("the page of Alice is %s", own)
	}
	if _, body := alice.get("/users/" + string(w.account("alice"))); strings.Contains(body, "An administrator grants them") || !strings.Contains(body, "Grant some below.") {
		t.Errorf("an administrator is told %s", body)
	}
}

// The ledger shows the newest postings, leads to the older ones, and its CSV file has all of them.
func TestTheLedgerIsPaged(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	for i := range ledgerRows + 3 {
		if _, err := w.Ledger.Post(t.Context(), "alice@example.org", credits.Request{Kind: state.Grant, Credits: 1, ID: fmt.Sprintf("posting-%d.", i)}); err != nil {
			t.Fatal(err)
		}
	}
	_, first := b.get("/usage")
	if strings.Contains(first, "posting-2.") || !strings.Contains(first, "posting-3.") || !strings.Contains(first, `href="/usage?ledger=4#credits"`) || strings.Contains(first, "Newest postings") {
		t.Errorf("the first page is %s", first)
	}
	if _, next := b.get("/usage?ledger=4"); !strings.Contains(next, "posting-2.") || strings.Contains(next, "posting-3.") || strings.Contains(next, "Older postings") || !strings.Contains(next, "Newest postings") {
		t.Errorf("the second page is %s", next)
	}
	if _, file := b.get("/usage/ledger.csv"); strings.Count(file, "\r\n") != ledgerRows+4 {
		t.Errorf("the file is %q", file)
	}
	if status, _ := b.get("/usage?ledger=x"); status != http.StatusBadRequest {
		t.Errorf("a cursor of nobody is answered with %d", status)
	}
}

// dryLedger is a ledger in which the content of one account begins to end at a time.
type dryLedger struct {
	Ledger
	account state.AccountID
	at      time.Time
}

func (l dryLedger) ContentEnds(account state.AccountID) (time.Time, bool, error) {
	return l.at, account == l.account, nil
}

// Each page tells a person when content of the account begins to end, and administrators see it on the
// page of the account.
func TestPagesTellWhenContentEnds(t *testing.T) {
	ground := newWorld(t)
	b := ground.browser()
	b.signIn("alice")
	const warning = `<time datetime="2027-01-15T08:00:00Z">2027-01-15 08:00:00 UTC</time>`
	if _, page := b.get("/usage"); strings.Contains(page, "used up") {
		t.Errorf("an account with enough room is warned: %s", page)
	}
	w := ground.another(func(o *Options) {
		o.Ledger = dryLedger{o.Ledger, ground.Account("alice"), time.Unix(1_800_000_000, 0)}
	})
	b.world = w
	for path, times := range map[string]int{"/": 1, "/pins": 1, "/usage": 2} {
		if _, page := b.get(path); strings.Count(page, warning) != times || !strings.Contains(page, "It takes no new content.") {
			t.Errorf("%s has not %d times %s: %s", path, times, warning, page)
		}
	}
	if err := w.users.SetAdmin(t.Context(), "bob@example.org", true); err != nil {
		t.Fatal(err)
	}
	admin := w.browser()
	admin.signIn("bob")
	if _, page := admin.get("/users/" + string(w.Account("alice"))); strings.Count(page, warning) != 1 || strings.Contains(page, "It takes no new content.") {
		t.Errorf("the page of the account is %s", page)
	}
}
