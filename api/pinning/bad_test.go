package pinning

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/pinbody"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// bad is a request that must be refused, with its status and reason. One
// without a token is sent as Alice.
type bad struct {
	name string
	request
	status int
	reason string
}

const invalid = "BAD_REQUEST"

// badBodies are refused as a new pin and as a replacement alike.
func badBodies() map[string]string {
	with := func(member string) string { return `{"cid":"` + cidOne + `",` + member + `}` }
	origins := func(n int, text string) string {
		return with(`"origins":[` + strings.Join(slices.Repeat([]string{`"` + text + `"`}, n), ",") + `]`)
	}
	pairs := make([]string, 1001)
	for i := range pairs {
		pairs[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	return map[string]string{
		"nothing":                   "",
		"not JSON":                  "cid=" + cidOne,
		"half an object":            `{"cid":"` + cidOne,
		"two values":                `{"cid":"` + cidOne + `"} {}`,
		"a trailing byte":           `{"cid":"` + cidOne + `"}x`,
		"a comma too many":          `{"cid":"` + cidOne + `",}`,
		"a comment":                 `{"cid":"` + cidOne + `"/*x*/}`,
		"a byte order mark":         "\ufeff" + `{"cid":"` + cidOne + `"}`,
		"an array":                  `["` + cidOne + `"]`,
		"a string":                  `"` + cidOne + `"`,
		"null":                      "null",
		"a number":                  "1",
		"no cid":                    `{"name":"x"}`,
		"an empty object":           `{}`,
		"a cid in capitals":         `{"CID":"` + cidOne + `"}`,
		"an empty cid":              `{"cid":""}`,
		"a null cid":                `{"cid":null}`,
		"a number for a cid":        `{"cid":1}`,
		"a list for a cid":          `{"cid":["` + cidOne + `"]}`,
		"a link for a cid":          `{"cid":{"/":"` + cidOne + `"}}`,
		"two cids":                  `{"cid":"` + cidOne + `","cid":"` + cidTwo + `"}`,
		"letters for a cid":         `{"cid":"hello"}`,
		"a cid cut short":           `{"cid":"` + cidOne[:40] + `"}`,
		"a cid with a blank":        `{"cid":" ` + cidOne + `"}`,
		"a cid with a line":         `{"cid":"` + cidOne + `\n"}`,
		"a path":                    `{"cid":"/ipfs/` + cidOne + `"}`,
		"a cid with a path":         `{"cid":"` + cidOne + `/a"}`,
		"a v0 CID cut short":        `{"cid":"` + cidV0[:45] + `"}`,
		"a cid of 10,000 letters":   `{"cid":"b` + strings.Repeat("a", 10_000) + `"}`,
		"a name of 256 characters":  with(`"name":"` + strings.Repeat("a", 256) + `"`),
		"a name of 256 wide ones":   with(`"name":"` + strings.Repeat("🏔", 256) + `"`),
		"a number for a name":       with(`"name":5`),
		"a null name":               with(`"name":null`),
		"a list for a name":         with(`"name":["a"]`),
		"half a character":          with(`"name":"\ud800"`),
		"two names":                 with(`"name":"a","name":"b"`),
		"21 origins":                origins(21, "/ip4/192.0.2.1/tcp/4001"),
		"a URL for an origin":       origins(1, "https://example.org/x"),
		"an empty origin":           origins(1, ""),
		"an origin with a bad port": origins(1, "/ip4/192.0.2.1/tcp/99999"),
		"an origin of 2,000 bytes":  origins(1, strings.Repeat("/ip4/192.0.2.1", 143)),
		"text for origins":          with(`"origins":"/ip4/192.0.2.1/tcp/4001"`),
		"numbers for origins":       with(`"origins":[1]`),
		"a null among origins":      with(`"origins":[null]`),
		"null origins":              with(`"origins":null`),
		"an object for origins":     with(`"origins":{}`),
		"a number in meta":          with(`"meta":{"a":1}`),
		"a truth in meta":           with(`"meta":{"a":true}`),
		"a null in meta":            with(`"meta":{"a":null}`),
		"an object in meta":         with(`"meta":{"a":{"b":"c"}}`),
		"a list in meta":            with(`"meta":{"a":["b"]}`),
		"a key twice in meta":       with(`"meta":{"a":"b","a":"b"}`),
		"a list for meta":           with(`"meta":["a"]`),
		"text for meta":             with(`"meta":"a"`),
		"null meta":                 with(`"meta":null`),
		"1,001 pairs of meta":       with(`"meta":{` + strings.Join(pairs, ",") + `}`),
		"meta beyond its size":      with(`"meta":{"a":"` + strings.Repeat("x", 64<<10) + `"}`),
		"nesting without end":       strings.Repeat("[", 10_000),
		"nesting in what is unread": with(`"x":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000)),
		"bytes that are not UTF-8":  "{\"cid\":\"\xff\xfe\"}",
		"a binary":                  "\x00\x01\x02",
		"XML":                       "<pin/>",
	}
}

// badQueries are refused as the query of a list.
func badQueries() []string {
	q := func(name, value string) string { return url.Values{name: {value}}.Encode() }
	eleven := strings.Join(slices.Repeat([]string{cidOne}, 11), ",")
	return []string{
		q("status", "done"), q("status", "pinned,done"), q("status", "Pinned"), q("status", ""), q("status", "pinned,"),
		q("status", "pinned, queued"), "status=pinned&status=x", q("status", "all"), q("status", "3"), q("status", "[pinned]"),
		q("cid", eleven), "cid=" + cidOne + strings.Repeat("&cid="+cidTwo, 10), q("cid", "hello"), q("cid", cidOne+",x"),
		q("cid", ""), q("cid", cidOne+","), q("cid", ","+cidOne), q("cid", "/ipfs/"+cidOne), q("cid", strings.Repeat("b", 300)), q("cid", `["`+cidOne+`"]`),
		q("name", strings.Repeat("é", 256)), "name=%ff",
		q("match", "fuzzy"), q("match", "EXACT"), q("match", ""), q("match", "exact,partial"),
		q("before", "yesterday"), q("before", "2026-01-01"), q("before", "1767225600"), q("before", "2026-02-30T00:00:00Z"),
		q("before", "2026-01-01T00:00:00"), q("before", "2026-01-01 00:00:00Z"), q("before", "2026-01-01T0:00:00Z"), q("before", "2026-01-01T24:00:00Z"),
		q("before", "2026-01-01T00:00:00,5Z"), q("before", "2026-01-01T00:00:00.Z"), q("before", "2026-01-01T00:00:00+25:00"), q("before", "2026-01-01T00:00:00+0200"),
		q("before", "+2026-01-01T00:00:00Z"), q("before", "20260-01-01T00:00:00Z"), q("before", ""), q("before", "2026-01-01T00:00:00Z "), q("before", "2026-13-01T00:00:00Z"),
		q("before", "2026-01-01T00:00:00."+strings.Repeat("1", 60)+"Z"), "before=2026-01-01T00:00:00+02:00", q("before", "２０２６-01-01T00:00:00Z"),
		q("after", "x"), q("after", ""), q("after", "2026-01-01"), q("after", "0"),
		q("limit", "0"), q("limit", "1001"), q("limit", "-5"), q("limit", "ten"), q("limit", "1.5"), q("limit", "1e2"), q("limit", "0x10"), q("limit", ""),
		q("limit", " 1"), q("limit", "+1"), q("limit", "99999999999999999999"), q("limit", "1000000000"), q("limit", "1_0"), q("limit", "１０"),
		q("meta", "a=b"), q("meta", `["a"]`), q("meta", `"a"`), q("meta", "null"), q("meta", `{"a":1}`), q("meta", `{"a":"b"}x`), q("meta", ""),
		q("meta", `{"a":null}`), q("meta", `{"a":{"b":"c"}}`), q("meta", `{"a":"b","a":"c"}`), q("meta", strings.Repeat("[", 1000)), "meta=%7B%22a%22%3A%22%ff%22%7D",
		"limit=%zz", "limit=1;status=pinned", "a=%",
	}
}

func corpus(id, foreign string) []bad {
	good := `{"cid":"` + cidOne + `"}`
	huge := good + strings.Repeat(" ", web.MaxJSONBody)
	all := []bad{
		{"a large body", request{method: "POST", path: "/pins", body: huge}, 413, "PAYLOAD_TOO_LARGE"},
		{"a large replacement", request{method: "POST", path: "/pins/" + id, body: huge}, 413, "PAYLOAD_TOO_LARGE"},
		{"a form", request{method: "POST", path: "/pins", body: good, header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}}, 400, invalid},
		{"text", request{method: "POST", path: "/pins/" + id, body: good, header: http.Header{"Content-Type": {"text/plain"}}}, 400, invalid},
		{"an unknown route", request{method: "GET", path: "/nothing"}, 404, "NOT_FOUND"},
		{"the root", request{method: "GET", path: "/"}, 404, "NOT_FOUND"},
		{"a version", request{method: "GET", path: "/v1/pins"}, 404, "NOT_FOUND"},
		{"below a pin", request{method: "GET", path: "/pins/" + id + "/more"}, 404, "NOT_FOUND"},
		{"an empty id", request{method: "GET", path: "/pins/"}, 404, "NOT_FOUND"},
		{"an empty id to delete", request{method: "DELETE", path: "/pins/"}, 404, "NOT_FOUND"},
		{"two slashes", request{method: "GET", path: "//pins"}, 404, "NOT_FOUND"},
		{"PUT of the list", request{method: "PUT", path: "/pins"}, 405, "METHOD_NOT_ALLOWED"},
		{"DELETE of the list", request{method: "DELETE", path: "/pins"}, 405, "METHOD_NOT_ALLOWED"},
		{"PATCH of a pin", request{method: "PATCH", path: "/pins/" + id}, 405, "METHOD_NOT_ALLOWED"},
		{"POST to health", request{method: "POST", path: "/healthz"}, 405, "METHOD_NOT_ALLOWED"},
	}
	for name, body := range badBodies() {
		all = append(all,
			bad{"new: " + name, request{method: "POST", path: "/pins", body: body}, 400, invalid},
			bad{"replace: " + name, request{method: "POST", path: "/pins/" + id, body: body}, 400, invalid})
	}
	for _, q := range badQueries() {
		all = append(all, bad{"?" + q, request{method: "GET", path: "/pins?" + q}, 400, invalid})
	}
	for name, other := range map[string]string{
		"unknown": "00000000-0000-4000-8000-999999999999", "another's": foreign, "a word": "unknown", "a dot": ".", "dots": "..",
		"an escaped slash": "a%2Fb", "a path up": "..%2f..%2fetc", "a NUL": "%00", "no UTF-8": "%ff", "a blank": "%20", "an emoji": "%F0%9F%8F%94",
		"long": strings.Repeat("a", 5000), "in capitals": strings.ToUpper(id) + "A", "a wildcard": "*", "braces": "%7Brequestid%7D",
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			body := ""
			if method == "POST" {
				body = good
			}
			all = append(all, bad{method + " of an id: " + name, request{method: method, path: "/pins/" + other, body: body}, 404, "NOT_FOUND"})
		}
	}
	return all
}

// unauthorized are requests without a good token, at every route.
func (w *world) unauthorized(id string) []bad {
	var all []bad
	for name, values := range map[string][]string{
		"no header": {}, "an empty header": {""}, "no space": {"Bearer" + w.alice}, "two spaces": {"Bearer  " + w.alice}, "a tab": {"Bearer\t" + w.alice},
		"lower case": {"bearer " + w.alice}, "two headers": {"Bearer " + w.alice, "Bearer " + w.alice}, "a space behind": {"Bearer " + w.alice + " "},
		"another scheme": {"Basic " + w.alice}, "only the token": {w.alice}, "a changed token": {"Bearer " + w.alice + "A"}, "a cut token": {"Bearer " + w.alice[:len(w.alice)-5]},
		"garbage": {"Bearer abc.def.ghi"}, "revoked": {"Bearer " + w.revoked}, "huge": {"Bearer " + strings.Repeat("a", 10_000)},
	} {
		for _, route := range [][2]string{{"GET", "/pins"}, {"POST", "/pins"}, {"GET", "/pins/" + id}, {"POST", "/pins/" + id}, {"DELETE", "/pins/" + id}, {"GET", "/pins?limit=x"}} {
			// The body is bad as well: it must not be looked at.
			r := request{method: route[0], path: route[1], body: "{", header: http.Header{"Authorization": values}}
			all = append(all, bad{"401 " + name + " " + route[0] + " " + route[1], r, 401, "UNAUTHORIZED"})
		}
	}
	for _, r := range []request{
		{method: "GET", path: "/pins", token: w.writer},
		{method: "GET", path: "/pins/" + id, token: w.writer},
		{method: "POST", path: "/pins", token: w.reader, body: "{"},
		{method: "POST", path: "/pins/" + id, token: w.reader, body: "{"},
		{method: "DELETE", path: "/pins/" + id, token: w.reader},
	} {
		all = append(all, bad{"403 " + r.method + " " + r.path, r, 403, "FORBIDDEN"})
	}
	return all
}

// Each of 300 and more bad requests gets its status and reason in the form of the specification and changes
// nothing, and all 401 have the same text.
func TestBadRequestsAreRefusedAndChangeNothing(t *testing.T) {
	w := newWorld(t)
	create := func(token string) string {
		rec := w.do(request{method: "POST", path: "/pins", body: `{"cid":"` + cidOne + `"}`, token: token})
		var made pinbody.Status
		if err := json.Unmarshal(rec.Body.Bytes(), &made); err != nil || rec.Code != 202 {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
		return string(made.RequestID)
	}
	id, foreign := create(w.alice), create(w.bob)
	all := append(corpus(id, foreign), w.unauthorized(id)...)
	if len(all) < 300 {
		t.Fatalf("only %d requests", len(all))
	}
	texts := map[int]map[string]bool{}
	for _, tc := range all {
		t.Run(tc.name, func(t *testing.T) {
			before, index := w.all(), w.index()
			if _, set := tc.header["Authorization"]; !set && tc.token == "" {
				tc.token = w.alice
			}
			rec := w.do(tc.request)
			if rec.Code != tc.status {
				t.Fatalf("%d %s, want %d", rec.Code, rec.Body, tc.status)
			}
			details := checkError(t, rec.Body.Bytes(), tc.reason, tc.status == 413)
			if texts[tc.status] == nil {
				texts[tc.status] = map[string]bool{}
			}
			texts[tc.status][details] = true
			h := rec.Header()
			if ct := h.Get("Content-Type"); ct != "application/json" {
				t.Errorf("Content-Type %q", ct)
			}
			if got := h.Get("WWW-Authenticate"); (got == "Bearer") != (tc.status == 401) {
				t.Errorf("WWW-Authenticate %q", got)
			}
			if got := h.Get("Allow"); (got != "") != (tc.status == 405) {
				t.Errorf("Allow %q", got)
			}
			if h.Get("X-Request-Id") == "" {
				t.Error("no request id")
			}
			if after := w.all(); after != before {
				t.Errorf("the pins were\n%sand are\n%s", before, after)
			}
			// Whether a pin exists is for the state machine to say; the rest is
			// refused before anything is proposed.
			if after := w.index(); tc.status != 404 && after != index {
				t.Errorf("the log moved from %d to %d", index, after)
			}
		})
	}
	if n := len(texts[401]); n != 1 {
		t.Errorf("%d different texts for 401: %v", n, slices.Collect(maps.Keys(texts[401])))
	}
}

// checkError reads an error's body strictly and returns its details.
func checkError(t *testing.T, body []byte, reason string, flat bool) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if flat {
		var e struct{ Error, Message string }
		if err := d.Decode(&e); err != nil || e.Error != reason {
			t.Errorf("%s: %v, want %s", body, err, reason)
		}
		return e.Message
	}
	var e struct {
		Error struct{ Reason, Details string }
	}
	if err := d.Decode(&e); err != nil || e.Error.Reason != reason || e.Error.Details == "" {
		t.Errorf("%s: %v, want %s", body, err, reason)
	}
	return e.Error.Details
}

// Another account's pin is answered as one that does not exist, byte for byte, for every method.
func TestAnothersPinAnswersAsAnUnknownOne(t *testing.T) {
	w := newWorld(t)
	rec := w.do(request{method: "POST", path: "/pins", body: `{"cid":"` + cidOne + `"}`, token: w.bob})
	var made pinbody.Status
	if err := json.Unmarshal(rec.Body.Bytes(), &made); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
		var answers []string
		for _, id := range []string{string(made.RequestID), "00000000-0000-4000-8000-999999999999"} {
			r := request{method: method, path: "/pins/" + id, token: w.alice, header: http.Header{"X-Request-Id": {"same"}}}
			if method == "POST" {
				r.body = `{"cid":"` + cidTwo + `"}`
			}
			rec := w.do(r)
			answers = append(answers, fmt.Sprint(rec.Code, rec.Header(), rec.Body))
		}
		if answers[0] != answers[1] {
			t.Errorf("%s:\n%s\n%s", method, answers[0], answers[1])
		}
	}
}
