package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/integrity"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/upkeep"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
	"github.com/ipfs/go-cid"
	"github.com/prometheus/client_golang/prometheus"
)

// fake answers with fixed values, or with an error; calls are what it was asked.
type fake struct {
	Folders // not called
	err     error
	status  members.Status
	file    []byte
	breaks  bool // the file, at its end
	quorum  members.Quorum
	calls   []string
	log     fakeLog
}

func (f *fake) called(format string, args ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fake) Status(context.Context) (members.Status, error) { return f.status, f.err }

func (f *fake) CreateTicket(_ context.Context, ttl time.Duration, random func([]byte)) (string, error) {
	secret := make([]byte, 8)
	if random(secret); bytes.Equal(secret, make([]byte, 8)) {
		return "", errors.New("nothing random")
	}
	f.called("ticket %v", ttl)
	return "holdfast1.ticket", f.err
}

func (f *fake) Quorum() members.Quorum { return f.quorum }

func (f *fake) Writable(context.Context) error { return f.err }

// Named has two members, one of which is called two.
func (f *fake) Named(_ context.Context, who string) (state.Node, error) {
	switch who {
	case "12D3KooWtwo", "two":
		return state.Node{ID: "12D3KooWtwo", Name: "two"}, nil
	}
	return state.Node{}, state.Errorf(state.CodeNotFound, "no member has the id or the name %q: see holdfast peers ls", who)
}

func (f *fake) Leaving(ctx context.Context, who string, count bool) (members.Leaving, error) {
	n, err := f.Named(ctx, who)
	if !count {
		return members.Leaving{Peer: members.Peer{Node: n, Role: "voter"}, Votes: 2, Answer: 1}, errors.Join(err, f.err)
	}
	return members.Leaving{
		Peer:  members.Peer{Node: n, Role: "voter", Pins: 7, Roots: 5, Load: members.Load{State: "alive", UsedBytes: 100}},
		Leads: true, Sole: 3, Votes: 2, Answer: 1,
	}, errors.Join(err, f.err)
}

func (f *fake) Holdings(_ context.Context, who string) (accounts.Holdings, error) {
	f.called("holdings %s", who)
	all, err := f.List(context.Background())
	return accounts.Holdings{
		User: all[0], Pins: map[state.Status]uint64{state.Queued: 1, state.Pinning: 2, state.Pinned: 3, state.Failed: 4},
		Buckets: 5, Objects: 6, Versions: 10, Uploads: 7, Keys: 8, Sessions: 9,
	}, err
}

func (f *fake) DrainPlan(ctx context.Context, who string) (members.DrainPlan, error) {
	n, err := f.Named(ctx, who)
	return members.DrainPlan{
		Peer:   members.Peer{Node: n, Role: "voter", Roots: 5, Load: members.Load{State: "alive", UsedBytes: 100}},
		Others: 2, Free: 99, Copies: 2, CopiesThen: 2,
	}, errors.Join(err, f.err)
}

func (f *fake) Drain(_ context.Context, id state.NodeID, on bool) error {
	f.called("drain %s %v", id, on)
	return f.err
}

func (f *fake) Remove(_ context.Context, id state.NodeID, force bool) error {
	f.called("remove %s %v", id, force)
	return f.err
}

func (f *fake) CreateAccount(_ context.Context, email, password string) (accounts.User, error) {
	f.called("account %s %q", email, password)
	return accounts.User{
		Account: state.Account{ID: "a1", Email: email, PasswordHash: "secret", Created: 1_767_323_045_678},
		Quota:   state.Quota{Allowance: state.DefaultAllowance},
	}, f.err
}

func (f *fake) List(context.Context) ([]accounts.User, error) {
	return []accounts.User{
		{
			Account: state.Account{ID: "a1", Email: "alice@example.org", PasswordHash: "secret", Created: 1},
			Quota:   state.Quota{Allowance: 1000, Stored: 700, Coming: 200, Credits: 3},
		},
		{
			Account: state.Account{ID: "operator", Email: "operator@localhost", Created: 1},
			Quota:   state.Quota{Allowance: state.Unlimited, Stored: 1 << 60},
		},
	}, f.err
}

func (f *fake) SetPassword(_ context.Context, email, password string) error {
	f.called("password %s %q", email, password)
	return f.err
}

