//go:build conformance

package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"lukechampine.com/blake3"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// sharer is an account with encrypted files, which it shares by links.
type sharer struct {
	t        *testing.T
	c        *harness.Cluster
	key      harness.Key
	identity *seal.Identity
	env      []string // of the commands
}

const passphrase = "correct horse"

// newSharer makes an account, and stores the files below a folder encrypted under trip/ of its bucket albums.
func newSharer(t *testing.T, c *harness.Cluster, email, dir string) *sharer {
	t.Helper()
	c.Nodes[0].CLIWithInput(password, "user", "add", email, "--password-stdin")
	s := &sharer{t: t, c: c, key: c.Nodes[0].Key(email)}
	home := t.TempDir()
	file := filepath.Join(home, "identity")
	s.env = []string{
		"HOME=" + home, "HOLDFAST_ENDPOINT=" + c.Nodes[0].S3URL(), "HOLDFAST_TOKEN=" + s.key.Token,
		"HOLDFAST_IDENTITY=" + file, "HOLDFAST_IDENTITY_COMMAND=echo " + passphrase,
	}
	s.s3(http.MethodPut, "/albums", nil)
	s.run("keygen", file, "--passphrase-file", write(t, home, "passphrase", []byte(passphrase+"\n")))
	s.run("sync", "--encrypt", dir, "s3://albums/trip")
	text, err := os.ReadFile(file)
	if err == nil {
		s.identity, err = seal.OpenIdentity(text, []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a command of the account, which has to succeed, and returns its output.
func (s *sharer) run(args ...string) string {
	s.t.Helper()
	r := harness.Run(s.t, s.env, "", args...)
	if r.Code != 0 {
		s.t.Fatalf("holdfast %q: %s", args, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// s3 sends a request of the account to the gateway, which has to accept it.
func (s *sharer) s3(method, path string, body []byte, headers ...string) harness.Response {
	s.t.Helper()
	r, err := s.c.Nodes[0].S3(s.t.Context(), s.key.Token, method, path, bytes.NewReader(body), int64(len(body)), headers...)
	if err != nil || r.Status/100 != 2 {
		s.t.Fatalf("%s %s: %d %s %v", method, path, r.Status, r.Body, err)
	}
	return r
}

// access returns a token that reads all ciphertext of the bucket.
func (s *sharer) access() string {
	s.t.Helper()
	body := s.s3(http.MethodPut, fmt.Sprintf("/albums?share=%032x", 1), []byte(`{"prefixes":["e/","x/"],"read":true}`)).Body
	var made struct{ Token string }
	if err := json.Unmarshal(body, &made); err != nil || made.Token == "" {
		s.t.Fatalf("the share is %s, %v", body, err)
	}
	return made.Token
}

// link returns a link to a folder or file, as path and fragment of a console.
func (s *sharer) link(path, access string, change func(*seal.Share)) string {
	s.t.Helper()
	share := seal.Share{Bucket: "albums", PathScope: path, Permissions: seal.ReadOnly(), Expires: time.Now().Add(time.Hour)}
	if change != nil {
		change(&share)
	}
	l, err := s.identity.NewLink("https://console.example/shared", access, share)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimPrefix(l.URL(), "https://console.example")
}

// openLink opens a link as from a message, and not from another link on the page.
func (p *tab) openLink(link string) {
	p.t.Helper()
	p.do(chromedp.Navigate("about:blank"))
	p.visit(link)
}

// rowButton clicks a button in the row of a file.
func (p *tab) rowButton(file, button string) {
	p.t.Helper()
	p.click(`//tr[td[1][normalize-space()="` + file + `"]]//button[normalize-space()="` + button + `"]`)
}

// storageKey returns the storage key of the object that the tab read last.
func (p *tab) storageKey() string {
	p.t.Helper()
	for _, sent := range slices.Backward(p.requests()) {
		if _, key, ok := strings.Cut(sent, "/api/v1/shared/albums/"); ok {
			key, _, _ = strings.Cut(key, " ")
			return key
		}
	}
	p.t.Fatal("no object was read")
	return ""
}

// TestAFolderIsSharedByALink: somebody without an account opens a link at another node, goes through the folder, looks at files
// and downloads them. The node learns no name, no path and no key. Changed bytes are not handed on, and after the access was
// revoked the link opens nothing.
func TestAFolderIsSharedByALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const markup = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
	photo, film := picturePNG(t), noise(3<<20+17)
	for name, data := range map[string][]byte{
		"sunset.png": photo, "film.bin": film, "notes.txt": []byte("By the sea."), "page.html": []byte(markup), "fake.png": []byte(markup),
		"empty.bin": nil, "guide.pdf": minimalPDF, "day 1/map.txt": []byte("north"), "day 1/evening/song ü.txt": []byte("la"), "day 2/way.txt": []byte("east"),
	} {
		write(t, dir, "vacation/"+name, data)
	}
	write(t, dir, "private.txt", []byte("not shared"))
	b := startBrowser(t)
	c := commonCluster(t)
	s := newSharer(t, c, "fred@example.org", dir)
	p := b.open(t, c.Followers()[1].ConsoleURL())
	link := strings.TrimPrefix(s.run("share", "create", "s3://albums/trip/vacation", "--link", "--expires", "1d", "--console", p.base), p.base)
	p.openLink(link)
	p.shows("2 folders, 7 files")
	if owner := p.text("[data-owner]"); owner != s.identity.Public().String() {
		t.Errorf("the owner is %q", owner)
	}
	if text := p.text("main"); !strings.Contains(text, "/trip/vacation") || !strings.Contains(text, "3 MiB") || strings.Contains(text, "private") {
		t.Errorf("the page shows %q", text)
	}
	p.picture("shared")
	for name, want := range map[string][]byte{"film.bin": film, "notes.txt": []byte("By the sea."), "empty.bin": {}} {
		if got := p.downloaded(t, func() { p.rowButton(name, "Download") }); !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, the file %d", name, len(got), len(want))
		}
	}
	p.press("sunset.png")
	if width := ask(p, chromedp.Evaluate[int](`new Promise(done => { const look = () => { const i = document.querySelector('dialog img'); i ? done(i.naturalWidth) : setTimeout(look, 50) }; look() })`,
		chromedp.EvalAwaitPromise)); width != 320 {
		t.Errorf("the preview is %d px wide", width)
	}
	p.picture("shared-preview")
	p.press("Close")
	p.press("page.html")
	p.shows("onerror")
	if text, title := p.text("dialog pre"), ask(p, chromedp.Title()); text != markup || title != "vacation" {
		t.Errorf("the page shows %q with the title %q", text, title)
	}
	p.press("Close")
	p.press("fake.png")
	p.shows("The browser cannot show this file.")
	p.press("Close")
	p.press("guide.pdf")
	p.shows("Open in the PDF viewer")
	p.follow("Open in the PDF viewer of the browser")
	p.leavesOther("blob:" + p.base)
	p.press("Close")
	p.computesAsOthers()
	p.goesThroughFolders()
	p.savesLargeFiles(film)
	p.tellsNothing(t, c, link)
	p.refusesDamage(s, film)
	p.expect("401")
	s.run("share", "revoke", p.base+link)
	p.rowButton("notes.txt", "Download")
	p.shows("The owner has revoked this share")
	p.openLink(link)
	p.shows("Ask the owner for a new link.")
	if text := p.text("main"); strings.Contains(text, "Valid until") {
		t.Errorf("the page of a share that was revoked shows %q", text)
	}
	p.picture("shared-revoked")
}

// TestAFileIsSharedByALink: a link to one file shows and opens this file, and its access token reads no other object.
func TestAFileIsSharedByALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "notes.txt", []byte("By the sea."))
	write(t, dir, "private.txt", []byte("not shared"))
	b := startBrowser(t)
	c := commonCluster(t)
	s := newSharer(t, c, "finn@example.org", dir)
	key, err := s.identity.StorageKey(seal.DeterministicHash, "/trip/notes.txt")
	if err != nil {
		t.Fatal(err)
	}
	header, err := seal.FindHeader(s.s3(http.MethodGet, "/albums/"+key, nil).Header.Get)
	if err != nil {
		t.Fatal(err)
	}
	content, err := seal.Open(s.identity, header, key, seal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data := content.DataKey()
	p := b.open(t, c.Nodes[0].ConsoleURL())
	link := strings.TrimPrefix(s.run("share", "create", "s3://albums/trip/notes.txt", "--link", "--console", p.base), p.base)
	p.openLink(link)
	p.shows("1 file")
	if text := p.text("main"); !strings.Contains(text, "11 B") || !strings.Contains(text, "the owner revokes it") {
		t.Errorf("the page shows %q", text)
	}
	p.picture("shared-file")
	if got := p.downloaded(t, func() { p.rowButton("notes.txt", "Download") }); string(got) != "By the sea." {
		t.Errorf("the file has %q", got)
	}
	values, err := url.ParseQuery(link)
	if err != nil {
		t.Fatal(err)
	}
	p.expect("403")
	p.openLink(s.link("/trip", values.Get("a"), nil))
	p.shows("The owner has revoked this share, or its access has ended.")
	one := func(x *seal.Share) { x.Object, x.StorageKey = &data, key }
	p.openLink(s.link("/trip/private.txt", s.key.Token, one)) // another path than that of the object
	p.shows("answered with another file")
}

// computesAsOthers compares BLAKE3 of the page with another implementation, at the lengths of its published
// vectors, and HPKE with the vector of RFC 9180, appendix A.2.1.
func (p *tab) computesAsOthers() {
	p.t.Helper()
	const module = `await import(document.querySelector('script[src$="shared.js"]').src.replace('shared.js', '%s'))`
	const hexadecimal = `const hex = (b) => [...b].map(x => x.toString(16).padStart(2, '0')).join('')
		const bytes = (s) => Uint8Array.from(s.match(/../g), x => parseInt(x, 16))`
	lengths := []int{
		0, 1, 2, 3, 4, 5, 6, 7, 8, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 2048, 2049, 3072, 3073, 4096, 4097, 5120, 5121, 6144, 6145,
		7168, 7169, 8192, 8193, 16384, 31744, 102400,
	}
	got := ask(p, chromedp.Evaluate[[]string](fmt.Sprintf(`(async () => {
		const { hash, derive } = %s
		%s
		return %s.flatMap(n => {
			const input = Uint8Array.from({ length: n }, (_, i) => i %% 251)
			return [hex(hash(input)), hex(hash(input.subarray(0, n >> 1), input.subarray(n >> 1))), hex(derive('holdfast test', input))]
		})
	})()`, fmt.Sprintf(module, "blake3.js"), hexadecimal, strings.Join(strings.Fields(fmt.Sprint(lengths)), ",")), chromedp.EvalAwaitPromise))
	for i, n := range lengths {
		input := make([]byte, n)
		for j := range input {
			input[j] = byte(j % 251)
		}
		var derived [32]byte
		blake3.DeriveKey(derived[:], "holdfast test", input)
		sum := fmt.Sprintf("%x", blake3.Sum256(input))
		if want := []string{sum, sum, fmt.Sprintf("%x", derived)}; !slices.Equal(got[3*i:3*i+3], want) {
			p.t.Errorf("BLAKE3 of %d bytes is %s, not %s", n, got[3*i:3*i+3], want)
		}
	}
	plain := ask(p, chromedp.Evaluate[string](fmt.Sprintf(`(async () => {
		const { importX25519, openKey } = %s
		%s
		const recipient = await importX25519(bytes('8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb'))
		const sealed = bytes('1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28')
		const open = (sealed) => openKey(recipient, bytes('1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a'), sealed,
			bytes('4f6465206f6e2061204772656369616e2055726e'), bytes('436f756e742d30'))
		const opened = hex(await open(sealed))
		for (const i of sealed.keys()) {
			const changed = sealed.with(i, sealed[i] ^ 1)
			if (await open(changed).then(() => true, () => false)) return 'byte ' + i + ' may change'
		}
		return opened
	})()`, fmt.Sprintf(module, "hpke.js"), hexadecimal), chromedp.EvalAwaitPromise))
	if want := "4265617574792069732074727574682c20747275746820626561757479"; plain != want {
		p.t.Errorf("HPKE gives %s, not %s", plain, want)
	}
}

// leavesOther waits for another tab, whose URL begins with a prefix, and comes back to this one: a tab behind
// another takes no clicks.
func (p *tab) leavesOther(prefix string) {
	p.t.Helper()
	harness.Eventually(p.t, stepTimeout, "another tab is open", func() (bool, error) {
		targets := ask(p, func(ctx context.Context, _ *chromedp.Target) (target.GetTargetsResult, error) {
			return chromedp.Call(ctx, target.GetTargets, target.GetTargetsParams{})
		})
		for _, x := range targets.TargetInfos {
			if x.Type == "page" && strings.HasPrefix(x.URL, prefix) {
				p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
					_, err := cdp.Call(ctx, t, page.BringToFront, cdp.Empty{})
					return err
				}))
				return true, nil
			}
		}
		return false, nil
	})
}

