package s3

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A CORS rule matches an origin, a method and headers as on Amazon S3, wildcards and case included, and the
// first match counts.
func TestARuleMatchesAsAmazonHasIt(t *testing.T) {
	rules := []state.CorsRule{
		{Origins: []string{"http://www.example1.com"}, Methods: []string{"PUT", "POST", "DELETE"}, Headers: []string{"*"}},
		{Origins: []string{"http://*.example2.com", "https://two.example"}, Methods: []string{"GET", "PUT"}, Headers: []string{"X-Amz-*", "content-type"}},
		{Origins: []string{"*"}, Methods: []string{"GET"}},
		{Origins: []string{"*"}, Methods: []string{"HEAD"}, Headers: []string{"x-*-z"}},
	}
	for _, tc := range []struct {
		origin, method, headers string
		want                    int
		from                    string
	}{
		{"http://www.example1.com", "PUT", "", 0, "http://www.example1.com"},
		{"http://www.example1.com", "DELETE", "authorization,x-anything", 0, "http://www.example1.com"},
		{"http://www.example1.com", "GET", "", 2, "*"},
		{"http://www.example1.com", "GET", "x-amz-date", -1, ""},
		{"http://WWW.example1.com", "PUT", "", -1, ""},
		{"https://www.example1.com", "PUT", "", -1, ""},
		{"http://www.example1.com:80", "PUT", "", -1, ""},
		{"http://a.example2.com", "PUT", "content-type,x-amz-meta-a", 1, "http://*.example2.com"},
		{"http://a.b.example2.com", "PUT", "", 1, "http://*.example2.com"},
		{"http://example2.com", "PUT", "", -1, ""},
		{"http://.example2.com", "PUT", "", 1, "http://*.example2.com"},
		{"https://two.example", "GET", "x-amz-", 1, "https://two.example"},
		{"http://a.example2.com", "PUT", "content-type2", -1, ""},
		{"http://a.example2.com", "PUT", "x-amz-date,if-match", -1, ""},
		{"null", "GET", "", 2, "*"},
		{"null", "HEAD", "x-y-z", 3, "*"},
		{"null", "HEAD", "x-z", -1, ""},
		{"null", "HEAD", "x--z", 3, "*"},
		{"null", "get", "", -1, ""},
		{"null", "PATCH", "", -1, ""},
	} {
		var names []string
		if tc.headers != "" {
			names = strings.Split(tc.headers, ",")
		}
		rule, from := ruleFor(rules, tc.origin, tc.method, names)
		if (tc.want < 0) != (rule == nil) || rule != nil && rule != &rules[tc.want] || from != tc.from {
			t.Errorf("%+v: %+v by %q", tc, rule, from)
		}
	}
}

// shared are rules for the tests: scripts of one origin may put, of all get.
const shared = `<CORSConfiguration><CORSRule><ID>one</ID><AllowedOrigin>https://*.example</AllowedOrigin><AllowedMethod>PUT</AllowedMethod><AllowedMethod>GET</AllowedMethod><AllowedHeader>x-amz-*</AllowedHeader><AllowedHeader>Content-Type</AllowedHeader><ExposeHeader>ETag</ExposeHeader><ExposeHeader>x-amz-meta-a</ExposeHeader><MaxAgeSeconds>3000</MaxAgeSeconds></CORSRule>` +
	`<CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>HEAD</AllowedMethod></CORSRule></CORSConfiguration>`

func cors(h http.Header) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if short, ok := strings.CutPrefix(name, "Access-Control-"); ok {
			fmt.Fprintf(&b, "%s=%s;", short, strings.Join(h[name], "|"))
		}
	}
	return b.String()
}

