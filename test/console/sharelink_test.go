//go:build conformance

package console

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestAFolderIsSharedOnItsPage: a person shares a folder on its page. Somebody without an account opens the
// link at another node, goes through the folder and saves files, and nothing beside the folder. After the
// share was revoked on the page of the bucket, the link opens nothing.
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
	revokes(p, "For Ann", "/buckets/albums")
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
