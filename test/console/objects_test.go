//go:build conformance

package console

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	downloads "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// write makes a file with its folders, and returns its path.
func write(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// noise are bytes that are no two alike.
func noise(size int) []byte {
	data := make([]byte, size)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(data)
	return data
}

// picturePNG returns an image.
func picturePNG(t *testing.T) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 320, 200))
	for x := range 320 {
		for y := range 200 {
			img.Set(x, y, color.RGBA{uint8(x * 255 / 320), uint8(y * 255 / 200), 120, 255})
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// choose chooses files in a field. Those of a folder are there a little later.
func (p *tab) choose(field string, files ...string) {
	p.t.Helper()
	p.do(chromedp.SetUploadFiles(chromedp.CSS(field), files))
	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	err := harness.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		return chromedp.Run(ctx, chromedp.Evaluate[bool](`document.querySelector(`+quoted(field)+`).files.length > 0`))
	})
	if err != nil {
		p.t.Fatalf("the files %q in %s: %v", files, field, err)
	}
}

// bucket makes a bucket on the page.
func (p *tab) bucket(name string) {
	p.t.Helper()
	p.follow("Buckets")
	p.shows("New bucket")
	p.enter(`[name=name]`, name)
	p.press("Make bucket")
	p.shows("The bucket is empty")
}

// upload sends what is chosen, and waits for the summary.
func (p *tab) upload(summary string) {
	p.t.Helper()
	p.click(`//section[@id="upload"]//button[normalize-space()="Upload"]`)
	p.shows(summary)
}

// slow lets the tab send so many bytes a second; 0 is without a bound.
func (p *tab) slow(rate float64) {
	p.t.Helper()
	var conditions []*network.Conditions
	if rate > 0 {
		conditions = append(conditions, &network.Conditions{UploadThroughput: rate, DownloadThroughput: -1})
	}
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: conditions})
		return err
	}))
}

// withoutScripts keeps the scripts of pages from running.
func (p *tab) withoutScripts() {
	p.t.Helper()
	p.plain = true
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
}

// stored returns an object as another node has it for a program with a key.
func stored(t *testing.T, c *harness.Cluster, key harness.Key, path string) harness.Response {
	t.Helper()
	got, err := c.Leader().S3(t.Context(), key.Token, http.MethodGet, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestFilesAreUploadedFoundAndShared: a person makes a bucket, uploads files and a folder, finds them, looks at one, downloads it,
// gives a friend a link to it, and deletes it.
func TestFilesAreUploadedFoundAndShared(t *testing.T) {
	const email = "fay@example.org"
	c, p := signedIn(t, email)
	key := c.Nodes[0].Key(email)
	dir := t.TempDir()
	photo := picturePNG(t)
	p.follow("Buckets")
	p.shows("There is no bucket yet")
	p.picture("buckets-empty")
	p.bucket("photos")
	p.picture("bucket-empty")
	p.choose(`[name=file]`, write(t, dir, "sunset.png", photo), write(t, dir, "notes.txt", []byte("By the sea.")))
	p.upload("2 stored.")
	p.shows("sunset.png")
	write(t, dir, "trip/day 1/map.txt", []byte("north"))
	write(t, dir, "trip/day 1/way.txt", []byte("east"))
	write(t, dir, "trip/plan.txt", []byte("south"))
	p.choose(`[name=folder]`, filepath.Join(dir, "trip"))
	p.upload("3 stored.")
	p.shows("trip/")
	p.picture("bucket")
	p.follow("trip/")
	p.shows("plan.txt")
	p.follow("day 1/")
	p.shows("map.txt")
	p.picture("bucket-folder")
	for path, want := range map[string]string{"/photos/trip/day%201/map.txt": "north", "/photos/trip/plan.txt": "south"} {
		if got := stored(t, c, key, path); string(got.Body) != want || got.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("%s is %q with %v", path, got.Body, got.Header)
		}
	}
	p.follow("photos")
	p.shows("sunset.png")
	p.follow("sunset.png")
	p.shows("BLAKE3")
	if width := ask(p, chromedp.Evaluate[int](`new Promise(done => { const i = document.querySelector('img.preview'); i.complete ? done(i.naturalWidth) : i.onload = () => done(i.naturalWidth) })`,
		chromedp.EvalAwaitPromise)); width != 320 {
		t.Errorf("the preview is %d px wide", width)
	}
	p.picture("object")
	if got := p.download(t, "Download"); !bytes.Equal(got, photo) {
		t.Errorf("the download has %d bytes, the file %d", len(got), len(photo))
	}
	p.visit(p.at())
	p.shows("Make download link")
	p.press("Make download link")
	p.shows("Everybody who has this link")
	p.picture("object-shared")
	link := p.text(`#share .value code`)
	answer, err := http.Get(link) //nolint:noctx // a friend, who has nothing else
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var shared bytes.Buffer
	if _, err := shared.ReadFrom(answer.Body); err != nil || answer.StatusCode != http.StatusOK || !bytes.Equal(shared.Bytes(), photo) {
		t.Errorf("the link %s of key %s is answered with %d, %v", link, key.ID, answer.StatusCode, err)
	}
	p.visit("/buckets/photos/object?key=sunset.png")
	p.changesMetadata(c.Leader(), key, "/photos/sunset.png")
	p.visit("/buckets/photos/object?key=sunset.png")
	p.press("Delete")
	p.press("Delete this object")
	p.shows("notes.txt")
	if text := p.text("#listing"); strings.Contains(text, "sunset.png") {
		t.Errorf("after it is deleted the list is %q", text)
	}
	p.follow("Overview")
	p.shows("Recent objects")
	if rows := strings.Join(strings.Fields(p.text("#objects tbody")), " "); !strings.HasPrefix(rows, "deleted sunset.png photos") || !strings.Contains(rows, "stored trip/plan.txt photos") {
		t.Errorf("lately there was %q", rows)
	}
	p.picture("overview")
	p.visit("/buckets/photos?prefix=" + strings.Repeat("a", 1000) + "%2F") // with which no key has room for the name of the file
	p.shows("Upload")
	p.choose(`[name=file]`, write(t, dir, "a-name-that-makes-the-key-longer.txt", []byte("x")))
	p.expect("400")
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error { // as without scripts
		_, err := chromedp.Evaluate[any](`document.querySelector('#upload form').submit()`)(ctx, t)
		return err
	}))
	p.shows("No file was stored")
	p.picture("files-failed")
	p.follow("Buckets")
	p.shows("New bucket")
	p.picture("buckets")
	p.deletesWhatIsChosen(t)
}