func (f *fake) RemoveAccount(_ context.Context, email string) error {
	f.called("remove %s", email)
	return f.err
}

func (f *fake) SetDisabled(_ context.Context, email string, on bool) error {
	f.called("disabled %s %t", email, on)
	return f.err
}

func (f *fake) SetAllowance(_ context.Context, email string, bytes uint64) error {
	f.called("allowance %s %d", email, bytes)
	return f.err
}

func (f *fake) ByEmail(_ context.Context, email string) (state.Account, error) {
	if email != "alice@example.org" {
		return state.Account{}, state.ErrNotFound
	}
	return state.Account{ID: "a1", Email: email}, f.err
}

func (f *fake) Operator(context.Context) (state.Account, error) {
	return state.Account{ID: "operator", Email: "operator@localhost"}, f.err
}

var created = time.Date(2026, 1, 2, 4, 4, 5, 678_900_000, time.FixedZone("", 3600))

func (f *fake) CreateKey(_ context.Context, email, name string, scopes []string, ttl time.Duration) (accounts.Key, error) {
	f.called("key %s %s %v %v", email, name, scopes, ttl)
	return accounts.Key{
		ID: "jti-1", Email: email, Name: name, Scope: "storage:read storage:write", Token: "a.b.c",
		AccessKeyID: "HFjti", SecretAccessKey: "hidden", Created: created,
	}, f.err
}

// listed are the keys that there are.
var listed = []accounts.Key{
	{ID: "jti-1", Email: "alice@example.org", Name: "laptop", Scope: "storage:read", Created: created, Token: "hidden", SecretAccessKey: "hidden"},
	{ID: "jti-2", Email: "alice@example.org", Scope: "storage:read", Created: created, Expires: created.Add(time.Hour)},
}

func (f *fake) Keys(_ context.Context, email string) ([]accounts.Key, error) {
	f.called("keys %s", email)
	return slices.Clone(listed), f.err
}

func (f *fake) Key(_ context.Context, jti state.KeyID) (accounts.Key, error) {
	f.called("key %s", jti)
	if i := slices.IndexFunc(listed, func(k accounts.Key) bool { return k.ID == jti }); i >= 0 {
		return listed[i], f.err
	}
	return accounts.Key{}, fmt.Errorf("find key: %w", state.ErrNotFound)
}

func (f *fake) Show(_ context.Context, jti state.KeyID) (accounts.Key, error) {
	f.called("show %s", jti)
	return accounts.Key{ID: jti, Token: "hidden token", Scope: "storage:read", Created: time.UnixMilli(1_700_000_000_123)}, f.err
}

func (f *fake) CreateLink(_ context.Context, email string) (accounts.Link, error) {
	f.called("link %s", email)
	return accounts.Link{Token: "hfo_x", Purpose: state.ForPassword, Email: email, Expires: created}, f.err
}

func (f *fake) CreateOperatorLink(context.Context) (accounts.Link, error) {
	f.called("console link")
	return accounts.Link{Token: "hfo_y", Purpose: state.ForSession, Email: "operator@localhost", Expires: created}, f.err
}

func (f *fake) Links(context.Context) ([]accounts.OpenLink, error) {
	return []accounts.OpenLink{{ID: "l-1", Purpose: state.ForSignUp, Email: "bob@example.org", Expires: created}}, f.err
}

func (f *fake) RevokeLink(_ context.Context, id state.LinkID) error {
	f.called("revoke link %s", id)
	return f.err
}

func (f *fake) AllShares(context.Context) ([]accounts.OwnedShare, error) {
	all := []accounts.OwnedShare{{Email: "alice@example.org"}, {Email: "bob@example.org"}}
	all[0].Share = accounts.Share{
		Share: state.Share{ID: "00", Bucket: "photos", Prefixes: []string{"e/", "x/"}, Read: true, Name: "For Ann", Created: state.MillisOf(created), Expires: state.MillisOf(created.Add(time.Hour))},
		Token: "hidden", SecretAccessKey: "hidden", Used: created,
	}
	all[1].Share = accounts.Share{Share: state.Share{ID: "01", Bucket: "docs", Prefixes: []string{"a"}, Write: true, Delete: true, Created: state.MillisOf(created)}}
	return all, f.err
}

