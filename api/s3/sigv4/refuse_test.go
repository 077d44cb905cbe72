package sigv4

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// replace changes the Authorization header of a request that was signed.
func replace(old, new string) func(*http.Request) {
	return func(r *http.Request) {
		value := r.Header.Get("Authorization")
		r.Header.Set("Authorization", strings.Replace(value, old, new, 1))
	}
}

func set(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

func without(name string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Del(name) }
}

func query(extra string) func(*http.Request) {
	return func(r *http.Request) { r.URL.RawQuery += extra }
}

func replaceQuery(old, new string) func(*http.Request) {
	return func(r *http.Request) { r.URL.RawQuery = strings.Replace(r.URL.RawQuery, old, new, 1) }
}

// refusal is a request that the SDK signs in between.
type refusal struct {
	name   string
	before func(*http.Request)
	after  func(*http.Request)
	want   Code
}

func (tc refusal) check(t *testing.T) {
	r := signed(t, "GET", "/b/k?list-type=2", emptySHA256, "", tc.before)
	if tc.after != nil {
		tc.after(r)
	}
	asked := false
	v := verifierAt(t, awsStamp)
	v.lookup = func(ctx context.Context, key string) (string, error) {
		asked = true
		return lookup(ctx, key)
	}
	caller, err := v.Verify(t.Context(), wire(t, r))
	if err == nil || caller != nil || code(t, err) != tc.want {
		t.Fatalf("%v, %v, want code %d", caller, err, tc.want)
	}
	if asked && tc.want != CodeDenied && tc.want != CodeUnknownKey && tc.want != CodeSignature {
		t.Error("the access key was looked up before the request was judged")
	}
}

// A request whose credentials are missing, malformed or incomplete is refused with the code of its mistake.
func TestCredentialsAreRefused(t *testing.T) {
	for _, tc := range []refusal{
		{"nothing", nil, without("Authorization"), CodeNone},
		{"a bearer token", nil, set("Authorization", "Bearer x"), CodeNone},
		{"an empty header", nil, set("Authorization", ""), CodeScheme},
		{"basic", nil, set("Authorization", "Basic Zm9vOmJhcg=="), CodeScheme},
		{"version 2", nil, set("Authorization", "AWS "+testKey+":c2lnbmF0dXJl"), CodeRequest},
		{"version 4a", nil, replace("AWS4-HMAC", "AWS4-ECDSA-P256"), CodeArgument},
		{"in lower case", nil, replace("AWS4-HMAC-SHA256", "aws4-hmac-sha256"), CodeScheme},
		{"two headers", nil, func(r *http.Request) { r.Header.Add("Authorization", r.Header.Get("Authorization")) }, CodeSeveral},
		{"a header and a bearer token", nil, func(r *http.Request) { r.Header.Add("Authorization", "Bearer x") }, CodeSeveral},
		{"a header and a signature in the query", nil, query("&X-Amz-Signature=0"), CodeSeveral},
		{"a header and a credential in the query", nil, query("&x-amz-credential=0"), CodeSeveral},
		{"a header and a link of version 2", nil, query("&AWSAccessKeyId=0"), CodeSeveral},
		{"no fields", nil, set("Authorization", algorithm), CodeHeader},
		{"no credential", nil, replace("Credential=", "Credentials="), CodeHeader},
		{"an empty credential", nil, replace("Credential="+testKey+"/20130524/us-east-1/s3/aws4_request", "Credential="), CodeHeader},
		{"two credentials", nil, replace("Credential=", "Credential=x, Credential="), CodeHeader},
		{"two signatures", nil, replace("Signature=", "Signature=0, Signature="), CodeHeader},
		{"no signature", nil, replace(", Signature=", ", Unknown="), CodeHeader},
		{"a comma too many", nil, replace(", Signature=", ",, Signature="), CodeHeader},
		{"very long", nil, replace("Signature=", "Signature="+strings.Repeat("0", maxAuthorization)), CodeHeader},
		{"no access key", nil, replace(testKey+"/", "/"), CodeHeader},
		{"a short credential", nil, replace(testKey+"/20130524/", ""), CodeHeader},
		{"another day", nil, replace("20130524", "20130525"), CodeHeader},
		{"another region", nil, replace("us-east-1", "eu-west-1"), CodeHeader},
		{"no region", nil, replace("/us-east-1/", "//"), CodeHeader},
		{"another service", nil, replace("/s3/", "/sts/"), CodeHeader},
		{"another end", nil, replace("aws4_request", "aws5_request"), CodeHeader},
		{"signed headers out of order", nil, replace("SignedHeaders=host;x-amz-content-sha256;x-amz-date", "SignedHeaders=x-amz-content-sha256;host;x-amz-date"), CodeHeader},
		{"a signed header twice", nil, replace("SignedHeaders=host;", "SignedHeaders=host;host;"), CodeHeader},
		{"a signed header in upper case", nil, replace("SignedHeaders=host", "SignedHeaders=Host"), CodeHeader},
		{"an empty signed header", nil, replace("x-amz-date,", "x-amz-date;,"), CodeHeader},
		{"host unsigned", nil, replace("host;", ""), CodeHeaders},
		{"a signed header that is missing", nil, replace("SignedHeaders=host", "SignedHeaders=accept;host"), CodeHeaders},
		{"a signed trailer header", nil, replace("SignedHeaders=host", "SignedHeaders=host;trailer"), CodeHeaders},
		{"metadata that is unsigned", nil, set("X-Amz-Meta-A", "b"), CodeHeaders},
		{"a copy source that is unsigned", nil, set("X-Amz-Copy-Source", "/b/k"), CodeHeaders},
		{"a length that is unsigned", nil, set("X-Amz-Decoded-Content-Length", "1"), CodeHeaders},
	} {
		t.Run(tc.name, tc.check)
	}
}

