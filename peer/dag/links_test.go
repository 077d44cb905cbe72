package dag

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

func node(tb testing.TB, codec uint64, data []byte, children ...cid.Cid) blocks.Block {
	tb.Helper()
	b, err := peertest.Node(codec, data, children...)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// labelled makes a block of any bytes; the hash is right, the content may not be.
func labelled(tb testing.TB, codec uint64, data []byte) blocks.Block {
	tb.Helper()
	b, err := peertest.Block(codec, data)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// Links returns the links of a block in order, for each supported codec, and none for raw, cbor and json.
func TestLinksOfEveryCodec(t *testing.T) {
	a := node(t, cid.Raw, []byte("a")).Cid()
	b := node(t, cid.DagCBOR, []byte("b"), a).Cid()
	for _, tc := range []struct {
		name  string
		block blocks.Block
		want  []cid.Cid
	}{
		{"raw has none, whatever it holds", labelled(t, cid.Raw, node(t, cid.DagProtobuf, nil, a).RawData()), nil},
		{"cbor has none", labelled(t, plainCBOR, node(t, cid.DagCBOR, nil, a).RawData()), nil},
		{"json has none", labelled(t, plainJSON, []byte(`{"/":"`+a.String()+`"}`)), nil},
		{"dag-pb", node(t, cid.DagProtobuf, []byte("x"), a, b, a), []cid.Cid{a, b, a}},
		{"dag-pb without links", node(t, cid.DagProtobuf, []byte("x")), nil},
		{"dag-cbor", node(t, cid.DagCBOR, []byte("x"), b, a), []cid.Cid{b, a}},
		{"dag-json", node(t, cid.DagJSON, []byte("x"), a, b), []cid.Cid{a, b}},
		{"dag-jose that is signed", labelled(t, cid.DagJOSE, signed(b.Bytes())), []cid.Cid{b}},
		{"dag-jose that is encrypted", labelled(t, cid.DagJOSE, append([]byte("\xa2\x62iv\x41\x01\x6aciphertext\x58\x24"), a.Bytes()...)), nil},
		{"dag-json without links", labelled(t, cid.DagJSON, []byte(`{"a":[1,{"b":null}]}`)), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Links(tc.block)
			if err != nil || !slices.Equal(got, tc.want) {
				t.Fatalf("Links = %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

// Links refuses malformed, too large and too deep blocks, unknown codecs and more than MaxLinks links. Each has its
// error.
func TestLinksRefuses(t *testing.T) {
	leaf := node(t, cid.Raw, []byte("a")).Cid()
	for _, tc := range []struct {
		name  string
		block blocks.Block
		want  error
	}{
		{"unknown codec", labelled(t, cid.GitRaw, []byte("blob 0")), ErrUnsupportedCodec},
		{"dag-pb of junk", labelled(t, cid.DagProtobuf, []byte{0xff, 1, 2}), ErrInvalidBlock},
		{"dag-cbor cut short", labelled(t, cid.DagCBOR, []byte{0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), ErrInvalidBlock},
		{"dag-cbor nested too deep", labelled(t, cid.DagCBOR, append(bytes.Repeat([]byte{0x81}, 1<<20), 0)), ErrInvalidBlock},
		{"dag-json nested too deep", labelled(t, cid.DagJSON, bytes.Repeat([]byte{'['}, 1<<20)), ErrInvalidBlock},
		{"dag-cbor with something behind", labelled(t, cid.DagCBOR, []byte{1, 1}), ErrInvalidBlock},
		{"dag-jose that is no map", labelled(t, cid.DagJOSE, []byte{0x80}), ErrInvalidBlock},
		{"dag-jose of another map", labelled(t, cid.DagJOSE, []byte("\xa1\x61a\x01")), ErrInvalidBlock},
		{"dag-jose whose payload is below another key", labelled(t, cid.DagJOSE, append([]byte("\xa1\x61a"), signed(leaf.Bytes())...)), ErrInvalidBlock},
		{"dag-jose that signs what is no CID", labelled(t, cid.DagJOSE, signed([]byte("text"))), ErrInvalidBlock},
		{"dag-jose with a text in the place of the payload", labelled(t, cid.DagJOSE, []byte("\xa1\x67payload\x61a")), ErrInvalidBlock},
		{"block too large", labelled(t, cid.Raw, make([]byte, MaxBlock+1)), ErrInvalidBlock},
		{"dag-cbor with too many links", labelled(t, cid.DagCBOR, manyLinks(MaxLinks+1)), ErrTooLarge},
		{"dag-pb link that is no CID", labelled(t, cid.DagProtobuf, []byte{0x12, 3, 0x0a, 1, 7}), ErrInvalidBlock},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := Links(tc.block); !errors.Is(err, tc.want) {
				t.Fatalf("Links = %d links, %v; want %v", len(got), err, tc.want)
			}
		})
	}
	if got, err := Links(labelled(t, cid.DagCBOR, manyLinks(MaxLinks))); err != nil || len(got) != MaxLinks {
		t.Fatalf("as many links as allowed: %d, %v", len(got), err)
	}
}

// signed is dag-jose: {"payload": payload, "signatures": [{"signature": h'0102'}]}.
func signed(payload []byte) []byte {
	data := append([]byte("\xa2\x67payload\x58"), byte(len(payload)))
	return append(append(data, payload...), "\x6asignatures\x81\xa1\x69signature\x42\x01\x02"...)
}

// manyLinks returns a dag-cbor list of n links to identity CIDs, small enough for a
// block.
func manyLinks(n int) []byte {
	link := []byte{0xd8, 0x2a, 0x45, 0x00, 0x01, 0x55, 0x00, 0x00} // tag 42, bytes(5): 0, CIDv1 raw identity of nothing
	out := []byte{0x9a, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	return append(out, bytes.Repeat(link, n)...)
}

// Links allocates at most 64 MiB for a small block that claims much or a full one of many small values.
func TestLinksOfABombCostsLittleMemory(t *testing.T) {
	for _, tc := range []struct {
		name string
		data []byte
	}{
		{"nested lists that claim 2^63 entries", bytes.Repeat([]byte{0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 6)},
		{"a string that claims 1 GiB", []byte{0x7a, 0x40, 0, 0, 0, 'a'}},
		{"bytes that claim 2^62", []byte{0x5b, 0x40, 0, 0, 0, 0, 0, 0, 0, 'a'}},
		{"two million integers", append([]byte{0x9a, 0, 0x1f, 0xff, 0xf0}, make([]byte, 0x1ffff0)...)},
		{"a million empty lists", append([]byte{0x9a, 0, 0x1f, 0xff, 0xf0}, bytes.Repeat([]byte{0x80}, 0x1ffff0)...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := labelled(t, cid.DagCBOR, tc.data)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Links(b)
			runtime.ReadMemStats(&after)
			t.Logf("%d bytes: %v, %d KiB allocated", len(tc.data), err, (after.TotalAlloc-before.TotalAlloc)>>10)
			if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
				t.Fatalf("allocated %d MiB", got>>20)
			}
		})
	}
}

// The module uses go-ipld-prime v0.23.0 or newer. An older one ends the process at a small dag-cbor block that claims
// much.
func TestTheDecoderIsNotAnOldOne(t *testing.T) {
	const module, floor = "github.com/ipld/go-ipld-prime", 23
	out, err := exec.Command("go", "list", "-m", "-f", "{{if .Replace}}{{.Replace.Version}}{{else}}{{.Version}}{{end}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "v%d.%d.", &major, &minor); err != nil || major == 0 && minor < floor {
		t.Fatalf("%s %s: want v0.%d.0 or newer (%v)", module, out, floor, err)
	}
}

func FuzzLinks(f *testing.F) {
	leaf := node(f, cid.Raw, []byte("a")).Cid()
	for i, codec := range []uint64{cid.DagProtobuf, cid.DagCBOR, cid.DagJSON} {
		f.Add(byte(i), node(f, codec, []byte("data"), leaf, leaf).RawData())
		f.Add(byte(i), []byte{})
	}
	f.Add(byte(1), bytes.Repeat([]byte{0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 6))
	f.Add(byte(2), []byte(`{"/":{"bytes":"AA"}}`))
	f.Add(byte(3), signed(leaf.Bytes()))
	codecs := []uint64{cid.DagProtobuf, cid.DagCBOR, cid.DagJSON, cid.DagJOSE}
	f.Fuzz(func(t *testing.T, codec byte, data []byte) {
		b := labelled(t, codecs[int(codec)%len(codecs)], data)
		links, err := Links(b)
		if err != nil && !errors.Is(err, ErrInvalidBlock) && !errors.Is(err, ErrTooLarge) {
			t.Fatalf("untyped error %v", err)
		}
		for _, c := range links {
			if !c.Defined() {
				t.Fatal("undefined link")
			}
		}
	})
}
