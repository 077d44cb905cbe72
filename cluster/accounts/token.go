package accounts

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/golang-jwt/jwt/v5"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const (
	// MaxToken is the most bytes of a token.
	MaxToken = 4 << 10

	tokenAlg = "EdDSA"
	// jwtHeader is base64url of {"alg":"EdDSA","typ":"JWT"}.
	jwtHeader = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9"

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
}

// claimsOf returns the claims of a key.
func claimsOf(key *state.APIKey, email string) claims {
	return claims{
		Subject: email, Scope: strings.Join(key.Scope, " "), ID: string(key.ID),
		Issued: seconds(key.Created), Expires: seconds(key.Expires),
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

// signer has the cluster's key, open.
type signer struct {
	seed    []byte
	private ed25519.PrivateKey
	parser  *jwt.Parser
}

func newSigner(seed []byte) *signer {
	return &signer{
		seed:    seed,
		private: ed25519.NewKeyFromSeed(seed),
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{tokenAlg}), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation(),
		),
	}
}

// sign returns the token of claims: the same text for the same claims.
func (s *signer) sign(c claims) (string, error) {
	token, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c).SignedString(s.private)
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
	if !strings.HasPrefix(token, jwtHeader+".") {
		return claims{}, errToken
	}
	var c claims
	parsed, err := s.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return s.private.Public(), nil })
	if err != nil || !parsed.Valid {
		return claims{}, errToken
	}
	payload, err := json.Marshal(c)
	if err != nil || !strings.HasPrefix(token, jwtHeader+"."+base64.RawURLEncoding.EncodeToString(payload)+".") {
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
