package pins

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// identity returns a CID that holds its content, of n bytes.
func identity(n int) string {
	mh, err := multihash.Encode(make([]byte, n), multihash.IDENTITY)
	if err != nil {
		panic(err)
	}
	return cid.NewCidV1(cid.Raw, mh).String()
}

func meta(pairs, size int) map[string]string {
	m := make(map[string]string, pairs)
	for i := range pairs {
		m[fmt.Sprintf("%04d", i)] = strings.Repeat("x", size/pairs-4)
	}
	return m
}

// Create accepts a pin whose CID, name, origins and meta are well-formed and within their bounds, and says what is
// wrong with any other.
func TestValidate(t *testing.T) {
	const blake3 = 0x1e
	origin := "/dns4/example.org/tcp/4001/p2p/" + v0
	base32 := cid.NewCidV1(cid.DagProtobuf, cid.MustParse(v0).Hash()).String()
	b3, err := multihash.Encode(make([]byte, 32), blake3)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		in   Request
		want string // a part of the detail; empty: valid
	}{
		{"cid v0", Request{CID: v0}, ""},
		{"cid v1", Request{CID: base32}, ""},
		{"cid v1 in upper case", Request{CID: strings.ToUpper(base32)}, ""},
		{"cid in base36", Request{CID: "k51qzi5uqu5dgutdk6i1ynyzgkqngpha5xpgia3a5qqp4jsh0u4csozksxel2r"}, ""},
		{"cid of an identity hash", Request{CID: identity(10)}, ""},
		{"cid of no bytes", Request{CID: identity(0)}, ""},
		{"cid with blake3", Request{CID: cid.NewCidV1(cid.Raw, b3).String()}, ""},
		{"cid with an unknown codec", Request{CID: cid.NewCidV1(0x300539, b3).String()}, ""},
		{"cid v0 behind a multibase", Request{CID: "z" + v0}, "has no multibase prefix"},
		{"cid missing", Request{}, "cid is missing or empty"},
		{"cid of blanks", Request{CID: "   "}, "not a valid CID"},
		{"cid with a blank after it", Request{CID: v0 + " "}, "not a valid CID"},
		{"cid with a line break", Request{CID: v0 + "\n"}, "characters that no CID has"},
		{"cid in raw bytes", Request{CID: "\x00\x01\x55\x00\x00"}, "characters that no CID has"},
		{"cid that is no text", Request{CID: "b\xff\xfe"}, "characters that no CID has"},
		{"cid that is a word", Request{CID: "hello"}, `cid "hello" is not a valid CID`},
		{"cid with a letter changed case", Request{CID: "Q" + strings.ToUpper(v0[1:])}, "not a valid CID"},
		{"cid cut short", Request{CID: v0[:45]}, "not a valid CID"},
		{"cid v1 cut short", Request{CID: base32[:50]}, "not a valid CID"},
		{"path of a cid", Request{CID: "/ipfs/" + v0}, "not a valid CID"},
		{"address of a cid", Request{CID: "ipfs://" + base32}, "not a valid CID"},
		{"cid above the bound", Request{CID: identity(200)}, "cid is longer than 256 bytes"},
		{"long rubbish is not repeated", Request{CID: strings.Repeat("z", 200)}, strings.Repeat("z", maxQuoted) + `..."`},

		{"name of 255 characters", Request{CID: v0, Name: strings.Repeat("ä", 255)}, ""},
		{"name of 256 characters", Request{CID: v0, Name: strings.Repeat("ä", 256)}, "name has 256 characters, at most 255"},
		{"name of 255 large characters", Request{CID: v0, Name: strings.Repeat("🦀", 255)}, ""},
		{"name that is no text", Request{CID: v0, Name: "\xff"}, "name is not valid UTF-8"},

		{"20 origins", Request{CID: v0, Origins: slices.Repeat([]string{origin}, 20)}, ""},
		{"21 origins", Request{CID: v0, Origins: slices.Repeat([]string{origin}, 21)}, "origins has 21 entries, at most 20"},
		{"origin without a peer", Request{CID: v0, Origins: []string{"/ip6/2001:db8::1/udp/4001/quic-v1"}}, ""},
		{"origin that is a host", Request{CID: v0, Origins: []string{origin, "example.org:4001"}}, `origins[1]: "example.org:4001" is not a multiaddr`},
		{"origin that is empty", Request{CID: v0, Origins: []string{""}}, "is not a multiaddr"},
		{"origin that is a slash", Request{CID: v0, Origins: []string{"/"}}, "is not a multiaddr"},
		{"origin of an unknown protocol", Request{CID: v0, Origins: []string{"/nope/1"}}, "is not a multiaddr"},
		{"origin with a bad port", Request{CID: v0, Origins: []string{"/ip4/1.2.3.4/tcp/99999"}}, "is not a multiaddr"},
		{"origin with a bad peer", Request{CID: v0, Origins: []string{"/ip4/1.2.3.4/tcp/1/p2p/x"}}, "is not a multiaddr"},
		{"origin above the bound", Request{CID: v0, Origins: []string{strings.Repeat("/tcp/1", 200)}}, "origins[0] is longer than 1024 bytes"},

		{"meta of 1000 pairs", Request{CID: v0, Meta: meta(1000, 60_000)}, ""},
		{"meta of 1001 pairs", Request{CID: v0, Meta: meta(1001, 50_000)}, "meta has 1001 pairs, at most 1000"},
		{"meta of 64 KiB", Request{CID: v0, Meta: meta(1, 64<<10)}, ""},
		{"meta above 64 KiB", Request{CID: v0, Meta: meta(1, 64<<10+1)}, "meta is larger than 65536 bytes"},
		{"meta with an empty key and value", Request{CID: v0, Meta: map[string]string{"": ""}}, ""},
		{"meta that is no text", Request{CID: v0, Meta: map[string]string{"k": "\xff"}}, "meta is not valid UTF-8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, clustertest.Setup{Nodes: clustertest.Members("n1")})
			got, err := w.Create(t.Context(), alice, tc.in)
			if tc.want == "" {
				if err != nil || got.CID != tc.in.CID || got.Name != tc.in.Name {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			var coded *state.Error
			if !errors.As(err, &coded) || coded.Code != state.CodeInvalid || !strings.Contains(coded.Detail, tc.want) || len(coded.Detail) > 300 {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// What passes here is taken by the state machine: nothing is accepted and then
// refused, and nothing breaks a bound of the form a command has.
func FuzzValidate(f *testing.F) {
	f.Add(v0, "name", "/ip4/1.2.3.4/tcp/4001", "key", "value")
	f.Add(raw("a"), "", "", "", "")
	f.Add(identity(5), "\xff", "/", "\x00", "ä")
	f.Add("k51qzi5uqu5dgutdk6i1ynyzgkqngpha5xpgia3a5qqp4jsh0u4csozksxel2r", "🦀", "/p2p/"+v0, "", "")
	f.Add("\x00\x01\x55\x00\x00", "n", "/dns4/a/tcp/1", "k", "v")
	f.Fuzz(func(t *testing.T, text, name, origin, key, value string) {
		in := Request{CID: text, Name: name, Meta: map[string]string{key: value}}
		if origin != "" {
			in.Origins = []string{origin}
		}
		_, invalid := in.Validate()
		if invalid != nil && !errors.Is(invalid, state.ErrInvalid) {
			t.Fatalf("%v is no answer to a client", invalid)
		}
		w := newWorld(t, clustertest.Setup{Nodes: clustertest.Members("n1")})
		r, err := w.Create(t.Context(), alice, in)
		if (err == nil) != (invalid == nil) {
			t.Fatalf("validation says %v, the state machine %v", invalid, err)
		}
		if err == nil && w.get(t, alice, r.ID).CID != text {
			t.Fatalf("%q is not echoed", text)
		}
	})
}
