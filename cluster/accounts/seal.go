package accounts

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// A sealed signing key, as it is stored in the state, is
//
//	version (1 byte, 0x01) | nonce (12 bytes) | AES-256-GCM of the Ed25519 seed (32 + 16 bytes)
//
// under the key HKDF-SHA256(account secret, no salt, info "holdfast seal v1"), with the version
// byte as additional data. So the state alone, for example a Raft snapshot, is not enough to sign. A
// backup contains the account secret too.
const (
	sealVersion = 1
	sealInfo    = "holdfast seal v1"
	sealNonce   = 12
	sealTag     = 16
	sealedLen   = 1 + sealNonce + ed25519.SeedSize + sealTag
)

// MinSecret is the smallest number of bytes of a cluster secret.
const MinSecret = 16

// ErrSealed means that a signing key cannot be decrypted with the cluster secret.
var ErrSealed = errors.New("the cluster's signing key does not open with this node's cluster secret")

// NewSigningKey generates a key for signing API keys, and returns it encrypted with the cluster
// secret.
func NewSigningKey(secret []byte) (sealed []byte, err error) {
	seed, nonce := make([]byte, ed25519.SeedSize), make([]byte, sealNonce)
	for _, b := range [][]byte{seed, nonce} {
		if _, err := rand.Read(b); err != nil {
			return nil, fmt.Errorf("make signing key: %w", err)
		}
	}
	return seal(secret, seed, nonce)
}

func seal(secret, seed, nonce []byte) ([]byte, error) {
	aead, err := sealer(secret)
	if err != nil {
		return nil, fmt.Errorf("seal signing key: %w", err)
	}
	sealed := append(make([]byte, 0, sealedLen), sealVersion)
	sealed = append(sealed, nonce...)
	return aead.Seal(sealed, nonce, seed, sealed[:1]), nil
}

// unseal returns the seed of a sealed signing key.
func unseal(secret, sealed []byte) ([]byte, error) {
	if len(sealed) != sealedLen || sealed[0] != sealVersion {
		return nil, fmt.Errorf("open signing key: %d bytes in an unknown form", len(sealed))
	}
	aead, err := sealer(secret)
	if err != nil {
		return nil, fmt.Errorf("open signing key: %w", err)
	}
	seed, err := aead.Open(nil, sealed[1:1+sealNonce], sealed[1+sealNonce:], sealed[:1])
	if err != nil {
		return nil, ErrSealed
	}
	return seed, nil
}

func sealer(secret []byte) (cipher.AEAD, error) { return cipherOf(secret, sealInfo) }

// cipherOf returns the cipher for one purpose, with a key that is derived from secret.
func cipherOf(secret []byte, info string) (cipher.AEAD, error) {
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("the cluster secret has %d bytes, at least %d are needed", len(secret), MinSecret)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, info, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