func (f *fake) RotateSigningKey(context.Context) (uint64, error) {
	f.called("rotate")
	return 2, f.err
}

func (f *fake) AddApp(_ context.Context, name string, redirects, scopes []string) (accounts.App, error) {
	return accounts.App{Name: name, Redirects: redirects, Scope: scopes}, nil
}

func (f *fake) RemoveApp(context.Context, string) error { return nil }

func (f *fake) Apps(context.Context) ([]accounts.App, error) {
	return []accounts.App{{Name: "photos", Redirects: []string{"https://photos.example/done"}, Scope: []string{state.ScopeRead}}}, nil
}

func (f *fake) Revoke(_ context.Context, jti state.KeyID) error {
	f.called("revoke %s", jti)
	return f.err
}

const fileCID = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"

func (f *fake) Add(_ context.Context, r io.Reader, _ content.Layout) (cid.Cid, uint64, error) {
	data, err := io.ReadAll(r)
	if err = errors.Join(err, f.err); err != nil {
		return cid.Undef, 0, err
	}
	f.file = data
	c, err := cid.Decode(fileCID)
	return c, uint64(len(data)), err
}

func (f *fake) Open(_ context.Context, text string) (io.ReadSeekCloser, uint64, error) {
	if text != fileCID {
		return nil, 0, state.Errorf(state.CodeInvalid, "cid %q is not valid", text)
	}
	size := uint64(len(f.file))
	if f.breaks {
		size++
	}
	return nopCloser{bytes.NewReader(f.file)}, size, f.err
}

func (f *fake) OpenFor(ctx context.Context, account state.AccountID, text string) (io.ReadSeekCloser, uint64, error) {
	f.called("read as %s", account)
	return f.Open(ctx, text)
}

func (f *fake) Scrub(context.Context) (integrity.Report, error) {
	f.called("scrub")
	return integrity.Report{Blocks: 10, Bytes: 2000, Damaged: 3, Repaired: 2}, f.err
}

func (f *fake) Collect(context.Context) (upkeep.Collection, error) {
	f.called("collect")
	return upkeep.Collection{
		Freed: upkeep.Freed{Blocks: 7, Bytes: 900, Files: 1, FileBytes: 1000}, Usage: upkeep.Usage{LiveBytes: 5000, DiskBytes: 5100},
		Uploads: upkeep.Held{Count: 1, Bytes: 30}, Imports: upkeep.Held{Count: 2, Bytes: 31}, Leased: upkeep.Held{Count: 3, Bytes: 32},
		Read: upkeep.Held{Count: 4, Bytes: 33}, Last: upkeep.Held{Count: 5, Bytes: 34}, Waiting: upkeep.Held{Count: 6, Bytes: 35},
	}, f.err
}

func (f *fake) Check(context.Context) (upkeep.Report, error) {
	f.called("check the node")
	return upkeep.Report{
		Index: 9, Rows: 100, Copies: 10, Blocks: 40, More: 3, AtLeast: true,
		Differences: []state.Difference{{Table: "root", Key: "bafy, pins", Stored: "1", Computed: "2"}},
	}, f.err
}

func (f *fake) StateHash(context.Context) (uint64, state.Hash, error) {
	f.called("hash")
	return 7, state.Hash{0xab, 31: 0x01}, f.err
}

func (f *fake) CheckState(context.Context) (state.Check, error) {
	f.called("check")
	return f.checks()[1], f.err
}

func (f *fake) Checks() ([]state.Check, error) {
	f.called("checks")
	return f.checks(), f.err
}

func (f *fake) checks() []state.Check {
	return []state.Check{
		{Index: 5, At: 1_700_000_000_000, Members: []state.NodeID{"12D3KooWone"}, Reports: []state.HashReport{{Node: "12D3KooWone", Hash: state.Hash{1}}}},
		{Index: 9, At: 1_700_003_600_000, Members: []state.NodeID{"12D3KooWone", "12D3KooWtwo"}, Reports: []state.HashReport{{Node: "12D3KooWtwo", Hash: state.Hash{2}}}},
	}
}

func (f *fake) Ready(context.Context) error { return f.err }

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

