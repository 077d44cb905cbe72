//go:build conformance

package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multibase"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// names are those of the listed pins, chosen so that the four ways of matching
// differ and so that a search language in the wrong place would show.
var names = []string{
	"report", "Report", "REPORT", "report-2026", "annual report", "100% sure", "100 sure",
	"a_b", "axb", "Ärger", "äRGER", "Kelvin \u212a", "kelvin k", "", `back\slash`, "[abc]*", "report",
}

func testList(t *testing.T, c *harness.Cluster, source *harness.Boxo) {
	s := newService(t, c, "list@example.org")
	if r := s.raw(http.MethodGet, "/pins", ""); r.Status != http.StatusOK || strings.TrimSpace(string(r.Body)) != `{"count":0,"results":[]}` {
		t.Errorf("20: an empty list is %d %s", r.Status, r.Body)
	}
	held := source.AddRandom(1, 50_000)[0]
	var posted []harness.PinStatus // oldest first
	for i, name := range names {
		p := harness.Pin{CID: held.CID, Name: name, Origins: source.Addrs, Meta: map[string]string{"n": strconv.Itoa(i), "parity": strconv.Itoa(i % 2)}}
		if i%4 == 3 {
			p.CID, p.Origins = nowhere().String(), nil
		}
		posted = append(posted, s.post(p))
	}
	// From here on every status is final, so that counts stand still.
	harness.Eventually(t, 2*pinnedWithin, "every pin is pinned or failed", func() (bool, error) {
		n := s.list("status", "queued,pinning").Count
		return n == 0, fmt.Errorf("%d are not", n)
	})
	newest := s.all()
	slices.Reverse(posted)
	if !slices.Equal(ids(newest), ids(posted)) {
		t.Fatalf("45: the list is not newest first:\n%v\n%v", ids(newest), ids(posted))
	}
	for _, p := range newest {
		checkStatus(t, c, p)
	}
	t.Run("filters", func(t *testing.T) { testFilters(s.as(t), newest) })
	t.Run("names", func(t *testing.T) { testNames(s.as(t)) })
	t.Run("times", func(t *testing.T) { testTimes(s.as(t), newest) })
	t.Run("cids", func(t *testing.T) { testCIDs(s.as(t), newest) })
}

func testFilters(s *service, newest []harness.PinStatus) {
	failed := len(names) / 4
	total := len(names)
	for _, tc := range []struct {
		name           string
		query          []string
		count, results int
	}{
		{"31 42 pinned only, ten", nil, total - failed, 10},
		{"32 one status", []string{"status", "failed"}, failed, failed},
		{"32 two statuses", []string{"status", "pinned,failed"}, total, 10},
		{"32 the parameter twice", []string{"status", "pinned", "status", "failed"}, total, 10},
		{"32 a status that no pin has", []string{"status", "queued"}, 0, 0},
		{"43 the least limit", []string{"status", harness.AllStatuses, "limit", "1"}, total, 1},
		{"43 the greatest limit", []string{"status", harness.AllStatuses, "limit", "1000"}, total, total},
		{"44 meta", []string{"status", harness.AllStatuses, "meta", `{"parity":"1"}`, "limit", "3"}, total / 2, 3},
		{"44 meta, two pairs", []string{"status", harness.AllStatuses, "meta", `{"parity":"1","n":"5"}`}, 1, 1},
		{"44 meta, no pair", []string{"status", harness.AllStatuses, "meta", `{}`}, total, 10},
		{"44 meta, a value nobody has", []string{"status", harness.AllStatuses, "meta", `{"parity":"11"}`}, 0, 0},
		{"44 meta is exact", []string{"status", harness.AllStatuses, "meta", `{"Parity":"1"}`}, 0, 0},
		{"44 meta of an old pin with limit 1", []string{"status", harness.AllStatuses, "meta", `{"n":"0"}`, "limit", "1"}, 1, 1},
		{"47 unknown parameters", []string{"status", harness.AllStatuses, "colour", "red", "colour", "blue"}, total, 10},
		{"19 filters together", []string{"status", "pinned,failed", "name", "report", "meta", `{"n":"16"}`}, 1, 1},
	} {
		got := s.list(tc.query...)
		if got.Count != tc.count || len(got.Results) != tc.results {
			s.t.Errorf("%s: %d of %d, want %d of %d", tc.name, len(got.Results), got.Count, tc.results, tc.count)
		}
	}
	if got := s.list("status", harness.AllStatuses, "limit", "3"); !slices.Equal(ids(got.Results), ids(newest[:3])) {
		s.t.Errorf("45: a page of three is %v, want %v", ids(got.Results), ids(newest[:3]))
	}
	other := newService(s.t, s.cluster, "list2@example.org")
	if got := other.list("status", harness.AllStatuses); got.Count != 0 {
		s.t.Errorf("another account sees %d pins", got.Count)
	}
}

