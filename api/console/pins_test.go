package console

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// testCID returns the CID of some content that nobody has.
func testCID(t testing.TB, content string) string {
	t.Helper()
	sum, err := multihash.Sum([]byte(content), multihash.SHA2_256, -1)
	if err != nil {
		t.Fatal(err)
	}
	return cid.NewCidV1(cid.Raw, sum).String()
}

// pin pins something for an account.
func (w *world) pin(account, name string, meta map[string]string) pins.Record {
	w.t.Helper()
	r := pins.Request{CID: testCID(w.t, name), Name: name, Given: state.GivenName, Meta: meta}
	if meta != nil {
		r.Given |= state.GivenMeta
	}
	pin, err := w.pins.Create(w.t.Context(), w.account(account), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return pin
}

// names returns the names of an account's pins.
func (w *world) names(account string) []string {
	w.t.Helper()
	_, rows, err := w.pins.List(w.t.Context(), w.account(account), state.PinQuery{Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

// The address of the list holds the filter, and a value that is none is refused.
func TestPinsAreFilteredByTheAddress(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	cat := w.pin("alice", "cat", map[string]string{"project": "zoo"}).Created.Time().UTC()
	dog := w.pin("alice", "dog", nil).Created.Time().UTC()
	// The days of the pins themselves: midnight may have passed since, and between the two.
	first, last := cat.Format(time.DateOnly), dog.Format(time.DateOnly)
	before := cat.AddDate(0, 0, -1).Format(time.DateOnly)
	for _, tc := range []struct {
		query    string
		cat, dog bool
	}{
		{"", true, true},
		{"name=ca", true, false},
		{"meta=project%3Dzoo", true, false},
		{"meta=project%3Dfarm", false, false},
		{"cid=" + testCID(t, "dog"), false, true},
		{"from=" + first, true, true},
		{"to=" + last, true, true},
		{"to=" + before, false, false},
		{"status=pinned", false, false},
	} {
		_, body := b.get("/pins?" + tc.query)
		if strings.Contains(body, ">cat</a>") != tc.cat || strings.Contains(body, ">dog</a>") != tc.dog {
			t.Errorf("%q shows the wrong pins: %s", tc.query, body)
		}
	}
	for _, query := range []string{"meta=project", "cid=nonsense", "from=yesterday", "to=2026-13-01", "status=lost", "match=nearly"} {
		if status, _ := b.get("/pins?" + query); status != http.StatusBadRequest {
			t.Errorf("%q is answered with %d", query, status)
		}
	}
}

// Another pin takes the place of one. A form that is refused stays as it was, and so does the pin.
func TestAPinIsReplacedAndTriedAgain(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	old := w.pin("alice", "cat", map[string]string{"project": "zoo"})
	answer := b.post(pathOf(old), pathOf(old)+"/replace", url.Values{"cid": {"nonsense"}, "name": {"kitten"}, "meta": {"a=1\nb = 2"}})
	if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), `value="kitten"`) || !strings.Contains(answer.Body.String(), "b = 2") {
		t.Errorf("a bad CID: %d %s", answer.Code, answer.Body)
	}
	answer = b.post(pathOf(old), pathOf(old)+"/replace", url.Values{"cid": {testCID(t, "kitten")}, "name": {"kitten"}, "meta": {"a=1\n\nb = 2"}})
	if answer.Code != http.StatusSeeOther {
		t.Fatalf("replace: %d %s", answer.Code, answer.Body)
	}
	id := state.RequestID(strings.TrimPrefix(answer.Header().Get("Location"), "/pins/"))
	got, err := w.pins.Get(t.Context(), w.account("alice"), id)
	if err != nil || got.Name != "kitten" || !maps.Equal(got.Meta, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("the new pin is %+v, %v", got, err)
	}
	if names := w.names("alice"); !slices.Equal(names, []string{"kitten"}) {
		t.Errorf("there are %q", names)
	}
	again := b.post(pathOf(got), pathOf(got)+"/retry", nil)
	if again.Code != http.StatusSeeOther || again.Header().Get("Location") == pathOf(got) {
		t.Errorf("retry: %d, to %s", again.Code, again.Header().Get("Location"))
	}
	if names := w.names("alice"); !slices.Equal(names, []string{"kitten"}) {
		t.Errorf("after the retry there are %q", names)
	}
	if answer := b.post("/pins", pathOf(old)+"/retry", nil); answer.Code != http.StatusNotFound {
		t.Errorf("a retry of what is gone: %d", answer.Code)
	}
}

// The page of a pin has its copies by node with the reasons of failures, and what was seen of it.
func TestThePageOfAPinHasItsCopiesAndItsHistory(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	pin := w.pin("alice", "cat", nil)
	shows := func(path string, want ...string) {
		t.Helper()
		status, body := b.get(path)
		if text := strings.Join(strings.Fields(body), " "); status == http.StatusOK {
			for _, part := range want {
				if !strings.Contains(text, part) {
					t.Errorf("the page does not have %q: %s", part, text)
				}
			}
			return
		}
		t.Fatalf("%d %s", status, body)
	}
	shows("/pins", `<td class="minor"><span class="muted">no node</span></td>`)
	shows(pathOf(pin), "waiting for 3 nodes", "</svg>waiting</span>", ">added</td>", `href="ipfs://`+pin.CID+`"`)
	report := func(node state.NodeID, phase state.Phase, reason string) {
		t.Helper()
		root, err := cid.Decode(pin.CID)
		if err != nil {
			t.Fatal(err)
		}
		view, release := w.State.LocalView()
		kept, err := view.Root(state.RootOf(root))
		release()
		if err != nil {
			t.Fatal(err)
		}
		w.State.Apply(t, &state.ReportCopies{Node: node, Items: []state.CopyReport{{Root: kept.Key, Born: kept.Born, Phase: phase, Size: 10, Blocks: 1, Reason: reason}}})
	}
	report("n1", state.Held, "")
	report("n2", state.Assigned, "nobody offered <it>")
	shows(pathOf(pin), "</svg>verified</span>", "nobody offered &lt;it&gt;", "waiting for 3 nodes", "kept on 1 of 3 nodes; last error of node n2")
	shows("/pins", `<td class="minor">n1</td>`)
	answer := b.post(pathOf(pin), pathOf(pin)+"/replace", url.Values{"cid": {testCID(t, "kitten")}})
	shows(answer.Header().Get("Location"), "kept on 1 of 3 nodes", "Took the place of the pin <span class=\"value\"><code>"+string(pin.ID)+"</code>")
}

// The page of a pin says which nodes are voters to an administrator alone.
func TestOnlyAdministratorsSeeWhichNodesVote(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	pin := w.pin("alice", "cat", nil)
	for _, admin := range []bool{false, true} {
		if err := w.users.SetAdmin(t.Context(), "alice@example.org", admin); err != nil {
			t.Fatal(err)
		}
		if _, body := b.get(pathOf(pin)); strings.Contains(body, "voter</span>") != admin {
			t.Errorf("administrator %t: the page is %s", admin, body)
		}
	}
}

// The page of a pin links to the content at the IPFS gateway of the settings, and to no gateway without one.
func TestThePageOfAPinLinksToTheGateway(t *testing.T) {
	w := newWorld(t)
	pin := w.pin("alice", "cat", nil)
	for gateway, link := range map[string]string{
		"":                              "",
		"https://gateway.example.org":   `<a href="https://gateway.example.org/ipfs/` + pin.CID + `">Open at gateway.example.org</a>`,
		"http://gateway.example.org:80": `<a href="http://gateway.example.org:80/ipfs/` + pin.CID + `">Open at gateway.example.org:80</a>`,
	} {
		b := w.another(func(o *Options) { o.IPFSGateway = gateway }).browser()
		b.signIn("alice")
		_, body := b.get(pathOf(pin))
		if !strings.Contains(body, link) || link == "" && strings.Contains(body, "/ipfs/") {
			t.Errorf("gateway %q: the page does not have %q: %s", gateway, link, body)
		}
	}
}

// Of many pins each has a line with its own result, the failures first, and pins of others are absent ones. Lines that
// failed are there to be corrected.
func TestManyPinsAreChangedAtOnce(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	done := func(answer *httptest.ResponseRecorder, want ...string) {
		t.Helper()
		if answer.Code != http.StatusOK {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
		for _, text := range want {
			if !strings.Contains(answer.Body.String(), text) {
				t.Errorf("the page does not say %q: %s", text, answer.Body)
			}
		}
	}
	added := b.post("/pins", "/pins/create-many", url.Values{"lines": {testCID(t, "one") + " the first\r\nnonsense\r\n\r\n" + testCID(t, "two") + "\r\n"}})
	done(added, "1 of 3 pins could not be added", "<tbody>\n<tr><td>nonsense</td>", "is not a valid CID.</span>", ">the first</a>", `spellcheck="false">nonsense</textarea>`)
	if names := w.names("alice"); !slices.Equal(names, []string{"", "the first"}) {
		t.Errorf("there are %q", names)
	}
	of := func(p pins.Record) string { return fmt.Sprint(p.ID, " ", p.Name) }
	mine, others := w.pin("alice", "three", nil), w.pin("bob", "four", nil)
	done(b.post("/pins", "/pins/retry-many", url.Values{"pin": {of(mine), of(others)}}), "1 of 2 pins could not be started again")
	_, rows, err := w.pins.List(t.Context(), w.account("alice"), state.PinQuery{Limit: 100})
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d pins, %v", len(rows), err)
	}
	chosen := url.Values{"pin": {of(others)}}
	for _, r := range rows {
		chosen.Add("pin", of(r))
	}
	done(b.post("/pins", "/pins/delete-many", chosen), "1 of 4 pins could not be deleted")
	if mine, theirs := w.names("alice"), w.names("bob"); len(mine) > 0 || len(theirs) != 1 {
		t.Errorf("left are %q, and of the other account %q", mine, theirs)
	}
	for lines, why := range map[string]string{" \n": "Enter a CID", strings.Repeat(testCID(t, "one")+"\n", maxMany+1): "Nothing was added: 201 lines are 1 too many. Add the first 200"} {
		answer := b.post("/pins", "/pins/create-many", url.Values{"lines": {lines}})
		if body := answer.Body.String(); answer.Code != http.StatusBadRequest || !strings.Contains(body, why) || !strings.Contains(body, ">"+lines+"</textarea>") {
			t.Errorf("%d lines: %d %s", strings.Count(lines, "\n"), answer.Code, body)
		}
	}
	if names := w.names("alice"); len(names) > 0 {
		t.Errorf("too many lines made %d pins", len(names))
	}
}

// An export has every pin that matches once, across the pages it is read in.
func TestPinsAreExported(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	const many = exportRows + 3
	for i := range many {
		w.pin("alice", fmt.Sprintf("pin %d <&>", i), map[string]string{"n": fmt.Sprint(i)})
	}
	w.pin("bob", "not of alice", nil)
	answer := b.do(httptest.NewRequest(http.MethodGet, "/pins/export?name=PIN&match=ipartial", nil))
	if kind := answer.Header().Get("Content-Type"); answer.Code != http.StatusOK || kind != "application/x-ndjson" {
		t.Fatalf("%d %s", answer.Code, kind)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(answer.Body.String()) {
		var got struct {
			RequestID, Status, Created string
			Pin                        struct {
				CID, Name string
				Meta      map[string]string
			}
			Delegates []string
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got.Status != "queued" || got.Pin.CID != testCID(t, got.Pin.Name) || len(got.Delegates) == 0 || got.Pin.Name != "pin "+got.Pin.Meta["n"]+" <&>" {
			t.Fatalf("%q", line)
		}
		seen[got.RequestID] = true
	}
	if len(seen) != many {
		t.Errorf("%d pins, not %d", len(seen), many)
	}
	if answer := b.do(httptest.NewRequest(http.MethodGet, "/pins/export?name=dog", nil)); answer.Code != http.StatusOK || answer.Body.Len() > 0 {
		t.Errorf("an export of nothing: %d %q", answer.Code, answer.Body)
	}
	if answer := b.do(httptest.NewRequest(http.MethodGet, "/pins/export?status=lost", nil)); answer.Code != http.StatusBadRequest {
		t.Errorf("a bad filter: %d", answer.Code)
	}
}

// A page that ends early because its rows are long is not taken for the last one.
func TestLongRowsAreExportedAndPagedToTheEnd(t *testing.T) {
	w := newWorld(t)
	const many = 70 // of 64 KiB each: more than state.MaxListBytes
	long := map[string]string{"text": strings.Repeat("x", state.MaxMetaBytes-4)}
	for i := range many {
		w.pin("alice", fmt.Sprintf("long %d", i), long)
	}
	b := w.browser()
	b.signIn("alice")
	answer := b.do(httptest.NewRequest(http.MethodGet, "/pins/export", nil))
	if lines := strings.Count(answer.Body.String(), "\n"); answer.Code != http.StatusOK || lines != many {
		t.Errorf("the export is answered with %d and has %d of %d pins", answer.Code, lines, many)
	}
	seen := map[string]bool{}
	for page, next := 0, "/pins"; next != ""; page++ {
		_, body := b.get(next)
		for i := range many {
			if name := fmt.Sprintf("long %d", i); strings.Contains(body, ">"+name+"<") {
				seen[name] = true
			}
		}
		if next = ""; strings.Contains(body, `rel="next"`) && page < many {
			next = html.UnescapeString(textBetween(body, `<a href="`, `" rel="next"`))
		}
	}
	if len(seen) != many {
		t.Errorf("the pages have %d of %d pins", len(seen), many)
	}
}

// endedPins end the session of the caller just before each change.
type endedPins struct {
	Pins
	end func()
}

func (p endedPins) Create(ctx context.Context, account state.AccountID, r pins.Request) (pins.Record, error) {
	p.end()
	return p.Pins.Create(ctx, account, r)
}

func (p endedPins) Delete(ctx context.Context, account state.AccountID, id state.RequestID) error {
	p.end()
	return p.Pins.Delete(ctx, account, id)
}

// A change is made only if the session still lives when the cluster makes it.
func TestAChangeOfAnEndedSessionIsNotMade(t *testing.T) {
	w := newWorld(t)
	pin := w.pin("alice", "cat", nil)
	for path, form := range map[string]url.Values{
		"/pins":                 {"cid": {testCID(t, "dog")}, "name": {"dog"}},
		pathOf(pin) + "/delete": nil,
		"/pins/create-many":     {"lines": {testCID(t, "dog") + " dog"}},
		"/pins/delete-many":     {"pin": {string(pin.ID) + " cat"}},
	} {
		b := w.browser()
		b.signIn("alice")
		session := b.cookies[sessionCookie]
		b.world = w.another(func(o *Options) {
			o.Pins = endedPins{o.Pins, func() { _ = w.users.SignOut(t.Context(), session) }}
		})
		if answer := b.post("/pins", path, form); answer.Code == http.StatusSeeOther && strings.HasPrefix(answer.Header().Get("Location"), "/pins") {
			t.Errorf("%s: %d to %s", path, answer.Code, answer.Header().Get("Location"))
		}
		if names := w.names("alice"); !slices.Equal(names, []string{"cat"}) {
			t.Fatalf("after %s there are %q", path, names)
		}
	}
}