// minimalPDF is an empty page.
var minimalPDF = []byte("%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj " +
	"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]>>endobj\ntrailer<</Root 1 0 R>>\n")

// savesLargeFiles downloads film.bin as one that is too large for the memory: it goes to a file, which
// the person chooses and here the test, and without such files the page refuses it.
func (p *tab) savesLargeFiles(film []byte) {
	p.t.Helper()
	ask(p, chromedp.Evaluate[bool](`(async () => {
		document.querySelector('.shared').dataset.memory = 1048576
		const folder = await navigator.storage.getDirectory()
		window.chosen = await folder.getFileHandle('film.bin', { create: true })
		window.showSaveFilePicker = async ({ suggestedName }) => suggestedName === 'film.bin' && window.chosen
		return true
	})()`, chromedp.EvalAwaitPromise))
	p.rowButton("film.bin", "Download")
	p.shows("Saved and checked")
	if got, want := p.chosen(), fmt.Sprintf("%d %x", len(film), sha256.Sum256(film)); got != want {
		p.t.Errorf("the file is %s, not %s", got, want)
	}
	ask(p, chromedp.Evaluate[bool](`(window.picker = window.showSaveFilePicker, window.showSaveFilePicker = undefined, true)`))
	p.rowButton("film.bin", "Download")
	p.shows("can save files of at most 1 MiB")
	ask(p, chromedp.Evaluate[bool](`(window.showSaveFilePicker = window.picker, document.querySelector('.shared').dataset.memory = 268435456, true)`))
}

