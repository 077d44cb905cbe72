package web

import (
	"fmt"
	"net/http"
	"strings"
)

// Range is a part of some content: Count bytes from the offset First on. A Count of 0 means that
// the requested range lies outside the content, which is answered with 416.
type Range struct{ First, Count int64 }

// ParseRange parses a Range header for content of size bytes. It supports a single range of
// bytes. For any other header given is false, and the answer is the whole content, as in Amazon
// S3.
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

// Decimal parses a non-empty text of decimal digits only; ok is false for any other text. Instead
// of overflowing it returns a number of at least 2^59.
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

// plainRange returns r with its Range header replaced by an equivalent one of the form
// bytes=FIRST-LAST, or removed if ParseRange ignores it. So http.ServeContent treats the header
// like ParseRange. Without the change it would answer 416 for other units, and 206 for a range of
// the last 0 bytes.
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
