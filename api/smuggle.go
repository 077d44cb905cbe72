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

// A request with both Content-Length and Transfer-Encoding is ambiguous. A proxy in front of the
// node may find another end of its body than the node, and take the rest for another request
// (request smuggling). The node answers by the chunks and then closes the connection (RFC 9112,
// section 6.1). net/http removes Content-Length before the handler sees it, so this file reads
// the heads from the connection too. It cannot do that with TLS; there the node closes the
// connection after every HTTP/1.1 request with a chunked body.

// closing returns a handler that calls h and makes net/http close the connection after a request
// with both Content-Length and Transfer-Encoding. With TLS it cannot see Content-Length, so it
// closes the connection after every chunked HTTP/1.1 request.
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

// withConn stores c in the context of its requests if c is a *watchedConn. It is the ConnContext
// hook of http.Server.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if watched, ok := c.(*watchedConn); ok {
		return context.WithValue(ctx, watchedKey{}, watched)
	}
	return ctx
}

// watchedListener wraps each accepted connection in a *watchedConn.
type watchedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http looks at what it is
	}
	return &watchedConn{Conn: c}, nil
}

// watchedConn is a connection that parses the HTTP/1 request heads in the bytes that net/http
// reads, and skips the bodies between them. It detects heads that net/http does not show to
// handlers. Read must not be called concurrently.
type watchedConn struct {
	net.Conn
	heads     heads
	ambiguous atomic.Bool // a head had both Content-Length and Transfer-Encoding, or was invalid
}

// Read implements net.Conn.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.heads.read(b[:n]) {
		c.ambiguous.Store(true)
	}
	return n, err //nolint:wrapcheck // net/http looks at what it is
}

// place is the part of an HTTP/1 request to which the next byte belongs.
type place uint8

const (
	inHead  place = iota
	inBody        // of a known length; heads.left bytes of it remain
	inSize        // the line with the size of a chunk
	inChunk       // heads.left bytes of it remain, the line break included
	inTrailers
	lost // the request is invalid, and net/http closes the connection
)

// kept is how many bytes of each line heads stores. It exceeds the length of a Content-Length
// header, of the name Transfer-Encoding, and of a chunk size.
const kept = 64

// heads is an incremental parser of the HTTP/1 requests on one connection.
type heads struct {
	at      place
	left    int64
	line    [kept]byte
	filled  int     // number of bytes in line
	long    bool    // the line is longer than kept
	length  string  // value of Content-Length
	sized   bool    // the current head has Content-Length
	chunked bool    // the current head has Transfer-Encoding
	field   *string // value to which a continuation line is appended; nil: of no interest
}

// read parses the next bytes of the connection. It returns true if they complete a head that has
// both Content-Length and Transfer-Encoding, or if the request is invalid.
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

// next parses one complete line without its line break. It returns true if the line ends a head
// that has both Content-Length and Transfer-Encoding.
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

// header parses one line of a request head: the request line, a header, the continuation of a
// header, or the empty last line. It returns true if the last line ends a head that has both
// Content-Length and Transfer-Encoding.
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