// chosen tells the size and the SHA-256 of the file that the test has chosen.
func (p *tab) chosen() string {
	p.t.Helper()
	return ask(p, chromedp.Evaluate[string](`(async () => {
		const file = await (await window.chosen.getFile()).arrayBuffer()
		const sum = new Uint8Array(await crypto.subtle.digest('SHA-256', file))
		return file.byteLength + ' ' + [...sum].map(b => b.toString(16).padStart(2, '0')).join('')
	})()`, chromedp.EvalAwaitPromise))
}

// goesThroughFolders opens subfolders and comes back, by the page and by the history of the browser.
func (p *tab) goesThroughFolders() {
	p.t.Helper()
	p.press("day 1/")
	p.shows("1 folder, 1 file")
	p.press("evening/")
	p.shows("song ü.txt")
	if text := p.text("main"); strings.Contains(text, "Shared by") {
		p.t.Errorf("the page of a folder below the shared one shows %q", text)
	}
	p.picture("shared-folder")
	if got := p.downloaded(p.t, func() { p.rowButton("song ü.txt", "Download") }); string(got) != "la" {
		p.t.Errorf("the file has %q", got)
	}
	at := p.at()
	p.press("day 1")
	p.shows("map.txt")
	if p.at() != at {
		p.t.Error("the address has changed with the folder")
	}
	ask(p, chromedp.Evaluate[bool](`(history.back(), true)`)) // chromedp.NavigateBack waits for a page to load
	p.shows("song ü.txt")
	p.press("vacation")
	p.shows("2 folders, 7 files")
	p.shows("Shared by")
}

