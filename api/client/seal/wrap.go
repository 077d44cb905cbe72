package seal

import (
	"crypto/ecdh"
	"crypto/hpke"
	"fmt"
)

// Constants of the format: the HPKE info string, and the additional data of a wrapped data key.
const (
	infoStorage = "fula-storage-v2"
	aadDataKey  = "fula:v2:dek-wrap"
)

// wrappedKey is a 32-byte key that is encrypted with HPKE in base mode.
type wrappedKey struct {
	Encapsulated []byte
	Ciphertext   []byte
}

func classicKEM() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }

// wrapKey encrypts key for the public key to and authenticates additional with it. The error is
// [ErrIdentity] if to is the zero value.
func wrapKey(to PublicKey, key [keySize]byte, additional []byte) (wrappedKey, error) {
	if to.key == nil {
		return wrappedKey{}, fmt.Errorf("%w: no public key", ErrIdentity)
	}
	encapsulated, sender, err := hpke.NewSender(to.key, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte(infoStorage))
	if err != nil {
		return wrappedKey{}, fmt.Errorf("wrap data key: %w", err)
	}
	ciphertext, err := sender.Seal(additional, key[:])
	if err != nil {
		return wrappedKey{}, fmt.Errorf("wrap data key: %w", err)
	}
	return wrappedKey{encapsulated, ciphertext}, nil
}

// unwrapKey decrypts w with a private key; additional must be the same as for wrapKey. Otherwise
// the error is [ErrWrongKey].
func unwrapKey(with hpke.PrivateKey, w wrappedKey, additional []byte) ([keySize]byte, error) {
	recipient, err := hpke.NewRecipient(w.Encapsulated, with, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte(infoStorage))
	if err != nil {
		return [keySize]byte{}, fmt.Errorf("%w: %w", ErrWrongKey, err)
	}
	key, err := recipient.Open(additional, w.Ciphertext)
	if err != nil || len(key) != keySize {
		return [keySize]byte{}, ErrWrongKey
	}
	return [keySize]byte(key), nil
}
