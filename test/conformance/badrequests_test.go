//go:build conformance

package conformance

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multibase"
	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// badAnswers are the answers to all bad requests, one a line in the order of
// their names: name, status, media type, body.
const badAnswers = "testdata/badrequests.tsv"

// badRequest is one request that must be refused, or at least must not hurt.
type badRequest struct {
	name, method, path, body string
	want                     int         // status
	header                   http.Header // on top of the usual ones
}

// fixed returns a CID that nobody has and that every run sends, as answers repeat it.
func fixed(n int) cid.Cid {
	hash, err := multihash.Sum([]byte("sent with bad requests "+strconv.Itoa(n)), multihash.SHA2_256, -1)
	if err != nil {
		panic(fmt.Sprintf("sha2-256: %v", err)) // cannot happen
	}
	return cid.NewCidV1(cid.Raw, hash)
}

// maxBody is the documented bound of a JSON body.
const maxBody = 1 << 20

// badBodies are refused as a new pin and as a replacement alike.
func badBodies() map[string]string {
	c := fixed(0).String()
	with := func(member string) string { return `{"cid":"` + c + `",` + member + `}` }
	origins := func(n int, text string) string {
		return with(`"origins":[` + strings.TrimSuffix(strings.Repeat(`"`+text+`",`, n), ",") + `]`)
	}
	pairs := make([]string, 1001)
	for i := range pairs {
		pairs[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	return map[string]string{
		"24 nothing":                   "",
		"24 not JSON":                  "cid=" + c,
		"24 half an object":            `{"cid":"` + c,
		"24 two values":                `{"cid":"` + c + `"} {}`,
		"24 a trailing byte":           `{"cid":"` + c + `"}x`,
		"24 a comma too many":          `{"cid":"` + c + `",}`,
		"24 single quotes":             `{'cid':'` + c + `'}`,
		"8 an array":                   `["` + c + `"]`,
		"8 a string":                   `"` + c + `"`,
		"8 null":                       "null",
		"8 a number":                   "1",
		"25 no cid":                    `{"name":"x"}`,
		"25 an empty cid":              `{"cid":""}`,
		"25 a null cid":                `{"cid":null}`,
		"8 a cid that is a number":     `{"cid":1}`,
		"8 a cid that is a list":       `{"cid":["` + c + `"]}`,
		"8 a cid of dag-json":          `{"cid":{"/":"` + c + `"}}`,
		"26 a cid of letters":          `{"cid":"hello"}`,
		"26 a cid cut short":           `{"cid":"` + c[:len(c)-3] + `"}`,
		"26 a cid with a letter more":  `{"cid":"` + c + `a"}`,
		"26 a cid with a blank":        `{"cid":" ` + c + `"}`,
		"26 a path":                    `{"cid":"/ipfs/` + c + `"}`,
		"26 a cid with a path":         `{"cid":"` + c + `/a"}`,
		"26 a v0 CID cut short":        `{"cid":"QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbd"}`,
		"26 a peer id":                 `{"cid":"12D3KooWNrbHpKYDmTUXFRQBnnvJ7aMLUCGNCAio2P3AW2N3LNB9"}`,
		"27 a name of 256 characters":  with(`"name":"` + strings.Repeat("a", 256) + `"`),
		"27 a name of 256 wide ones":   with(`"name":"` + strings.Repeat("🏔", 256) + `"`),
		"8 a name that is a number":    with(`"name":5`),
		"8 a name that is a list":      with(`"name":["a"]`),
		"5 21 origins":                 origins(21, "/ip4/192.0.2.1/tcp/4001"),
		"5 an origin that is a URL":    origins(1, "https://example.org/x"),
		"5 an empty origin":            origins(1, ""),
		"5 an origin with a bad port":  origins(1, "/ip4/192.0.2.1/tcp/99999"),
		"8 origins that are text":      with(`"origins":"/ip4/192.0.2.1/tcp/4001"`),
		"8 origins of numbers":         with(`"origins":[1]`),
		"6 meta with a number":         with(`"meta":{"a":1}`),
		"6 meta with a null":           with(`"meta":{"a":null}`),
		"6 meta with an object":        with(`"meta":{"a":{"b":"c"}}`),
		"6 meta that is a list":        with(`"meta":["a"]`),
		"6 meta that is text":          with(`"meta":"a"`),
		"6 meta with 1,001 pairs":      with(`"meta":{` + strings.Join(pairs, ",") + `}`),
		"6 meta beyond its size":       with(`"meta":{"a":"` + strings.Repeat("x", 500_000) + `"}`),
		"24 nesting without end":       strings.Repeat("[", 10_000),
		"A38 arrays 10,000 deep":       with(`"x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)),
		"A38 objects 10,000 deep":      with(`"x":` + strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)),
		"A38 deeper than 64":           with(`"x":` + strings.Repeat("[", 64) + strings.Repeat("]", 64)),
		"A38 the cid twice":            with(`"cid":"` + c + `"`),
		"A38 the name twice":           with(`"name":"a","name":"b"`),
		"A38 meta with a key twice":    with(`"meta":{"a":"1","a":"2"}`),
		"A38 a byte order mark":        "\ufeff" + `{"cid":"` + c + `"}`,
		"A38 UTF-16":                   string([]byte{0xff, 0xfe, '{', 0, '}', 0}),
		"A38 half a surrogate pair":    with(`"name":"\ud800"`),
		"A38 CID for cid":              `{"CID":"` + c + `"}`,
		"A38 a cid of 5,000 letters":   `{"cid":"` + strings.Repeat("b", 5000) + `"}`,
		"A38 a v0 CID with a base":     `{"cid":"zQmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG"}`,
		"A38 a cid with a NUL":         `{"cid":"` + c + `\u0000"}`,
		"A38 an identity CID too long": `{"cid":"` + cid.NewCidV1(cid.Raw, identityHash(600)).String() + `"}`,
		"A38 a null name":              with(`"name":null`),
		"A38 null origins":             with(`"origins":null`),
		"A38 null meta":                with(`"meta":null`),
		"A38 meta with a list":         with(`"meta":{"a":["b"]}`),
		"A38 meta with a truth":        with(`"meta":{"a":true}`),
		"24 bytes that are not UTF-8":  "{\"cid\":\"\xff\xfe\"}",
		"24 a binary":                  "\x00\x01\x02",
		"24 XML":                       "<pin/>",
	}
}

// badQueries are refused as the query of a list.
func badQueries() map[string]string {
	eleven := make([]string, 11)
	for i := range eleven {
		eleven[i] = fixed(i).String()
	}
	q := func(name, value string) string { return url.Values{name: {value}}.Encode() }
	return map[string]string{
		"32 an unknown status":           q("status", "done"),
		"32 one unknown of two":          q("status", "pinned,done"),
		"32 a status in capitals":        q("status", "Pinned"),
		"33 eleven CIDs":                 q("cid", strings.Join(eleven, ",")),
		"33 an invalid CID":              q("cid", "hello"),
		"33 one invalid of two":          q("cid", eleven[0]+",x"),
		"39 an unknown match":            q("match", "fuzzy") + "&name=x",
		"39 a match in capitals":         q("match", "EXACT") + "&name=x",
		"40 before is text":              q("before", "yesterday"),
		"40 before is a date":            q("before", "2026-01-01"),
		"40 before is a number":          q("before", "1767225600"),
		"40 before is no date":           q("before", "2026-02-30T00:00:00Z"),
		"40 before has no zone":          q("before", "2026-01-01T00:00:00"),
		"41 after is text":               q("after", "x"),
		"43 limit 0":                     q("limit", "0"),
		"43 limit 1001":                  q("limit", "1001"),
		"43 limit below zero":            q("limit", "-5"),
		"43 limit in words":              q("limit", "ten"),
		"43 limit with a point":          q("limit", "1.5"),
		"43 limit in exponents":          q("limit", "1e2"),
		"43 limit beyond any number":     q("limit", "99999999999999999999"),
		"A39 limit 1e9":                  q("limit", "1000000000"),
		"A39 limit empty":                q("limit", ""),
		"A39 limit with a plus":          q("limit", "+5"),
		"A39 limit with a blank":         q("limit", " 5"),
		"A39 limit in hexadecimals":      q("limit", "0x10"),
		"A39 limit with an underscore":   q("limit", "1_0"),
		"A39 limit beyond 16 bits":       q("limit", "65537"),
		"A39 before in year 10000":       q("before", "10000-01-01T00:00:00Z"),
		"A39 before in month 13":         q("before", "2026-13-01T00:00:00Z"),
		"A39 before at 25 o'clock":       q("before", "2026-01-01T25:00:00Z"),
		"A39 before with a comma":        q("before", "2026-01-01T00:00:00,5Z"),
		"A39 before is empty":            q("before", ""),
		"A39 before of 100,000 digits":   q("before", "2026-01-01T00:00:00."+strings.Repeat("9", 10_000)+"Z"),
		"A39 after before the years":     q("after", "-0001-01-01T00:00:00Z"),
		"A39 status empty":               q("status", ""),
		"A39 status with a blank":        q("status", "pinned, failed"),
		"A39 match empty":                q("match", "") + "&name=x",
		"A39 meta deep":                  q("meta", strings.Repeat("[", 10_000)),
		"A39 meta with a key twice":      q("meta", `{"a":"b","a":"c"}`),
		"A39 meta is empty":              q("meta", ""),
		"A39 name of 256 characters":     q("name", strings.Repeat("a", 256)),
		"A39 a broken escape":            "name=%zz",
		"44 meta is not JSON":            q("meta", "a=b"),
		"44 meta is a list":              q("meta", `["a"]`),
		"44 meta is text":                q("meta", `"a"`),
		"44 meta is null":                q("meta", "null"),
		"44 meta has a number":           q("meta", `{"a":1}`),
		"44 meta has more after the end": q("meta", `{"a":"b"}x`),
	}
}

// generatedBodies are as bad as badBodies, made by rule: every JSON value of a
// wrong type for every field, and every proper beginning of a good body.
func generatedBodies() map[string]string {
	c := fixed(0).String()
	all := map[string]string{}
	values := map[string][]string{
		"number": {"0", "-1", "1e400", "1.5"}, "truth": {"true", "false"}, "null": {"null"},
		"list": {"[]", `["a"]`, "[1]", "[null]", "[[]]", `[{"a":"b"}]`}, "object": {"{}", `{"a":"b"}`, `{"a":1}`, `{"a":[]}`, `{"a":null}`},
		"text": {`""`, `"x"`},
	}
	good := map[string][]string{"name": {`""`, `"x"`}, "origins": {"[]"}, "meta": {"{}", `{"a":"b"}`}}
	for field, fits := range map[string][]string{"cid": nil, "name": good["name"], "origins": good["origins"], "meta": good["meta"]} {
		for kind, texts := range values {
			for _, text := range texts {
				if slices.Contains(fits, text) {
					continue
				}
				body := `{"cid":"` + c + `","` + field + `":` + text + `}`
				if field == "cid" {
					body = `{"cid":` + text + `}`
				}
				all["8 "+field+" is the "+kind+" "+text] = body
			}
		}
	}
	whole := `{"cid":"` + c + `","name":"n","origins":["/ip4/192.0.2.1/tcp/4001"],"meta":{"a":"b"}}`
	for n := 1; n < len(whole); n += 4 {
		all[fmt.Sprintf("24 the first %d bytes", n)] = whole[:n]
	}
	for i := range len(c) { // one letter of the CID is another
		if i == 0 || c[i] == '0' {
			continue
		}
		all[fmt.Sprintf("26 letter %d of the CID is a 0", i)] = `{"cid":"` + c[:i] + "0" + c[i+1:] + `"}`
	}
	return all
}

func corpus(id string) []badRequest {
	var all []badRequest
	add := func(want int, name, method, path, body string) {
		all = append(all, badRequest{name: name, method: method, path: path, body: body, want: want})
	}
	for _, bodies := range []map[string]string{badBodies(), generatedBodies()} {
		for name, body := range bodies {
			add(http.StatusBadRequest, "new: "+name, http.MethodPost, "/pins", body)
			add(http.StatusBadRequest, "replace: "+name, http.MethodPost, "/pins/"+id, body)
		}
	}
	for _, wait := range []string{"", "30", "x", "0s", "-1s", "61s", "1h", "1m0.001s", "%2030s", "30s%20", "NaNs", "1e1s"} {
		add(http.StatusBadRequest, "wait is "+wait, http.MethodGet, "/pins/"+id+"?wait="+wait, "")
	}
	for _, path := range []string{"/pins", "/pins/" + id, "/auth/token", "/healthz", "/readyz", "/openapi.json"} {
		for _, method := range []string{"PUT", "PATCH", "TRACE", "PROPFIND", "get"} {
			add(http.StatusMethodNotAllowed, "93 "+method+" of "+path, method, path, "")
		}
	}
	for _, path := range []string{"/", "//", "/pins/", "//pins", "/Pins", "/pins/" + id + "/", "/pins//" + id, "/pin", "/pins.json", "/.git/config", "/pins/../pins", "/%70ins", "/auth", "/metrics", "/status", "/v1", "/api/v0/pin/ls"} {
		add(http.StatusNotFound, "93 nothing at "+path, http.MethodGet, path, "")
	}
	for name, q := range badQueries() {
		add(http.StatusBadRequest, name, http.MethodGet, "/pins?"+q, "")
	}
	// Within the JSON bound but for one byte.
	good := `{"cid":"` + fixed(0).String() + `"}`
	big := func(n int) string {
		head := `{"cid":"` + fixed(0).String() + `","x":"`
		return head + strings.Repeat("x", n-len(head)-2) + `"}`
	}
	add(http.StatusRequestEntityTooLarge, "100 108 a body of 1 MiB and a byte", http.MethodPost, "/pins", big(maxBody+1))
	add(http.StatusRequestEntityTooLarge, "100 108 a body of 3 MiB", http.MethodPost, "/pins", big(3*maxBody))
	add(http.StatusRequestEntityTooLarge, "100 108 a replacement of 3 MiB", http.MethodPost, "/pins/"+id, big(3*maxBody))
	add(http.StatusNotFound, "96 an unknown id", http.MethodGet, "/pins/unknown", "")
	add(http.StatusNotFound, "93 an unknown route", http.MethodGet, "/nothing/here", "")
	add(http.StatusNotFound, "93 a route below a pin", http.MethodGet, "/pins/"+id+"/more", "")
	add(http.StatusNotFound, "93 a version segment", http.MethodGet, "/v1/pins", "")
	add(http.StatusMethodNotAllowed, "93 PUT of the list", http.MethodPut, "/pins", "{}")
	add(http.StatusMethodNotAllowed, "93 DELETE of the list", http.MethodDelete, "/pins", "")
	add(http.StatusMethodNotAllowed, "93 PATCH of a pin", http.MethodPatch, "/pins/"+id, "{}")
	for name, body := range map[string]string{
		"nothing": "", "half an object": "{", "an empty object": "{}", "a list": "[]", "no password": `{"username":"a@example.org"}`, "no name": `{"password":"x"}`,
		"a name that is a list": `{"username":[],"password":"x"}`, "a password that is a number": `{"username":"a@example.org","password":1}`,
		"an empty password": `{"username":"a@example.org","password":""}`, "a null name": `{"username":null,"password":"x"}`,
	} {
		add(http.StatusBadRequest, "79 sign-in with "+name, http.MethodPost, "/auth/token", body)
	}
	return append(all, badHeaders(id, good)...)
}

// badHeaders are good requests but for a header.
func badHeaders(id, good string) []badRequest {
	var all []badRequest
	for name, values := range map[string][]string{
		"text": {"text/plain"}, "a form": {"application/x-www-form-urlencoded"}, "almost JSON": {"application/json-seq"}, "garbage": {"/"},
		"two types": {"application/json", "application/json"},
	} {
		for at, path := range map[string]string{"new": "/pins", "replace": "/pins/" + id, "sign-in": "/auth/token"} {
			all = append(all, badRequest{"30 " + at + ": Content-Type is " + name, http.MethodPost, path, good, http.StatusBadRequest, http.Header{"Content-Type": values}})
		}
	}
	for name, values := range map[string][]string{
		"empty": {""}, "256 characters": {strings.Repeat("a", 256)}, "with a blank": {"a b"}, "not ASCII": {"\u00e9"}, "twice": {"a", "a"},
	} {
		all = append(all, badRequest{"110 Idempotency-Key is " + name, http.MethodPost, "/pins", good, http.StatusBadRequest, http.Header{"Idempotency-Key": values}})
	}
	for name, values := range map[string][]string{
		"absent": {}, "empty": {""}, "of another scheme": {"Basic YTpi"}, "garbage": {"Bearer abc.def.ghi"}, "with two spaces": {"Bearer  abc.def.ghi"}, "there twice": {"Bearer a", "Bearer a"},
	} {
		for _, route := range [][2]string{{http.MethodGet, "/pins"}, {http.MethodPost, "/pins"}, {http.MethodDelete, "/pins/" + id}, {http.MethodDelete, "/auth/token"}} {
			all = append(all, badRequest{
				"95 " + route[0] + " " + route[1] + ": Authorization is " + name, route[0], route[1], good, http.StatusUnauthorized, http.Header{"Authorization": values},
			})
		}
	}
	return all
}

// unknownIDs are writes that only the cluster can refuse.
func unknownIDs() []badRequest {
	return []badRequest{
		{"96 an unknown id to replace", http.MethodPost, "/pins/unknown", `{"cid":"` + fixed(0).String() + `"}`, http.StatusNotFound, nil},
		{"96 an unknown id to delete", http.MethodDelete, "/pins/unknown", "", http.StatusNotFound, nil},
	}
}

// reasons are the reasons that belong to a status.
var reasons = map[int]string{
	http.StatusBadRequest: "BAD_REQUEST", http.StatusUnauthorized: "UNAUTHORIZED", http.StatusNotFound: "NOT_FOUND",
	http.StatusMethodNotAllowed: "METHOD_NOT_ALLOWED",
}

// answers are what bad requests were and should be answered, lines of badAnswers
// by name.
type answers struct {
	id        string // of the pin in paths, another one in every run
	got, want map[string]string
}

func newAnswers(t *testing.T, id string) *answers {
	t.Helper()
	a := &answers{id: id, got: map[string]string{}, want: map[string]string{}}
	data, err := os.ReadFile(badAnswers)
	if err != nil && !goldentest.Updating() {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		name, _, _ := strings.Cut(line, "\t")
		a.want[name] = strings.TrimSuffix(line, "\n")
	}
	return a
}

// check sends a bad request and holds the whole answer against the one that is
// written down.
func (a *answers) check(s *service, tc badRequest) {
	s.t.Helper()
	r, err := s.next().Do(s.t.Context(), tc.method, tc.path, tc.header, []byte(tc.body))
	if err != nil {
		s.t.Fatal(err)
	}
	if r.Status != tc.want {
		s.t.Fatalf("%d %.300s, want %d", r.Status, r.Body, tc.want)
	}
	if r.Status == http.StatusRequestEntityTooLarge {
		var flat struct{ Error, Message string }
		if err := harness.DecodeStrict(r.Body, &flat); err != nil || flat.Error != "PAYLOAD_TOO_LARGE" {
			s.t.Errorf("100: %s: %v", r.Body, err)
		}
	} else {
		errorBody(s.t, r, reasons[r.Status])
	}
	line := fmt.Sprintf("%s\t%d\t%s\t%s", tc.name, r.Status, r.Header.Get("Content-Type"), r.Body)
	line = strings.ReplaceAll(line, a.id, "{requestid}")
	name, _, _ := strings.Cut(line, "\t")
	if a.got[name] != "" {
		s.t.Errorf("two requests are called %q", name)
	}
	a.got[name] = line
	if want := a.want[name]; line != want && !goldentest.Updating() {
		s.t.Errorf("the answer is\n%s\nand should be\n%s", line, want)
	}
}

// finish writes the answers down when that is asked for. all is how many there
// are when no part of the test was left out.
func (a *answers) finish(t *testing.T, all int) {
	t.Helper()
	if len(a.got) < all || t.Failed() {
		return // only a part of the test runs, or it has said what is wrong
	}
	if goldentest.Updating() {
		lines := slices.Sorted(maps.Values(a.got))
		if err := os.WriteFile(badAnswers, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for name := range a.want {
		if a.got[name] == "" {
			t.Errorf("%s has an answer to %q, which is not sent", badAnswers, name)
		}
	}
}

// TestBadInputChangesNothing promises that every bad request gets the answer that is written down for it and changes
// neither the pins nor the state.
func TestBadInputChangesNothing(t *testing.T) {
	t.Parallel() // a cluster of its own
	c := harness.Start(t, harness.Options{Env: shortFetch})
	s := newService(t, c, "bad@example.org")
	t.Run("A38 A39 what is accepted", func(t *testing.T) { testOddInput(s.as(t)) })
	stays := s.post(harness.Pin{CID: nowhere().String(), Name: "stays"})
	if _, err := harness.WaitStatus(t.Context(), s.next(), stays.RequestID, "failed", pinnedWithin); err != nil {
		t.Fatal(err)
	}
	before := s.all()
	hash := stateHash(t, c)
	all, written := corpus(stays.RequestID), newAnswers(t, stays.RequestID)
	if len(all) < 500 {
		t.Errorf("the corpus has %d requests", len(all))
	}
	for _, tc := range all {
		t.Run(tc.name, func(t *testing.T) { written.check(s.as(t), tc) })
	}
	if after := s.all(); len(after) != 1 || after[0].RequestID != before[0].RequestID || after[0].Pin.Name != "stays" || after[0].Created != before[0].Created {
		t.Errorf("bad requests changed the state: %+v", after)
	}
	// Only what names a pin that is not there has to be put to the cluster. Once in a
	// minute a node notes which keys were used, which has nothing to do with it.
	// On a busy machine all requests together take longer than that, so they are sent again in groups.
	if stateHash(t, c) != hash {
		for group := range slices.Chunk(all, 50) {
			leaveNothing(t, c, s, group)
		}
	}
	unknown := unknownIDs()
	for _, tc := range unknown {
		t.Run(tc.name, func(t *testing.T) { written.check(s.as(t), tc) })
	}
	written.finish(t, len(all)+len(unknown))
	if after := s.all(); !slices.EqualFunc(after, before, samePin) {
		t.Errorf("bad requests changed the list: %+v", after)
	}
	// A body of exactly the bound is not too large, only bad or good.
	body := `{"cid":"` + nowhere().String() + `"}` + strings.Repeat(" ", maxBody)
	if r := s.raw(http.MethodPost, "/pins", body[:maxBody]); r.Status != http.StatusAccepted {
		t.Errorf("108: a body of 1 MiB: %d %s", r.Status, r.Body)
	}
}

// stateHash returns the hash of the state on all nodes, which stand still.
func stateHash(t *testing.T, c *harness.Cluster) client.StateHash {
	t.Helper()
	if err := c.SameState(t.Context()); err != nil {
		t.Fatal(err)
	}
	h, err := c.Nodes[0].StateHash(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// identityHash holds n bytes instead of a hash of them.
func identityHash(n int) multihash.Multihash {
	h, err := multihash.Sum(make([]byte, n), multihash.IDENTITY, -1)
	if err != nil {
		panic(fmt.Sprintf("identity: %v", err)) // cannot happen
	}
	return h
}

// testOddInput sends what is unusual and allowed: the answers echo it.
func testOddInput(s *service) {
	c := nowhere()
	v0 := cid.NewCidV0(nowhere().Hash())
	with := func(member string) string { return `{"cid":"` + c.String() + `",` + member + `}` }
	origins := `"origins":[` + strings.TrimSuffix(strings.Repeat(`"/ip4/192.0.2.1/tcp/4001",`, 20), ",") + `]`
	for _, tc := range []struct{ name, body, cid string }{
		{"a v1 CID", `{"cid":"` + c.String() + `"}`, c.String()},
		{"a v0 CID", `{"cid":"` + v0.String() + `"}`, v0.String()},
		{"base32 in upper case", `{"cid":"` + base(s.t, c, multibase.Base32Upper) + `"}`, base(s.t, c, multibase.Base32Upper)},
		{"base58", `{"cid":"` + base(s.t, c, multibase.Base58BTC) + `"}`, base(s.t, c, multibase.Base58BTC)},
		{"an identity CID", `{"cid":"` + cid.NewCidV1(cid.Raw, identityHash(8)).String() + `"}`, cid.NewCidV1(cid.Raw, identityHash(8)).String()},
		{"an unknown codec", `{"cid":"` + cid.NewCidV1(0x300001, c.Hash()).String() + `"}`, cid.NewCidV1(0x300001, c.Hash()).String()},
		{"a name of 255 wide characters", with(`"name":"` + strings.Repeat("🏔", 255) + `"`), c.String()},
		{"20 origins", with(origins), c.String()},
		{"nothing in everything", with(`"name":"","origins":[],"meta":{}`), c.String()},
		{"63 deep", with(`"x":` + strings.Repeat("[", 63) + strings.Repeat("]", 63)), c.String()},
		{"white space around", " \n\t" + `{"cid":"` + c.String() + `"}` + "\r\n ", c.String()},
		{"escapes", `{"\u0063id":"` + c.String() + `"}`, c.String()},
	} {
		r := s.raw(http.MethodPost, "/pins", tc.body)
		var st harness.PinStatus
		if r.Status != http.StatusAccepted || harness.DecodeStrict(r.Body, &st) != nil || st.Pin.CID != tc.cid || st.Status != "queued" {
			s.t.Errorf("A38: %s: %d %.300s", tc.name, r.Status, r.Body)
			continue
		}
		if got := s.get(st.RequestID); got.Pin.CID != tc.cid || got.Pin.Name != st.Pin.Name || len(got.Pin.Origins) != len(st.Pin.Origins) {
			s.t.Errorf("A38: %s: %+v, accepted as %+v", tc.name, got, st)
		}
		s.delete(st.RequestID)
	}
	for _, kind := range []string{"text/json", "application/ld+json", "Application/JSON; charset=utf-8"} {
		r, err := s.next().Do(s.t.Context(), http.MethodPost, "/pins", http.Header{"Content-Type": {kind}}, []byte(`{"cid":"`+c.String()+`"}`))
		var st harness.PinStatus
		if err != nil || r.Status != http.StatusAccepted || harness.DecodeStrict(r.Body, &st) != nil {
			s.t.Errorf("30: Content-Type is %s: %v, %d %.300s", kind, err, r.Status, r.Body)
			continue
		}
		s.delete(st.RequestID)
	}
	pin := s.post(harness.Pin{CID: c.String()})
	for _, tc := range []struct {
		name    string
		query   []string
		results int
	}{
		{"limit 1", []string{"limit", "1"}, 1},
		{"limit 1000", []string{"limit", "1000"}, 1},
		{"before year 9999", []string{"before", "9999-12-31T23:59:59.999Z"}, 1},
		{"after year 9999", []string{"after", "9999-12-31T23:59:59.999Z"}, 0},
		{"before year 0", []string{"before", "0000-01-01T00:00:00Z"}, 0},
		{"after year 0", []string{"after", "0000-01-01T00:00:00Z"}, 1},
		{"a name that is empty", []string{"name", ""}, 1},
		{"meta without a pair", []string{"meta", "{}"}, 1},
	} {
		if got := s.list(append(tc.query, "status", harness.AllStatuses)...); len(got.Results) != tc.results || got.Count != tc.results {
			s.t.Errorf("A39: %s: %d of %d, want %d", tc.name, len(got.Results), got.Count, tc.results)
		}
	}
	s.delete(pin.RequestID)
}

// leaveNothing sends requests until the state did not change meanwhile.
func leaveNothing(t *testing.T, c *harness.Cluster, s *service, group []badRequest) {
	t.Helper()
	var before, now client.StateHash
	for range 5 {
		before = stateHash(t, c)
		for _, tc := range group {
			if _, err := s.next().Do(t.Context(), tc.method, tc.path, tc.header, []byte(tc.body)); err != nil {
				t.Fatal(err)
			}
		}
		if now = stateHash(t, c); now == before {
			return
		}
	}
	t.Errorf("P8, from %s on: the state has the hash %s at %d, and had %s at %d", group[0].name, now.Hash, now.Index, before.Hash, before.Index)
}
