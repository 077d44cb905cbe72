package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// importNode takes pins in, from many goroutines, and refuses some at first.
type importNode struct {
	operator

	mu     sync.Mutex
	pins   []client.PinStatus
	made   int
	refuse func(p client.Pin, try int) error // nil: never
	tries  map[string]int
	blind  int // looks for a pin that are refused before one is not
}

func (n *importNode) Pins(context.Context, string, client.PinFilter) iter.Seq2[client.PinStatus, error] {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := slices.Clone(n.pins)
	return func(yield func(client.PinStatus, error) bool) {
		for _, p := range all {
			if !yield(p, nil) {
				return
			}
		}
	}
}

func (n *importNode) PinsOf(_ context.Context, _, cid, name string) (found []client.PinStatus, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.blind > 0 {
		n.blind--
		return nil, &client.Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second}
	}
	for _, p := range n.pins {
		if p.Pin.CID == cid && (name == "" || p.Pin.Name == name) {
			found = append(found, p)
		}
	}
	return found, nil
}

func (n *importNode) AddPin(_ context.Context, _ string, p client.Pin) (client.PinStatus, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tries == nil {
		n.tries = map[string]int{}
	}
	n.tries[p.CID]++
	if n.refuse != nil {
		if err := n.refuse(p, n.tries[p.CID]); err != nil {
			return client.PinStatus{}, err
		}
	}
	return n.take(p), nil
}

// take makes a pin.
func (n *importNode) take(p client.Pin) client.PinStatus {
	s := client.PinStatus{RequestID: strconv.Itoa(n.made), Status: "queued", Pin: p, Created: fmt.Sprintf("%03d", n.made)}
	n.made++
	n.pins = append(n.pins, s)
	return s
}

func (n *importNode) RemovePin(_ context.Context, _, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pins = slices.DeleteFunc(n.pins, func(p client.PinStatus) bool { return p.RequestID == id })
	return nil
}

// wantPins are CID and name of each, in any order.
func (n *importNode) wantPins(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, p := range n.pins {
		got = append(got, p.Pin.CID[:8]+" "+p.Pin.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("pins %q, want %q", got, want)
	}
}

const (
	importOne = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
	importTwo = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"
)

// `pin import` imports the recursive pins of an ipfs-cluster or kubo export, and imports none of them again. The
// export is a file or standard input. Each pin gets the origins of --origin.
func TestImportOfFiles(t *testing.T) {
	for _, tc := range []struct {
		name, file, summary string
		want                []string
	}{
		// As ipfs-cluster 1.1.6 writes its api.Pin.
		{"ipfs-cluster", "cluster.json", "2 imported, 0 already here, 3 skipped, 0 failed\n", []string{"bafkreig plain", "QmYwAPJz "}},
		{"ipfs-cluster with numbers as types", "cluster-numbers.json", "2 imported, 0 already here, 3 skipped, 0 failed\n", []string{"bafkreig plain", "QmYwAPJz "}},
		{"kubo", "ipfs.txt", "4 imported, 0 already here, 2 skipped, 0 failed\n", []string{"bafkreig plain", "QmYwAPJz ", "bafkreif a name of words", "bafkreif "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join("testdata", "import", tc.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for how, args := range map[string][]string{"file": {path}, "standard input": nil, "dash": {"-"}} {
				node := &importNode{}
				got := call(t, node, string(text), append([]string{"pin", "import", "--origin", "/ip4/192.0.2.1/tcp/1"}, args...)...)
				if got.code != exitOK || got.out != tc.summary {
					t.Errorf("%s: %+v", how, got)
				}
				node.wantPins(t, tc.want...)
				for _, p := range node.pins {
					if p.Pin.Origins[0] != "/ip4/192.0.2.1/tcp/1" {
						t.Errorf("%s: origins %v", how, p.Pin.Origins)
					}
				}
				// Once more: everything is here.
				again := call(t, node, string(text), append([]string{"pin", "import"}, args...)...)
				if want := fmt.Sprintf("0 imported, %d already here", len(tc.want)); again.code != exitOK || !strings.HasPrefix(again.out, want) {
					t.Errorf("%s, again: %+v", how, again)
				}
			}
		})
	}
}

// `pin import` names a line that it cannot read, imports the others, and exits with code 1.
func TestImportTellsWhatItCannotRead(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"hello", "not a CID"},
		{`{"cid":5}`, "line 1: no cid"},
		{`{"cid":`, "line 1: not a line of an ipfs-cluster export"},
		{`{"cid":"` + importOne + `","type":{}}`, importOne + ": line 1: ipfs-cluster has no pin type {}"},
		// As kubo answers `ipfs pin ls --enc=json --stream`.
		{`{"Cid":"` + importOne + `","Type":"recursive"}`, importOne + `: line 1: ipfs-cluster has no pin type "recursive"`},
		{importOne + " pinned", "line 1: not a line of ipfs pin ls"},
	} {
		node := &importNode{}
		got := call(t, node, tc.line+"\n"+importTwo+"\n", "pin", "import")
		if got.code != exitFailure || !strings.Contains(got.errOut, tc.want) || got.out != "1 imported, 0 already here, 0 skipped, 1 failed\n" {
			t.Errorf("%q: %+v", tc.line, got)
		}
	}
	for _, end := range []string{"", "\n", "\n" + importTwo, "\n" + importTwo + "\n"} {
		lines := importOne + "\n" + strings.Repeat("x", 3*maxImportLine) + end
		got := call(t, &importNode{}, lines, "pin", "import")
		want := fmt.Sprintf("%d imported, 0 already here, 0 skipped, 1 failed\n", 1+min(1, strings.Count(end, importTwo)))
		if got.code != exitFailure || got.out != want || !strings.Contains(got.errOut, "line 2: longer than") {
			t.Errorf("a line that is too long, and %q: %d %s %.200s", end, got.code, got.out, got.errOut)
		}
	}
}

