package webapi

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

const (
	folderCID  = "bafybeiczsscdsbs7ffqz55asqdf3smv6klcw3gofszvwlyarci47bgf354" // has a.txt
	brokenCID  = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi" // its streams end early
	missingCID = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy" // nobody has it
)

// shelf is a store with the file CatCID, two folders, and the objects of a world.
type shelf struct {
	content.Store // no other method is called

	objects *apitest.Content
}

func (s shelf) OpenPath(ctx context.Context, root cid.Cid, path []string, _ []state.NodeID) (io.ReadSeekCloser, uint64, error) {
	file := func(text string) (io.ReadSeekCloser, uint64, error) {
		return struct {
			io.ReadSeeker
			io.Closer
		}{strings.NewReader(text), io.NopCloser(nil)}, uint64(len(text)), nil
	}
	switch is := root.String(); {
	case is == apitest.CatCID && len(path) == 0:
		return file("meow")
	case (is == folderCID || is == brokenCID) && len(path) == 0:
		return nil, 0, fmt.Errorf("%w: %w", state.Errorf(state.CodeInvalid, "a folder"), content.ErrFolder)
	case is == folderCID && path[0] == "a b.txt":
		return file("text")
	case len(path) > 0:
		return nil, 0, state.Errorf(state.CodeNotFound, "no folder has an entry with this name")
	}
	return s.objects.Open(ctx, root, nil)
}

func (s shelf) OpenFolder(_ context.Context, root cid.Cid, _ []string, _ []state.NodeID) (content.Folder, error) {
	return shelfFolder{root.String() == brokenCID}, nil
}

func (s shelf) ExportCAR(_ context.Context, w io.Writer, root cid.Cid, _ []state.NodeID) error {
	if root.String() == missingCID {
		return content.NotHeld(root)
	}
	_, err := io.WriteString(w, "blocks of "+root.String())
	if root.String() == brokenCID {
		err = errors.New("a block is missing")
	}
	return err
}

func (s shelf) OpenVisible(context.Context, cid.Cid) (content.DAG, error) {
	return nil, state.ErrNotFound
}

// shelfFolder is a folder with a file of 1 MiB. If it is broken, the file ends early.
type shelfFolder struct{ broken bool }

const shelfFile = 1 << 20

func (f shelfFolder) WriteTar(_ context.Context, w io.Writer) error {
	to := tar.NewWriter(w)
	if err := to.WriteHeader(&tar.Header{Name: "a b.txt", Size: shelfFile, Mode: 0o644}); err != nil {
		return err
	}
	text := strings.Repeat("x", shelfFile)
	if f.broken {
		_, err := io.WriteString(to, text[1:])
		return errors.Join(err, errors.New("a block is missing"))
	}
	if _, err := io.WriteString(to, text); err != nil {
		return err
	}
	return to.Close()
}

func (f shelfFolder) Close() error { return nil }