// tellsNothing promises that no request and no log of a node has a secret of the link or a name, and
// that nothing beside the access token leaves the tab.
func (p *tab) tellsNothing(t *testing.T, c *harness.Cluster, link string) {
	t.Helper()
	_, fragment, _ := strings.Cut(link, "#")
	values, err := url.ParseQuery(fragment)
	if err != nil {
		t.Fatal(err)
	}
	key, err := base64.RawURLEncoding.DecodeString(values.Get("k"))
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{values.Get("k"), fmt.Sprintf("%x", key), values.Get("t"), "vacation", "sunset", "evening", "song"}
	requests := p.requests()
	if len(requests) < 10 {
		t.Fatalf("there are only the requests %q", requests)
	}
	for _, secret := range secrets {
		for _, sent := range requests {
			if strings.Contains(sent, secret) {
				t.Errorf("the request %s has %s", sent, secret)
			}
		}
		for _, n := range c.Nodes {
			if strings.Contains(n.Log(), secret) {
				t.Errorf("the log of a node has %s", secret)
			}
		}
	}
	for _, sent := range requests {
		if strings.Contains(sent, "Cookie:") || strings.Contains(sent, "Referer:http") {
			t.Errorf("the request is %s", sent)
		}
	}
	for _, n := range c.Nodes {
		if strings.Contains(n.Log(), values.Get("a")) {
			t.Error("the log of a node has the access token")
		}
	}
}

