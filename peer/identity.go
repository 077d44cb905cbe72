package peer

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/crypto"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
)

// joinInfo separates the join key from other keys that are derived from the secret.
const joinInfo = "holdfast join v1"

// NewKey returns a new ed25519 private key in libp2p's encoding.
func NewKey() ([]byte, error) {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("peer: new key: %w", err)
	}
	b, err := crypto.MarshalPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("peer: new key: %w", err)
	}
	return b, nil
}

// IDOf returns the peer id of a private key in the encoding of NewKey.
func IDOf(key []byte) (string, error) {
	_, id, err := parseKey(key)
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

// JoinKey derives a key and its peer id from the cluster secret or a ticket. A handshake
// with this identity proves that the caller knows the secret, so the secret is never sent.
func JoinKey(secret []byte) (key []byte, id string, err error) {
	if len(secret) == 0 {
		return nil, "", errors.New("peer: join key: empty secret")
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, joinInfo, ed25519.SeedSize)
	if err != nil {
		return nil, "", fmt.Errorf("peer: join key: %w", err)
	}
	priv, err := crypto.UnmarshalEd25519PrivateKey(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		return nil, "", fmt.Errorf("peer: join key: %w", err)
	}
	if key, err = crypto.MarshalPrivateKey(priv); err != nil {
		return nil, "", fmt.Errorf("peer: join key: %w", err)
	}
	id, err = IDOf(key)
	return key, id, err
}

func parseKey(key []byte) (crypto.PrivKey, libp2ppeer.ID, error) {
	priv, err := crypto.UnmarshalPrivateKey(key)
	if err != nil {
		return nil, "", fmt.Errorf("peer: private key: %w", err)
	}
	if priv.Type() != crypto.Ed25519 {
		return nil, "", fmt.Errorf("peer: private key: %s, want Ed25519", priv.Type())
	}
	// libp2p does not check the public half. With a damaged one, other peers would reject
	// all signatures of this key.
	raw, err := priv.Raw()
	if err != nil {
		return nil, "", fmt.Errorf("peer: private key: %w", err)
	}
	if len(raw) != ed25519.PrivateKeySize || !bytes.Equal(raw, ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])) {
		return nil, "", errors.New("peer: private key: its two halves do not belong together")
	}
	id, err := libp2ppeer.IDFromPrivateKey(priv)
	if err != nil {
		return nil, "", fmt.Errorf("peer: private key: %w", err)
	}
	return priv, id, nil
}
