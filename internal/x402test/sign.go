// Package x402test pays and settles payments of the x402 protocol in tests: keys that sign
// EIP-3009 authorizations by EIP-712, and a facilitator on loopback that recovers the signer and
// settles into a ledger in memory.
//
// Imports: std, internal/evm, secp256k1.
// Never:   anything that is not a test; a real network.
package x402test

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"github.com/holdfast-ipfs/holdfast/internal/evm"
)

// Domain is the EIP-712 domain of an asset.
type Domain struct {
	Name, Version string
	ChainID       uint64
	Contract      string // address of the asset
}

// Authorization is the message of an EIP-3009 TransferWithAuthorization, in its form as JSON.
type Authorization struct {
	From        string `json:"from"`
	To          string `json:"to"`
	Value       string `json:"value"`
	ValidAfter  string `json:"validAfter"`
	ValidBefore string `json:"validBefore"`
	Nonce       string `json:"nonce"` // 32 bytes in hexadecimal
}

// Types of the two structures, as EIP-712 encodes them.
const (
	domainType   = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
	transferType = "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
)

// TypeHash returns the hash of the type of the message.
func TypeHash() [32]byte { return evm.Keccak([]byte(transferType)) }

// Separator returns the domain separator.
func (d *Domain) Separator() ([32]byte, error) {
	contract, err := word(d.Contract, 20)
	if err != nil {
		return [32]byte{}, fmt.Errorf("contract: %w", err)
	}
	kind, name, version := evm.Keccak([]byte(domainType)), evm.Keccak([]byte(d.Name)), evm.Keccak([]byte(d.Version))
	var chain [32]byte
	new(big.Int).SetUint64(d.ChainID).FillBytes(chain[:])
	return evm.Keccak(kind[:], name[:], version[:], chain[:], contract[:]), nil
}

// Digest returns the hash that the payer signs.
func (a *Authorization) Digest(d *Domain) ([32]byte, error) {
	separator, err := d.Separator()
	if err != nil {
		return separator, err
	}
	kind := TypeHash()
	message := append([]byte(nil), kind[:]...)
	for _, field := range []struct {
		name, text string
		size       int // bytes; 0: a decimal number
	}{
		{"from", a.From, 20},
		{"to", a.To, 20},
		{"value", a.Value, 0},
		{"validAfter", a.ValidAfter, 0},
		{"validBefore", a.ValidBefore, 0},
		{"nonce", a.Nonce, 32},
	} {
		w, err := word(field.text, field.size)
		if err != nil {
			return separator, fmt.Errorf("%s: %w", field.name, err)
		}
		message = append(message, w[:]...)
	}
	hash := evm.Keccak(message)
	return evm.Keccak([]byte{0x19, 0x01}, separator[:], hash[:]), nil
}

// word returns a value as the 32 bytes of an encoded structure: size bytes in hexadecimal, or a
// decimal number for size 0.
func word(text string, size int) (w [32]byte, err error) {
	if size == 0 {
		n, ok := new(big.Int).SetString(text, 10)
		if !ok || n.Sign() < 0 || n.BitLen() > 256 || strings.Trim(text, "0123456789") != "" {
			return w, fmt.Errorf("%q is not a number of 256 bits", text)
		}
		n.FillBytes(w[:])
		return w, nil
	}
	b, err := hex.DecodeString(strings.TrimPrefix(text, "0x"))
	if err != nil || len(b) != size || !strings.HasPrefix(text, "0x") {
		return w, fmt.Errorf("%q is not 0x and %d bytes", text, size)
	}
	copy(w[32-size:], b)
	return w, nil
}

// Key is the private key of a payer.
type Key struct{ private *secp256k1.PrivateKey }

// KeyOf returns the key with a secret of 32 bytes.
func KeyOf(secret [32]byte) *Key { return &Key{secp256k1.PrivKeyFromBytes(secret[:])} }

// NewKey returns a new key.
func NewKey() *Key {
	private, err := secp256k1.GeneratePrivateKey()
	if err != nil {
		panic("x402test: no randomness: " + err.Error())
	}
	return &Key{private}
}

// Secret returns the private key in hexadecimal with 0x, as wallets of JavaScript take it.
func (k *Key) Secret() string { return "0x" + hex.EncodeToString(k.private.Serialize()) }

// Address returns the address of the payer in lower case.
func (k *Key) Address() string { return addressOf(k.private.PubKey()) }

func addressOf(public *secp256k1.PublicKey) string {
	sum := evm.Keccak(public.SerializeUncompressed()[1:])
	return "0x" + hex.EncodeToString(sum[12:])
}

// Sign returns the signature of a digest: 65 bytes in hexadecimal with 0x.
func (k *Key) Sign(digest [32]byte) string {
	compact := ecdsa.SignCompact(k.private, digest[:], false) // v, r, s; Ethereum writes r, s, v
	return "0x" + hex.EncodeToString(append(compact[1:], compact[0]))
}

// Recover returns the address that signed a digest.
func Recover(digest [32]byte, signature string) (string, error) {
	sig, err := hex.DecodeString(strings.TrimPrefix(signature, "0x"))
	if err != nil || len(sig) != 65 {
		return "", fmt.Errorf("a signature is 65 bytes in hexadecimal")
	}
	v := sig[64]
	if v < 27 {
		v += 27
	}
	public, _, err := ecdsa.RecoverCompact(append([]byte{v}, sig[:64]...), digest[:])
	if err != nil {
		return "", fmt.Errorf("recover signer: %w", err)
	}
	return addressOf(public), nil
}
