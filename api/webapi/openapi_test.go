package webapi

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is what of openapi.json the tests look at.
type document struct {
	OpenAPI string `json:"openapi"`
	Servers []struct {
		URL string `json:"url"`
	} `json:"servers"`
	Paths      map[string]map[string]json.RawMessage `json:"paths"`
	Components struct {
		Schemas map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"schemas"`
		Responses map[string]described `json:"responses"`
	} `json:"components"`
}

// described is an operation, or a response of it.
type described struct {
	Ref        string                `json:"$ref"`
	Security   []map[string][]string `json:"security"`
	Parameters []struct {
		Ref  string `json:"$ref"`
		Name string `json:"name"`
		In   string `json:"in"`
	} `json:"parameters"`
	RequestBody *described           `json:"requestBody"`
	Responses   map[string]described `json:"responses"`
	Content     map[string]struct {
		Schema struct {
			Ref string `json:"$ref"`
		} `json:"schema"`
	} `json:"content"`
}

// describedOperations are the operations of openapi.json by "METHOD /path".
func describedOperations(t *testing.T) (document, map[string]described) {
	t.Helper()
	var d document
	if err := json.Unmarshal([]byte(openAPI), &d); err != nil || d.OpenAPI != "3.1.0" || len(d.Servers) != 1 || d.Servers[0].URL != Prefix {
		t.Fatalf("openapi.json: %+v %v", d.Servers, err)
	}
	all := map[string]described{}
	for path, item := range d.Paths {
		for method, raw := range item {
			if method == "parameters" {
				continue
			}
			var op described
			if err := json.Unmarshal(raw, &op); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			all[strings.ToUpper(method)+" "+path] = op
		}
	}
	return d, all
}

// describedName returns the name of an operation in openapi.json, where a parameter of a path has no
// mark for several segments.
func describedName(op operation) string {
	return op.method + " " + strings.ReplaceAll(op.path, "...}", "}")
}

// TestTheDocumentIsTheTable promises that each route is described and each described one is
// served, with the same query, the same body and the same callers.
func TestTheDocumentIsTheTable(t *testing.T) {
	d, all := describedOperations(t)
	roles := map[access]string{mayRead: state.ScopeRead, byToken: state.ScopeRead, listsByToken: state.ScopeRead, mayWrite: state.ScopeWrite, writesByToken: state.ScopeWrite, mayDelete: state.ScopeDelete, bySession: "session", admins: "administrator"}
	served := map[string]bool{}
	for _, op := range (&surface{}).operations() {
		name := describedName(op)
		served[name] = true
		got, ok := all[name]
		if !ok {
			t.Errorf("%s is served and not described", name)
			continue
		}
		var query []string
		form := false
		for _, p := range got.Parameters {
			if p.In == "query" {
				query = append(query, p.Name)
			}
			form = form || p.Ref == "#/components/parameters/FormToken"
		}
		if !slices.Equal(slices.Sorted(slices.Values(query)), slices.Sorted(slices.Values(op.query))) {
			t.Errorf("%s has the parameters %q and is described with %q", name, op.query, query)
		}
		if form != (op.method != http.MethodGet && !op.access.byTokenOnly()) {
			t.Errorf("%s is described with the form token: %v", name, form)
		}
		var fields []string
		if got.RequestBody != nil {
			schema := got.RequestBody.Content["application/json"].Schema.Ref
			fields = slices.Collect(maps.Keys(d.Components.Schemas[strings.TrimPrefix(schema, "#/components/schemas/")].Properties))
		}
		if !slices.Equal(slices.Sorted(slices.Values(fields)), slices.Sorted(slices.Values(op.fields))) {
			t.Errorf("%s takes %q and is described with %q", name, op.fields, fields)
		}
		switch {
		case op.access == anybody:
			if len(got.Security) != 0 {
				t.Errorf("%s is for anybody and described with %v", name, got.Security)
			}
		case op.access.byTokenOnly():
			if len(got.Security) != 1 || !slices.Equal(got.Security[0]["token"], []string{roles[op.access]}) {
				t.Errorf("%s is for tokens and described with %v", name, got.Security)
			}
		case len(got.Security) != 2 || !slices.Equal(got.Security[1]["token"], []string{roles[op.access]}):
			t.Errorf("%s is for %s and described with %v", name, roles[op.access], got.Security)
		}
	}
	for name := range all {
		if !served[name] {
			t.Errorf("%s is described and not served", name)
		}
	}
}

// TestReferencesOfTheDocumentLeadSomewhere promises that each $ref has its target and each
// component except the security schemes is used.
func TestReferencesOfTheDocumentLeadSomewhere(t *testing.T) {
	apitest.References(t, openAPI)
}

// schemas compiles the schemas of the document. A member that is not described fails.
func schemas(t *testing.T) func(name string) *jsonschema.Schema {
	t.Helper()
	const at = "https://holdfast.test/openapi.json"
	var doc map[string]any
	if err := json.Unmarshal([]byte(openAPI), &doc); err != nil {
		t.Fatal(err)
	}
	var close func(v any)
	close = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				close(e)
			}
		case map[string]any:
			if _, open := v["additionalProperties"]; v["type"] == "object" && v["properties"] != nil && !open {
				v["additionalProperties"] = false
			}
			for _, e := range v {
				close(e)
			}
		}
	}
	close(doc["components"].(map[string]any)["schemas"])
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource(at, doc); err != nil {
		t.Fatal(err)
	}
	return func(ref string) *jsonschema.Schema {
		s, err := c.Compile(at + ref)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// valid fails the test unless an answer is as an operation describes it.
func valid(t *testing.T, name string, op described, d document, compile func(string) *jsonschema.Schema, got *httptest.ResponseRecorder) {
	t.Helper()
	response, ok := op.Responses[strconv.Itoa(got.Code)]
	if !ok {
		t.Errorf("%s is answered %d, which is not described: %s", name, got.Code, got.Body)
		return
	}
	if of, isRef := strings.CutPrefix(response.Ref, "#/components/responses/"); isRef {
		response = d.Components.Responses[of]
	}
	if _, has := response.Content["application/octet-stream"]; has {
		if got.Header().Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%s %d has the type %q", name, got.Code, got.Header().Get("Content-Type"))
		}
		return
	}
	content, has := response.Content["application/json"]
	switch {
	case !has && got.Body.Len() > 0:
		t.Errorf("%s %d has a body, which is not described: %s", name, got.Code, got.Body)
	case has && got.Header().Get("Content-Type") != "application/json":
		t.Errorf("%s %d has the type %q", name, got.Code, got.Header().Get("Content-Type"))
	}
	if !has || content.Schema.Ref == "" {
		return
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(got.Body.String()))
	if err == nil {
		err = compile(content.Schema.Ref).Validate(value)
	}
	if err != nil {
		t.Errorf("%s %d is not as described: %v\n%s", name, got.Code, err, got.Body)
	}
}

// TestAnswersAreAsDescribed promises that the answer to each route is valid by its schema, as is each body that
// the samples send. The account has a key, pins, objects and versions, so that answers have rows.
func TestAnswersAreAsDescribed(t *testing.T) {
	d, all := describedOperations(t)
	compile := schemas(t)
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	if err := w.Objects.SetVersioning(t.Context(), w.Account("alice"), "photos", state.Versioned); err != nil {
		t.Fatal(err)
	}
	w.Store("cat.txt", "text/plain", "purr")
	w.Store("cats/tom.txt", "text/plain", "purr")
	alice := w.signIn("alice")
	alice.do("POST", "/keys", `{"name":"of an hour","expires_in":3600}`)
	alice.do("POST", "/pins", samples["POST /pins"].body)
	for _, c := range w.calls(nil) {
		got := alice.at(c).do(c.method, c.to, c.sent)
		if got.Code != c.good && c.name != "DELETE /buckets/{bucket}" { // which has versions
			t.Errorf("%s is answered with %d: %s", c.name, got.Code, got.Body)
		}
		valid(t, c.name, all[describedName(c.operation)], d, compile, got)
		if c.sent == "" {
			continue
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(c.sent))
		if err == nil {
			err = compile(all[c.name].RequestBody.Content["application/json"].Schema.Ref).Validate(value)
		}
		if err != nil {
			t.Errorf("the sample of %s is not as described: %v", c.name, err)
		}
	}
	for _, path := range []string{"/buckets/photos/object?key=cat.txt", "/buckets/photos/object?key=cat.txt&version=null"} { // a delete marker, and a version
		valid(t, path, all["GET /buckets/{bucket}/object"], d, compile, w.signIn("alice").do("GET", path, ""))
	}
}

// late is a body that does not come.
type late struct{}

func (late) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// TestEveryStatusIsDescribed promises that each error has the status and body that the document describes, and
// that each described status occurs. It calls each operation in each way to be answered.
func TestEveryStatusIsDescribed(t *testing.T) {
	d, all := describedOperations(t)
	compile := schemas(t)
	session := accounts.Principal{Account: "a", Email: "a@example.org", Session: "s", Scopes: []string{state.ScopeRead, state.ScopeWrite}, Admin: true}
	names := &world{ids: map[string]string{"key": "k", "pin": "p", "user": "u", "bucket": "photos", "link": "l", "share": "s"}}
	for _, c := range names.calls(nil) {
		seen := map[int]bool{}
		ask := func(f *fake, r *http.Request) {
			h, err := New(Options{
				Accounts: f, Audit: fakeAudit{f}, Ledger: fakeLedger{f}, Payments: apitest.SomePayments(3), Pins: fakePins{f}, Uploads: fakeUploads{f}, Content: fakeContent{f}, Objects: fakeObjects{f}, Members: f, Health: f,
				S3URL: apitest.At("9000"), Presign: apitest.Presign, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer token")
			got := httptest.NewRecorder()
			h.ServeHTTP(got, r)
			seen[got.Code] = true
			if got.Code != c.good || got.Code >= 300 {
				valid(t, c.name, all[describedName(c.operation)], d, compile, got)
			}
		}
		request := func(to, body string) *http.Request {
			return httptest.NewRequest(c.method, Prefix+to, strings.NewReader(body))
		}
		ask(&fake{who: session}, request(c.to, c.sent))
		codes := []error{errors.New("broken")}
		for _, code := range state.Codes() {
			switch code {
			case state.CodeQuota, state.CodeNoSpace: // of what is stored
				if c.name != "POST /pins" && c.name != "POST /pins/upload" {
					continue
				}
			case state.CodeExists, state.CodeTooLarge: // of what is made
				if c.good != http.StatusCreated {
					continue
				}
			case state.CodeNotEmpty:
				if c.name != "DELETE /buckets/{bucket}" {
					continue
				}
			case state.CodeCredits:
				if c.name != "POST /users/{id}/ledger" {
					continue
				}
			case state.CodePrecondition: // nothing has a condition
				continue
			case state.CodeNotFound, state.CodeNoBucket, state.CodeNoKey, state.CodeNoUpload, state.CodeNoVersion:
				if !strings.Contains(c.path, "{") && c.path != "/shares" && c.path != "/ledger" { // which name a bucket or an account elsewhere
					continue
				}
			}
			codes = append(codes, state.Errorf(code, "no"))
		}
		for _, err := range codes {
			ask(&fake{who: session, err: err}, request(c.to, c.sent))
		}
		ask(&fake{refused: state.ErrUnauthorized}, request(c.to, c.sent))
		ask(&fake{refused: state.ErrUnavailable}, request(c.to, c.sent))
		ask(&fake{refused: state.ErrLimited}, request(c.to, c.sent))
		ask(&fake{refused: errors.New("broken")}, request(c.to, c.sent))
		ask(&fake{who: accounts.Principal{Account: "a", KeyID: "k"}}, request(c.to, c.sent))
		ask(&fake{who: session}, request(c.to+map[bool]string{true: "&", false: "?"}[strings.Contains(c.to, "?")]+"no=1", c.sent))
		if c.sent != "" {
			ask(&fake{who: session}, request(c.to, "{"))
			ask(&fake{who: session}, request(c.to, strings.Repeat(" ", web.MaxJSONBody+1)))
			ask(&fake{who: session}, httptest.NewRequest(c.method, Prefix+c.to, late{}))
		}
		if c.access == writesByToken {
			ask(&fake{who: session}, httptest.NewRequest(c.method, Prefix+c.to, late{}))
			r := request(c.to, c.sent)
			r.Header.Set("Idempotency-Key", "k")
			ask(&fake{who: session, err: state.ErrExists}, r)
		}
		if strings.HasPrefix(c.path, "/content/") {
			ask(&fake{who: session, err: content.ErrFolder}, request(c.to, ""))
		}
		if c.access == byToken || strings.HasPrefix(c.path, "/content/") {
			for name, value := range map[string]string{"Range": "bytes=1-2", "If-None-Match": "*", "If-Match": `"other"`} {
				r := request(c.to, "")
				r.Header.Set(name, value)
				ask(&fake{who: session}, r)
			}
			r := request(c.to, "")
			r.Header.Set("Range", "bytes=9-")
			ask(&fake{who: session}, r)
		}
		for status := range all[describedName(c.operation)].Responses {
			if n, _ := strconv.Atoi(status); !seen[n] {
				t.Errorf("%s %s is described and not seen; seen were %v", c.name, status, slices.Sorted(maps.Keys(seen)))
			}
		}
	}
}

// TestTheDocumentIsServedToAnybody promises that the OpenAPI document is served without credentials.
func TestTheDocumentIsServedToAnybody(t *testing.T) {
	w := newWorld(t)
	if got := w.with("").do("GET", "/openapi.json", ""); got.Code != http.StatusOK || got.Body.String() != openAPI {
		t.Errorf("it is answered with %d", got.Code)
	}
}
