package pinning

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-ipfs/holdfast/api/internal/pinbody"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

// fake answers every call with one record, or with an error.
type fake struct {
	record  pins.Record
	changed pins.Record   // what waiting ends with
	entered chan struct{} // has a token for each call of Wait
	rows    []pins.Record
	total   uint64
	err     error
	query   state.PinQuery // of the last list
	asked   pins.Request   // of the last create or replace
	hangs   bool           // until the context ends
	ready   error
}

func (f *fake) answer(ctx context.Context) (pins.Record, error) {
	if f.hangs {
		<-ctx.Done()
		return pins.Record{}, fmt.Errorf("wait for the leader: %w", ctx.Err())
	}
	return f.record, f.err
}

func (f *fake) Create(ctx context.Context, _ state.AccountID, r pins.Request) (pins.Record, error) {
	f.asked = r
	return f.answer(ctx)
}

func (f *fake) Replace(ctx context.Context, _ state.AccountID, _ state.RequestID, r pins.Request) (pins.Record, error) {
	f.asked = r
	return f.answer(ctx)
}

func (f *fake) Get(ctx context.Context, _ state.AccountID, _ state.RequestID) (pins.Record, error) {
	return f.answer(ctx)
}

func (f *fake) Wait(ctx context.Context, _ state.AccountID, _ state.RequestID, _ state.Status, enough <-chan struct{}) (pins.Record, error) {
	f.entered <- struct{}{}
	select {
	case <-enough:
		return f.changed, f.err
	case <-ctx.Done():
		return pins.Record{}, ctx.Err()
	}
}

func (f *fake) List(ctx context.Context, _ state.AccountID, q state.PinQuery) (uint64, []pins.Record, error) {
	f.query = q
	_, err := f.answer(ctx)
	return f.total, f.rows, err
}

func (f *fake) Delete(ctx context.Context, _ state.AccountID, _ state.RequestID) error {
	_, err := f.answer(ctx)
	return err
}

func (f *fake) Ready(context.Context) error { return f.ready }

func anyone(context.Context, *http.Request) (accounts.Principal, error) {
	return accounts.Principal{Account: "a", Scopes: []string{state.ScopeRead, state.ScopeWrite}}, nil
}

func (f *fake) handler(tb testing.TB) http.Handler {
	tb.Helper()
	return f.limited(tb, nil)
}