func (f *fake) handler() http.Handler {
	return NewOperator(OperatorOptions{
		Members: f, Accounts: f, Audit: &f.log, Ledger: fakeLedger{f}, Files: f, Blocks: f, Replica: f, Upkeep: f, Backups: f, Addrs: Addrs{Pinning: "127.0.0.1:9097", Admin: "127.0.0.1:9094", ConsoleURL: "https://console.example.org"}, Logger: slog.New(slog.DiscardHandler),
		Pins: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "pins "+r.URL.Path) }),
	})
}

func do(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("X-Request-Id", "golden")
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}

func fullStatus() members.Status {
	node := state.Node{ID: "12D3KooWone", Name: "one", Addrs: []string{"/ip4/198.51.100.1/tcp/4001/p2p/12D3KooWone"}, ClusterAddrs: []string{"/ip4/198.51.100.1/tcp/9096/p2p/12D3KooWone"}, Version: "0.0.1"}
	return members.Status{
		ClusterID: "cluster", Leader: "12D3KooWone", Index: 42, Node: node,
		Peers: []members.Peer{
			{Node: node, Role: "voter", Pins: 7, Wanted: 9, Load: members.Load{State: "alive", UsedBytes: 1, FreeBytes: 2, Queue: 3, Version: "1.2.3"}},
			{Node: state.Node{ID: "12D3KooWtwo"}, Role: "nonvoter", Load: members.Load{State: "down"}},
		},
		Pins: map[state.Status]uint64{state.Queued: 1, state.Pinning: 2, state.Pinned: 3, state.Failed: 4}, UnderReplicated: 5,
	}
}

// twoAreMissing returns a cluster of three of which one is here.
func twoAreMissing() members.Quorum {
	return members.Quorum{Votes: 3, Needed: 2, Here: 1, Missing: []members.Missing{
		{ID: "12D3KooWthreethree", Name: "three"},
		{ID: "12D3KooWtwotwotwo", Name: "two", Heard: true, Silent: 14*time.Second + time.Millisecond},
	}}
}

// exchange is a request, the fake that answers it, and the calls of use cases that it causes.
type exchange struct {
	name               string
	fake               fake
	method, path, body string
	calls              string
}

