package sigv4

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// awsForm returns the form of "Example: Browser-Based Upload using HTTP POST (Using AWS
// Signature Version 4)" in the Amazon S3 API Reference, with its signature.
func awsForm() Form {
	const policy = `{ "expiration": "2015-12-30T12:00:00.000Z",
  "conditions": [
    {"bucket": "sigv4examplebucket"},
    ["starts-with", "$key", "user/user1/"],
    {"acl": "public-read"},
    {"success_action_redirect": "http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html"},
    ["starts-with", "$Content-Type", "image/"],
    {"x-amz-meta-uuid": "14365123651274"},
    {"x-amz-server-side-encryption": "AES256"},
    ["starts-with", "$x-amz-meta-tag", ""],

    {"x-amz-credential": "AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request"},
    {"x-amz-algorithm": "AWS4-HMAC-SHA256"},
    {"x-amz-date": "20151229T000000Z" }
  ]
}`
	return Form{
		Algorithm:  algorithm,
		Credential: awsKey + "/20151229/us-east-1/s3/aws4_request",
		Date:       "20151229T000000Z",
		Signature:  "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e",
		Policy:     base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(policy, "\n", "\r\n"))),
	}
}

// The form that Amazon publishes is verified, at any time. Its policy says itself until when it is valid.
func TestThePublishedFormIsVerified(t *testing.T) {
	// At any time: a policy says itself until when it is valid.
	for _, now := range []string{"20151229T000000Z", "20130524T000000Z", "20260102T030405Z"} {
		if key, err := verifierAt(t, now).VerifyForm(t.Context(), awsForm()); err != nil || key != awsKey {
			t.Errorf("at %s: %q, %v", now, key, err)
		}
	}
}

// A form that lacks a field or has a wrong one is refused with its code, and a malformed one without a lookup of
// its key.
func TestFormsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Form)
		want   Code
	}{
		"no policy":           {func(f *Form) { f.Policy = "" }, CodeArgument},
		"no algorithm":        {func(f *Form) { f.Algorithm = "" }, CodeArgument},
		"no credential":       {func(f *Form) { f.Credential = "" }, CodeArgument},
		"no date":             {func(f *Form) { f.Date = "" }, CodeArgument},
		"no signature":        {func(f *Form) { f.Signature = "" }, CodeArgument},
		"another algorithm":   {func(f *Form) { f.Algorithm = "AWS4-HMAC-SHA1" }, CodeArgument},
		"no scope":            {func(f *Form) { f.Credential = awsKey }, CodeArgument},
		"another service":     {func(f *Form) { f.Credential = awsKey + "/20151229/us-east-1/ec2/aws4_request" }, CodeArgument},
		"another end":         {func(f *Form) { f.Credential = awsKey + "/20151229/us-east-1/s3/aws3_request" }, CodeArgument},
		"no region":           {func(f *Form) { f.Credential = awsKey + "/20151229//s3/aws4_request" }, CodeArgument},
		"a wrong region":      {func(f *Form) { f.Credential = awsKey + "/20151229/eu-west-1/s3/aws4_request" }, CodeArgument},
		"no key":              {func(f *Form) { f.Credential = "/20151229/us-east-1/s3/aws4_request" }, CodeArgument},
		"another day":         {func(f *Form) { f.Date = "20151230T000000Z" }, CodeArgument},
		"no time":             {func(f *Form) { f.Date = "20151229" }, CodeArgument},
		"a token":             {func(f *Form) { f.Credential = "JWT:x/20151229/us-east-1/s3/aws4_request" }, CodeDenied},
		"an unknown key":      {func(f *Form) { f.Credential = "x/20151229/us-east-1/s3/aws4_request" }, CodeUnknownKey},
		"another policy":      {func(f *Form) { f.Policy += "=" }, CodeSignature},
		"another signature":   {func(f *Form) { f.Signature = strings.Replace(f.Signature, "8", "9", 1) }, CodeSignature},
		"a part of it":        {func(f *Form) { f.Signature = f.Signature[:10] }, CodeSignature},
		"more than it":        {func(f *Form) { f.Signature += "0" }, CodeSignature},
		"in upper case":       {func(f *Form) { f.Signature = strings.ToUpper(f.Signature) }, CodeSignature},
		"the day of the date": {func(f *Form) { f.Date, f.Credential = "20151228T000000Z", strings.Replace(f.Credential, "29", "28", 1) }, CodeSignature},
	} {
		f := awsForm()
		tc.change(&f)
		asked := false
		v := verifierAt(t, "20151229T000000Z")
		v.lookup = func(ctx context.Context, key string) (string, error) {
			asked = true
			return lookup(ctx, key)
		}
		key, err := v.VerifyForm(t.Context(), f)
		if err == nil || key != "" || code(t, err) != tc.want {
			t.Errorf("%s: %q, %v, want code %d", name, key, err, tc.want)
		}
		if asked && tc.want != CodeDenied && tc.want != CodeUnknownKey && tc.want != CodeSignature {
			t.Errorf("%s: the access key was looked up before the form was judged", name)
		}
	}
}

