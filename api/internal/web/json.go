package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of JSON bodies.
const (
	// MaxJSONBody is the maximum size of a JSON body in bytes.
	MaxJSONBody = 1 << 20
	// MaxJSONDepth is the maximum nesting of arrays and objects.
	MaxJSONDepth = 64
	// MaxJSONMembers is the maximum number of members of an object, and of elements of an array
	// of strings.
	MaxJSONMembers = 1 << 14
)

// Body reads a JSON body of up to most bytes and charges its memory to held. The media type must
// be JSON or absent. Errors are 400, 408 if the body does not arrive in time, 413 for a larger
// body, state.ErrLimited if held has too little memory left, or the error of the request's
// context.
func Body(w http.ResponseWriter, r *http.Request, most int64, held *Held) ([]byte, error) {
	if err := JSONType(r.Header); err != nil {
		return nil, err
	}
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	body, err := ReadAll(http.MaxBytesReader(w, r.Body, most), r.ContentLength, held)
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return body, nil
	case errors.Is(err, state.ErrLimited):
		return nil, err
	case errors.As(err, &large):
		return nil, tooLarge(most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, Errorf(http.StatusRequestTimeout, "REQUEST_TIMEOUT", "the body did not arrive in time")
	case r.Context().Err() != nil:
		return nil, r.Context().Err() // the client has closed the connection
	default:
		return nil, BadRequest("the body cannot be read")
	}
}

func tooLarge(most int64) *Error {
	return Errorf(http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "the body is larger than %d bytes", most)
}

// JSONType returns a 400 error unless Content-Type is absent or is a JSON type of the MIME
// Sniffing Standard, with or without parameters. The check also stops cross-site requests:
// without a CORS preflight, a page of another origin can send only text/plain and the two types
// of HTML forms.
func JSONType(h http.Header) error {
	values := h.Values("Content-Type")
	if len(values) == 0 || len(values) == 1 && values[0] == "" {
		return nil
	}
	media, _, err := mime.ParseMediaType(values[0])
	kind, suffix := strings.CutSuffix(media, "+json")
	known := media == "application/json" || media == "text/json" || suffix && strings.Contains(kind, "/")
	if err != nil || len(values) > 1 || !known {
		return BadRequest("Content-Type must be application/json")
	}
	return nil
}

// Fields maps the names of the members of a JSON object to their undecoded values.
type Fields map[string]json.RawMessage

// Object decodes data, which must be exactly one JSON object. It rejects a repeated member,
// because parsers differ in which one they use. It rejects text that is not valid Unicode,
// because an answer could not repeat it. what names data in errors, which are 400.
func Object(what string, data []byte) (Fields, error) {
	switch {
	case len(data) == 0:
		return nil, BadRequest("%s is empty, it must be a JSON object", what)
	case bytes.HasPrefix(data, []byte("\ufeff")): // RFC 8259, section 8.1
		return nil, BadRequest("%s begins with a byte order mark, which is not JSON", what)
	}
	if err := checkText(what, data); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil {
		return nil, BadRequest("%s is not valid JSON", what)
	} else if t != json.Delim('{') {
		return nil, BadRequest("%s must be a JSON object", what)
	}
	fields := Fields{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, BadRequest("%s is not valid JSON", what)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, BadRequest("%s is not valid JSON", what)
		}
		if _, twice := fields[name]; twice {
			return nil, BadRequest("%s has the member %q twice", what, shorten(name))
		}
		if len(fields) == MaxJSONMembers {
			return nil, BadRequest("%s has an object of more than %d members", what, MaxJSONMembers)
		}
		fields[name] = value
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return nil, BadRequest("%s is not valid JSON", what)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, BadRequest("%s has more after the end of its JSON object", what)
	}
	return fields, nil
}

// Text returns the string member name. given is false if it is absent. Another type, also null,
// is a 400 error.
func (f Fields) Text(name string) (text string, given bool, err error) {
	raw, given := f[name]
	if !given {
		return "", false, nil
	}
	if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return "", true, BadRequest("%s must be a string", name)
	}
	return text, true, nil
}

