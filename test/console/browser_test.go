//go:build conformance

package console

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// stepTimeout bounds one step of a person in the browser.
const stepTimeout = time.Minute

// farHost is a name that leads to this machine without the browser knowing: over plain HTTP it is no
// secure context, as an address of the network is none.
const farHost = "node.test"

// browser is the browser of one person: a profile that shares nothing with those of others, in the Chromium of all tests.
type browser struct {
	ctx  context.Context // of its first tab
	used bool            // the first tab is open
}

// chromium is the Chromium of all tests, which the first one starts.
var chromium struct {
	once sync.Once
	ctx  context.Context
}

// startBrowser returns a browser without a window.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	chromium.once.Do(func() { chromium.ctx = startChromium(harness.Lasting(t)) })
	if chromium.ctx == nil {
		t.Fatal("Chromium did not start: see the first test")
	}
	ctx, stop := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(stop)
	return &browser{ctx: ctx}
}

// startChromium starts Chromium, the one of HOLDFAST_CHROMIUM or of the path.
func startChromium(t testing.TB) context.Context {
	t.Helper()
	path := os.Getenv("HOLDFAST_CHROMIUM")
	if path == "" {
		var err error
		if path, err = exec.LookPath("chromium"); err != nil {
			t.Fatal("there is no Chromium: install Debian's package chromium, or set HOLDFAST_CHROMIUM")
		}
	}
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.Headless}
	for _, flag := range []string{
		"no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "no-default-browser-check", "disable-background-networking",
		"disable-component-update", "disable-sync", "disable-dev-shm-usage",
	} {
		options = append(options, chromedp.Flag(flag, true))
	}
	options = append(options,
		chromedp.Flag("host-resolver-rules", "MAP "+farHost+" 127.0.0.1"),
		// No process for a page that nobody has opened.
		chromedp.Flag("disable-features", "SpareRendererForSitePerProcess,PreloadTopChromeWebUI"),
	)
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// tab is a page that a person looks at. It collects what must not happen there: errors of
// scripts, reports of the content security policy, and requests to other hosts.
type tab struct {
	t       *testing.T
	ctx     context.Context
	browser *browser
	base    string // URL of the console
	plain   bool   // the scripts of pages do not run, so pages do not move elements either

	mu      sync.Mutex
	trouble []string
	allowed []string // texts of messages that a test expects
	sent    []string // requests: method, URL and headers
}

// open opens a tab for the console at a URL. The end of the test fails for what it collected.
func (b *browser) open(t *testing.T, base string) *tab {
	t.Helper()
	ctx := b.ctx
	if b.used {
		var stop context.CancelFunc
		ctx, stop = chromedp.NewContext(b.ctx)
		t.Cleanup(stop)
	}
	b.used = true
	p := &tab{t: t, ctx: ctx, browser: b, base: base}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			p.note("script: " + e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert {
				p.note(fmt.Sprintf("console.%s of a script", e.Type))
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError {
				p.note(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
			}
		case *network.EventRequestWillBeSent:
			p.mu.Lock()
			p.sent = append(p.sent, fmt.Sprint(e.Request.Method, " ", e.Request.URL, " ", e.Request.Headers))
			p.mu.Unlock()
			if url := strings.TrimPrefix(e.Request.URL, "blob:"); !strings.HasPrefix(url, base) && !strings.HasPrefix(url, "data:") && !strings.HasPrefix(url, "about:") {
				p.note("request to another host: " + url)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, network.Enable, network.EnableParams{}); err != nil {
			return err
		}
		if _, err := cdp.Call(ctx, t, log.Enable, cdp.Empty{}); err != nil {
			return err
		}
		// As if its window were the one in front: that of another test does not take the focus away.
		_, err := cdp.Call(ctx, t, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return err
	}))
	last := looks[len(looks)-1]
	p.look(last.width, last.height, last.scheme)
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, what := range p.trouble {
			t.Error(what)
		}
	})
	return p
}

// expect lets messages pass that have a text: a page of an error is logged as one.
func (p *tab) expect(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed = append(p.allowed, text)
}

func (p *tab) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.allowed {
		if strings.Contains(what, text) {
			return
		}
	}
	p.trouble = append(p.trouble, what)
}

// do runs steps, which have to be done within stepTimeout. One step is tried again if a live page replaces its element
// meanwhile.
func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	err := chromedp.Do(ctx, steps...)
	for try := 1; len(steps) == 1 && err != nil && elementGone(err) && try < stepTries; try++ {
		err = chromedp.Do(ctx, steps...)
	}
	if err != nil {
		p.t.Fatalf("%v; the page is %s", err, p.what())
	}
}

