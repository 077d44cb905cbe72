package pinning

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/pinbody"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

func decode[T any](t *testing.T, data []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return v
}

// A query of the list becomes the PinQuery that it means, with the default limit; unknown parameters are
// ignored.
func TestQueriesAreRead(t *testing.T) {
	at := func(text string) state.Millis {
		when, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return state.MillisOf(when)
	}
	for _, tc := range []struct {
		query string
		want  state.PinQuery
	}{
		{"", state.PinQuery{}},
		{"&&", state.PinQuery{}},
		{"color=red&limit=1000", state.PinQuery{Limit: 1000}},
		{"limit=1&limit=2", state.PinQuery{Limit: 1}},
		{"limit=010", state.PinQuery{Limit: 10}},
		{"name=", state.PinQuery{}},
		{"name=a+b%2Bc&match=exact", state.PinQuery{Name: "a b+c"}},
		{"name=%00&match=iexact", state.PinQuery{Name: "\x00", Match: state.IExact}},
		{"match=partial", state.PinQuery{Match: state.Partial}},
		{"match=ipartial&name=" + strings.Repeat("%F0%9F%8F%94", 255), state.PinQuery{Name: strings.Repeat("🏔", 255), Match: state.IPartial}},
		{"status=queued", state.PinQuery{Statuses: []state.Status{state.Queued}}},
		{"status=failed,pinned&status=pinning,pinned", state.PinQuery{Statuses: []state.Status{state.Failed, state.Pinned, state.Pinning}}},
		{"status=failed%2Cqueued", state.PinQuery{Statuses: []state.Status{state.Failed, state.Queued}}},
		{"before=2026-01-02T03:04:05Z", state.PinQuery{Before: at("2026-01-02T03:04:05Z")}},
		{"before=2026-01-02t03:04:05.678z", state.PinQuery{Before: at("2026-01-02T03:04:05.678Z")}},
		{"before=2026-01-02T03:04:05.6780001Z", state.PinQuery{Before: at("2026-01-02T03:04:05.679Z")}},
		{"before=2026-01-02T03:04:05%2B05:30", state.PinQuery{Before: at("2026-01-01T21:34:05Z")}},
		{"before=2026-01-02T03:04:05-00:00", state.PinQuery{Before: at("2026-01-02T03:04:05Z")}},
		{"before=1960-01-01T00:00:00Z", state.PinQuery{Before: 1}}, // before everything, not without bound
		{"before=9999-12-31T23:59:59.999999999Z", state.PinQuery{Before: at("9999-12-31T23:59:59.999Z") + 1}},
		{"after=2026-01-02T03:04:05.6789Z", state.PinQuery{After: at("2026-01-02T03:04:05.678Z")}},
		{"after=0000-01-01T00:00:00Z", state.PinQuery{}},
		{"meta=%7B%7D", state.PinQuery{Meta: map[string]string{}}},
		{"meta=%7B%22a%22%3A%22b%22%2C%22c%22%3A%22%22%7D", state.PinQuery{Meta: map[string]string{"a": "b", "c": ""}}},
		{"meta%5Ba%5D=b&meta[c[d]]=&meta[a]=e", state.PinQuery{Meta: map[string]string{"a": "b", "c[d]": ""}}},
		{"meta=%7B%22a%22%3A%22b%22%7D&meta%5Ba%5D=b&meta%5Bc%5D=%C3%A4", state.PinQuery{Meta: map[string]string{"a": "b", "c": "ä"}}},
		{"meta%5B%5D=x&meta[a=b&metal]=c", state.PinQuery{Meta: map[string]string{"": "x"}}},
	} {
		if tc.want.Limit == 0 {
			tc.want.Limit = DefaultLimit
		}
		got, err := parseQuery(tc.query)
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, %v, want %+v", tc.query, got, err, tc.want)
		}
	}
	q, err := parseQuery("cid=" + cidOne + "," + cidV0 + "&cid=" + strings.ToUpper(cidOne) + strings.Repeat("&cid="+cidTwo, 7))
	if err != nil || len(q.CIDs) != 10 || q.CIDs[0] != q.CIDs[2] || q.CIDs[1].Version() != 0 {
		t.Errorf("%v %v", q.CIDs, err)
	}
}

// A body becomes the request that it means, which keeps apart what is empty and what is absent.
func TestBodiesAreRead(t *testing.T) {
	all := state.GivenName | state.GivenOrigins | state.GivenMeta
	for _, tc := range []struct {
		body string
		want pins.Request
	}{
		{`{"cid":"x"}`, pins.Request{CID: "x"}},
		{`{"cid":"x","name":"","origins":[],"meta":{}}`, pins.Request{CID: "x", Given: all, Origins: []string{}, Meta: map[string]string{}}},
		{`{"cid":"x","name":"n","origins":["o","o"],"meta":{"k":"v"}}`, pins.Request{CID: "x", Given: all, Name: "n", Origins: []string{"o", "o"}, Meta: map[string]string{"k": "v"}}},
		{` {"x":null,"Cid":1,"cid":"\u0078","meta":{"a":"\ud83d\ude00\u0000"}} `, pins.Request{CID: "x", Given: state.GivenMeta, Meta: map[string]string{"a": "😀\x00"}}},
	} {
		got, err := pinbody.Parse([]byte(tc.body))
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, %v, want %+v", tc.body, got, err, tc.want)
		}
	}
}

