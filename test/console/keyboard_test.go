//go:build conformance

package console

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// keys types texts as a keyboard does: a script that takes the press of a key also takes its letter. "\t" is the tabulator, "\r"
// is Enter.
func (p *tab) keys(texts ...string) {
	p.t.Helper()
	for _, r := range strings.Join(texts, "") {
		p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			events := kb.Encode(r)
			down, up := *events[0], *events[len(events)-1]
			if len(events) > 2 {
				down.Text, down.UnmodifiedText = events[1].Text, events[1].UnmodifiedText
			}
			for _, event := range []input.DispatchKeyEventParams{down, up} {
				if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, event); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// focused describes the element that has the focus: its tag, name and text.
func (p *tab) focused() string {
	p.t.Helper()
	return ask(p, chromedp.Evaluate[string](`(e => [e.tagName, e.name || '', e.innerText || ''].join(' ').trim())(document.activeElement)`))
}

// tabTo presses the tabulator until the focus is on something that is described so, and fails if it comes round.
func (p *tab) tabTo(what string) {
	p.t.Helper()
	var seen []string
	for range 60 {
		p.keys("\t")
		at := p.focused()
		if strings.Contains(at, what) {
			if outline := ask(p, chromedp.Evaluate[string](`getComputedStyle(document.activeElement).outlineStyle`)); outline == "none" {
				p.t.Errorf("the focus on %q is not visible", at)
			}
			return
		}
		seen = append(seen, at)
	}
	p.t.Fatalf("the tabulator does not lead to %q, but to %q", what, seen)
}

// opensDetails opens and closes the details under a summary with Enter. The focus stays on the summary, and axe-core finds nothing
// wrong while they are open.
func (p *tab) opensDetails(summary string) {
	p.t.Helper()
	p.tabTo("SUMMARY  " + summary)
	for _, open := range []bool{true, false} {
		p.keys("\r")
		if at := p.focused(); !strings.Contains(at, summary) || ask(p, chromedp.Evaluate[bool](`document.activeElement.parentElement.open`)) != open {
			p.t.Errorf("after Enter on %q the focus is on %q, and the details are to be open: %t", summary, at, open)
		}
		for _, what := range p.violations() {
			p.t.Errorf("with the details of %q: %s", summary, what)
		}
	}
}

// TestTheKeyboardAlone: a person without a pointer sets the cluster up, goes to each section by its keys, searches, makes a key and
// revokes it. The focus is visible wherever it goes, and letters that are typed into a field go nowhere else.
func TestTheKeyboardAlone(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	c := harness.Start(t, harness.Options{})
	link := setupLink(t, c.Nodes[0])
	p := b.open(t, c.Followers()[0].ConsoleURL())
	p.visit(link)
	p.shows("Set up this cluster")
	p.holds(`document.activeElement.name === "email"`) // Chromium sets the focus of a page when it draws it
	p.keys(founder, "\t", password, "\t", password, "\r")
	p.shows("Recent pins")
	p.tabTo("Skip to content")
	p.keys("\r", "\t")
	if at := p.focused(); !strings.Contains(ask(p, chromedp.Evaluate[string](`document.activeElement.closest('main') ? 'main' : 'elsewhere'`)), "main") {
		t.Errorf("behind the link to the content the focus is on %q", at)
	}
	for _, to := range []struct{ key, path, shows string }{
		{"p", "/pins", "Pin many CIDs"}, {"b", "/buckets", "New bucket"}, {"k", "/keys", "New key"}, {"c", "/cluster", "Members"}, {"u", "/users", "Add a person"}, {"o", "/", "Recent pins"},
	} {
		p.keys("g", to.key)
		p.shows(to.shows)
		if at := p.at(); at != to.path {
			t.Errorf("g %s leads to %s", to.key, at)
		}
	}
	p.keys("g", "p")
	p.shows("Pin many CIDs") // the overview has "Pin a CID" too
	p.opensDetails("More filters")
	p.keys("/")
	if at := p.focused(); at != "INPUT name" {
		t.Errorf("after / the focus is on %q", at)
	}
	p.keys("gkgb/", "\r")
	p.shows("No pin matches")
	if at := p.at(); !strings.Contains(at, "name=gkgb%2F") {
		t.Errorf("the search leads to %s", at)
	}
	p.keys("g", "k")
	p.shows("New key")
	p.tabTo("INPUT name")
	p.keys("laptop", "\r")
	p.shows("The new key")
	p.opensDetails("rclone")
	token := p.fact("Token (Bearer)")
	answered(t, c, token, http.StatusOK)
	p.tabTo("SUMMARY  Revoke")
	p.keys("\r")
	p.tabTo("Revoke this key")
	p.keys("\r")
	p.shows("has been refused on every node")
	answered(t, c, token, http.StatusUnauthorized)
}

// TestTheKeyboardUploadsAndOpensAShare promises that a person without a pointer signs in, uploads a
// file, cancels another, and sorts the list, and that the focus is never lost. Somebody opens a share, looks at a file and closes it, and the focus is back where it was.
func TestTheKeyboardUploadsAndOpensAShare(t *testing.T) {
	t.Parallel()
	const email = "keira@example.org"
	dir := t.TempDir()
	write(t, dir, "notes.txt", []byte("By the sea."))
	b := startBrowser(t)
	c := commonCluster(t)
	s := newSharer(t, c, email, dir)
	p := b.open(t, c.Nodes[0].ConsoleURL())
	p.visit("/buckets/albums")
	p.shows("Password")
	p.holds(`document.activeElement.name === "email"`)
	p.keys(email, "\t", password, "\r")
	p.shows("Object key begins with")
	file := write(t, t.TempDir(), "hello.txt", []byte("hello"))
	p.choose(`[name=file]`, file)
	p.tabTo("BUTTON  Upload")
	p.keys("\r")
	p.shows("1 stored.")
	if at := p.focused(); at != "BUTTON  Upload" {
		t.Errorf("after the upload the focus is on %q", at)
	}
	for _, what := range p.violations() {
		t.Error(what)
	}
	p.cancelsByKeyboard(write(t, t.TempDir(), "large.bin", noise(4<<20)))
	p.tabTo("A  Size")
	p.keys("\r")
	p.holds(`location.search === '?sort=-size' && document.querySelector('th.number').ariaSort === 'descending'`)
	p.tabTo("A  hello.txt")
	p.keys("\r")
	p.shows("BLAKE3")
	p.shows("of 3")

	p.openLink(strings.TrimPrefix(s.run("share", "create", "s3://albums/trip", "--link", "--expires", "1d", "--console", p.base), p.base))
	p.shows("1 file")
	p.tabTo("BUTTON  notes.txt")
	p.keys("\r")
	p.shows("By the sea.")
	if !ask(p, chromedp.Evaluate[bool](`document.querySelector('dialog').contains(document.activeElement)`)) {
		t.Errorf("with the dialog open the focus is on %q", p.focused())
	}
	for _, what := range p.violations() {
		t.Errorf("with the dialog open: %s", what)
	}
	p.tabTo("BUTTON  Close")
	p.keys("\r")
	if at := p.focused(); at != "BUTTON  notes.txt" {
		t.Errorf("behind the dialog the focus is on %q", at)
	}
}

// cancelsByKeyboard promises that a person without a pointer cancels the upload of a large file, sees
// what was not stored, has the focus on the button that began it, and uploads the file again without choosing it again.
func (p *tab) cancelsByKeyboard(file string) {
	p.t.Helper()
	p.slow(64 << 10)
	p.choose(`[name=file]`, file)
	p.tabTo("BUTTON  Upload")
	p.keys("\r")
	p.shows("1 file left")
	p.tabTo("BUTTON  Cancel")
	p.keys("\r")
	p.shows("0 stored, 1 not stored:")
	p.shows("large.bin: cancelled")
	if at := p.focused(); at != "BUTTON  Upload" {
		p.t.Errorf("after the upload is cancelled the focus is on %q", at)
	}
	p.slow(0)
	p.tabTo("BUTTON  Upload these again")
	p.keys("\r")
	p.shows("1 stored.")
	if at := p.focused(); at != "BUTTON  Upload" {
		p.t.Errorf("after the file is uploaded again the focus is on %q", at)
	}
}

// holds waits until an expression is true in the page.
func (p *tab) holds(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	err := harness.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		return chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
	})
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
}