// A request whose date, payload hash, trailers, token or signature is wrong is refused with the code of its
// mistake.
func TestHeadersAreRefused(t *testing.T) {
	for _, tc := range []refusal{
		{"no date", nil, without("X-Amz-Date"), CodeDate},
		{"two dates", nil, set("X-Amz-Date", awsStamp, awsStamp), CodeDate},
		{"another form of date", nil, set("X-Amz-Date", "2013-05-24T00:00:00Z"), CodeDate},
		{"parts of a second", nil, set("X-Amz-Date", "20130524T000000.5Z"), CodeDate},
		{"a day that is none", nil, set("X-Amz-Date", "20130532T000000Z"), CodeDate},
		{"a Date that is none", nil, func(r *http.Request) { r.Header.Del("X-Amz-Date"); r.Header.Set("Date", "yesterday") }, CodeDate},
		{"no payload hash", without("X-Amz-Content-Sha256"), nil, CodeRequest},
		{"an empty payload hash", set("X-Amz-Content-Sha256", ""), nil, CodeRequest},
		{"two payload hashes", nil, set("X-Amz-Content-Sha256", emptySHA256, emptySHA256), CodeArgument},
		{"a payload hash that is none", set("X-Amz-Content-Sha256", "abc"), nil, CodeArgument},
		{"a payload hash too long", set("X-Amz-Content-Sha256", emptySHA256+"00"), nil, CodeArgument},
		{"an unknown streaming form", set("X-Amz-Content-Sha256", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"), nil, CodeArgument},
		{"chunks and a hash", set("Content-Encoding", "gzip, AWS-Chunked"), nil, CodeRequest},
		{"trailers without chunks", set("X-Amz-Trailer", "x-amz-checksum-crc32"), nil, CodeRequest},
		{"trailers that are not in the form", func(r *http.Request) {
			r.Header.Set("X-Amz-Content-Sha256", streamingSigned)
			r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
		}, nil, CodeRequest},
		{"a trailer twice", set("X-Amz-Trailer", "a, A"), nil, CodeArgument},
		{"a trailer without a name", set("X-Amz-Trailer", "a,,b"), nil, CodeArgument},
		{"the signature of trailers as a trailer", set("X-Amz-Trailer", "X-Amz-Trailer-Signature"), nil, CodeArgument},
		{"too many trailers", set("X-Amz-Trailer", "a,b,c", "d,e,f", "g,h,i"), nil, CodeArgument},
		{"a length that is none", func(r *http.Request) {
			r.Header.Set("X-Amz-Content-Sha256", streamingSigned)
			r.Header.Set("X-Amz-Decoded-Content-Length", "+1")
		}, nil, CodeArgument},
		{"a length beyond all", func(r *http.Request) {
			r.Header.Set("X-Amz-Content-Sha256", streamingSigned)
			r.Header.Set("X-Amz-Decoded-Content-Length", "999999999999999999")
		}, nil, CodeArgument},
		{"two lengths", func(r *http.Request) {
			r.Header.Set("X-Amz-Content-Sha256", streamingSigned)
			r.Header["X-Amz-Decoded-Content-Length"] = []string{"1", "1"}
		}, nil, CodeArgument},
		{"a security token", set("X-Amz-Security-Token", "token"), nil, CodeToken},
		{"a security token in the query", query("&x-amz-security-token=token"), nil, CodeToken},
		{"a query that is not encoded", nil, query("&a=%zz"), CodeURI},
		{"an unknown key", nil, replace(testKey, "HFUNKNOWN"), CodeUnknownKey},
		{"another key", nil, replace(testKey, "HF/with/slashes"), CodeUnknownKey},
		{"another signature", nil, replace("Signature=", "Signature=0"), CodeSignature},
		{"a signature in upper case", nil, func(r *http.Request) {
			head, tail, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
			r.Header.Set("Authorization", head+"Signature="+strings.ToUpper(tail))
		}, CodeSignature},
		{"another method", nil, func(r *http.Request) { r.Method = "DELETE" }, CodeSignature},
		{"another path", nil, func(r *http.Request) { r.URL.Path += "x" }, CodeSignature},
		{"another query", nil, query("&acl"), CodeSignature},
		{"another host", nil, func(r *http.Request) { r.Host = "s3.holdfast.test:9001" }, CodeSignature},
		{"another payload hash", nil, set("X-Amz-Content-Sha256", strings.Repeat("0", 64)), CodeSignature},
		{"no payload hash wanted", nil, set("X-Amz-Content-Sha256", unsignedPayload), CodeSignature},
		{"another second", nil, set("X-Amz-Date", "20130524T000001Z"), CodeSignature},
		{"a second value", set("X-Amz-Meta-A", "b"), set("X-Amz-Meta-A", "b", "c"), CodeSignature},
		{"two values in another order", set("X-Amz-Meta-A", "b", "c"), set("X-Amz-Meta-A", "c", "b"), CodeSignature},
		{"a token without one", nil, replace(testKey, "JWT:"), CodeDenied},
	} {
		t.Run(tc.name, tc.check)
	}
}

// A presigned URL that is malformed, changed or accompanied by other credentials is refused with the code of its
// mistake.
func TestLinksAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(*http.Request)
		after  func(*http.Request)
		want   Code
	}{
		{"version 2", nil, func(r *http.Request) { r.URL.RawQuery = "AWSAccessKeyId=" + testKey + "&Expires=1&Signature=x" }, CodeScheme},
		{"both versions", nil, query("&AWSAccessKeyId=x"), CodeSeveral},
		{"a link and a bearer token", nil, set("Authorization", "Bearer x"), CodeSeveral},
		{"a parameter twice", nil, query("&X-Amz-Expires=60"), CodeQuery},
		{"the signature twice", nil, query("&X-Amz-Signature=0"), CodeQuery},
		{"a parameter in lower case", nil, replaceQuery("X-Amz-Date", "x-amz-date"), CodeQuery},
		{"no algorithm", nil, replaceQuery("X-Amz-Algorithm", "algorithm"), CodeQuery},
		{"another algorithm", nil, replaceQuery("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA512"), CodeQuery},
		{"no credential", nil, replaceQuery("X-Amz-Credential", "credential"), CodeQuery},
		{"a short credential", nil, replaceQuery("%2Faws4_request", ""), CodeQuery},
		{"another day", nil, replaceQuery("%2F20130524", "%2F20130523"), CodeQuery},
		{"another region", nil, replaceQuery("us-east-1", "mars-1"), CodeQuery},
		{"no date", nil, replaceQuery("X-Amz-Date", "date"), CodeQuery},
		{"a date that is none", nil, replaceQuery(awsStamp, "20130524"), CodeQuery},
		{"no life", nil, replaceQuery("X-Amz-Expires=60", ""), CodeQuery},
		{"a life of 0", nil, replaceQuery("X-Amz-Expires=60", "X-Amz-Expires=0"), CodeQuery},
		{"a negative life", nil, replaceQuery("X-Amz-Expires=60", "X-Amz-Expires=-1"), CodeQuery},
		{"a life of more than a week", nil, replaceQuery("X-Amz-Expires=60", "X-Amz-Expires=604801"), CodeQuery},
		{"a life in words", nil, replaceQuery("X-Amz-Expires=60", "X-Amz-Expires=1h"), CodeQuery},
		{"a life beyond numbers", nil, replaceQuery("X-Amz-Expires=60", "X-Amz-Expires="+strings.Repeat("9", 30)), CodeQuery},
		{"no signed headers", nil, replaceQuery("X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders="), CodeQuery},
		{"signed headers encoded twice", nil, replaceQuery("X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders=host%253Brange"), CodeQuery},
		{"no signature", nil, replaceQuery("X-Amz-Signature", "signature"), CodeQuery},
		{"host unsigned", nil, replaceQuery("X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders=range"), CodeHeaders},
		{"metadata that is unsigned", nil, set("X-Amz-Meta-A", "b"), CodeHeaders},
		{"a date header that is unsigned", nil, set("X-Amz-Date", awsStamp), CodeHeaders},
		{"a payload hash twice", nil, query("&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD"), CodeQuery},
		{"an empty payload hash", query("&X-Amz-Content-Sha256="), nil, CodeArgument},
		{"two payload hashes", query("&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD"), set("X-Amz-Content-Sha256", emptySHA256), CodeArgument},
		{"a security token", query("&X-Amz-Security-Token=x"), nil, CodeToken},
		{"a token", nil, replaceQuery(testKey, "JWT%3Aey.ey.sig"), CodeDenied},
		{"an unknown key", nil, replaceQuery(testKey, "HFUNKNOWN"), CodeUnknownKey},
		{"another life", nil, replaceQuery("X-Amz-Expires=60", "X-Amz-Expires=61"), CodeSignature},
		{"another parameter", nil, query("&acl"), CodeSignature},
		{"a payload hash that was not signed", nil, set("X-Amz-Content-Sha256", emptySHA256), CodeSignature},
		{"another path", nil, func(r *http.Request) { r.URL.Path += "x" }, CodeSignature},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := presigned(t, "/b/k", tc.before)
			if tc.after != nil {
				tc.after(r)
			}
			caller, err := verifierAt(t, awsStamp).Verify(t.Context(), wire(t, r))
			if err == nil || caller != nil || code(t, err) != tc.want {
				t.Fatalf("%v, %v, want code %d", caller, err, tc.want)
			}
		})
	}
}

