package web

import "strings"

// IsHeaderValue returns whether a text can be the value of a header: it has no control character but
// the tab (RFC 9110, section 5.5).
func IsHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// EncryptionMeta returns the names of the user metadata that say how a client has encrypted an object,
// in lower case and without x-amz-meta-. Without them nobody can decrypt it, see docs/encryption.md.
func EncryptionMeta() []string {
	return []string{"encrypted", "encryption", "x-fula-encrypted", "x-fula-encryption"}
}
