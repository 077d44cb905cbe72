package sigv4

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"strings"
)

// Form has the fields of an upload form that concern the signature of its policy. See
// "Browser-Based Uploads Using POST (AWS Signature Version 4)" in the Amazon S3 API Reference.
type Form struct {
	Algorithm  string // x-amz-algorithm
	Credential string // x-amz-credential
	Date       string // x-amz-date
	Signature  string // x-amz-signature
	Policy     string // the field policy in base64: the signed text
}

// VerifyForm returns the access key that signed the policy of a form. It does not parse the
// policy, whose content means nothing before the signature is verified. The signature may be of
// any age, because the policy has its own expiry. The error is an *Error or that of the Lookup.
func (v *Verifier) VerifyForm(ctx context.Context, f Form) (accessKey string, err error) {
	refused := CodeArgument
	if f == (Form{Policy: f.Policy}) {
		refused = CodeNone // the form has no signature
	}
	for _, field := range []struct{ name, value string }{
		{"policy", f.Policy},
		{"x-amz-algorithm", f.Algorithm},
		{"x-amz-credential", f.Credential},
		{"x-amz-date", f.Date},
		{"x-amz-signature", f.Signature},
	} {
		if field.value == "" {
			return "", errorf(refused, "bucket POST must contain a field named %q: if it is specified, please check the order of the fields", field.name)
		}
	}
	c := &credential{form: true}
	if f.Algorithm != algorithm {
		return "", c.malformed("x-amz-algorithm only supports %s", algorithm)
	}
	if err := c.setScope(f.Credential); err != nil {
		return "", err
	}
	if _, ok := parseStamp(f.Date); !ok {
		return "", c.malformed("x-amz-date must be in the form %s", stampForm)
	}
	c.stamp = f.Date
	if err := v.checkScope(c); err != nil {
		return "", err
	}
	// The signature with a token verifies nothing.
	if strings.HasPrefix(c.accessKey, tokenPrefix) {
		return "", errorf(CodeDenied, "a token is not accepted in a form: sign its policy with an access key")
	}
	secret, unknown, err := v.secret(ctx, c.accessKey)
	if err != nil {
		return "", err
	}
	want := hmacHex(signingKey(secret, c), f.Policy)
	if subtle.ConstantTimeCompare([]byte(want), []byte(f.Signature))&^unknown != 1 {
		return "", mismatch(unknown, "the policy")
	}
	return c.accessKey, nil
}

func hmacHex(key []byte, text string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}