// A signature is valid within Window before and after its time, and a presigned URL from Window before its time
// until its end.
func TestTimeIsAWindow(t *testing.T) {
	base, _ := parseStamp(awsStamp)
	for _, tc := range []struct {
		name string
		link bool
		at   time.Duration
		want Code // CodeNone: accepted
	}{
		{"signed as far ahead as may be", false, -Window, CodeNone},
		{"signed ahead of that", false, -Window - time.Second, CodeSkewed},
		{"signed as long ago as may be", false, Window, CodeNone},
		{"signed before that", false, Window + time.Second, CodeSkewed},
		{"a link as far ahead as may be", true, -Window, CodeNone},
		{"a link ahead of that", true, -Window - time.Second, CodeExpired},
		{"a link in its last second", true, time.Minute, CodeNone},
		{"a link after it", true, time.Minute + time.Second, CodeExpired},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := signed(t, "GET", "/b/k", emptySHA256, "", nil)
			if tc.link {
				r = presigned(t, "/b/k", nil)
			}
			v := New(lookup, "", func() time.Time { return base.Add(tc.at) })
			_, err := v.Verify(t.Context(), wire(t, r))
			if tc.want == CodeNone && err != nil || tc.want != CodeNone && code(t, err) != tc.want {
				t.Errorf("%v, want code %d", err, tc.want)
			}
		})
	}
}

