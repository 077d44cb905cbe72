package s3

import (
	"bytes"
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxXMLDepth is the maximum nesting of elements. The documents of the S3 API have at most 4
// levels.
const maxXMLDepth = 16

// xmlReader parses the XML of a request element by element, without building a tree.
//
// It exists because encoding/xml rejects control characters, even as character references, and
// clients send keys with such characters in DeleteObjects. xmlReader supports the part of XML 1.0
// that is used for data: elements, text, character references, CDATA, comments and processing
// instructions. It ignores namespace prefixes and attributes. It does not support entities that a
// document defines, so nothing can expand. Text must be UTF-8.
type xmlReader struct {
	rest   []byte   // bytes that are not parsed yet
	stack  []string // names of the open elements; the last is the current one
	closed bool     // the current element is empty: <a/>
}

// malformed returns a MalformedXML error with a formatted text.
func malformed(format string, args ...any) *Error {
	e := errorf(MalformedXML, format, args...)
	e.Message = "the XML you provided was not well-formed or did not validate against our published schema: " + e.Message
	return e
}

// readXML returns a reader of data whose current element is the root element. It returns an error
// if that is not named root.
func readXML(data []byte, root string) (*xmlReader, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		return nil, malformed("it is not UTF-8")
	}
	x := &xmlReader{rest: data}
	if err := x.declaration(); err != nil {
		return nil, err
	}
	name, began, err := x.next()
	switch {
	case err != nil:
		return nil, err
	case !began || name != root:
		return nil, malformed("it does not begin with %s", root)
	}
	return x, nil
}

// declaration skips <?xml ... ?>. It returns an error if the encoding is not UTF-8 or ASCII.
func (x *xmlReader) declaration() error {
	if !bytes.HasPrefix(x.rest, []byte("<?xml")) {
		return nil
	}
	end := bytes.Index(x.rest, []byte("?>"))
	if end < 0 {
		return malformed("its declaration does not end")
	}
	text := strings.ToLower(string(x.rest[:end]))
	if _, encoding, given := strings.Cut(text, "encoding"); given && !strings.Contains(encoding, "utf-8") && !strings.Contains(encoding, "us-ascii") {
		return malformed("its encoding is not UTF-8")
	}
	x.rest = x.rest[end+len("?>"):]
	return nil
}

// child enters the next child of the current element and returns its name. If there is none, it
// leaves the current element and ok is false. Text between elements is an error.
func (x *xmlReader) child() (name string, ok bool, err error) {
	if len(x.stack) == 0 {
		return "", false, malformed("it has more after its end")
	}
	return x.next()
}

func (x *xmlReader) next() (name string, began bool, err error) {
	if x.closed {
		x.pop()
		return "", false, nil
	}
	for {
		x.rest = bytes.TrimLeft(x.rest, " \t\r\n")
		switch {
		case len(x.rest) == 0:
			return "", false, malformed("it ends too soon")
		case x.rest[0] != '<':
			return "", false, malformed("there is text between elements")
		case bytes.HasPrefix(x.rest, []byte("</")):
			return "", false, x.endTag()
		}
		passed, err := x.pass()
		if err != nil {
			return "", false, err
		}
		if !passed {
			name, err = x.startTag()
			return name, err == nil, err
		}
	}
}

// text returns the text of the current element and leaves it.
func (x *xmlReader) text() (string, error) {
	if x.closed {
		x.pop()
		return "", nil
	}
	var b []byte
	for {
		at := bytes.IndexByte(x.rest, '<')
		if at < 0 {
			return "", malformed("it ends too soon")
		}
		var err error
		if b, err = appendText(b, x.rest[:at]); err != nil {
			return "", err
		}
		x.rest = x.rest[at:]
		const open, shut = "<![CDATA[", "]]>"
		if bytes.HasPrefix(x.rest, []byte(open)) {
			end := bytes.Index(x.rest, []byte(shut))
			if end < 0 {
				return "", malformed("a section of CDATA does not end")
			}
			b = appendLines(b, x.rest[len(open):end])
			x.rest = x.rest[end+len(shut):]
			continue
		}
		if bytes.HasPrefix(x.rest, []byte("</")) {
			return string(b), x.endTag()
		}
		// Otherwise a comment would make 12 out of 1<!-- -->2.
		return "", malformed("%s has something else than text in it", x.stack[len(x.stack)-1])
	}
}

