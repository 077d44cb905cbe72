package state

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// filter decides whether a stored pin has the requested name and meta. It reads the encoded
// row without copying it.
type filter struct {
	name func(name []byte) bool // nil: any
	meta map[string]string      // pairs that the pin must have
}

func (q *PinQuery) filter() filter { return filter{name: nameMatcher(q.Name, q.Match), meta: q.Meta} }

// every returns whether all pins match.
func (f *filter) every() bool { return f.name == nil && len(f.meta) == 0 }

func (f *filter) match(row []byte) (bool, error) {
	if f.every() {
		return true, nil
	}
	name, rest, err := peekPin(row)
	if err != nil || f.name != nil && !f.name(name) {
		return false, err
	}
	if len(f.meta) == 0 {
		return true, nil
	}
	found := 0 // keys of a map are different
	for range codec.Count(&rest, MaxMetaPairs) {
		k, got := codec.Text(&rest, MaxMetaBytes), codec.Text(&rest, MaxMetaBytes)
		if want, ok := f.meta[string(k)]; ok && want == string(got) {
			found++
		}
	}
	return found == len(f.meta), rest.Err()
}

// nameMatcher returns a function that compares names, or nil if no name is requested. The
// function is for one goroutine.
func nameMatcher(want string, how Match) func([]byte) bool {
	if want == "" {
		return nil
	}
	exact := []byte(want)
	folded := fold(nil, exact)
	var buf []byte
	switch how {
	case IExact:
		return func(name []byte) bool { return bytes.EqualFold(name, exact) }
	case Partial:
		return func(name []byte) bool { return bytes.Contains(name, exact) }
	case IPartial:
		return func(name []byte) bool {
			buf = fold(buf[:0], name)
			return bytes.Contains(buf, folded)
		}
	default:
		return func(name []byte) bool { return string(name) == want }
	}
}

// fold appends text to buf. It replaces every character by the smallest character that equals
// it without regard to case. bytes.EqualFold uses the same equivalence.
func fold(buf, text []byte) []byte {
	for i := 0; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf { // upper case is the smallest
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			buf = append(buf, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		i += n
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		buf = utf8.AppendRune(buf, least)
	}
	return buf
}