// An unknown key and a wrong signature have different codes, as on Amazon S3, and nobody can sign for an unknown
// key.
func TestUnknownKeysAreToldFromWrongSignatures(t *testing.T) {
	v := verifierAt(t, awsStamp)
	unknown, wrong := signed(t, "GET", "/b/k", emptySHA256, "", nil), signed(t, "GET", "/b/k", emptySHA256, "", nil)
	replace(testKey, "HFUNKNOWN")(unknown)
	replace("Signature=", "Signature=f")(wrong)
	_, one := v.Verify(t.Context(), wire(t, unknown))
	_, two := v.Verify(t.Context(), wire(t, wrong))
	if code(t, one) != CodeUnknownKey || code(t, two) != CodeSignature {
		t.Errorf("%v, %v", one, two)
	}
	// Whoever signs with the secret that stands for that of unknown keys is nobody.
	r := signed(t, "GET", "/b/k", emptySHA256, "", nil)
	replace(testKey, "HFUNKNOWN")(r)
	arrived := wire(t, r)
	known := New(func(context.Context, string) (string, error) { return noSecret, nil }, "", v.now)
	q, err := read(arrived)
	if err != nil {
		t.Fatal(err)
	}
	c, err := q.credential(arrived)
	if err != nil {
		t.Fatal(err)
	}
	links := newChain(signingKey(noSecret, c), c.stamp, c.day+"/"+c.region+"/s3/aws4_request")
	links.seed(sumOf(canonical(nil, arrived, q, c, q.path, emptySHA256)))
	arrived.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), c.signature, string(links.previous[:]), 1))
	if _, err := known.Verify(t.Context(), arrived); err != nil {
		t.Fatalf("the test signs wrong: %v", err)
	}
	if _, err := v.Verify(t.Context(), arrived); code(t, err) != CodeUnknownKey {
		t.Errorf("%v", err)
	}
}

