package accounts

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/golang-jwt/jwt/v5"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const (
	// MaxToken is the most bytes of a token.
	MaxToken = 4 << 10

	tokenAlg = "EdDSA"
	// jwtHeader is base64url of {"alg":"EdDSA","typ":"JWT"}, the header under the
	// key of generation 0. Later ones have {"alg":"EdDSA","kid":"1","typ":"JWT"}
	// with their number.
	jwtHeader = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9"
	// maxHeader bounds the header in bytes: a number has 20 digits at the most.
	maxHeader = 100

	s3Info      = "holdfast s3 secret v1"
	s3SecretLen = 40
	s3KeyPrefix = "HF"
)

// errToken is why a token is not one of ours. It stays in this package: a client
// is told the one text of state.ErrUnauthorized.
var errToken = errors.New("not a token of this cluster")

// claims are exactly what an API key says, in the order in which it says it.
type claims struct {
	Subject string `json:"sub"`   // the account's e-mail
	Scope   string `json:"scope"` // permissions, separated by one space
	ID      string `json:"jti"`
	Issued  int64  `json:"iat"`           // seconds since 1970
	Expires int64  `json:"exp,omitempty"` // seconds since 1970; absent: never

	// generation is the generation of the key that signs them, as the header says.
	generation uint64
}

// claimsOf returns the claims of a key that is signed by a generation.
func claimsOf(key *state.APIKey, email string, generation uint64) claims {
	return claims{
		Subject: email, Scope: strings.Join(key.Scope, " "), ID: string(key.ID),
		Issued: seconds(key.Created), Expires: seconds(key.Expires), generation: generation,
	}
}

func seconds(m state.Millis) int64 { return int64(m) / 1000 }

// The methods of jwt.Claims. The library's checks of them are off: a token is
// judged by the record of its key, which must say the same.

// GetExpirationTime implements jwt.Claims.
func (claims) GetExpirationTime() (*jwt.NumericDate, error) { return nil, nil }

// GetIssuedAt implements jwt.Claims.
func (claims) GetIssuedAt() (*jwt.NumericDate, error) { return nil, nil }

// GetNotBefore implements jwt.Claims.
func (claims) GetNotBefore() (*jwt.NumericDate, error) { return nil, nil }

// GetIssuer implements jwt.Claims.
func (claims) GetIssuer() (string, error) { return "", nil }

// GetSubject implements jwt.Claims.
func (c claims) GetSubject() (string, error) { return c.Subject, nil }

// GetAudience implements jwt.Claims.
func (claims) GetAudience() (jwt.ClaimStrings, error) { return nil, nil }

// signer has one signing key of the cluster's, open.
type signer struct {
	generation uint64
	header     string // base64url of the tokens' header
	seed       []byte
	private    ed25519.PrivateKey
	parser     *jwt.Parser
}

func newSigner(seed []byte, generation uint64) *signer {
	return &signer{
		generation: generation,
		header:     headerOf(generation),
		seed:       seed,
		private:    ed25519.NewKeyFromSeed(seed),
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{tokenAlg}), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation(),
		),
	}
}

// headerOf returns the header of the tokens of a generation.
func headerOf(generation uint64) string {
	if generation == 0 {
		return jwtHeader
	}
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","kid":"` + strconv.FormatUint(generation, 10) + `","typ":"JWT"}`))
}

// generationOf returns which generation a token's header says has signed it. The
// header must be exactly that of the generation.
func generationOf(token string) (uint64, bool) {
	header, _, ok := strings.Cut(token, ".")
	if !ok || len(header) > maxHeader {
		return 0, false
	}
	if header == jwtHeader {
		return 0, true
	}
	raw, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		return 0, false
	}
	var said struct {
		KeyID string `json:"kid"`
	}
	if json.Unmarshal(raw, &said) != nil {
		return 0, false
	}
	g, err := strconv.ParseUint(said.KeyID, 10, 64)
	return g, err == nil && g > 0 && headerOf(g) == header
}

// signers are the cluster's signing keys by generation, as some state had them.
type signers struct {
	by     map[uint64]*signer
	newest uint64
}

// sign returns the token of claims: the same text for the same claims.
func (s *signer) sign(c claims) (string, error) {
	unsigned := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c)
	if s.generation > 0 {
		unsigned.Header["kid"] = strconv.FormatUint(s.generation, 10)
	}
	token, err := unsigned.SignedString(s.private)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return token, nil
}

// verify returns the claims of a token that this key signed. The algorithm is
// ours and not the token's choice, and a header says nothing else: a key that it
// brings or names is not looked at. The claims are byte for byte those that sign
// writes: no more, no fewer, none twice, each of its type.
func (s *signer) verify(token string) (claims, error) {
	if !strings.HasPrefix(token, s.header+".") {
		return claims{}, errToken
	}
	c := claims{generation: s.generation}
	parsed, err := s.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return s.private.Public(), nil })
	if err != nil || !parsed.Valid {
		return claims{}, errToken
	}
	payload, err := json.Marshal(c)
	if err != nil || !strings.HasPrefix(token, s.header+"."+base64.RawURLEncoding.EncodeToString(payload)+".") {
		return claims{}, errToken
	}
	return c, nil
}

// s3Pair returns the access key pair of a key. The identifier is "HF" and the
// jti in upper case, from which the jti can be read again; the secret is the
// first 40 characters of base64url(HMAC-SHA256(seed, "holdfast s3 secret v1" || jti)).
func (s *signer) s3Pair(id state.KeyID) (accessKeyID, secret string) {
	mac := hmac.New(sha256.New, s.seed)
	mac.Write([]byte(s3Info))
	mac.Write([]byte(id))
	text := base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	return s3KeyPrefix + strings.ToUpper(string(id)), text[:s3SecretLen]
}

// s3KeyID returns the jti of an access key id in its one form, upper case.
func s3KeyID(accessKeyID string) (state.KeyID, bool) {
	text, ok := strings.CutPrefix(accessKeyID, s3KeyPrefix)
	id := strings.ToLower(text)
	return state.KeyID(id), ok && id != "" && len(id) <= state.MaxIDLen && strings.ToUpper(id) == text
}