func testNames(s *service) {
	for _, tc := range []struct {
		match, name string
		want        []string
	}{
		{"", "report", []string{"report", "report"}}, // 34
		{"exact", "report", []string{"report", "report"}},
		{"exact", "repor", nil},
		{"exact", "Report", []string{"Report"}},
		{"iexact", "rePort", []string{"report", "Report", "REPORT", "report"}},
		{"iexact", "ÄRGER", []string{"Ärger", "äRGER"}},
		{"iexact", "KELVIN K", []string{"Kelvin \u212a", "kelvin k"}},
		{"partial", "port", []string{"report", "Report", "report-2026", "annual report", "report"}},
		{"partial", "PORT", []string{"REPORT"}},
		{"partial", "0%", []string{"100% sure"}},
		{"partial", "_", []string{"a_b"}},
		{"partial", `\`, []string{`back\slash`}},
		{"partial", "[abc]*", []string{"[abc]*"}},
		{"partial", ".", nil},
		{"ipartial", "PORT", []string{"report", "Report", "REPORT", "report-2026", "annual report", "report"}},
		{"ipartial", "ärg", []string{"Ärger", "äRGER"}},
		{"ipartial", "K", []string{"Kelvin \u212a", "kelvin k", `back\slash`}},
	} {
		q := []string{"status", harness.AllStatuses, "name", tc.name, "limit", "100"}
		if tc.match != "" {
			q = append(q, "match", tc.match)
		}
		got := s.list(q...)
		var found []string
		for _, p := range got.Results {
			found = append(found, p.Pin.Name)
		}
		slices.Sort(found)
		slices.Sort(tc.want)
		if !slices.Equal(found, tc.want) || got.Count != len(tc.want) {
			s.t.Errorf("34-38: match=%s name=%q: %q (count %d), want %q", tc.match, tc.name, found, got.Count, tc.want)
		}
	}
}

func testTimes(s *service, newest []harness.PinStatus) {
	at := func(i int) string { return newest[i].Created }
	moved := func(i int, zone string, hours time.Duration) string {
		when, err := time.Parse(time.RFC3339, at(i))
		if err != nil {
			s.t.Fatal(err)
		}
		return when.Add(hours*time.Hour).Format("2006-01-02T15:04:05.000") + zone
	}
	n := len(newest)
	for _, tc := range []struct {
		name     string
		query    []string
		from, to int // of newest
	}{
		{"40 before is strict", []string{"before", at(5)}, 6, n},
		{"41 after is strict", []string{"after", at(5)}, 0, 5},
		{"both", []string{"before", at(2), "after", at(6)}, 3, 6},
		{"an empty window", []string{"before", at(4), "after", at(4)}, 0, 0},
		{"another zone", []string{"before", moved(5, "+02:00", 2)}, 6, n},
		{"a zone to the west", []string{"after", moved(5, "-05:00", -5)}, 0, 5},
		{"a nanosecond later", []string{"before", strings.TrimSuffix(at(5), "Z") + "000001Z"}, 5, n},
		{"far future", []string{"before", "9999-12-31T23:59:59.999Z"}, 0, n},
		{"long ago", []string{"after", "1970-01-01T00:00:00Z"}, 0, n},
	} {
		got := s.list(append(tc.query, "status", harness.AllStatuses, "limit", "100")...)
		want := ids(newest[tc.from:tc.to])
		if !slices.Equal(ids(got.Results), want) || got.Count != len(want) {
			s.t.Errorf("%s (%v): %d pins, count %d, want %d", tc.name, tc.query, len(got.Results), got.Count, len(want))
		}
	}
	// 19: the count is of all that match, not of the page.
	if got := s.list("status", harness.AllStatuses, "before", at(2), "limit", "4"); got.Count != n-3 || len(got.Results) != 4 {
		s.t.Errorf("19: %d of %d, want 4 of %d", len(got.Results), got.Count, n-3)
	}
}

func testCIDs(s *service, newest []harness.PinStatus) {
	var lone harness.PinStatus // a pin whose CID no other pin has
	held := map[string]int{}
	for _, p := range newest {
		if held[p.Pin.CID]++; p.Status == "failed" {
			lone = p
		}
	}
	c, err := cid.Decode(lone.Pin.CID)
	if err != nil {
		s.t.Fatal(err)
	}
	var common string
	for text, n := range held {
		if n > 1 {
			common = text
		}
	}
	ten := make([]string, 10)
	for i := range ten {
		ten[i] = nowhere().String()
	}
	ten[7] = lone.Pin.CID
	v0 := cid.NewCidV0(nowhere().Hash())
	zero := s.post(harness.Pin{CID: v0.String()})
	for _, tc := range []struct {
		name  string
		query []string
		want  int
	}{
		{"one", []string{"cid", lone.Pin.CID}, 1},
		{"one that many have", []string{"cid", common}, held[common]},
		{"in base58", []string{"cid", base(s.t, c, multibase.Base58BTC)}, 1},
		{"in upper case", []string{"cid", base(s.t, c, multibase.Base32Upper)}, 1},
		{"two by comma", []string{"cid", lone.Pin.CID + "," + common}, 1 + held[common]},
		{"two parameters", []string{"cid", lone.Pin.CID, "cid", common}, 1 + held[common]},
		{"ten", []string{"cid", strings.Join(ten, ",")}, 1},
		{"nobody's", []string{"cid", nowhere().String()}, 0},
		{"v0 as v0", []string{"cid", v0.String()}, 1},
		{"v0 is not v1", []string{"cid", cid.NewCidV1(cid.DagProtobuf, v0.Hash()).String()}, 0},
		{"another codec is another CID", []string{"cid", cid.NewCidV1(cid.DagCBOR, c.Hash()).String()}, 0},
	} {
		got := s.list(append(tc.query, "status", harness.AllStatuses, "limit", "100")...)
		if got.Count != tc.want || len(got.Results) != tc.want {
			s.t.Errorf("33: %s: %d of %d, want %d", tc.name, len(got.Results), got.Count, tc.want)
		}
	}
	s.delete(zero.RequestID)
}

// Sizes of the paging test: more pins than fit into two of the largest pages.
const (
	pagedPins    = 2500
	pagedClients = 24
)

// testPaging creates pins from many clients at once, so that many fall into
// one millisecond, and walks through them while more arrive.
func testPaging(t *testing.T, c *harness.Cluster, source *harness.Boxo) {
	s := newService(t, c, "paging@example.org")
	held := source.AddRandom(1, 1000)[0]
	pin := harness.Pin{CID: held.CID, Origins: source.Addrs}
	s.pinned(s.post(pin).RequestID)
	before := createMany(s, pin, pagedPins)
	if len(before) != pagedPins {
		t.Fatalf("%d ids for %d pins", len(before), pagedPins)
	}
	more := make(chan map[string]bool, 1)
	go func() { more <- createMany(s, pin, pagedPins/10) }()
	for _, page := range []int{7, 1000} {
		pins, err := s.next().ListAll(t.Context(), nil, page)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range pins {
			if i > 0 && p.Created >= pins[i-1].Created {
				t.Fatalf("page size %d: %s after %s", page, p.Created, pins[i-1].Created)
			}
		}
		wantOnce(t, ids(pins), before)
	}
	total := 1 + len(before) + len(<-more)
	if got := s.list("status", harness.AllStatuses, "limit", "1"); got.Count != total {
		t.Errorf("19: count %d, want %d", got.Count, total)
	}
	for _, n := range c.Nodes {
		all, err := n.Pins(s.token).ListAll(t.Context(), nil, 1000)
		if err != nil || len(all) != total {
			t.Errorf("%s lists %d of %d: %v", n.Name, len(all), total, err)
		}
	}
}

// createMany creates n pins from many clients at once and returns their ids. Behind
// a name comes the number of the pin.
func createMany(s *service, pin harness.Pin, n int) map[string]bool {
	s.t.Helper()
	var g errgroup.Group
	g.SetLimit(pagedClients)
	made := make([]string, n)
	for i := range n {
		client, pin := s.next(), pin
		if pin.Name != "" {
			pin.Name += strconv.Itoa(i)
		}
		g.Go(func() error {
			st, err := client.Post(s.t.Context(), pin)
			made[i] = st.RequestID
			return err
		})
	}
	if err := g.Wait(); err != nil {
		s.t.Fatal(err)
	}
	set := map[string]bool{}
	for _, id := range made {
		set[id] = true
	}
	return set
}
