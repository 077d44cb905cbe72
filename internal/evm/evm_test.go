package evm

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// Keccak computes the hash of Ethereum, which differs from SHA3-256, and hashes several parts as their whole.
func TestKeccakIsThatOfEthereum(t *testing.T) {
	sum := Keccak()
	if got, want := hex.EncodeToString(sum[:]), "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"; got != want {
		t.Errorf("hash %s, want %s", got, want)
	}
	if Keccak([]byte("ab"), []byte("c")) != Keccak([]byte("abc")) {
		t.Error("parts have another hash than the whole")
	}
}

// ParseAddress accepts an address of EIP-55 in one case or with the right checksum, and refuses any other form or
// checksum.
func TestAddressesHaveTheirChecksum(t *testing.T) {
	for _, address := range []string{
		"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
		"0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB", "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
		"0x52908400098527886E0F7030069857D2E4169EE7", "0xde709f2102306220921060314715629080e2fb77",
	} {
		lower, err := ParseAddress(address)
		if err != nil || lower != strings.ToLower(address) || Checksum(lower) != address {
			t.Errorf("%s: %q %v, with checksum %s", address, lower, err, Checksum(lower))
		}
		if _, err := ParseAddress(lower); err != nil {
			t.Errorf("%s in lower case: %v", address, err)
		}
		if _, err := ParseAddress("0x" + strings.ToUpper(lower[2:])); err != nil {
			t.Errorf("%s in upper case: %v", address, err)
		}
	}
	for text, want := range map[string]error{
		"":   ErrForm,
		"0x": ErrForm,
		"5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed":     ErrForm,
		"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe":    ErrForm,
		"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAedaa": ErrForm,
		"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeg":   ErrForm,
		"0X5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed":   ErrForm,
		"0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed":   ErrChecksum,
		"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAee":   ErrChecksum,
	} {
		if got, err := ParseAddress(text); !errors.Is(err, want) || got != "" {
			t.Errorf("%q: %q %v, want %v", text, got, err, want)
		}
	}
}
