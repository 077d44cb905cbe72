//go:build conformance

package console

import (
	"archive/tar"
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestFilesAreUploadedAndPinnedInTheBrowser: a person uploads a file and a folder on the page of pins, cancels an upload,
// and sees why a bad CAR is refused. Without scripts the form does the same.
func TestFilesAreUploadedAndPinnedInTheBrowser(t *testing.T) {
	const email = "uma@example.org"
	c, p := signedIn(t, email)
	key := c.Nodes[0].Key(email)
	pins := c.Nodes[1].Pins(key.Token)
	dir := filepath.Join(t.TempDir(), "trip")
	for name, text := range map[string]string{"a.txt": "By the sea.", "b!/c.txt": "2", "b/d.txt": "3"} {
		write(t, dir, name, []byte(text))
	}
	p.follow("Pins")
	p.shows("Upload and pin")
	p.press("Upload and pin")
	p.shows("Choose files or a folder first.")
	p.choose(`#upload [name=folder]`, dir)
	p.press("Upload and pin")
	p.shows("Request id")
	p.shows("trip")
	p.shows("263 B")
	pin, err := pins.Get(t.Context(), p.fact("Request id"))
	if err != nil || pin.Pin.Name != "trip" {
		t.Fatalf("%+v, %v", pin, err)
	}
	if _, err := harness.WaitPinned(t.Context(), pins, pin.RequestID, stepTimeout); err != nil {
		t.Fatal(err)
	}
	if got := c.Nodes[2].CLI("get", pin.Pin.CID+"/b/d.txt", "-o", "-"); got != "3" {
		t.Errorf("a file in the folder is %q", got)
	}
	p.visit(p.at())
	p.shows("a folder as a tar file")
	var names []string
	for in := tar.NewReader(bytes.NewReader(p.download(t, "As a file"))); ; {
		entry, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, entry.Name)
	}
	if !slices.Contains(names, "a.txt") || !slices.Contains(names, "b/d.txt") {
		t.Errorf("the tar file has %q", names)
	}
	p.visit(p.at())
	if car := p.download(t, "As a CAR"); string(car) != c.Nodes[1].CLI("car", "export", pin.Pin.CID) {
		t.Errorf("the CAR has %d bytes and is not what a node exports", len(car))
	}

	p.follow("All pins")
	p.slow(64 << 10)
	p.choose(`#upload [name=file]`, write(t, t.TempDir(), "large.bin", noise(4<<20)))
	p.press("Upload and pin")
	p.shows(" of 4 MiB")
	p.picture("pins-uploading")
	p.press("Cancel")
	p.shows("Cancelled.")
	p.slow(0)

	p.visit("/pins")
	p.expect("400")
	p.do(chromedp.SetValue(chromedp.CSS(`#upload [name=kind]`), "car"))
	p.choose(`#upload [name=file]`, write(t, t.TempDir(), "site.car", []byte("no CAR")))
	p.press("Upload and pin")
	p.shows("Not stored: ")
	if text := p.text("#upload [role=status]"); text == "Not stored: the node did not say why" {
		t.Error(text)
	}

	p.withoutScripts()
	p.visit("/pins")
	p.choose(`#upload [name=file]`, write(t, t.TempDir(), "notes.txt", []byte("plain")))
	p.press("Upload and pin")
	p.shows("Request id")
	p.shows("notes.txt")
}
