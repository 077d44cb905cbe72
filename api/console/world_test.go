package console

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const host = apitest.Host

// world is the console over the use cases of a world in memory.
type world struct {
	*apitest.World
	t       testing.TB
	handler http.Handler
	log     *bytes.Buffer // what the console logs, of every level
	users   *accounts.Accounts
	pins    *pins.Pins
	objects *objects.Objects
	options Options

	draining chan struct{} // closed: the node stops
}

// another returns a node of the same cluster with other options.
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

func newWorld(t testing.TB) *world {
	t.Helper()
	ground := apitest.New(t)
	w := &world{World: ground, t: t, log: &bytes.Buffer{}, users: ground.Users, pins: ground.Pins, objects: ground.Objects, draining: make(chan struct{})}
	w.options = Options{
		Accounts: w.users, Audit: w.Audit, Ledger: w.Ledger, Payments: apitest.SomePayments(120), Pins: w.pins, Uploads: w.Uploads, Content: &keptContent{}, Objects: w.objects, Members: w, MaxObject: 1 << 20, MinPart: apitest.MinPart, Health: w,
		Limits: web.NewLimits(web.Rate{}, web.Rate{}, nil, time.Now), Presign: apitest.Presign,
		PinningURL: apitest.At("9097"), S3URL: apitest.At("9000"), Draining: w.draining, Region: "us-east-1", Version: "1.2.3",
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), w.log), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	w.renew()
	return w
}

// renew makes the handler anew, after a change of the options.
func (w *world) renew() {
	w.t.Helper()
	var err error
	if w.handler, err = New(w.options); err != nil {
		w.t.Fatal(err)
	}
}

// browser keeps cookies, as far as the console needs that.
type browser struct {
	*world
	cookies map[string]string
}

// administrator returns a world, and a browser in which its alice, who is an administrator, has signed in.
func administrator(t *testing.T) (*world, *browser) {
	t.Helper()
	w := newWorld(t)
	if err := w.users.SetAdmin(t.Context(), "alice@example.org", true); err != nil {
		t.Fatal(err)
	}
	b := w.browser()
	b.signIn("alice")
	return w, b
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

// cookies returns the cookies that an answer sets.
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

// account returns the id of an account of the world.
func (w *world) account(name string) state.AccountID { return w.Account(name) }
