// Package evm reads the addresses of accounts and contracts on Ethereum and networks of its kind.
//
// Imports: std, x/crypto/sha3.
// Never:   the network, keys.
package evm

import (
	"encoding/hex"
	"errors"
	"strings"

	"golang.org/x/crypto/sha3"
)

// addressDigits is the number of hexadecimal digits of an address.
const addressDigits = 40

// Errors of ParseAddress.
var (
	// ErrForm is returned for text that is not 0x and 40 hexadecimal digits.
	ErrForm = errors.New("an address is 0x and 40 hexadecimal digits")
	// ErrChecksum is returned for an address with digits in both cases whose cases are not those of its
	// checksum (EIP-55): at least one digit is wrong.
	ErrChecksum = errors.New("the upper and lower case of the address is not that of its checksum (EIP-55): at least one digit is wrong")
)

// Keccak returns the Keccak-256 hash of the parts one after the other.
func Keccak(parts ...[]byte) (sum [32]byte) {
	h := sha3.NewLegacyKeccak256()
	for _, p := range parts {
		h.Write(p)
	}
	h.Sum(sum[:0])
	return sum
}

// Lower returns an address with its digits in lower case. Unlike ParseAddress, it does not check the checksum,
// because other programs write addresses in any case. ok is false for text of another form.
func Lower(text string) (address string, ok bool) {
	digits, ok := strings.CutPrefix(text, "0x")
	if !ok || len(digits) != addressDigits {
		return "", false
	}
	lower := strings.ToLower(digits)
	if _, err := hex.DecodeString(lower); err != nil {
		return "", false
	}
	return "0x" + lower, true
}

// ParseAddress returns an address with its digits in lower case. If text has digits of both cases,
// their case must be that of the checksum of EIP-55. Errors: ErrForm, ErrChecksum.
func ParseAddress(text string) (string, error) {
	lower, ok := Lower(text)
	if !ok {
		return "", ErrForm
	}
	if text == lower || text == "0x"+strings.ToUpper(lower[2:]) || text == Checksum(lower) {
		return lower, nil
	}
	return "", ErrChecksum
}

// Checksum returns an address with the case of each digit that EIP-55 prescribes. lower is the address in lower
// case.
func Checksum(lower string) string {
	digits := []byte(strings.TrimPrefix(lower, "0x"))
	sum := Keccak(digits)
	for i, c := range digits {
		nibble := sum[i/2] >> 4
		if i%2 == 1 {
			nibble = sum[i/2] & 15
		}
		if 'a' <= c && c <= 'f' && nibble >= 8 {
			digits[i] = c - 'a' + 'A'
		}
	}
	return "0x" + string(digits)
}