// refusesDamage changes what the nodes have of film.bin, and promises that no byte of it is handed on.
func (p *tab) refusesDamage(s *sharer, film []byte) {
	p.t.Helper()
	if got := p.downloaded(p.t, func() { p.rowButton("film.bin", "Download") }); !bytes.Equal(got, film) {
		p.t.Fatal("the file differs before it was changed")
	}
	path := "/albums/" + p.storageKey()
	whole := s.s3(http.MethodGet, path, nil)
	var meta []string
	for _, name := range []string{seal.HeaderEncrypted, seal.HeaderEncryption} {
		meta = append(meta, name, whole.Header.Get(name))
	}
	for _, tc := range []struct {
		change func(data []byte) []byte
		tells  string
	}{
		{func(data []byte) []byte { data[len(data)-100] ^= 1; return data }, "its content was changed"},
		{func(data []byte) []byte { return data[:len(data)-1] }, "its end is missing"},
		{func(data []byte) []byte { return append(data, 0) }, "it has more data behind its end"},
	} {
		s.s3(http.MethodPut, path, tc.change(bytes.Clone(whole.Body)), meta...)
		p.rowButton("film.bin", "Download")
		p.shows(tc.tells)
	}
	p.picture("shared-damaged")
	before := p.chosen()
	ask(p, chromedp.Evaluate[bool](`!!(document.querySelector('.shared').dataset.memory = 1048576)`))
	s.s3(http.MethodPut, path, whole.Body[:len(whole.Body)-1], meta...)
	p.rowButton("film.bin", "Download")
	p.shows("its end is missing")
	if got := p.chosen(); got != before {
		p.t.Errorf("after the refusal the file is %s, not %s", got, before)
	}
	s.s3(http.MethodPut, path, whole.Body, seal.HeaderEncrypted, "true", seal.HeaderEncryption, strings.Replace(meta[3], `"version":4`, `"version":9`, 1))
	p.rowButton("film.bin", "Download")
	p.shows("does not know the version")
	s.s3(http.MethodPut, path, whole.Body)
	p.rowButton("film.bin", "Download")
	p.shows("without encryption")
}

// TestALargeFolderIsSharedByALink: a folder whose names fill several objects of the index is listed as a whole, a part of it at once.
func TestALargeFolderIsSharedByALink(t *testing.T) {
	longForm(t)
	t.Parallel()
	const names = 1100 // an object of an index has at most 1,024
	dir := t.TempDir()
	for i := range names {
		write(t, dir, fmt.Sprintf("frames/%d.txt", i), fmt.Appendf(nil, "frame %d", i))
	}
	b := startBrowser(t)
	c := commonCluster(t)
	s := newSharer(t, c, "lara@example.org", dir)
	p := b.open(t, c.Nodes[0].ConsoleURL())
	link := s.run("share", "create", "s3://albums/trip/frames", "--link", "--console", p.base)
	p.openLink(strings.TrimPrefix(link, p.base))
	p.shows("1,100 files")
	rows := func() []string {
		return ask(p, chromedp.Evaluate[[]string](`[...document.querySelectorAll('tbody tr td:first-child')].map(e => e.textContent)`))
	}
	if shown := rows(); len(shown) != 500 || shown[0] != "0.txt" || shown[499] != "499.txt" {
		t.Errorf("%d rows are shown: %q", len(shown), shown)
	}
	p.press("Show more")
	p.press("Show more")
	for i, name := range rows() {
		if name != fmt.Sprintf("%d.txt", i) {
			t.Fatalf("row %d is %s", i, name)
		}
	}
	if visible := ask(p, chromedp.Evaluate[bool](`document.querySelector('[data-more]').checkVisibility()`)); visible || len(rows()) != names {
		t.Errorf("%d rows are shown, and there are more: %t", len(rows()), visible)
	}
	if got := p.downloaded(t, func() { p.rowButton("1099.txt", "Download") }); string(got) != "frame 1099" {
		t.Errorf("the file has %q", got)
	}
}