// deletesWhatIsChosen downloads the objects and the folder of the bucket as one ZIP file, and deletes them.
func (p *tab) deletesWhatIsChosen(t *testing.T) {
	t.Helper()
	p.follow("photos")
	p.shows("The chosen files:")
	p.click(`//thead//input[@data-all]`)
	p.picture("bucket-chosen")
	data := p.downloaded(t, func() { p.press("Download as ZIP") })
	in, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range in.File {
		names = append(names, f.Name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"notes.txt", "trip/day 1/map.txt", "trip/day 1/way.txt", "trip/plan.txt"}) {
		t.Errorf("the ZIP file has %q", names)
	}
	p.click(`//tr[td//a[normalize-space()="notes.txt"]]//input[@type="checkbox"]`) // not this one
	p.press("Delete")
	p.shows("Delete 3 objects?")
	p.picture("chosen")
	p.press("Delete")
	p.shows("notes.txt")
	if text := p.text("#listing"); strings.Contains(text, "trip/") {
		t.Errorf("after the folder is deleted the list is %q", text)
	}
}

// TestAnObjectIsRenamedTaggedAndRestored: a person keeps versions in a bucket, renames an object, tags it, and brings an older
// version back after a program has stored another one.
func TestAnObjectIsRenamedTaggedAndRestored(t *testing.T) {
	longForm(t)
	const email = "rena@example.org"
	c, p := signedIn(t, email)
	key := c.Nodes[0].Key(email)
	p.bucket("notes")
	p.press("Settings")
	p.press("Keep versions")
	p.shows("The bucket is empty")
	p.press("Settings")
	p.enter(`[name=origins]`, "https://app.example.org")
	p.click(`//form[contains(@action, "cors")]//button`)
	p.shows("The bucket is empty")
	p.press("Settings")
	p.picture("bucket-settings")
	p.choose(`[name=file]`, write(t, t.TempDir(), "draft.txt", []byte("first")))
	p.upload("1 stored.")
	p.follow("draft.txt")
	p.shows("Rename, move and tags")
	p.press("Rename, move and tags")
	p.enter(`[name=to]`, "essays/sea.txt")
	p.picture("object-rename")
	p.press("Rename or move")
	p.shows("essays/sea.txt")
	p.press("Rename, move and tags")
	p.enter(`[name=tags]`, "draft=yes")
	p.press("Save tags")
	p.shows("draft: yes")
	n := c.Leader()
	if _, err := n.S3(t.Context(), key.Token, http.MethodPut, "/notes/essays/sea.txt", strings.NewReader("second"), 6); err != nil {
		t.Fatal(err)
	}
	p.visit(p.at())
	p.click(`//h2[text()="Versions"]/following-sibling::table//tr[td][2]//a`)
	p.shows("Restore this version")
	p.picture("object-version")
	p.press("Restore this version")
	p.shows("draft: yes")
	if got := stored(t, c, key, "/notes/essays/sea.txt"); string(got.Body) != "first" {
		t.Errorf("the object is %q", got.Body)
	}
	if got := stored(t, c, key, "/notes/draft.txt"); got.Status != http.StatusNotFound {
		t.Errorf("under the old key there is %d %q", got.Status, got.Body)
	}
}

