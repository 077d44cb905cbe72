package webapi

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/prometheus/client_golang/prometheus"
)

// world is the web API over the use cases of a world in memory. Alice has what the samples name.
type world struct {
	*apitest.World
	handler http.Handler
	log     bytes.Buffer // what the API logs, of every level
	metrics *prometheus.Registry
	key     accounts.Key      // Alice's, with all scopes but to delete
	ids     map[string]string // of what the samples name
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{World: apitest.New(t), metrics: prometheus.NewRegistry()}
	w.handler = w.node(w.Users)
	w.Photos("cat.txt")
	w.key = w.Key("alice")
	alice := w.signIn("alice")
	var pin pinBody
	w.into(alice.do("POST", "/pins", `{"cid":"`+apitest.CatCID+`","name":"cat"}`), http.StatusCreated, &pin)
	if _, err := w.Users.CreateLink(t.Context(), apitest.Email("dora")); err != nil {
		t.Fatal(err)
	}
	open, err := w.Users.Links(t.Context())
	if err != nil || len(open) != 1 {
		t.Fatal(open, err)
	}
	share := w.share("0123456789abcdef0123456789abcdef", "cat.txt")
	w.share("1123456789abcdef0123456789abcdef", "e/")
	w.ids = map[string]string{"link": string(open[0].ID), "key": string(w.key.ID), "pin": string(pin.ID), "user": string(w.Account("bob")), "bucket": "photos", "share": string(share.ID)}
	return w
}

// share makes a share of Alice's bucket that reads.
func (w *world) share(id state.ShareID, prefix string) accounts.Share {
	w.T.Helper()
	s, err := w.Users.CreateShare(w.T.Context(), w.Account("alice"), accounts.ShareRequest{ID: id, Bucket: "photos", Prefixes: []string{prefix}, Read: true})
	if err != nil {
		w.T.Fatal(err)
	}
	return s
}

// node returns the web API as a node with some accounts serves it.
func (w *world) node(users *accounts.Accounts) http.Handler {
	w.T.Helper()
	metrics, err := web.NewMetrics(prometheus.WrapRegistererWithPrefix("", prometheus.NewRegistry()))
	if users == w.Users {
		metrics, err = web.NewMetrics(w.metrics)
	}
	if err != nil {
		w.T.Fatal(err)
	}
	h, err := New(Options{
		Accounts: users, Audit: w.Audit, Ledger: w.Ledger, Payments: apitest.SomePayments(120), Pins: w.Pins, Uploads: w.Uploads, Content: w.content(), Objects: w.Objects, Members: w, Health: w, Limits: web.NewLimits(web.Rate{}, web.Rate{}, nil, time.Now),
		S3URL: apitest.At("9000"), Presign: apitest.Presign, Metrics: metrics,
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(w.T.Output(), &w.log), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		w.T.Fatal(err)
	}
	return h
}

// client sends requests with credentials.
type client struct {
	*world
	handler http.Handler
	cookie  string // session token in the cookie; "" for none
	form    string // form token of a change; "" for none
	bearer  string // token of the Authorization header; "" for none
}

// signIn returns a client with a session of an account in a cookie.
func (w *world) signIn(name string) client {
	w.T.Helper()
	token := w.token(name)
	return client{world: w, handler: w.handler, cookie: token, form: web.FormToken(token)}
}

// token begins a session of an account and returns its token.
func (w *world) token(name string) string {
	w.T.Helper()
	token, err := w.Users.SignIn(w.T.Context(), apitest.Email(name), apitest.Password(name), netip.Addr{})
	if err != nil {
		w.T.Fatal(err)
	}
	return token
}

// with returns a client with a Bearer token.
func (w *world) with(token string) client { return client{world: w, handler: w.handler, bearer: token} }

// at returns the client for a route: where no cookie counts, it has the session as a Bearer token.
func (c client) at(s sampled) client {
	if s.access.byTokenOnly() && c.bearer == "" {
		c.bearer, c.cookie, c.form = c.cookie, "", ""
	}
	return c
}

// request returns a request to a path behind Prefix.
func (c client) request(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, Prefix+path, strings.NewReader(body))
	r.Host = apitest.Host
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.cookie != "" {
		r.AddCookie(&http.Cookie{Name: web.SessionCookie, Value: c.cookie})
	}
	if c.form != "" {
		r.Header.Set(web.FormHeader, c.form)
	}
	if c.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	return r
}

func (c client) do(method, path, body string) *httptest.ResponseRecorder {
	c.T.Helper()
	return c.send(c.request(method, path, body))
}

func (c client) send(r *http.Request) *httptest.ResponseRecorder {
	c.T.Helper()
	answer := httptest.NewRecorder()
	c.handler.ServeHTTP(answer, r)
	return answer
}

// into reads the body of an answer, which must have a status.
func (w *world) into(answer *httptest.ResponseRecorder, status int, body any) {
	w.T.Helper()
	if answer.Code != status {
		w.T.Fatalf("the answer is %d and not %d: %s", answer.Code, status, answer.Body)
	}
	if body == nil {
		return
	}
	if err := json.Unmarshal(answer.Body.Bytes(), body); err != nil {
		w.T.Fatalf("%v: %s", err, answer.Body)
	}
}