// Of several pins of one CID and name, `pin import` imports exactly one, the next one if the node refuses the first.
func TestImportTriesThePinsOfOneNameUntilOneIsTaken(t *testing.T) {
	var lines string
	for _, meta := range []string{"bad", "bad", "good", "good"} {
		lines += `{"cid":"` + importOne + `","name":"n","metadata":{"m":"` + meta + `"}}` + "\n"
	}
	for _, parallel := range []string{"1", "8"} {
		for _, status := range []int{http.StatusBadRequest, http.StatusInsufficientStorage} {
			node := &importNode{refuse: func(p client.Pin, _ int) error {
				if p.Meta["m"] == "bad" {
					return &client.Error{Status: status, Detail: "no"}
				}
				return nil
			}}
			got := call(t, node, lines, "pin", "import", "--parallel", parallel)
			node.wantPins(t, "bafkreig n")
			if want := "1 imported, 1 already here, 0 skipped, 2 failed\n"; parallel == "1" && (got.code != exitFailure || got.out != want) {
				t.Errorf("%d: %+v", status, got)
			}
		}
	}
}

// Flags of `pin import` that are malformed or do not go together are wrong usage.
func TestImportUsage(t *testing.T) {
	for _, args := range [][]string{
		{"a", "b"},
		{"--from", "http://x", "file"},
		{"--token", "x"},
		{"--from", "http://x"},
		{"--from", "ftp://x", "--token", "t"},
		{"--parallel", "0"},
		{"--parallel", "65"},
		{"--format", "csv"},
		{"--origin", "/ip4/192.0.2.1/tcp/1", "--origin", "203.0.113.7:4001"},
		{"--origin", "/ip4/192.0.2.1" + strings.Repeat("/tcp/1", 200)},
		{"--status", "done"},
		{"--from", "http://x", "--token", "t", "--token-file", "f"},
	} {
		if got := call(t, &importNode{}, "", append([]string{"pin", "import"}, args...)...); got.code != exitUsage || got.out != "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// pages is a pinning service with rows of one account, newest first.
type pages struct {
	t    *testing.T
	rows []map[string]any
	most int // rows of a page whatever is asked for; 0: no bound
	busy int // answers of 429 to come
	mu   sync.Mutex
	asks int
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asks++
	if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/psa/pins" {
		http.Error(w, `{"error":{"reason":"UNAUTHORIZED"}}`, http.StatusUnauthorized)
		return
	}
	if p.busy > 0 {
		p.busy--
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	if q.Get("status") != "pinned" {
		p.t.Errorf("status %q", q.Get("status"))
	}
	if p.most > 0 {
		limit = min(limit, p.most)
	}
	count := 0
	page := []map[string]any{}
	for _, row := range p.rows {
		if before := q.Get("before"); before != "" {
			at, err := time.Parse(time.RFC3339, before)
			created, _ := time.Parse(time.RFC3339, row["created"].(string))
			if err != nil || !created.Before(at) {
				continue
			}
		}
		count++
		if len(page) < limit {
			page = append(page, row)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"count": count, "results": page})
}

// remoteRows are n rows of which each tie share a time.
func remoteRows(n, tie int) (rows []map[string]any) {
	newest := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		rows = append(rows, map[string]any{
			"requestid": strconv.Itoa(i), "status": "pinned", "created": newest.Add(-time.Duration(i/tie) * time.Second).Format(time.RFC3339),
			"pin":       map[string]any{"cid": importOne, "name": strconv.Itoa(i), "meta": map[string]string{"n": strconv.Itoa(i)}},
			"delegates": []string{"/ip4/203.0.113.9/tcp/4001/p2p/12D3KooWNrbHpKYDmTUXFRQBnnvJ7aMLUCGNCAio2P3AW2N3LNB9"}, "info": map[string]any{"x": 1},
		})
	}
	return rows
}

// `pin import --from` imports all pins of a pinning service, also if many were created in one second. They have their
// meta, and the service's delegates as origins. A wrong token fails the import.
func TestImportFromAService(t *testing.T) {
	for _, tc := range []struct{ rows, tie int }{{0, 1}, {1, 1}, {999, 1}, {1000, 1}, {2500, 1}, {2500, 7}, {2100, 400}} {
		service := &pages{t: t, rows: remoteRows(tc.rows, tc.tie)}
		server := httptest.NewServer(service)
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		node := &importNode{}
		got := call(t, node, "", "pin", "import", "--from", server.URL+"/psa/", "--token-file", file, "--parallel", "64")
		server.Close()
		if want := fmt.Sprintf("%d imported, 0 already here, 0 skipped, 0 failed\n", tc.rows); got.code != exitOK || got.out != want {
			t.Errorf("%+v: %+v", tc, got)
		}
		for _, p := range node.pins {
			if p.Pin.Meta["n"] != p.Pin.Name || len(p.Pin.Origins) != 1 {
				t.Fatalf("%+v: %+v", tc, p.Pin)
			}
		}
	}
	service := httptest.NewServer(&pages{t: t})
	defer service.Close()
	if got := call(t, &importNode{}, "", "pin", "import", "--from", service.URL+"/psa", "--token", "wrong"); got.code != exitFailure || !strings.Contains(got.errOut, "401") {
		t.Errorf("a wrong token: %+v", got)
	}
}

// importFrom imports all of a service into a node.
func importFrom(t *testing.T, service http.Handler) (*importNode, outcome) {
	t.Helper()
	server := httptest.NewServer(service)
	defer server.Close()
	node := &importNode{}
	return node, call(t, node, "", "pin", "import", "--from", server.URL+"/psa", "--token", "secret", "--parallel", "64")
}

// `pin import --from` imports all pins of a service that gives fewer rows a page than it was asked for.
func TestImportFromAServiceWithShortPages(t *testing.T) {
	for _, tc := range []struct{ rows, tie, most int }{{250, 1, 100}, {250, 99, 100}, {1, 1, 1}, {100, 7, 100}} {
		_, got := importFrom(t, &pages{t: t, rows: remoteRows(tc.rows, tc.tie), most: tc.most})
		if want := fmt.Sprintf("%d imported, 0 already here, 0 skipped, 0 failed\n", tc.rows); got.code != exitOK || got.out != want {
			t.Errorf("%+v: %+v", tc, got)
		}
	}
}

// `pin import --from` fails and gives both counts if a service counts more pins than its pages have. It imports all
// that it got. No page can reach pins beyond the first 1,000 of one second.
func TestImportTellsWhatAServiceDoesNotGive(t *testing.T) {
	node, got := importFrom(t, &pages{t: t, rows: remoteRows(1200, 1200)})
	if got.code != exitFailure || len(node.pins) != 1000 || !strings.Contains(got.errOut, "counts 1200 pins and gave 1000") {
		t.Errorf("%d pins, %+v", len(node.pins), got)
	}
	// Behind them the import goes on.
	node, got = importFrom(t, &pages{t: t, rows: append(remoteRows(1200, 1200), remoteRows(1300, 1)[1200:]...)})
	if got.code != exitFailure || len(node.pins) != 1100 || !strings.Contains(got.errOut, "counts 1300 pins and gave 1100") {
		t.Errorf("%d pins, %+v", len(node.pins), got)
	}
}

// `pin import --from` skips and names a row that it cannot read, and imports the other pins. It drops an address that
// it does not know.
func TestImportSkipsABadRowAlone(t *testing.T) {
	rows := remoteRows(10, 1)
	rows[2]["pin"].(map[string]any)["meta"] = map[string]any{"a": 1}
	rows[5]["created"] = "yesterday"
	rows[9]["created"] = "the day before"
	rows[7]["delegates"] = []string{"/quic-v9/x", "/ip4/203.0.113.9/tcp/4001/p2p/12D3KooWNrbHpKYDmTUXFRQBnnvJ7aMLUCGNCAio2P3AW2N3LNB9", "/ip4/999.1.1.1/tcp/1"}
	node, got := importFrom(t, &pages{t: t, rows: rows})
	if got.code != exitFailure || got.out != "7 imported, 0 already here, 0 skipped, 3 failed\n" || len(node.pins) != 7 || strings.Contains(got.errOut, "stopped before its end") {
		t.Errorf("%d pins, %+v", len(node.pins), got)
	}
	for _, id := range []string{"2", "5", "9"} {
		if !strings.Contains(got.errOut, importOne+": cannot read the row of request \""+id+"\"") {
			t.Errorf("row %s is not told of: %s", id, got.errOut)
		}
	}
	for _, p := range node.pins {
		if len(p.Pin.Origins) != 1 {
			t.Errorf("origins %q", p.Pin.Origins)
		}
	}
}

// An import waits as long as a busy service asks, and tells the person before each wait. It gives up after
// importTries attempts.
func TestTheServiceIsGivenTimeWhenItAsksForIt(t *testing.T) {
	service := &pages{t: t, rows: remoteRows(5, 1), busy: 3}
	server := httptest.NewServer(service)
	defer server.Close()
	var pauses []time.Duration
	a, w := testApp(t, &fakeNode{}, "")
	remote := &remoteService{base: server.URL + "/psa", token: "secret", statuses: []string{"pinned"}, http: server.Client(), tell: a.tellRetry, pause: func(_ context.Context, d time.Duration) error {
		pauses = append(pauses, d)
		if told := w.errs.String(); strings.Count(told, "\n") != len(pauses) || !strings.Contains(told, "trying again in "+humanTime(d)) {
			t.Errorf("at pause %d somebody who waits has read %q", len(pauses), told)
		}
		return nil
	}}
	if n, err := remote.count(t.Context()); err != nil || n != 5 || !slices.Equal(pauses, []time.Duration{7 * time.Second, 7 * time.Second, 7 * time.Second}) {
		t.Errorf("%d after %v: %v", n, pauses, err)
	}
	service.busy, pauses = 100, nil
	w.errs.Reset()
	if _, err := remote.count(t.Context()); err == nil || len(pauses) != importTries-1 {
		t.Errorf("for ever busy: %d pauses, %v", len(pauses), err)
	}
	if told := w.errs.String(); !strings.Contains(told, "429") || !strings.Contains(told, "1 attempt left") {
		t.Errorf("for ever busy: told %q", told)
	}
	server.Close()
	w.errs.Reset()
	pauses = nil
	if _, err := remote.count(t.Context()); err == nil || !strings.Contains(w.errs.String(), "connection refused; trying again") {
		t.Errorf("not reached: %v, told %q", err, w.errs.String())
	}
}

// `pin import` waits as long as a busy node asks, and pins once even if an answer got lost. It does not retry a final
// refusal.
func TestANodeThatAsksForTimeIsGivenIt(t *testing.T) {
	busy := func(after time.Duration) error {
		return &client.Error{Status: http.StatusTooManyRequests, RetryAfter: after}
	}
	gone := &client.Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second}
	for _, tc := range []struct {
		name   string
		refuse func(n *importNode) func(p client.Pin, try int) error
		out    string
		took   time.Duration
		code   int
	}{
		{"later, twice", func(*importNode) func(client.Pin, int) error {
			return func(_ client.Pin, try int) error {
				if try < 3 {
					return busy(10 * time.Second)
				}
				return nil
			}
		}, "1 imported, 0 already here, 0 skipped, 0 failed\n", 20 * time.Second, exitOK},
		{"no leader, but it was pinned", func(n *importNode) func(client.Pin, int) error {
			return func(p client.Pin, _ int) error {
				n.pins = append(n.pins, client.PinStatus{Pin: p})
				return gone
			}
		}, "1 imported, 0 already here, 0 skipped, 0 failed\n", 0, exitOK},
		{"no leader, not even to look, but it was pinned", func(n *importNode) func(client.Pin, int) error {
			n.blind = 3
			return func(p client.Pin, try int) error {
				if try > 1 {
					return nil
				}
				n.pins = append(n.pins, client.PinStatus{Pin: p})
				return gone
			}
		}, "1 imported, 0 already here, 0 skipped, 0 failed\n", 3 * time.Second, exitOK},
		{"no leader for good", func(n *importNode) func(client.Pin, int) error {
			n.blind = 1000
			return func(client.Pin, int) error { return gone }
		}, "0 imported, 0 already here, 0 skipped, 1 failed\n", 7 * time.Second, exitFailure},
		{"never", func(*importNode) func(client.Pin, int) error {
			return func(client.Pin, int) error { return busy(0) }
		}, "0 imported, 0 already here, 0 skipped, 1 failed\n", 63500 * time.Millisecond, exitFailure},
		{"refused for good", func(*importNode) func(client.Pin, int) error {
			return func(client.Pin, int) error { return &client.Error{Status: 400, Detail: "bad name"} }
		}, "0 imported, 0 already here, 0 skipped, 1 failed\n", 0, exitFailure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := &importNode{}
				node.refuse = tc.refuse(node)
				began := time.Now()
				got := call(t, node, importOne+"\n", "pin", "import")
				if took := time.Since(began); got.out != tc.out || got.code != tc.code || took != tc.took {
					t.Errorf("after %s: %+v", took, got)
				}
				if len(node.pins) > 1 {
					t.Errorf("%d pins", len(node.pins))
				}
			})
		})
	}
}

