//go:build conformance

package conformance

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// page is the origin of a page whose scripts the tests are.
const page = "https://page.example"

// corsRule is a CORSRule as it is answered.
type corsRule struct {
	ID            string
	AllowedOrigin []string
	AllowedMethod []string
	AllowedHeader []string
	ExposeHeader  []string
	MaxAgeSeconds int
}

// browse sends what a browser sends for a script, as it is: first it asks whether it
// may, then it sends the request, of which the script sees nothing unless the answer
// says so.
func browse(t *testing.T, method string, to *url.URL, body []byte, pairs ...string) (asked, got *reply) {
	t.Helper()
	do := func(method string, body []byte, header http.Header) *reply {
		req, err := http.NewRequestWithContext(t.Context(), method, to.String(), bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		req.Header.Set("Origin", page)
		r, err := harness.Answer(http.DefaultTransport, req)
		if err != nil {
			t.Fatal(err)
		}
		return &r
	}
	header, names := http.Header{}, []string{}
	for i := 0; i < len(pairs); i += 2 {
		header.Set(pairs[i], pairs[i+1])
		names = append(names, strings.ToLower(pairs[i]))
	}
	question := http.Header{"Access-Control-Request-Method": {method}}
	if slices.Sort(names); len(names) > 0 {
		question.Set("Access-Control-Request-Headers", strings.Join(names, ","))
	}
	if asked = do(http.MethodOptions, nil, question); asked.Status != http.StatusOK {
		return asked, nil
	}
	return asked, do(method, body, header)
}

// TestCorsOfABucket promises that scripts of a page may use a bucket on every node as its CORS rules say, and see
// nothing of other accounts or after the rules are deleted.
func TestCorsOfABucket(t *testing.T) {
	t.Parallel() // a cluster of its own
	g := newGateway(t, harness.Options{Env: []string{"HOLDFAST_API_ORIGINS=https://console.example"}})
	bucket := "cors" + randomName()
	x := g.tool(t)
	endpoint := "--endpoint-url=" + g.node.S3URL()
	x.run("aws", endpoint, "s3api", "create-bucket", "--bucket", bucket)
	x.run("aws", endpoint, "s3api", "put-bucket-cors", "--bucket", bucket, "--cors-configuration",
		`{"CORSRules":[{"ID":"page","AllowedOrigins":["https://*.example"],"AllowedMethods":["GET","PUT"],"AllowedHeaders":["*"],"ExposeHeaders":["ETag"],"MaxAgeSeconds":60}]}`)
	x.has(x.run("aws", endpoint, "s3api", "get-bucket-cors", "--bucket", bucket), `"page"`, `"https://*.example"`, `"MaxAgeSeconds": 60`)

	mine := &objects{t: t, cluster: g.cluster, token: g.key.Token, turn: newObjects(t, g.cluster, "turn@example.org").turn}
	theirs := newObjects(t, g.cluster, "other@example.org")
	theirs.ok(http.StatusOK, http.MethodPut, "/"+bucket, nil)
	ctx := t.Context()
	for i, n := range g.cluster.Live() {
		got := into[struct{ CORSRule []corsRule }](t, mine.callOn(n, http.MethodGet, "/"+bucket+"?cors", nil)).CORSRule
		want := corsRule{"page", []string{"https://*.example"}, []string{"GET", "PUT"}, []string{"*"}, []string{"ETag"}, 60}
		if len(got) != 1 || fmt.Sprint(got[0]) != fmt.Sprint(want) {
			t.Errorf("node %d: %+v", i, got)
		}
		to, err := url.Parse(n.S3URL() + "/" + bucket + "/by-token")
		if err != nil {
			t.Fatal(err)
		}
		// A script with a token of ours, one with a token of others, and one with none:
		// all may ask, and only ours sees the answer.
		for token, sees := range map[string]bool{g.key.Token: true, theirs.token: false, "none": false} {
			asked, answer := browse(t, http.MethodGet, to, nil, "Authorization", "Bearer "+token)
			if answer == nil || asked.Header.Get("Access-Control-Allow-Headers") != "authorization" || asked.Header.Get("Access-Control-Allow-Origin") != "*" {
				t.Fatalf("node %d: asked %d %v", i, asked.Status, asked.Header)
			}
			if origin := answer.Header.Get("Access-Control-Allow-Origin"); (origin == page) != sees || !sees && origin != "" {
				t.Errorf("node %d: a script sees %d, %v", i, answer.Status, answer.Header)
			}
		}
		links := s3.NewPresignClient(g.sdk(n))
		put, err := links.PresignPutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("by-link")})
		if err != nil {
			t.Fatal(err)
		}
		if to, err = url.Parse(put.URL); err != nil {
			t.Fatal(err)
		}
		asked, answer := browse(t, http.MethodPut, to, []byte("of a page"), "Content-Type", "text/plain")
		if answer == nil || answer.Status != http.StatusOK || answer.Header.Get("Access-Control-Expose-Headers") != "ETag" || asked.Header.Get("Access-Control-Max-Age") != "60" {
			t.Errorf("node %d: a link: %d %v %v", i, asked.Status, asked.Header, answer)
		}
		// What the rules do not have is refused.
		drop, err := links.PresignDeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: aws.String("by-link")})
		if err != nil {
			t.Fatal(err)
		}
		if to, err = url.Parse(drop.URL); err != nil {
			t.Fatal(err)
		}
		if asked, _ := browse(t, http.MethodDelete, to, nil); asked.Status != http.StatusForbidden || asked.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("node %d: a link to delete: %d %v", i, asked.Status, asked.Header)
		}
	}
	if got := theirs.call(http.MethodGet, "/"+bucket+"?cors", nil); got.Status != http.StatusNotFound || !bytes.Contains(got.Body, []byte("NoSuchCORSConfiguration")) {
		t.Errorf("the rules of another account: %d %s", got.Status, got.Body)
	}
	// The setting goes on.
	got := theirs.call(http.MethodGet, "/"+bucket, nil, "Origin", "https://console.example")
	if got.Header.Get("Access-Control-Allow-Origin") != "https://console.example" {
		t.Errorf("the origin of the setting: %v", got.Header)
	}
	x.run("aws", endpoint, "s3api", "delete-bucket-cors", "--bucket", bucket)
	for _, n := range g.cluster.Live() {
		if got := mine.callOn(n, http.MethodGet, "/"+bucket+"?cors", nil); got.Status != http.StatusNotFound {
			t.Errorf("rules that were deleted: %d %s", got.Status, got.Body)
		}
		if got := mine.callOn(n, http.MethodGet, "/"+bucket, nil, "Origin", page); got.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("by rules that were deleted: %v", got.Header)
		}
	}
	// A bucket that comes again has nothing of the one before.
	bad, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"CORSConfiguration"`
		Rule    corsRule `xml:"CORSRule"`
	}{Rule: corsRule{AllowedOrigin: []string{"*"}, AllowedMethod: []string{"PATCH"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := mine.call(http.MethodPut, "/"+bucket+"?cors", bad); got.Status != http.StatusBadRequest || !bytes.Contains(got.Body, []byte("InvalidRequest")) {
		t.Errorf("a method that no rule can have: %d %s", got.Status, got.Body)
	}
	good := bytes.Replace(bad, []byte("PATCH"), []byte("GET"), 1)
	good = bytes.Replace(good, []byte("<MaxAgeSeconds>0</MaxAgeSeconds>"), nil, 1)
	again := "/again" + randomName()
	mine.ok(http.StatusOK, http.MethodPut, again, nil)
	mine.ok(http.StatusOK, http.MethodPut, again+"?cors", good)
	mine.ok(http.StatusNoContent, http.MethodDelete, again, nil)
	mine.ok(http.StatusOK, http.MethodPut, again, nil)
	if got := mine.call(http.MethodGet, again+"?cors", nil); got.Status != http.StatusNotFound {
		t.Errorf("a bucket that came again: %d %s", got.Status, got.Body)
	}
}
