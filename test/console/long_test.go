//go:build conformance

package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Sizes of the long form.
const (
	manyFiles, manyBytes = 10_000, 4 << 10
	hugeBytes            = 20 << 30
	hugePart             = 16 << 20 // of the parts in which the page sends it
	// longWithin bounds one long upload, and sampleEvery is the pause between two looks at it.
	longWithin  = 30 * time.Minute
	sampleEvery = 2 * time.Second
	// flatHeap and flatTab are how many bytes the scripts of the tab, and the processes of all tabs, may have more than
	// before an upload. They are a small part of what is sent.
	flatHeap, flatTab = 32 << 20, 192 << 20
)

// memory is what an upload takes, in bytes.
type memory struct{ heap, tabs, chromium, node int64 }

func (m memory) String() string {
	return fmt.Sprintf("heap %d MiB, processes of tabs %d MiB, all of Chromium %d MiB, node %d MiB", m.heap>>20, m.tabs>>20, m.chromium>>20, m.node>>20)
}

// most returns the larger ones of two.
func (m memory) most(o memory) memory {
	return memory{max(m.heap, o.heap), max(m.tabs, o.tabs), max(m.chromium, o.chromium), max(m.node, o.node)}
}

// memory returns what the scripts of the tab have without what nobody refers to, and what Chromium and the node have.
func (p *tab) memory(node *harness.Node) memory {
	p.t.Helper()
	heap := ask(p, func(ctx context.Context, t *chromedp.Target) (float64, error) {
		if _, err := cdp.Call(ctx, t, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			return 0, err
		}
		got, err := cdp.Call(ctx, t, runtime.GetHeapUsage, cdp.Empty{})
		return got.UsedSize, err
	})
	m := memory{heap: int64(heap), node: node.ResidentBytes()}
	all, err := chromedp.CallBrowser(p.ctx, systeminfo.GetProcessInfo, cdp.Empty{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, process := range all.ProcessInfo {
		resident, err := harness.ResidentBytes(int(process.ID))
		if err != nil {
			continue // it has ended
		}
		m.chromium += resident
		if process.Type == "renderer" {
			m.tabs += resident
		}
	}
	return m
}

// uploadLong sends what is chosen, however long that takes, and checks that the memory of the tab does not grow with it. It
// calls amid while the upload goes on, until amid is through.
func (p *tab) uploadLong(node *harness.Node, summary string, size int64, amid func() (done bool)) {
	p.t.Helper()
	first := len(p.requests())
	before := p.memory(node)
	begun := time.Now()
	p.click(`//section[@id="upload"]//button[normalize-space()="Upload"]`)
	ctx, cancel := context.WithTimeout(p.ctx, longWithin)
	defer cancel()
	var most, last memory
	samples, through := 0, false
	err := harness.Poll(ctx, sampleEvery, func() (bool, error) {
		last = p.memory(node)
		most = most.most(last)
		samples++
		if samples%15 == 0 {
			p.t.Logf("after %v: %v: %s", time.Since(begun).Round(time.Second), last, p.text(`[data-progress]`))
		}
		through = through || amid()
		text := p.text("#upload")
		return strings.Contains(text, summary), fmt.Errorf("the page says %q", text)
	})
	took := time.Since(begun)
	if err != nil {
		p.t.Fatalf("%s: %v", summary, err)
	}
	p.t.Logf("%s It took %v, %.1f MiB/s; %d samples\nbefore: %v\nmost:   %v\nafter:  %v", summary, took.Round(100*time.Millisecond),
		float64(size)/(1<<20)/took.Seconds(), samples, before, most, p.memory(node))
	if !through {
		p.t.Error("the upload ended before it was paused and resumed")
	}
	if most.heap > before.heap+flatHeap || most.tabs > before.tabs+flatTab {
		p.t.Errorf("the memory of the tab has grown with the upload")
	}
	p.repeated(first)
}

// repeated tells which requests since the first one the tab has sent more than once.
func (p *tab) repeated(first int) {
	p.t.Helper()
	sent := map[string]int{}
	for _, r := range p.requests()[first:] {
		what := strings.Fields(r)
		sent[what[0]+" "+what[1]]++
	}
	again := 0
	for what, times := range sent {
		if strings.HasPrefix(what, "PUT ") && times > 1 {
			again += times - 1
			p.t.Logf("sent %d times: %s", times, what)
		}
	}
	p.t.Logf("%d requests, of which %d repeat one", len(p.requests())-first, again)
}

// puts returns how many requests with content the tab has sent.
func (p *tab) puts() (n int) {
	for _, r := range p.requests() {
		if strings.HasPrefix(r, "PUT ") {
			n++
		}
	}
	return n
}

// pausesAt returns what pauses an upload once the node has as many requests with content, looks at it a few times and resumes it.
// Nothing is sent meanwhile.
func (p *tab) pausesAt(requests int) func() bool {
	looks, sent := 0, 0
	begun := p.puts()
	return func() bool {
		switch {
		case looks == 0 && p.puts()-begun < requests:
			return false
		case looks == 0:
			p.press("Pause")
			p.shows("left, paused")
			sent = p.puts()
		case looks == 3:
			if now := p.puts(); now != sent {
				p.t.Errorf("while the upload is paused the tab sends %d requests", now-sent)
			}
			p.press("Resume")
			return true
		}
		looks++
		return false
	}
}

// hugeFile writes a file of bytes that do not repeat, and returns its path and its SHA-256.
func hugeFile(t *testing.T, dir string) (path string, sum []byte) {
	t.Helper()
	path = filepath.Join(dir, "huge.bin")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, h), rand.NewChaCha8([32]byte{2}), hugeBytes)
	if cerr := f.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
	return path, h.Sum(nil)
}