// A signed request is verified although what lies between rewrote spaces, order or encoding without changing its
// meaning.
func TestWhatIsAccepted(t *testing.T) {
	v := verifierAt(t, awsStamp)
	for _, tc := range []struct {
		name   string
		before func(*http.Request)
		after  func(*http.Request)
	}{
		{"no spaces after commas", nil, func(r *http.Request) {
			r.Header.Set("Authorization", strings.ReplaceAll(r.Header.Get("Authorization"), ", ", ","))
		}},
		{"fields in another order", nil, func(r *http.Request) {
			fields := strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), algorithm+" "), ", ")
			slices.Reverse(fields)
			r.Header.Set("Authorization", algorithm+" "+strings.Join(fields, " ,\t"))
		}},
		{"values folded on the way", set("X-Amz-Meta-A", "a b", "c"), set("X-Amz-Meta-A", " a \t  b ", "c  ")},
		{"values joined on the way", set("X-Amz-Meta-A", "a", "b"), set("X-Amz-Meta-A", "a,b")},
		{"a trace id that is unsigned", nil, set("X-Amzn-Trace-Id", "Root=1")},
		{"a content type that is unsigned", nil, set("Content-Type", "text/plain")},
		{"a parameter without a value", query("&acl"), replaceQuery("acl=", "acl")},
		{"a query with holes", nil, func(r *http.Request) { r.URL.RawQuery = "&&" + r.URL.RawQuery + "&" }},
		{"a query in another order", nil, func(r *http.Request) { r.URL.RawQuery = "b=%20x&a=2&a=1" }},
		{"a plus for a space", nil, func(r *http.Request) { r.URL.RawQuery = "a=1&a=2&b=+x" }},
		{"a query in other letters", nil, func(r *http.Request) { r.URL.RawQuery = "%61=1&a=2&b=%20x" }},
		{"an encoding in lower case", nil, func(r *http.Request) { r.URL.RawPath = "/b/%c3%A9k" }},
		{"a path that is not encoded", nil, func(r *http.Request) { r.URL = nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := signed(t, "GET", "/b/%C3%A9k?a=1&a=2&b=%20x", emptySHA256, "", tc.before)
			var arrived *http.Request
			if tc.after != nil {
				tc.after(r)
			}
			if r.URL == nil { // net/http does not write such a path
				arrived = arrive(t, "GET /b/ék?a=1&a=2&b=%20x HTTP/1.1\r\nHost: s3.holdfast.test:9000\r\n"+emptyBody+
					"X-Amz-Date: "+awsStamp+"\r\nAuthorization: "+r.Header.Get("Authorization")+"\r\n\r\n")
			} else {
				arrived = wire(t, r)
			}
			if caller, err := v.Verify(t.Context(), arrived); err != nil || caller.AccessKey != testKey {
				t.Errorf("%v, %v", caller, err)
			}
		})
	}
}