// Of two imports of the same pins at once, the younger one reports its pins as already here. The older pins stay.
// Both look before either has pinned anything.
func TestTwoImportsAtOncePinEachOnce(t *testing.T) {
	const other = "other"
	for name, tc := range map[string]struct {
		before bool
		busy   int
		out    string
	}{
		"the other is first":                         {true, 0, "0 imported, 2 already here, 0 skipped, 0 failed\n"},
		"the other is second":                        {false, 0, "2 imported, 0 already here, 0 skipped, 0 failed\n"},
		"the other is first, and there is no leader": {true, 3, "0 imported, 2 already here, 0 skipped, 0 failed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := &importNode{blind: tc.busy}
				theirs := func(p client.Pin) {
					p.Meta = map[string]string{"of": other}
					node.take(p)
				}
				node.refuse = func(p client.Pin, _ int) error {
					if tc.before {
						theirs(p)
						return nil
					}
					go func() { // waits until this one is taken
						node.mu.Lock()
						defer node.mu.Unlock()
						theirs(p)
					}()
					return nil
				}
				got := call(t, node, importOne+" recursive\n"+importOne+" recursive n\n", "pin", "import")
				if got.code != exitOK || got.out != tc.out {
					t.Errorf("%+v", got)
				}
				synctest.Wait()
				var left []string
				for _, p := range node.pins {
					if (p.Pin.Meta["of"] == other) == tc.before {
						left = append(left, p.Pin.Name)
					}
				}
				slices.Sort(left)
				if !slices.Equal(left, []string{"", "n"}) {
					t.Errorf("%q are left of the older ones, all are %+v", left, node.pins)
				}
			})
		})
	}
}

