package blocks

import (
	"bytes"
	"testing"
)

// Bytes that were found good are compared with their hash only once. Other bytes, another hash and small blocks are
// always compared.
func TestBytesAreComparedWithTheirHashOnce(t *testing.T) {
	k := newKnown()
	payload := bytes.Repeat([]byte("0123456789abcdef"), knownBytes/16)
	hash, other := payload[:34], bytes.Clone(payload)
	other[len(other)/2] ^= 1
	compared := 0
	check := func(payload, hash []byte, is bool) bool {
		return k.check(payload, hash, func() bool { compared++; return is })
	}
	for _, step := range []struct {
		what          string
		payload, hash []byte
		is, compared  bool
	}{
		{"wrong bytes", other, hash, false, true},
		{"wrong bytes again", other, hash, false, true},
		{"good ones", payload, hash, true, true},
		{"good ones again", payload, hash, true, false},
		{"wrong ones for them", other, hash, false, true},
		{"good ones after that", payload, hash, true, false},
		{"the same under another hash", payload, payload[1:35], false, true},
		{"a beginning of them", payload[:len(payload)-1], hash, false, true},
		{"too small to be known", payload[1:100], hash, true, true},
		{"and again", payload[1:100], hash, true, true},
	} {
		before := compared
		if got := check(step.payload, step.hash, step.is); got != step.is {
			t.Errorf("%s: %t", step.what, got)
		}
		if (compared > before) != step.compared {
			t.Errorf("%s: compared %t, want %t", step.what, compared > before, step.compared)
		}
	}
}

// Two stores have different seeds for the blocks that they recognize.
func TestEachStoreHasSeedsOfItsOwn(t *testing.T) {
	a, b := newKnown(), newKnown()
	if a.seed == b.seed || a.place == b.place || a.seed == a.place {
		t.Errorf("%x %x, %x %x", a.seed, a.place, b.seed, b.place)
	}
}
