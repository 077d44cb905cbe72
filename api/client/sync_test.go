package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// tree1 is a folder with what makes syncs go wrong. Its names sort differently as paths and as keys.
func tree1() map[string]string {
	return map[string]string{
		"a.txt": "1", "a/b": "2", "a-b": "3", "a/c/d": "4", "empty": "", "A": "case",
		"sp ace+%20": "5", "tab\tnew\nline": "6", "é/ü~": "7", "a/..hidden": "8", "-dash": "9", "c:d\\e": "10",
	}
}

func fillFolder(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path, []byte(text))
		old := time.Now().Add(-24 * time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
}

func readFolder(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// stored returns the objects of a bucket with a prefix.
func (c *cluster) stored(prefix string) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := map[string]string{}
	for name, o := range c.objects {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			files[rest] = string(o.data)
		}
	}
	return files
}

// events collects the reports of a sync.
type events struct {
	mu   sync.Mutex
	list []SyncEvent
}

func (e *events) options(o SyncOptions) SyncOptions {
	o.Report = func(event SyncEvent) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.list = append(e.list, event)
	}
	return o
}

// of returns the reasons of an action by path.
func (e *events) of(action string) map[string]error {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := map[string]error{}
	for _, event := range e.list {
		if event.Action == action {
			found[event.Path] = event.Err
		}
	}
	return found
}

// A sync makes its target equal to its source, up and down, copies only what differs, deletes only if asked, and
// changes nothing in a dry run.
func TestSyncMakesBothSidesEqual(t *testing.T) {
	c := newCluster(t, 2)
	client := c.client()
	dir, back := t.TempDir(), filepath.Join(t.TempDir(), "new", "folder")
	files := tree1()
	fillFolder(t, dir, files)
	push := func(o SyncOptions) SyncResult {
		t.Helper()
		var e events
		r, err := client.Push(t.Context(), dir, "bucket", "p/", e.options(o))
		if err != nil {
			t.Fatalf("%v: %+v", err, e.list)
		}
		return r
	}
	pull := func(o SyncOptions) SyncResult {
		t.Helper()
		var e events
		r, err := client.Pull(t.Context(), "bucket", "p/", back, e.options(o))
		if err != nil {
			t.Fatalf("%v: %+v", err, e.list)
		}
		return r
	}
	expect := func(step string, got SyncResult, copied, deleted, unchanged int) {
		t.Helper()
		if got.Copied != copied || got.Deleted != deleted || got.Unchanged != unchanged || got.Failed != 0 {
			t.Errorf("%s: %+v, want %d copied, %d deleted, %d unchanged", step, got, copied, deleted, unchanged)
		}
	}
	n := len(files)
	expect("dry run", push(SyncOptions{DryRun: true}), n, 0, 0)
	if len(c.objects) != 0 {
		t.Error("a dry run stored something")
	}
	expect("first", push(SyncOptions{}), n, 0, 0)
	if got := c.stored("bucket/p/"); !maps.Equal(got, files) {
		t.Errorf("stored %q", got)
	}
	expect("second", push(SyncOptions{}), 0, 0, n)
	expect("by content", push(SyncOptions{Checksum: true}), 0, 0, n)
	expect("download, dry", pull(SyncOptions{DryRun: true}), n, 0, 0)
	expect("download", pull(SyncOptions{Verify: true}), n, 0, 0)
	if got := readFolder(t, back); !maps.Equal(got, files) {
		t.Errorf("downloaded %q", got)
	}
	expect("download again", pull(SyncOptions{}), 0, 0, n)

	// A change of the same size and time is found by content, one with a new time without.
	fillFolder(t, dir, map[string]string{"a.txt": "X"})
	files["a.txt"] = "X"
	expect("changed", push(SyncOptions{}), 1, 0, n-1)
	if err := os.Remove(filepath.Join(dir, "a", "c", "d")); err != nil {
		t.Fatal(err)
	}
	delete(files, "a/c/d")
	expect("kept", push(SyncOptions{}), 0, 0, n-1)
	expect("deleted, dry", push(SyncOptions{Delete: true, DryRun: true}), 0, 1, n-1)
	expect("deleted", push(SyncOptions{Delete: true}), 0, 1, n-1)
	if got := c.stored("bucket/p/"); !maps.Equal(got, files) {
		t.Errorf("stored %q", got)
	}
	writeFile(t, filepath.Join(back, "a", "b"), []byte("Y"))
	expect("changed at the target", pull(SyncOptions{Delete: true}), 2, 1, n-3)
	if got := readFolder(t, back); !maps.Equal(got, files) {
		t.Errorf("downloaded %q", got)
	}
	if _, err := os.Stat(filepath.Join(back, "a", "c")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder that became empty: %v", err)
	}
}