// An import that is interrupted exits with code 1 and prints how many pins it has imported.
func TestAnImportThatIsInterruptedSaysHowFarItCame(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	node := &importNode{refuse: func(p client.Pin, _ int) error {
		if p.CID == importTwo {
			cancel()
		}
		return nil
	}}
	a, out := testApp(t, node, importOne+"\n"+importTwo+"\n"+strings.Repeat(importOne+"\n", 100))
	if code := a.execute(ctx, []string{"pin", "import", "--parallel", "1"}); code != exitFailure || !strings.Contains(out.out.String(), " imported, ") || !strings.Contains(out.errs.String(), "interrupted") {
		t.Errorf("%d %s %s", code, &out.out, &out.errs)
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error("it was not interrupted")
	}
}

// A pin from a service gets up to 20 origins, of which at least 4 are delegates of the service if it has as many. A
// pin may have as many origins as there can be, all of them gone since it was pinned.
func TestDelegatesFindAPlaceAmongOrigins(t *testing.T) {
	addrs := func(net, n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("/ip4/192.0.%d.%d/tcp/1", net, i))
		}
		return list
	}
	for _, tc := range []struct{ own, delegates, wantOwn, want int }{
		{20, 6, 16, 4}, {20, 1, 19, 1}, {20, 0, 20, 0}, {15, 6, 15, 5}, {2, 6, 2, 6}, {0, 30, 0, 20},
	} {
		row := remoteRow{Delegates: addrs(2, tc.delegates)}
		row.Pin.Origins = addrs(1, tc.own)
		want := slices.Concat(addrs(1, tc.own)[:tc.wantOwn], addrs(2, tc.delegates)[:tc.want])
		if got := row.asPin().Origins; !slices.Equal(got, want) {
			t.Errorf("%d origins and %d delegates: %v", tc.own, tc.delegates, got)
		}
	}
}
