package x402test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/internal/evm"
)

// Address, hashes and signature of an authorization are those of the vector in payments.md, and do not fit another
// value.
func TestSignaturesAreThoseOfEIP712(t *testing.T) {
	key := KeyOf([32]byte(bytes.Repeat([]byte{0x11}, 32)))
	domain := Domain{"Bridged USDC (SKALE Bridge)", "1", 324705682, "0x2e08028E3C4c2356572E096d8EF835cD5C6030bD"}
	message := Authorization{
		From: key.Address(), To: "0x" + strings.Repeat("22", 20), Value: "1000",
		ValidAfter: "1700000000", ValidBefore: "1700000900", Nonce: "0x" + strings.Repeat("33", 32),
	}
	kind := TypeHash()
	separator, err := domain.Separator()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := message.Digest(&domain)
	if err != nil {
		t.Fatal(err)
	}
	signature := key.Sign(digest)
	for name, is := range map[string][2]string{
		"address":          {evm.Checksum(key.Address()), "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"},
		"type hash":        {hex.EncodeToString(kind[:]), "7c7c6cdb67a18743f49ec6fa9b35f50d52ed05cbed4cc592e13b44501c1a2267"},
		"domain separator": {hex.EncodeToString(separator[:]), "9a7d7919f5600df04f70438166db79499257c6dc32ed225567b57528d0952a20"},
		"digest":           {hex.EncodeToString(digest[:]), "9e967784eecd74ea1711ae26e7825357c5701f4ac3e9950c92f7eedc59484610"},
		"signature": {signature, "0x9feb93b9ff5093337e7e1ad7cacee19d39e0f272b2237d02c3c848a795e3a439" +
			"3c459159d3ca2ceee5842ab33a1f28ce924d2e1d1ed340d02929bf4abbae1fd11b"},
	} {
		if is[0] != is[1] {
			t.Errorf("%s is\n%s, want\n%s", name, is[0], is[1])
		}
	}
	if signer, err := Recover(digest, signature); err != nil || signer != key.Address() {
		t.Errorf("recovered %s, %v", signer, err)
	}
	message.Value = "1001"
	changed, err := message.Digest(&domain)
	if err != nil {
		t.Fatal(err)
	}
	if signer, err := Recover(changed, signature); err == nil && signer == key.Address() {
		t.Error("the signature is also that of another value")
	}
}