// An answer has the CORS headers of the rule of the caller's bucket that matches, also an error, and none for
// other callers, origins and buckets.
func TestTheRulesOfTheCallersBucketSayWhoMayReadAnswers(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/k", "x")
	w.must(t, 200, call{method: "PUT", path: "/photos?cors", body: shared})
	if err := w.fake.CreateBucket(t.Context(), "another", "photos", false); err != nil {
		t.Fatal(err)
	}
	const one = "Allow-Methods=PUT, GET;Allow-Origin=https://a.example;Expose-Headers=ETag, x-amz-meta-a;Max-Age=3000;"
	for _, tc := range []struct {
		name string
		call
		status int
		want   string
	}{
		{"an object", call{method: "GET", path: "/photos/k"}, 200, one},
		{"no key", call{method: "GET", path: "/photos/absent"}, 404, one},
		{"nothing allowed", call{method: "GET", path: "/photos/k", token: w.writer.Token}, 403, one},
		{"a mistake", call{method: "PUT", path: "/photos/k?acl"}, 501, one},
		{"a list", call{method: "GET", path: "/photos?list-type=2"}, 200, one},
		{"HEAD by the second", call{method: "HEAD", path: "/photos/k"}, 200, "Allow-Methods=HEAD;Allow-Origin=*;"},
		{"a method of no rule", call{method: "DELETE", path: "/photos/absent"}, 204, ""},
		{"another origin", call{method: "GET", path: "/photos/k", header: []string{"Origin: https://a.test"}}, 200, ""},
		{"another account", call{method: "GET", path: "/photos/k", token: w.bob.Token}, 404, ""},
		{"nobody", call{method: "GET", path: "/photos/k", token: "-"}, 403, ""},
		{"a key that was revoked", call{method: "GET", path: "/photos/k", token: w.revoked.Token}, 403, ""},
		{"no bucket", call{method: "GET", path: "/absent/k"}, 404, ""},
		{"all buckets", call{method: "GET", path: "/"}, 200, ""},
	} {
		if !slices.ContainsFunc(tc.header, func(h string) bool { return strings.HasPrefix(h, "Origin") }) {
			tc.header = append(tc.header, "Origin: https://a.example")
		}
		rec := w.must(t, tc.status, tc.call)
		if got := cors(rec.Header()); got != tc.want || rec.Header().Get("Vary") != corsVary {
			t.Errorf("%s: %s, Vary %s", tc.name, got, rec.Header().Get("Vary"))
		}
	}
	named := []string{"Origin: https://a.example", "x-amz-meta-b: 1"}
	w.must(t, 200, call{method: "PUT", path: "/photos/named", body: "x", header: named})
	if got := w.must(t, 200, call{method: "GET", path: "/photos/named", header: named[:1]}).Header().Get(exposeHeaders); got != "ETag, x-amz-meta-a" {
		t.Errorf("of an object's metadata a rule lets scripts read what it does not name: %s", got)
	}
	w.must(t, 204, call{method: "DELETE", path: "/photos/named"})
	asked := w.fake.asked
	for _, c := range []call{{method: "GET", path: "/photos/k"}, {method: "PUT", path: "/photos/k", body: "y"}, {method: "DELETE", path: "/photos/k"}} {
		if rec := w.do(t, c); cors(rec.Header()) != "" || rec.Code >= 300 {
			t.Errorf("without an origin: %d %v", rec.Code, rec.Header())
		}
	}
	if w.fake.asked != asked {
		t.Error("without an origin rules were looked for")
	}
	w.options.Origins = []string{"https://a.example"}
	w.rebuild(t)
	both := w.must(t, 404, call{method: "GET", path: "/photos/k", header: []string{"Origin: https://a.example"}})
	if got := both.Header().Get(exposeHeaders); got != corsExposed+", ETag, x-amz-meta-a" {
		t.Errorf("setting and rule: %s", got)
	}
	w.must(t, 204, call{method: "DELETE", path: "/photos?cors"})
	w.must(t, 204, call{method: "DELETE", path: "/photos?cors"})
	w.must(t, 404, call{method: "GET", path: "/photos?cors"})
}

