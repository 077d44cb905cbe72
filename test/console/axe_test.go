//go:build conformance

package console

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/chromedp/chromedp"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// axe is the text of axe-core, which testdata/axe pins. It is read once.
var axe struct {
	once sync.Once
	text string
	err  error
}

// violations returns what axe-core finds wrong with the page, with every rule that it has on by default
// and the elements that break it.
func (p *tab) violations() []string {
	p.t.Helper()
	axe.once.Do(func() {
		var text []byte
		text, axe.err = os.ReadFile(filepath.Join(harness.NPM(p.t, "testdata/axe"), "node_modules", "axe-core", "axe.min.js"))
		axe.text = string(text)
	})
	if axe.err != nil {
		p.t.Fatal(axe.err)
	}
	if !ask(p, chromedp.Evaluate[bool](`!!window.axe`)) {
		p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := chromedp.Evaluate[any](axe.text+`; 0`)(ctx, t)
			return err
		}))
	}
	return ask(p, chromedp.Evaluate[[]string](`(async () => {
		// Of what is right, and of where in the document a violation is, nothing is wanted.
		const { violations } = await window.axe.run(document, { resultTypes: ['violations'], selectors: false, preload: false })
		return violations.map(v => v.id + ' (' + v.help + '): ' + v.nodes.map(n => n.html.slice(0, 120)).slice(0, 3).join(' and '))
	})()`, chromedp.EvalAwaitPromise))
}
