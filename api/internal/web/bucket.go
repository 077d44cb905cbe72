package web

import "strings"

// ValidBucket reports whether name is a valid bucket name: 3 to 63 bytes that can be part of a
// host name. They are labels separated by dots, each of lower-case letters, digits and inner
// hyphens. An IP address is invalid.
func ValidBucket(name string) bool {
	if len(name) < 3 || len(name) > 63 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return !fourNumbers(name)
}

// fourNumbers reports whether name has the form of an IPv4 address, valid or not. The form
// decides, because programs differ in how they parse addresses such as 192.168.005.004.
func fourNumbers(name string) bool {
	return strings.Count(name, ".") == 3 && strings.Trim(name, "0123456789.") == ""
}