// clientError fails unless err is the client's mistake.
func clientError(t *testing.T, err error) {
	t.Helper()
	if a := answer(err); a.Status != 400 || a.Detail == "" {
		t.Fatalf("%v is answered %+v", err, a)
	}
}

func FuzzQuery(f *testing.F) {
	for _, seed := range append(badQueries(), "status=pinned,failed&limit=10&name=a&match=ipartial&before=2026-01-02T03:04:05.678Z&cid="+cidOne+"&meta=%7B%22a%22%3A%22b%22%7D") {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseQuery(raw)
		if err != nil {
			clientError(t, err)
			return
		}
		if q.Limit < 1 || q.Limit > MaxLimit || len(q.CIDs) > MaxCIDs || len(q.Statuses) > 4 || q.Before < 0 || q.After < 0 || len(q.Meta) > state.MaxMetaPairs {
			t.Fatalf("out of bounds: %+v", q)
		}
	})
}

func FuzzPin(f *testing.F) {
	for _, body := range badBodies() {
		if len(body) < 2000 {
			f.Add([]byte(body))
		}
	}
	f.Add([]byte(`{"cid":"` + cidOne + `","name":"a","origins":["/ip4/1.2.3.4/tcp/1"],"meta":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := pinbody.Parse(body)
		if err == nil {
			_, err = request.Validate()
		}
		if err != nil {
			clientError(t, err)
			return
		}
		// What was taken is echoed so that it reads as the same again.
		record := pins.Record{Pin: state.Pin{CID: request.CID, Given: request.Given, Name: request.Name, Origins: request.Origins, Meta: request.Meta}}
		echo, err := json.Marshal(pinbody.Of(&record).Pin)
		if err != nil {
			t.Fatal(err)
		}
		again, err := pinbody.Parse(echo)
		if err != nil || !reflect.DeepEqual(again, request) {
			t.Fatalf("%+v is echoed as %s: %v", request, echo, err)
		}
	})
}

// Each mistake is told in words that a user understands who reads no Go, alike in a body and in a query.
func TestWhatIsWrongIsSaidForUsers(t *testing.T) {
	long, pairs := strings.Repeat("é", 256), make([]string, 1001)
	for i := range pairs {
		pairs[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	meta := "{" + strings.Join(pairs, ",") + "}"
	body := func(text string) error {
		request, err := pinbody.Parse([]byte(text))
		if err == nil {
			_, err = request.Validate()
		}
		return err
	}
	query := func(pair ...string) error {
		_, err := parseQuery(url.Values{pair[0]: {pair[1]}}.Encode())
		return err
	}
	raw := func(text string) error { _, err := parseQuery(text); return err }
	wait := func(text string) error { _, err := parseWait("wait=" + text); return err }
	const escape = "the query is not valid: a % must stand before two hexadecimal digits, and a ; is written %3B"
	for _, tc := range []struct {
		err  error
		want string
	}{
		{body(`{"cid":"` + cidOne + `","name":"` + long + `"}`), "name has 256 characters, at most 255 are allowed"},
		{query("name", long), "name has 256 characters, at most 255 are allowed"},
		{body(`{"cid":"` + cidOne + `","meta":` + meta + `}`), "meta has 1001 pairs, at most 1000 are allowed"},
		{query("meta", meta), "meta has 1001 pairs, at most 1000 are allowed"},
		{query("cid", strings.Repeat(cidOne+",", 11)), "cid has too many entries, at most 10 are allowed"},
		{query("status", "done"), "status must be one or more of queued, pinning, pinned, failed, with commas between them"},
		{query("limit", "1.5"), "limit must be a whole number from 1 to 1000"},
		{raw("a=%zz"), escape},
		{raw("a=1;b=2"), escape},
		{wait("%"), escape},
		{wait("2h"), "wait must be a time such as 30s, above 0s and at most 60s"},
		{body(""), "the body is empty, it must be a JSON object"},
		{query("meta", ""), "meta is empty, it must be a JSON object"},
		{query("meta[a]", "\xff"), "meta is not UTF-8"},
		{raw("meta[a]=b&meta=%7B%22a%22%3A%22c%22%7D"), "meta has a member twice, with different values"},
		{raw("meta[" + strings.Join(pairs, "]=&meta[") + "]="), "meta has more than 1000 pairs"},
		{body("\ufeff{}"), "the body begins with a byte order mark, which is not JSON"},
		{body("{} {}"), "the body has more after the end of its JSON object"},
		{body(`{"name":"\ud800"}`), `the body has a \u escape that is half a surrogate pair`},
		{body(strings.Repeat("[", 100)), "the body is nested deeper than 64 levels"},
		{body(`{"cid":"z` + cidV0 + `"}`), `cid "z` + cidV0 + `" is not a valid CID: one of version 0 has no multibase prefix`},
	} {
		if tc.err == nil || answer(tc.err).Detail != tc.want {
			t.Errorf("%v, want %s", tc.err, tc.want)
		}
	}
}

// An error of package web keeps its own status in the answer of this API.
func TestErrorsOfTheWebAreTheirOwn(t *testing.T) {
	err := fmt.Errorf("more: %w", web.MethodNotAllowed("GET"))
	if a := answer(err); a.Status != 405 || !errors.As(err, new(*web.Error)) {
		t.Errorf("%+v", a)
	}
}