// TestManyFilesAndAHugeOne: a folder of 10,000 small files, and one file of 20 GiB, go through the browser with the memory of
// the tab flat, are paused and resumed, and come out as they went in.
func TestManyFilesAndAHugeOne(t *testing.T) {
	if !*long {
		t.Skip("in the long form: make console-long")
	}
	b := startBrowser(t)
	c := harness.Start(t, harness.Options{Nodes: 1, Replication: 1, Env: []string{"HOLDFAST_ACCOUNTS_ALLOWANCE=1TiB"}})
	node := c.Nodes[0]
	node.CLIWithInput(password, "user", "add", founder, "--password-stdin")
	key := node.Key(founder)
	p := b.open(t, node.ConsoleURL())
	p.signIn(founder)
	p.bucket("large")
	dir := t.TempDir()
	data := noise(manyFiles * manyBytes)
	name := func(i int) string { return fmt.Sprintf("many/%03d/%05d.bin", i%100, i) }
	of := func(i int) []byte { return data[i*manyBytes : (i+1)*manyBytes] }
	for i := range manyFiles {
		write(t, dir, name(i), of(i))
	}
	p.choose(`[name=folder]`, filepath.Join(dir, "many"))
	p.uploadLong(node, "10,000 stored.", manyFiles*manyBytes, p.pausesAt(manyFiles/3))
	for i := range manyFiles {
		if got := stored(t, c, key, "/large/"+name(i)); !bytes.Equal(got.Body, of(i)) {
			t.Fatalf("%s is answered with %d and %d bytes", name(i), got.Status, len(got.Body))
		}
	}

	huge, sum := hugeFile(t, dir)
	p.visit("/buckets/large")
	p.shows("many/")
	p.choose(`[name=file]`, huge)
	p.uploadLong(node, "1 stored.", hugeBytes, p.pausesAt(hugeBytes/hugePart/3))
	if err := os.Remove(huge); err != nil {
		t.Error(err)
	}
	p.visit("/buckets/large") // a page without clicks, on which only the list has them
	p.shows("huge.bin")
	p.shows("20 GiB")
	header, got := digest(t, node, key, "/large/huge.bin")
	if parts := fmt.Sprintf(`-%d"`, hugeBytes/hugePart); header.Get("Content-Length") != strconv.Itoa(hugeBytes) || !strings.HasSuffix(header.Get("Etag"), parts) {
		t.Errorf("the object has %s bytes and the ETag %s", header.Get("Content-Length"), header.Get("Etag"))
	}
	if !bytes.Equal(got, sum) {
		t.Errorf("the object differs from the file")
	}
	t.Logf("at the end the node has %d MiB", node.ResidentBytes()>>20)
}

// digest returns the headers of an object and the SHA-256 of its bytes.
func digest(t *testing.T, node *harness.Node, key harness.Key, path string) (http.Header, []byte) {
	t.Helper()
	at, err := url.JoinPath(node.S3URL(), path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key.Token)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	h := sha256.New()
	if _, err := io.Copy(h, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s is answered with %d, %v", path, answer.StatusCode, err)
	}
	return answer.Header, h.Sum(nil)
}
