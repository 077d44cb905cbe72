package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hpke"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"strings"

	"lukechampine.com/blake3"
)

// Sizes of keys, nonces and tags in bytes.
const (
	keySize   = 32
	nonceSize = 12 // AES-GCM and ChaCha20-Poly1305
	tagSize   = 16 // AES-GCM and ChaCha20-Poly1305
)

// Context strings of BLAKE3 derive_key, and a prefix of additional authenticated data.
const (
	contextFolderRoot  = "holdfast folder-root v1"
	contextFolderChild = "holdfast folder-child v1"
	contextIndexKey    = "holdfast index-key v1"
	contextIndexName   = "holdfast index-name v1"
	aadFolderWrap      = "holdfast:v1:folder-wrap:" // + storage key
)

// Opener opens the data key of an object from its header. An [*Identity] opens the objects of its
// owner, a [FolderKey] those that were encrypted for its folder, and a [DataKey] the one object
// to which it belongs.
type Opener interface {
	open(h *header, storageKey string) (DataKey, error)
}

// DataKey is the symmetric key of the content and the private metadata of one object.
type DataKey [keySize]byte

// String returns a text that does not contain the key.
func (DataKey) String() string { return "data key" }

// GoString returns a text that does not contain the key.
func (DataKey) GoString() string { return "seal.DataKey{}" }

func (k DataKey) open(*header, string) (DataKey, error) { return k, nil }

func (k DataKey) aead() cipher.AEAD { return newGCM(k[:]) }

func newDataKey() DataKey { return DataKey(random(keySize)) }

// FolderKey opens all objects below one folder of a bucket that were encrypted for their folder,
// including objects of later uploads. The keys of subfolders can be derived from a FolderKey; the
// keys of the folders above cannot.
type FolderKey struct {
	key  [keySize]byte
	path string // absolute and clean; "/" is the whole bucket
}

// Path returns the absolute path of the folder.
func (k FolderKey) Path() string { return k.path }

// String returns a text that does not contain the key.
func (k FolderKey) String() string { return "folder key of " + k.path }

// GoString returns a text that does not contain the key.
func (k FolderKey) GoString() string { return "seal.FolderKey{" + k.path + "}" }

// Folder returns the key of this folder or of a folder below. path must be absolute and clean.
// The error is [ErrPath], or [ErrPathScope] if path is not in this folder.
func (k FolderKey) Folder(path string) (FolderKey, error) {
	if err := checkFolder(path); err != nil {
		return FolderKey{}, err
	}
	below, ok := within(k.path, path)
	if !ok {
		return FolderKey{}, fmt.Errorf("%w: %s is not below %s", ErrPathScope, path, k.path)
	}
	child := FolderKey{key: k.key, path: path}
	for segment := range strings.SplitSeq(below, "/") {
		if segment != "" {
			child.key = derive(contextFolderChild, child.key[:], []byte(segment))
		}
	}
	return child, nil
}

func (k FolderKey) wrap(key DataKey, storageKey string) *folderKey {
	nonce := random(nonceSize)
	return &folderKey{Nonce: nonce, Ciphertext: newGCM(k.key[:]).Seal(nil, nonce, key[:], []byte(aadFolderWrap+storageKey))}
}

func (k FolderKey) open(h *header, storageKey string) (DataKey, error) {
	if h.Folder == nil {
		return DataKey{}, ErrNoFolderKey
	}
	plain, err := newGCM(k.key[:]).Open(nil, h.Folder.Nonce, h.Folder.Ciphertext, []byte(aadFolderWrap+storageKey))
	if err != nil || len(plain) != keySize {
		return DataKey{}, fmt.Errorf("%w: folder %s", ErrWrongKey, k.path)
	}
	return DataKey(plain), nil
}

// PublicKey is a key for which data keys are wrapped, classic or hybrid. The zero value is not a
// valid key.
type PublicKey struct{ key hpke.PublicKey }

// ParsePublicKey parses an X25519 public key of 32 bytes. The error is [ErrIdentity].
func ParsePublicKey(b []byte) (PublicKey, error) { return parsePublicKey(classicKEM(), b) }

// ParseHybridPublicKey parses an MLKEM768-X25519 public key of 1,216 bytes. The error is
// [ErrIdentity].
func ParseHybridPublicKey(b []byte) (PublicKey, error) {
	return parsePublicKey(hpke.MLKEM768X25519(), b)
}

func parsePublicKey(kem hpke.KEM, b []byte) (PublicKey, error) {
	key, err := kem.NewPublicKey(b)
	if err != nil {
		return PublicKey{}, fmt.Errorf("%w: public key: %w", ErrIdentity, err)
	}
	return PublicKey{key}, nil
}

// Bytes returns the encoding that [ParsePublicKey] or [ParseHybridPublicKey] parses, and nil for
// the zero value.
func (k PublicKey) Bytes() []byte {
	if k.key == nil {
		return nil
	}
	return k.key.Bytes()
}

// Hybrid reports whether the key is a hybrid post-quantum key.
func (k PublicKey) Hybrid() bool {
	return k.key != nil && k.key.KEM().ID() == hpke.MLKEM768X25519().ID()
}

// Equal reports whether both are the same key.
func (k PublicKey) Equal(other PublicKey) bool {
	return k.key != nil && other.key != nil && k.Hybrid() == other.Hybrid() &&
		subtle.ConstantTimeCompare(k.Bytes(), other.Bytes()) == 1
}

// newGCM returns AES-256-GCM with a key of 32 bytes. A key of this length cannot fail.
func newGCM(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("seal: " + err.Error())
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic("seal: " + err.Error())
	}
	return gcm
}

// derive returns BLAKE3 derive_key with the given context string and the concatenated parts as
// key material.
func derive(context string, parts ...[]byte) [keySize]byte {
	var source []byte
	for _, part := range parts {
		source = append(source, part...)
	}
	var out [keySize]byte
	blake3.DeriveKey(out[:], context, source)
	return out
}

// randomInto fills b from the random generator of the system, which cannot fail.
func randomInto(b []byte) { rand.Read(b) }

// random returns n bytes from the random generator of the system.
func random(n int) []byte {
	b := make([]byte, n)
	randomInto(b)
	return b
}
