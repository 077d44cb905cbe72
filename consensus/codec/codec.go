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

// ErrMalformed is wrapped by every error of a Coder: bytes that do not decode, and values that
// exceed their bound when they are encoded.
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

// Decoding reports whether the Coder decodes. The few records whose form depends on their content
// need it.
func (c *Coder) Decoding() bool { return c.decoding }

// Err returns the first error so far. It is for callers that decode only a part of a record and
// so do not call Finish.
func (c *Coder) Err() error { return c.err }

// Finish returns the encoded bytes, or the first error. A decoder also fails if undecoded bytes
// remain.
func (c *Coder) Finish() ([]byte, error) {
	if c.err == nil && c.decoding && len(c.buf) != 0 {
		c.fail("%d bytes left over", len(c.buf))
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.buf, nil
}

// More reports whether a decoder has bytes left; for an encoder it returns true. A record uses it
// to read the fields that a later version has appended.
func (c *Coder) More() bool { return !c.decoding || (c.err == nil && len(c.buf) > 0) }

// Fail sets the Coder's error, with reason as its text. Records call it when a check of their own
// fails.
func (c *Coder) Fail(reason string) { c.fail("%s", reason) }

func (c *Coder) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
}

// Version encodes the version v of a record, or decodes a version and fails if it is above v. So
// a node never misreads a record of a newer release. It returns the version that was encoded or
// decoded.
func (c *Coder) Version(v uint64) uint64 {
	got := v
	Uint(c, &got)
	if c.err == nil && (got == 0 || got > v) {
		c.fail("record version %d, this release reads up to %d", got, v)
	}
	return got
}

// Uint encodes or decodes an unsigned integer.
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

// Int encodes or decodes a signed integer.
func Int[T ~int64](c *Coder, v *T) {
	u := uint64(*v)<<1 ^ uint64(*v>>63)
	Uint(c, &u)
	if c.decoding && c.err == nil {
		*v = T(u>>1) ^ -T(u&1)
	}
}

// Bool encodes or decodes a truth value as one byte.
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

// String encodes or decodes a string of up to most bytes. It fails for a longer string when
// encoding too, so that every encoded record can be decoded.
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

// Text decodes a string of up to most bytes that String has encoded, without a copy: the result
// is a part of the decoder's input, which the caller must not change. It serves code that
// inspects a record without building it. After an error it returns nil.
func Text(c *Coder, most int) []byte {
	n := c.length(0, most)
	if c.err != nil {
		return nil
	}
	text := c.buf[:n]
	c.buf = c.buf[n:]
	return text
}

// Count decodes the number of elements that List has encoded, or of pairs that Map has encoded,
// up to most. Like Text, it serves code that inspects a record. After an error it returns 0.
func Count(c *Coder, most int) int { return c.length(0, most) }

// Bytes encodes or decodes a byte slice of up to most bytes. An empty slice decodes as nil.
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

// Fixed encodes the bytes of v without a length, or decodes len(v) bytes into v.
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

// List encodes or decodes a slice of up to most elements, each by a call of each. An empty list
// decodes as nil.
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

// Strings encodes or decodes a list of up to most strings of up to longest bytes each.
func Strings[S ~string](c *Coder, v *[]S, most, longest int) {
	List(c, v, most, func(c *Coder, s *S) { String(c, s, longest) })
}

// Map encodes or decodes a map of up to most pairs, whose keys and values have up to longest
// bytes each. It writes the pairs in key order, so that equal maps have equal bytes. An empty map
// decodes as nil.
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

// length encodes the length n, or decodes a length, and returns it. It fails if the length
// exceeds most or, when decoding, the number of bytes that are left, because every element
// occupies at least one byte.
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
