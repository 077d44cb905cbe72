//go:build conformance

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// endsAfter is how long the pins of TestPinsWithAnEnd last that end in it. The renewal comes in this time, also on a
// busy machine.
const endsAfter = 25 * time.Second

// ends sends a request for a pin with an end. An empty id is that of a new pin.
func (s *service) ends(id, until string, p harness.Pin, more ...string) (harness.PinStatus, harness.Response) {
	s.t.Helper()
	body, err := json.Marshal(p)
	if err != nil {
		s.t.Fatal(err)
	}
	header := http.Header{"X-Holdfast-Until": {until}}
	for i := 0; i+1 < len(more); i += 2 {
		header.Set(more[i], more[i+1])
	}
	path := "/pins"
	if id != "" {
		path += "/" + id
	}
	r, err := s.next().Do(s.t.Context(), http.MethodPost, path, header, body)
	if err != nil {
		s.t.Fatal(err)
	}
	var st harness.PinStatus
	if r.Status == http.StatusAccepted {
		if err := harness.DecodeStrict(r.Body, &st); err != nil {
			s.t.Fatal(err)
		}
	}
	return st, r
}

// lasting makes a pin with an end and returns its answer.
func (s *service) lasting(id, until string, p harness.Pin) harness.PinStatus {
	s.t.Helper()
	st, r := s.ends(id, until, p)
	if r.Status != http.StatusAccepted {
		s.t.Fatalf("a pin until %s: %d %s", until, r.Status, r.Body)
	}
	return st
}

// TestPinsWithAnEnd promises that a pin with an end tells it as RFC 3339 and ends on every node, also if the leader
// is killed before (row 17). Its quota is free then, and its content is collected as by a deletion. A renewal and the
// pins of others keep their content.
func TestPinsWithAnEnd(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	ann, bob := newService(t, c, "ann@example.org"), newService(t, c, "bob@example.org")
	source := harness.StartBoxo(t)
	files := source.AddRandom(3, 4<<20)
	own := harness.Pin{CID: files[0].CID, Origins: source.Addrs}
	shared := harness.Pin{CID: files[1].CID, Origins: source.Addrs}
	renewed := harness.Pin{CID: files[2].CID, Origins: source.Addrs}
	refusesEnds(ann, own)

	bobs := bob.post(shared)
	bob.pinned(bobs.RequestID)
	renew := ann.lasting("", "1h", renewed)
	ann.pinned(renew.RequestID)
	stored(t, c, 2*4<<20)
	before, quota := usedBytes(t, c), user(t, c.Nodes[0], "ann@example.org").StoredBytes
	first := ann.lasting("", "1h", own)
	ann.pinned(first.RequestID)
	stored(t, c, 3*4<<20)
	both := ann.post(shared)
	ann.pinned(both.RequestID)
	repeatsEnds(ann, renewed)

	// All content is here, so these pins are pinned at once, and end soon.
	source.Close()
	begin := time.Now()
	soon := []string{
		ann.lasting(first.RequestID, endsAfter.String(), own).RequestID,
		ann.lasting(both.RequestID, endsAfter.String(), shared).RequestID,
		ann.lasting(renew.RequestID, endsAfter.String(), renewed).RequestID,
	}
	until, err := time.Parse(time.RFC3339, ann.get(soon[0]).Info["pinned_until"])
	if err != nil || until.Location() != time.UTC || until.Before(begin.Add(endsAfter-2*time.Second)) || until.After(time.Now().Add(endsAfter+2*time.Second)) {
		t.Errorf("the end is told as %v, %v; it is %v after %v", until, err, endsAfter, begin)
	}
	again := ann.lasting("", "2h", renewed)
	if st := ann.pinned(again.RequestID); st.Info["pinned_until"] == "" {
		t.Errorf("the renewed pin has no end: %v", st.Info)
	}
	killed := c.Leader()
	killed.Kill()
	gone := func() {
		t.Helper()
		harness.Eventually(t, endsAfter+pinnedWithin, "the pins have ended on every node", func() (bool, error) {
			for _, n := range c.Live() {
				for _, id := range soon {
					st, err := n.Pins(ann.token).Get(t.Context(), id)
					if refused := (*harness.APIError)(nil); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
						return false, fmt.Errorf("on %s: %+v, %w", n.Name, st, err)
					}
				}
			}
			return true, nil
		})
	}
	gone()
	if now := time.Now(); now.Before(until.Add(-time.Second)) {
		t.Errorf("they ended at %v, before %v", now, until)
	}
	killed.Restart()
	if err := killed.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone()
	if got := user(t, killed, "ann@example.org").StoredBytes; got != quota {
		t.Errorf("%d bytes are charged after the end, and %d were before", got, quota)
	}
	freed(t, c, before, pinnedWithin, "the content of the pin that ended is collected")
	for s, id := range map[*service]string{bob: bobs.RequestID, ann: again.RequestID} {
		if st := s.get(id); st.Status != "pinned" {
			t.Errorf("a pin that did not end is %s: %v", st.Status, st.Info)
		}
	}
	for _, f := range files[1:] {
		if got := killed.Get(f.CID); !f.Matches(got) {
			t.Errorf("%s is read as %d other bytes", f.CID, len(got))
		}
	}
	commandsShowEnds(t, killed, renewed.CID)
}

