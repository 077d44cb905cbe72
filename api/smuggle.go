package api

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

// A request that says how long its body is, and that it comes in chunks, may be read otherwise
// by a proxy in front of the node: what one takes for the body is the next request for the
// other. It is answered as the chunks say, and then its connection ends (RFC 9112, section 6.1).
// net/http takes Content-Length out of such a head before anybody sees it, so heads are read
// here once more while they come. With TLS they are not, and every request of HTTP/1.1 whose body
// comes in chunks ends its connection.

// closing answers on a connection that had such a request, and has net/http end it.
func closing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(watchedKey{}).(*watchedConn)
		unseen := r.TLS != nil && r.ProtoMajor == 1 && len(r.TransferEncoding) > 0
		if unseen || ok && c.ambiguous.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// watchedKey is the key of a request's *watchedConn in its context.
type watchedKey struct{}

// withConn is the http.Server's ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if watched, ok := c.(*watchedConn); ok {
		return context.WithValue(ctx, watchedKey{}, watched)
	}
	return ctx
}

// watchedListener hands out connections whose heads are read.
type watchedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http looks at what it is
	}
	return &watchedConn{Conn: c}, nil
}

// watchedConn reads the heads of HTTP/1 that come over a connection, and counts the bytes of
// bodies between them. net/http calls Read for one caller at a time.
type watchedConn struct {
	net.Conn
	heads     heads
	ambiguous atomic.Bool // a head said both
}

// Read implements net.Conn.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.heads.read(b[:n]) {
		c.ambiguous.Store(true)
	}
	return n, err //nolint:wrapcheck // net/http looks at what it is
}

// place is where in a request the next byte is.
type place uint8

const (
	inHead  place = iota
	inBody        // left bytes of it
	inSize        // the line before a chunk
	inChunk       // left bytes of it, with the line's end
	inTrailers
	lost // what comes is not understood, and net/http ends the connection
)

// kept bounds, in bytes, what is kept of a line: more than the name of a header that is looked
// for with a number, and the size of a chunk.
const kept = 64

// heads follows the requests of one connection.
type heads struct {
	at      place
	left    int64
	line    [kept]byte
	filled  int  // of line
	long    bool // the line had more
	length  string
	sized   bool // a head has Content-Length
	chunked bool // a head has Transfer-Encoding
	field   *string
}

// read takes what comes next, and tells whether a head in it says both, or is not understood.
func (h *heads) read(b []byte) (ambiguous bool) {
	for len(b) > 0 && h.at != lost {
		if h.at == inBody || h.at == inChunk {
			n := min(int64(len(b)), h.left)
			b = b[n:]
			if h.left -= n; h.left > 0 {
				break
			}
			if h.at == inBody {
				h.at = inHead
			} else {
				h.at = inSize
			}
			continue
		}
		end := bytes.IndexByte(b, '\n')
		piece := b
		if end >= 0 {
			piece = b[:end]
		}
		n := copy(h.line[h.filled:], piece)
		h.filled, h.long = h.filled+n, h.long || n < len(piece)
		if end < 0 {
			break
		}
		b = b[end+1:]
		line := strings.TrimSuffix(string(h.line[:h.filled]), "\r")
		ambiguous = h.next(line) || ambiguous
		h.filled, h.long = 0, false
	}
	return ambiguous || h.at == lost
}

// next takes a line without its end.
func (h *heads) next(line string) (ambiguous bool) {
	switch h.at {
	case inHead:
		return h.header(line)
	case inSize:
		digits, _, _ := strings.Cut(line, ";")
		size, err := strconv.ParseUint(strings.Trim(digits, " \t\r"), 16, 62)
		switch {
		case err != nil:
			h.at = lost
		case size == 0:
			h.at = inTrailers
		default:
			h.at, h.left = inChunk, int64(size)+int64(len("\r\n"))
		}
	case inTrailers:
		if line == "" && !h.long {
			h.at = inHead
		}
	}
	return false
}

// header takes a line of a head: the one of the request, a field, what goes on with the field
// before, or the last, which is empty.
func (h *heads) header(line string) (ambiguous bool) {
	if line != "" || h.long {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			if h.field != nil {
				*h.field += strings.Trim(line, " \t")
			}
			return false
		}
		name, value, _ := strings.Cut(line, ":")
		h.field = nil
		switch {
		case strings.EqualFold(name, "Content-Length"):
			h.sized, h.length, h.field = true, strings.Trim(value, " \t"), &h.length
			if h.long {
				h.length = "" // it may be any number
			}
		case strings.EqualFold(name, "Transfer-Encoding"):
			h.chunked = true
		}
		return false
	}
	ambiguous = h.sized && h.chunked
	switch n, err := strconv.ParseInt(h.length, 10, 63); {
	case h.chunked:
		h.at = inSize
	case h.sized && (err != nil || n < 0):
		h.at = lost
	case n > 0:
		h.at, h.left = inBody, n
	}
	h.sized, h.chunked, h.length, h.field = false, false, "", nil
	return ambiguous
}
