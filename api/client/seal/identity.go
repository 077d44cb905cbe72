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

// shareIdentityPrefix is the prefix of a share identity. The digit is the version of the format.
const shareIdentityPrefix = "hfid1-"

// checkSize is the length in bytes of the checksum of a share identity.
const checkSize = 4

// Identity holds the keys of a person. Data keys are wrapped for an X25519 key or for a hybrid
// post-quantum key. An Ed25519 key signs share tokens, and the path secret hides paths. The methods
// of Identity are safe for concurrent use.
type Identity struct {
	classic    hpke.PrivateKey // X25519
	hybrid     hpke.PrivateKey // MLKEM768-X25519
	signing    ed25519.PrivateKey
	pathSecret [keySize]byte
}

// secrets has the 32-byte secrets of an identity.
type secrets struct{ classic, hybrid, signing, path [keySize]byte }

// Generate returns a new identity.
func Generate() (*Identity, error) {
	return newIdentity(secrets{
		[keySize]byte(random(keySize)), [keySize]byte(random(keySize)), [keySize]byte(random(keySize)), [keySize]byte(random(keySize)),
	})
}

// Rotate returns an identity with new keys and the same path secret. So storage keys stay the
// same, and [Rewrap] can move the objects of the old identity to the new one without another
// upload.
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

// String describes the identity without its secrets.
func (id *Identity) String() string { return "identity " + id.Public().String() }

// GoString describes the identity without its secrets.
func (id *Identity) GoString() string { return "seal.Identity{" + id.Public().String() + "}" }

// PublicKey returns the X25519 key for which data keys are wrapped.
func (id *Identity) PublicKey() PublicKey { return PublicKey{id.classic.PublicKey()} }

// HybridPublicKey returns the MLKEM768-X25519 key. It protects objects against an attacker who
// records them today and has a quantum computer later. Readers without support for the key reject
// such objects by their version.
func (id *Identity) HybridPublicKey() PublicKey { return PublicKey{id.hybrid.PublicKey()} }

// FolderKey returns the folder key of the root of bucket, which opens all objects of the bucket.
func (id *Identity) FolderKey(bucket string) (FolderKey, error) {
	s, err := id.secrets()
	if err != nil {
		return FolderKey{}, err
	}
	return FolderKey{key: derive(contextFolderRoot, s.classic[:], []byte(bucket)), path: "/"}, nil
}

// Public returns the public keys of the identity.
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

// PublicIdentity is the pair of public keys of a person, by which owners and recipients of shares
// recognize each other. Its text form is the share identity, which people exchange and compare.
type PublicIdentity struct {
	Encryption [32]byte // X25519
	Signing    [32]byte // Ed25519
}

// PublicKey returns the X25519 key for which data keys are wrapped. The error is [ErrIdentity].
func (p PublicIdentity) PublicKey() (PublicKey, error) { return ParsePublicKey(p.Encryption[:]) }

// String returns the share identity: the prefix hfid1-, and both keys with a checksum in
// base64url.
func (p PublicIdentity) String() string {
	keys := append(p.Encryption[:], p.Signing[:]...)
	return shareIdentityPrefix + base64.RawURLEncoding.EncodeToString(append(keys, checksum(keys)...))
}

// ParsePublicIdentity parses a share identity. The error is [ErrIdentity]; the checksum detects
// typing mistakes.
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