// changesMetadata changes the headers and the metadata of the object on the page, and fails to do so on a
// page of a version that a program has replaced meanwhile.
func (p *tab) changesMetadata(n *harness.Node, key harness.Key, path string) {
	p.t.Helper()
	p.shows("Change metadata")
	p.press("Change metadata")
	p.enter(`[name=Cache-Control]`, "max-age=60")
	p.enter(`[name=meta]`, "author=Ada")
	p.picture("object-metadata")
	p.press("Save metadata")
	p.shows("author: Ada")
	got, err := n.S3(p.t.Context(), key.Token, http.MethodHead, path, nil, 0)
	if err != nil || got.Header.Get("X-Amz-Meta-Author") != "Ada" || got.Header.Get("Cache-Control") != "max-age=60" || got.Header.Get("Content-Type") != "image/png" {
		p.t.Errorf("the object has %v, %v", got.Header, err)
	}
	p.press("Change metadata")
	p.enter(`[name=meta]`, "author=Bob")
	if _, err := n.S3(p.t.Context(), key.Token, http.MethodPut, path, strings.NewReader("meanwhile"), 9); err != nil {
		p.t.Fatal(err)
	}
	p.expect("409")
	p.press("Save metadata")
	p.shows("The object has changed since you opened this page")
	p.picture("object-metadata-refused")
}

// download follows a link to a download and returns what the browser has saved.
func (p *tab) download(t *testing.T, text string) []byte {
	t.Helper()
	return p.downloaded(t, func() { p.follow(text) })
}

// downloaded returns the file that the browser has after a step that begins its download.
func (p *tab) downloaded(t *testing.T, begin func()) []byte {
	t.Helper()
	dir := t.TempDir()
	events := true
	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	progress := chromedp.Events(ctx, downloads.DownloadProgress)
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Call(ctx, downloads.SetDownloadBehavior, downloads.SetDownloadBehaviorParams{
			Behavior: downloads.SetDownloadBehaviorBehaviorAllowAndName, BrowserContextID: chromedp.FromContext(p.browser.ctx).BrowserContextID, DownloadPath: dir, EventsEnabled: &events,
		})
		return err
	}))
	begin()
	for e, err := range progress {
		if err != nil {
			t.Fatal(err)
		}
		if e.State != downloads.DownloadProgressStateCompleted {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.GUID))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	t.Fatal("there is no download")
	return nil
}

// TestALargeFileIsPausedResumedAndCancelled: a large file goes in parts. It is paused and resumed, and one that is cancelled leaves nothing.
func TestALargeFileIsPausedResumedAndCancelled(t *testing.T) {
	longForm(t)
	const email = "lars@example.org"
	c, p := signedIn(t, email)
	key := c.Nodes[0].Key(email)
	dir := t.TempDir()
	data := noise(80 << 20)
	large := write(t, dir, "film.bin", data)
	p.bucket("films")
	p.slow(8 << 20)
	p.choose(`[name=file]`, large)
	p.upload("1 file left")
	p.press("Pause")
	p.shows("1 file left, paused")
	p.picture("upload-paused")
	if got := stored(t, c, key, "/films/film.bin"); got.Status != http.StatusNotFound {
		t.Errorf("while it is paused the object is answered with %d", got.Status)
	}
	p.slow(0)
	p.press("Resume")
	p.shows("1 stored.")
	got := stored(t, c, key, "/films/film.bin")
	if !bytes.Equal(got.Body, data) || !strings.HasSuffix(got.Header.Get("Etag"), `-5"`) {
		t.Errorf("the object has %d bytes and the ETag %s", len(got.Body), got.Header.Get("Etag"))
	}
	p.slow(8 << 20)
	p.choose(`[name=file]`, write(t, dir, "other.bin", data))
	p.upload("1 file left")
	p.press("Cancel")
	p.shows("0 stored, 1 not stored:")
	p.picture("upload-cancelled")
	if got := stored(t, c, key, "/films?uploads"); strings.Contains(string(got.Body), "<Upload>") {
		t.Errorf("after it is cancelled there is %s", got.Body)
	}
}