// A signed request is verified in each form in which a server may hold it, as in the absolute form or without
// the headers that net/http removes.
func TestFormsThatAServerMayHave(t *testing.T) {
	v := verifierAt(t, awsStamp)
	when, _ := parseStamp(awsStamp)
	t.Run("the absolute form", func(t *testing.T) {
		r := signed(t, "GET", "/b/k?a=1", emptySHA256, "", nil)
		var raw strings.Builder
		if err := r.WriteProxy(&raw); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(t.Context(), arrive(t, raw.String())); err != nil || !strings.HasPrefix(raw.String(), "GET http://") {
			t.Errorf("%v in %s", err, raw.String())
		}
	})
	t.Run("not from a server", func(t *testing.T) {
		for _, target := range []string{"/b/%2F//..?a=1", ""} {
			if _, err := v.Verify(t.Context(), signed(t, "GET", target, emptySHA256, "", nil)); err != nil {
				t.Errorf("%q: %v", target, err)
			}
		}
	})
	t.Run("the absolute form without a path", func(t *testing.T) {
		r := signed(t, "GET", "/", emptySHA256, "", nil)
		r.RequestURI = "http://s3.holdfast.test:9000"
		if _, err := v.Verify(t.Context(), r); err != nil {
			t.Error(err)
		}
	})
	// net/http, or what is before it, takes these out of the header.
	for name, value := range map[string]string{"Content-Length": "5", "Transfer-Encoding": "chunked", "Expect": "100-continue"} {
		t.Run("without "+name, func(t *testing.T) {
			r := wire(t, signed(t, "PUT", "/b/k", unsignedPayload, "", nil))
			r.ContentLength, r.TransferEncoding = 5, []string{"chunked"}
			resign(t, r, name, value)
			if _, err := v.Verify(t.Context(), r); err != nil {
				t.Error(err)
			}
			r.ContentLength, r.TransferEncoding = -1, nil
			if _, err := v.Verify(t.Context(), r); name != "Expect" && code(t, err) != CodeHeaders {
				t.Errorf("and not known otherwise: %v", err)
			}
		})
	}
	t.Run("a date in the other header", func(t *testing.T) {
		r := signed(t, "GET", "/b/k", emptySHA256, "", func(r *http.Request) { r.Header.Set("Date", when.Format(http.TimeFormat)) })
		r = wire(t, r)
		q, err := read(r)
		if err != nil {
			t.Fatal(err)
		}
		c, err := q.credential(r)
		if err != nil {
			t.Fatal(err)
		}
		// The SDK signs X-Amz-Date always; the same without it:
		r.Header.Del("X-Amz-Date")
		c.signed = slices.DeleteFunc(c.signed, func(name string) bool { return name == "x-amz-date" })
		c.names = strings.Join(c.signed, ";")
		links := newChain(signingKey(secret, c), awsStamp, "20130524/us-east-1/s3/aws4_request")
		links.seed(sumOf(canonical(nil, r, q, c, q.path, emptySHA256)))
		r.Header.Set("Authorization", fmt.Sprintf("%s Credential=%s/20130524/us-east-1/s3/aws4_request,SignedHeaders=%s,Signature=%s",
			algorithm, testKey, c.names, links.previous))
		if _, err := v.Verify(t.Context(), r); err != nil {
			t.Error(err)
		}
	})
}

