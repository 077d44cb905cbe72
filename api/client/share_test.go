package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// fakeShare is a share in the registry of a cluster.
type fakeShare struct {
	ID       string   `json:"share_id"`
	Bucket   string   `json:"bucket"`
	Prefixes []string `json:"prefixes"`
	Read     bool     `json:"read"`
	Write    bool     `json:"write"`
	Delete   bool     `json:"delete"`
	Expires  string   `json:"expires_at,omitempty"`
	Name     string   `json:"name"`
	Created  string   `json:"created_at"`
	Token    string   `json:"token,omitempty"`
}

// registry answers a request about shares, in pages of two.
func (c *cluster) registry(w http.ResponseWriter, r *http.Request, bucket string, body []byte) {
	query := r.URL.Query()
	id := query.Get("share")
	switch r.Method {
	case http.MethodPut:
		s := &fakeShare{}
		if err := json.Unmarshal(body, s); err != nil {
			refuse(w, http.StatusBadRequest, "InvalidRequest")
			return
		}
		s.ID, s.Bucket, s.Created, s.Token = id, bucket, "2026-11-28T00:00:00Z", "access to "+id
		c.shares[id] = s
		_ = json.NewEncoder(w).Encode(s)
	case http.MethodDelete:
		if c.shares[id] == nil {
			refuse(w, http.StatusNotFound, "NoSuchShare")
			return
		}
		delete(c.shares, id)
		w.WriteHeader(http.StatusNoContent)
	default:
		var page struct {
			Shares []fakeShare `json:"shares"`
			Next   string      `json:"next,omitempty"`
		}
		for _, id := range slices.Sorted(maps.Keys(c.shares)) {
			if len(page.Shares) == 2 {
				page.Next = page.Shares[1].ID
				break
			}
			if s := *c.shares[id]; s.Bucket == bucket && id > query.Get("after") {
				s.Token = ""
				page.Shares = append(page.Shares, s)
			}
		}
		_ = json.NewEncoder(w).Encode(page)
	}
}

// admits reports whether the credential of a share permits a request.
func (c *cluster) admits(access string, r *http.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	for _, s := range c.shares {
		if s.Token != access || s.Bucket != bucket {
			continue
		}
		if r.URL.Query().Has("versionId") { // may be from before the share
			return false
		}
		permission := map[string]bool{http.MethodGet: s.Read, http.MethodHead: s.Read, http.MethodPut: s.Write, http.MethodPost: s.Write, http.MethodDelete: s.Delete}
		return permission[r.Method] && slices.ContainsFunc(s.Prefixes, func(p string) bool {
			return key == p || strings.HasSuffix(p, "/") && strings.HasPrefix(key, p)
		})
	}
	return false
}

