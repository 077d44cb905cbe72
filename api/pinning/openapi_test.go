package pinning

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// described is what of openapi.json the tests look at.
type described struct {
	OpenAPI string                                `json:"openapi"`
	Paths   map[string]map[string]json.RawMessage `json:"paths"`
}

// operationsOf are the statuses of each "METHOD /path", sorted.
func operationsOf(t *testing.T) map[string][]int {
	t.Helper()
	var d described
	if err := json.Unmarshal([]byte(openAPI), &d); err != nil || d.OpenAPI != "3.1.0" {
		t.Fatalf("openapi.json: %q %v", d.OpenAPI, err)
	}
	all := map[string][]int{}
	for path, item := range d.Paths {
		for method, raw := range item {
			if method == "parameters" {
				continue
			}
			var op struct {
				Responses map[string]json.RawMessage `json:"responses"`
			}
			if err := json.Unmarshal(raw, &op); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			name := strings.ToUpper(method) + " " + path
			all[name] = []int{}
			for status := range op.Responses {
				n, err := strconv.Atoi(status)
				if err != nil {
					t.Fatalf("%s: status %q", name, status)
				}
				all[name] = append(all[name], n)
			}
			slices.Sort(all[name])
		}
	}
	return all
}

// Each route is described in the OpenAPI document, and each described one is served.
func TestEveryRouteIsDescribed(t *testing.T) {
	s := &surface{sessions: &fake{}}
	described := operationsOf(t)
	served := map[string]bool{}
	for _, op := range s.operations() {
		name := op.method + " " + op.path
		served[name] = true
		if described[name] == nil {
			t.Errorf("%s is served and not described", name)
		}
	}
	for name := range described {
		if !served[name] {
			t.Errorf("%s is described and not served", name)
		}
	}
}

// late is a body that does not come.
type late struct{}

func (late) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// probe is one way to be answered.
type probe struct {
	err     error // of the use case
	refused error // of the token
	ready   error
	method  string
	path    string
	named   bool // with an Idempotency-Key
	body    string
	late    bool
}

// probes are requests that are answered with every status that an operation has:
// by every error that its use case may return, and by every mistake of a client.
func probes(method, path string) (all []probe) {
	if path == "/healthz" || path == "/openapi.json" {
		return []probe{{method: method, path: path}}
	}
	if path == "/readyz" {
		return []probe{{method: method, path: path}, {method: method, path: path, ready: errors.New("no leader")}}
	}
	codes := []state.Code{state.CodeUnauthorized, state.CodeUnavailable, state.CodeLimited}
	body := ""
	switch {
	case path == "/auth/token" && method == http.MethodPost:
		body = `{"username":"a@b","password":"p"}`
	case path == "/auth/token":
	default:
		codes = append(codes, state.CodeForbidden)
	}
	if method == http.MethodPost && body == "" {
		body = `{"cid":"` + cidOne + `"}`
		codes = append(codes, state.CodeInvalid, state.CodeConflict, state.CodeQuota, state.CodeNoSpace, state.CodeTooLarge)
	}
	sent := strings.Replace(path, "{requestid}", "r", 1)
	if sent != path {
		codes = append(codes, state.CodeNotFound)
	}
	good := probe{method: method, path: sent, body: body}
	add := func(change func(p *probe)) {
		p := good
		change(&p)
		all = append(all, p)
	}
	add(func(*probe) {})
	if path == "/pins" && method == http.MethodPost {
		add(func(p *probe) { p.named, p.err = true, state.ErrExists })
	}
	for _, code := range codes {
		add(func(p *probe) { p.err = state.Errorf(code, "no") })
	}
	add(func(p *probe) { p.err = errors.New("broken") })
	add(func(p *probe) { p.refused = state.ErrUnauthorized })
	add(func(p *probe) { p.path += "?wait=x&limit=x" })
	if body != "" {
		add(func(p *probe) { p.body = "{" })
		add(func(p *probe) { p.body = strings.Repeat(" ", web.MaxJSONBody+1) })
		add(func(p *probe) { p.late = true })
	}
	return all
}

func (f *fake) SignIn(context.Context, string, string, netip.Addr) (string, error) {
	return "session", f.err
}

func (f *fake) SignOut(context.Context, string) error { return f.err }

// Each status that an operation answers is described, and each described status occurs. The test calls each
// operation in every way.
func TestEveryStatusIsDescribed(t *testing.T) {
	for name, want := range operationsOf(t) {
		method, path, _ := strings.Cut(name, " ")
		got := map[int]bool{}
		for _, p := range probes(method, path) {
			f := &fake{record: pins.Record{Pin: state.Pin{ID: "r", CID: cidOne, Status: state.Pinned}}, err: p.err, ready: p.ready}
			h := waiting(t, f, nil, func() error { return p.refused })
			req := httptest.NewRequest(p.method, p.path, strings.NewReader(p.body))
			if p.late {
				req = httptest.NewRequest(p.method, p.path, late{})
			}
			req.Header.Set("Authorization", "Bearer token")
			if p.named {
				req.Header.Set(web.IdempotencyHeader, "once")
			}
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, req)
			got[rec.Code] = true
			if !slices.Contains(want, rec.Code) {
				t.Errorf("%s: %+v is answered %d, which is not described", name, p, rec.Code)
			}
		}
		for _, status := range want {
			if !got[status] {
				t.Errorf("%s %d is described and not seen; seen were %v", name, status, slices.Sorted(maps.Keys(got)))
			}
		}
	}
}

// The OpenAPI document is served without credentials.
func TestTheDescriptionIsServedToAnybody(t *testing.T) {
	h := waiting(t, &fake{}, nil, func() error { return state.ErrUnauthorized })
	rec := do(h, request{method: "GET", path: "/openapi.json"})
	if rec.Code != http.StatusOK || rec.Body.String() != openAPI || rec.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %s %.100s", rec.Code, rec.Header(), rec.Body)
	}
}

// Each $ref of the OpenAPI document has its target, and each component is used.
func TestReferencesOfTheDescriptionLeadSomewhere(t *testing.T) {
	apitest.References(t, openAPI)
}