// resign signs r as if a header were there, which is not.
func resign(t *testing.T, r *http.Request, name, value string) {
	t.Helper()
	q, err := read(r)
	if err != nil {
		t.Fatal(err)
	}
	c, err := q.credential(r)
	if err != nil {
		t.Fatal(err)
	}
	c.signed = append(slices.Clone(c.signed), strings.ToLower(name))
	slices.Sort(c.signed)
	c.names = strings.Join(c.signed, ";")
	r.Header.Set(name, value)
	links := newChain(signingKey(secret, c), c.stamp, "20130524/us-east-1/s3/aws4_request")
	links.seed(sumOf(canonical(nil, r, q, c, q.path, r.Header.Get(contentSHA256))))
	r.Header.Del(name)
	r.Header.Set("Authorization", fmt.Sprintf("%s Credential=%s/20130524/us-east-1/s3/aws4_request,SignedHeaders=%s,Signature=%s",
		algorithm, testKey, c.names, links.previous))
}

// A token as access key is taken without a lookup, and is not shown when the caller is printed. It is the access
// key of clients that have no other.
func TestATokenIsItsOwnProof(t *testing.T) {
	v := New(func(context.Context, string) (string, error) {
		t.Error("a token was looked up")
		return "", ErrUnknownKey
	}, "", verifierAt(t, awsStamp).now)
	r := signed(t, "PUT", "/b/k", streamingSigned, "5;chunk-signature="+emptySHA256+"\r\nhello\r\n0;chunk-signature="+emptySHA256+"\r\n\r\n", nil)
	replace(testKey, "JWT:head.claims.mark")(r)
	r = wire(t, r)
	caller, err := v.Verify(t.Context(), r)
	if err != nil || caller.Token != "head.claims.mark" || caller.AccessKey != "" {
		t.Fatalf("%v, %v", caller, err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", caller, caller, caller, caller); strings.Contains(text, "claims") {
		t.Errorf("the token is told: %s", text)
	}
	if got, err := io.ReadAll(caller.Body(r.Body)); string(got) != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// SchemeOf tells a request without credentials, with a bearer token, a signature and a presigned URL apart, and
// refuses two tokens.
func TestSchemes(t *testing.T) {
	for _, tc := range []struct {
		r    *http.Request
		want Scheme
	}{
		{arrive(t, "GET /?a HTTP/1.1\r\nHost: h\r\n\r\n"), SchemeNone},
		{arrive(t, "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: bEARER x\r\n\r\n"), SchemeBearer},
		{wire(t, signed(t, "GET", "/", emptySHA256, "", nil)), SchemeHeader},
		{wire(t, presigned(t, "/", nil)), SchemeQuery},
	} {
		if got, err := SchemeOf(tc.r); err != nil || got != tc.want {
			t.Errorf("%d, %v, want %d", got, err, tc.want)
		}
	}
	if _, err := SchemeOf(arrive(t, "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer x\r\nAuthorization: Bearer x\r\n\r\n")); code(t, err) != CodeSeveral {
		t.Error(err)
	}
}

// Each code has an S3 name and a status from 400 to 499.
func TestEveryCodeHasAnAnswer(t *testing.T) {
	for c := range codes {
		if name, status := c.S3(); name == "" || status < 400 || status > 499 {
			t.Errorf("code %d: %q, %d", c, name, status)
		}
	}
}
