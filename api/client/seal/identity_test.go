package seal

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestIdentityFile promises that an identity comes back from its file under its passphrase only.
func TestIdentityFile(t *testing.T) {
	id := generate(t)
	file, err := id.Seal([]byte("correct horse"), testCost())
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenIdentity(file, []byte("correct horse"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := id.secrets()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := again.secrets(); err != nil || a != b || again.Public() != id.Public() {
		t.Error("another identity comes back")
	}
	_, err = OpenIdentity(file, []byte("correct hors"))
	want(t, err, ErrPassphrase)
	_, err = id.Seal(nil, testCost())
	want(t, err, ErrPassphrase)
	for _, tc := range []struct {
		old, new string
		want     error
	}{
		{`"version": 1`, `"version": 2`, ErrVersion},
		{`"time": 1`, `"time": 0`, ErrCost},
		{`"time": 1`, `"time": 65`, ErrCost},
		{`"time": 1`, `"time": 2`, ErrPassphrase},
		{`"memory_kib": 7168`, `"memory_kib": 7167`, ErrCost},
		{`"memory_kib": 7168`, `"memory_kib": 1048577`, ErrCost},
		{`"memory_kib": 7168`, `"memory_kib": -1`, ErrCost},
		{`"memory_kib": 7168`, `"memory_kib": 99999999999999999999`, ErrIdentity},
		{`"threads": 1`, `"threads": 0`, ErrCost},
		{`"threads": 1`, `"threads": 257`, ErrCost},
		{`argon2id`, `argon2i`, ErrAlgorithm},
		{`AES-256-GCM`, `AES-128-GCM`, ErrAlgorithm},
		{`"salt"`, `"Salt"`, ErrIdentity},
		{`hfid1-`, `hfid1_`, ErrPassphrase},
	} {
		changed := strings.Replace(string(file), tc.old, tc.new, 1)
		if changed == string(file) {
			t.Fatalf("the file has no %s", tc.old)
		}
		_, err := OpenIdentity([]byte(changed), []byte("correct horse"))
		t.Run(tc.new, func(t *testing.T) { want(t, err, tc.want) })
	}
	for _, c := range []Cost{{}, {1, 1, 1}, {100, 8192, 1}, {1, 8192, 200}} {
		_, err := id.Seal([]byte("x"), c)
		want(t, err, ErrCost)
	}
	if err := DefaultCost().check(); err != nil {
		t.Error(err)
	}
}

// TestShareIdentity promises that a share identity comes back from its text, and that a text with a wrong
// character is refused.
func TestShareIdentity(t *testing.T) {
	p := generate(t).Public()
	text := p.String()
	if again, err := ParsePublicIdentity(text); err != nil || again != p {
		t.Errorf("%v, %v", again, err)
	}
	for i := range text {
		changed := []byte(text)
		changed[i] ^= 1
		_, err := ParsePublicIdentity(string(changed))
		want(t, err, ErrIdentity)
	}
	_, err := ParsePublicIdentity(text + "AAAA")
	want(t, err, ErrIdentity)
}

// TestRotatedIdentityKeepsPaths promises that a rotated identity has the same storage keys and no other key of
// the old one, and that a path that is no path is refused.
func TestRotatedIdentityKeepsPaths(t *testing.T) {
	old := generate(t)
	next, err := old.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	a, err := old.StorageKey(DeterministicHash, "/a")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := next.StorageKey(DeterministicHash, "/a"); err != nil || a != b {
		t.Errorf("storage key is %s, then %s: %v", a, b, err)
	}
	if next.PublicKey().Equal(old.PublicKey()) || next.HybridPublicKey().Equal(old.HybridPublicKey()) || next.Public().Signing == old.Public().Signing {
		t.Error("a key stays")
	}
	for _, path := range []string{"", "a", "/", "/a/", "/a//b", "/a/../b", "/a/./b", "/\x00", "/\xff", "/" + strings.Repeat("x", 1024)} {
		_, err := old.StorageKey(DeterministicHash, path)
		want(t, err, ErrPath)
	}
}

// TestSecretsAreNotPrinted promises that no form of printing shows a key.
func TestSecretsAreNotPrinted(t *testing.T) {
	owner := generate(t)
	s, err := owner.secrets()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := owner.FolderKey("trip")
	if err != nil {
		t.Fatal(err)
	}
	link, err := owner.NewLink("https://example.org/", "access", share())
	if err != nil {
		t.Fatal(err)
	}
	grant, err := link.Open(at())
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range [][]byte{s.classic[:], s.signing[:], s.path[:], folder.key[:], link.Secret[:]} {
		for _, form := range []string{"%v", "%+v", "%#v", "%s"} {
			for _, value := range []any{owner, folder, link, grant, DataKey(s.classic)} {
				text := fmt.Sprintf(form, value)
				if strings.Contains(text, strings.Trim(fmt.Sprintf("%d", secret[:8]), "[]")) || strings.Contains(text, fmt.Sprintf("%x", secret)) || strings.Contains(text, string(secret)) {
					t.Errorf("%T prints a key by %s", value, form)
				}
			}
		}
	}
}

// TestRewrap promises that new keys open what the old ones no longer do, without new content, and
// that fields which are not known stay.
func TestRewrap(t *testing.T) {
	old := generate(t)
	next, err := old.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	oldRoot, err := old.FolderKey("trip")
	if err != nil {
		t.Fatal(err)
	}
	root, err := next.FolderKey("trip")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{10, ChunkSize + 1} {
		for _, to := range []PublicKey{next.PublicKey(), next.HybridPublicKey()} {
			o := object(n)
			o.Folder = &oldRoot
			ciphertext, h, err := Encrypt(old.PublicKey(), o, bytesOf(n))
			if err != nil {
				t.Fatal(err)
			}
			h = Header(strings.Replace(string(h), `"algorithm"`, `"future":[1],"algorithm"`, 1))
			wrapped, err := Rewrap(h, o.StorageKey, old, to, &root)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(wrapped), `"future":[1]`) {
				t.Error("a field that is not known is lost")
			}
			plain, _, err := Decrypt(next, wrapped, o.StorageKey, o.Path, ciphertext)
			if err != nil || !bytes.Equal(plain, bytesOf(n)) {
				t.Fatal(err)
			}
			folder, err := root.Folder("/photos/vacation")
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := Decrypt(folder, wrapped, o.StorageKey, o.Path, ciphertext); err != nil {
				t.Fatal(err)
			}
			oldFolder, err := oldRoot.Folder("/photos/vacation")
			if err != nil {
				t.Fatal(err)
			}
			for _, opener := range []Opener{old, oldFolder} {
				_, err = Open(opener, wrapped, o.StorageKey, Options{})
				want(t, err, ErrWrongKey)
			}
			alone, err := Rewrap(wrapped, o.StorageKey, next, next.PublicKey(), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Open(folder, alone, o.StorageKey, Options{})
			want(t, err, ErrNoFolderKey)
		}
	}
	_, h := encrypt(t, old, 10)
	_, err = Rewrap(h, "e/0123", next, next.PublicKey(), nil)
	want(t, err, ErrWrongKey)
}
