// Package apitest has the test fixture that the tests of the console and of the web API share:
// the real application logic over the real state machine in memory, with two accounts.
package apitest

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/cluster/uploads"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// Host is the Host header of the console in test requests.
const Host = "console.test"

// CatCID is a valid CID, for pins in tests.
const CatCID = "bafkreiayx23w765cqfwmxub4r6kdfk43ddpwoufyggpogbn2mzwlogep7u"

// MinPart is the minimum size of a part of a multipart upload in a World, in bytes.
const MinPart = 5

// HostileAddresses are redirect targets that lead to another host, add a header, or run a script,
// although a careless check may accept them as own pages. Tests of open redirects use them.
var HostileAddresses = []string{
	"https://evil.example", "http://evil.example/done", "//evil.example", "///evil.example", `/\evil.example`, `\\evil.example`, "https:evil.example",
	"javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "/\t/evil.example", "/ok\r\nLocation: https://evil.example", "http://console.test@evil.example/",
	"https://console.test.evil.example/", "https://Photos.example/done", "https://photos.example@evil.example/done", "https://photos.example.evil.example/done",
	"https://photos.example:444/done", "https://photos.example/done\r\nLocation: https://evil.example",
}

// AddressParameters are query parameters that web applications commonly use for the target of a
// redirect.
var AddressParameters = []string{"to", "redirect", "redirect_uri", "return", "return_to", "next", "url", "continue"}

// World is a cluster in memory, as one of its nodes sees it. It has the accounts of Alice and
// Bob, and fakes the parts that need a network, such as the membership.
type World struct {
	T       testing.TB
	State   *clustertest.State
	Users   *accounts.Accounts
	Audit   *audit.Log
	Ledger  *credits.Ledger
	Pins    *pins.Pins
	Objects *objects.Objects
	Uploads *uploads.Uploads
	Sent    Sent // what Uploads has stored
	Content *Content
	Down    error               // result of Ready: why the node is not ready; nil: it is ready
	Removed []state.NodeID      // members that Remove removed
	Drained []string            // calls of Drain, as "ID true" (drain began) or "ID false" (drain cancelled)
	Change  func(*members.Peer) // changes each member that Status returns; nil: no change

	secret []byte
	ahead  atomic.Int64 // nanoseconds, see Ahead
}