// TestShareLinksThatOpenNothing: each link that cannot be opened says why in a sentence of its own, and nothing is asked of the node.
func TestShareLinksThatOpenNothing(t *testing.T) {
	longForm(t)
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "notes.txt", []byte("By the sea."))
	write(t, dir, "day/map.txt", []byte("north"))
	b := startBrowser(t)
	c := commonCluster(t)
	s := newSharer(t, c, "nils@example.org", dir)
	p := b.open(t, c.Nodes[0].ConsoleURL())
	access := s.access()
	good := s.link("/trip", access, nil)
	part := func(name string) string {
		_, value, _ := strings.Cut(good, "&"+name+"=")
		value, _, _ = strings.Cut(value, "&")
		return value
	}
	without := func(name string) string { return strings.Replace(good, "&"+name+"="+part(name), "", 1) }
	other, err := seal.Generate()
	if err != nil {
		t.Fatal(err)
	}
	foreign := &sharer{t: t, c: c, key: s.key, identity: other}
	_, otherKey, _ := strings.Cut(foreign.link("/trip", access, nil), "&k=")
	otherKey, _, _ = strings.Cut(otherKey, "&")
	token, err := base64.RawURLEncoding.DecodeString(part("t"))
	if err != nil {
		t.Fatal(err)
	}
	wider := base64.RawURLEncoding.EncodeToString(bytes.Replace(token, []byte(`"path_scope":"/trip"`), []byte(`"path_scope":"/"`), 1))
	for name, tc := range map[string]struct{ link, tells string }{
		"no fragment":   {"/shared", "This link is damaged."},
		"cut":           {strings.Replace(good[:strings.Index(good, "&a=")-30], "&a=", "", 1), "This link is damaged."},
		"no token":      {without("t"), "This link is damaged."},
		"version":       {strings.Replace(good, "#v=1", "#v=3", 1), "does not know the version of this share"},
		"plain version": {strings.Replace(good, "#v=1", "#v=2", 1), "This link is damaged"},
		"no key":        {without("k"), "holdfast share open --from " + s.identity.Public().String()},
		"no key, cut":   {strings.Replace(without("k"), part("t"), part("t")[:40], 1), "This link is damaged."},
		"changed":       {strings.Replace(good, part("t"), wider, 1), "This link was changed on its way"},
		"another key":   {strings.Replace(good, part("k"), otherKey, 1), "does not belong to the share"},
		"not yet":       {s.link("/trip", access, func(x *seal.Share) { x.Created = time.Now().Add(10 * time.Minute) }), "is not valid before"},
		"expired":       {s.link("/trip", access, func(x *seal.Share) { x.Created, x.Expires = time.Now().Add(-time.Hour), time.Now().Add(-2*time.Minute) }), "has expired on"},
		"no permission": {s.link("/trip", access, func(x *seal.Share) { x.Permissions = seal.Permissions{Write: true} }), "does not permit reading"},
		"no access":     {without("a"), "has no access to the stored files"},
		"no bucket":     {s.link("/trip", access, func(x *seal.Share) { x.Bucket = "" }), "does not say where"},
	} {
		before := len(p.requests())
		p.openLink(tc.link)
		p.shows(tc.tells)
		if visible := ask(p, chromedp.Evaluate[bool](`document.querySelector('[data-share]').checkVisibility()`)); visible {
			t.Errorf("%s: the page shows a share", name)
		}
		for _, sent := range p.requests()[before:] {
			if strings.Contains(sent, "/api/") {
				t.Errorf("%s: the page sent %s", name, sent)
			}
		}
		if name == "no key" {
			p.picture("shared-identity")
		}
	}
	p.expect("404")
	p.openLink(s.link("/nothing", access, nil))
	p.shows("This folder is empty.")
	p.do(chromedp.Navigate(p.base + good)) // another link in the same tab
	p.shows("notes.txt")
	p.refusesIndexes()
	p.opensTheLastLink(good, s.link("/trip/day", access, nil))
	p.cancelsLargeAnswers(s, good)
	p.withoutScripts()
	p.openLink(good)
	p.shows("needs JavaScript")
}