// ask runs a step that has an answer. A page that is being left may give none: then the next page is asked. The same holds
// for an element that a live page has just replaced.
func ask[T any](p *tab, step chromedp.Action[T]) (answer T) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	var err error
	_ = harness.Poll(ctx, 50*time.Millisecond, func() (bool, error) { // err says more than the end of ctx
		answer, err = chromedp.Run(ctx, step)
		return err == nil || !pageLeft(err) && !elementGone(err), err
	})
	if err != nil {
		p.t.Fatalf("%v; the page is %s", err, p.what())
	}
	return answer
}

// pageLeft reports whether a step failed because Chromium went on to the next page meanwhile. The texts are those of
// Chromium's DevTools protocol, which has one code for them and for much else.
func pageLeft(err error) bool {
	return strings.Contains(err.Error(), "Inspected target navigated") || strings.Contains(err.Error(), "Cannot find default execution context")
}

// elementGone reports whether a step failed because the page replaced its element after Chromium had found it. The texts
// are those of Chromium's DevTools protocol.
func elementGone(err error) bool {
	return strings.Contains(err.Error(), "Could not find node") || strings.Contains(err.Error(), "No node with given id")
}

// requests are what the tab has sent.
func (p *tab) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sent)
}

// what is the address and the text of the page, for the message of a failure.
func (p *tab) what() string {
	ctx, cancel := context.WithTimeout(p.ctx, time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location + ": " + document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// visit goes to a path of the console.
func (p *tab) visit(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.base + path))
}

// shows waits until the page has a text. The page may be another one by then. After a click the text
// counts on a page that is loaded since, or if this page did not have it at the click: a text that was
// there before does not say that the click was answered.
func (p *tab) shows(text string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	err := harness.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		return chromedp.Run(ctx, chromedp.Evaluate[bool](`!!document.body && document.readyState == "complete" && document.body.innerText.includes(`+quoted(text)+`) &&
			!window.textAtClick?.includes(`+quoted(text)+`) && delete window.textAtClick`))
	})
	if err != nil {
		p.t.Fatalf("waited for %q: %v; at the click the page had it: %t; the page is %s", text, err,
			ask(p, chromedp.Evaluate[bool](`!!window.textAtClick?.includes(`+quoted(text)+`)`)), p.what())
	}
}

// enter types into a field.
func (p *tab) enter(field, value string) {
	p.t.Helper()
	p.do(chromedp.WaitVisible(chromedp.CSS(field)))
	ask(p, chromedp.Evaluate[bool]("!(document.querySelector(`"+field+"`).value = '')"))
	p.do(chromedp.SendKeys(chromedp.CSS(field), value))
}

// stepTries is how often a step is tried whose element a live page has just replaced or moved.
const stepTries = 5

// watchClick has the page remember at the next click whether it met the element that an XPath expression finds. A live
// page may have moved the element after Chromium was told where to click. A click that misses has no effect.
func watchClick(xpath string) chromedp.Action[string] {
	return chromedp.Evaluate[string](`(() => {
		removeEventListener("click", window.clickWatch, true)
		window.clickMissed = true
		window.clickWatch = e => {
			const found = document.evaluate(` + "`" + xpath + "`" + `, document, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE)
			window.clickMissed = true
			for (let i = 0; i < found.snapshotLength; i++)
				if (found.snapshotItem(i).contains(e.target)) window.clickMissed = false
			if (window.clickMissed) { e.preventDefault(); e.stopPropagation() }
			else removeEventListener("click", window.clickWatch, true)
		}
		addEventListener("click", window.clickWatch, true)
		return window.textAtClick = document.body?.innerText ?? ""
	})()`)
}

// click clicks the element that an XPath expression finds.
func (p *tab) click(xpath string) {
	p.t.Helper()
	for try := 1; ; try++ {
		ask(p, watchClick(xpath))
		ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
		err := chromedp.Do(ctx, chromedp.Click(xpath))
		cancel()
		// Chromium may load the next page before it has answered that the mouse button is up. That page has no watch.
		if err != nil && pageLeft(err) || err == nil && (p.plain || !ask(p, chromedp.Evaluate[bool]("!!window.clickMissed"))) {
			return
		}
		if try == stepTries || err != nil && !elementGone(err) {
			p.t.Fatalf("a click on %s: %v; the page is %s", xpath, err, p.what())
		}
	}
}

