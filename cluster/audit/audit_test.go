package audit

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const bob = state.AccountID("bob")

var start = time.UnixMilli(1_800_000_000_000).UTC()

// world is a log of a cluster with the account bob.
type world struct {
	*Log
	t     *testing.T
	state *clustertest.State
	now   time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, state: clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("n1")}), now: start}
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	w.Log = New(Options{State: w.state, Now: func() time.Time { return w.now }})
	w.change(state.Actor{Kind: state.ActorOperator}, &state.CreateAccount{Account: state.Account{ID: bob, Email: "bob@example.org"}})
	return w
}

// change makes a change of an actor at the time of the world.
func (w *world) change(by state.Actor, change state.Command) {
	w.t.Helper()
	if _, err := w.state.Propose(w.t.Context(), &state.Audited{By: by, At: state.MillisOf(w.now), Change: change}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) list(q Query) Page {
	w.t.Helper()
	page, err := w.List(w.t.Context(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	return page
}

func details(rows []state.AuditEntry) (all []string) {
	for _, r := range rows {
		all = append(all, r.Detail)
	}
	return all
}

// List returns the rows that match action, actor, target and time, the newest first, and pages have each row once.
func TestListFiltersAndPages(t *testing.T) {
	w := newWorld(t)
	ann := state.Actor{Kind: state.ActorSession, Account: "ann", Email: "ann@example.org", Session: "s1", Addr: "192.0.2.7"}
	for i := range 5 {
		w.now = start.Add(time.Duration(i) * time.Hour)
		w.change(ann, &state.SetQuota{Account: bob, Allowance: uint64(i + 1)})
	}
	w.change(state.Actor{Kind: state.ActorKey, Key: "k1"}, &state.AddApp{App: state.App{Name: "app", Redirects: []string{"myapp://done"}, Scope: []string{state.ScopeRead}}})
	quota := func(n int) string { return fmt.Sprintf("bob@example.org, %d bytes", n) }
	for name, tc := range map[string]struct {
		q    Query
		want []string
	}{
		"an action":         {Query{Action: "user.quota"}, []string{quota(5), quota(4), quota(3), quota(2), quota(1)}},
		"a family":          {Query{Action: "app"}, []string{"myapp://done"}},
		"an e-mail address": {Query{Actor: "ANN@", Since: start.Add(4 * time.Hour)}, []string{quota(5)}},
		"an account":        {Query{Actor: "ann", Until: start.Add(time.Minute)}, []string{quota(1)}},
		"a key":             {Query{Actor: "k1"}, []string{"myapp://done"}},
		"a kind":            {Query{Actor: "operator"}, []string{"bob@example.org"}},
		"an address":        {Query{Actor: "192.0.2.7", Target: "3 bytes"}, []string{quota(3)}},
		"a target":          {Query{Target: "APP"}, []string{"myapp://done"}},
		"a time":            {Query{Since: start.Add(time.Hour), Until: start.Add(3 * time.Hour)}, []string{quota(3), quota(2)}},
		"nothing":           {Query{Actor: "nobody"}, nil},
	} {
		if got := details(w.list(tc.q).Rows); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, not %q", name, got, tc.want)
		}
	}
	var paged []uint64
	q := Query{Limit: 2}
	for {
		page := w.list(q)
		for _, r := range page.Rows {
			paged = append(paged, r.Seq)
		}
		if page.Next == 0 {
			break
		}
		q.Before = page.Next
	}
	head, err := viewOf(w).AuditHead()
	if err != nil || uint64(len(paged)) != head.Next-head.First || !slices.IsSortedFunc(paged, func(a, b uint64) int { return int(b) - int(a) }) {
		t.Errorf("pages have %v, %v", paged, err)
	}
	for _, bad := range []Query{{Action: "user.none"}, {Limit: MaxLimit + 1}, {Limit: -1}, {Since: start, Until: start}} {
		if _, err := w.List(t.Context(), bad); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func viewOf(w *world) state.View {
	view, release := w.state.LocalView()
	release()
	return view
}

// Verify finds no fault in a log of several steps, and returns its first and last row, their number and the hash of
// the head.
func TestVerifySaysWhatTheLogHas(t *testing.T) {
	w := newWorld(t)
	for i := range 3 * verifyStep / 2 {
		w.change(state.Actor{}, &state.SetQuota{Account: bob, Allowance: uint64(i + 1)})
	}
	v, err := w.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	head, err := viewOf(w).AuditHead()
	if err != nil || v.Broken != 0 || v.First != head.First || v.Last != head.Next-1 || v.Count != head.Next-head.First || v.Head != head.Head {
		t.Errorf("%+v of %+v, %v", v, head, err)
	}
}

// Refused sign-ins and joins of one minute are one row for each target and address, and no try is lost, also while
// the state is unavailable.
func TestRefusalsAreSummedByMinute(t *testing.T) {
	w := newWorld(t)
	here := netip.MustParseAddr("192.0.2.7")
	for range 7 {
		w.RefusedSignIn(bob, here)
	}
	w.RefusedSignIn("", here)
	w.RefusedJoin("198.51.100.1", "a wrong secret", 3)
	record := func() {
		t.Helper()
		if err := w.RecordRefusals(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	record()
	if rows := w.list(Query{Actor: "anonymous"}).Rows; len(rows) != 0 {
		t.Errorf("before the minute is over there is %+v", rows)
	}
	w.now = w.now.Add(time.Minute)
	record()
	record()
	want := map[string]uint64{"bob bob@example.org 192.0.2.7": 7, "  192.0.2.7": 1, " a wrong secret 198.51.100.1": 3}
	got := map[string]uint64{}
	for _, r := range w.list(Query{Actor: "anonymous"}).Rows {
		got[r.Target+" "+r.Detail+" "+r.Actor.Addr] += r.Count
		if !r.Refused {
			t.Errorf("%+v", r)
		}
	}
	if len(w.list(Query{Actor: "anonymous"}).Rows) != len(want) || !mapsEqual(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	w.RefusedJoin("198.51.100.1", strings.Repeat("ä", 5000), 1) // what a node says of itself
	w.RefusedSignIn("", netip.MustParseAddr("fe80::1%"+strings.Repeat("z", 500)))
	w.now = w.now.Add(time.Minute)
	record()
	w.state.Fail(state.ErrUnavailable)
	for i := range 1000 {
		w.RefusedSignIn("", netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}))
	}
	w.now = w.now.Add(time.Minute)
	if err := w.RecordRefusals(t.Context()); !errors.Is(err, state.ErrUnavailable) {
		t.Fatal(err)
	}
	w.state.Fail(nil)
	w.now = w.now.Add(time.Hour) // the rest of the hour is in the row of a later one
	record()
	w.RefusedSignIn("", here)
	w.now = w.now.Add(time.Hour)
	record()
	var tries uint64
	for _, r := range w.list(Query{Actor: "anonymous", Limit: MaxLimit}).Rows {
		tries += r.Count
	}
	if tries != 7+1+3+1+1+1000+1 {
		t.Errorf("%d tries are on record", tries)
	}
}

func mapsEqual(a, b map[string]uint64) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return len(a) == len(b)
}

// Prune removes rows that are 401 days old by the agreed time, and none while that time is unknown; the rest still
// verifies.
func TestOldRowsGoByATimeThatMembersAgreeOn(t *testing.T) {
	w := newWorld(t)
	rows := func() int { return len(w.list(Query{}).Rows) }
	before := rows()
	w.change(state.Actor{}, &state.SetQuota{Account: bob, Allowance: 1})
	late := start.Add(401 * 24 * time.Hour)
	agreed := false
	w.Log.agreed = func() (early, latest state.Millis, ok bool) {
		return state.MillisOf(late), state.MillisOf(late), agreed
	}
	if err := w.Prune(t.Context()); err != nil || rows() != before+1 {
		t.Errorf("without a time there are %d rows, %v", rows(), err)
	}
	agreed = true
	w.now = late
	w.change(state.Actor{}, &state.SetQuota{Account: bob, Allowance: 2})
	if err := w.Prune(t.Context()); err != nil || rows() != 1 {
		t.Errorf("there are %d rows, %v", rows(), err)
	}
	if v, err := w.Verify(t.Context()); err != nil || v.Broken != 0 || v.Count != 1 {
		t.Errorf("%+v, %v", v, err)
	}
}

// Run writes a refused sign-in into the log within two minutes.
func TestRunRecordsRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Log.now = time.Now
		w.RefusedSignIn(bob, netip.MustParseAddr("192.0.2.7"))
		done := make(chan error, 1)
		go func() { done <- w.Run(t.Context()) }()
		<-time.After(2 * time.Minute)
		if rows := w.list(Query{Actor: "anonymous"}).Rows; len(rows) != 1 {
			t.Errorf("%+v", rows)
		}
	})
}
