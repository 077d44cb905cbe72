package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// fields has the members of a JSON object by their exact names. encoding/json is not strict
// enough for authenticated data: it ignores the case of names, and uses the last of two members
// with the same name.
type fields map[string]json.RawMessage

// errField means that a member is missing or has another type. Callers wrap it in an error of the
// format.
var errField = errors.New("field is missing or of another type")

// parseFields parses data, which must be exactly one JSON object.
func parseFields(data []byte) (fields, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not UTF-8")
	}
	in := json.NewDecoder(bytes.NewReader(data))
	if t, err := in.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	found := fields{}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return nil, err
		}
		key, ok := name.(string)
		if _, twice := found[key]; !ok || twice {
			return nil, fmt.Errorf("member %q is not unique", key)
		}
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return nil, err
		}
		found[key] = value
	}
	if _, err := in.Token(); err != nil {
		return nil, err
	}
	if rest := bytes.TrimSpace(data[in.InputOffset():]); len(rest) > 0 {
		return nil, errors.New("text follows the JSON object")
	}
	return found, nil
}

func (f fields) has(name string) bool { _, ok := f[name]; return ok }

func (f fields) text(name string) (string, error) {
	raw := f[name]
	if len(raw) == 0 || raw[0] != '"' {
		return "", fmt.Errorf("%s: %w", name, errField)
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

// bytes decodes the member name from standard base64 with padding. size is the required number of
// bytes; 0 accepts any number.
func (f fields) bytes(name string, size int) ([]byte, error) {
	s, err := f.text(name)
	if err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || (size > 0 && len(b) != size) {
		return nil, fmt.Errorf("%s: not base64 of the right length", name)
	}
	return b, nil
}

func (f fields) integer(name string) (int64, error) {
	n, err := strconv.ParseInt(string(f[name]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, errField)
	}
	return n, nil
}

func (f fields) boolean(name string) (bool, error) {
	switch string(f[name]) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%s: %w", name, errField)
}

func (f fields) object(name string) (fields, error) {
	raw := f[name]
	if len(raw) == 0 || raw[0] != '{' {
		return nil, fmt.Errorf("%s: %w", name, errField)
	}
	return parseFields(raw)
}

// encode64 returns b in standard base64 with padding.
func encode64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
