package sigv4

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// signer returns the SDK's, as its S3 client sets it: paths are encoded once.
func signer() *v4.Signer {
	return v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
}

func credentials(key string) aws.Credentials {
	return aws.Credentials{AccessKeyID: key, SecretAccessKey: secret}
}

// words are what keys, values and names of parameters are made of here.
var words = []string{"/", "//", "..", ".", "%2F", "%", "é", "\xff", " ", "  ", "+", "*", "~", "'", "(", "&", "=", "?", "#", ";", ":", "@", "!", "$", ",", "\"", "<", "{", "|", "\\", "^", "`", "a", "B", "7", "-", "_", "\x7f", "\x01", "雪"}

func phrase(random *rand.Rand, most int) string {
	var b strings.Builder
	for range random.IntN(most + 1) {
		b.WriteString(words[random.IntN(len(words))])
	}
	return b.String()
}

// Each request that the SDK signs is verified behind a server of net/http, over HTTP/1.1 and HTTP/2. Keys,
// parameters and headers are random, and the changes of the server count.
func TestWhatTheSDKSignsIsVerified(t *testing.T) {
	v := New(lookup, "", time.Now)
	type seen struct {
		caller *Caller
		body   string
		err    error
	}
	answers := make(chan seen, 1)
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var s seen
		if s.caller, s.err = v.Verify(r.Context(), r); s.err == nil {
			var body []byte
			body, s.err = io.ReadAll(s.caller.Body(r.Body))
			s.body = string(body)
		}
		answers <- s
	})
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprint("HTTP/", version), func(t *testing.T) {
			server := httptest.NewUnstartedServer(handler)
			server.EnableHTTP2 = version == 2
			server.StartTLS()
			defer server.Close()
			random := rand.New(rand.NewPCG(3, uint64(version)))
			for i := range 200 {
				presign := i%2 == 0
				path := "/" + string(appendEscaped(nil, "bucket/"+phrase(random, 8), true))[0:]
				u := server.URL + path
				var query []string
				for range random.IntN(4) {
					query = append(query, escape("p"+phrase(random, 3))+"="+escape(phrase(random, 4)))
				}
				if presign {
					query = append(query, "X-Amz-Expires=60")
				}
				method, text := "GET", ""
				if random.IntN(2) == 0 {
					method, text = "PUT", phrase(random, 20)
				}
				r, err := http.NewRequestWithContext(t.Context(), method, u+"?"+strings.Join(query, "&"), strings.NewReader(text))
				if err != nil {
					t.Fatalf("%s: %v", u, err)
				}
				if !presign || random.IntN(2) == 0 {
					r.Header["X-Amz-Meta-A"] = []string{"  spaces   within ", "and a second, with a comma"}
					r.Header.Set("Range", "bytes=0-1")
				}
				if text != "" && random.IntN(3) == 0 {
					r.Header.Set("Expect", "100-continue")
				}
				sum := sha256.Sum256([]byte(text))
				payload := hex.EncodeToString(sum[:])
				if random.IntN(3) == 0 {
					payload = unsignedPayload
				}
				if presign {
					// The S3 client's presigner has the hash in the query.
					r.URL.RawQuery += "&X-Amz-Content-Sha256=" + payload
					signed, header, err := signer().PresignHTTP(t.Context(), credentials(testKey), r, payload, "s3", "eu-west-9", time.Now())
					if err != nil {
						t.Fatal(err)
					}
					if r.URL, err = url.Parse(signed); err != nil {
						t.Fatal(err)
					}
					for name, values := range header {
						if name != "Host" && name != "Content-Length" {
							r.Header[name] = values
						}
					}
				} else {
					r.Header.Set("X-Amz-Content-Sha256", payload)
					if err := signer().SignHTTP(t.Context(), credentials(testKey), r, payload, "s3", "eu-west-9", time.Now()); err != nil {
						t.Fatal(err)
					}
				}
				res, err := server.Client().Do(r)
				if err != nil {
					t.Fatalf("%s: %v", r.URL, err)
				}
				_ = res.Body.Close()
				if res.ProtoMajor != version {
					t.Fatalf("%s", res.Proto)
				}
				s := <-answers
				if s.err != nil || s.caller.AccessKey != testKey || s.caller.Presigned != presign || s.body != text {
					t.Fatalf("%s %s %v: %v, %v, %q, want %q", method, r.URL, r.Header, s.caller, s.err, s.body, text)
				}
			}
		})
	}
}

// signed returns a request that the SDK signed at awsStamp, as a server has it. Its
// body is body, and payload is what stands for that.
func signed(t testing.TB, method, target, payload, body string, change func(*http.Request)) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://s3.holdfast.test:9000"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if payload != "" {
		r.Header.Set("X-Amz-Content-Sha256", payload)
	}
	if change != nil {
		change(r)
	}
	when, _ := parseStamp(awsStamp)
	if err := signer().SignHTTP(t.Context(), credentials(testKey), r, payload, "s3", "us-east-1", when); err != nil {
		t.Fatal(err)
	}
	return r
}

// wire sends r through its form on the connection.
func wire(t testing.TB, r *http.Request) *http.Request {
	t.Helper()
	var raw strings.Builder
	if err := r.Write(&raw); err != nil {
		t.Fatal(err)
	}
	return arrive(t, raw.String())
}

// presigned is signed for a request with its credentials in the query.
func presigned(t testing.TB, target string, change func(*http.Request)) *http.Request {
	t.Helper()
	separator := "?"
	if strings.Contains(target, "?") {
		separator = "&"
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://s3.holdfast.test:9000"+target+separator+"X-Amz-Expires=60", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	when, _ := parseStamp(awsStamp)
	signed, _, err := signer().PresignHTTP(t.Context(), credentials(testKey), r, unsignedPayload, "s3", "us-east-1", when)
	if err != nil {
		t.Fatal(err)
	}
	if r.URL, err = url.Parse(signed); err != nil {
		t.Fatal(err)
	}
	return r
}

// An error of the lookup is returned as it is, and not as a wrong signature.
func TestALookupThatFailsIsNoWrongSignature(t *testing.T) {
	down := errors.New("no leader")
	v := New(func(context.Context, string) (string, error) { return "", down }, "", verifierAt(t, awsStamp).now)
	if _, err := v.Verify(t.Context(), wire(t, signed(t, "GET", "/b/k", emptySHA256, "", nil))); !errors.Is(err, down) {
		t.Errorf("%v", err)
	}
}
