package codec

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// sample has a field of each form.
type sample struct {
	Version uint64
	Small   uint8
	Large   uint64
	Signed  int64
	Truth   bool
	Text    string
	Raw     []byte
	Fixed   [4]byte
	List    []uint32
	Names   []string
	Map     map[string]string
}

func (s *sample) code(c *Coder) {
	s.Version = c.Version(3)
	Uint(c, &s.Small)
	Uint(c, &s.Large)
	Int(c, &s.Signed)
	Bool(c, &s.Truth)
	String(c, &s.Text, 16)
	Bytes(c, &s.Raw, 16)
	Fixed(c, s.Fixed[:])
	List(c, &s.List, 4, func(c *Coder, v *uint32) { Uint(c, v) })
	Strings(c, &s.Names, 4, 8)
	Map(c, &s.Map, 4, 8)
}

func (s *sample) equal(o *sample) bool {
	return s.Version == o.Version && s.Small == o.Small && s.Large == o.Large && s.Signed == o.Signed && s.Truth == o.Truth &&
		s.Text == o.Text && bytes.Equal(s.Raw, o.Raw) && s.Fixed == o.Fixed && slices.Equal(s.List, o.List) &&
		slices.Equal(s.Names, o.Names) && maps.Equal(s.Map, o.Map)
}

func encode(s sample) ([]byte, error) {
	c := Encoder(nil)
	s.code(c)
	return c.Finish()
}

func decode(b []byte) (s sample, err error) {
	c := Decoder(b)
	s.code(c)
	_, err = c.Finish()
	return s, err
}

func samples() []sample {
	return []sample{
		{Version: 3},
		{
			Version: 3, Small: 255, Large: math.MaxUint64, Signed: math.MinInt64, Truth: true, Text: "text", Raw: []byte{0, 1},
			Fixed: [4]byte{1, 2, 3, 4}, List: []uint32{0, math.MaxUint32}, Names: []string{"", "b"},
			Map: map[string]string{"b": "2", "a": "1", "": ""},
		},
		{Version: 3, Signed: math.MaxInt64, Text: strings.Repeat("x", 16)},
		{Version: 3, Signed: -1},
	}
}

// The decoder reads every kind of field with the value that the encoder wrote, also the least and greatest
// integers.
func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	for i, s := range samples() {
		b, err := encode(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(b)
		if err != nil || !back.equal(&s) {
			t.Errorf("sample %d came back as %+v, %v", i, back, err)
		}
	}
}

// The encoder writes a record with every kind of field as the fixed bytes below. Other releases read them.
func TestBytesOfTheFormStay(t *testing.T) {
	b, err := encode(samples()[1])
	if err != nil {
		t.Fatal(err)
	}
	const want = "03ff01ffffffffffffffffff01ffffffffffffffffff010104746578740200010102030402" +
		"00ffffffff0f0200016203000001610131016201" + "32"
	if got := fmt.Sprintf("%x", b); got != want {
		t.Errorf("the form has changed: %s, was %s", got, want)
	}
}

// A decoded record stays the same when the caller overwrites the bytes that it was decoded from.
func TestDecodedValuesDoNotAliasTheInput(t *testing.T) {
	b, err := encode(samples()[1])
	if err != nil {
		t.Fatal(err)
	}
	s, err := decode(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if want := samples()[1]; !s.equal(&want) {
		t.Errorf("changed with the input: %+v", s)
	}
}

// The encoder returns ErrMalformed for a text, byte string, list or map above its bound. So it does for a text in
// a list and for a key of a map.
func TestWritingAboveABoundIsAnError(t *testing.T) {
	for name, s := range map[string]sample{
		"text":       {Text: strings.Repeat("x", 17)},
		"bytes":      {Raw: make([]byte, 17)},
		"list":       {List: make([]uint32, 5)},
		"text in it": {Names: []string{strings.Repeat("x", 9)}},
		"map":        {Map: map[string]string{"a": "", "b": "", "c": "", "d": "", "e": ""}},
		"key":        {Map: map[string]string{strings.Repeat("x", 9): ""}},
	} {
		if _, err := encode(s); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The decoder returns ErrMalformed for a record that is cut short, has bytes left over or has an invalid field.
func TestReadingWhatIsNoRecordIsAnError(t *testing.T) {
	good, err := encode(samples()[1])
	if err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := decode(good[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	for name, b := range map[string][]byte{
		"left over":       append(slices.Clone(good), 0),
		"version 0":       append([]byte{0}, good[1:]...),
		"later version":   append([]byte{4}, good[1:]...),
		"truth of 2":      {3, 0, 0, 0, 2},
		"endless integer": bytes.Repeat([]byte{0xff}, 20),
		"large for uint8": {3, 0x80, 0x02},
		"key twice":       {3, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 2, 1, 'a', 0, 1, 'a', 0},
		"length of more":  {3, 0, 0, 0, 0, 16, 'x'},
	} {
		if _, err := decode(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A field of a later version is read from a record that has it, and keeps its value where an older record ends.
func TestFieldsOfALaterVersionAreReadOnlyWhereTheyAre(t *testing.T) {
	code := func(c *Coder, extra *uint8) {
		if c.Version(2); c.More() {
			Uint(c, extra)
		}
	}
	extra := uint8(7)
	c := Decoder([]byte{1})
	if code(c, &extra); extra != 7 {
		t.Errorf("read %d out of nothing", extra)
	}
	if _, err := c.Finish(); err != nil {
		t.Error(err)
	}
	c = Decoder([]byte{2, 9})
	if code(c, &extra); extra != 9 {
		t.Errorf("read %d, want 9", extra)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range samples() {
		b, err := encode(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decode(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		s.Version = 3
		again, err := encode(s)
		if err != nil {
			t.Fatalf("%+v was read and cannot be written: %v", s, err)
		}
		if back, err := decode(again); err != nil || !back.equal(&s) {
			t.Fatalf("%+v came back as %+v, %v", s, back, err)
		}
	})
}

// Text returns a slice of the decoder's input and no copy. Text and Count fail with ErrMalformed above a bound or
// behind the end of the input, and after that Text returns nil.
func TestTextIsReadWithoutACopy(t *testing.T) {
	w := Encoder(nil)
	text, pairs := "text", map[string]string{"a": "1", "b": "2"}
	String(w, &text, 16)
	Map(w, &pairs, 4, 8)
	b, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	c := Decoder(b)
	got := Text(c, 16)
	if string(got) != text || &got[0] != &b[1] {
		t.Errorf("%q, or a copy of it", got)
	}
	read := map[string]string{}
	for range Count(c, 4) {
		k, v := Text(c, 8), Text(c, 8)
		read[string(k)] = string(v)
	}
	if _, err := c.Finish(); err != nil || !maps.Equal(read, pairs) {
		t.Errorf("%v, %v", read, err)
	}
	for name, look := range map[string]func(c *Coder){
		"a text above its bound":  func(c *Coder) { Text(c, 3) },
		"a count above its bound": func(c *Coder) { Text(c, 4); Count(c, 1) },
		"more than there is":      func(c *Coder) { c.buf = c.buf[:3]; Text(c, 4) },
	} {
		c := Decoder(b)
		if look(c); !errors.Is(c.Err(), ErrMalformed) {
			t.Errorf("%s: %v", name, c.Err())
		}
		if rest := Text(c, 16); rest != nil {
			t.Errorf("%s: goes on with %q", name, rest)
		}
	}
}