// Each request calls its use case with the values that it names, and its answer is the golden file, byte for
// byte, without secrets except where a key is created or shown.
func TestAnswersKeepTheirForm(t *testing.T) {
	for _, tc := range []exchange{
		{"status", fake{status: fullStatus()}, "GET", "/status", "", ""},
		{"peers_partial", fake{status: members.Status{Peers: []members.Peer{{Node: state.Node{ID: "12D3KooWtwo"}, Pins: 500_000, PinsPartial: true}}}}, "GET", "/peers", "", ""},
		{"status_alone", fake{}, "GET", "/status", "", ""},
		{"peers", fake{status: fullStatus()}, "GET", "/peers", "", ""},
		{"peers_none", fake{}, "GET", "/peers", "", ""},
		{"peers_remove", fake{}, "DELETE", "/peers/12D3KooWtwo", "", "remove 12D3KooWtwo false"},
		{"peers_remove_name", fake{}, "DELETE", "/peers/two", "", "remove 12D3KooWtwo false"},
		{"peers_remove_unknown", fake{}, "DELETE", "/peers/three", "", ""},
		{"peers_drain_plan", fake{}, "GET", "/peers/two/drain", "", ""},
		{"peers_drain", fake{}, "PUT", "/peers/two/drain", `{"on":true}`, "drain 12D3KooWtwo true"},
		{"peers_drain_end", fake{}, "PUT", "/peers/12D3KooWtwo/drain", `{"on":false}`, "drain 12D3KooWtwo false"},
		{"peers_drain_unknown", fake{}, "PUT", "/peers/three/drain", `{"on":true}`, ""},
		{"peers_leaving", fake{}, "GET", "/peers/two", "", ""},
		{"peers_leaving_uncounted", fake{}, "GET", "/peers/two?count=false", "", ""},
		{"peers_leaving_perhaps", fake{}, "GET", "/peers/two?count=perhaps", "", ""},
		{"quorum", fake{quorum: members.Quorum{Votes: 2, Needed: 2, Here: 2, Leader: "12D3KooWone"}}, "GET", "/quorum", "", ""},
		{"quorum_lost", fake{quorum: twoAreMissing(), err: state.Errorf(state.CodeUnavailable, "why")}, "GET", "/quorum", "", ""},
		{"user_show", fake{}, "GET", "/users/a1", "", "holdings a1"},
		{"peers_remove_force", fake{}, "DELETE", "/peers/12D3KooWtwo?force=true", "", "remove 12D3KooWtwo true"},
		{"peers_remove_refused", fake{err: state.Errorf(state.CodeConflict, "node 12D3KooWtwo does not answer: remove a dead node with --force")}, "DELETE", "/peers/12D3KooWtwo", "", "remove 12D3KooWtwo false"},
		{"ticket", fake{}, "POST", "/tickets", "{}", "ticket 24h0m0s"},
		{"ticket_ttl", fake{}, "POST", "/tickets", `{"ttl":"90m"}`, "ticket 1h30m0s"},
		{"user_create", fake{}, "POST", "/users", `{"email":"bob@example.org","password":"p"}`, `account bob@example.org "p"`},
		{"users", fake{}, "GET", "/users", "", ""},
		{"user_remove", fake{}, "DELETE", "/users/bob@example.org", "", "remove bob@example.org"},
		{"user_remove_unknown", fake{err: state.ErrNotFound}, "DELETE", "/users/bob@example.org", "", "remove bob@example.org"},
		{"user_password", fake{}, "PUT", "/users/bob@example.org/password", `{"password":"p"}`, `password bob@example.org "p"`},
		{"user_disable", fake{}, "PUT", "/users/bob@example.org/disabled", `{"disabled":true}`, "disabled bob@example.org true"},
		{"user_enable", fake{}, "PUT", "/users/bob@example.org/disabled", `{"disabled":false}`, "disabled bob@example.org false"},
		{"user_disable_last", fake{err: state.Errorf(state.CodeForbidden, "bob@example.org is the only administrator who is not disabled: make another one first")}, "PUT", "/users/bob@example.org/disabled", `{"disabled":true}`, "disabled bob@example.org true"},
		{"user_quota", fake{}, "PUT", "/users/bob@example.org/quota", `{"allowance_bytes":7}`, "allowance bob@example.org 7"},
		{"user_quota_none", fake{}, "PUT", "/users/bob@example.org/quota", `{"unlimited":true}`, "allowance bob@example.org 18446744073709551615"},
		{"user_credits", fake{}, "POST", "/users/bob@example.org/credits", `{"credits":7,"posting":"g"}`, `post bob@example.org {Kind:grant Credits:7 ID:g Corrects: Note:}`},
		{"user_correction", fake{}, "POST", "/users/bob@example.org/credits", `{"kind":"correction","credits":-7,"corrects":"g","note":"n"}`, `post bob@example.org {Kind:correction Credits:-7 ID: Corrects:g Note:n}`},
		{"user_charge", fake{}, "POST", "/users/bob@example.org/credits", `{"kind":"charge","credits":-7}`, ""},
		{"user_ledger", fake{}, "GET", "/users/bob@example.org/ledger?cursor=9&limit=2", "", "ledger bob@example.org 9 2"},
		{"user_ledger_limit", fake{}, "GET", "/users/bob@example.org/ledger?limit=1001", "", ""},
		{"user_ledger_cursor", fake{}, "GET", "/users/bob@example.org/ledger?cursor=x", "", ""},
		{"user_link", fake{}, "POST", "/users/bob@example.org/links", "", "link bob@example.org"},
		{"console_link", fake{}, "POST", "/console/links", "", "console link"},
		{"links", fake{}, "GET", "/links", "", ""},
		{"link_revoke", fake{}, "DELETE", "/links/l-1", "", "revoke link l-1"},
		{"link_revoke_unknown", fake{err: state.ErrNotFound}, "DELETE", "/links/l-2", "", "revoke link l-2"},
		{"key_create", fake{}, "POST", "/keys", `{"user":"alice@example.org","name":"n","scopes":["storage:read"],"ttl":"1h"}`, "key alice@example.org n [storage:read] 1h0m0s"},
		{"key_create_plain", fake{}, "POST", "/keys", `{"user":"alice@example.org"}`, "key alice@example.org  [] 0s"},
		{"keys", fake{}, "GET", "/keys", "", "keys "},
		{"keys_user", fake{}, "GET", "/keys?user=alice@example.org", "", "keys alice@example.org"},
		{"keys_one", fake{}, "GET", "/keys?id=jti-2", "", "key jti-2"},
		{"keys_no_such", fake{}, "GET", "/keys?id=jti-3", "", "key jti-3"},
		{"shares", fake{}, "GET", "/shares", "", ""},
		{"key_show", fake{}, "GET", "/keys/jti-1", "", "show jti-1"},
		{"key_rotate", fake{}, "POST", "/signing-keys", "", "rotate"},
		{"key_revoke", fake{}, "DELETE", "/keys/jti-1", "", "revoke jti-1"},
		{"audit", fake{}, "GET", "/audit?actor=ann&action=key&target=k&since=2026-01-02T03:04:05Z&until=2026-01-03&cursor=9&limit=7", "", ""},
		{"audit_bad_time", fake{}, "GET", "/audit?since=yesterday", "", ""},
		{"audit_bad_action", fake{log: fakeLog{err: state.Errorf(state.CodeInvalid, "there is no action or family of actions %q", "x")}}, "GET", "/audit?action=x", "", ""},
		{"audit_verify", fake{}, "GET", "/audit/verify", "", ""},
		{"audit_broken", fake{log: fakeLog{broken: 7}}, "GET", "/audit/verify", "", ""},
		{"content_add", fake{}, "POST", "/content", "some bytes", ""},
		{"content_get", fake{file: []byte("some bytes")}, "GET", "/content/" + fileCID, "", ""},
		{"content_get_empty", fake{}, "GET", "/content/" + fileCID, "", ""},
		{"content_get_user", fake{file: []byte("some bytes")}, "GET", "/content/" + fileCID + "?user=alice@example.org", "", "read as a1"},
		{"content_get_unknown_user", fake{file: []byte("some bytes")}, "GET", "/content/" + fileCID + "?user=nobody@example.org", "", ""},
		{"scrub", fake{}, "POST", "/scrub", "", "scrub"},
		{"gc", fake{}, "POST", "/gc", "", "collect"},
		{"gc_failed", fake{err: errors.New("drop blocks: input/output error")}, "POST", "/gc", "", "collect"},
		{"fsck", fake{}, "POST", "/fsck", "", "check the node"},
		{"fsck_failed", fake{err: errors.New("read row: input/output error")}, "POST", "/fsck", "", "check the node"},
		{"state_hash", fake{}, "GET", "/state/hash", "", "hash"},
		{"state_checks", fake{}, "GET", "/state/checks", "", "checks"},
		{"state_check", fake{}, "POST", "/state/checks", "", "check"},
		{"content_bad_cid", fake{}, "GET", "/content/hello", "", ""},
		{"error_internal", fake{err: errors.New("open blocks: input/output error")}, "GET", "/status", "", ""},
		{"error_no_quorum", fake{err: fmt.Errorf("read: %w", state.Errorf(state.CodeUnavailable, "nothing can be read")), quorum: twoAreMissing()}, "DELETE", "/users/bob@example.org", "", ""},
		{"error_unavailable", fake{quorum: members.Quorum{Votes: 1, Needed: 1, Here: 1, Leader: "12D3KooWone"}, err: state.ErrUnavailable}, "GET", "/users", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.keepsItsForm(t) })
	}
}