// sample is how the tests call a route.
type sample struct {
	id    string // what {id} is, by the names of world.ids
	query string
	body  string // {key} is the id of Alice's key
	good  int    // status of the answer to who may
	tries bool   // the body has a password, whose tries are counted
	shows bool   // the answer shows secrets of a key
}

// samples has an entry for every route. TestEveryRouteHasASample fails for a route without one.
var samples = map[string]sample{
	"GET /session":                       {good: 200, shows: true},
	"DELETE /session":                    {good: 204},
	"GET /keys":                          {good: 200},
	"POST /keys":                         {good: 201, body: `{"name":"new"}`, shows: true},
	"GET /keys/{id}":                     {good: 200, id: "key"},
	"DELETE /keys/{id}":                  {good: 204, id: "key"},
	"POST /keys/{id}/show":               {good: 200, id: "key", body: `{"password":"password of alice"}`, tries: true, shows: true},
	"GET /pins":                          {good: 200, query: "?limit=1"},
	"POST /pins":                         {good: 201, body: `{"cid":"` + apitest.CatCID + `","name":"dog","origins":["/dns4/example.org/tcp/4001/p2p/12D3KooWGRUfjpxVXnPPHh3V6mDoRhMHFDgJN2hpvhPHVvZJYNW2"],"meta":{"a":"b"},"until":"720h"}`},
	"POST /pins/upload":                  {good: 201, query: "?name=notes&until=720h&hash=sha2-256&cid_version=1"},
	"GET /pins/{id}":                     {good: 200, id: "pin"},
	"DELETE /pins/{id}":                  {good: 204, id: "pin"},
	"GET /content/{path...}":             {good: 200},
	"GET /buckets":                       {good: 200},
	"POST /buckets":                      {good: 201, body: `{"name":"holidays","public":true}`},
	"DELETE /buckets/{bucket}":           {good: 204},
	"GET /buckets/{bucket}/objects":      {good: 200, query: "?delimiter=%2F"},
	"GET /buckets/{bucket}/object":       {good: 200, query: "?key=cat.txt"},
	"DELETE /buckets/{bucket}/object":    {good: 204, query: "?key=cat.txt"},
	"POST /buckets/{bucket}/object/link": {good: 200, query: "?key=cat.txt", body: `{"key_id":"{key}"}`},
	"GET /shares":                        {good: 200, query: "?bucket=photos&limit=1"},
	"POST /shares":                       {good: 201, body: `{"bucket":"photos","prefixes":["e/"],"write":true,"expires_at":"2100-01-01T00:00:00Z","name":"for Ann"}`, shows: true},
	"DELETE /shares/{bucket}/{id}":       {good: 204, id: "share"},
	"GET /shared/{bucket}":               {good: 200, query: "?delimiter=%2F"},
	"GET /shared/{bucket}/{key...}":      {good: 200},
	"GET /usage":                         {good: 200},
	"GET /ledger":                        {good: 200, query: "?limit=1"},
	"POST /users/{id}/ledger":            {good: 201, id: "user", body: `{"credits":5,"posting":"sample"}`},
	"GET /members":                       {good: 200},
	"GET /payments":                      {good: 200, query: "?limit=1"},
	"GET /audit":                         {good: 200, query: "?action=user&limit=1"},
	"GET /audit/verify":                  {good: 200},
	"GET /users":                         {good: 200, query: "?limit=1"},
	"POST /users":                        {good: 201, body: `{"email":"carol@example.org","password":"password of carol"}`},
	"GET /users/{id}":                    {good: 200, id: "user"},
	"DELETE /users/{id}":                 {good: 204, id: "user"},
	"PUT /users/{id}/allowance":          {good: 204, id: "user", body: `{"bytes":1048576}`},
	"PUT /users/{id}/disabled":           {good: 204, id: "user", body: `{"disabled":true}`},
	"PUT /users/{id}/admin":              {good: 204, id: "user", body: `{"admin":true}`},
	"GET /links":                         {good: 200},
	"DELETE /links/{id}":                 {good: 204, id: "link"},
	"GET /openapi.json":                  {good: 200},
}

// sampled is a route with a sample: a request that a test can send.
type sampled struct {
	operation
	sample
	name string
	to   string // path and query
	sent string // body
}

// change tells whether the request changes something where it is allowed.
func (s sampled) change() bool { return s.method != http.MethodGet }

// calls are requests to every route, in the order of the table but for what ends the session or
// what others need, which comes last. ids fill the names of the path in place of Alice's.
func (w *world) calls(ids map[string]string) (all []sampled) {
	var last []sampled
	for _, op := range (&surface{}).operations() {
		c := sampled{operation: op, name: op.method + " " + op.path}
		c.sample = samples[c.name]
		of := func(what string) string {
			if id, ok := ids[what]; ok {
				return id
			}
			return w.ids[what]
		}
		c.to = strings.NewReplacer("{id}", of(c.id), "{bucket}", of("bucket"), "{key...}", "cat.txt", "{path...}", apitest.CatCID).Replace(op.path) + c.sample.query
		c.sent = strings.ReplaceAll(c.body, "{key}", of("key"))
		if op.method == http.MethodDelete {
			last = append([]sampled{c}, last...)
		} else {
			all = append(all, c)
		}
	}
	return append(all, last...)
}

// guardedOnly returns the calls that need credentials.
func guardedOnly(all []sampled) (some []sampled) {
	for _, c := range all {
		if c.access != anybody {
			some = append(some, c)
		}
	}
	return some
}