// link presigns a request for an object at a server.
func (w *world) link(t *testing.T, key *accounts.Key, method, to string, header ...string) *url.URL {
	t.Helper()
	r := newRequest(t, method, to+"?X-Amz-Expires=60", "")
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	credentials := aws.Credentials{AccessKeyID: key.AccessKeyID, SecretAccessKey: key.SecretAccessKey}
	link, _, err := signer.PresignHTTP(t.Context(), credentials, r, "UNSIGNED-PAYLOAD", "s3", "x", w.now())
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (w *world) ask(t *testing.T, path, host, origin, method, headers string) *httptest.ResponseRecorder {
	t.Helper()
	c := call{method: "OPTIONS", path: path, token: "-", header: []string{"Origin: " + origin, "Access-Control-Request-Method: " + method}}
	if host != "" {
		c.header = append(c.header, "Host: "+host)
	}
	if headers != "" {
		c.header = append(c.header, "Access-Control-Request-Headers: "+headers)
	}
	return w.do(t, c)
}

// A preflight without a valid signature has the same answer whether the bucket exists or not and whatever its
// rules are, and reads no rules.
func TestAPreflightTellsNothing(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/k", "x")
	w.must(t, 200, call{method: "PUT", path: "/photos?cors", body: shared})
	asked := w.fake.asked
	const headers = "authorization,x-amz-meta-x"
	const want = "Allow-Headers=" + headers + ";Allow-Methods=" + corsMethods + ";Allow-Origin=*;Max-Age=600;"
	foreign := w.bob
	foreign.AccessKeyID = w.alice.AccessKeyID // with another secret
	for name, path := range map[string]string{
		"a bucket with rules": "/photos/k", "no bucket": "/absent/k", "no bucket at all": "/X", "the bucket": "/photos",
		"a link of nobody's":   "/photos/k?" + strings.ReplaceAll(w.link(t, &w.alice, "DELETE", "http://h/photos/k").RawQuery, w.alice.AccessKeyID, "HFunknown"),
		"another's signature":  w.link(t, &foreign, "DELETE", "http://h/photos/k").RequestURI(),
		"for another key":      "/photos/other?" + w.link(t, &w.alice, "DELETE", "http://h/photos/k").RawQuery,
		"for another method":   w.link(t, &w.alice, "GET", "http://h/photos/k").RequestURI(),
		"with a signed header": w.link(t, &w.alice, "DELETE", "http://h/photos/k", "Content-Type: text/x").RequestURI(),
		"of a revoked key":     w.link(t, &w.revoked, "DELETE", "http://h/photos/k").RequestURI(),
	} {
		for _, origin := range []string{"https://a.example", "https://a.test", "null"} {
			rec := w.ask(t, path, "h", origin, "DELETE", headers)
			if got := cors(rec.Header()); rec.Code != 200 || got != want || rec.Body.Len() > 0 {
				t.Errorf("%s, %s: %d %s %s", name, origin, rec.Code, got, rec.Body)
			}
		}
	}
	if w.fake.asked != asked {
		t.Error("rules were looked for")
	}
	if rec := w.ask(t, "/photos/k", "", "null", "GET", strings.Repeat("x", maxAskedHeaders+1)); rec.Code != 200 || rec.Header().Get(allowHeaders) != "" {
		t.Errorf("too many headers: %d %v", rec.Code, rec.Header())
	}
	if rec := w.ask(t, "/photos/k", "", "null", "GET", ""); rec.Header().Get("Access-Control-Allow-Private-Network") != "" || rec.Header().Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%v", rec.Header())
	}
}

