package web

import (
	"fmt"
	"net/http"
	"strings"
)

// Range is a part of content. A Range without bytes is one that the content does not have.
type Range struct{ First, Count int64 }

// ParseRange parses a Range header for content of size bytes. Only a single range of bytes counts.
// Other forms and several ranges are ignored as in Amazon S3; then given is false, and the
// answer is the whole content.
func ParseRange(header string, size int64) (r Range, given bool) {
	const unit = "bytes="
	if len(header) < len(unit) || !strings.EqualFold(header[:len(unit)], unit) {
		return r, false
	}
	from, to, ok := strings.Cut(header[len(unit):], "-")
	if !ok {
		return r, false
	}
	if from == "" {
		n, ok := Decimal(to)
		// The last bytes of empty content are the whole content (RFC 9110, section 14.1.2), and no
		// Content-Range can express that.
		if !ok || size == 0 && n > 0 {
			return r, false
		}
		n = min(n, size)
		return Range{size - n, n}, true
	}
	first, ok := Decimal(from)
	if !ok {
		return r, false
	}
	last := size - 1
	if to != "" {
		if last, ok = Decimal(to); !ok || last < first {
			return r, false
		}
		last = min(last, size-1)
	}
	if first >= size {
		return Range{size, 0}, true
	}
	return Range{first, last - first + 1}, true
}

// Decimal parses a number of digits only. A number that is too large becomes a large number.
func Decimal(text string) (n int64, ok bool) {
	if text == "" {
		return 0, false
	}
	for i := range len(text) {
		c := text[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		if n < 1<<59 {
			n = n*10 + int64(c-'0')
		}
	}
	return n, true
}

// plainRange returns r with the Range header that http.ServeContent reads as ParseRange does.
// ServeContent itself answers 416 for other units, and 206 for the last 0 bytes.
func plainRange(r *http.Request, size int64) *http.Request {
	given := r.Header.Values("Range")
	if len(given) == 0 {
		return r
	}
	plain := *r
	plain.Header = r.Header.Clone()
	plain.Header.Del("Range")
	if len(given) > 1 {
		return &plain
	}
	switch part, ok := ParseRange(given[0], size); {
	case ok && part.Count == 0:
		plain.Header.Set("Range", fmt.Sprintf("bytes=%d-", size))
	case ok:
		plain.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", part.First, part.First+part.Count-1))
	}
	return &plain
}