// refusesIndexes promises that an index of names that the Go reader refuses is refused here too: a name
// twice, names that are not in the order of their bytes, and parts that lead in circles.
func (p *tab) refusesIndexes() {
	p.t.Helper()
	got := ask(p, chromedp.Evaluate[[]string](`(async () => {
		const of = (name) => import(document.querySelector('script[src$="shared.js"]').src.replace('shared.js', name))
		const { listFolder } = await of('seal.js')
		const { derive } = await of('blake3.js')
		const share = { key: new Uint8Array(32).fill(7), scope: '/', bucket: 'b', prefix: '' }
		const key = await crypto.subtle.importKey('raw', derive('holdfast index-key v1', share.key), 'AES-GCM', false, ['encrypt'])
		const text = (s) => new TextEncoder().encode(s)
		async function seal(node, id) {
			const iv = new Uint8Array(12)
			const sealed = await crypto.subtle.encrypt({ name: 'AES-GCM', iv, additionalData: text('holdfast:index:v1:b:' + id + ':/') }, key, text(JSON.stringify(node)))
			return new Uint8Array([...text('hfindex1'), ...iv, ...new Uint8Array(sealed)])
		}
		const entries = (...names) => ({ version: 1, entries: names.map((name) => ({ name, key: 'e/1', size: 0 })) })
		const split = { version: 1, split: '00'.repeat(16) }
		const read = (root, rest) => listFolder(share, '/', (k) => seal(k.endsWith('/root') ? root : rest, k.split('/').at(-1)))
			.then((list) => list.map((e) => e.name).join(), (err) => err.kind ?? String(err))
		return Promise.all([
			read(entries('a', 'b', '\uffee', '\u{10000}')), read(entries('a', 'ab')), read(entries('a', 'a')), read(entries('b', 'a')), read(entries('ab', 'a')),
			read(entries('\u{10000}', '\uffee')), read(split, { version: 1 }), read(split, split)
		])
	})()`, chromedp.EvalAwaitPromise))
	if want := []string{"\uffee,a,b,\U00010000", "a,ab", "index", "index", "index", "index", "", "index"}; !slices.Equal(got, want) {
		p.t.Errorf("indexes are read as %q, not %q", got, want)
	}
}

// opensTheLastLink promises that a link which is opened while another one is being opened is the one that
// the page shows, although the first one is ready later.
func (p *tab) opensTheLastLink(first, second string) {
	p.t.Helper()
	fragment := func(link string) string {
		_, after, _ := strings.Cut(link, "#")
		return strconv.Quote(after)
	}
	ask(p, chromedp.Evaluate[bool](fmt.Sprintf(`(async () => {
		const verify = crypto.subtle.verify
		const gate = new Promise((open) => { window.release = open })
		const reached = new Promise((done) => {
			crypto.subtle.verify = async function (...args) {
				crypto.subtle.verify = verify
				done()
				await gate
				return verify.apply(crypto.subtle, args)
			}
		})
		const encode = TextEncoder.prototype.encode // of the path, the last step before a link is open
		window.opened = new Promise((done) => {
			TextEncoder.prototype.encode = function (s) {
				if (s === '/trip') setTimeout(done)
				return encode.call(this, s)
			}
		})
		location.hash = %s + '&again'
		await reached
		location.hash = %s
		return true
	})()`, fragment(first), fragment(second)), chromedp.EvalAwaitPromise))
	p.shows("map.txt")
	if name := ask(p, chromedp.Evaluate[string](`(window.release(), window.opened.then(() => document.querySelector('[data-name]').textContent))`, chromedp.EvalAwaitPromise)); name != "day" {
		p.t.Errorf("the page shows %q of the link that was opened first", name)
	}
}

// cancelsLargeAnswers promises that the request of an index that is too large ends with its refusal.
func (p *tab) cancelsLargeAnswers(s *sharer, link string) {
	p.t.Helper()
	p.openLink(link)
	p.shows("notes.txt")
	s.s3(http.MethodPut, "/albums/"+p.storageKey(), noise(3<<20))
	_, fragment, _ := strings.Cut(link, "#")
	ask(p, chromedp.Evaluate[bool](fmt.Sprintf(`(() => {
		const real = window.fetch
		window.signals = []
		window.fetch = (url, options) => {
			window.signals.push(options.signal)
			return real(url, options)
		}
		location.hash = %s
		return true
	})()`, strconv.Quote(fragment+"&again"))))
	p.shows("The list of names is damaged")
	if ended := ask(p, chromedp.Evaluate[string](`String(window.signals.map((s) => s.aborted))`)); ended != "true" {
		p.t.Errorf("the requests have ended: %s", ended)
	}
}
