package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Sizes of the measurements of the web console.
const (
	consolePassword = "a password for the bench"
	pageLoads       = 200  // of each page, one after the other
	openStreams     = 1000 // event streams at the same time
	// streamAccounts is the number of accounts among which the streams are divided, because the
	// streams of one account are limited.
	streamAccounts = 20
)

// page is a page of the console that is measured.
type page struct{ name, path string }

// measureConsole measures three things: how long pages of the web console take for an account with
// many pins and a bucket with many objects, how large the first page is, and how much memory open
// event streams take.
func measureConsole(b *bench) {
	if b.million == 0 {
		return
	}
	c := harness.Start(b, harness.Options{Nodes: 1, Replication: 1, Env: append(rates(), "HOLDFAST_ACCOUNTS_ALLOWANCE=1TiB")})
	node := c.Nodes[0]
	u := newUser(b, c, "console")
	u.fill(b.million, []harness.Offered{{CID: unheld}})
	s := &store{b: b, cluster: c, token: u.token, bucket: "/photos"}
	s.one(s.at(node), http.MethodPut, s.bucket, nil)
	_, err := load{clients: fillers, count: b.keys, make: func(n int) request {
		return request{http.MethodPut, fmt.Sprintf("/photos/trip-%d/%07d.jpg", n%1000, n), []byte("1"), http.StatusOK, nil}
	}}.run(b.ctx, s.at(node))
	b.must(err)
	p := consoleSession(b, node, "console@example.org")
	first, assets := p.firstPage()
	note := fmt.Sprintf("%d pins, %d objects", b.million, b.keys)
	row{work: "the console's first page with all it loads", result: fmt.Sprintf("%.1f kB in %d requests", float64(first)/1000, assets), target: "100 kB", note: note}.print()
	for _, page := range []page{
		{"overview", "/"},
		{"pins", "/pins"},
		{"pins with a status", "/pins?status=queued"},
		{"buckets", "/buckets"},
		{"a bucket", "/buckets/photos"},
		{"a folder", "/buckets/photos?prefix=trip-7%2F"},
		{"an object", "/buckets/photos/object?key=trip-7%2F0000007.jpg"},
		{"API keys", "/keys"},
		{"account", "/account"},
	} {
		m := newMeter(c.Nodes, nil)
		var lat latencies
		for range pageLoads {
			began := time.Now()
			p.get(page.path)
			lat = lat.keep(time.Since(began))
		}
		row{work: "page of the console: " + page.name, result: "p50 " + ms(lat.at(0.5)), target: "50 ms, p99 100 ms", note: note, lat: lat, used: m.used()}.print()
	}
	measureStreams(b, node)
}

// unheld is the CID of content that no peer has.
const unheld = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"

// measureStreams measures how much memory of a node open event streams take.
func measureStreams(b *bench, node *harness.Node) {
	var sessions []*consoleClient
	for i := range streamAccounts {
		email := fmt.Sprintf("stream-%d@example.org", i)
		node.UserKey(email)
		sessions = append(sessions, consoleSession(b, node, email))
	}
	before := node.ResidentBytes()
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	began := time.Now()
	for i := range openStreams {
		answer := sessions[i%streamAccounts].open(ctx, "/events")
		defer answer.Body.Close()
	}
	row{
		work: strconv.Itoa(openStreams) + " event streams of the console are open", result: fmt.Sprintf("%.1f MiB more resident", float64(node.ResidentBytes()-before)/(1<<20)),
		target: "64 MiB", note: "opened in " + seconds(time.Since(began)),
	}.print()
	const quiet = 10 * time.Second
	m := newMeter([]*harness.Node{node}, nil)
	harness.Pause(b.ctx, quiet)
	row{work: "the same for " + quiet.String() + " in which nothing changes", result: fmt.Sprintf("%.1f MiB more resident", float64(node.ResidentBytes()-before)/(1<<20)), used: m.used()}.print()
}

// consoleClient is an HTTP client that has signed in to the console, like a browser.
type consoleClient struct {
	b    *bench
	base string
	http *http.Client
}

var (
	formTokenField = regexp.MustCompile(`name="form_token" value="([^"]+)"`)
	assetPath      = regexp.MustCompile(`(?:href|src)="(/static/[^"]+)"`)
)

// consoleSession sets a password for an account and signs in with it.
func consoleSession(b *bench, node *harness.Node, email string) *consoleClient {
	node.CLIWithInput(consolePassword, "user", "passwd", email)
	jar, err := cookiejar.New(nil)
	b.must(err)
	p := &consoleClient{b, node.ConsoleURL(), &http.Client{Jar: jar, Transport: &http.Transport{}}}
	token := formTokenField.FindStringSubmatch(p.get("/sign-in"))
	if token == nil {
		b.Fatalf("the sign-in page has no form token")
	}
	answer, err := p.http.PostForm(p.base+"/sign-in", url.Values{"email": {email}, "password": {consolePassword}, "form_token": {token[1]}})
	b.must(err)
	b.must(answer.Body.Close())
	if answer.StatusCode != http.StatusOK || strings.HasPrefix(answer.Request.URL.Path, "/sign-in") {
		b.Fatalf("sign-in of %s: %s at %s", email, answer.Status, answer.Request.URL)
	}
	return p
}

// open sends a GET and returns the answer without reading its body.
func (p *consoleClient) open(ctx context.Context, path string) *http.Response {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path, nil)
	p.b.must(err)
	answer, err := p.http.Do(r)
	p.b.must(err)
	if answer.StatusCode != http.StatusOK {
		p.b.Fatalf("%s: %s", path, answer.Status)
	}
	return answer
}

// get returns the text of the page at a path.
func (p *consoleClient) get(path string) string {
	answer := p.open(p.b.ctx, path)
	body, err := io.ReadAll(answer.Body)
	p.b.must(err)
	p.b.must(answer.Body.Close())
	return string(body)
}

// firstPage returns the size in bytes of the overview page with its style sheets, scripts and
// pictures, and the number of requests for them.
func (p *consoleClient) firstPage() (bytes, requests int) {
	body := p.get("/")
	bytes, requests = len(body), 1
	for _, m := range assetPath.FindAllStringSubmatch(body, -1) {
		bytes += len(p.get(m[1]))
		requests++
	}
	return bytes, requests
}
