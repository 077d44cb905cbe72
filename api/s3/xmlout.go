package s3

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const (
	xmlProlog = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"
	xmlSpace  = "http://s3.amazonaws.com/doc/2006-03-01/"
)

// xmlWriter builds the XML of an answer. It writes characters that XML 1.0 excludes as numeric
// references, like Amazon S3, so that keys stay readable; encoding/xml would replace them by
// U+FFFD.
type xmlWriter struct{ b []byte }

func newXML() *xmlWriter { return &xmlWriter{append(make([]byte, 0, 1024), xmlProlog...)} }

// root begins the root element of an answer, with the namespace of S3. Errors have no namespace.
func (x *xmlWriter) root(name string) {
	x.b = append(x.b, '<')
	x.b = append(x.b, name...)
	x.b = append(x.b, ` xmlns="`+xmlSpace+`">`...)
}

func (x *xmlWriter) begin(name string) {
	x.b = append(x.b, '<')
	x.b = append(x.b, name...)
	x.b = append(x.b, '>')
}

func (x *xmlWriter) end(name string) {
	x.b = append(x.b, '<', '/')
	x.b = append(x.b, name...)
	x.b = append(x.b, '>')
}

// text writes an element with text.
func (x *xmlWriter) text(name, value string) {
	x.begin(name)
	x.escape(value)
	x.end(name)
}

func (x *xmlWriter) number(name string, value int64) {
	x.begin(name)
	x.b = strconv.AppendInt(x.b, value, 10)
	x.end(name)
}

func (x *xmlWriter) truth(name string, value bool) {
	x.begin(name)
	x.b = strconv.AppendBool(x.b, value)
	x.end(name)
}

// time writes an element with a time in ISO 8601 with milliseconds.
func (x *xmlWriter) time(name string, at state.Millis) {
	x.begin(name)
	x.b = at.Time().AppendFormat(x.b, "2006-01-02T15:04:05.000Z")
	x.end(name)
}

// etag writes an ETag element with a quoted value.
func (x *xmlWriter) etag(value string) { x.text("ETag", `"`+value+`"`) }

// owner writes an Owner element for the caller of r.
func (x *xmlWriter) owner(r *request) { x.person("Owner", r) }

func (x *xmlWriter) person(element string, r *request) {
	x.begin(element)
	x.text("ID", string(r.who.Account))
	x.text("DisplayName", r.who.Email)
	x.end(element)
}

// escape appends text with XML escapes. Bytes that are not UTF-8 become U+FFFD, because XML
// cannot express them; clients can ask for encoding-type=url instead.
func (x *xmlWriter) escape(text string) {
	from := 0
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		var to string
		switch {
		case r == '&':
			to = "&amp;"
		case r == '<':
			to = "&lt;"
		case r == '>':
			to = "&gt;"
		case r == '"':
			to = "&quot;"
		case r < ' ', r == 0xFFFE, r == 0xFFFF:
			to = fmt.Sprintf("&#x%X;", r)
		case r == utf8.RuneError && n == 1:
			to = "\uFFFD"
		default:
			i += n
			continue
		}
		x.b = append(append(x.b, text[from:i]...), to...)
		i += n
		from = i
	}
	x.b = append(x.b, text[from:]...)
}

// legible replaces characters that XML 1.0 excludes (its section 2.2) by U+FFFD, because some
// clients could not parse an error with such characters.
func legible(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return utf8.RuneError
		}
		return r
	}, text)
}

// sendPage works like send with status 200, and charges the memory of the answer to the account,
// because a page of a list may have several megabytes.
func (x *xmlWriter) sendPage(w http.ResponseWriter, r *request) error {
	if err := r.held.Grow(int64(cap(x.b))); err != nil {
		return err
	}
	return x.send(w, http.StatusOK)
}

// send sends the document as the answer.
func (x *xmlWriter) send(w http.ResponseWriter, status int) error {
	header := w.Header()
	header.Set("Content-Type", "application/xml")
	header.Set("Content-Length", strconv.Itoa(len(x.b)))
	w.WriteHeader(status)
	// In pieces with a time limit each, because a page of keys can have some megabytes.
	for out, b := web.NewSteady(w, web.StallTimeout), x.b; len(b) > 0; {
		n, err := out.Write(b[:min(len(b), web.WriteBuffer)])
		if err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// httpTime formats a time for an HTTP header, in whole seconds.
func httpTime(at state.Millis) string { return at.Time().Truncate(time.Second).Format(http.TimeFormat) }
