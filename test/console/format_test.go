//go:build conformance

package console

import (
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestScriptsWriteValuesAsTheServerDoes: sizes, counts, percentages and times have the same text whether a script or a template of the
// server writes them.
func TestScriptsWriteValuesAsTheServerDoes(t *testing.T) {
	t.Parallel()
	texts, err := os.ReadFile("../../api/console/testdata/texts.json")
	if err != nil {
		t.Fatal(err)
	}
	b := startBrowser(t)
	c := commonCluster(t)
	p := b.open(t, c.Nodes[0].ConsoleURL())
	p.visit("/sign-in")
	p.shows("Password")
	for _, wrong := range ask(p, chromedp.Evaluate[[]string](`(async () => {
		const base = document.querySelector('script[src*="/static/"]').src
		const f = await import(new URL('format.js', base))
		const write = {
			bytes: f.bytesText, counts: f.countText, percents: f.percentText, spans: f.spanText, agos: f.agoText, untils: (s) => f.agoText(-s),
			times: (s) => f.timeElement(s).textContent, datetimes: (s) => f.timeElement(s).dateTime
		}
		const wrong = []
		let compared = 0
		for (const [kind, rows] of Object.entries(`+string(texts)+`)) {
			for (const { of, text } of rows) {
				const got = write[kind](...of)
				compared++
				if (got !== text) wrong.push(kind + ': ' + of + ' is "' + got + '" in a script, and "' + text + '" in a page')
			}
		}
		return compared > 100 ? wrong : ['only ' + compared + ' texts were compared']
	})()`, chromedp.EvalAwaitPromise)) {
		t.Error(wrong)
	}
}
