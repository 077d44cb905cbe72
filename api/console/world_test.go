package console

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

const host = "console.test"

// world is the console over the real use cases and the real state machine in memory, with two
// accounts.
type world struct {
	t        testing.TB
	handler  http.Handler
	users    *accounts.Accounts
	pins     *pins.Pins
	objects  *objects.Objects
	content  *content
	down     error // why the node is not ready
	removed  []state.NodeID
	draining chan struct{} // closed: the node stops
	options  Options
	now      time.Time // of sign-ins; the zero value: as it is
}

// another is a node of the same cluster with other options.
func (w *world) another(change func(*Options)) *world {
	w.t.Helper()
	other := *w
	change(&other.options)
	h, err := New(other.options)
	if err != nil {
		w.t.Fatal(err)
	}
	other.handler = h
	return &other
}

// Status is that of a cluster of three.
func (w *world) Status(context.Context) (members.Status, error) {
	var s members.Status
	for _, n := range clustertest.Members("n1", "n2", "n3") {
		s.Peers = append(s.Peers, members.Peer{Node: n, Role: "voter", Load: members.Load{State: "alive"}})
	}
	return s, nil
}

// Quorum is one of which all are there.
func (w *world) Quorum() members.Quorum { return members.Quorum{Votes: 3, Needed: 2, Here: 3} }

// Leaving takes nothing away.
func (w *world) Leaving(_ context.Context, who string, _ bool) (members.Leaving, error) {
	s, err := w.Status(context.Background())
	for _, p := range s.Peers {
		if string(p.ID) == who {
			return members.Leaving{Peer: p, Votes: 2, Answer: 2}, err
		}
	}
	return members.Leaving{}, state.ErrNotFound
}

// Remove removes what is not forced only if it is the last member.
func (w *world) Remove(_ context.Context, id state.NodeID, force bool) error {
	if id != "n3" && !force {
		return state.Errorf(state.CodeConflict, "node %s is the only holder of 2 roots", id)
	}
	w.removed = append(w.removed, id)
	return nil
}

// CreateTicket returns the same ticket always.
func (w *world) CreateTicket(context.Context, time.Duration, func([]byte)) (string, error) {
	return "ticket", nil
}

func (w *world) Ready(context.Context) error { return w.down }

// Candidates are the members, all alike.
func (w *world) Candidates() []placement.Node {
	var nodes []placement.Node
	for _, n := range clustertest.Members("n1", "n2", "n3") {
		nodes = append(nodes, placement.Node{ID: n.ID, Free: 1 << 30, Alive: true})
	}
	return nodes
}

func newWorld(t testing.TB) *world {
	t.Helper()
	secret := []byte("a secret of the cluster, 32 byte")
	sealed, err := accounts.NewSigningKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	st := clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("n1", "n2", "n3"), SealedSigningKey: sealed})
	st.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	w := &world{t: t, draining: make(chan struct{})}
	w.users = accounts.New(accounts.Options{State: st, Secret: secret, SignUp: accounts.SignUpInvited, Now: func() time.Time {
		if w.now.IsZero() {
			return time.Now()
		}
		return w.now
	}})
	w.content = &content{t: t, of: map[cid.Cid][]byte{}}
	w.objects = objects.New(objects.Options{
		Self: "n1", State: st, Nodes: w, Content: w.content, Files: w.content, MinPart: 5, UploadAge: time.Hour,
		Agreed: func() (early, late state.Millis, ok bool) { return 0, 0, false },
	})
	w.pins = pins.New(pins.Options{State: st, Nodes: w, Watch: st.Watch})
	for _, name := range []string{"alice", "bob"} {
		if _, err := w.users.CreateAccount(t.Context(), name+"@example.org", "password of "+name); err != nil {
			t.Fatal(err)
		}
	}
	at := func(port string) func(host, scheme string) string {
		return func(host, scheme string) string { return scheme + "://" + host + ":" + port }
	}
	w.options = Options{
		Accounts: w.users, Pins: w.pins, Objects: w.objects, Members: w, MaxObject: 1 << 20, MinPart: 5, Health: w, Limits: web.NewLimits(web.Rate{}, web.Rate{}, nil, time.Now),
		Presign: func(l Link) string {
			return fmt.Sprintf("%s/%s/%s?signed-by=%s", l.Endpoint, l.Bucket, url.PathEscape(l.Key), l.AccessKeyID)
		},
		PinningURL: at("9097"), S3URL: at("9000"), Draining: w.draining, Region: "us-east-1", Version: "1.2.3", Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if w.handler, err = New(w.options); err != nil {
		t.Fatal(err)
	}
	return w
}

// browser keeps cookies, as far as the console needs that.
type browser struct {
	*world
	cookies map[string]string
}

func (w *world) browser() *browser { return &browser{world: w, cookies: map[string]string{}} }

// do sends a request with the cookies of the browser and takes those of the answer.
func (b *browser) do(r *http.Request) *httptest.ResponseRecorder {
	b.t.Helper()
	r.Host = host
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	answer := httptest.NewRecorder()
	b.handler.ServeHTTP(answer, r)
	for _, c := range cookies(b.t, answer) {
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return answer
}

// get opens a page.
func (b *browser) get(path string) (status int, body string) {
	b.t.Helper()
	answer := b.do(httptest.NewRequest(http.MethodGet, path, nil))
	return answer.Code, answer.Body.String()
}

// post sends a form with a token of the page that has it.
func (b *browser) post(page, path string, form url.Values) *httptest.ResponseRecorder {
	b.t.Helper()
	_, body := b.get(page)
	if form == nil {
		form = url.Values{}
	}
	if m := tokenOf.FindStringSubmatch(body); m != nil {
		form.Set(tokenField, m[1])
	}
	return b.do(formRequest(path, form))
}

var tokenOf = regexp.MustCompile(`name="` + tokenField + `" value="([^"]+)"`)

func formRequest(path string, form url.Values) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// signIn signs in an account of the world.
func (b *browser) signIn(name string) {
	b.t.Helper()
	answer := b.post("/sign-in", "/sign-in", url.Values{"email": {name + "@example.org"}, "password": {"password of " + name}})
	if answer.Code != http.StatusSeeOther {
		b.t.Fatalf("sign-in is answered with %d: %s", answer.Code, answer.Body.String())
	}
}

// cookies are the cookies that an answer sets.
func cookies(t testing.TB, answer *httptest.ResponseRecorder) (all []*http.Cookie) {
	t.Helper()
	for _, line := range answer.Header().Values("Set-Cookie") {
		c, err := http.ParseSetCookie(line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// account is the id of an account of the world.
func (w *world) account(name string) state.AccountID {
	w.t.Helper()
	a, err := w.users.ByEmail(w.t.Context(), name+"@example.org")
	if err != nil {
		w.t.Fatal(err)
	}
	return a.ID
}