// A preflight of a presigned URL is allowed or refused by the rules of the signer's bucket, until the URL ends.
func TestAPreflightOfALinkIsJudged(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/k", "x")
	w.must(t, 200, call{method: "PUT", path: "/photos?cors", body: shared})
	w.must(t, 200, call{method: "PUT", path: "/photos", token: w.bob.Token})
	for _, tc := range []struct {
		name, origin, method, headers string
		key                           *accounts.Key
		path                          string
		status                        int
		want                          string
	}{
		{"as the rule says", "https://a.example", "PUT", "Content-Type, X-Amz-Meta-A", &w.alice, "/photos/k", 200, "Allow-Headers=content-type, x-amz-meta-a;Allow-Methods=PUT, GET;Allow-Origin=https://a.example;Expose-Headers=ETag, x-amz-meta-a;Max-Age=3000;"},
		{"no headers", "https://a.example", "GET", "", &w.reader, "/photos/k", 200, "Allow-Methods=PUT, GET;Allow-Origin=https://a.example;Expose-Headers=ETag, x-amz-meta-a;Max-Age=3000;"},
		{"by the second", "https://a.test", "HEAD", "", &w.alice, "/photos/absent", 200, "Allow-Methods=HEAD;Allow-Origin=*;"},
		{"another header", "https://a.example", "PUT", "authorization", &w.alice, "/photos/k", 403, ""},
		{"another method", "https://a.example", "DELETE", "", &w.alice, "/photos/k", 403, ""},
		{"another origin", "https://a.test", "PUT", "", &w.alice, "/photos/k", 403, ""},
		{"a bucket without rules", "https://a.example", "PUT", "", &w.bob, "/photos/k", 403, ""},
		{"no bucket", "https://a.example", "PUT", "", &w.alice, "/absent/k", 403, ""},
	} {
		rec := w.ask(t, w.link(t, tc.key, tc.method, "http://h"+tc.path).RequestURI(), "h", tc.origin, tc.method, tc.headers)
		if got := cors(rec.Header()); rec.Code != tc.status || got != tc.want || rec.Code == 403 && rec.Header().Get("X-Amz-Error-Code") != "AccessForbidden" {
			t.Errorf("%s: %d %s %s", tc.name, rec.Code, got, rec.Body)
		}
	}
	to := w.link(t, &w.alice, "PUT", "http://h/photos/k").RequestURI()
	w.state.Fail(state.ErrUnavailable)
	if rec := w.ask(t, to, "h", "https://a.example", "PUT", ""); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("without a majority: %d", rec.Code)
	}
	w.state.Fail(nil)
	w.pass(time.Hour)
	if rec := w.ask(t, to, "h", "https://a.test", "PUT", ""); rec.Code != http.StatusOK {
		t.Errorf("a link that is over: %d", rec.Code)
	}
}

// A preflight with too many headers is refused before they are compared with the rules, and preflights count
// against the rate of the account.
func TestAPreflightComparesLittle(t *testing.T) {
	w := newWorld(t)
	w.put(t, "/photos/k", "x")
	w.options.Limits = web.NewLimits(web.Rate{PerSecond: 1, Burst: 3}, web.Rate{}, nil, w.now)
	w.rebuild(t)
	rules := "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>PUT</AllowedMethod>" +
		strings.Repeat("<AllowedHeader>A</AllowedHeader>", 1900) + "<AllowedHeader>*</AllowedHeader></CORSRule></CORSConfiguration>"
	w.must(t, 200, call{method: "PUT", path: "/photos?cors", body: rules})
	to := w.link(t, &w.alice, "PUT", "http://h/photos/k").RequestURI()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	many, few := strings.Repeat("b,", 10_000), strings.Repeat("b,", maxAskedHeaders/2)
	for _, tc := range []struct {
		asked  string
		status int
	}{{many, 403}, {few, 200}, {few, 503}} {
		if rec := w.ask(t, to, "h", "https://a.example", "PUT", tc.asked); rec.Code != tc.status {
			t.Errorf("%d bytes of headers: %d %s", len(tc.asked), rec.Code, rec.Body)
		}
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 { // as much for each comparison before
		t.Errorf("it took %d bytes of memory", took)
	}
}