// New returns a World with the accounts of Alice and Bob.
func New(t testing.TB) *World {
	t.Helper()
	secret := []byte("a secret of the cluster, 32 byte")
	sealed, err := accounts.NewSigningKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	st := clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("n1", "n2", "n3"), SealedSigningKey: sealed})
	st.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	w := &World{T: t, secret: secret, State: st, Content: &Content{t: t, of: map[cid.Cid][]byte{}}}
	w.Audit = audit.New(audit.Options{State: st, Now: w.now})
	w.Ledger = credits.New(credits.Options{State: st, Now: w.now})
	w.Users = w.Elsewhere()
	w.Objects = objects.New(objects.Options{
		Self: "n1", State: st, Watch: st.Watch, Nodes: w, Content: w.Content, Files: w.Content, MinPart: MinPart, UploadAge: time.Hour,
		Agreed: func() (early, late state.Millis, ok bool) { return 0, 0, false },
	})
	w.Pins = pins.New(pins.Options{State: st, Nodes: w, Watch: st.Watch})
	w.Uploads = uploads.New(st, &w.Sent, w.Pins)
	for _, name := range []string{"alice", "bob"} {
		if _, err := w.Users.CreateAccount(t.Context(), Email(name), Password(name)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// Elsewhere returns the account logic of another node of the same cluster. It shares the
// replicated state with w.Users, but no memory such as caches.
func (w *World) Elsewhere() *accounts.Accounts {
	return accounts.New(accounts.Options{State: w.State, Secret: w.secret, SignUp: accounts.SignUpInvited, Now: w.now, Watch: w.State.Watch, Refused: w.Audit.RefusedSignIn})
}

// Snapshot returns a text that describes all keys, shares, pins, buckets and objects of all
// accounts. Two snapshots are equal if nothing changed between them.
func (w *World) Snapshot() string {
	w.T.Helper()
	ctx := w.T.Context()
	var text strings.Builder
	check := func(err error) {
		w.T.Helper()
		if err != nil {
			w.T.Fatal(err)
		}
	}
	users, err := w.Users.List(ctx)
	check(err)
	for i := range users {
		has, err := w.Users.Holdings(ctx, users[i].Email)
		check(err)
		keys, err := w.Users.Keys(ctx, has.Email)
		check(err)
		_, pinned, err := w.Pins.List(ctx, has.ID, state.PinQuery{Statuses: state.Statuses(), Limit: pins.MaxList})
		check(err)
		buckets, err := w.Objects.Buckets(ctx, has.ID)
		check(err)
		shares, err := w.Users.Shares(ctx, has.ID, "", state.SharePlace{}, state.MaxListLimit)
		check(err)
		fmt.Fprintf(&text, "%+v %v %v %+v %+v\n", has, keys, shares, pinned, buckets)
		for i := range buckets {
			page, err := w.Objects.List(ctx, has.ID, buckets[i].Name, state.ObjectsQuery{Limit: state.MaxListLimit})
			check(err)
			fmt.Fprintf(&text, "%+v\n", page)
		}
	}
	return text.String()
}

// Unchanged takes a Snapshot. The function that it returns fails the test if the accounts have
// changed since then; what names the tested action in the error.
func (w *World) Unchanged(what string) func() {
	w.T.Helper()
	before := w.Snapshot()
	return func() {
		w.T.Helper()
		if after := w.Snapshot(); after != before {
			w.T.Errorf("%s changed something: before\n%s\nafter\n%s", what, before, after)
		}
	}
}

func (w *World) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

// Ahead sets how far the clock of the accounts, the audit log and the ledger runs ahead of real
// time.
func (w *World) Ahead(d time.Duration) { w.ahead.Store(int64(d)) }

// AheadToMinute moves the clock of Ahead to the beginning of the next minute and returns that time. A
// test calls it before events that are counted per minute or per day, so that all of them fall into
// the same minute and the same day.
func (w *World) AheadToMinute() time.Time {
	now := time.Now()
	begin := now.Truncate(time.Minute).Add(time.Minute)
	w.Ahead(begin.Sub(now))
	return begin
}

// Status returns the status of a cluster of the three alive voters n1 to n3, after Change has
// changed each.
func (w *World) Status(context.Context) (members.Status, error) {
	s := members.Status{ClusterID: "cluster", Leader: "n1", Pins: map[state.Status]uint64{}}
	for _, n := range clustertest.Members("n1", "n2", "n3") {
		p := members.Peer{Node: n, Role: "voter", Load: members.Load{State: "alive"}}
		if w.Change != nil {
			w.Change(&p)
		}
		s.Peers = append(s.Peers, p)
	}
	return s, nil
}

// Shortage reports one missing copy, on n2.
func (w *World) Shortage(context.Context) (members.Shortage, error) {
	s := members.Shortage{Rows: []members.ShortRow{{Node: "n1", Member: true, Held: 3, Wanted: 3}, {Node: "n2", Member: true, Held: 2, Wanted: 3}}}
	s.Rows[1].Missing[0], s.Rows[1].ByAge[2] = 1, 1
	return s, nil
}

// MissingOn returns the missing copy that Shortage reports, and the key of a next page. It
// returns no rows for another node or class, or if from is not empty.
func (w *World) MissingOn(_ context.Context, node state.NodeID, class members.Class, from state.RootKey, _ int) (rows []members.MissingCopy, next state.RootKey, err error) {
	if node != "n2" || class != (members.Class{}) && class != (members.Class{OfAges: true, Number: 2}) || from != "" {
		return nil, "", nil
	}
	c, err := cid.Decode(CatCID)
	return []members.MissingCopy{{Root: state.RootOf(c), Size: 300, Age: 2 * time.Hour, Held: 2, Wanted: 3, Phase: state.Assigned, Reason: "nobody offered it"}}, state.RootOf(c), err
}

// Quorum returns a quorum of three voters that are all reachable.
func (w *World) Quorum() members.Quorum {
	return members.Quorum{Votes: 3, Needed: 2, Here: 3, Leader: "n1"}
}

// Leaving returns the plan for the removal of the member who, by which no content is lost.
func (w *World) Leaving(ctx context.Context, who string, _ bool) (members.Leaving, error) {
	s, err := w.Status(ctx)
	for _, p := range s.Peers {
		if string(p.ID) == who {
			return members.Leaving{Peer: p, Votes: 2, Answer: 2}, err
		}
	}
	return members.Leaving{}, state.ErrNotFound
}

// DrainPlan returns the plan for the drain of the member who, which stores five roots.
func (w *World) DrainPlan(ctx context.Context, who string) (members.DrainPlan, error) {
	s, err := w.Status(ctx)
	for _, p := range s.Peers {
		if string(p.ID) == who {
			p.Roots = 5
			return members.DrainPlan{Peer: p, Others: 2, Free: 1 << 30, Copies: 3, CopiesThen: 2}, err
		}
	}
	return members.DrainPlan{}, state.ErrNotFound
}

// Drain appends the call to Drained. It returns a conflict error for every member except n3.
func (w *World) Drain(_ context.Context, id state.NodeID, on bool) error {
	if id != "n3" {
		return state.Errorf(state.CodeConflict, "node %s is the last member that keeps content", id)
	}
	w.Drained = append(w.Drained, fmt.Sprint(id, " ", on))
	return nil
}

// Remove appends id to Removed. Without force it returns a conflict error for every member except
// n3.
func (w *World) Remove(_ context.Context, id state.NodeID, force bool) error {
	if id != "n3" && !force {
		return state.Errorf(state.CodeConflict, "node %s is the only holder of 2 roots", id)
	}
	w.Removed = append(w.Removed, id)
	return nil
}

// CreateTicket always returns the same ticket.
func (w *World) CreateTicket(context.Context, time.Duration, func([]byte)) (string, error) {
	return "ticket", nil
}

// Ready implements web.Health.
func (w *World) Ready(context.Context) error { return w.Down }

// Candidates returns the three members as placement candidates, all alive and with the same free
// space.
func (w *World) Candidates() []placement.Node {
	var nodes []placement.Node
	for _, n := range clustertest.Members("n1", "n2", "n3") {
		nodes = append(nodes, placement.Node{ID: n.ID, Free: 1 << 30, Alive: true})
	}
	return nodes
}

// At returns a function that builds the URL of an API at the given port from a host and a scheme.
func At(port string) func(host, scheme string) string {
	return func(host, scheme string) string { return scheme + "://" + host + ":" + port }
}

// Presign returns a fake presigned URL, with the access key id in its query.
func Presign(l web.Link) string {
	return fmt.Sprintf("%s/%s/%s?signed-by=%s", l.Endpoint, l.Bucket, url.PathEscape(l.Key), l.AccessKeyID)
}

// Email returns the e-mail address of the account "alice" or "bob" of a World.
func Email(name string) string { return name + "@example.org" }

// Password returns the password of the account "alice" or "bob" of a World.
func Password(name string) string { return "password of " + name }

// Account returns the id of the account "alice" or "bob".
func (w *World) Account(name string) state.AccountID {
	w.T.Helper()
	a, err := w.Users.ByEmail(w.T.Context(), Email(name))
	if err != nil {
		w.T.Fatal(err)
	}
	return a.ID
}

// Key creates an API key for the account "alice" or "bob". Without scopes the key has all scopes.
func (w *World) Key(name string, scopes ...string) accounts.Key {
	w.T.Helper()
	key, err := w.Users.CreateKey(w.T.Context(), Email(name), "test", scopes, 0)
	if err != nil {
		w.T.Fatal(err)
	}
	return key
}

// Photos creates the bucket photos of Alice, with an object at key and an open multipart upload
// for key that has one part. It returns the id of the upload.
func (w *World) Photos(key string) state.UploadID {
	w.T.Helper()
	ctx, alice := w.T.Context(), w.Account("alice")
	if err := w.Objects.CreateBucket(ctx, alice, "photos", false); err != nil {
		w.T.Fatal(err)
	}
	w.Store(key, "text/plain", "meow!")
	id, err := w.Objects.CreateUpload(ctx, alice, "photos", objects.UploadRequest{Key: key})
	if err == nil {
		_, err = w.Objects.PutPart(ctx, alice, "photos", objects.PartRequest{Key: key, Upload: id, Number: 1, Body: objects.Body{Reader: strings.NewReader("parts"), Size: 5}})
	}
	if err != nil {
		w.T.Fatal(err)
	}
	return id
}

// Store puts an object with the content text and the Content-Type kind into Alice's bucket
// photos.
func (w *World) Store(key, kind, text string) {
	w.T.Helper()
	_, err := w.Objects.Put(w.T.Context(), w.Account("alice"), "photos", objects.PutRequest{
		Key: key, Attributes: objects.Attributes{Headers: map[string]string{"Content-Type": kind}},
		Body: objects.Body{Reader: strings.NewReader(text), Size: int64(len(text))},
	})
	if err != nil {
		w.T.Fatal(err)
	}
}
