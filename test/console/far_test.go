//go:build conformance

package console

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestTheConsoleFromAnotherMachine promises that a person who reaches a node by plain HTTP from another machine, where the
// browser tells less of forms and offers less to scripts, sets the cluster up, signs out and in, makes a key and uploads files
// with scripts and without.
func TestTheConsoleFromAnotherMachine(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	c := harness.Start(t, harness.Options{Nodes: 1, Replication: 1})
	link := setupLink(t, c.Nodes[0])
	p := b.open(t, strings.Replace(c.Nodes[0].ConsoleURL(), "127.0.0.1", farHost, 1))
	// A browser ignores this header there, and says so on the console of its tools.
	p.expect("Cross-Origin-Opener-Policy")
	p.visit(link)
	p.shows("Set up this cluster")
	if ask(p, chromedp.Evaluate[bool](`window.isSecureContext`)) {
		t.Fatal("the browser takes the page for a secure one")
	}
	p.enter(`[name=email]`, founder)
	p.enter(`[name=password]`, password)
	p.enter(`[name=again]`, password)
	p.press("Set up")
	p.shows("Recent pins")
	p.press("Sign out")
	p.shows("Password")
	p.signIn(founder)
	p.follow("API keys")
	p.shows("There is no key yet")
	p.enter(`[name=name]`, "laptop")
	p.press("Make key")
	p.shows("The new key")
	p.bucket("photos")
	dir := t.TempDir()
	p.choose(`[name=file]`, write(t, dir, "cat.txt", []byte("meow")))
	p.upload("1 stored.")
	p.withoutScripts()
	p.visit("/buckets/photos")
	p.choose(`[name=file]`, write(t, dir, "dog.txt", []byte("woof")))
	p.click(`//section[@id="upload"]//button[normalize-space()="Upload"]`)
	p.do(chromedp.WaitVisible(`//a[normalize-space()="dog.txt"]`))
	key := c.Nodes[0].Key(founder)
	for path, want := range map[string]string{"/photos/cat.txt": "meow", "/photos/dog.txt": "woof"} {
		if got := stored(t, c, key, path); string(got.Body) != want {
			t.Errorf("%s is answered with %d %q", filepath.Base(path), got.Status, got.Body)
		}
	}
}
