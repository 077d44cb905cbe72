package web

import "strings"

// ValidBucket returns whether name is a valid bucket name: labels of letters and digits,
// with hyphens inside and dots between them, so that it can be part of a host name. An IP
// address is not valid.
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

// fourNumbers returns whether name looks like an IPv4 address, also an invalid one, because
// programs parse 192.168.005.004 differently.
func fourNumbers(name string) bool {
	return strings.Count(name, ".") == 3 && strings.Trim(name, "0123456789.") == ""
}
