package accounts

import (
	"crypto/rand"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// The account secret is the secret from which all keys of this package are derived. It is the
// cluster secret, until a restore gives the cluster another one. Then the state has the account
// secret, encrypted with the cluster secret, so that API keys and sessions stay valid:
//
//	version (1 byte, 0x01) | nonce (12 bytes) | AES-256-GCM of the account secret (length + 16 bytes)
//
// under the key HKDF-SHA256(cluster secret, no salt, info "holdfast account secret v1"), with the
// version byte as additional data.
const secretInfo = "holdfast account secret v1"

// SealSecret encrypts an account secret with a cluster secret, for state.Cluster.SealedSecret.
func SealSecret(cluster, account []byte) ([]byte, error) {
	aead, err := cipherOf(cluster, secretInfo)
	if err != nil {
		return nil, fmt.Errorf("seal account secret: %w", err)
	}
	nonce := make([]byte, sealNonce)
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("seal account secret: %w", err)
	}
	sealed := append([]byte{sealVersion}, nonce...)
	return aead.Seal(sealed, nonce, account, sealed[:1]), nil
}

// unsealSecret returns the account secret of a cluster: the one in sealed, or the cluster secret
// itself if sealed is empty. It returns ErrSealed if the cluster secret does not decrypt sealed.
func unsealSecret(cluster, sealed []byte) ([]byte, error) {
	if len(sealed) == 0 {
		return cluster, nil
	}
	if len(sealed) < 1+sealNonce || sealed[0] != sealVersion {
		return nil, fmt.Errorf("open account secret: %d bytes in an unknown form", len(sealed))
	}
	aead, err := cipherOf(cluster, secretInfo)
	if err != nil {
		return nil, fmt.Errorf("open account secret: %w", err)
	}
	account, err := aead.Open(nil, sealed[1:1+sealNonce], sealed[1+sealNonce:], sealed[:1])
	if err != nil {
		return nil, ErrSealed
	}
	return account, nil
}

// keys are the account secret and the keys that are derived from it.
type keys struct {
	secret   []byte
	sessions []byte // key of the HMAC in session tokens
	setup    []byte // key of the HMAC in setup tokens
	link     []byte // key of the HMAC in one-time links
	value    []byte // key that encrypts sealed values
}

func keysOf(secret []byte) *keys {
	return &keys{
		secret: secret, sessions: derivedKey(secret, sessionInfo), setup: derivedKey(secret, setupInfo),
		link: derivedKey(secret, linkInfo), value: derivedKey(secret, valueInfo),
	}
}

// keys returns the keys of this cluster. The record of the cluster never gets another account
// secret while a node runs, so it is read until it is there and not again. Before, and if it
// cannot be decrypted, keys returns those of the cluster secret, with which no key or session of
// a restored cluster is valid.
func (a *Accounts) keys() *keys {
	if k := a.derived.Load(); k != nil {
		return k
	}
	k, err := a.readKeys()
	if err != nil {
		return a.own
	}
	return k
}

// readKeys is keys with an error: state.ErrUnavailable if this node has no state yet, or ErrSealed.
func (a *Accounts) readKeys() (*keys, error) {
	view, release := a.state.LocalView()
	defer release()
	return a.keysIn(view)
}

func (a *Accounts) keysIn(view state.View) (*keys, error) {
	if k := a.derived.Load(); k != nil {
		return k, nil
	}
	cluster, err := view.Cluster()
	if err != nil {
		return nil, err
	}
	k := a.own
	if len(cluster.SealedSecret) > 0 {
		secret, err := unsealSecret(a.secret, cluster.SealedSecret)
		if err != nil {
			return nil, err
		}
		k = keysOf(secret)
	}
	a.derived.Store(k)
	return k, nil
}

// Secret returns the account secret, which a backup needs. Errors: state.ErrUnavailable if this
// node has no state yet; ErrSealed.
func (a *Accounts) Secret() ([]byte, error) {
	k, err := a.readKeys()
	if err != nil {
		return nil, fmt.Errorf("account secret: %w", err)
	}
	return k.secret, nil
}
