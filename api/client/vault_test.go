package client

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

func newVault(t *testing.T, c *cluster, id *seal.Identity) *Vault {
	t.Helper()
	v, err := c.client().NewVault("bucket", id, false)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func newIdentity(t *testing.T) *seal.Identity {
	t.Helper()
	id, err := seal.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestAVaultStoresCiphertextOnly promises that files of every size come back, and that neither
// their bytes nor their names nor their types are in the cluster.
func TestAVaultStoresCiphertextOnly(t *testing.T) {
	c := newCluster(t, 2)
	id := newIdentity(t)
	v := newVault(t, c, id)
	dir := t.TempDir()
	for name, size := range map[string]int{"empty.txt": 0, "secretive/one.html": 1, "secretive/deeplyhid/chunk": seal.ChunkSize, "secretive/two.mp4": seal.ChunkSize + 1, "big.iso": bigSize} {
		data := randomBytes(size)
		path := filepath.Join(dir, "file")
		writeFile(t, path, data)
		if err := v.UploadFile(t.Context(), name, path, UploadOptions{}); err != nil {
			t.Fatal(name, err)
		}
		if err := v.Upload(t.Context(), "streaming/"+name, bytes.NewReader(data), UploadOptions{}); err != nil {
			t.Fatal(name, err)
		}
		for _, stored := range []string{name, "streaming/" + name} {
			for _, verify := range []bool{false, true} {
				var got bytes.Buffer
				if err := newVault(t, c, id).Download(t.Context(), stored, &got, DownloadOptions{Verify: verify}); err != nil || !bytes.Equal(got.Bytes(), data) {
					t.Errorf("%s, verify %t: %d bytes, %v", stored, verify, got.Len(), err)
				}
			}
			to := filepath.Join(dir, "to")
			if err := v.DownloadFile(t.Context(), stored, to, DownloadOptions{}); err != nil {
				t.Error(stored, err)
			}
			if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes, %v", stored, len(got), err)
			}
		}
		for key, o := range c.objects {
			if size > 100 && bytes.Contains(o.data, data[:64]) {
				t.Errorf("%s has plaintext of %s", key, name)
			}
			text := key + string(o.data)
			for h, values := range o.header {
				text += h + strings.Join(values, "")
			}
			for _, word := range []string{"secretive", "deeplyhid", "streaming", "text/html", "video/mp4"} {
				if strings.Contains(text, word) {
					t.Errorf("%s says %q", key, word)
				}
			}
		}
	}
	names := map[string]bool{}
	list, err := newVault(t, c, id).List(t.Context(), "secretive/")
	for _, e := range list {
		names[e.Name] = true
	}
	if want := map[string]bool{"deeplyhid/": true, "one.html": true, "two.mp4": true}; err != nil || !maps.Equal(names, want) {
		t.Errorf("%v, %v", names, err)
	}
	if err := v.Remove(t.Context(), "secretive/one.html"); err != nil {
		t.Error(err)
	}
	if err := v.Download(t.Context(), "secretive/one.html", &bytes.Buffer{}, DownloadOptions{}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if list, err := v.List(t.Context(), "secretive"); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	other := newVault(t, c, newIdentity(t))
	if list, err := other.List(t.Context(), ""); err != nil || len(list) != 0 {
		t.Errorf("another identity lists %v, %v", list, err)
	}
	if err := v.Upload(t.Context(), "../x", strings.NewReader(""), UploadOptions{}); !errors.Is(err, seal.ErrPath) {
		t.Error(err)
	}
}

// TestAWrongIdentityIsNotAnEmptyFolder promises that a list, a download, a share, a sync and a rewrap
// that find nothing say so if the bucket has files of other identities only, that such a sync deletes
// nothing, and that an identity with files of its own sees an empty list.
func TestAWrongIdentityIsNotAnEmptyFolder(t *testing.T) {
	c := newCluster(t, 1)
	owner, dir := newIdentity(t), t.TempDir()
	fillFolder(t, dir, map[string]string{"precious": "only here"})
	list := func(v *Vault, folder string) (n int, err error) {
		for _, failed := range v.Entries(t.Context(), folder, false) {
			if failed != nil {
				return n, failed
			}
			n++
		}
		return n, nil
	}
	if n, err := list(newVault(t, c, owner), ""); n != 0 || err != nil {
		t.Errorf("an empty bucket: %d, %v", n, err)
	}
	for _, name := range []string{"a", "f/b"} {
		if err := newVault(t, c, owner).Upload(t.Context(), name, strings.NewReader("bytes"), UploadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wrong := newIdentity(t)
	next, err := wrong.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	for what, run := range map[string]func(v *Vault) error{
		"list":     func(v *Vault) error { _, err := list(v, ""); return err },
		"folder":   func(v *Vault) error { _, err := list(v, "f/"); return err },
		"download": func(v *Vault) error { return v.Download(t.Context(), "a", &bytes.Buffer{}, DownloadOptions{}) },
		"share": func(v *Vault) error {
			_, err := v.Share(t.Context(), "f", ShareOptions{Permissions: seal.ReadOnly()})
			return err
		},
		"pull":   func(v *Vault) error { _, err := v.Pull(t.Context(), "", dir, SyncOptions{Delete: true}); return err },
		"rewrap": func(v *Vault) error { _, err := v.Rewrap(t.Context(), "", next, false, nil); return err },
	} {
		if err := run(newVault(t, c, wrong)); !errors.Is(err, ErrOtherKeys) || !strings.Contains(err.Error(), "2 objects in s3://bucket") {
			t.Errorf("%s with a wrong identity: %v", what, err)
		}
	}
	if got := readFolder(t, dir); got["precious"] != "only here" {
		t.Errorf("the sync left %v", got)
	}
	for _, empty := range []string{"nothing/", "f/g"} {
		if n, err := list(newVault(t, c, owner), empty); n != 0 || err != nil {
			t.Errorf("the owner lists %s: %d, %v", empty, n, err)
		}
	}
	if err := newVault(t, c, owner).Download(t.Context(), "c", &bytes.Buffer{}, DownloadOptions{}); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrOtherKeys) {
		t.Errorf("the owner reads a file that is not there: %v", err)
	}
	if _, err := newVault(t, c, wrong).Push(t.Context(), dir, "", SyncOptions{}); err != nil {
		t.Errorf("a second identity stores files: %v", err)
	}
	if n, err := list(newVault(t, c, wrong), "f/"); n != 0 || err != nil {
		t.Errorf("the second identity, with files of its own, lists %d, %v", n, err)
	}
}

// TestDamagedCiphertextIsNotHandedOn promises that a file whose bytes were changed in the cluster fails with an
// error of its own and is not written.
func TestDamagedCiphertextIsNotHandedOn(t *testing.T) {
	c := newCluster(t, 1)
	v := newVault(t, c, newIdentity(t))
	for name, size := range map[string]int{"small": 1000, "chunks": 3 * seal.ChunkSize, "large": bigSize} {
		if err := v.Upload(t.Context(), name, bytes.NewReader(randomBytes(size)), UploadOptions{}); err != nil {
			t.Fatal(err)
		}
		key, err := v.identity.StorageKey(seal.DeterministicHash, "/"+name)
		if err != nil {
			t.Fatal(err)
		}
		o := c.objects["bucket/"+key]
		o.data[len(o.data)/2] ^= 1
		path := filepath.Join(t.TempDir(), "file")
		err = v.DownloadFile(t.Context(), name, path, DownloadOptions{})
		if !errors.Is(err, seal.ErrChunk) && !errors.Is(err, seal.ErrContent) {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
			t.Errorf("%s: left behind %v", name, left)
		}
	}
}

// TestAnEncryptedUploadContinues promises that the parts of an interrupted upload and those of
// its continuation make one object.
func TestAnEncryptedUploadContinues(t *testing.T) {
	c := newCluster(t, 1)
	id := newIdentity(t)
	dir := t.TempDir()
	path, journal := filepath.Join(dir, "file"), filepath.Join(dir, "journal")
	data := randomBytes(2 * bigSize)
	writeFile(t, path, data)
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	c.nodes[0].breaks(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("partNumber") == "4" {
			once.Do(cancel)
		}
		return false
	})
	o := UploadOptions{Journal: journal, Parallel: 1}
	if err := newVault(t, c, id).UploadFile(ctx, "name", path, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	c.nodes[0].breaks(nil)
	before := c.number("partNumber")
	if err := newVault(t, c, id).UploadFile(t.Context(), "name", path, o); err != nil {
		t.Fatal(err)
	}
	if sent := c.number("partNumber") - before; sent > 2 || c.started != 1 {
		t.Errorf("%d parts sent again, %d uploads", sent, c.started)
	}
	var got bytes.Buffer
	if err := newVault(t, c, id).Download(t.Context(), "name", &got, DownloadOptions{}); err != nil || !bytes.Equal(got.Bytes(), data) {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
}

// TestEncryptedSyncMakesBothSidesEqual promises that a sync of a Vault makes its target equal to its source, up
// and down, and copies only what differs. It is TestSyncMakesBothSidesEqual for a Vault.
func TestEncryptedSyncMakesBothSidesEqual(t *testing.T) {
	c := newCluster(t, 2)
	id := newIdentity(t)
	dir, back := t.TempDir(), t.TempDir()
	files := tree1()
	delete(files, `c:d\e`) // TestAWriterTakesNoNameThatARecipientRefuses
	files["large"] = string(randomBytes(bigSize))
	fillFolder(t, dir, files)
	n := len(files)
	push := func(o SyncOptions, copied, deleted int) {
		t.Helper()
		var e events
		r, err := newVault(t, c, id).Push(t.Context(), dir, "p/q", e.options(o))
		if err != nil || r.Copied != copied || r.Deleted != deleted {
			t.Errorf("%+v, %v, %v", r, err, e.list)
		}
	}
	pull := func(o SyncOptions, copied, deleted int) {
		t.Helper()
		var e events
		r, err := newVault(t, c, id).Pull(t.Context(), "p/q/", back, e.options(o))
		if err != nil || r.Copied != copied || r.Deleted != deleted {
			t.Errorf("%+v, %v, %v", r, err, e.list)
		}
		if got := readFolder(t, back); !maps.Equal(got, files) {
			t.Errorf("downloaded %d files of %d", len(got), len(files))
		}
	}
	push(SyncOptions{DryRun: true}, n, 0)
	push(SyncOptions{Verify: true}, n, 0)
	push(SyncOptions{}, 0, 0)
	push(SyncOptions{Checksum: true}, 0, 0)
	pull(SyncOptions{}, n, 0)
	pull(SyncOptions{}, 0, 0)
	writeFile(t, filepath.Join(dir, "a", "b"), []byte("Z"))
	if err := os.Remove(filepath.Join(dir, "a-b")); err != nil {
		t.Fatal(err)
	}
	files["a/b"] = "Z"
	delete(files, "a-b")
	push(SyncOptions{Delete: true}, 1, 1)
	pull(SyncOptions{Delete: true, Verify: true}, 1, 1)
}

// TestRewrapEndsTheOldIdentity promises that after a rewrap, which was interrupted and repeated, the new
// identity lists and reads all files and the old one none, and that files of other identities stay as they are.
func TestRewrapEndsTheOldIdentity(t *testing.T) {
	c := newCluster(t, 2)
	old := newIdentity(t)
	next, err := old.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"a", "f/b", "f/g/c", "f/g/d", "h/e"}
	upload := func(id *seal.Identity, name string) {
		t.Helper()
		if err := newVault(t, c, id).Upload(t.Context(), name, strings.NewReader("bytes of "+name), UploadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range files {
		upload(old, name)
	}
	const unlisted = "f/unlisted" // as an upload leaves it that is interrupted before its entry
	upload(old, unlisted)
	x, err := newVault(t, c, old).index("/f")
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Remove(t.Context(), "unlisted"); err != nil {
		t.Fatal(err)
	}
	stranger := newIdentity(t)
	upload(stranger, "of a stranger")
	if _, err := c.client().Upload(t.Context(), "bucket", "e/plain", strings.NewReader("plain"), UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := newVault(t, c, old).Rewrap(t.Context(), "", newIdentity(t), false, nil); !errors.Is(err, ErrOtherPaths) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := newVault(t, c, old).Rewrap(ctx, "", next, false, func(string, error) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = newVault(t, c, old).Rewrap(t.Context(), "f", next, false, nil); err != nil || r.Rewrapped+r.Done != 3 || r.Failed != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = newVault(t, c, old).Rewrap(t.Context(), "", next, false, nil); err != nil || r.Rewrapped+r.Done != 3 || r.Failed != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	var listed []string
	for o, err := range newVault(t, c, next).Entries(t.Context(), "", true) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, o.Key)
	}
	if strings.Join(listed, " ") != strings.Join(files, " ") {
		t.Errorf("listed %q", listed)
	}
	if got := downloaded(t, newVault(t, c, stranger), "of a stranger"); got != "bytes of of a stranger" {
		t.Errorf("the stranger reads %q", got)
	}
	for _, name := range append(files, unlisted) {
		var got bytes.Buffer
		if err := newVault(t, c, next).Download(t.Context(), name, &got, DownloadOptions{}); err != nil || got.String() != "bytes of "+name {
			t.Errorf("%s: %q, %v", name, got.String(), err)
		}
		if err := newVault(t, c, old).Download(t.Context(), name, &got, DownloadOptions{}); !errors.Is(err, seal.ErrWrongKey) {
			t.Errorf("%s with the old identity: %v", name, err)
		}
	}
	if list, err := newVault(t, c, old).List(t.Context(), ""); err != nil || len(list) != 0 {
		t.Errorf("the old identity lists %v, %v", list, err)
	}
	if r, err = newVault(t, c, old).Rewrap(t.Context(), "", next, false, nil); err != nil || r != (RewrapResult{}) {
		t.Errorf("again: %+v, %v", r, err)
	}
}

// TestAStreamThatBreaksOffKeepsTheOldFile promises that the file which a stream replaces can be read until
// the stream is stored with its header, and that no object is left over after a success or a failure.
func TestAStreamThatBreaksOffKeepsTheOldFile(t *testing.T) {
	for _, fails := range []bool{true, false} {
		c := newCluster(t, 1)
		owner := newVault(t, c, newIdentity(t))
		if err := owner.Upload(t.Context(), "f/name", strings.NewReader("old"), UploadOptions{}); err != nil {
			t.Fatal(err)
		}
		for who, v := range map[string]*Vault{
			"owner":     owner,
			"recipient": openLink(t, c, shared(t, owner, "f", ShareOptions{Permissions: seal.FullAccess()}), nil),
		} {
			before, during, stream := len(c.objects), 0, randomBytes(bigSize)
			c.nodes[0].breaks(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("X-Amz-Copy-Source") == "" {
					return false
				}
				c.mu.Lock()
				during = len(c.objects)
				c.mu.Unlock()
				if fails {
					refuse(w, http.StatusBadRequest, "InvalidRequest")
				}
				return fails
			})
			err := v.Upload(t.Context(), "f/name", bytes.NewReader(stream), UploadOptions{})
			want := "old"
			if !fails {
				want = string(stream)
			}
			if (err != nil) != fails || during != before+1 || len(c.objects) != before {
				t.Errorf("%s, fails %t: %v; %d, then %d, then %d objects", who, fails, err, before, during, len(c.objects))
			}
			if got := downloaded(t, owner, "f/name"); got != want {
				t.Errorf("%s, fails %t: the file has %d bytes, want %d", who, fails, len(got), len(want))
			}
		}
	}
}