// Texts returns the member name, which must be an array of strings. given is false if it is
// absent; otherwise texts is not nil. Another type is a 400 error.
func (f Fields) Texts(name string) (texts []string, given bool, err error) {
	raw, given := f[name]
	if !given {
		return nil, false, nil
	}
	wrong := BadRequest("%s must be an array of strings", name)
	if raw[0] != '[' {
		return nil, true, wrong
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil { // the bracket
		return nil, true, wrong
	}
	texts = []string{}
	for d.More() {
		if len(texts) == MaxJSONMembers { // an entry takes much more memory than its two bytes
			return nil, true, BadRequest("%s must have at most %d entries", name, MaxJSONMembers)
		}
		t, err := d.Token()
		text, ok := t.(string)
		if err != nil || !ok {
			return nil, true, wrong
		}
		texts = append(texts, text)
	}
	return texts, true, nil
}

// Strings returns the member name, which must be an object with string values. given is false if
// it is absent; otherwise pairs is not nil. Another type is a 400 error.
func (f Fields) Strings(name string) (pairs map[string]string, given bool, err error) {
	raw, given := f[name]
	if !given {
		return nil, false, nil
	}
	pairs, err = Strings(name, raw)
	return pairs, true, err
}

// Whole returns the member name, which must be an integer from 0 to 2^64-1. given is false if it
// is absent.
func (f Fields) Whole(name string) (n uint64, given bool, err error) {
	raw, given := f[name]
	if !given {
		return 0, false, nil
	}
	if n, err = strconv.ParseUint(string(raw), 10, 64); err != nil {
		return 0, true, BadRequest("%s must be a whole number", name)
	}
	return n, true, nil
}

// Signed returns the member name, which must be an integer from -2^63 to 2^63-1. given is false
// if it is absent.
func (f Fields) Signed(name string) (n int64, given bool, err error) {
	raw, given := f[name]
	if !given {
		return 0, false, nil
	}
	if n, err = strconv.ParseInt(string(raw), 10, 64); err != nil {
		return 0, true, BadRequest("%s must be a whole number", name)
	}
	return n, true, nil
}

// Bool returns the member name, which must be true or false. given is false if it is absent.
func (f Fields) Bool(name string) (is, given bool, err error) {
	raw, given := f[name]
	switch string(raw) {
	case "true":
		return true, true, nil
	case "false":
		return false, true, nil
	}
	if given {
		return false, true, BadRequest("%s must be true or false", name)
	}
	return false, false, nil
}

// Only returns a 400 error if the object has a member that is not in names.
func (f Fields) Only(names ...string) error {
	for _, name := range slices.Sorted(maps.Keys(f)) { // of several mistakes the first
		if !slices.Contains(names, name) {
			return BadRequest("the body has the member %q, which is not known here", shorten(name))
		}
	}
	return nil
}

// Strings decodes a JSON object whose values are all strings. what names data in errors, which
// are 400.
func Strings(what string, data []byte) (map[string]string, error) {
	fields, err := Object(what, data)
	if err != nil {
		return nil, err
	}
	pairs := make(map[string]string, len(fields))
	wrong, found := "", false // report the first by name, so that the same mistake gets the same answer
	for name, raw := range fields {
		var value string
		if raw[0] != '"' || json.Unmarshal(raw, &value) != nil {
			if !found || name < wrong {
				wrong, found = name, true
			}
			continue
		}
		pairs[name] = value
	}
	if found {
		return nil, BadRequest("%s must have strings as values, but %q has another type", what, shorten(wrong))
	}
	return pairs, nil
}

// shownRunes is the maximum number of characters of a client's text that an error message
// repeats.
const shownRunes = 64

func shorten(s string) string {
	n := 0
	for i := range s {
		if n == shownRunes {
			return s[:i] + "…"
		}
		n++
	}
	return s
}

// checkText returns a 400 error if data is nested deeper than MaxJSONDepth, or has text that
// encoding/json would silently change: invalid UTF-8, or an escaped surrogate without its pair.
// what names data in the error.
func checkText(what string, data []byte) error {
	if !utf8.Valid(data) {
		return BadRequest("%s is not UTF-8", what)
	}
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++ // the escaped character, or the u of \uXXXX
			size, ok := surrogate(data[i:])
			if !ok {
				return BadRequest("%s has a \\u escape that is half a surrogate pair", what)
			}
			i += size
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > MaxJSONDepth {
				return BadRequest("%s is nested deeper than %d levels", what, MaxJSONDepth)
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return nil
}

// surrogate checks the escape sequence after a backslash at the start of data. size is the number
// of further bytes that belong to a surrogate pair, 0 for any other escape. ok is false for a
// surrogate without its pair.
func surrogate(data []byte) (size int, ok bool) {
	if len(data) < 5 || data[0] != 'u' || data[1]|0x20 != 'd' || data[2] < '8' {
		return 0, true
	}
	const pair = 4 + 6 // XXXX\uXXXX
	high := strings.ContainsRune("89abAB", rune(data[2]))
	if !high || len(data) < 1+pair {
		return 0, false
	}
	low := data[5:]
	if low[0] != '\\' || low[1] != 'u' || low[2]|0x20 != 'd' || !strings.ContainsRune("cdefCDEF", rune(low[3])) {
		return 0, false
	}
	return pair, true
}
