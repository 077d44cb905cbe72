package accounts

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A sealed value is base64url of
//
//	nonce (12 bytes) | AES-256-GCM of: expiry in milliseconds since 1970, 8 bytes, big endian | JSON
//
// under the key HKDF-SHA256(account secret, no salt, info "holdfast value v1"), with the kind of
// the value as additional data. Any node of the cluster can decrypt it, and no node stores it.
const (
	valueInfo  = "holdfast value v1"
	valueNonce = 12
	// maxValue is the largest size of a sealed value in bytes, because a browser keeps cookies
	// of up to 4,096 bytes.
	maxValue = 3800
)

// SealValue encrypts a value for a cookie, so that the browser can neither read nor change it.
// OpenValue decrypts it on any node, for the same kind, until life has passed. The kind prevents
// that a value is accepted for another purpose. SealValue returns state.ErrTooLarge for a value
// that is too long for a cookie.
func (a *Accounts) SealValue(kind string, life time.Duration, value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("seal value: %w", err)
	}
	aead, err := a.valueCipher()
	if err != nil {
		return "", err
	}
	sealed := make([]byte, valueNonce, maxValue)
	if _, err := rand.Read(sealed); err != nil {
		return "", fmt.Errorf("seal value: %w", err)
	}
	plain := binary.BigEndian.AppendUint64(nil, uint64(state.MillisOf(a.now().Add(life))))
	out := base64.RawURLEncoding.EncodeToString(aead.Seal(sealed, sealed, append(plain, text...), []byte(kind)))
	if len(out) > maxValue {
		return "", state.Errorf(state.CodeTooLarge, "the address to return to is too long")
	}
	return out, nil
}

// OpenValue decrypts a sealed value of a kind into the pointer into. It returns state.ErrNotFound
// for text that SealValue has not returned for that kind, and for an expired value.
func (a *Accounts) OpenValue(kind, text string, into any) error {
	if len(text) > maxValue {
		return state.ErrNotFound
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(sealed) < valueNonce {
		return state.ErrNotFound
	}
	aead, err := a.valueCipher()
	if err != nil {
		return err
	}
	plain, err := aead.Open(nil, sealed[:valueNonce], sealed[valueNonce:], []byte(kind))
	if err != nil || len(plain) < 8 || state.MillisOf(a.now()) >= state.Millis(binary.BigEndian.Uint64(plain)) {
		return state.ErrNotFound
	}
	if err := json.Unmarshal(plain[8:], into); err != nil {
		return fmt.Errorf("open value: %w", err)
	}
	return nil
}

func (a *Accounts) valueCipher() (cipher.AEAD, error) {
	block, err := aes.NewCipher(a.keys().value)
	if err != nil {
		return nil, fmt.Errorf("value: %w", err)
	}
	return cipher.NewGCM(block)
}
