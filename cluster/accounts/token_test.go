package accounts

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

// The forms of sealed signing keys, tokens and access key pairs are those of the golden file.
func TestFormatsStayAsTheyAre(t *testing.T) {
	s := newSigner(fixedSeed(), 0)
	token, err := s.sign(claims{Subject: email, Scope: "storage:read storage:write", ID: "jti1", Issued: 1_800_000_000})
	if err != nil {
		t.Fatal(err)
	}
	expiring, err := s.sign(claims{Subject: email, Scope: "storage:read", ID: "jti2", Issued: 1_800_000_000, Expires: 1_800_000_060})
	if err != nil {
		t.Fatal(err)
	}
	id, secret := s.s3Pair("jti1")
	got, err := json.MarshalIndent(map[string]string{
		"sealed": hex.EncodeToString(fixedSealed(t)), "token": token, "expiring": expiring,
		"access_key_id": id, "secret_access_key": secret,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	goldentest.File(t, filepath.Join("testdata", "formats.json"), append(got, '\n'))
}

// The token of a key has the header and the claims that its format names, and no other.
func TestATokenSaysExactlyItsClaims(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	key := w.key(t, email)
	parts := strings.Split(key.Token, ".")
	for i, want := range []string{
		`{"alg":"EdDSA","typ":"JWT"}`,
		fmt.Sprintf(`{"sub":%q,"scope":"storage:read storage:write","jti":%q,"iat":1800000000}`, email, key.ID),
	} {
		if got, err := base64.RawURLEncoding.DecodeString(parts[i]); err != nil || string(got) != want {
			t.Errorf("part %d is %s, %v, want %s", i, got, err, want)
		}
	}
	if key.AccessKeyID != "HF"+strings.ToUpper(string(key.ID)) || len(key.SecretAccessKey) != 40 {
		t.Errorf("pair %q %q", key.AccessKeyID, key.SecretAccessKey)
	}
}

// A sealed signing key does not open if any byte of it is changed, missing or added, and two sealed keys differ.
func TestSealedKeyOpensOnlyAsItIs(t *testing.T) {
	sealed := fixedSealed(t)
	if seed, err := unseal(clusterSecret, sealed); err != nil || string(seed) != string(fixedSeed()) {
		t.Errorf("%x, %v", seed, err)
	}
	for i := range sealed {
		bad := append([]byte(nil), sealed...)
		bad[i] ^= 1
		if _, err := unseal(clusterSecret, bad); err == nil {
			t.Errorf("opens with byte %d changed", i)
		}
	}
	for _, bad := range [][]byte{nil, sealed[:len(sealed)-1], append(append([]byte(nil), sealed...), 0)} {
		if _, err := unseal(clusterSecret, bad); err == nil {
			t.Errorf("opens with %d bytes", len(bad))
		}
	}
	if _, err := NewSigningKey([]byte("short")); err == nil {
		t.Error("a short secret seals")
	}
	a, err := NewSigningKey(clusterSecret)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewSigningKey(clusterSecret)
	if err != nil || string(a) == string(b) {
		t.Errorf("the same key twice, %v", err)
	}
}

// segment returns one part of a hand-made token.
func segment(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// signed returns a hand-made token under the cluster's own key.
func signed(header, payload string) string {
	text := segment(header) + "." + segment(payload)
	sig := ed25519.Sign(ed25519.NewKeyFromSeed(fixedSeed()), []byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// refusedTokens returns all tokens that name a live key and must open nothing.
func refusedTokens(tb testing.TB, good, other Key) map[string]string {
	all := forgeries(tb, good)
	maps.Copy(all, misstatements(tb, good, other))
	return all
}

// forgeries are tokens that the cluster's key did not sign as they are.
func forgeries(tb testing.TB, good Key) map[string]string {
	tb.Helper()
	parts := strings.Split(good.Token, ".")
	with := func(method jwt.SigningMethod, key any) string {
		t := jwt.NewWithClaims(method, jwt.MapClaims{"sub": good.Email, "scope": good.Scope, "jti": string(good.ID), "iat": good.Created.Unix()})
		text, err := t.SignedString(key)
		if err != nil {
			tb.Fatal(err)
		}
		return text
	}
	public := ed25519.NewKeyFromSeed(fixedSeed()).Public().(ed25519.PublicKey)
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		tb.Fatal(err)
	}
	pemText := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	_, foreign, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	// The last character holds 2 bits of the signature and 4 that mean nothing:
	// another one with the same 2 is the same signature in a lax reading.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(parts[2]) - 1
	lax := parts[2][:last] + string(alphabet[strings.IndexByte(alphabet, parts[2][last])^1])
	return map[string]string{
		"empty":                     "",
		"one dot":                   ".",
		"two dots":                  "..",
		"three dots":                parts[0] + "." + parts[1] + "." + parts[2] + ".",
		"no signature":              parts[0] + "." + parts[1] + ".",
		"two parts":                 parts[0] + "." + parts[1],
		"bad base64":                parts[0] + "." + parts[1] + ".!!!",
		"padded base64":             parts[0] + "." + parts[1] + "." + parts[2] + "==",
		"standard base64":           parts[0] + "." + parts[1] + ".++//" + parts[2][4:],
		"last character changed":    parts[0] + "." + parts[1] + "." + lax,
		"line break in it":          parts[0] + "." + parts[1] + "\n." + parts[2],
		"blank after it":            good.Token + " ",
		"above the bound":           good.Token + strings.Repeat("A", MaxToken),
		"none":                      segment(`{"alg":"none","typ":"JWT"}`) + "." + parts[1] + ".",
		"None":                      segment(`{"alg":"None","typ":"JWT"}`) + "." + parts[1] + ".",
		"none with our signature":   segment(`{"alg":"none","typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"none by the library":       with(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType),
		"HS256 with the public key": with(jwt.SigningMethodHS256, []byte(public)),
		"HS256 with its PEM":        with(jwt.SigningMethodHS256, pemText),
		"HS512 with the public key": with(jwt.SigningMethodHS512, []byte(public)),
		"RS256":                     with(jwt.SigningMethodRS256, rsaKey),
		"ES256":                     with(jwt.SigningMethodES256, ecKey),
		"EdDSA of another key":      with(jwt.SigningMethodEdDSA, crypto.Signer(foreign)),
	}
}

// misstatements are tokens that the cluster's own key signed, and that say
// something else than the record of the live key that they name.
func misstatements(tb testing.TB, good, other Key) map[string]string {
	tb.Helper()
	const header = `{"alg":"EdDSA","typ":"JWT"}`
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(good.Token, ".")[1])
	if err != nil {
		tb.Fatal(err)
	}
	payload := string(raw)
	now, email, jti := good.Created.Unix(), good.Email, string(good.ID)
	otherPayload := fmt.Sprintf(`{"sub":%q,"scope":%q,"jti":%q,"iat":%d}`, other.Email, good.Scope, jti, now)
	return map[string]string{
		"signed, no alg":               signed(`{"typ":"JWT"}`, payload),
		"signed, alg in lower case":    signed(`{"alg":"eddsa","typ":"JWT"}`, payload),
		"signed, alg a number":         signed(`{"alg":1,"typ":"JWT"}`, payload),
		"signed, alg a list":           signed(`{"alg":["EdDSA"],"typ":"JWT"}`, payload),
		"signed, no typ":               signed(`{"alg":"EdDSA"}`, payload),
		"signed, kid with a path":      signed(`{"alg":"EdDSA","kid":"../../../../dev/null","typ":"JWT"}`, payload),
		"signed, jku":                  signed(`{"alg":"EdDSA","jku":"https://evil.example/keys","typ":"JWT"}`, payload),
		"signed, jwk":                  signed(`{"alg":"EdDSA","jwk":{"kty":"OKP"},"typ":"JWT"}`, payload),
		"signed, crit":                 signed(`{"alg":"EdDSA","crit":["b64"],"typ":"JWT"}`, payload),
		"signed, header is a list":     signed(`["EdDSA"]`, payload),
		"signed, header is null":       signed(`null`, payload),
		"signed, unknown jti":          signed(header, strings.Replace(payload, jti, "unknown", 1)),
		"signed, no jti":               signed(header, fmt.Sprintf(`{"sub":%q,"scope":%q,"iat":%d}`, email, good.Scope, now)),
		"signed, long jti":             signed(header, strings.Replace(payload, jti, strings.Repeat("x", 500), 1)),
		"signed, jti of another sub":   signed(header, otherPayload),
		"signed, sub in upper case":    signed(header, strings.Replace(payload, email, strings.ToUpper(email), 1)),
		"signed, more scope":           signed(header, strings.Replace(payload, good.Scope, good.Scope+" admin", 1)),
		"signed, less scope":           signed(header, strings.Replace(payload, good.Scope, "storage:read", 1)),
		"signed, scope a list":         signed(header, fmt.Sprintf(`{"sub":%q,"scope":["storage:read","storage:write"],"jti":%q,"iat":%d}`, email, jti, now)),
		"signed, scope null":           signed(header, fmt.Sprintf(`{"sub":%q,"scope":null,"jti":%q,"iat":%d}`, email, jti, now)),
		"signed, sub a number":         signed(header, fmt.Sprintf(`{"sub":1,"scope":%q,"jti":%q,"iat":%d}`, good.Scope, jti, now)),
		"signed, iat another":          signed(header, strings.Replace(payload, fmt.Sprint(now), fmt.Sprint(now+1), 1)),
		"signed, iat with a fraction":  signed(header, strings.Replace(payload, fmt.Sprint(now), fmt.Sprint(now)+".5", 1)),
		"signed, an end it has not":    signed(header, strings.Replace(payload, "}", fmt.Sprintf(`,"exp":%d}`, now+1000), 1)),
		"signed, an end of zero":       signed(header, strings.Replace(payload, "}", `,"exp":0}`, 1)),
		"signed, one more claim":       signed(header, strings.Replace(payload, "}", `,"admin":true}`, 1)),
		"signed, a claim twice":        signed(header, strings.Replace(payload, "{", `{"jti":"x",`, 1)),
		"signed, a claim's case":       signed(header, strings.Replace(payload, `"jti"`, `"JTI"`, 1)),
		"signed, blanks":               signed(header, " "+payload),
		"signed, something after it":   signed(header, payload+"{}"),
		"signed, claims are a list":    signed(header, "[]"),
		"signed, claims are null":      signed(header, "null"),
		"signed, claims are empty":     signed(header, "{}"),
		"signed, claims are not JSON":  signed(header, "jti"),
		"signed, claims without bytes": signed(header, ""),
		"signed, deep":                 signed(header, strings.Repeat("[", 2000)),
	}
}

// A node refuses every forged token with the same text, also when it comes a second time, and accepts the real ones
// between them.
func TestForgeriesAreRefusedWithOneText(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	w.account(t, "bob@example.org")
	good, other := w.key(t, email), w.key(t, "bob@example.org")
	for round := range 2 { // the second time with whatever was remembered
		for name, token := range refusedTokens(t, good, other) {
			if w.opens(t, w.Accounts, token) {
				t.Errorf("round %d, %s opens the account", round, name)
			}
		}
		for _, key := range []Key{good, other} {
			if p, err := w.Authenticate(t.Context(), key.Token); err != nil || p.KeyID != key.ID || !w.opens(t, w.Accounts, key.Token) {
				t.Errorf("the real one: %+v, %v", p, err)
			}
		}
	}
}

// A node refuses a token longer than MaxToken without an allocation. Anybody can send a token of any length, so a
// node does not hash, decode or copy one longer than all that the cluster gives out.
func TestATokenThatIsTooLongCostsNothing(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	key := w.key(t, email)
	for name, token := range map[string]string{
		"none": "", "one byte too long": key.Token + strings.Repeat("A", MaxToken+1-len(key.Token)), "a megabyte": key.Token + strings.Repeat("A", 1<<20),
		"a session's": "hfs_" + strings.Repeat("A", MaxToken),
	} {
		for way, ask := range map[string]func() error{
			"authenticate": func() error { _, err := w.Authenticate(t.Context(), token); return err },
			"recognize":    func() error { _, err := w.Recognize(token); return err },
		} {
			var err error
			if n := testing.AllocsPerRun(10, func() { err = ask() }); n != 0 || !errors.Is(err, state.ErrUnauthorized) {
				t.Errorf("%s, %s: %v with %v allocations", way, name, err, n)
			}
		}
	}
	if len(key.Token) > MaxToken/4 { // no account can have one that is cut off by the bound
		t.Errorf("a key's token has %d bytes", len(key.Token))
	}
}

// A token that the helper signed makes from the claims of a key is the token of that key. So the forgeries above
// differ from a real token in what they mean to, and not by accident.
func TestAHandMadeTokenIsTheRealOne(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	key := w.key(t, email)
	payload := fmt.Sprintf(`{"sub":%q,"scope":%q,"jti":%q,"iat":%d}`, email, key.Scope, key.ID, key.Created.Unix())
	if got := signed(`{"alg":"EdDSA","typ":"JWT"}`, payload); got != key.Token {
		t.Errorf("got %s, want %s", got, key.Token)
	}
}

// The cache of verified signatures holds at most its bound of entries, keeps the newest and those in use, and drops
// others.
func TestVerifiedSignaturesAreBoundedAndKeepWhatIsUsed(t *testing.T) {
	hash := func(i int) [sha256.Size]byte { return sha256.Sum256([]byte(fmt.Sprint(i))) }
	c := cache.NewLocked[[sha256.Size]byte, claims](100)
	c.Put(hash(-1), claims{ID: "used"})
	for i := range 10_000 {
		c.Put(hash(i), claims{ID: fmt.Sprint(i)})
		if found, ok := c.Get(hash(i)); !ok || found.ID != fmt.Sprint(i) {
			t.Fatalf("%d is not there: %v", i, found)
		}
		if found, ok := c.Get(hash(-1)); !ok || found.ID != "used" {
			t.Fatalf("after %d others what is used was dropped", i)
		}
		if n := c.Len(); n > 100 {
			t.Fatalf("%d entries", n)
		}
	}
	if _, ok := c.Get(hash(0)); ok {
		t.Error("what is not used stays for ever")
	}
}

func FuzzAuthenticate(f *testing.F) {
	w := newWorld(f)
	w.account(f, email)
	w.account(f, "bob@example.org")
	good, other := w.key(f, email), w.key(f, "bob@example.org")
	for _, token := range refusedTokens(f, good, other) {
		f.Add(token)
	}
	f.Add(good.Token)
	f.Add(other.Token)
	f.Fuzz(func(t *testing.T, token string) {
		p, err := w.Authenticate(t.Context(), token)
		real := token == good.Token || token == other.Token
		if (err == nil) != real {
			t.Fatalf("%q: %+v, %v", token, p, err)
		}
		if err != nil && (!errors.Is(err, state.ErrUnauthorized) || err.Error() != state.ErrUnauthorized.Detail) {
			t.Fatalf("%q: %v", token, err)
		}
	})
}

// FuzzClaims signs whatever the claims are, so that their reader is reached.
func FuzzClaims(f *testing.F) {
	w := newWorld(f)
	w.account(f, email)
	good := w.key(f, email)
	real := fmt.Sprintf(`{"sub":%q,"scope":%q,"jti":%q,"iat":%d}`, email, good.Scope, good.ID, good.Created.Unix())
	for _, payload := range []string{real, "{}", "null", "[]", strings.Replace(real, "1", "1e0", 1), real + " ", strings.ToUpper(real)} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		_, err := w.Authenticate(t.Context(), signed(`{"alg":"EdDSA","typ":"JWT"}`, payload))
		if (err == nil) != (payload == real) {
			t.Fatalf("%q: %v", payload, err)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	w := newWorld(b)
	w.account(b, email)
	key := w.key(b, email)
	b.Run("remembered", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := w.Authenticate(b.Context(), key.Token); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.verified = cache.NewLocked[[sha256.Size]byte, claims](2)
			if _, err := w.Authenticate(b.Context(), key.Token); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("forged", func(b *testing.B) {
		forged := key.Token[:len(key.Token)-4] + "AAAA"
		b.ReportAllocs()
		for b.Loop() {
			if _, err := w.Authenticate(b.Context(), forged); err == nil {
				b.Fatal("accepted")
			}
		}
	})
}
