package state

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode"
	"unicode/utf8"
)

// nameMatcher returns a function that returns whether a name matches want in the given way. It
// returns nil if want is empty. Only one goroutine at a time may call the function.
func nameMatcher(want string, how Match) func([]byte) bool {
	if want == "" {
		return nil
	}
	exact := []byte(want)
	switch how {
	case IExact:
		return func(name []byte) bool { return bytes.EqualFold(name, exact) }
	case Partial:
		return func(name []byte) bool { return bytes.Contains(name, exact) }
	case IPartial:
		var f folder
		folded := f.fold(nil, exact)
		var buf []byte
		return func(name []byte) bool {
			buf = f.fold(buf[:0], name)
			return bytes.Contains(buf, folded)
		}
	default:
		return func(name []byte) bool { return string(name) == want }
	}
}

// folder implements case folding: it replaces each character by the smallest one that equals it
// without regard to case, in the sense of bytes.EqualFold. Invalid UTF-8 is not changed. The zero
// value is ready to use.
type folder struct {
	least []uint16 // table of the folded characters below foldTable; nil until it is worth its cost
	slow  int      // number of characters that were folded without the table
}

const (
	// foldTable is the length of the table of folded characters. It covers the scripts with upper
	// and lower case in which most names are written.
	foldTable = 0x2000
	// foldOneByOne is the number of characters at which folding without the table has cost about
	// as much as building it.
	foldOneByOne = foldTable / 2
	// Characters in these ranges have no case.
	oneCaseFrom, oneCaseTo = 0x2e80, 0xa640 // Chinese, Japanese and others
	hangulFrom, hangulTo   = 0xac00, 0xd800
	emojiFrom, emojiTo     = 0x1f000, 0x20000
)

// fold appends the folded form of text to buf.
func (f *folder) fold(buf, text []byte) []byte {
	for len(text) > 0 {
		n, word := 0, uint64(0)
		if len(text) >= 8 {
			word = binary.LittleEndian.Uint64(text)
			n = bits.TrailingZeros64(word&allHigh) / 8 // ASCII characters before the first other
		}
		if n > 0 {
			buf = binary.LittleEndian.AppendUint64(buf, upperWord(word))
			buf, text = buf[:len(buf)-8+n], text[n:]
			continue
		}
		if c := text[0]; c < utf8.RuneSelf {
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A' // upper case is the smallest
			}
			buf, text = append(buf, c), text[1:]
			continue
		}
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n <= 1 {
			buf, text = append(buf, text[0]), text[1:]
			continue
		}
		buf, text = utf8.AppendRune(buf, f.character(r)), text[n:]
	}
	return buf
}

// character returns the folded form of a character that is not ASCII.
func (f *folder) character(r rune) rune {
	switch {
	case r < foldTable && f.least != nil:
		return rune(f.least[r])
	case oneCaseFrom <= r && r < oneCaseTo, hangulFrom <= r && r < hangulTo, emojiFrom <= r && r < emojiTo:
		return r
	case r < foldTable:
		if f.slow++; f.slow >= foldOneByOne {
			f.least = make([]uint16, foldTable)
			for i := range f.least {
				f.least[i] = uint16(leastFold(rune(i)))
			}
		}
	}
	return leastFold(r)
}

// leastFold returns the smallest character that equals r without regard to case.
func leastFold(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return least
}

// Masks for processing eight bytes at once.
const (
	allHigh  = 0x8080808080808080
	eachByte = 0x0101010101010101
)

// upperWord converts the ASCII letters among the eight bytes of a word to upper case, and leaves
// other bytes unchanged.
func upperWord(word uint64) uint64 {
	low := word &^ allHigh
	fromA, beyondZ := low+(0x80-'a')*eachByte, low+(0x80-'z'-1)*eachByte
	return word ^ (fromA^beyondZ)&^word&allHigh>>2 // 0x20 is between the cases
}

// upperAll appends text to buf with ASCII letters in upper case.
func upperAll(buf, text []byte) []byte {
	buf = slices.Grow(buf, len(text)+8)
	for ; len(text) >= 8; text = text[8:] {
		buf = binary.LittleEndian.AppendUint64(buf, upperWord(binary.LittleEndian.Uint64(text)))
	}
	var rest [8]byte
	n := copy(rest[:], text)
	binary.LittleEndian.PutUint64(rest[:], upperWord(binary.LittleEndian.Uint64(rest[:])))
	return append(buf, rest[:n]...)
}

func isASCII(text []byte) bool {
	for len(text) >= 8 {
		if binary.LittleEndian.Uint64(text)&allHigh != 0 {
			return false
		}
		text = text[8:]
	}
	for _, c := range text {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// chunkMatcher searches the names of a chunk at once, with the same result as nameMatcher for
// each name. Only one goroutine at a time may use it.
type chunkMatcher struct {
	want   []byte // text to find; with nameEnd on both sides if a whole name must match
	folds  bool
	ascii  bool // want has only ASCII characters
	plain  bool // only ASCII characters fold to a character of want
	folder folder
	buf    []byte
}

// newChunkMatcher returns a matcher for text. how must not be Exact, for which there is an index.
func newChunkMatcher(text string, how Match) *chunkMatcher {
	m := &chunkMatcher{want: []byte(text), folds: how == IExact || how == IPartial}
	if m.folds {
		m.want = m.folder.fold(nil, m.want)
	}
	m.ascii = isASCII(m.want)
	m.plain = m.ascii && !bytes.ContainsAny(m.want, "KS") // there are a Kelvin sign and a long s
	if how == IExact {
		m.want = slices.Concat([]byte{nameEnd}, m.want, []byte{nameEnd})
	} else if bytes.IndexByte(m.want, nameEnd) >= 0 {
		m.want = nil // no name has it
	}
	return m
}

// text returns the names of a chunk in the form in which want can be searched, or nil if none can
// match.
func (m *chunkMatcher) text(c *chunk) []byte {
	text := c.names
	switch {
	case m.want == nil || c.ascii && !m.ascii:
		return nil
	case !m.folds:
	case m.plain || c.ascii:
		m.buf = upperAll(m.buf[:0], text)
		text = m.buf
	default:
		m.buf = m.folder.fold(m.buf[:0], text)
		text = m.buf
	}
	return text
}

// next searches text for the next matching name. It returns the position of the match, or -1 if
// there is none, and the rest of text from the end of that name on. The end mark of a name is
// also the start mark of the next one.
func (m *chunkMatcher) next(text []byte) (at int, rest []byte) {
	if at = bytes.Index(text, m.want); at < 0 {
		return -1, nil
	}
	end := bytes.IndexByte(text[at+1:], nameEnd)
	if end < 0 {
		return at, nil
	}
	return at, text[at+1+end:]
}

// count returns how many names of a chunk match.
func (m *chunkMatcher) count(c *chunk) (n int) {
	for text := m.text(c); len(text) > 0; n++ {
		var at int
		if at, text = m.next(text); at < 0 {
			break
		}
	}
	return n
}

// find appends to found the indexes of the chunk's names that match.
func (m *chunkMatcher) find(c *chunk, found []int) []int {
	before := 0 // number of nameEnd before text
	for text := m.text(c); len(text) > 0; {
		at, rest := m.next(text)
		if at < 0 {
			break
		}
		before += bytes.Count(text[:at+1], []byte{nameEnd})
		found, text = append(found, before-1), rest
	}
	return found
}
