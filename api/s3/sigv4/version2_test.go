package sigv4

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// hostedBelow finds the bucket in hosts below a domain.
func hostedBelow(host string) (string, bool) {
	return strings.CutSuffix(host, ".s3.holdfast.test:9000")
}

// version2At takes links of version 2 at a time after awsStamp.
func version2At(after time.Duration) *Verifier {
	base, _ := parseStamp(awsStamp)
	return New(lookup, "", func() time.Time { return base.Add(after) }).WithVersion2(hostedBelow)
}

// link returns one of testdata/boto3_version2.tsv.
func link(t testing.TB, name string) *http.Request {
	t.Helper()
	for _, fields := range links(t) {
		if fields[0] != name {
			continue
		}
		r, err := http.NewRequestWithContext(t.Context(), fields[1], fields[2], http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if name == "put_typed" { // what the link says has to be sent
			r.Header = http.Header{"Content-Type": {"text/plain"}, "X-Amz-Meta-Colour": {"blue"}, "X-Amz-Acl": {" private "}, "X-Amz-Storage-Class": {"STANDARD_IA"}}
		}
		return r
	}
	t.Fatalf("there is no link %s", name)
	return nil
}

func links(t testing.TB) (all [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "boto3_version2.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		all = append(all, strings.Split(line, "\t"))
	}
	return all
}

// A presigned URL of boto3's generate_presigned_url is verified, and refused with another path, method, end,
// header or signature.
func TestLinksOfBoto3AreVerified(t *testing.T) {
	v := version2At(0)
	for _, fields := range links(t) {
		name := fields[0]
		caller, err := v.Verify(t.Context(), wire(t, link(t, name)))
		if err != nil || caller.AccessKey != testKey || !caller.Presigned || !caller.Version2 {
			t.Errorf("%s: %v, %v", name, caller, err)
			continue
		}
		for what, change := range map[string]func(*http.Request){
			"path":   func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/bucket/other", "" },
			"method": func(r *http.Request) { r.Method = map[string]string{"GET": "PUT", "PUT": "GET"}[r.Method] },
			"end": func(r *http.Request) {
				r.URL.RawQuery = strings.Replace(r.URL.RawQuery, "Expires=13", "Expires=0013", 1)
			},
			"upload": query("&uploads"),
			"acl":    query("&acl"),
			"type":   set("Content-Type", "text/html"),
			"digest": set("Content-MD5", "x"),
			"header": set("X-Amz-Copy-Source", "/bucket/secret"),
			"key":    replaceQuery(testKey, testKey+"x"),
			"secret": replaceQuery("Signature=", "Signature=A"),
		} {
			r := link(t, name)
			if change(r); r.Method == "" {
				r.Method = "PUT"
			}
			if _, err := v.Verify(t.Context(), wire(t, r)); err == nil || code(t, err) != CodeSignature && code(t, err) != CodeUnknownKey {
				t.Errorf("%s with another %s: %v", name, what, err)
			}
		}
	}
	// A client that leaves a plus of the signature as it is means a plus.
	r := link(t, "get")
	r.URL.RawQuery = strings.Replace(r.URL.RawQuery, "%2B", "+", 1)
	if _, err := v.Verify(t.Context(), wire(t, r)); err != nil {
		t.Error("a plus:", err)
	}
	// Headers that no link signs are free, and so are parameters that it leaves out.
	r = link(t, "list")
	r.Header.Set("Range", "bytes=0-1")
	r.URL.RawQuery += "&max-keys=1"
	if _, err := v.Verify(t.Context(), wire(t, r)); err != nil {
		t.Error("a header that is free:", err)
	}
}

// A presigned URL of version 2 is valid until its end, which may be a week and Window away.
func TestLinksOfVersion2HaveAnEnd(t *testing.T) {
	for _, tc := range []struct {
		name, link string
		after      time.Duration
		good       bool
	}{
		{"at once", "get", 0, true},
		{"in its last second", "get", time.Hour, true},
		{"after it", "get", time.Hour + time.Second, false},
		{"a week, at once", "week", 0, true},
		{"a week, of a clock ahead", "week", -Window, true},
		{"more than a week", "week", -Window - time.Second, false},
	} {
		_, err := version2At(tc.after).Verify(t.Context(), wire(t, link(t, tc.link)))
		if tc.good && err != nil || !tc.good && (err == nil || code(t, err) != CodeExpired) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// A presigned URL of version 2 that is malformed or accompanied by other credentials is refused with its code,
// and its key is looked up only for a wrong signature.
func TestLinksOfVersion2AreRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after func(*http.Request)
		want  Code
	}{
		{"a method that has none", func(r *http.Request) { r.Method = "POST" }, CodeScheme},
		{"no end", replaceQuery("&Expires=1369357200", ""), CodeScheme},
		{"an empty end", replaceQuery("Expires=1369357200", "Expires="), CodeScheme},
		{"an end in words", replaceQuery("Expires=1369357200", "Expires=soon"), CodeExpired},
		{"a negative end", replaceQuery("Expires=1369357200", "Expires=-1"), CodeExpired},
		{"an end beyond numbers", replaceQuery("Expires=1369357200", "Expires="+strings.Repeat("9", 18)), CodeExpired},
		{"an end twice", query("&Expires=1369357200"), CodeQuery},
		{"no key", replaceQuery("AWSAccessKeyId="+testKey+"&", ""), CodeScheme},
		{"no signature", func(r *http.Request) { r.URL.RawQuery = "AWSAccessKeyId=" + testKey + "&Expires=1369357200" }, CodeScheme},
		{"a signature that is not encoded", func(r *http.Request) {
			r.URL.RawQuery = "AWSAccessKeyId=" + testKey + "&Expires=1369357200&Signature=!"
		}, CodeSignature},
		{"a signature of another query that reads alike", query("&response-content-type=a%26versionId%3D1"), CodeSignature},
		{"a token", replaceQuery(testKey, "JWT%3Aey.ey.sig"), CodeDenied},
		{"a security token", query("&x-amz-security-token=x"), CodeToken},
		{"a security token in a header", set("X-Amz-Security-Token", "x"), CodeToken},
		{"a bearer token beside it", set("Authorization", "Bearer x"), CodeSeveral},
		{"version 2 in the header", func(r *http.Request) {
			r.URL.RawQuery = ""
			r.Header.Set("Authorization", "AWS "+testKey+":x")
		}, CodeRequest},
		{"version 4 beside it", query("&X-Amz-Signature=x"), CodeSeveral},
	} {
		asked := false
		v := version2At(0)
		v.lookup = func(ctx context.Context, key string) (string, error) {
			asked = true
			return lookup(ctx, key)
		}
		r := link(t, "get")
		tc.after(r)
		if _, err := v.Verify(t.Context(), wire(t, r)); err == nil || code(t, err) != tc.want {
			t.Errorf("%s: %v, want code %d", tc.name, err, tc.want)
		}
		if asked != strings.HasPrefix(tc.name, "a signature") {
			t.Errorf("%s: the key is looked up: %v", tc.name, asked)
		}
	}
	off := New(lookup, "", version2At(0).now)
	if _, err := off.Verify(t.Context(), wire(t, link(t, "get"))); err == nil || code(t, err) != CodeScheme {
		t.Errorf("where they are turned off: %v", err)
	}
	if !slices.IsSorted(version2Signed) || SignedByVersion2("attributes") || !SignedByVersion2("website") {
		t.Error("the parameters that are signed")
	}
}
