//go:build conformance

package conformance

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

var formToken = regexp.MustCompile(`name="form_token" value="([^"]+)"`)

// visitor is a browser at the console of one node.
type visitor struct {
	t    *testing.T
	base string
	http *http.Client
}

func newVisitor(t *testing.T, n *harness.Node) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &visitor{t, n.ConsoleURL(), &http.Client{
		Jar: jar, Timeout: 90 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// send returns the status and the body of an answer.
func (v *visitor) send(r *http.Request) (status int, body string, err error) {
	answer, err := v.http.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// open loads a page.
func (v *visitor) open(path string) (status int, body string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.base+path, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	if status, body, err = v.send(r); err != nil {
		v.t.Fatal(err)
	}
	return status, body
}

// form returns a request that sends the form of an opened page of a one-time link.
func (v *visitor) form(page string, values url.Values) *http.Request {
	v.t.Helper()
	m := formToken.FindStringSubmatch(page)
	if m == nil {
		v.t.Fatalf("the page has no form: %s", page)
	}
	values.Set("form_token", m[1])
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.base+"/link", strings.NewReader(values.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// TestAOneTimeLinkThatIsUsedOnTwoNodesAtOnceOpensOnce promises that one of two uses of a link at the same moment on
// two nodes signs in, and that the link opens nothing afterwards. Links of the operator, invitations and links for a
// new password are used.
func TestAOneTimeLinkThatIsUsedOnTwoNodesAtOnceOpensOnce(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: []string{"HOLDFAST_CONSOLE_SIGN_UP=invited"}})
	const password = "correct horse battery staple"
	c.Nodes[0].CLIWithInput(password, "user", "add", "known@example.org", "--password-stdin")
	wins := map[string]int{}
	use := func(kind, link string) {
		t.Helper()
		u, err := url.Parse(strings.TrimSpace(link))
		if err != nil || u.Query().Get("t") == "" {
			t.Fatalf("%s is no link, %v", link, err)
		}
		type result struct {
			status int
			body   string
			err    error
		}
		visitors, results, begin := []*visitor{}, []chan result{}, make(chan struct{})
		for _, n := range c.Nodes[:2] {
			v := newVisitor(t, n)
			status, page := v.open(u.RequestURI())
			if status != http.StatusOK {
				t.Fatalf("%s: %s answers an open link with %d: %s", kind, n.Name, status, page)
			}
			r := v.form(page, url.Values{"link": {u.Query().Get("t")}, "password": {password}, "again": {password}})
			done := make(chan result, 1)
			go func() {
				<-begin
				var got result
				got.status, got.body, got.err = v.send(r)
				done <- got
			}()
			visitors, results = append(visitors, v), append(results, done)
		}
		close(begin)
		var won []int
		for i := range results {
			got := <-results[i]
			_, page := visitors[i].open("/account")
			in := strings.Contains(page, "Sign out")
			switch {
			case got.err != nil:
				t.Fatalf("%s: %v", kind, got.err)
			case got.status == http.StatusSeeOther && in:
				won = append(won, i)
			case got.status == http.StatusNotFound && !in && strings.Contains(got.body, "was used"):
			default:
				t.Errorf("%s: %s answers with %d, signed in %t: %s", kind, c.Nodes[i].Name, got.status, in, got.body)
			}
		}
		if len(won) != 1 {
			t.Fatalf("%s: %d uses of one link signed in", kind, len(won))
		}
		wins[fmt.Sprint(kind, " on ", c.Nodes[won[0]].Name)]++
		if status, page := newVisitor(t, c.Nodes[2]).open(u.RequestURI()); status != http.StatusNotFound {
			t.Errorf("%s: a third node answers the used link with %d: %s", kind, status, page)
		}
	}
	for i := range 40 {
		maker := c.Nodes[i%3]
		use("sign-in", maker.CLI("console", "link"))
		if i%4 == 0 {
			use("invitation", maker.CLI("user", "link", fmt.Sprintf("new%d@example.org", i)))
			use("password", maker.CLI("user", "link", "known@example.org"))
		}
	}
	t.Log(wins)
}