// press clicks the button, or opens the details, with a text.
func (p *tab) press(text string) {
	p.t.Helper()
	p.click(`//*[self::button or self::summary][normalize-space()=` + quoted(text) + `]`)
}

// follow clicks the link with a text.
func (p *tab) follow(text string) {
	p.t.Helper()
	p.click(`//a[normalize-space()=` + quoted(text) + `]`)
}

// text is the text of an element. The page finds and reads the element in one step, because a live page may replace it between two.
func (p *tab) text(selector string) (text string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	err := harness.Poll(ctx, 50*time.Millisecond, func() (found bool, err error) {
		answer, err := chromedp.Run(ctx, chromedp.Evaluate[string]("(e => e ? '=' + e.innerText : '')(document.querySelector(`"+selector+"`))"))
		text, found = strings.CutPrefix(answer, "=")
		return found, err
	})
	if err != nil {
		p.t.Fatalf("no %s: %v; the page is %s", selector, err, p.what())
	}
	return strings.TrimSpace(text)
}

// at is the path and query of the page.
func (p *tab) at() string {
	p.t.Helper()
	return strings.TrimPrefix(ask(p, chromedp.Location()), p.base)
}

// looks are the sizes and colours in which every page is looked at. Both that are always looked at have
// each size and each scheme once. The last one is that of every page at the beginning.
var looks = []struct {
	name          string
	width, height int64
	scheme        string
	always        bool // also in the short form
}{
	{"wide-dark", 1440, 900, "dark", false},
	{"narrow-light", 390, 844, "light", false},
	{"narrow-dark", 390, 844, "dark", true},
	{"wide-light", 1440, 900, "light", true},
}

// picture looks at the page in two of looks, and with -long or -pictures in each: nothing may be wider than
// the window, and axe-core finds no violation. With -pictures DIR it saves what is seen.
func (p *tab) picture(name string) {
	p.t.Helper()
	for _, l := range looks {
		if !l.always && !*long && *pictures == "" {
			continue
		}
		p.look(l.width, l.height, l.scheme)
		over := ask(p, chromedp.Evaluate[string](`document.documentElement.scrollWidth > innerWidth ? [...document.querySelectorAll('body *')]
			.filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80)).slice(0, 3).join(' and ') || 'the page' : ''`))
		if over != "" {
			p.t.Errorf("%s at %d px is wider than the window: %s", name, l.width, over)
		}
		for _, what := range p.violations() {
			p.t.Errorf("%s, %s: %s", name, l.name, what)
		}
		if *pictures == "" {
			continue
		}
		// As high as the page, so that the bar at the bottom of the window is at its end.
		p.look(l.width, max(l.height, ask(p, chromedp.Evaluate[int64](`document.documentElement.scrollHeight`))), l.scheme)
		beyond := true
		shot := ask(p, func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
			got, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &beyond})
			return got.Data, err
		})
		if err := os.WriteFile(filepath.Join(*pictures, name+"-"+l.name+".png"), shot, 0o600); err != nil {
			p.t.Fatal(err)
		}
		p.look(l.width, l.height, l.scheme)
	}
}

// look sets the size of the window and the scheme of colours that the person prefers.
func (p *tab) look(width, height int64, scheme string) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

// quoted is a text as JavaScript and XPath write it. It has no quotes in it.
func quoted(text string) string { return `"` + text + `"` }

// fact is the value beside a term of the list of facts.
func (p *tab) fact(term string) string {
	p.t.Helper()
	return strings.TrimSpace(ask(p, chromedp.Text(`//dt[normalize-space()=`+quoted(term)+`]/following-sibling::dd[1]//code`)))
}

// valueOf is the value of a field.
func (p *tab) valueOf(field string) string {
	p.t.Helper()
	return ask(p, chromedp.Value(chromedp.CSS(field)))
}

// cookie is a cookie of the console.
func (p *tab) cookie(name string) *http.Cookie {
	p.t.Helper()
	all := ask(p, func(ctx context.Context, t *chromedp.Target) (network.GetCookiesResult, error) {
		return cdp.Call(ctx, t, network.GetCookies, network.GetCookiesParams{})
	})
	for _, c := range all.Cookies {
		if c.Name == name {
			return &http.Cookie{Name: c.Name, Value: c.Value}
		}
	}
	p.t.Fatalf("there is no cookie %s", name)
	return nil
}

// get is the status that a URL answers with; redirects are not followed.
func get(t *testing.T, url string, cookie *http.Cookie) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(cookie)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode
}