// keepsItsForm compares the answer with its golden file.
func (tc *exchange) keepsItsForm(t *testing.T) {
	t.Helper()
	rec := do(tc.fake.handler(), tc.method, tc.path, tc.body)
	if got := strings.Join(tc.fake.calls, "; "); got != tc.calls {
		t.Errorf("asked for %q, want %q", got, tc.calls)
	}
	var got bytes.Buffer
	fmt.Fprintf(&got, "%s %s\n%d\n", tc.method, tc.path, rec.Code)
	for _, name := range slices.Sorted(maps.Keys(rec.Header())) {
		fmt.Fprintf(&got, "%s: %s\n", name, strings.Join(rec.Header()[name], " | "))
	}
	fmt.Fprintf(&got, "\n%s\n", rec.Body)
	goldentest.File(t, filepath.Join("testdata", tc.name+".http"), got.Bytes())
	shown := strings.HasPrefix(tc.name, "key_create") || tc.name == "key_show"
	if !shown && strings.Contains(got.String(), "hidden") || strings.Contains(got.String(), `secret"`) {
		t.Errorf("a secret shows: %s", &got)
	}
}

// A request with a bad body, query, method or path gets its 4xx status and reaches no use case.
func TestBadRequestsReachNoUseCase(t *testing.T) {
	for _, tc := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/tickets", "", 400},
		{"POST", "/tickets", "[]", 400},
		{"POST", "/tickets", `{"ttl":1}`, 400},
		{"POST", "/tickets", `{"ttl":"soon"}`, 400},
		{"POST", "/tickets", `{"ttl":"-1h"}`, 400},
		{"POST", "/tickets", `{"ttl":"0s"}`, 400},
		{"POST", "/users", `{"email":["a"]}`, 400},
		{"PUT", "/users/a@b/quota", `{"allowance_bytes":-1}`, 400},
		{"PUT", "/users/a@b/quota", `{"allowance_bytes":"1"}`, 400},
		{"PUT", "/users/a@b/quota", `7`, 400},
		{"PUT", "/users/a@b/disabled", `{}`, 400},
		{"PUT", "/users/a@b/disabled", `{"disabled":"yes"}`, 400},
		{"PUT", "/users/a@b/quota", `{}`, 400},
		{"PUT", "/users/a@b/quota", `{"allowance_bytes":1,"unlimited":true}`, 400},
		{"POST", "/users/a@b/credits", `{"credits":1.5}`, 400},
		{"PUT", "/users/a@b/password", `{"password":7}`, 400},
		{"POST", "/users", `{"email":"a"} {}`, 400},
		{"POST", "/users", `{"email":"` + strings.Repeat("a", 1<<20) + `"}`, 413},
		{"POST", "/keys", `{"user":"a","scopes":"storage:read"}`, 400},
		{"POST", "/keys", `{"user":"a","ttl":"x"}`, 400},
		{"DELETE", "/peers/x?force=perhaps", "", 400},
		{"DELETE", "/peers/x?force=false;", "", 400},
		{"GET", "/keys?user=alice;@example.org", "", 400},
		{"GET", "/content/" + fileCID + "?user=alice;@example.org", "", 400},
		{"DELETE", "/peers/", "", 404},
		{"DELETE", "/keys", "", 405},
		{"PUT", "/status", "", 405},
		{"GET", "/nothing", "", 404},
		{"GET", "/content", "", 405},
		{"GET", "/pinsx", "", 404},
	} {
		f := &fake{}
		rec := do(f.handler(), tc.method, tc.path, tc.body)
		if rec.Code != tc.status || len(f.calls) != 0 {
			t.Errorf("%s %s %.40s: %d %s, want %d; asked for %q", tc.method, tc.path, tc.body, rec.Code, rec.Body, tc.status, f.calls)
		}
	}
}

