package seal

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// flips calls check with each form of data that differs from it in one bit.
func flips(data []byte, check func(at int, changed []byte)) {
	for i := range len(data) * 8 {
		changed := bytes.Clone(data)
		changed[i/8] ^= 1 << (i % 8)
		check(i/8, changed)
	}
}

// among reports whether err is one of those.
func among(err error, those ...error) bool {
	for _, e := range those {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// TestFlippedBitsOfContent promises that a ciphertext with a flipped bit is refused, in one piece and in chunks.
func TestFlippedBitsOfContent(t *testing.T) {
	id := generate(t)
	for _, tc := range []struct {
		stream bool
		want   error
	}{{false, ErrContent}, {true, ErrChunk}} {
		o := object(40)
		if tc.stream {
			o.Digest = nil
		}
		e, err := New(id.PublicKey(), o)
		if err != nil {
			t.Fatal(err)
		}
		var ciphertext bytes.Buffer
		if _, err := ciphertext.ReadFrom(e.Reader(bytes.NewReader(bytesOf(40)))); err != nil {
			t.Fatal(err)
		}
		h, err := e.Header()
		if err != nil {
			t.Fatal(err)
		}
		flips(ciphertext.Bytes(), func(at int, changed []byte) {
			if plain, _, err := Decrypt(id, h, o.StorageKey, o.Path, changed); !errors.Is(err, tc.want) || plain != nil {
				t.Errorf("byte %d: %d bytes, %v", at, len(plain), err)
			}
		})
	}
}

// TestFlippedBitsOfTheHeader promises that a header with a flipped bit is refused, except in fields that its
// opener ignores. These are wrapped_key.nonce, which the format ignores, and the part for the folder if the
// owner's key opens the object, and the other way round.
func TestFlippedBitsOfTheHeader(t *testing.T) {
	id := generate(t)
	root, err := id.FolderKey("trip")
	if err != nil {
		t.Fatal(err)
	}
	folder, err := root.Folder("/photos/vacation")
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []PublicKey{id.PublicKey(), id.HybridPublicKey()} {
		o := object(40)
		o.Folder, o.Bound = &root, true
		ciphertext, h, err := Encrypt(to, o, bytesOf(40))
		if err != nil {
			t.Fatal(err)
		}
		wrapped, end := strings.Index(string(h), `"wrapped_key"`), strings.Index(string(h), `"metadata_privacy"`)
		nonce := wrapped + strings.Index(string(h[wrapped:]), `"nonce"`)
		shared := strings.Index(string(h), `"folder_key"`)
		for _, tc := range []struct {
			opener  Opener
			ignored func(at int) bool
		}{
			{id, func(at int) bool { return at > nonce && at < end || at >= shared-1 }},
			{folder, func(at int) bool { return at >= wrapped && at < end }},
		} {
			once := map[int]bool{}
			flips([]byte(h), func(at int, changed []byte) {
				if to.Hybrid() && once[at] {
					return // one bit of each byte of the long header
				}
				once[at] = true
				plain, _, err := Decrypt(tc.opener, Header(changed), o.StorageKey, o.Path, ciphertext)
				if err == nil && tc.ignored(at) {
					if !bytes.Equal(plain, bytesOf(40)) {
						t.Errorf("byte %d gives another plaintext", at)
					}
					return
				}
				if !among(err, ErrHeader, ErrVersion, ErrAlgorithm, ErrWrongKey, ErrMetadata, ErrNoMetadata, ErrContent, ErrNoFolderKey) {
					t.Errorf("byte %d, %q: %v", at, changed[max(0, at-10):min(len(changed), at+10)], err)
				}
			})
		}
	}
}

// TestFlippedBitsOfMetadata promises that private metadata with a flipped bit is refused.
func TestFlippedBitsOfMetadata(t *testing.T) {
	id := generate(t)
	_, text := encrypt(t, id, 10)
	h, err := parseHeader(text)
	if err != nil {
		t.Fatal(err)
	}
	flips(h.Metadata.Ciphertext, func(at int, changed []byte) {
		next := *h
		next.Metadata = &sealedMetadata{h.Metadata.Nonce, changed}
		altered, err := next.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(id, altered, "e/0123", Options{}); !errors.Is(err, ErrMetadata) {
			t.Errorf("byte %d: %v", at, err)
		}
	})
}

// TestFlippedBitsOfTokens promises that a token with a flipped bit is refused, in both of its forms, and that
// its key opens only with the fields that it is bound to.
func TestFlippedBitsOfTokens(t *testing.T) {
	owner, recipient := generate(t), generate(t)
	tok := token(t, owner, recipient.Public(), share())
	for _, form := range []string{tok.JSON(), tok.String()} {
		now := at()
		flips([]byte(form), func(at int, changed []byte) {
			read, err := ParseToken(string(changed))
			if err == nil {
				_, err = read.Open(recipient, now, owner.Public())
			}
			if !among(err, ErrToken, ErrTokenSignature) {
				t.Errorf("byte %d, %q: %v", at, changed[max(0, at-10):min(len(changed), at+10)], err)
			}
		})
	}
	// A signature of the owner over other bytes does not help: the key is bound to the fields.
	flips(tok.bound, func(at int, changed []byte) {
		if _, err := unwrapKey(recipient.classic, tok.wrapped, changed); !errors.Is(err, ErrWrongKey) {
			t.Errorf("byte %d: %v", at, err)
		}
	})
}

// TestFlippedBitsOfAnIndex promises that an index with a flipped bit is refused.
func TestFlippedBitsOfAnIndex(t *testing.T) {
	store := newMemory()
	x := index(t, store)
	if err := x.Put(t.Context(), entries(0, 3)...); err != nil {
		t.Fatal(err)
	}
	key := x.storageKey(nodeRoot)
	flips(store.objects[key], func(at int, changed []byte) {
		store.objects[key] = changed
		if _, err := x.List(t.Context()); !errors.Is(err, ErrIndex) {
			t.Errorf("byte %d: %v", at, err)
		}
	})
}

// TestFlippedBitsOfAnIdentityFile promises that an identity file with a flipped bit is refused or is read as
// another file. The work for a guess of the passphrase is not done for each bit: what precedes it is compared
// instead.
func TestFlippedBitsOfAnIdentityFile(t *testing.T) {
	id := generate(t)
	file, err := id.Seal([]byte("p"), testCost())
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, file); err != nil {
		t.Fatal(err)
	}
	f, err := parseFields(compact.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	good, err := parseIdentityFile(f)
	if err != nil {
		t.Fatal(err)
	}
	ciphertext, _ := f.text("ciphertext")
	nonce, _ := f.text("nonce")
	flips(compact.Bytes(), func(at int, changed []byte) {
		f, err := parseFields(changed)
		if err != nil {
			return
		}
		head, err := parseIdentityFile(f)
		if err != nil {
			if !among(err, ErrIdentity, ErrVersion, ErrAlgorithm, ErrCost) {
				t.Errorf("byte %d: %v", at, err)
			}
			return
		}
		newCiphertext, e1 := f.text("ciphertext")
		newNonce, e2 := f.text("nonce")
		if head == good && e1 == nil && e2 == nil && newCiphertext == ciphertext && newNonce == nonce {
			t.Errorf("byte %d, %q, counts for nothing", at, changed[max(0, at-10):min(len(changed), at+10)])
		}
	})
	// Some of them in full.
	for _, name := range []string{"identity", "salt", "nonce", "ciphertext"} {
		at := bytes.Index(file, []byte(`"`+name+`": "`)) + len(name) + len(`"": "hfid1-`) // a digit of base64
		changed := bytes.Clone(file)
		if changed[at] = 'A'; file[at] == 'A' {
			changed[at] = 'B'
		}
		_, err := OpenIdentity(changed, []byte("p"))
		want(t, err, ErrPassphrase)
	}
}
