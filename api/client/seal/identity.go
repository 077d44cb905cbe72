package seal

import (
	"crypto/ed25519"
	"crypto/hpke"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
)

// shareIdentityPrefix begins a share identity; the digit is the version of its form.
const shareIdentityPrefix = "hfid1-"

// checkSize is the length in bytes of the checksum of a share identity.
const checkSize = 4

// Identity holds the keys of a person: an X25519 key and a hybrid post-quantum key that data keys
// are wrapped for, an Ed25519 key that signs share tokens, and the secret that hides paths. Its
// methods are safe for concurrent use.
type Identity struct {
	classic    hpke.PrivateKey // X25519
	hybrid     hpke.PrivateKey // MLKEM768-X25519
	signing    ed25519.PrivateKey
	pathSecret [keySize]byte
}

// secrets are the 32-byte secrets that an identity consists of.
type secrets struct{ classic, hybrid, signing, path [keySize]byte }

// Generate returns a new identity.
func Generate() (*Identity, error) {
	return newIdentity(secrets{
		[keySize]byte(random(keySize)), [keySize]byte(random(keySize)), [keySize]byte(random(keySize)), [keySize]byte(random(keySize)),
	})
}

// Rotate returns an identity with new keys and the same path secret, so that storage keys stay
// what they are. [Rewrap] gives it the objects of the old one.
func (id *Identity) Rotate() (*Identity, error) {
	return newIdentity(secrets{
		[keySize]byte(random(keySize)), [keySize]byte(random(keySize)), [keySize]byte(random(keySize)), id.pathSecret,
	})
}

func newIdentity(s secrets) (*Identity, error) {
	classic, err := classicKEM().NewPrivateKey(s.classic[:])
	if err != nil {
		return nil, fmt.Errorf("%w: encryption key: %w", ErrIdentity, err)
	}
	hybrid, err := hpke.MLKEM768X25519().NewPrivateKey(s.hybrid[:])
	if err != nil {
		return nil, fmt.Errorf("%w: hybrid key: %w", ErrIdentity, err)
	}
	return &Identity{classic, hybrid, ed25519.NewKeyFromSeed(s.signing[:]), s.path}, nil
}

func (id *Identity) secrets() (secrets, error) {
	classic, err := id.classic.Bytes()
	if err != nil {
		return secrets{}, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	hybrid, err := id.hybrid.Bytes()
	if err != nil {
		return secrets{}, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	return secrets{[keySize]byte(classic), [keySize]byte(hybrid), [keySize]byte(id.signing.Seed()), id.pathSecret}, nil
}

// String hides the keys.
func (id *Identity) String() string { return "identity " + id.Public().String() }

// GoString hides the keys.
func (id *Identity) GoString() string { return "seal.Identity{" + id.Public().String() + "}" }

// PublicKey returns the X25519 key that others and this person wrap data keys for.
func (id *Identity) PublicKey() PublicKey { return PublicKey{id.classic.PublicKey()} }

// HybridPublicKey returns the MLKEM768-X25519 key. Objects that are wrapped for it stay closed to
// somebody who records them today and has a quantum computer later. Readers that lack it refuse
// them by their version.
func (id *Identity) HybridPublicKey() PublicKey { return PublicKey{id.hybrid.PublicKey()} }

// FolderKey returns the key of all objects of bucket.
func (id *Identity) FolderKey(bucket string) (FolderKey, error) {
	s, err := id.secrets()
	if err != nil {
		return FolderKey{}, err
	}
	return FolderKey{key: derive(contextFolderRoot, s.classic[:], []byte(bucket)), path: "/"}, nil
}

// Public returns what others may know of the identity.
func (id *Identity) Public() PublicIdentity {
	return PublicIdentity{
		Encryption: [32]byte(id.classic.PublicKey().Bytes()),
		Signing:    [32]byte(id.signing.Public().(ed25519.PublicKey)),
	}
}

func (id *Identity) open(h *header, _ string) (DataKey, error) {
	with := id.classic
	if h.hybrid() {
		with = id.hybrid
	}
	key, err := unwrapKey(with, h.Wrapped, []byte(aadDataKey))
	return DataKey(key), err
}

// PublicIdentity is the pair of public keys by which a recipient knows an owner, and an owner a
// recipient. Its text form is the share identity: people exchange and compare it.
type PublicIdentity struct {
	Encryption [32]byte // X25519
	Signing    [32]byte // Ed25519
}

// PublicKey returns the key to wrap data keys for. The error is [ErrIdentity].
func (p PublicIdentity) PublicKey() (PublicKey, error) { return ParsePublicKey(p.Encryption[:]) }

// String returns the share identity: a prefix, and both keys with a checksum in base64url.
func (p PublicIdentity) String() string {
	keys := append(p.Encryption[:], p.Signing[:]...)
	return shareIdentityPrefix + base64.RawURLEncoding.EncodeToString(append(keys, checksum(keys)...))
}

// ParsePublicIdentity reads a share identity. The error is [ErrIdentity], also after a typing
// mistake, which the checksum finds.
func ParsePublicIdentity(s string) (PublicIdentity, error) {
	text, ok := strings.CutPrefix(s, shareIdentityPrefix)
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(b) != 2*keySize+checkSize || subtle.ConstantTimeCompare(checksum(b[:2*keySize]), b[2*keySize:]) != 1 {
		return PublicIdentity{}, fmt.Errorf("%w: not a share identity", ErrIdentity)
	}
	p := PublicIdentity{[32]byte(b[:32]), [32]byte(b[32:64])}
	if _, err := p.PublicKey(); err != nil {
		return PublicIdentity{}, err
	}
	return p, nil
}

func checksum(keys []byte) []byte {
	sum := sha256.Sum256(keys)
	return sum[:checkSize]
}
