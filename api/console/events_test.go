package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// stream is an event stream as a browser reads it.
type stream struct {
	t      *testing.T
	lines  *bufio.Scanner
	answer *http.Response
}

// stream opens the event stream of a browser.
func (b *browser) stream(t *testing.T) *stream {
	t.Helper()
	server := httptest.NewServer(b.handler)
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	answer, err := server.Client().Do(r) //nolint:bodyclose // at the end of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" || answer.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s, %v", answer.Status, answer.Header)
	}
	return &stream{t, bufio.NewScanner(answer.Body), answer}
}

// next returns the next event; "" is the end of the stream.
func (s *stream) next() (event, data string) {
	s.t.Helper()
	for s.lines.Scan() {
		if name, ok := strings.CutPrefix(s.lines.Text(), "event: "); ok && s.lines.Scan() {
			return name, strings.TrimPrefix(s.lines.Text(), "data: ")
		}
	}
	return "", ""
}

var seenIn = regexp.MustCompile(`data-seen="([^"]+)"`)

// seen returns the fingerprint of the account that a page has.
func (b *browser) seen(path string) string {
	b.t.Helper()
	_, body := b.get(path)
	m := seenIn.FindStringSubmatch(body)
	if m == nil {
		b.t.Fatalf("%s has no fingerprint: %s", path, body)
	}
	return m[1]
}

// A page learns of a change of its account, and of no other account, and when its session ends.
func TestEventsTellOfChangesOfTheAccount(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	s := b.stream(t)
	before := b.seen("/pins")
	if event, data := s.next(); event != "account" || data != before {
		t.Fatalf("the stream begins with %q %q, the page has %q", event, data, before)
	}
	pin := func(account string) {
		if _, err := w.pins.Create(t.Context(), w.account(account), pins.Request{CID: "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"}); err != nil {
			t.Fatal(err)
		}
	}
	pin("bob")
	if b.seen("/pins") != before {
		t.Error("a pin of another account changes the fingerprint")
	}
	pin("alice")
	event, data := s.next()
	if event != "account" || data == before || data != b.seen("/") {
		t.Errorf("after a change comes %q %q, the page has %q", event, data, b.seen("/"))
	}
	// It is queued, which the page shows the progress of.
	if event, progress := s.next(); event != "account" || progress == data || !strings.HasPrefix(progress, data) {
		t.Errorf("of the progress of a pin comes %q %q", event, progress)
	}
	if err := w.users.SignOut(t.Context(), b.cookies[sessionCookie]); err != nil {
		t.Fatal(err)
	}
	for event != "ended" {
		if event, _ = s.next(); event == "" {
			t.Fatal("the stream ends without a word")
		}
	}
	if event, data := s.next(); event != "" {
		t.Errorf("after the end comes %q %q", event, data)
	}
}

// Only administrators learn that a member has changed.
func TestEventsTellAdministratorsOfTheCluster(t *testing.T) {
	w := newWorld(t)
	if err := w.users.SetAdmin(t.Context(), "alice@example.org", true); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alice", "bob"} {
		b := w.browser()
		b.signIn(name)
		s := b.stream(t)
		s.next()
		if _, err := w.pins.Create(t.Context(), w.account(name), pins.Request{CID: "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"}); err != nil {
			t.Fatal(err)
		}
		first, _ := s.next()
		second, _ := s.next()
		if told := first == "cluster" || second == "cluster"; told != (name == "alice") {
			t.Errorf("%s is sent %q and %q", name, first, second)
		}
	}
}

