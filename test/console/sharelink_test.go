//go:build conformance

package console

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestAFolderIsSharedOnItsPage: a person shares a folder on its page. Somebody without an account opens the
// link at another node, goes through the folder and saves files, and nothing beside the folder. The command
// share open does the same. After the share was revoked on the page of the bucket, the link opens nothing.
func TestAFolderIsSharedOnItsPage(t *testing.T) {
	const email = "shari@example.org"
	c, p := signedIn(t, email)
	dir := t.TempDir()
	photo := picturePNG(t)
	write(t, dir, "trip/day 1/map+ü.txt", []byte("north"))
	write(t, dir, "trip/sunset.png", photo)
	p.bucket("albums")
	p.choose(`[name=folder]`, filepath.Join(dir, "trip"))
	p.upload("2 stored.")
	key := c.Nodes[0].Key(email)
	for path, content := range map[string]string{"/albums/tripod.txt": "not shared", "/albums/trip/sealed.bin": "ciphertext"} {
		var headers []string
		if strings.HasSuffix(path, ".bin") {
			headers = []string{"x-amz-meta-encrypted", "true"}
		}
		if r, err := c.Nodes[0].S3(t.Context(), key.Token, http.MethodPut, path, strings.NewReader(content), int64(len(content)), headers...); err != nil || r.Status != http.StatusOK {
			t.Fatal(r.Status, err)
		}
	}
	p.visit("/buckets/albums?prefix=trip%2F")
	p.shows("Make share link")
	p.enter(`#share [name=name]`, "For Ann")
	p.press("Make share link")
	p.shows("Everybody who has this link")
	p.picture("share-made")
	link := p.text(".value code")
	_, fragment, ok := strings.Cut(link, "/shared#")
	if !ok {
		t.Fatalf("the link is %q", link)
	}
	friend := startBrowser(t).open(t, c.Leader().ConsoleURL())
	friend.visit("/shared#" + fragment)
	friend.shows("1 folder, 2 files")
	if text := friend.text("main"); strings.Contains(text, "tripod") || strings.Contains(text, "Shared by") || !strings.Contains(text, "albums/trip") {
		t.Errorf("the page shows %q", text)
	}
	friend.picture("shared-plain")
	if got := friend.downloaded(t, func() { friend.rowButton("sunset.png", "Download") }); !bytes.Equal(got, photo) {
		t.Errorf("the file has %d bytes, and %d were stored", len(got), len(photo))
	}
	friend.rowButton("sealed.bin", "Download")
	friend.shows("This file is encrypted, and the link has no key for it.")
	friend.press("day 1/")
	friend.shows("map+ü.txt")
	friend.press("map+ü.txt")
	friend.shows("north")
	friend.press("Close")
	for _, sent := range friend.requests() {
		if url, _, _ := strings.Cut(sent, " map["); strings.Contains(url, fragment) || strings.Contains(url, "a=") {
			t.Errorf("the browser sends %s", url)
		}
	}
	opened := t.TempDir()
	opens := func(want int, args ...string) harness.Result {
		t.Helper()
		r := harness.Run(t, []string{"HOME=" + opened}, link+"\n", append([]string{"share", "open", "-"}, args...)...)
		if r.Code != want {
			t.Fatalf("share open %q: %+v", args, r)
		}
		return r
	}
	if r := opens(0); !strings.Contains(r.Stdout, "day 1/map+ü.txt") || !strings.Contains(r.Stdout, "sunset.png") || strings.Contains(r.Stdout, "tripod") {
		t.Errorf("the command lists %q", r.Stdout)
	}
	opens(0, filepath.Join(opened, "trip"))
	for name, want := range map[string]string{"day 1/map+ü.txt": "north", "sunset.png": string(photo)} {
		if got, err := os.ReadFile(filepath.Join(opened, "trip", name)); err != nil || string(got) != want {
			t.Errorf("%s has %d bytes, %v", name, len(got), err)
		}
	}
	revokes(p, "For Ann", "/buckets/albums")
	if r := opens(1, filepath.Join(opened, "again")); !strings.Contains(r.Stderr, "the share was revoked") {
		t.Errorf("after the share is revoked the command says %q", r.Stderr)
	}
	friend.expect("401")
	friend.openLink("/shared#" + fragment)
	friend.shows("The owner has revoked this share")
}

// revokes ends a share on the page of its bucket.
func revokes(p *tab, name, bucket string) {
	p.t.Helper()
	p.visit(bucket)
	p.shows(name)
	p.click(`//summary[normalize-space()="Revoke"]`)
	p.shows("This cannot be undone.")
	p.press("Revoke this share")
	p.shows("The share " + name + " has been refused on every node")
}