// stored waits until every node has so many bytes.
func stored(t *testing.T, c *harness.Cluster, bytes int64) {
	t.Helper()
	harness.Eventually(t, pinnedWithin, "all copies are made, and counted", func() (bool, error) {
		used := usedBytes(t, c)
		for _, now := range used {
			if now < bytes {
				return false, fmt.Errorf("%v", used)
			}
		}
		return true, nil
	})
}

// refusesEnds: an end that is none, or has passed, is refused in the API's form and makes no pin.
func refusesEnds(s *service, p harness.Pin) {
	s.t.Helper()
	for _, until := range []string{"", "tomorrow", "-1h", "0s", "30d", "2020-01-01T00:00:00Z", time.Now().Add(-time.Minute).Format(time.RFC3339)} {
		if _, r := s.ends("", until, p); r.Status != http.StatusBadRequest || r.Reason() != "BAD_REQUEST" {
			s.t.Errorf("until %q: %d %s", until, r.Status, r.Body)
		}
	}
	if all := s.all(); len(all) != 0 {
		s.t.Errorf("refused ends made %d pins", len(all))
	}
}

// repeatsEnds: the Idempotency-Key compares the end too.
func repeatsEnds(s *service, p harness.Pin) {
	s.t.Helper()
	first, _ := s.ends("", "1h", p, "Idempotency-Key", "k1")
	again, r := s.ends("", "1h", p, "Idempotency-Key", "k1")
	if again.RequestID != first.RequestID || again.Info["pinned_until"] != first.Info["pinned_until"] {
		s.t.Errorf("a repeat: %d %s, at first %+v", r.Status, r.Body, first)
	}
	if _, r := s.ends("", "2h", p, "Idempotency-Key", "k1"); r.Status != http.StatusUnprocessableEntity {
		s.t.Errorf("another end: %d %s", r.Status, r.Body)
	}
	s.delete(first.RequestID)
}

// commandsShowEnds: the commands take an end and show it.
func commandsShowEnds(t *testing.T, n *harness.Node, cid string) {
	t.Helper()
	var added harness.PinStatus
	if err := json.Unmarshal([]byte(n.CLI("pin", "add", cid, "--until", "2099-01-31T12:00:00+02:00", "--json")), &added); err != nil {
		t.Fatal(err)
	}
	const end = "2099-01-31T10:00:00.000Z"
	if added.Info["pinned_until"] != end {
		t.Errorf("pin add: %+v", added)
	}
	for _, args := range [][]string{{"pin", "get", added.RequestID}, {"pin", "ls"}} {
		if out := n.CLI(args...); !strings.Contains(out, end) {
			t.Errorf("%v: %s", args, out)
		}
	}
	if r := n.TryCLI("", "pin", "add", cid, "--until", "yesterday"); r.Code == 0 || !strings.Contains(r.Stderr, "RFC 3339") {
		t.Errorf("a wrong end: %+v", r)
	}
}