func (f *fake) limited(tb testing.TB, limits *web.Limits) http.Handler {
	tb.Helper()
	h, err := New(Options{
		Pins: f, Authenticate: anyone, Health: f, DefaultStatus: []string{"pinned"}, Version: "1.2.3",
		Limits: limits, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func fullRecord() pins.Record {
	return pins.Record{
		Pin: state.Pin{
			ID: "0b4ad1c8-2d5e-4b6f-9d0a-2f1e3c4b5a69", Account: "secret account", Created: state.MillisOf(start), Status: state.Pinned,
			CID: cidOne, Given: state.GivenName | state.GivenOrigins | state.GivenMeta, Name: "\"n\"\\ <b>& \u2028 é🏔\x00",
			Origins: []string{"/ip4/203.0.113.142/tcp/4001/p2p/12D3KooWNrbHpKYDmTUXFRQBnnvJ7aMLUCGNCAio2P3AW2N3LNB9"},
			Meta:    map[string]string{"b": "2", "a": "1", "": ""},
		},
		Delegates: []string{"/ip4/198.51.100.1/tcp/4001/p2p/n1", "/ip4/198.51.100.2/tcp/4001/p2p/n2"},
		Info:      map[string]string{"dag_size": "1048576", "status_details": "kept on 2 of 3 nodes"},
	}
}

// Each answer and each error is the golden file, byte for byte, with status and headers.
func TestAnswersKeepTheirForm(t *testing.T) {
	full := fullRecord()
	bare := pins.Record{Pin: state.Pin{ID: "id-2", Created: 1, Status: state.Queued, CID: cidV0}, Delegates: []string{"/ip4/198.51.100.1/tcp/4001/p2p/n1"}}
	empty := bare
	empty.Given, empty.Status = state.GivenName|state.GivenOrigins|state.GivenMeta, state.Failed
	empty.Info = map[string]string{"status_details": "nobody has it"}
	good := `{"cid":"` + cidOne + `"}`
	for _, tc := range []struct {
		name string
		fake fake
		request
	}{
		{"create", fake{record: bare}, request{method: "POST", path: "/pins", body: good}},
		{"create_full", fake{record: full}, request{method: "POST", path: "/pins", body: good}},
		{"replace", fake{record: bare}, request{method: "POST", path: "/pins/id-1", body: good}},
		{"get_pinned", fake{record: full}, request{method: "GET", path: "/pins/id-1"}},
		{"get_failed_empty_fields", fake{record: empty}, request{method: "GET", path: "/pins/id-1"}},
		{"delete", fake{}, request{method: "DELETE", path: "/pins/id-1"}},
		{"list", fake{total: 12345, rows: []pins.Record{full, bare}}, request{method: "GET", path: "/pins"}},
		{"list_empty", fake{}, request{method: "GET", path: "/pins"}},
		{"options", fake{}, request{method: "OPTIONS", path: "/pins"}},
		{"healthz", fake{}, request{method: "GET", path: "/healthz"}},
		{"readyz", fake{}, request{method: "GET", path: "/readyz"}},
		{"readyz_not", fake{ready: errors.New("no leader is known")}, request{method: "GET", path: "/readyz"}},
		{"error_bad_request", fake{}, request{method: "GET", path: "/pins?limit=0"}},
		{"error_unauthorized", fake{err: fmt.Errorf("wrapped: %w", state.ErrUnauthorized)}, request{method: "GET", path: "/pins"}},
		{"error_forbidden", fake{err: state.ErrForbidden}, request{method: "GET", path: "/pins"}},
		{"error_not_found", fake{err: state.Errorf(state.CodeNotFound, "some internal words")}, request{method: "GET", path: "/pins/id-1"}},
		{"error_method", fake{}, request{method: "PUT", path: "/pins"}},
		{"error_quota", fake{err: state.ErrQuota}, request{method: "POST", path: "/pins", body: good}},
		{"error_too_large", fake{err: state.ErrTooLarge}, request{method: "POST", path: "/pins", body: good}},
		{"error_limited", fake{err: state.ErrLimited}, request{method: "POST", path: "/pins", body: good}},
		{"error_internal", fake{err: errors.New("open /var/lib/holdfast/state: input/output error")}, request{method: "GET", path: "/pins"}},
		{"error_unavailable", fake{err: state.ErrUnavailable}, request{method: "GET", path: "/pins"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.header = http.Header{"X-Request-Id": {"golden"}}
			rec := do(tc.fake.handler(t), tc.request)
			var got bytes.Buffer
			fmt.Fprintf(&got, "%s %s\n%d\n", tc.method, tc.path, rec.Code)
			for _, name := range slices.Sorted(maps.Keys(rec.Header())) {
				fmt.Fprintf(&got, "%s: %s\n", name, strings.Join(rec.Header()[name], " | "))
			}
			fmt.Fprintf(&got, "\n%s\n", rec.Body)
			goldentest.File(t, filepath.Join("testdata", tc.name+".http"), got.Bytes())
		})
	}
}

// Each error code of the state has a status, a reason and a text, each reason has one status, and an unknown
// code is a 500 without detail.
func TestEveryCodeOfTheStateHasAnAnswer(t *testing.T) {
	reasons := map[string]int{}
	for _, code := range state.Codes() {
		a := answer(fmt.Errorf("wrapped: %w", state.Errorf(code, "words")))
		if _, ok := errorTable[code]; !ok || a.Status < 400 || a.Reason == "" || a.Detail == "" {
			t.Errorf("code %d: %+v", code, a)
		}
		if known, ok := reasons[a.Reason]; ok && known != a.Status {
			t.Errorf("reason %s has the statuses %d and %d", a.Reason, known, a.Status)
		}
		reasons[a.Reason] = a.Status
	}
	if a := answer(state.Errorf(9999, "from a newer node")); a.Status != 500 || strings.Contains(a.Detail, "newer") {
		t.Errorf("an unknown code: %+v", a)
	}
}

// An operation without a known scope gets no route, and if it is called anyway it is forbidden.
func TestAnOperationWithoutAScopeIsServedToNobody(t *testing.T) {
	for _, scope := range []string{"", "storage:delete"} {
		if _, err := (&surface{}).routes([]operation{{http.MethodGet, "/new", scope, nil}}); err == nil {
			t.Errorf("scope %q makes a route", scope)
		}
	}
	s := &surface{authenticate: anyone}
	err := s.authorized(operation{http.MethodGet, "/new", "", nil})(nil, httptest.NewRequest(http.MethodGet, "/new", nil))
	if !errors.Is(err, state.ErrForbidden) {
		t.Errorf("an operation without a scope: %v", err)
	}
}

// Each operation is answered with 503 and Retry-After when the cluster never answers.
func TestANodeWithoutAMajorityAnswersInTime(t *testing.T) {
	for _, r := range []request{
		{method: "GET", path: "/pins"},
		{method: "GET", path: "/pins/id"},
		{method: "DELETE", path: "/pins/id"},
		{method: "POST", path: "/pins", body: `{"cid":"` + cidOne + `"}`},
		{method: "POST", path: "/pins/id", body: `{"cid":"` + cidOne + `"}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			rec := do((&fake{hangs: true}).handler(t), r)
			if rec.Code != 503 || rec.Header().Get("Retry-After") == "" {
				t.Errorf("%s %s: %d %s", r.method, r.path, rec.Code, rec.Body)
			}
			checkError(t, rec.Body.Bytes(), "SERVICE_UNAVAILABLE", false)
		})
	}
}

// New refuses an empty or unknown default status.
func TestUnknownDefaultStatusesAreRefused(t *testing.T) {
	for _, names := range [][]string{nil, {"all"}, {"pinned", "done"}} {
		if _, err := New(Options{DefaultStatus: names, Logger: slog.New(slog.DiscardHandler)}); err == nil {
			t.Errorf("%q was taken", names)
		}
	}
}

// created makes a pin as Alice and returns its id.
func (w *world) created(t *testing.T, body string) string {
	t.Helper()
	rec := w.do(request{method: "POST", path: "/pins", body: body, token: w.alice})
	if rec.Code != http.StatusAccepted {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	return string(decode[pinbody.Status](t, rec.Body.Bytes()).RequestID)
}

type results struct {
	Count   int
	Results []pinbody.Status
}

func (w *world) list(t *testing.T, query string) results {
	t.Helper()
	rec := w.do(request{method: "GET", path: "/pins" + query, token: w.alice})
	if rec.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", query, rec.Code, rec.Body)
	}
	return decode[results](t, rec.Body.Bytes())
}

// An account creates, lists by filter, reads, replaces and deletes its pins, and another account sees none of
// them.
func TestThePinsOfAnAccountLiveTheirLife(t *testing.T) {
	w := newWorld(t, "queued", "pinning", "pinned", "failed")
	first := w.created(t, `{"cid":"`+cidOne+`","name":"","origins":[],"meta":{}}`)
	second := w.created(t, `{"cid":"`+cidV0+`","name":"two","meta":{"app":"x"},"other":{"a":[1]}}`)
	if first == second {
		t.Fatal("two pins of one id")
	}
	page := w.list(t, "")
	if page.Count != 2 || len(page.Results) != 2 || string(page.Results[0].RequestID) != second || string(page.Results[1].RequestID) != first {
		t.Fatalf("%+v", page)
	}
	rec := w.do(request{method: "GET", path: "/pins/" + first, token: w.reader})
	if !strings.Contains(rec.Body.String(), `"pin":{"cid":"`+cidOne+`","name":"","origins":[],"meta":{}}`) {
		t.Errorf("what was empty is echoed as %s", rec.Body)
	}
	for query, want := range map[string]int{
		"?limit=1": 1, "?name=two": 1, "?name=t&match=partial": 1, "?name=TWO&match=iexact": 1, "?name=tw": 0, "?meta=%7B%22app%22%3A%22x%22%7D": 1,
		"?cid=" + cidOne + "," + cidTwo: 1, "?cid=" + cidOne + "&cid=" + cidV0: 2, "?status=failed": 0, "?status=queued&status=pinned": 2, "?unknown=1&limit=5&limit=x": 2,
		"?before=" + page.Results[0].Created: 1, "?after=" + page.Results[1].Created: 1, "?before=1969-01-01T00:00:00Z": 0, "?after=9999-12-31T23:59:59.999Z": 0,
	} {
		if got := w.list(t, query); len(got.Results) != want {
			t.Errorf("%s: %d rows, want %d", query, len(got.Results), want)
		}
	}
	rec = w.do(request{method: "POST", path: "/pins/" + first, body: `{"cid":"` + cidTwo + `"}`, token: w.writer})
	replaced := decode[pinbody.Status](t, rec.Body.Bytes())
	if rec.Code != 202 || string(replaced.RequestID) == first || replaced.Status != "queued" || replaced.Pin.CID != cidTwo {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	if rec := w.do(request{method: "GET", path: "/pins/" + first, token: w.alice}); rec.Code != 404 {
		t.Errorf("what was replaced: %d", rec.Code)
	}
	for _, want := range []int{202, 404} {
		rec := w.do(request{method: "DELETE", path: "/pins/" + second, token: w.alice})
		if rec.Code != want || want == 202 && (rec.Body.Len() != 0 || rec.Header().Get("Content-Length") != "0") {
			t.Errorf("delete: %d %v %s, want %d", rec.Code, rec.Header(), rec.Body, want)
		}
	}
	if page := w.list(t, ""); page.Count != 1 || page.Results[0].RequestID != replaced.RequestID {
		t.Errorf("%+v", page)
	}
	if body := w.do(request{method: "GET", path: "/pins", token: w.bob}).Body.String(); body != `{"count":0,"results":[]}` {
		t.Errorf("Bob sees %s", body)
	}
}

// While the state cannot be read, every operation on pins is answered with 503 and Retry-After.
func TestAClusterWithoutALeaderRefusesEverything(t *testing.T) {
	w := newWorld(t)
	id := w.created(t, `{"cid":"`+cidOne+`"}`)
	w.state.Fail(fmt.Errorf("read index: %w", state.ErrUnavailable))
	for _, r := range []request{{method: "GET", path: "/pins"}, {method: "GET", path: "/pins/" + id}, {method: "DELETE", path: "/pins/" + id}, {method: "POST", path: "/pins", body: `{"cid":"` + cidOne + `"}`}} {
		r.token = w.alice
		if rec := w.do(r); rec.Code != 503 || rec.Header().Get("Retry-After") != "1" {
			t.Errorf("%s %s: %d %v", r.method, r.path, rec.Code, rec.Header())
		}
	}
}

func BenchmarkPost(b *testing.B) {
	h := (&fake{record: fullRecord()}).handler(b)
	body := `{"cid":"` + cidOne + `","name":"a name","origins":["/ip4/203.0.113.142/tcp/4001/p2p/12D3KooWNrbHpKYDmTUXFRQBnnvJ7aMLUCGNCAio2P3AW2N3LNB9"],"meta":{"app_id":"99986338-1113-4706-8302-4420da6158aa"}}`
	bench(b, h, request{method: "POST", path: "/pins", body: body}, http.StatusAccepted)
}

func BenchmarkGet(b *testing.B) {
	bench(b, (&fake{record: fullRecord()}).handler(b), request{method: "GET", path: "/pins/0b4ad1c8-2d5e-4b6f-9d0a-2f1e3c4b5a69"}, http.StatusOK)
}

func BenchmarkList1000(b *testing.B) {
	h := (&fake{total: 1_000_000, rows: slices.Repeat([]pins.Record{fullRecord()}, 1000)}).handler(b)
	bench(b, h, request{method: "GET", path: "/pins?limit=1000&status=queued,pinning,pinned,failed"}, http.StatusOK)
}

func bench(b *testing.B, h http.Handler, r request, want int) {
	b.ReportAllocs()
	for b.Loop() {
		if rec := do(h, r); rec.Code != want {
			b.Fatalf("%d %s", rec.Code, rec.Body)
		}
	}
}