// TestSyncDoesNotTransferWhatIsEqual promises that files whose times alone differ are compared
// and not sent, in both directions.
func TestSyncDoesNotTransferWhatIsEqual(t *testing.T) {
	c := newCluster(t, 1)
	client := c.client()
	dir := t.TempDir()
	big := string(randomBytes(bigSize))
	fillFolder(t, dir, map[string]string{"small": "x", "big": big})
	if _, err := client.Push(t.Context(), dir, "bucket", "", SyncOptions{}); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.objects["bucket/big"].header.Set("ETag", `"0123-3"`) // as of parts
	c.mu.Unlock()
	sent := c.number("PUT")
	now := time.Now().Add(time.Hour)
	for _, name := range []string{"small", "big"} {
		if err := os.Chtimes(filepath.Join(dir, name), now, now); err != nil {
			t.Fatal(err)
		}
	}
	r, err := client.Push(t.Context(), dir, "bucket", "", SyncOptions{})
	if err != nil || r.Unchanged != 2 || c.number("PUT") != sent {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = client.Pull(t.Context(), "bucket", "", dir, SyncOptions{})
	if err != nil || r.Unchanged != 2 || c.number("GET", "/small") != 0 {
		t.Errorf("%+v, %v, %q", r, err, c.requests)
	}
	if info, err := os.Stat(filepath.Join(dir, "small")); err != nil || !info.ModTime().Equal(c.objects["bucket/small"].modified) {
		t.Errorf("the time was not set: %v", err)
	}
}

// TestKeysThatWouldEscapeAreRefused promises that a sync writes no file outside of its folder, reports each key
// that would, and copies the others.
func TestKeysThatWouldEscapeAreRefused(t *testing.T) {
	c := newCluster(t, 1)
	parent := t.TempDir()
	dir := filepath.Join(parent, "dir")
	outside := filepath.Join(parent, "outside")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(outside, 0o755), os.Symlink(outside, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	bad := []string{"../x", "a/../../x", "/x", "a//b", "./x", "..", "a/.", "link/x", ".holdfast-0.part", "a/.holdfast-1.part.journal"}
	for _, key := range bad {
		c.store("bucket/"+key, []byte("evil"))
	}
	c.store("bucket/good", []byte("good"))
	c.store("bucket/folder/", nil)
	var e events
	r, err := c.client().Pull(t.Context(), "bucket", "", dir, e.options(SyncOptions{}))
	if !errors.Is(err, ErrSync) || r.Failed != len(bad) || r.Copied != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	failed := e.of(ActionFail)
	for _, key := range bad {
		if failed[key] == nil || key != "link/x" && !errors.Is(failed[key], ErrOutside) {
			t.Errorf("%q: %v", key, failed[key])
		}
	}
	if got := readFolder(t, dir); got["good"] != "good" || len(got) != 1 {
		t.Errorf("%q", got)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("written outside: %v, %v", left, err)
	}
	if entries, _ := os.ReadDir(parent); len(entries) != 2 {
		t.Errorf("written outside: %v", entries)
	}
	if info, err := os.Stat(filepath.Join(dir, "folder")); err != nil || !info.IsDir() {
		t.Errorf("a marker made no folder: %v", err)
	}
}

// TestWhatIsNoFileIsSkipped promises that a sync reports links and names that are no keys, deletes no object
// below their names, and with Follow uploads what links point to without running in circles.
func TestWhatIsNoFileIsSkipped(t *testing.T) {
	c := newCluster(t, 1)
	dir, other := t.TempDir(), t.TempDir()
	fillFolder(t, dir, map[string]string{"file": "1", "sub/x": "2", ".holdfast-0123.part": "partial"})
	fillFolder(t, other, map[string]string{"y": "3"})
	links := errors.Join(
		os.Symlink("file", filepath.Join(dir, "link")), os.Symlink(other, filepath.Join(dir, "folder")),
		os.Symlink(dir, filepath.Join(dir, "sub", "circle")), os.Symlink("nowhere", filepath.Join(dir, "dangling")),
	)
	if links != nil {
		t.Fatal(links)
	}
	c.store("bucket/folder/kept", []byte("k"))
	c.store("bucket/gone", []byte("g"))
	var e events
	r, err := c.client().Push(t.Context(), dir, "bucket", "", e.options(SyncOptions{Delete: true}))
	if err != nil || r.Copied != 2 || r.Skipped != 4 || r.Deleted != 1 {
		t.Errorf("%+v, %v, %v", r, err, e.list)
	}
	if want := map[string]string{"file": "1", "sub/x": "2", "folder/kept": "k"}; !maps.Equal(c.stored("bucket/"), want) {
		t.Errorf("stored %q", c.stored("bucket/"))
	}
	var f events
	r, err = c.client().Push(t.Context(), dir, "bucket", "", f.options(SyncOptions{Follow: true}))
	if err != nil || r.Copied != 2 || r.Skipped != 2 {
		t.Errorf("%+v, %v, %v", r, err, f.list)
	}
	if got := c.stored("bucket/"); got["link"] != "1" || got["folder/y"] != "3" {
		t.Errorf("stored %q", got)
	}
	if runtime.GOOS == "linux" {
		writeFile(t, filepath.Join(dir, "no\xfftext"), []byte("z"))
		var g events
		if _, err := c.client().Push(t.Context(), dir, "bucket", "", g.options(SyncOptions{})); !errors.Is(err, ErrSync) || !errors.Is(g.of(ActionFail)["no\xfftext"], ErrName) {
			t.Errorf("%v, %v", err, g.list)
		}
	}
}

// TestNothingIsDeletedAfterAFailureToRead promises that a sync deletes nothing, in either direction, if its
// source could not be read or listed completely.
func TestNothingIsDeletedAfterAFailureToRead(t *testing.T) {
	c := newCluster(t, 1)
	dir := t.TempDir()
	fillFolder(t, dir, map[string]string{"a/x": "1", "b": "2", "no\xfftext": "3"})
	c.store("bucket/a/x", []byte("1"))
	c.store("bucket/gone", []byte("4"))
	var e events
	r, err := c.client().Push(t.Context(), dir, "bucket", "", e.options(SyncOptions{Delete: true}))
	if !errors.Is(err, ErrSync) || r.Deleted != 0 || len(e.of(ActionSkip)) != 1 || c.stored("bucket/")["gone"] != "4" {
		t.Errorf("%+v, %v, %v", r, err, e.list)
	}
	for _, n := range c.nodes { // a list that fails
		n.breaks(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("continuation-token") == "" {
				return false
			}
			refuse(w, http.StatusForbidden, "AccessDenied")
			return true
		})
	}
	back := t.TempDir()
	fillFolder(t, back, map[string]string{"zzz": "kept"})
	c.store("bucket/c", []byte("5"))
	c.store("bucket/d", []byte("6"))
	if _, err := c.client().Pull(t.Context(), "bucket", "", back, SyncOptions{Delete: true}); !errors.Is(err, ErrDenied) || readFolder(t, back)["zzz"] != "kept" {
		t.Errorf("%v, %v", err, readFolder(t, back))
	}
}

// TestAnInterruptedSyncEndsEqual promises that a sync that is interrupted after 2, 5, 17 or 20 requests ends
// with equal folders when it runs again, without open uploads, journals or partial files.
func TestAnInterruptedSyncEndsEqual(t *testing.T) {
	files := tree1()
	files["large"] = string(randomBytes(bigSize))
	files["large2"] = string(randomBytes(2 * bigSize))
	for _, after := range []int{2, 5, 17, 20} {
		c := newCluster(t, 2)
		dir, back, journals := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "journals")
		fillFolder(t, dir, files)
		interruptedAfter := func(requests int, do func(ctx context.Context) error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			before := c.number("")
			for _, n := range c.nodes {
				n.breaks(func(http.ResponseWriter, *http.Request) bool {
					if c.number("")-before == requests {
						cancel()
					}
					return false
				})
			}
			if err := do(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("after %d requests: %v", requests, err)
			}
			for _, n := range c.nodes {
				n.breaks(nil)
			}
		}
		o := SyncOptions{Journals: journals, Parallel: 3}
		interruptedAfter(after, func(ctx context.Context) error {
			_, err := c.client().Push(ctx, dir, "bucket", "p/", o)
			return err
		})
		if after%2 == 0 { // a file whose upload was interrupted is gone
			if err := os.Remove(filepath.Join(dir, "large2")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.client().Push(t.Context(), dir, "bucket", "p/", SyncOptions{Journals: journals, Delete: true}); err != nil {
			t.Fatal(err)
		}
		want := readFolder(t, dir)
		if got := c.stored("bucket/p/"); !maps.Equal(got, want) || len(c.uploads) != 0 {
			t.Errorf("after %d requests: %d files, want %d; %d open uploads", after, len(got), len(want), len(c.uploads))
		}
		if left, err := os.ReadDir(journals); err == nil {
			t.Errorf("after %d requests: journals left: %v", after, left)
		}
		interruptedAfter(after, func(ctx context.Context) error {
			_, err := c.client().Pull(ctx, "bucket", "p/", back, o)
			return err
		})
		c.mu.Lock()
		delete(c.objects, "bucket/p/large") // whose partial file may be there
		c.mu.Unlock()
		delete(want, "large")
		if _, err := c.client().Pull(t.Context(), "bucket", "p/", back, SyncOptions{Delete: true}); err != nil {
			t.Fatal(err)
		}
		if got := readFolder(t, back); !maps.Equal(got, want) {
			for name, text := range want {
				if got[name] != text {
					t.Errorf("after %d requests: %s is not equal", after, name)
				}
			}
			t.Errorf("after %d requests: downloaded %q, want %q", after, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}

// TestKeysThatCollideAreRefused promises that of two keys that are one name on a file system
// without case, the first is kept and the second reported.
func TestKeysThatCollideAreRefused(t *testing.T) {
	p := &puller{insensitive: true, folded: map[string]string{}}
	for _, tc := range []struct {
		key  string
		want error
	}{{"A/x", nil}, {"A/y", nil}, {"a/x", ErrCollision}, {"B", nil}, {"b", ErrCollision}, {"A/x", nil}} {
		if err := p.acceptable(tc.key); !errors.Is(err, tc.want) {
			t.Errorf("%q: %v", tc.key, err)
		}
	}
}

// TestAFileThatChangesDuringASync promises that a sync sends a file again that changed meanwhile, and reports a
// failure if the file never rests.
func TestAFileThatChangesDuringASync(t *testing.T) {
	for _, changes := range []int{1, 100} {
		c := newCluster(t, 1)
		dir := t.TempDir()
		fillFolder(t, dir, map[string]string{"log": "line"})
		count := 0
		c.nodes[0].breaks(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut && count < changes {
				count++
				writeFile(t, filepath.Join(dir, "log"), []byte(fmt.Sprint("line", count)))
			}
			return false
		})
		r, err := c.client().Push(t.Context(), dir, "bucket", "", SyncOptions{})
		if (changes == 1) != (err == nil && r.Copied == 1 && c.stored("bucket/")["log"] == "line1") {
			t.Errorf("%d changes: %+v, %v, %q", changes, r, err, c.stored("bucket/"))
		}
		if changes > 1 && r.Failed != 1 {
			t.Errorf("%+v", r)
		}
	}
}
