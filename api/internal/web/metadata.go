package web

import "strings"

// IsHeaderValue reports whether text can be the value of an HTTP header: it has no control
// character except the tab (RFC 9110, section 5.5).
func IsHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// EncryptionMeta returns the names of the user metadata with which a client records how it
// encrypted an object, in lower case and without the prefix x-amz-meta-. If they are lost, nobody
// can decrypt the object, see docs/encryption.md.
func EncryptionMeta() []string {
	return []string{"encrypted", "encryption", "x-fula-encrypted", "x-fula-encryption"}
}