// TestFilesAreUploadedWithoutScripts: without scripts the form sends files and folders by itself.
func TestFilesAreUploadedWithoutScripts(t *testing.T) {
	longForm(t)
	const email = "noa@example.org"
	c, p := signedIn(t, email)
	key := c.Nodes[0].Key(email)
	dir := t.TempDir()
	p.bucket("photos")
	p.withoutScripts()
	p.visit("/buckets/photos")
	p.choose(`[name=file]`, write(t, dir, `a "b".txt`, []byte("ab")))
	write(t, dir, "trip/day 1/map.txt", []byte("north"))
	p.choose(`[name=folder]`, filepath.Join(dir, "trip"))
	p.click(`//section[@id="upload"]//button[normalize-space()="Upload"]`)
	p.do(chromedp.WaitVisible(`//a[normalize-space()="trip/"]`))
	for path, want := range map[string]string{"/photos/a%20%22b%22.txt": "ab", "/photos/trip/day%201/map.txt": "north"} {
		if got := stored(t, c, key, path); string(got.Body) != want {
			t.Errorf("%s is answered with %d %q", path, got.Status, got.Body)
		}
	}
}

// silence returns a second of sound, as a WAV file.
func silence() []byte {
	const rate = 8000 // samples a second, of a byte each
	var b bytes.Buffer
	b.WriteString("RIFF")
	for _, v := range []any{
		uint32(36 + rate), []byte("WAVEfmt "), uint32(16), uint16(1), uint16(1), uint32(rate), uint32(rate), uint16(1), uint16(8), []byte("data"), uint32(rate),
		bytes.Repeat([]byte{128}, rate),
	} {
		_ = binary.Write(&b, binary.LittleEndian, v) // a buffer takes all
	}
	return b.Bytes()
}

// drop drags files and folders onto the page.
func (p *tab) drop(files ...string) {
	p.t.Helper()
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for _, kind := range []input.DispatchDragEventType{input.DispatchDragEventTypeDragEnter, input.DispatchDragEventTypeDragOver, input.DispatchDragEventTypeDrop} {
			data := &input.DragData{Items: []*input.DragDataItem{}, Files: files, DragOperationsMask: 1}
			if _, err := cdp.Call(ctx, t, input.DispatchDragEvent, input.DispatchDragEventParams{Type: kind, X: 700, Y: 300, Data: data}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestWhatIsDroppedIsUploadedAndShown: files and folders that are dropped on the page are uploaded. Sound is played on the page of
// its object, and text is shown in a page of its own.
func TestWhatIsDroppedIsUploadedAndShown(t *testing.T) {
	const email = "dov@example.org"
	_, p := signedIn(t, email)
	dir := t.TempDir()
	p.bucket("media")
	write(t, dir, "trip/notes.txt", []byte("By the sea."))
	p.drop(write(t, dir, "waves.wav", silence()), filepath.Join(dir, "trip"))
	p.shows("2 stored.")
	p.shows("waves.wav")
	p.follow("waves.wav")
	p.shows("BLAKE3")
	seconds := ask(p, chromedp.Evaluate[float64](`new Promise((done, failed) => {
		const sound = document.querySelector('audio')
		sound.onerror = failed
		sound.onloadedmetadata = () => done(sound.duration)
		if (sound.duration > 0) done(sound.duration)
	})`, chromedp.EvalAwaitPromise))
	if seconds != 1 {
		t.Errorf("the sound is %g s long", seconds)
	}
	p.picture("object-sound")
	p.visit("/buckets/media/object?key=trip%2Fnotes.txt")
	p.shows("Open in a new tab")
	p.visit("/buckets/media/preview?key=trip%2Fnotes.txt")
	p.shows("By the sea.")
}
