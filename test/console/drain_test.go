//go:build conformance

package console

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestADrainIsWatched: an administrator drains a node while another node is down, which is to get a part of the content. The page
// shows without being loaded anew what is left and at which rate it left, and the end of the drain when the other node is back.
// The nodes stand in a zone, and the map of missing copies has columns of ages.
func TestADrainIsWatched(t *testing.T) {
	longForm(t)
	t.Parallel()
	b := startBrowser(t)
	c := harness.Start(t, harness.Options{Replication: 1, Env: []string{"HOLDFAST_NODE_ZONE=rack 1"}})
	leader, leaving, other := c.Leader(), c.Followers()[0], c.Followers()[1]
	dir := t.TempDir()
	for i := range 40 {
		content := make([]byte, 64<<10)
		_, _ = rand.Read(content) // never fails, see crypto/rand
		leader.CLI("add", write(t, dir, fmt.Sprint(i), content))
	}
	link, err := url.Parse(strings.TrimSpace(leader.CLI("console", "link")))
	if err != nil {
		t.Fatal(err)
	}
	p := b.open(t, leader.ConsoleURL())
	p.visit(link.RequestURI())
	p.press("Sign in")
	p.shows("Recent pins")
	p.visit("/cluster/nodes/" + leaving.Status().Node.ID)
	p.follow("See what a drain moves")
	p.shows("move to 2 other nodes")
	p.picture("member-drain")
	other.Kill()
	p.press("Drain this node")
	p.shows("It gets no new content.")
	p.mark()
	comes := func(text string) {
		t.Helper()
		harness.Eventually(t, 2*time.Minute, text+" is shown", func() (bool, error) {
			// Not p.text: the page puts a new element in the place of the one that was found.
			drain := ask(p, chromedp.Evaluate[string](`document.querySelector('#drain')?.innerText ?? ''`))
			return strings.Contains(drain, text), errors.New(drain)
		})
		p.marked()
	}
	comes("KiB/s")
	p.picture("member-draining")
	p.visit("/cluster")
	p.shows("rack 1")
	p.shows("draining")
	p.follow("age")
	p.shows("10 min")
	p.picture("cluster-ages")
	p.visit("/cluster/nodes/" + leaving.Status().Node.ID)
	p.shows("It gets no new content.")
	p.mark()
	other.Restart()
	comes("It holds nothing any more")
	p.press("End the drain and give it content again")
	p.shows("See what a drain moves")
}
