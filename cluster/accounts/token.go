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
	// MaxToken is the largest size of a token in bytes.
	MaxToken = 4 << 10

	tokenAlg = "EdDSA"
	// jwtHeader is base64url of {"alg":"EdDSA","typ":"JWT"}, the header under the
	// key of generation 0. Later ones have {"alg":"EdDSA","kid":"1","typ":"JWT"}
	// with their number.
	jwtHeader = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9"
	// maxHeader is the largest size of the header in bytes, because a number has at most 20
	// digits.
	maxHeader = 100

	s3Info      = "holdfast s3 secret v1"
	s3SecretLen = 40
	s3KeyPrefix = "HF"
)

// errToken is wrapped by the errors about a token that this cluster has not issued. It does not
// leave this package; clients get the one text of state.ErrUnauthorized.
var errToken = errors.New("not a token of this cluster")

// claims are the claims of an API key, in the order in which the token has them.
type claims struct {
	Subject string `json:"sub"`   // e-mail address of the account
	Scope   string `json:"scope"` // permissions, separated by one space
	ID      string `json:"jti"`
	Issued  int64  `json:"iat"`           // seconds since 1970
	Expires int64  `json:"exp,omitempty"` // seconds since 1970; absent if the key does not expire

	// generation is the generation of the signing key, which is in the header of the token.
	generation uint64
}

// claimsOf returns the claims of an API key, for a token that the signing key of the given
// generation signs.
func claimsOf(key *state.APIKey, email string, generation uint64) claims {
	return claims{
		Subject: email, Scope: strings.Join(key.Scope, " "), ID: string(key.ID),
		Issued: seconds(key.Created), Expires: seconds(key.Expires), generation: generation,
	}
}

func seconds(m state.Millis) int64 { return int64(m) / 1000 }

// The methods of jwt.Claims. The library's checks of claims are disabled: the token is compared
// with the record of its key instead.

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

// signer is one decrypted signing key of the cluster, with all that is needed to sign and verify
// tokens.
type signer struct {
	generation uint64
	header     string // base64url of the header of the tokens
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

// headerOf returns the encoded header of the tokens that a generation signs.
func headerOf(generation uint64) string {
	if generation == 0 {
		return jwtHeader
	}
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","kid":"` + strconv.FormatUint(generation, 10) + `","typ":"JWT"}`))
}

// generationOf returns the generation in the header of a token. It returns false unless the
// header is exactly the one that headerOf returns for that generation.
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

// signers has the signing keys of the cluster by generation, as read from the state at some time.
type signers struct {
	by     map[uint64]*signer
	newest uint64
}

// sign returns the token for claims. Equal claims give the same token.
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

// verify returns the claims of a token if this key has signed it. The algorithm is fixed and not
// taken from the token, and keys in the header are ignored. The claims must be byte for byte
// those that sign would write, without additional, missing or duplicate ones.
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

// s3Pair returns the S3 access key pair of an API key or share with the given id. The access key
// id is "HF" and the id in upper case, so that the id can be read from it. The secret is the
// first 40 characters of base64url(HMAC-SHA256(seed, "holdfast s3 secret v1" || id)).
func (s *signer) s3Pair(id state.KeyID) (accessKeyID, secret string) {
	mac := hmac.New(sha256.New, s.seed)
	mac.Write([]byte(s3Info))
	mac.Write([]byte(id))
	text := base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	return s3KeyPrefix + strings.ToUpper(string(id)), text[:s3SecretLen]
}

// s3KeyID returns the id of the key to which an access key id belongs. It returns false for text
// in any other form, such as in lower case.
func s3KeyID(accessKeyID string) (state.KeyID, bool) {
	text, ok := strings.CutPrefix(accessKeyID, s3KeyPrefix)
	id := strings.ToLower(text)
	return state.KeyID(id), ok && id != "" && len(id) <= state.MaxIDLen && strings.ToUpper(id) == text
}
