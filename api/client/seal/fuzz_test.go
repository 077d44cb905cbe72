package seal

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"
	"testing"
)

// FuzzHeader promises that a header that is read comes back from what is written of it.
func FuzzHeader(f *testing.F) {
	id := generate(f)
	for _, to := range []PublicKey{id.PublicKey(), id.HybridPublicKey()} {
		_, h, err := Encrypt(to, object(1), bytesOf(1))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(h))
	}
	f.Add(`{"version":2,"algorithm":"AES-256-GCM","nonce":"AAAAAAAAAAAAAAAA","wrapped_key":{"version":2,"encapsulated_key":{"ephemeral_public":"` +
		encode64(make([]byte, 32)) + `"},"cipher":"chacha20-poly1305","ciphertext":"` + encode64(make([]byte, 48)) + `"},"metadata_privacy":false}`)
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHeader(Header(text))
		if err != nil {
			if !among(err, ErrHeader, ErrVersion, ErrAlgorithm, ErrTooLarge) {
				t.Fatal(err)
			}
			return
		}
		written, err := h.encode()
		if err != nil {
			return // longer than what was read, and too long
		}
		again, err := parseHeader(written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		if rewritten, err := again.encode(); err != nil || rewritten != written {
			t.Fatalf("%s, then %s: %v", written, rewritten, err)
		}
		if _, err := Open(DataKey{}, Header(text), "e/0", Options{Bare: true}); err == nil && h.Metadata != nil {
			t.Fatal("metadata opens with a key of zeros")
		}
	})
}

// FuzzMetadata promises that private metadata that is read comes back from what is written of it.
func FuzzMetadata(f *testing.F) {
	o := object(5)
	plain, err := Metadata{Path: o.Path, Created: o.Created, Modified: o.Modified, User: o.User, Size: 5}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Add(bytes.Replace(plain, []byte(`{`), []byte(`{"chunk_size":2,"chunk_count":3,"more":[1,{}],`), 1))
	f.Fuzz(func(t *testing.T, plain []byte) {
		m, err := parseMetadata(plain)
		if err != nil {
			return
		}
		if m.Size < 0 || m.chunks.size > maxChunkSize {
			t.Fatalf("%+v", m)
		}
		written, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseMetadata(written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		rewritten, err := again.encode()
		if err != nil || !bytes.Equal(rewritten, written) {
			t.Fatalf("%s, then %s: %v", written, rewritten, err)
		}
	})
}

// FuzzContent promises that no content opens that was not encrypted so.
func FuzzContent(f *testing.F) {
	id := generate(f)
	o := object(30)
	o.Bound = true
	ciphertext, h, err := Encrypt(id.PublicKey(), o, bytesOf(30))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ciphertext)
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, _, err := Decrypt(id, h, o.StorageKey, o.Path, data); (err == nil) != bytes.Equal(data, ciphertext) {
			t.Fatalf("%x: %v", data, err)
		}
	})
}

// FuzzToken promises that a token that is read is its canonical form, and that none verifies but
// the one that was signed.
func FuzzToken(f *testing.F) {
	owner, recipient := generate(f), generate(f)
	tok := token(f, owner, recipient.Public(), share())
	f.Add(tok.JSON())
	f.Add(tok.String())
	f.Fuzz(func(t *testing.T, text string) {
		read, err := ParseToken(text)
		if err != nil {
			if !among(err, ErrToken, ErrTooLarge) {
				t.Fatal(err)
			}
			return
		}
		again, err := ParseToken(read.String())
		if err != nil || again.JSON() != read.JSON() {
			t.Fatalf("%s: %v", read.JSON(), err)
		}
		if err := read.Verify(at(), owner.Public()); err == nil && read.JSON() != tok.JSON() {
			t.Fatalf("verifies: %s", text)
		}
	})
}

// FuzzLink promises that a link that is read comes back from its URL.
func FuzzLink(f *testing.F) {
	link, err := generate(f).NewLink("https://example.org/share", "a b&c", share())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(link.URL())
	f.Fuzz(func(t *testing.T, text string) {
		read, err := ParseLink(text)
		if err != nil {
			if !among(err, ErrToken, ErrTooLarge, ErrVersion, ErrPlainLink) {
				t.Fatal(err)
			}
			return
		}
		again, err := ParseLink(read.URL())
		if err != nil || again.URL() != read.URL() {
			t.Fatalf("%s: %v", read.URL(), err)
		}
	})
}

// FuzzIdentityFile promises that what is read of an identity file before the passphrase is within
// bounds. The passphrase itself is not tried: one guess takes long on purpose.
func FuzzIdentityFile(f *testing.F) {
	file, err := generate(f).Seal([]byte("p"), testCost())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Fuzz(func(t *testing.T, file []byte) {
		parsed, err := parseFields(file)
		if err != nil {
			return
		}
		head, err := parseIdentityFile(parsed)
		if err != nil {
			if !among(err, ErrIdentity, ErrVersion, ErrAlgorithm, ErrCost) {
				t.Fatal(err)
			}
			return
		}
		if err := (Cost{head.Time, head.Memory, head.Threads}).check(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzShareIdentity promises that a share identity has one form.
func FuzzShareIdentity(f *testing.F) {
	f.Add(generate(f).Public().String())
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePublicIdentity(text)
		if err != nil {
			want(t, err, ErrIdentity)
		} else if p.String() != text {
			t.Fatalf("%q, then %q", text, p)
		}
	})
}

// FuzzIndexNode promises that an object of an index that is read comes back from what is written.
func FuzzIndexNode(f *testing.F) {
	n := node{entries: entries(0, 2)}
	plain, err := n.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Add([]byte(`{"version":1,"split":"00000000000000000000000000000000"}`))
	f.Fuzz(func(t *testing.T, plain []byte) {
		n, err := decodeNode(plain)
		if err != nil {
			if !among(err, ErrIndex, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		written, err := n.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeNode(written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		rewritten, err := again.encode()
		if err != nil || !bytes.Equal(rewritten, written) {
			t.Fatalf("%s, then %s: %v", written, rewritten, err)
		}
	})
}

// FuzzCleanPath promises that a path which passes is absolute and clean, however a server decodes
// it, and that no path outside a scope passes.
func FuzzCleanPath(f *testing.F) {
	for _, p := range []string{"/photos/../a", "/photos/%2e%2e/a", "/photos-private", `/photos\..`, "/a/./b//c/"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		clean, err := CleanPath(p)
		if err != nil {
			if !among(err, ErrPath, ErrPathEscape) {
				t.Fatal(err)
			}
			return
		}
		if path.Clean(clean) != clean || clean[0] != '/' || strings.Contains(strings.ToLower(clean), "%2e") {
			t.Fatalf("%q gives %q", p, clean)
		}
		if below, ok := within("/photos", clean); ok && clean != "/photos" && "/photos/"+below != clean {
			t.Fatalf("%q is within by %q", clean, below)
		}
	})
}

// FuzzFields promises that what parseFields reads is what encoding/json reads.
func FuzzFields(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"c":"d"}}`))
	f.Add([]byte(`{"a":1,"A":2}`))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Add([]byte(`{"a":1}x`))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := parseFields(data)
		if err != nil {
			return
		}
		var all map[string]json.RawMessage
		if err := json.Unmarshal(data, &all); err != nil || len(all) != len(found) {
			t.Fatalf("%d members, want %d: %v", len(found), len(all), err)
		}
	})
}
