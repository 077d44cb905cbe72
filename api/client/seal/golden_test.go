package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/cryptotest"

	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

// goldenSecrets are the secrets of the identity of the golden files.
func goldenSecrets() secrets {
	s := secrets{path: count()}
	for i := range keySize {
		s.classic[i], s.hybrid[i], s.signing[i] = byte(0x20+i), byte(0x40+i), byte(0x60+i)
	}
	return s
}

// golden compares text with a golden file and returns the text that the file has.
func golden(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	goldentest.File(t, path, []byte(text+"\n"))
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(kept), "\n")
}

// TestGoldenFiles promises that what is written stays what it is, byte for byte, and that what was
// written before is still read. The random numbers are drawn from a seed.
func TestGoldenFiles(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	id, err := newIdentity(goldenSecrets())
	if err != nil {
		t.Fatal(err)
	}
	root, err := id.FolderKey("trip")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("identity", func(t *testing.T) {
		file, err := id.Seal([]byte("golden"), testCost())
		if err != nil {
			t.Fatal(err)
		}
		read, err := OpenIdentity([]byte(golden(t, "identity.json", string(file))), []byte("golden"))
		if err != nil || read.Public() != id.Public() {
			t.Error(err)
		}
	})
	for _, tc := range []struct {
		name   string
		to     PublicKey
		bound  bool
		stream bool
	}{
		{"version2", id.PublicKey(), false, false},
		{"version4", id.PublicKey(), true, false},
		{"chunks", id.PublicKey(), false, true},
		{"version102", id.HybridPublicKey(), false, false},
	} {
		t.Run(tc.name, func(t *testing.T) { goldenObject(t, id, root, tc.to, tc.name, tc.bound, tc.stream) })
	}
	t.Run("token", func(t *testing.T) {
		tok := token(t, id, id.Public(), share())
		read, err := ParseToken(golden(t, "token.json", tok.JSON()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read.Open(id, at(), id.Public()); err != nil {
			t.Error(err)
		}
	})
	t.Run("link", func(t *testing.T) {
		made, err := id.NewLink("https://example.org/share", "access", share())
		if err != nil {
			t.Fatal(err)
		}
		read, err := ParseLink(golden(t, "link.txt", made.URL()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read.Open(at()); err != nil {
			t.Error(err)
		}
	})
	t.Run("index", func(t *testing.T) { goldenIndex(t, root) })
}

func goldenObject(t *testing.T, id *Identity, root FolderKey, to PublicKey, name string, bound, stream bool) {
	const plain = "golden plaintext"
	o := object(0)
	d, err := DigestOf(strings.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	o.Digest, o.Folder, o.Bound = &d, &root, bound
	if stream {
		o.Digest = nil
	}
	e, err := New(to, o)
	if err != nil {
		t.Fatal(err)
	}
	var ciphertext bytes.Buffer
	if _, err := ciphertext.ReadFrom(e.Reader(strings.NewReader(plain))); err != nil {
		t.Fatal(err)
	}
	h, err := e.Header()
	if err != nil {
		t.Fatal(err)
	}
	kept := golden(t, "header-"+name+".json", string(h))
	content, err := base64.StdEncoding.DecodeString(golden(t, "content-"+name+".txt", encode64(ciphertext.Bytes())))
	if err != nil {
		t.Fatal(err)
	}
	got, m, err := Decrypt(id, Header(kept), o.StorageKey, o.Path, content)
	if err != nil || string(got) != plain {
		t.Fatalf("%q: %v", got, err)
	}
	written, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "metadata-"+name+".json", string(written))
}

func goldenIndex(t *testing.T, root FolderKey) {
	photos, err := root.Folder("/photos")
	if err != nil {
		t.Fatal(err)
	}
	store := newMemory()
	x := NewIndex(store, "trip", photos, "")
	wanted := []Entry{{Name: "beach.jpg", StorageKey: "e/0123", Size: 16, Modified: at(), Hash: count()}, {Name: "vacation/"}}
	if err := x.Put(t.Context(), wanted...); err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(store.objects, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	kept := newMemory()
	if err := json.Unmarshal([]byte(golden(t, "index.json", string(text))), &kept.objects); err != nil {
		t.Fatal(err)
	}
	all, err := NewIndex(kept, "trip", photos, "").List(t.Context())
	if err != nil || len(all) != 2 || all[0] != wanted[0] || all[1] != wanted[1] {
		t.Errorf("%+v: %v", all, err)
	}
}

// TestOtherForms promises that the second pair of headers, the nested form of a wrapped key, a
// version that is not known, another cipher, and an object without private metadata are each read or
// refused as the format says.
func TestOtherForms(t *testing.T) {
	id := generate(t)
	ciphertext, h := encrypt(t, id, 20)
	for name, headers := range map[string]map[string]string{
		"own": h.Map(), "other": {legacyHeaderEncrypted: "true", legacyHeaderEncryption: string(h)},
	} {
		if found, err := FindHeader(func(name string) string { return headers[name] }); err != nil || found != h {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, headers := range []map[string]string{{}, {HeaderEncrypted: "false", HeaderEncryption: string(h)}, {HeaderEncryption: string(h)}} {
		_, err := FindHeader(func(name string) string { return headers[name] })
		want(t, err, ErrNotEncrypted)
	}
	_, err := FindHeader(func(name string) string { return map[string]string{HeaderEncrypted: "true"}[name] })
	want(t, err, ErrHeader)

	change := func(f func(members map[string]any)) Header {
		var members map[string]any
		if err := json.Unmarshal([]byte(h), &members); err != nil {
			t.Fatal(err)
		}
		f(members)
		text, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		return Header(text)
	}
	wrapped := func(m map[string]any) map[string]any { return m["wrapped_key"].(map[string]any) }
	nested := func(version int, cipher string) Header {
		return change(func(m map[string]any) {
			w := wrapped(m)
			m["wrapped_key"] = map[string]any{
				"version": version, "cipher": cipher, "ciphertext": w["ciphertext"], "encapsulated_key": map[string]any{"ephemeral_public": w["encapsulated_key"]},
			}
		})
	}
	for _, tc := range []struct {
		name string
		h    Header
		want error
	}{
		{"nested", nested(2, "ChaCha20-Poly1305"), nil},
		{"nested, other spelling", nested(2, "CHACHA20_POLY1305"), nil},
		{"nested, other version", nested(3, "ChaCha20-Poly1305"), ErrVersion},
		{"nested, other cipher", nested(2, "AES-256-GCM"), ErrAlgorithm},
		{"any nonce of the wrapped key", change(func(m map[string]any) { wrapped(m)["nonce"] = encode64(bytesOf(12)) }), nil},
		{"version 3", change(func(m map[string]any) { m["version"] = 3 }), ErrVersion},
		{"version 5", change(func(m map[string]any) { m["version"] = 5 }), ErrVersion},
		{"version of hybrid keys", change(func(m map[string]any) { m["version"] = 102 }), ErrHeader},
		{"version as text", change(func(m map[string]any) { m["version"] = "2" }), ErrHeader},
		{"other algorithm", change(func(m map[string]any) { m["algorithm"] = "AES-128-GCM" }), ErrAlgorithm},
		{"short nonce", change(func(m map[string]any) { m["nonce"] = "AAAA" }), ErrHeader},
		{"metadata of another version", change(func(m map[string]any) { m["private_metadata"] = `{"version":2}` }), ErrVersion},
		{"no metadata", change(func(m map[string]any) { m["metadata_privacy"] = false }), ErrNoMetadata},
		{"too long", h + Header(strings.Repeat(" ", MaxHeader)), ErrTooLarge},
		{"nothing", "", ErrHeader},
	} {
		plain, _, err := Decrypt(id, tc.h, "e/0123", "", ciphertext)
		if tc.want == nil && (err != nil || !bytes.Equal(plain, bytesOf(20))) {
			t.Errorf("%s: %v", tc.name, err)
		} else if tc.want != nil {
			t.Run(tc.name, func(t *testing.T) { want(t, err, tc.want) })
		}
	}
	bare := change(func(m map[string]any) { m["metadata_privacy"] = false; delete(m, "private_metadata") })
	c, err := Open(id, bare, "e/0123", Options{Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	if _, err := plain.ReadFrom(c.Reader(bytes.NewReader(ciphertext))); err != nil || !bytes.Equal(plain.Bytes(), bytesOf(20)) {
		t.Errorf("bare: %v", err)
	}
	if _, known := c.Size(); known {
		t.Error("the size of a bare object is known")
	}
	_, _, err = c.Range(0, 1)
	want(t, err, ErrRange)
}

// TestHeaderHasRoom promises that user metadata which makes the header too large is refused by New, before
// anything is uploaded, as are a bad path, an empty key and a size beyond the maximum.
func TestHeaderHasRoom(t *testing.T) {
	o := object(1)
	o.User = map[string]string{"a": strings.Repeat("x", MaxHeader)}
	_, err := New(generate(t).PublicKey(), o)
	want(t, err, ErrTooLarge)
	o.User, o.Path = nil, "photos"
	_, err = New(generate(t).PublicKey(), o)
	want(t, err, ErrPath)
	_, err = New(PublicKey{}, object(1))
	want(t, err, ErrIdentity)
	o.Path, o.Digest = "/a", &Digest{Size: maxSize + 1}
	_, err = New(generate(t).PublicKey(), o)
	want(t, err, ErrTooLarge)
}
