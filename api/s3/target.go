package s3

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// level tells what a path names: the service, a bucket or an object.
type level uint8

const (
	levelService level = iota // the root path: all buckets of the account
	levelBucket
	levelObject
)

// target is the service, bucket or object that a request is for.
type target struct {
	level  level
	bucket string
	key    string // decoded, but not cleaned
	hosted bool   // the bucket is in the host name, not in the path
}

// targetOf parses the path and the host of a request. It splits the escaped path and then decodes
// its parts, so that an escaped slash separates nothing.
func (s *surface) targetOf(r *http.Request) (target, error) {
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	t := target{}
	rest, named := path, path != ""
	if bucket, ok := s.bucketOfHost(r.Host); ok {
		t.bucket, t.hosted = bucket, true
	} else {
		if !named {
			return t, nil
		}
		var slash bool
		bucket, rest, slash = strings.Cut(path, "/")
		named = slash && rest != ""
		if t.bucket, ok = sigv4.Unescape(bucket, false); !ok {
			return t, errorf(InvalidURI, "the path is not percent-encoded")
		}
	}
	t.level = levelBucket
	if !named {
		return t, nil
	}
	t.level = levelObject
	var ok bool
	if t.key, ok = sigv4.Unescape(rest, false); !ok {
		return t, errorf(InvalidURI, "the path is not percent-encoded")
	}
	return t, nil
}

// bucketOfHost returns the bucket in a host name below Options.Domain, and false for any other
// host name.
func (s *surface) bucketOfHost(host string) (string, bool) {
	if s.domain == "" {
		return "", false
	}
	if colon := strings.LastIndexByte(host, ':'); colon >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:colon]
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	bucket, ok := strings.CutSuffix(host, s.domain)
	return bucket, ok && bucket != ""
}

// check returns an error if the bucket name or the key is invalid.
func (t *target) check() error {
	if t.level >= levelBucket && !web.ValidBucket(t.bucket) {
		return errorf(InvalidBucketName, "the specified bucket is not valid: 3 to 63 lower case letters, digits, dots and hyphens")
	}
	return checkKey(t.key)
}

func checkKey(key string) error {
	if len(key) > state.MaxKeyBytes {
		return errorf(KeyTooLongError, "your key is too long: %d bytes, at most %d", len(key), state.MaxKeyBytes)
	}
	if !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0 {
		// XML can express neither, so no list could contain the key.
		return errorf(InvalidURI, "a key is UTF-8 without the character U+0000")
	}
	return nil
}

// parameter is one decoded query parameter.
type parameter struct{ name, value string }

// query has the parameters of a query in their order.
type query []parameter

// parseQuery parses a raw query. It splits only at & and decodes + as a space.
func parseQuery(raw string) (query, error) {
	if raw == "" {
		return nil, nil
	}
	most := strings.Count(raw, "&") + 1
	if most > sigv4.MaxParameters {
		return nil, errorf(InvalidURI, "the query has more than %d parameters", sigv4.MaxParameters)
	}
	q := make(query, 0, most)
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		var p parameter
		var ok bool
		if p.name, ok = sigv4.Unescape(name, true); ok {
			p.value, ok = sigv4.Unescape(value, true)
		}
		if !ok {
			return nil, errorf(InvalidURI, "the query is not percent-encoded")
		}
		q = append(q, p)
	}
	return q, nil
}

// get returns the first value of a parameter, or "" if it is absent.
func (q query) get(name string) string {
	value, _ := q.find(name)
	return value
}

func (q query) find(name string) (value string, given bool) {
	for i := range q {
		if q[i].name == name {
			return q[i].value, true
		}
	}
	return "", false
}

func (q query) has(name string) bool {
	_, given := q.find(name)
	return given
}

// number returns the parameter name as a number. It returns absent for an absent or empty
// parameter, most for a larger number, and an error for a malformed number or one below least.
func (q query) number(name string, absent, least, most int) (int, error) {
	text := q.get(name)
	if text == "" {
		return absent, nil
	}
	n, ok := web.Decimal(text)
	if !ok || n < int64(least) {
		return 0, errorf(InvalidArgument, "%s has to be a number from %d on", name, least)
	}
	return int(min(n, int64(most))), nil
}

// ranged works like number, but returns 0 for an absent parameter and an error for a number above
// most.
func (q query) ranged(name string, least, most int) (int, error) {
	if n, ok := web.Decimal(q.get(name)); ok && n > int64(most) {
		return 0, errorf(InvalidArgument, "%s has to be a number from %d to %d", name, least, most)
	}
	return q.number(name, 0, least, most)
}

// nibble returns the value of a hexadecimal digit, or -1 for another character.
func nibble(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// escapeKey encodes text as encoding-type=url requires: it percent-encodes everything except
// letters, digits, - _ . ~ and the slash.
func escapeKey(text string) string {
	const upper = "0123456789ABCDEF"
	plain := func(c byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.~/", c) >= 0
	}
	i := 0
	for i < len(text) && plain(text[i]) {
		i++
	}
	if i == len(text) {
		return text
	}
	b := append(make([]byte, 0, len(text)+16), text[:i]...)
	for ; i < len(text); i++ {
		if c := text[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', upper[c>>4], upper[c&15])
		}
	}
	return string(b)
}