// skip reads past the end tag of the current element and ignores its content.
func (x *xmlReader) skip() error {
	depth := len(x.stack)
	for len(x.stack) >= depth {
		if x.closed {
			x.pop()
			continue
		}
		at := bytes.IndexByte(x.rest, '<')
		if at < 0 {
			return malformed("it ends too soon")
		}
		x.rest = x.rest[at:]
		if bytes.HasPrefix(x.rest, []byte("<![CDATA[")) {
			end := bytes.Index(x.rest, []byte("]]>"))
			if end < 0 {
				return malformed("a section of CDATA does not end")
			}
			x.rest = x.rest[end:]
			continue
		}
		if bytes.HasPrefix(x.rest, []byte("</")) {
			if err := x.endTag(); err != nil {
				return err
			}
			continue
		}
		passed, err := x.pass()
		if err == nil && !passed {
			_, err = x.startTag()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// finish returns an error if anything follows the root element.
func (x *xmlReader) finish() error {
	for {
		x.rest = bytes.TrimLeft(x.rest, " \t\r\n")
		if len(x.rest) == 0 {
			return nil
		}
		passed, err := x.pass()
		if err != nil {
			return err
		}
		if !passed {
			return malformed("it has more after its end")
		}
	}
}

// pass skips a comment or a processing instruction, and returns false if there is none.
func (x *xmlReader) pass() (bool, error) {
	for _, kind := range []struct{ begin, end string }{{"<!--", "-->"}, {"<?", "?>"}} {
		if !bytes.HasPrefix(x.rest, []byte(kind.begin)) {
			continue
		}
		end := bytes.Index(x.rest[len(kind.begin):], []byte(kind.end))
		if end < 0 {
			return false, malformed("%s does not end", kind.begin)
		}
		x.rest = x.rest[len(kind.begin)+end+len(kind.end):]
		return true, nil
	}
	if bytes.HasPrefix(x.rest, []byte("<!")) {
		return false, malformed("it has a document type or a section that is not read")
	}
	return false, nil
}

// startTag parses a start tag and enters its element.
func (x *xmlReader) startTag() (string, error) {
	if len(x.stack) == maxXMLDepth {
		return "", malformed("elements are more than %d deep", maxXMLDepth)
	}
	if len(x.rest) == 0 || x.rest[0] != '<' {
		return "", malformed("it does not begin with an element")
	}
	name, err := x.name(1)
	if err != nil {
		return "", err
	}
	for {
		before := len(x.rest)
		x.rest = bytes.TrimLeft(x.rest, " \t\r\n")
		switch {
		case bytes.HasPrefix(x.rest, []byte("/>")):
			x.rest, x.closed = x.rest[2:], true
		case bytes.HasPrefix(x.rest, []byte(">")):
			x.rest = x.rest[1:]
		case before == len(x.rest):
			return "", malformed("the tag of %.64q is broken", name)
		default:
			if err := x.attribute(); err != nil {
				return "", err
			}
			continue
		}
		x.stack = append(x.stack, name)
		return local(name), nil
	}
}

// attribute skips an attribute, name="value".
func (x *xmlReader) attribute() error {
	if _, err := x.name(0); err != nil {
		return err
	}
	x.rest = bytes.TrimLeft(x.rest, " \t\r\n")
	value, ok := bytes.CutPrefix(x.rest, []byte("="))
	value = bytes.TrimLeft(value, " \t\r\n")
	if !ok || len(value) == 0 || (value[0] != '"' && value[0] != '\'') {
		return malformed("an attribute has no value")
	}
	end := bytes.IndexByte(value[1:], value[0])
	if end < 0 || bytes.IndexByte(value[1:1+end], '<') >= 0 {
		return malformed("the value of an attribute does not end")
	}
	x.rest = value[1+end+1:]
	return nil
}

// endTag parses an end tag and leaves the current element.
func (x *xmlReader) endTag() error {
	name, err := x.name(len("</"))
	if err != nil {
		return err
	}
	x.rest = bytes.TrimLeft(x.rest, " \t\r\n")
	if len(x.rest) == 0 || x.rest[0] != '>' || len(x.stack) == 0 || x.stack[len(x.stack)-1] != name {
		return malformed("</%.64s> ends nothing", name)
	}
	x.rest = x.rest[1:]
	x.pop()
	return nil
}

func (x *xmlReader) pop() { x.stack, x.closed = x.stack[:len(x.stack)-1], false }

// name parses a name at offset from of the rest.
func (x *xmlReader) name(from int) (string, error) {
	i := from
	for i < len(x.rest) && !strings.ContainsRune(" \t\r\n/>=<\"'&", rune(x.rest[i])) {
		i++
	}
	if name := x.rest[from:i]; len(name) > 0 && (name[0] == '_' || name[0]|0x20 >= 'a' && name[0]|0x20 <= 'z' || name[0] >= 0x80) {
		x.rest = x.rest[i:]
		return string(name), nil
	}
	return "", malformed("a tag has no name")
}

// local returns a name without its namespace prefix.
func local(name string) string { return name[strings.LastIndexByte(name, ':')+1:] }

// appendLines appends text to b and converts all line breaks to \n (XML 1.0, section 2.11).
func appendLines(b, text []byte) []byte {
	for i := 0; i < len(text); i++ {
		if text[i] == '\r' {
			b = append(b, '\n')
			if i+1 < len(text) && text[i+1] == '\n' {
				i++
			}
			continue
		}
		b = append(b, text[i])
	}
	return b
}

// appendText appends text to b and replaces character references by their characters.
func appendText(b, text []byte) ([]byte, error) {
	for {
		at := bytes.IndexByte(text, '&')
		if at < 0 {
			return appendLines(b, text), nil
		}
		b = appendLines(b, text[:at])
		end := bytes.IndexByte(text[at:], ';')
		if end < 0 {
			return nil, malformed("a reference does not end")
		}
		r, ok := resolve(string(text[at+1 : at+end]))
		if !ok {
			return nil, malformed("it has a reference to nothing")
		}
		b = utf8.AppendRune(b, r)
		text = text[at+end+1:]
	}
}

// resolve returns the character of a reference, given by its name without & and ; such as amp or
// #x41. It accepts characters that XML 1.0 excludes, because clients send them in keys in this
// way. ok is false for an unknown reference.
func resolve(name string) (char rune, ok bool) {
	switch name {
	case "amp":
		return '&', true
	case "lt":
		return '<', true
	case "gt":
		return '>', true
	case "quot":
		return '"', true
	case "apos":
		return '\'', true
	}
	digits, numeric := strings.CutPrefix(name, "#")
	base := rune(10)
	if hex, ok := strings.CutPrefix(digits, "x"); ok {
		digits, base = hex, 16
	}
	if !numeric || digits == "" || len(digits) > 16 {
		return 0, false
	}
	var r rune
	for i := range len(digits) {
		d := rune(nibble(digits[i]))
		if d < 0 || d >= base {
			return 0, false
		}
		if r = r*base + d; r > utf8.MaxRune {
			return 0, false
		}
	}
	return r, utf8.ValidRune(r)
}

// checkConfiguration checks the body of CreateBucket. It rejects tags and directory buckets,
// which the gateway does not support, because clients would later rely on them.
func checkConfiguration(body []byte) error {
	x, err := readXML(body, "CreateBucketConfiguration")
	if err != nil {
		return err
	}
	in, refused := "", error(nil)
	for {
		name, ok, err := x.child()
		switch {
		case err != nil:
			return err
		case !ok && in != "":
			in = ""
		case !ok:
			return cmp.Or(x.finish(), refused)
		case in == "" && (name == "Tags" || name == "Bucket"):
			in = name
		case in == "Bucket" && name == "Type":
			kind, err := x.text()
			if err != nil {
				return err
			}
			if kind == "Directory" {
				refused = errorf(NotImplemented, "directory buckets are not implemented")
			}
		default:
			if in == "Tags" {
				refused = errorf(NotImplemented, "tags in CreateBucket are not implemented: set them with PutBucketTagging")
			}
			if err := x.skip(); err != nil {
				return err
			}
		}
	}
}

// listedPart is a Part element of CompleteMultipartUpload.
type listedPart struct {
	number, etag string
	checksums    map[string]string // key: algorithm; value: base64
}

// readParts parses the body of CompleteMultipartUpload. It stops after most+1 parts, which is
// enough for the caller to detect too many.
func readParts(body []byte, most int) (parts []listedPart, err error) {
	x, err := readXML(body, "CompleteMultipartUpload")
	if err != nil {
		return nil, err
	}
	for {
		name, ok, err := x.child()
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return parts, x.finish()
		case name != "Part":
			err = x.skip()
		case len(parts) == most:
			return nil, malformed("there are more than %d parts", most)
		default:
			var p listedPart
			p, err = x.part()
			parts = append(parts, p)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (x *xmlReader) part() (p listedPart, err error) {
	for {
		name, ok, err := x.child()
		if err != nil {
			return p, err
		}
		if !ok {
			if p.number == "" || p.etag == "" {
				return p, malformed("a part has no PartNumber or no ETag")
			}
			return p, nil
		}
		value, err := x.text()
		if err != nil {
			return p, err
		}
		kind, isChecksum := strings.CutPrefix(name, "Checksum")
		twice := false
		switch {
		case name == "PartNumber":
			twice, p.number = p.number != "", strings.TrimSpace(value)
		case name == "ETag":
			twice, p.etag = p.etag != "", value
		case isChecksum:
			a := algorithmNamed(kind)
			if a == nil {
				continue // ChecksumType and future elements
			}
			if p.checksums == nil {
				p.checksums = map[string]string{}
			}
			_, twice = p.checksums[a.name]
			p.checksums[a.name] = strings.TrimSpace(value)
		}
		if twice {
			return p, malformed("a part has more than one %s", name)
		}
	}
}

// doomed is an Object element of DeleteObjects: an object or version to delete.
type doomed struct {
	key, version     string
	etag, size, time string // values of the elements ETag, Size and LastModifiedTime
	// The element VersionId, ETag, Size or LastModifiedTime is present, even if it is empty.
	versioned, matched, sized, timed bool
}

// conditional reports whether the element has a condition on the deleted version.
func (d *doomed) conditional() bool { return d.matched || d.sized || d.timed }

// condition returns the condition on the deleted version. It is true if there is no such version.
func (d *doomed) condition() (c state.Condition, err error) {
	if d.matched {
		if c.Match, err = conditionTags("ETag", []string{d.etag}, true); err != nil {
			return c, err
		}
	}
	if d.sized {
		if c.Size, c.Sized, err = sizeCondition(d.size); err != nil {
			return c, err
		}
	}
	if d.timed {
		c.Modified, err = timeCondition(d.time)
	}
	c.AbsentOK = !c.None()
	return c, err
}

// boolean parses an xs:boolean in any letter case.
func boolean(text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, malformed("%.16q is neither true nor false", text)
}

// readDelete parses the body of DeleteObjects, with at most most Object elements. quiet means
// that the answer lists only errors.
func readDelete(body []byte, most int) (keys []doomed, quiet bool, err error) {
	x, err := readXML(body, "Delete")
	if err != nil {
		return nil, false, err
	}
	for {
		name, ok, err := x.child()
		if err != nil {
			return nil, false, err
		}
		switch {
		case !ok:
			return keys, quiet, x.finish()
		case name == "Quiet":
			var text string
			if text, err = x.text(); err == nil {
				quiet, err = boolean(text)
			}
		case name != "Object":
			err = x.skip()
		case len(keys) == most:
			return nil, false, malformed("there are more than %d keys", most)
		default:
			var d doomed
			d, err = x.doomed()
			keys = append(keys, d)
		}
		if err != nil {
			return nil, false, err
		}
	}
}

// doomed parses one Object element. A repeated child element is an error, because it is
// ambiguous.
func (x *xmlReader) doomed() (d doomed, err error) {
	keyed := false
	for {
		name, ok, err := x.child()
		if err != nil {
			return d, err
		}
		if !ok {
			if d.key == "" {
				return d, malformed("an object has no Key")
			}
			return d, nil
		}
		value, err := x.text()
		if err != nil {
			return d, err
		}
		twice := false
		switch name {
		case "Key":
			twice, keyed, d.key = keyed, true, value
		case "VersionId":
			twice, d.versioned, d.version = d.versioned, true, value
		case "ETag":
			twice, d.matched, d.etag = d.matched, true, value
		case "Size":
			twice, d.sized, d.size = d.sized, true, strings.TrimSpace(value)
		case "LastModifiedTime":
			twice, d.timed, d.time = d.timed, true, strings.TrimSpace(value)
		}
		if twice {
			return d, malformed("an object has more than one %s", name)
		}
	}
}

// check returns an error for an invalid key, version or condition. An empty value is also
// invalid, because ignoring it could delete the wrong version.
func (d *doomed) check() error {
	if err := checkKey(d.key); err != nil {
		return err
	}
	switch {
	case d.versioned && d.version == "":
		return state.ErrNoVersion
	case d.versioned:
		if _, err := versionID(d.version); err != nil {
			return err
		}
	}
	_, err := d.condition()
	return err
}
