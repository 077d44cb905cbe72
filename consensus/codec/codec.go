// Package codec encodes and decodes records. A record has one method that names its
// fields in order, and a Coder runs it in either direction. Equal records have equal
// bytes, so all nodes store and hash the same.
//
// Unsigned integers are varints of encoding/binary. Strings and byte slices are a length
// and the bytes, lists a count and the elements, maps a count and the pairs in key
// order.
//
// Imports: std.
// Never:   reflection, clocks, randomness.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// ErrMalformed is wrapped by every error of a Coder: when it decodes, and when it encodes something above
// its bound.
var ErrMalformed = errors.New("malformed record")

// Coder encodes into one byte slice, or decodes from one. After the first error every
// further call does nothing; Finish returns the error.
type Coder struct {
	buf      []byte
	decoding bool
	err      error
}

// Encoder returns a Coder that appends to buf.
func Encoder(buf []byte) *Coder { return &Coder{buf: buf} }

// Decoder returns a Coder that reads buf. Decoded values do not alias buf, except the slices that Text
// returns.
func Decoder(buf []byte) *Coder { return &Coder{buf: buf, decoding: true} }

// Decoding reports whether the Coder decodes, for the few records whose fields depend on
// it.
func (c *Coder) Decoding() bool { return c.decoding }

// Err returns the first error so far, for callers that do not decode a whole record.
func (c *Coder) Err() error { return c.err }

// Finish returns the encoded bytes, or the first error. When decoding, bytes that are left over are an
// error too.
func (c *Coder) Finish() ([]byte, error) {
	if c.err == nil && c.decoding && len(c.buf) != 0 {
		c.fail("%d bytes left over", len(c.buf))
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.buf, nil
}

// More reports whether a decoder has bytes left. A record reads fields that a later
// version added only if there are more bytes.
func (c *Coder) More() bool { return !c.decoding || (c.err == nil && len(c.buf) > 0) }

// Fail makes the Coder fail with a reason. Records use it for checks of their own.
func (c *Coder) Fail(reason string) { c.fail("%s", reason) }

func (c *Coder) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
}

// Version encodes v, or decodes a version and fails if it is above v, so a node never
// misreads a record of a newer release. It returns the version.
func (c *Coder) Version(v uint64) uint64 {
	got := v
	Uint(c, &got)
	if c.err == nil && (got == 0 || got > v) {
		c.fail("record version %d, this release reads up to %d", got, v)
	}
	return got
}

// Uint codes an unsigned integer.
func Uint[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *Coder, v *T) {
	if c.err != nil {
		return
	}
	if !c.decoding {
		c.buf = binary.AppendUvarint(c.buf, uint64(*v))
		return
	}
	n, size := binary.Uvarint(c.buf)
	if size <= 0 || uint64(T(n)) != n {
		c.fail("bad integer")
		return
	}
	*v, c.buf = T(n), c.buf[size:]
}

// Int codes a signed integer.
func Int[T ~int64](c *Coder, v *T) {
	u := uint64(*v)<<1 ^ uint64(*v>>63)
	Uint(c, &u)
	if c.decoding && c.err == nil {
		*v = T(u>>1) ^ -T(u&1)
	}
}

// Bool codes a truth value as one byte.
func Bool(c *Coder, v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	Uint(c, &b)
	if c.decoding {
		if b > 1 {
			c.fail("bad truth value %d", b)
		}
		*v = b == 1
	}
}

// String codes a string of up to most bytes. Encoding a longer string is an error too, so that
// everything that is written can be read.
func String[S ~string](c *Coder, v *S, most int) {
	n := c.length(len(*v), most)
	if c.err != nil {
		return
	}
	if !c.decoding {
		c.buf = append(c.buf, *v...)
		return
	}
	*v, c.buf = S(c.buf[:n]), c.buf[n:]
}

// Text decodes a string of up to most bytes that String wrote, without a copy: the result is a part of the
// decoder's input. The caller must not change the bytes. Text is for code that inspects a record without
// building it. After an error it returns nil.
func Text(c *Coder, most int) []byte {
	n := c.length(0, most)
	if c.err != nil {
		return nil
	}
	text := c.buf[:n]
	c.buf = c.buf[n:]
	return text
}

// Count decodes the number of elements that List wrote, or of pairs that Map wrote, up to most. Like Text,
// it is for code that inspects a record. After an error it returns 0.
func Count(c *Coder, most int) int { return c.length(0, most) }

// Bytes codes a byte slice of up to most bytes. An empty slice decodes as nil.
func Bytes(c *Coder, v *[]byte, most int) {
	n := c.length(len(*v), most)
	if c.err != nil {
		return
	}
	if !c.decoding {
		c.buf = append(c.buf, *v...)
		return
	}
	*v = nil
	if n > 0 {
		*v = slices.Clone(c.buf[:n])
	}
	c.buf = c.buf[n:]
}

// Fixed codes exactly the bytes of v, without a length.
func Fixed(c *Coder, v []byte) {
	if c.err != nil {
		return
	}
	if !c.decoding {
		c.buf = append(c.buf, v...)
		return
	}
	if len(c.buf) < len(v) {
		c.fail("%d bytes wanted, %d left", len(v), len(c.buf))
		return
	}
	copy(v, c.buf)
	c.buf = c.buf[len(v):]
}

// List codes a slice of up to most elements. An empty list decodes as nil.
func List[T any](c *Coder, v *[]T, most int, each func(*Coder, *T)) {
	n := c.length(len(*v), most)
	if c.err != nil {
		return
	}
	if c.decoding {
		*v = nil
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		if each(c, &(*v)[i]); c.err != nil {
			return
		}
	}
}

// Strings codes a list of up to most strings of up to longest bytes each.
func Strings[S ~string](c *Coder, v *[]S, most, longest int) {
	List(c, v, most, func(c *Coder, s *S) { String(c, s, longest) })
}

// Map codes a map of up to most pairs, whose keys and values have up to longest bytes each. It writes the
// pairs in key order, so that equal maps are equal bytes. An empty map decodes as nil.
func Map(c *Coder, v *map[string]string, most, longest int) {
	n := c.length(len(*v), most)
	if c.err != nil {
		return
	}
	if !c.decoding {
		for _, key := range slices.Sorted(maps.Keys(*v)) {
			value := (*v)[key]
			String(c, &key, longest)
			String(c, &value, longest)
		}
		return
	}
	*v = nil
	if n > 0 {
		*v = make(map[string]string, n)
	}
	for range n {
		var key, value string
		String(c, &key, longest)
		String(c, &value, longest)
		if c.err != nil {
			return
		}
		(*v)[key] = value
	}
	if len(*v) != n {
		c.fail("a key twice")
	}
}

// length codes a length and checks it against its bound and, when decoding, against the
// bytes that are left, because every element takes at least one.
func (c *Coder) length(n, most int) int {
	u := uint64(n)
	Uint(c, &u)
	switch {
	case c.err != nil:
		return 0
	case u > uint64(most):
		c.fail("length %d above its bound %d", u, most)
		return 0
	case c.decoding && u > uint64(len(c.buf)):
		c.fail("length %d, %d bytes left", u, len(c.buf))
		return 0
	}
	return int(u)
}