// Without a session there are no events, and the browser is told not to ask again.
func TestEventsTakeASession(t *testing.T) {
	if answer := newWorld(t).browser().do(httptest.NewRequest(http.MethodGet, "/events", nil)); answer.Code != http.StatusNoContent {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

// A node that stops ends the streams, which would hold it up.
func TestEventsEndWhenTheNodeStops(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	s := b.stream(t)
	s.next()
	close(w.draining)
	if event, data := s.next(); event != "" {
		t.Errorf("comes %q %q", event, data)
	}
}

// A HEAD of the stream ends at once.
func TestEventsAnswerHead(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	if answer := b.do(httptest.NewRequest(http.MethodHead, "/events", nil)); answer.Code != http.StatusOK || answer.Body.Len() > 0 {
		t.Errorf("%d %q", answer.Code, answer.Body)
	}
}

// One account cannot take all streams, and one that has ended counts no more.
func TestEventStreamsAreBounded(t *testing.T) {
	var s streams
	enter := func(account state.AccountID) (leave func()) {
		t.Helper()
		leave, err := s.enter(account)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	leave := enter("a")
	for range maxAccountStreams - 1 {
		enter("a")
	}
	if _, err := s.enter("a"); !errors.Is(err, state.ErrLimited) {
		t.Errorf("one too many of an account: %v", err)
	}
	enter("b")
	leave()
	enter("a")
	for i := s.open; i < maxStreams; i++ {
		enter(state.AccountID(fmt.Sprint(i)))
	}
	if _, err := s.enter("c"); !errors.Is(err, state.ErrLimited) {
		t.Errorf("one too many of all: %v", err)
	}
}

// silent are members that were heard of some time ago.
type silent struct {
	Members
	since time.Duration
}

func (m silent) Status(ctx context.Context) (members.Status, error) {
	s, err := m.Members.Status(ctx)
	for i := range s.Peers {
		s.Peers[i].Silent, s.Peers[i].Skew = m.since, m.since
	}
	return s, err
}

// The time since a member was heard of is no change of the cluster, of which pages would load anew.
func TestTheTimeSinceASampleIsNoChange(t *testing.T) {
	w := newWorld(t)
	seen := map[string]bool{}
	for d := range time.Duration(3) {
		s := &surface{Options: Options{Members: silent{w, d * time.Second}}}
		seen[s.clusterSeen(&call{r: httptest.NewRequest(http.MethodGet, "/events", nil)}, true)] = true
	}
	if len(seen) != 1 || seen[""] {
		t.Errorf("the cluster is seen as %v", seen)
	}
}

// A page with parts that change has a fingerprint of the account, and no other answer asks for one.
func TestOnlyLivePagesHaveAFingerprint(t *testing.T) {
	g := newGround(t)
	b := g.browser()
	b.session("alice")
	live := 0
	for _, c := range g.calls() {
		if c.change() || !c.guarded() || c.access == lasting {
			continue
		}
		_, body := b.get(c.to)
		has, wants := strings.Contains(body, " data-seen="), strings.Contains(body, " data-live=")
		if has != wants {
			t.Errorf("%s has a fingerprint: %t; it has live parts: %t", c.name, has, wants)
		}
		if wants {
			live++
		}
	}
	if live < 5 {
		t.Errorf("%d pages are live", live)
	}
}

// An object that replaces another of the same size, and its tags, are changes of the account.
func TestAReplacedObjectIsAChange(t *testing.T) {
	w := newWorld(t)
	w.photos("cat.txt")
	b := w.browser()
	b.signIn("alice")
	seen := func() string {
		t.Helper()
		_, body := b.get("/buckets/photos")
		_, from, _ := strings.Cut(body, `data-seen="`)
		text, _, _ := strings.Cut(from, `"`)
		return text
	}
	first := seen()
	if first == "" || seen() != first {
		t.Errorf("nothing has changed, and the page has %q and %q", first, seen())
	}
	w.store("cat.txt", "text/plain", "purr!")
	second := seen()
	if err := w.objects.SetTags(t.Context(), w.account("alice"), "photos", "cat.txt", "", []state.Tag{{Key: "a", Value: "b"}}); err != nil {
		t.Fatal(err)
	}
	if third := seen(); first == second || second == third {
		t.Errorf("the page has %q, %q and %q", first, second, third)
	}
	w.pin("bob", "dog", nil)
	if again := seen(); again != seen() {
		t.Errorf("a change of another account is one of this: %q", again)
	}
}