// A form with an unknown key and one with a wrong signature have different codes, and nobody can sign for an
// unknown key.
func TestOfFormsUnknownKeysAreToldFromWrongSignatures(t *testing.T) {
	v := verifierAt(t, "20151229T000000Z")
	unknown, wrong := awsForm(), awsForm()
	unknown.Credential = "x" + unknown.Credential
	wrong.Policy += "x"
	_, first := v.VerifyForm(t.Context(), unknown)
	_, second := v.VerifyForm(t.Context(), wrong)
	if code(t, first) != CodeUnknownKey || code(t, second) != CodeSignature {
		t.Errorf("%v; %v", first, second)
	}
	// Who knows what stands for the secret of an unknown key signs with it.
	f := awsForm()
	f.Credential = "x/20151229/us-east-1/s3/aws4_request"
	v.lookup = func(context.Context, string) (string, error) { return noSecret, nil }
	c := &credential{day: "20151229", region: "us-east-1", service: service, terminator: terminator}
	f.Signature = hmacHex(signingKey(noSecret, c), f.Policy)
	if _, err := v.VerifyForm(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	v.lookup = lookup
	if _, err := v.VerifyForm(t.Context(), f); err == nil || code(t, err) != CodeUnknownKey {
		t.Errorf("an unknown key: %v", err)
	}
	broken := errors.New("no leader")
	v.lookup = func(context.Context, string) (string, error) { return "", broken }
	if _, err := v.VerifyForm(t.Context(), awsForm()); !errors.Is(err, broken) {
		t.Errorf("a lookup that fails: %v", err)
	}
}

// FuzzForm looks for fields that are not refused by an Error, or that pass with
// another signature than that of the policy.
func FuzzForm(f *testing.F) {
	good := awsForm()
	f.Add(good.Algorithm, good.Credential, good.Date, good.Signature, good.Policy)
	f.Add(good.Algorithm, "JWT:x/20151229/us-east-1/s3/aws4_request", good.Date, good.Signature, good.Policy)
	f.Add("", "/", "", "", "")
	f.Fuzz(func(t *testing.T, algorithm, credential, date, signature, policy string) {
		form := Form{Algorithm: algorithm, Credential: credential, Date: date, Signature: signature, Policy: policy}
		key, err := verifierAt(t, "20151229T000000Z").VerifyForm(t.Context(), form)
		switch {
		case err != nil:
			code(t, err)
		case key == awsKey && policy == good.Policy && date[:dayLength] == good.Date[:dayLength] && signature != good.Signature:
			t.Errorf("%+v passes", form)
		}
	})
}

// A form without a field of a signature, or with a policy as the only one, is answered with CodeNone: it is not
// signed.
func TestAFormIsSignedOrNot(t *testing.T) {
	v := verifierAt(t, "20151229T000000Z")
	for _, f := range []Form{{}, {Policy: awsForm().Policy}} {
		if _, err := v.VerifyForm(t.Context(), f); code(t, err) != CodeNone {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
