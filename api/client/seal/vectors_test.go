package seal

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"lukechampine.com/blake3"
)

// TestVectorsOfTheFormat promises that keys and storage keys are derived as the examples of docs/encryption.md
// say.
func TestVectorsOfTheFormat(t *testing.T) {
	const path = "/photos/vacation/beach.jpg"
	secret := count()
	var out [32]byte
	blake3.DeriveKey(out[:], "fula:ai-workspace-secret:v1", secret[:])
	pathKey := derive(contextPathKey, secret[:], []byte(path))
	deterministic, err := storageKey(secret, DeterministicHash, path)
	if err != nil {
		t.Fatal(err)
	}
	structure, err := storageKey(secret, PreserveStructure, path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, got, want string }{
		{"derive_key", hex.EncodeToString(out[:]), "9a898da56fd236561a1ded1493109e368ca659e58ee490969047129c4d407ef8"},
		{"path key", hex.EncodeToString(pathKey[:]), "80c9001fd1f9325307d2f5e3f29f31e3f8dacb2a2c61cb930186ff2a8c87a684"},
		{"DeterministicHash", deterministic, "e/c332cba605723bb4881b064484e82c29"},
		{"PreserveStructure", structure, "/photos/vacation/e_4655b99b8f3e881d0cfec15a"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s is %s, want %s", tc.name, tc.got, tc.want)
		}
	}
	a, err := storageKey(secret, RandomUUID, path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := storageKey(secret, RandomUUID, path)
	if err != nil {
		t.Fatal(err)
	}
	v4 := regexp.MustCompile(`^e/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if !v4.MatchString(a) || a == b {
		t.Errorf("RandomUuid gives %s and %s", a, b)
	}
}

// TestHPKEVectors promises that the suite of the format opens the vectors of RFC 9180, appendix A.2.1: base mode
// of DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20Poly1305.
func TestHPKEVectors(t *testing.T) {
	decode := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	private, err := classicKEM().NewPrivateKey(decode("8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb"))
	if err != nil {
		t.Fatal(err)
	}
	public := "4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a"
	if got := hex.EncodeToString(private.PublicKey().Bytes()); got != public {
		t.Fatalf("public key of the recipient is %s, want %s", got, public)
	}
	recipient, err := hpke.NewRecipient(decode("1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a"),
		private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), decode("4f6465206f6e2061204772656369616e2055726e"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct{ aad, ciphertext string }{
		{"436f756e742d30", "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28"},
		{"436f756e742d31", "6b53c051e4199c518de79594e1c4ab18b96f081549d45ce015be002090bb119e85285337cc95ba5f59992dc98c"},
	} {
		plain, err := recipient.Open(decode(v.aad), decode(v.ciphertext))
		if want := "4265617574792069732074727574682c20747275746820626561757479"; err != nil || hex.EncodeToString(plain) != want {
			t.Errorf("plaintext is %x (%v), want %s", plain, err, want)
		}
	}
	exported, err := recipient.Export("", 32)
	if want := "4bbd6243b8bb54cec311fac9df81841b6fd61f56538a775e7c80a9f40160606e"; err != nil || hex.EncodeToString(exported) != want {
		t.Errorf("exported value is %x (%v), want %s", exported, err, want)
	}
	if classicKEM().ID() != 0x0020 || hpke.HKDFSHA256().ID() != 1 || hpke.ChaCha20Poly1305().ID() != 3 {
		t.Error("the suite is not 0x0020, 0x0001, 0x0003")
	}
	if _, err := ecdh.X25519().NewPublicKey(decode(public)); err != nil {
		t.Error(err)
	}
}

// TestVectorsOfBLAKE3 promises that DigestOf and derive have the results of the 35 cases of test_vectors.json of
// github.com/BLAKE3-team/BLAKE3. They are in testdata/blake3.tsv: the length of the input, its hash, and the key
// that derive_key makes of it.
func TestVectorsOfBLAKE3(t *testing.T) {
	const context = "BLAKE3 2019-12-27 16:29:52 test vectors context"
	text, err := os.ReadFile(filepath.Join("testdata", "blake3.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for line := range strings.Lines(string(text)) {
		cases++
		f := strings.Fields(line)
		n, err := strconv.Atoi(f[0])
		if err != nil {
			t.Fatal(err)
		}
		input := make([]byte, n)
		for i := range input {
			input[i] = byte(i % 251)
		}
		digest, err := DigestOf(bytes.NewReader(input))
		if err != nil {
			t.Fatal(err)
		}
		derived := derive(context, input[:n/2], input[n/2:])
		if got := fmt.Sprintf("%d %x %x", n, digest.Hash, derived); got != strings.Join(f, " ") {
			t.Errorf("%s, want %s", got, f)
		}
	}
	if cases != 35 {
		t.Errorf("there are %d cases", cases)
	}
}
