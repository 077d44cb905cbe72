package web

import "strings"

// ValidBucket tells whether a bucket can have a name: labels of letters and digits
// with hyphens inside, and dots between them, so that it can stand in the name of
// a host; and no IP address.
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

// fourNumbers tells whether a name is written as an IP address, if only as one that
// cannot be: what programs read 192.168.005.004 for differs.
func fourNumbers(name string) bool {
	return strings.Count(name, ".") == 3 && strings.Trim(name, "0123456789.") == ""
}