// Each error code of the state has a status, a reason and its text in the answer, and a deadline that has passed
// is 503.
func TestEveryCodeOfTheStateHasAnAnswer(t *testing.T) {
	for _, code := range state.Codes() {
		a := answer(fmt.Errorf("wrapped: %w", state.Errorf(code, "words for people")))
		if _, ok := errorTable[code]; !ok || a.Status < 400 || a.Reason == "" || a.Detail != "words for people" {
			t.Errorf("code %d: %+v", code, a)
		}
	}
	if a := answer(fmt.Errorf("more: %w", context.DeadlineExceeded)); a.Status != 503 {
		t.Errorf("a call that took too long: %+v", a)
	}
}

// The operator API passes /pins and the paths below it to the handler of the pinning API.
func TestPinsAreServedByTheirOwnSurface(t *testing.T) {
	h := (&fake{}).handler()
	for _, path := range []string{"/pins", "/pins/id"} {
		if got := do(h, "GET", path, "").Body.String(); got != "pins "+path {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// A request on the operator socket acts as the operator or as the user that its query names, with the scopes to
// read and write.
func TestLocalRequestsActAsTheOperatorOrAUser(t *testing.T) {
	for _, tc := range []struct {
		path    string
		err     error
		account state.AccountID
		status  int
	}{
		{"/pins", nil, "operator", 0},
		{"/pins?user=alice@example.org", nil, "a1", 0},
		{"/pins?user=nobody@example.org", nil, "", 404},
		{"/pins?user=alice;@example.org", nil, "", 400},
		{"/pins?user=50%@example.org", nil, "", 400},
		{"/pins", state.ErrUnavailable, "", 503},
	} {
		p, err := Local(&fake{err: tc.err})(t.Context(), httptest.NewRequest("GET", tc.path, nil))
		if p.Account != tc.account || (err != nil) != (tc.status != 0) {
			t.Errorf("%s: %+v, %v", tc.path, p, err)
		}
		if err != nil && answer(err).Status != tc.status {
			t.Errorf("%s is answered %+v", tc.path, answer(err))
		}
		if err == nil && (!p.May(state.ScopeRead) || !p.May(state.ScopeWrite)) {
			t.Errorf("%s: %+v may not do all", tc.path, p)
		}
	}
}

// A client sees that a file broke off: the body ends in an error, or the status is 500 if no byte was sent yet.
func TestAFileThatBreaksOffIsNotTakenForWhole(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 3*fileBuffer/16)
	for name, f := range map[string]*fake{"whole": {file: big}, "broken": {file: big, breaks: true}} {
		s := httptest.NewServer(f.handler())
		resp, err := http.Get(s.URL + "/content/" + fileCID)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		s.Close()
		if whole := err == nil && bytes.Equal(got, big); whole != (name == "whole") {
			t.Errorf("%s: %d of %d bytes, %v", name, len(got), len(big), err)
		}
	}
	// Nothing is here yet when the first bytes fail, so it is an answer.
	rec := do((&fake{breaks: true}).handler(), "GET", "/content/"+fileCID, "")
	if rec.Code != 500 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// The monitor serves metrics, liveness and readiness, and no route of the operator API.
func TestTheMonitorShowsMetricsAndHealth(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_test_total", Help: "A test."})
	registry.MustRegister(counter)
	counter.Add(3)
	for _, tc := range []struct {
		path   string
		err    error
		status int
		has    string
	}{
		{"/metrics", nil, 200, "holdfast_test_total 3"},
		{"/metrics", errors.New("not ready"), 200, "holdfast_test_total 3"},
		{"/healthz", errors.New("not ready"), 200, `"alive"`},
		{"/readyz", nil, 200, `"ready"`},
		{"/readyz", errors.New("no leader is known"), 503, "no leader is known"},
		{"/status", nil, 404, "NOT_FOUND"},
		{"/users", nil, 404, "NOT_FOUND"},
	} {
		h := NewMonitor(MonitorOptions{Gatherer: registry, Health: &fake{err: tc.err}, Version: "1.2.3", Logger: slog.New(slog.DiscardHandler)})
		if rec := do(h, "GET", tc.path, ""); rec.Code != tc.status || !strings.Contains(rec.Body.String(), tc.has) {
			t.Errorf("%s: %d %s, want %d %s", tc.path, rec.Code, rec.Body, tc.status, tc.has)
		}
	}
}

// TestNothingIsChangedWithoutAMajority promises that each command that changes the replicated
// state starts no use case while the cluster has no majority, and says that nothing was written.
func TestNothingIsChangedWithoutAMajority(t *testing.T) {
	local := []string{"/content", "/car", "/scrub", "/gc", "/fsck", "/state/checks"} // change nothing in the replicated state, or are no commands
	changing := 0
	for _, r := range new(operator).routes() {
		if r.Method == http.MethodGet || slices.Contains(local, r.Path) {
			continue
		}
		changing++
		f := fake{err: fmt.Errorf("read: %w", state.ErrUnavailable)}
		path := strings.NewReplacer("{id}", "two", "{email}", "bob@example.org", "{jti}", "jti-1").Replace(r.Path)
		rec := do(f.handler(), r.Method, path, "{}")
		if rec.Code != http.StatusServiceUnavailable || !strings.Contains(rec.Body.String(), "nothing was written") || len(f.calls) > 0 {
			t.Errorf("%s %s: %d, %s after %q", r.Method, r.Path, rec.Code, rec.Body, f.calls)
		}
	}
	if changing == 0 {
		t.Error("no command changes the state")
	}
}
