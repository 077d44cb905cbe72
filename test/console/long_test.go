//go:build conformance

package console

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Sizes of the long form.
const (
	manyFiles, manyBytes = 10_000, 4 << 10
	hugeBytes            = 20 << 30
	// hugeStep is how far apart the blocks of the huge file are that are not empty.
	hugeStep = 64 << 20
	// longWithin bounds one long upload.
	longWithin = 30 * time.Minute
	// flatHeap is how many bytes of JavaScript the tab may have more after an upload.
	flatHeap = 32 << 20
)

// heap returns what the scripts of the tab have in memory, in bytes, without what nobody refers to.
func (p *tab) heap() float64 {
	p.t.Helper()
	return ask(p, func(ctx context.Context, t *chromedp.Target) (float64, error) {
		if _, err := cdp.Call(ctx, t, runtime.Enable, cdp.Empty{}); err != nil {
			return 0, err
		}
		got, err := cdp.Call(ctx, t, runtime.GetHeapUsage, cdp.Empty{})
		return got.UsedSize, err
	})
}

// uploadLong sends what is chosen, however long that takes, and returns the most memory that the
// scripts of the tab had meanwhile.
func (p *tab) uploadLong(summary string) (most float64) {
	p.t.Helper()
	p.click(`//section[@id="upload"]//button[normalize-space()="Upload"]`)
	harness.Eventually(p.t, longWithin, summary, func() (bool, error) {
		most = max(most, p.heap())
		text := p.text("#upload")
		return text != "" && ask(p, chromedp.Evaluate[bool](`document.querySelector('#upload').innerText.includes(`+quoted(summary)+`)`)), fmt.Errorf("the page says %q", text)
	})
	return most
}

// TestManyFilesAndAHugeOne: a folder of 10,000 small files, and one file of 20 GiB, go through the browser with the memory
// of the tab flat, and come out as they went in.
func TestManyFilesAndAHugeOne(t *testing.T) {
	if !*long {
		t.Skip("in the long form: make console-long")
	}
	b := startBrowser(t)
	c := harness.Start(t, harness.Options{Nodes: 1, Replication: 1, Env: []string{"HOLDFAST_ACCOUNTS_ALLOWANCE=1TiB"}})
	node := c.Nodes[0]
	node.CLIWithInput(password, "user", "add", email, "--password-stdin")
	p := b.open(t, node.ConsoleURL())
	p.signIn()
	p.bucket("large")
	dir := t.TempDir()
	data := noise(manyFiles * manyBytes)
	for i := range manyFiles {
		write(t, dir, fmt.Sprintf("many/%03d/%05d.bin", i%100, i), data[i*manyBytes:(i+1)*manyBytes])
	}
	before := p.heap()
	p.choose(`[name=folder]`, filepath.Join(dir, "many"))
	began := time.Now()
	most := p.uploadLong("10,000 stored.")
	t.Logf("10,000 files took %v; the heap of the tab rose from %.1f to %.1f MiB", time.Since(began).Round(time.Second), before/(1<<20), most/(1<<20))
	if most > before+flatHeap {
		t.Errorf("the heap of the tab rose from %.0f to %.0f bytes", before, most)
	}
	for _, i := range []int{0, 1234, manyFiles - 1} {
		got := stored(t, c, fmt.Sprintf("/large/many/%03d/%05d.bin", i%100, i))
		if string(got.Body) != string(data[i*manyBytes:(i+1)*manyBytes]) {
			t.Errorf("file %d is answered with %d and %d bytes", i, got.Status, len(got.Body))
		}
	}

	huge := filepath.Join(dir, "huge.bin")
	f, err := os.Create(huge)
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < hugeBytes && err == nil; at += hugeStep {
		_, err = f.WriteAt([]byte(strconv.FormatInt(at, 10)), at)
	}
	if err == nil {
		err = f.Truncate(hugeBytes)
	}
	if cerr := f.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
	p.visit("/buckets/large")
	p.shows("many/")
	before = p.heap()
	p.choose(`[name=file]`, huge)
	began = time.Now()
	most = p.uploadLong("1 stored.")
	t.Logf("20 GiB took %v; the heap of the tab rose from %.1f to %.1f MiB", time.Since(began).Round(time.Second), before/(1<<20), most/(1<<20))
	if most > before+flatHeap {
		t.Errorf("the heap of the tab rose from %.0f to %.0f bytes", before, most)
	}
	token := node.Key(email).Token
	head, err := node.S3(t.Context(), token, http.MethodHead, "/large/huge.bin", nil, 0)
	if err != nil || head.Header.Get("Content-Length") != strconv.Itoa(hugeBytes) {
		t.Fatalf("the object has %s bytes, %v", head.Header.Get("Content-Length"), err)
	}
	for _, at := range []int64{0, 7 * hugeStep, hugeBytes - hugeStep} {
		want := strconv.FormatInt(at, 10)
		got, err := node.S3(t.Context(), token, http.MethodGet, "/large/huge.bin", nil, 0, "Range", fmt.Sprintf("bytes=%d-%d", at, at+int64(len(want))-1))
		if err != nil || string(got.Body) != want {
			t.Errorf("at %d is %q, %v", at, got.Body, err)
		}
	}
}