// content returns the content of a world, in which everything that is pinned is public.
func (w *world) content() *content.Content {
	return content.New(content.Options{State: w.State, Store: shelf{objects: w.World.Content}, NewID: func() string { return "id" }, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
}

// asking sends a GET of content with an Accept header.
func (c client) asking(path, accept string) *httptest.ResponseRecorder {
	c.T.Helper()
	r := c.request("GET", "/content/"+path, "")
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	return c.send(r)
}

// withFolders pins the folders of the shelf for Bob, so that everybody may read them.
func (w *world) withFolders() {
	w.T.Helper()
	bob := w.with(w.Key("bob").Token)
	for _, root := range []string{folderCID, brokenCID} {
		w.into(bob.do("POST", "/pins", `{"cid":"`+root+`"}`), http.StatusCreated, nil)
	}
}

// TestContentByCID promises that a file is answered whole and in ranges, a folder as a tar stream and a DAG as a CAR, if
// the client accepts that; that each is a download which cannot become a page; and what a request in another form gets.
func TestContentByCID(t *testing.T) {
	w := newWorld(t)
	w.withFolders()
	reader := w.with(w.Key("alice", state.ScopeRead).Token)
	for _, tc := range []struct {
		name, path, accept string
		status             int
		kind, file         string // type, and name of the download
		says               string // part of the body
	}{
		{"a file", apitest.CatCID, "", 200, "application/octet-stream", apitest.CatCID, "meow"},
		{"a file for a client that takes folders", apitest.CatCID, web.TarType + ", application/octet-stream", 200, "application/octet-stream", apitest.CatCID, "meow"},
		{"a file in a folder", folderCID + "/a%20b.txt", "*/*", 200, "application/octet-stream", `"a b.txt"`, "text"},
		{"an escaped slash", folderCID + "%2Fa%20b.txt", "", 200, "application/octet-stream", `"a b.txt"`, "text"},
		{"a folder", folderCID, web.TarType, 200, web.TarType, folderCID + ".tar", "a b.txt"},
		{"a folder, among others", folderCID, "text/html, " + web.TarType + ";q=0.5", 200, web.TarType, folderCID + ".tar", "a b.txt"},
		{"a CAR", folderCID, web.CARType + "; version=1", 200, web.CARType, folderCID + ".car", "blocks of " + folderCID},
		{"a folder without Accept", folderCID, "", 406, "application/json", "", "with the header Accept: application/x-tar it is answered as a tar stream"},
		{"a folder for every type", folderCID, "*/*", 406, "application/json", "", "NOT_ACCEPTABLE"},
		{"a CAR with a path", folderCID + "/a", web.CARType, 400, "application/json", "", "a CAR is exported by the CID of its root"},
		{"no CID", "bafynone", "", 400, "application/json", "", `cid \"bafynone\" is not valid`},
		{"no CID for a CAR", "bafynone", web.CARType, 400, "application/json", "", "is not valid"},
		{"a path to nothing", folderCID + "/none", web.TarType, 404, "application/json", "", "no folder has an entry with this name"},
		{"nothing", missingCID, "", 404, "application/json", "", "no member that can be reached holds " + missingCID},
		{"nothing for a CAR", missingCID, web.CARType, 404, "application/json", "", "no member that can be reached holds " + missingCID},
		{"a parameter", apitest.CatCID + "?user=x", "", 400, "application/json", "", `there is no parameter \"user\"`},
	} {
		got := reader.asking(tc.path, tc.accept)
		h := got.Header()
		if got.Code != tc.status || h.Get("Content-Type") != tc.kind || !strings.Contains(got.Body.String(), tc.says) {
			t.Errorf("%s: %d %s %.200s", tc.name, got.Code, h.Get("Content-Type"), got.Body)
		}
		if tc.status == http.StatusOK && (h.Get("Content-Security-Policy") != "sandbox" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Disposition") != "attachment; filename="+tc.file) {
			t.Errorf("%s has %v", tc.name, h)
		}
		if tc.status != http.StatusOK && (h.Get("Content-Disposition") != "" || h.Get("Etag") != "") {
			t.Errorf("the error for %s has %v", tc.name, h)
		}
	}
	for method, want := range map[string]string{"GET": "eo", "HEAD": ""} {
		r := reader.request(method, "/content/"+apitest.CatCID, "")
		r.Header.Set("Range", "bytes=1-2")
		r.Header.Set("If-Match", `"`+apitest.CatCID+`"`)
		if got := reader.send(r); got.Code != http.StatusPartialContent || got.Body.String() != want || got.Header().Get("Content-Range") != "bytes 1-2/4" {
			t.Errorf("a range by %s: %d %v %s", method, got.Code, got.Header(), got.Body)
		}
	}
	for _, accept := range []string{web.TarType, web.CARType} {
		r := reader.request("HEAD", "/content/"+folderCID, "")
		r.Header.Set("Accept", accept)
		if got := reader.send(r); got.Code != http.StatusOK || got.Body.Len() > 0 || got.Header().Get("Content-Type") != accept {
			t.Errorf("HEAD of %s: %d %v %d bytes", accept, got.Code, got.Header(), got.Body.Len())
		}
	}
}

// TestContentIsForWhoMayReadIt promises that an object, which is private, is read by its CID with the keys and sessions of its
// account alone; that the answer to others is that for content that does not exist; and that a key needs storage:read.
func TestContentIsForWhoMayReadIt(t *testing.T) {
	w := newWorld(t)
	o := w.storeSealed("private.txt", "secret", nil)
	root := o.Root.Cid().String()
	for name, c := range map[string]client{"a key": w.with(w.Key("alice", state.ScopeRead).Token), "a session": w.signIn("alice"), "a session as a token": w.with(w.token("alice"))} {
		if got := c.asking(root, ""); got.Code != http.StatusOK || got.Body.String() != "secret" {
			t.Errorf("%s of the account: %d %s", name, got.Code, got.Body)
		}
		if got := c.asking(root, web.CARType); got.Code != http.StatusOK {
			t.Errorf("%s of the account: %d %s", name, got.Code, got.Body)
		}
	}
	bob := w.with(w.Key("bob").Token)
	for _, accept := range []string{"", web.TarType, web.CARType} {
		private, missing := bob.asking(root, accept), bob.asking(missingCID, accept)
		if private.Code != http.StatusNotFound || missing.Code != http.StatusNotFound || strings.ReplaceAll(private.Body.String(), root, "") != strings.ReplaceAll(missing.Body.String(), missingCID, "") {
			t.Errorf("another account gets %d %s, and for what does not exist %d %s", private.Code, private.Body, missing.Code, missing.Body)
		}
	}
	w.refused("a key that may write", w.with(w.Key("alice", state.ScopeWrite).Token).asking(root, ""), http.StatusForbidden)
	w.refused("nothing", w.with("").asking(root, ""), http.StatusUnauthorized)
	w.refused("the token of a share", w.with(w.share("2123456789abcdef0123456789abcdef", "private.txt").Token).asking(root, ""), http.StatusUnauthorized)
}

// TestCutContentIsNotComplete promises that a client sees an error before the end of a folder, a CAR or a file that the node
// cannot read to its end.
func TestCutContentIsNotComplete(t *testing.T) {
	w := newWorld(t)
	w.withFolders()
	o := w.storeSealed("torn.txt", "secret", nil)
	server := httptest.NewServer(w.handler)
	defer server.Close()
	read := func(root, accept string) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+Prefix+"/content/"+root, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+w.Key("alice").Token)
		r.Header.Set("Accept", accept)
		resp, err := server.Client().Do(r)
		if err != nil {
			return 0, err
		}
		defer func() { _ = resp.Body.Close() }()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	for accept, root := range map[string]string{web.TarType: folderCID, web.CARType: folderCID, "": o.Root.Cid().String()} {
		if status, err := read(root, accept); status != http.StatusOK || err != nil {
			t.Errorf("whole content as %q: %d %v", accept, status, err)
		}
	}
	w.World.Content.Tear()
	for accept, root := range map[string]string{web.TarType: brokenCID, web.CARType: brokenCID} {
		if status, err := read(root, accept); err == nil {
			t.Errorf("broken content as %q looks complete: %d", accept, status)
		}
	}
	if status, err := read(o.Root.Cid().String(), ""); err == nil && status < http.StatusInternalServerError {
		t.Errorf("a broken file looks complete: %d", status)
	}
}
