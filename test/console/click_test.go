//go:build conformance

package console

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestAClickThatMissesIsTriedAgain promises that tests click what they name: an element that a live page moves between the
// press and the release of the button is clicked again, and a click that meets another element does nothing.
func TestAClickThatMissesIsTriedAgain(t *testing.T) {
	t.Parallel()
	p := startBrowser(t).open(t, commonCluster(t).Nodes[0].ConsoleURL())
	p.visit("/sign-in")
	p.shows("Password")
	ask(p, chromedp.Evaluate[bool](`(() => {
		document.body.innerHTML = '<div id="space"></div><a href="#there">go</a><a href="#wrong" id="wrong">other</a>'
		document.body.style.display = "block"
		for (const a of document.querySelectorAll("a")) a.style.cssText = "display: block; height: 40px"
		addEventListener("mousedown", () => space.style.height = "40px", { once: true })
		wrong.addEventListener("click", () => window.wrongClicked = true)
		return true
	})()`))
	ask(p, watchClick(`//a[normalize-space()="go"]`))
	const missed = `wrong.click(), window.clickMissed && !window.wrongClicked && location.hash === ""`
	if !ask(p, chromedp.Evaluate[bool](missed)) {
		t.Error("a click on another link has an effect")
	}
	p.follow("go")
	p.holds(`location.hash === "#there" && space.offsetHeight === 40`)
}
