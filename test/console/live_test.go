//go:build conformance

package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// mark marks the page that is shown, and marked tells whether it is shown still: a page that was
// loaded anew has no mark.
func (p *tab) mark() { p.t.Helper(); ask(p, chromedp.Evaluate[bool](`window.marked = true`)) }

func (p *tab) marked() {
	p.t.Helper()
	if !ask(p, chromedp.Evaluate[bool](`window.marked === true`)) {
		p.t.Error("the page was loaded anew")
	}
}

// TestAPageShowsChangesAsTheyHappen: two tabs of a browser are open when a program pins a CID at another node, when the
// content arrives there, and when the session ends. Both show it without being loaded anew, over one event stream, and
// the focus stays where it was.
func TestAPageShowsChangesAsTheyHappen(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	c := harness.Start(t, harness.Options{})
	c.Nodes[0].CLIWithInput(password, "user", "add", founder, "--password-stdin")
	other := c.Leader()
	token := other.Key(founder).Token
	if _, err := other.Pins(token).Post(t.Context(), harness.Pin{CID: catCID, Name: "first"}); err != nil {
		t.Fatal(err)
	}
	list := b.open(t, c.Followers()[0].ConsoleURL())
	list.signIn(founder)
	list.follow("Pins")
	list.shows("Pins 1")
	overview := b.open(t, list.base)
	overview.visit("/")
	overview.shows("Recent pins")
	list.mark()
	overview.mark()
	list.do(chromedp.Focus(chromedp.CSS(`#list tbody a`)))
	content := filepath.Join(t.TempDir(), "second.txt")
	if err := os.WriteFile(content, []byte("it arrives later"), 0o600); err != nil {
		t.Fatal(err)
	}
	const arriving = "bafkr4ib7j5squoimkie2lkqjbnkwbepuzplunsp6j7ixyxgc5kjbpqw5bu"
	second, err := other.Pins(token).Post(t.Context(), harness.Pin{CID: arriving, Name: "second"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*tab{list, overview} {
		p.shows("second")
	}
	if focus := ask(list, chromedp.Evaluate[string](`document.activeElement.textContent`)); focus != "first" {
		t.Errorf("the focus is on %q", focus)
	}
	page := b.open(t, list.base)
	page.visit("/pins/" + second.RequestID)
	page.shows("Copies")
	ask(page, chromedp.Evaluate[bool](`document.querySelector("#pin details").open = true`))
	page.mark()
	if root := strings.TrimSpace(other.CLI("add", content)); root != arriving {
		t.Fatalf("the content is %q", root)
	}
	for _, p := range []*tab{list, overview} {
		p.shows("pinned")
		p.marked()
	}
	page.shows("verified")
	page.shows("pinned")
	page.marked()
	if !ask(page, chromedp.Evaluate[bool](`document.querySelector("#pin details").open`)) {
		t.Error("the details that were open are closed")
	}
	harness.Eventually(t, stepTimeout, "the browser has one stream", func() (bool, error) {
		open := 0.0
		for _, n := range c.Nodes {
			open += n.Metrics()[`holdfast_http_requests_underway{api="console"}`]
		}
		return open == 1, fmt.Errorf("%v requests are answered", open)
	})
	other.CLIWithInput("another password, just as long", "user", "passwd", founder)
	for _, p := range []*tab{list, overview} {
		p.shows("Your session has ended.")
		p.marked()
	}
}