// openLink opens a share from the text of its link, as a recipient does, and with nothing else.
func openLink(t *testing.T, c *cluster, text string, recipient *seal.Identity) *Vault {
	t.Helper()
	link, err := seal.ParseLink(text)
	if err != nil {
		t.Fatal(err)
	}
	var grant *seal.Grant
	if link.Personal() {
		grant, err = link.Token.Open(recipient, time.Now(), link.Token.Owner)
	} else {
		grant, err = link.Open(time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.client(func(o *Options) { o.Token, o.Endpoints = link.Access, link.Endpoints }).OpenShare(grant)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func shared(t *testing.T, v *Vault, name string, o ShareOptions) string {
	t.Helper()
	link, err := v.Share(t.Context(), name, o)
	if err != nil {
		t.Fatal(name, err)
	}
	return link.URL()
}

func downloaded(t *testing.T, v *Vault, name string) string {
	t.Helper()
	var b bytes.Buffer
	if err := v.Download(t.Context(), name, &b, DownloadOptions{}); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return b.String()
}

func namesOf(t *testing.T, v *Vault, prefix string) (names []string) {
	t.Helper()
	for o, err := range v.Entries(t.Context(), prefix, true) {
		if err != nil {
			t.Fatal(prefix, err)
		}
		names = append(names, o.Key)
	}
	return names
}

// shareTree is an owner with some files.
func shareTree(t *testing.T, c *cluster) (*seal.Identity, *Vault) {
	t.Helper()
	owner := newIdentity(t)
	v := newVault(t, c, owner)
	for _, name := range []string{"a", "f/b", "f/g/c", "f-private/d", "both", "both/e"} {
		if err := v.Upload(t.Context(), name, strings.NewReader("bytes of "+name), UploadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return owner, v
}

// TestASharedFolderIsRead promises that a recipient, with an identity or without, reads a shared
// folder and the folders below, and neither siblings nor parents, and that nothing is written.
func TestASharedFolderIsRead(t *testing.T) {
	c := newCluster(t, 2)
	_, owner := shareTree(t, c)
	for _, o := range c.objects {
		o.header.Set("X-Amz-Version-Id", "v1") // the bucket keeps versions
	}
	recipient := newIdentity(t)
	public := recipient.Public()
	for name, o := range map[string]ShareOptions{"link": {Page: "https://example.org/shared"}, "program": {}, "person": {To: &public}} {
		o.Permissions = seal.ReadOnly()
		v := openLink(t, c, shared(t, owner, "f/", o), recipient)
		if got := namesOf(t, v, "f/"); !slices.Equal(got, []string{"f/b", "f/g/c"}) {
			t.Errorf("%s: lists %q", name, got)
		}
		if got := downloaded(t, v, "f/g/c"); got != "bytes of f/g/c" {
			t.Errorf("%s: reads %q", name, got)
		}
		dir := t.TempDir()
		if r, err := v.Pull(t.Context(), "f", dir, SyncOptions{}); err != nil || r.Copied != 2 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if got := readFolder(t, dir); got["g/c"] != "bytes of f/g/c" {
			t.Errorf("%s: %q", name, got)
		}
		for _, other := range []string{"a", "f-private/d", "both"} {
			if err := v.Download(t.Context(), other, &bytes.Buffer{}, DownloadOptions{}); !errors.Is(err, seal.ErrPathScope) {
				t.Errorf("%s: %s: %v", name, other, err)
			}
		}
		if err := v.Download(t.Context(), "f/../a", &bytes.Buffer{}, DownloadOptions{}); !errors.Is(err, seal.ErrPathScope) {
			t.Errorf("%s: %v", name, err)
		}
		if err := v.Download(t.Context(), "f/g/../b", &bytes.Buffer{}, DownloadOptions{}); !errors.Is(err, seal.ErrPath) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := v.List(t.Context(), ""); !errors.Is(err, seal.ErrPathScope) {
			t.Errorf("%s: lists the whole bucket: %v", name, err)
		}
		if err := v.Download(t.Context(), "f/none", &bytes.Buffer{}, DownloadOptions{}); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if err := v.Upload(t.Context(), "f/new", strings.NewReader("x"), UploadOptions{}); !errors.Is(err, seal.ErrPermission) {
			t.Errorf("%s: writes: %v", name, err)
		}
		if err := v.Remove(t.Context(), "f/b"); !errors.Is(err, seal.ErrPermission) {
			t.Errorf("%s: removes: %v", name, err)
		}
		if _, err := v.Share(t.Context(), "f", ShareOptions{}); !errors.Is(err, ErrRecipient) {
			t.Errorf("%s: shares: %v", name, err)
		}
		if _, err := v.Rewrap(t.Context(), "f", recipient, false, nil); !errors.Is(err, ErrRecipient) {
			t.Errorf("%s: rewraps: %v", name, err)
		}
	}
}

// TestASharedFileIsRead promises that the recipient of one file lists and reads this file alone, and
// that the name of a share must be that of one file or folder.
func TestASharedFileIsRead(t *testing.T) {
	c := newCluster(t, 1)
	_, owner := shareTree(t, c)
	v := openLink(t, c, shared(t, owner, "f/g/c", ShareOptions{Permissions: seal.ReadOnly()}), nil)
	if got := namesOf(t, v, ""); !slices.Equal(got, []string{"f/g/c"}) {
		t.Errorf("lists %q", got)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := v.DownloadFile(t.Context(), "f/g/c", path, DownloadOptions{}); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "bytes of f/g/c" {
		t.Errorf("%q, %v", got, err)
	}
	if err := v.Download(t.Context(), "f/b", &bytes.Buffer{}, DownloadOptions{}); !errors.Is(err, seal.ErrPathScope) {
		t.Error(err)
	}
	for _, s := range c.shares {
		if len(s.Prefixes) != 1 || c.objects["bucket/"+s.Prefixes[0]] == nil {
			t.Errorf("the credential reaches %q", s.Prefixes)
		}
	}
	for _, tc := range []struct {
		name  string
		grant seal.Permissions
		want  error
	}{
		{"f/g/c", seal.ReadWrite(), ErrSharedFile},
		{"none", seal.ReadOnly(), ErrNotFound},
		{"f/b/", seal.ReadOnly(), ErrNotFound},
		{"both", seal.ReadOnly(), ErrFileAndFolder},
		{"../x", seal.ReadOnly(), seal.ErrPath},
		{"f/%2F", seal.ReadOnly(), seal.ErrPathUnreadable},
		{"f//g", seal.ReadOnly(), seal.ErrPath},
	} {
		if _, err := owner.Share(t.Context(), tc.name, ShareOptions{Permissions: tc.grant}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	if len(c.shares) != 1 {
		t.Errorf("%d shares are registered", len(c.shares))
	}
	for name, want := range map[string][]string{"both/": {"both/e"}, "": {"a", "both", "both/e", "f-private/d", "f/b", "f/g/c"}} {
		got := namesOf(t, openLink(t, c, shared(t, owner, name, ShareOptions{Permissions: seal.ReadOnly()}), nil), name)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%q lists %q", name, got)
		}
	}
}

// TestARecipientWrites promises that the owner sees what a recipient added or replaced, that the
// owner may replace and remove it, and that no object is left over.
func TestARecipientWrites(t *testing.T) {
	c := newCluster(t, 1)
	_, owner := shareTree(t, c)
	before := len(c.objects)
	v := openLink(t, c, shared(t, owner, "f", ShareOptions{Permissions: seal.ReadWrite()}), nil)
	large := filepath.Join(t.TempDir(), "large")
	data := randomBytes(bigSize)
	writeFile(t, large, data)
	if err := v.UploadFile(t.Context(), "f/large", large, UploadOptions{Journal: large + ".journal"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f/new", "f/b", "f/h/new"} {
		if err := v.Upload(t.Context(), name, strings.NewReader("of the recipient: "+name), UploadOptions{}); err != nil {
			t.Fatal(name, err)
		}
		if got := downloaded(t, owner, name); got != "of the recipient: "+name {
			t.Errorf("%s: the owner reads %q", name, got)
		}
	}
	if got := downloaded(t, owner, "f/large"); got != string(data) {
		t.Errorf("the owner reads %d bytes", len(got))
	}
	if got := namesOf(t, owner, "f/"); !slices.Equal(got, []string{"f/b", "f/g/c", "f/h/new", "f/large", "f/new"}) {
		t.Errorf("the owner lists %q", got)
	}
	dir := t.TempDir()
	if r, err := owner.Pull(t.Context(), "f", dir, SyncOptions{}); err != nil || r.Copied != 5 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := v.Remove(t.Context(), "f/new"); !errors.Is(err, seal.ErrPermission) {
		t.Errorf("removes: %v", err)
	}
	if err := v.Upload(t.Context(), "elsewhere", strings.NewReader("x"), UploadOptions{}); !errors.Is(err, seal.ErrPathScope) {
		t.Errorf("writes elsewhere: %v", err)
	}
	if err := owner.Upload(t.Context(), "f/new", strings.NewReader("of the owner"), UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := downloaded(t, v, "f/new"); got != "of the owner" {
		t.Errorf("the recipient reads %q", got)
	}
	all := openLink(t, c, shared(t, owner, "f", ShareOptions{Permissions: seal.FullAccess()}), nil)
	for _, remove := range []func() error{
		func() error { return owner.Remove(t.Context(), "f/h/new") },
		func() error { return owner.Remove(t.Context(), "f/large") },
		func() error { return all.Remove(t.Context(), "f/new") },
		func() error { return all.Remove(t.Context(), "f/none") },
	} {
		if err := remove(); err != nil {
			t.Error(err)
		}
	}
	if after := len(c.objects); after != before+1 { // the index of f/h
		t.Errorf("%d objects, before %d: %q", after, before, slices.Sorted(maps.Keys(c.objects)))
	}
}

// TestAnEntryRemovesNoOtherObject promises that an entry of the index that names an object outside
// of the Vault does not make the owner remove this object.
func TestAnEntryRemovesNoOtherObject(t *testing.T) {
	c := newCluster(t, 1)
	_, owner := shareTree(t, c)
	plain := c.client()
	if _, err := plain.Upload(t.Context(), "bucket", "plain", strings.NewReader("x"), UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, last := range []func() error{
		func() error { return owner.Upload(t.Context(), "f/trap", strings.NewReader("x"), UploadOptions{}) },
		func() error { return owner.Remove(t.Context(), "f/trap") },
	} {
		v := openLink(t, c, shared(t, owner, "f", ShareOptions{Permissions: seal.ReadWrite()}), nil)
		if err := v.record(t.Context(), "/f", seal.Entry{Name: "trap", StorageKey: "plain"}); err != nil {
			t.Fatal(err)
		}
		if err := last(); err != nil {
			t.Error(err)
		}
		if _, err := plain.Head(t.Context(), "bucket", "plain"); err != nil {
			t.Error(err)
		}
	}
}

// TestARevokedShareEnds promises that the registry lists the shares, that a recipient gets ErrRevoked
// after a revocation, and that a share cannot be revoked twice.
func TestARevokedShareEnds(t *testing.T) {
	for _, signed := range []bool{false, true} {
		c := newCluster(t, 1)
		_, owner := shareTree(t, c)
		client := c.client(func(o *Options) {
			if signed {
				o.Token, o.AccessKey, o.SecretKey = "", "key", "secret"
			}
		})
		expires := time.Now().Add(time.Hour).Truncate(time.Second)
		var links []*seal.Link
		for i := range 5 {
			link, err := owner.Share(t.Context(), "f", ShareOptions{Permissions: seal.FullAccess(), Expires: expires, Name: fmt.Sprint("share ", i)})
			if err != nil {
				t.Fatal(err)
			}
			links = append(links, link)
		}
		listed := map[string]Share{}
		for s, err := range client.Shares(t.Context(), "bucket") {
			if err != nil {
				t.Fatal(err)
			}
			listed[s.ID] = s
		}
		if s := listed[links[3].Token.ShareID]; len(listed) != 5 || s.Name != "share 3" || !s.Expires.Equal(expires) || s.Permissions != seal.FullAccess() || s.Created.IsZero() || len(s.Prefixes) != 2 {
			t.Errorf("lists %+v", listed)
		}
		v := openLink(t, c, links[0].URL(), nil)
		if err := client.RevokeShare(t.Context(), "bucket", links[0].Token.ShareID); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"list":     func() error { _, err := v.List(t.Context(), "f"); return err }(),
			"download": v.Download(t.Context(), "f/b", &bytes.Buffer{}, DownloadOptions{}),
			"upload":   v.Upload(t.Context(), "f/b", strings.NewReader("x"), UploadOptions{}),
			"remove":   v.Remove(t.Context(), "f/b"),
		} {
			if !errors.Is(err, ErrRevoked) || !errors.Is(err, ErrDenied) || strings.TrimPrefix(err.Error(), "f/b: ") != ErrRevoked.Error() {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got := downloaded(t, openLink(t, c, links[1].URL(), nil), "f/b"); got != "bytes of f/b" {
			t.Errorf("another share: %q", got)
		}
		var refused *Error
		err := client.RevokeShare(t.Context(), "bucket", links[0].Token.ShareID)
		if !errors.Is(err, ErrNotFound) || !errors.As(err, &refused) || refused.Code != "NoSuchShare" {
			t.Errorf("again: %v", err)
		}
	}
}
