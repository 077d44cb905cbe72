package sigv4

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// checkHeaders returns an error if the signature does not cover all headers that it must cover.
//
// S3 requires that host and every x-amz-* header are signed. Otherwise the holder of a presigned
// URL could add metadata or turn a PUT into a copy. X-Amz-Date and x-amz-content-sha256 are
// exceptions, as in S3, because the string to sign contains their values anyway. Content-Type and
// Content-MD5 may be unsigned: browsers send a Content-Type with every URL, and Content-MD5 is
// verified.
func checkHeaders(r *http.Request, c *credential) error {
	if _, ok := slices.BinarySearch(c.signed, "host"); !ok {
		return errorf(CodeHeaders, "the host header has to be signed")
	}
	var unsigned []string
	for name := range r.Header {
		const prefix = "X-Amz-"
		if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) ||
			name == contentSHA256 || (name == "X-Amz-Date" && !c.presigned) {
			continue
		}
		if _, ok := slices.BinarySearch(c.signed, strings.ToLower(name)); !ok {
			unsigned = append(unsigned, strings.ToLower(name))
		}
	}
	if len(unsigned) > 0 {
		slices.Sort(unsigned)
		return errorf(CodeHeaders, "there were headers present in the request which were not signed: %.200s", strings.Join(unsigned, ", "))
	}
	for _, name := range c.signed {
		if name != "host" && valuesOf(r, name) == nil {
			return errorf(CodeHeaders, "the signed header %s did not arrive", name)
		}
	}
	return nil
}

// valuesOf returns the values of a header other than host, or nil. It restores headers that
// net/http removes from a request, except Trailer, whose order and case net/http does not
// preserve. A request that signs Trailer is therefore rejected; no known client does that.
func valuesOf(r *http.Request, name string) []string {
	if values := r.Header[textproto.CanonicalMIMEHeaderKey(name)]; len(values) > 0 {
		return values
	}
	switch name {
	case "content-length":
		if r.ContentLength >= 0 {
			return []string{strconv.FormatInt(r.ContentLength, 10)}
		}
	case "transfer-encoding":
		return r.TransferEncoding
	case "expect": // HTTP/2 allows no other value
		return []string{"100-continue"}
	}
	return nil
}

// canonical appends the canonical request to text, from which client and server compute the
// signature.
func canonical(text []byte, r *http.Request, q *request, c *credential, path, payload string) []byte {
	text = append(text, r.Method...)
	text = append(text, '\n')
	text = append(text, path...)
	text = append(text, '\n')
	text = appendQuery(text, q)
	text = append(text, '\n')
	for _, name := range c.signed {
		text = append(text, name...)
		text = append(text, ':')
		if name == "host" {
			text = appendFolded(text, r.Host)
		} else {
			for i, value := range valuesOf(r, name) {
				if i > 0 {
					text = append(text, ',')
				}
				text = appendFolded(text, value)
			}
		}
		text = append(text, '\n')
	}
	text = append(text, '\n')
	text = append(text, c.names...)
	text = append(text, '\n')
	return append(text, payload...)
}

// paths returns the forms of the path that the client may have signed. S3 neither cleans a path
// nor encodes it twice. The first form is the path as sent. The second is the path with
// everything percent-encoded except letters, digits and -_.~/, as S3 specifies. They differ for
// clients that send other characters unencoded; some of these sign the first form and some the
// second. Both name the same key.
func (q *request) paths() []string {
	plain, ok := Unescape(q.path, false)
	if !ok {
		return []string{q.path}
	}
	encoded := string(appendEscaped(make([]byte, 0, len(q.path)+16), plain, true))
	if encoded == q.path {
		return []string{q.path}
	}
	return []string{q.path, encoded}
}

// appendQuery appends the canonical query to text: encoded names and values, sorted by name and
// value. The signature of a presigned request is left out.
func appendQuery(text []byte, q *request) []byte {
	type pair struct{ name, value string }
	pairs := make([]pair, 0, len(q.query))
	for _, p := range q.query {
		if q.scheme == SchemeQuery && p.name == "X-Amz-Signature" {
			continue
		}
		pairs = append(pairs, pair{escape(p.name), escape(p.value)})
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return strings.Compare(a.value, b.value)
	})
	for i, p := range pairs {
		if i > 0 {
			text = append(text, '&')
		}
		text = append(text, p.name...)
		text = append(text, '=')
		text = append(text, p.value...)
	}
	return text
}

// appendFolded appends the value of a header to text without leading and trailing white space,
// and with one space for each run of white space inside.
func appendFolded(text []byte, value string) []byte {
	value = strings.Trim(value, " \t")
	space := false
	for i := range len(value) {
		c := value[i]
		if c == ' ' || c == '\t' {
			space = true
			continue
		}
		if space {
			text = append(text, ' ')
			space = false
		}
		text = append(text, c)
	}
	return text
}

// unreserved reports whether a byte is not percent-encoded (RFC 3986, section 2.3).
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '_' || c == '.' || c == '~'
}

func escape(text string) string {
	for i := range len(text) {
		if !unreserved(text[i]) {
			return string(appendEscaped(make([]byte, 0, len(text)+16), text, false))
		}
	}
	return text
}

// appendEscaped appends plain to text, encoded by UriEncode of the S3 documentation. With
// keepSlash, slashes are not encoded.
func appendEscaped(text []byte, plain string, keepSlash bool) []byte {
	const upper = "0123456789ABCDEF"
	for i := range len(plain) {
		c := plain[i]
		if unreserved(c) || (c == '/' && keepSlash) {
			text = append(text, c)
		} else {
			text = append(text, '%', upper[c>>4], upper[c&15])
		}
	}
	return text
}

// Unescape decodes percent-encoding. With plus it also decodes a plus as a space. It returns
// false for a malformed escape.
func Unescape(text string, plus bool) (string, bool) {
	if !strings.ContainsRune(text, '%') && (!plus || !strings.ContainsRune(text, '+')) {
		return text, true
	}
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '%':
			if i+2 >= len(text) {
				return "", false
			}
			high, low := nibble(text[i+1]), nibble(text[i+2])
			if high < 0 || low < 0 {
				return "", false
			}
			plain = append(plain, byte(high<<4|low))
			i += 2
		case c == '+' && plus:
			plain = append(plain, ' ')
		default:
			plain = append(plain, c)
		}
	}
	return string(plain), true
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
